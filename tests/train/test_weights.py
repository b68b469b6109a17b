"""Weights of arcs: read by products with A, on every grid and in batches; said aloud where they are not."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from weft.comm import Communicator, Ledger, run_ranks
from weft.errors import Note
from weft.graph import Graph, open_store, write_store
from weft.nn import MODELS
from weft.parallel import Volume
from weft.train import RunConfig, Trainer

from .graphs import config, small
from .sampled_ranks import check_words, settings

DEAF = ("gat", "gatv2", "transformer", "gine", "resgated", "pna", "rgcn", "agnn", "va")
"""Models that compute the same without weights, as they are by default."""
ENTRIES: list[dict[str, Any]] = [
    {"name": "va", "normalise": "gcn"}, {"name": "va", "normalise": "mean"},
    {"name": "va", "normalise": "none"}, {"name": "agnn", "form": "besta", "normalise": "gcn"},
    {"name": "agnn", "form": "besta", "normalise": "mean"},
    {"name": "agnn", "form": "besta", "normalise": "none"},
]  # fmt: skip


def weighted(weights: Tensor | None = None) -> Graph:
    graph, g = small(), torch.Generator().manual_seed(7)
    weights = 0.5 + torch.rand(graph.num_arcs, generator=g) if weights is None else weights
    kinds = torch.randint(3, (graph.num_arcs,), generator=g)
    return graph.replace(weights=weights, arc_data={"type": kinds})


def made(**options: Any) -> RunConfig:
    out = config()
    out.train.dtype, out.train.lr = "float64", 0.01
    for name, value in options.items():
        setattr(out.model, name, value)
    return out


def losses(comm: Communicator | None, source: Graph | str, wanted: RunConfig) -> list[float]:
    trainer = Trainer(open_store(source, verify=False) if isinstance(source, str) else source, wanted, comm)
    found = []
    for epoch in (1, 2):
        foretold = trainer.predict(epoch)
        with Ledger(trainer.comm) as books:
            found.append(trainer.step(epoch))
    check_words(trainer, Volume.of(books), foretold)  # of a steady epoch: the first makes what is kept
    return found


@pytest.mark.parametrize("model", MODELS)
def test_one_line_says_so_where_a_model_reads_no_weights(model):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        first = Trainer(weighted(), made(name=model)).step(1)
    lines = [str(one.message) for one in said]
    assert len(lines) == (model in DEAF)
    plain = weighted(weights=None).replace(weights=None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (Trainer(plain, made(name=model)).step(1) == first) == (model in DEAF)
    if model in DEAF:
        assert lines[0].startswith(f"{model} does not read weights: the arcs of small have some, and all ")
        remedy = "Use --normalise none" if model == "va" else "Use gcn, sage, gin or sgc, or give them as"
        assert remedy in lines[0]


def test_of_weights_that_are_all_one_nothing_is_said(tmp_path):
    ones = weighted(torch.ones(small().num_arcs))
    late = torch.ones(small().num_arcs)
    late[-1] = 2.0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Trainer(ones, made(name="gine"))
        Trainer(open_store(write_store(ones, tmp_path / "ones.weft")), made(name="gine"))
    for source in (weighted(late), open_store(write_store(weighted(late), tmp_path / "late.weft"))):
        with pytest.warns(Note, match="gine does not read weights"):
            Trainer(source, made(name="gine"))


def test_of_ranks_the_first_says_it_of_a_store_too(tmp_path):
    store = str(write_store(weighted(), tmp_path / "g.weft"))
    with pytest.warns(Note) as said:
        run_ranks(losses, 2, "threads", store, made(name="gine"))
    assert [str(one.message)[:28] for one in said] == ["gine does not read weights: "]


@pytest.mark.parametrize("options", ENTRIES, ids=lambda options: f"{options['name']} {options['normalise']}")
def test_weights_that_enter_an_attention_do_so_on_every_grid_and_in_batches(tmp_path, options):
    wanted = made(**options, dropout=0.0)
    store = str(write_store(weighted(), tmp_path / "g.weft"))
    alone = losses(None, weighted(), wanted)
    ones = losses(None, weighted(torch.ones(small().num_arcs)), wanted)
    assert alone != pytest.approx(ones, rel=1e-6)
    for strategy in ("halo", "3d"):
        wanted.parallel.strategy = strategy
        for ours in run_ranks(losses, 8 if strategy == "3d" else 3, "threads", store, wanted):
            assert ours == pytest.approx(alone, rel=1e-9)
    wanted.parallel.strategy = "1d"
    wanted.batch = settings("sage", batch__fanouts="all,all", batch__batch_size=10**6).batch
    for feed in ("pull", "push-pull"):
        wanted.batch.feed = feed
        for ours in run_ranks(losses, 2, "threads", store, wanted):
            assert ours == pytest.approx(alone, rel=1e-9)
