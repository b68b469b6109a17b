"""Training with features and activations in files: the bits of the run in memory."""

from __future__ import annotations

import gc

import pytest
import torch

from weft import memory, paged
from weft.comm import Communicator, run_ranks
from weft.errors import UserError
from weft.graph import open_store, write_store
from weft.kernels import walked
from weft.train import RunConfig, Trainer

from .graphs import config as quick
from .graphs import small

WIDTH = 150
"""Features: more than a tile of the kernel, so that slices are tried too."""


@pytest.fixture
def fine(monkeypatch):
    """Everything may lie in files, in small pieces; how products went is noted."""
    monkeypatch.setattr(memory, "_LARGE", 256)
    monkeypatch.setattr(paged, "PIECE", 4096)
    ways: set[str] = set()
    found = walked.way_of

    def way_of(*args: object, **more: object) -> walked.Way:
        way = found(*args, **more)
        ways.add("slices" if way.slices else "chunks" if way.chunks else "copy")
        return way

    monkeypatch.setattr(walked, "way_of", way_of)
    yield ways
    gc.collect()
    memory.pool.trim()
    assert memory.pool.limit == 0  # a trainer that is gone takes its budget along


def settings(model: str, budget: str, **parallel: object) -> RunConfig:
    made = quick(epochs=3, model_name=model, model_dropout=0.3, model_layers=3)
    made.model.hidden = 19
    made.batch.memory_budget = budget
    for name, value in parallel.items():
        setattr(made.parallel, name, value)
    return made


def train(comm: Communicator | None, source: object, config: RunConfig) -> dict[str, object]:
    trainer = Trainer(source, config, comm)
    losses = [trainer.step(epoch) for epoch in (1, 2, 3)]
    found = {f"gradient {name}": g for name, g in trainer.gradients().items()}
    found |= {name: w.clone() for name, w in trainer.model.state_dict().items()}
    return {"loss": losses, "rows": trainer.embed().clone(), "filed": trainer.facts().get("file_bytes"),
            "notes": trainer.notes(), **found}  # fmt: skip


def assert_same_bits(a: dict[str, object], b: dict[str, object]) -> None:
    for name, value in a.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, b[name]), name
    assert a["loss"] == b["loss"]


def on_one_rank(model: str, source: object, tight: str) -> dict[str, object]:
    plain = train(None, source, settings(model, "", ranks=1))
    found = train(None, source, settings(model, tight, ranks=1))
    assert_same_bits(plain, found)
    assert plain["filed"] is None
    return found


@pytest.mark.parametrize("model", ["gcn", "sage", "sgc"])
def test_one_rank_learns_the_same_bits_from_files(model, fine):
    graph = small(nodes=163, features=WIDTH)
    found = on_one_rank(model, graph, "70KB")  # features alone take 98 kB
    assert found["filed"] > 2 * graph.features.numel() * 4
    assert "what does not fit lies in files" in found["notes"][-1]
    assert "chunks" in fine or "slices" in fine


def test_a_store_with_a_feature_norm_is_read_in_pieces(tmp_path, fine):
    graph = small(nodes=163, features=WIDTH)
    words = (graph.features > 0.8).to(torch.float32)  # mostly zeros: scaled to row sum 1
    write_store(graph.replace(features=words), tmp_path / "g.weft")
    found = on_one_rank("gcn", open_store(tmp_path / "g.weft"), "70KB")
    assert found["filed"] > 0


RANKS = {"1d": 3, "halo": 3, "1.5d": 4, "a-stationary": 4, "2d": 4, "3d": 8, "feature": 2, "grid": 8}


@pytest.mark.parametrize("strategy", RANKS)
@pytest.mark.parametrize("model", ["gcn", "sage"])
def test_ranks_learn_the_same_bits_from_files(model, strategy, fine):
    ranks = RANKS[strategy]
    graph = small(nodes=163, features=WIDTH)
    more: dict[str, object] = {"strategy": strategy}
    if strategy == "1.5d":
        more["replication"] = 2
    if strategy == "grid":
        more |= {"grid": "2x2x2", "exchange": "sparse"}
    plain, found = (
        run_ranks(train, ranks, "threads", graph, settings(model, budget, **more))
        for budget in ("", "30KB" if ranks < 8 else "20KB")
    )
    for a, b in zip(plain, found, strict=True):
        assert_same_bits(a, b)
    assert found[0]["filed"] > 0


def test_words_are_foretold_where_rows_lie_in_files(fine):
    def work(comm: Communicator) -> tuple[dict[str, int], dict[str, int]]:
        made = settings("gcn", "30KB", strategy="halo")
        result = Trainer(small(nodes=163, features=WIDTH), made, comm).fit()
        return result.moved.words, result.foretold.words

    for moved, foretold in run_ranks(work, 3, "threads"):
        assert moved == foretold
        assert moved


def test_a_budget_that_holds_everything_makes_no_file(fine):
    found = train(None, small(nodes=163, features=WIDTH), settings("gcn", "1GB", ranks=1))
    assert found["filed"] == 0
    assert "nothing lies in files" in found["notes"][-1]


def test_nothing_has_a_name_on_disk_while_it_trains(tmp_path, fine, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    trainer = Trainer(small(nodes=163, features=WIDTH), settings("gcn", "70KB", ranks=1))
    trainer.step(1)
    assert trainer.facts()["file_bytes"] > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"model.name": "gat"}, "--memory-budget is for gcn, sage (mean), sgc; gat reads rows in no order."),
        ({"model.aggregate": "max", "model.name": "sage"}, "a maximum reads rows in no order. Leave it out."),
        ({"model.layer_norm": True}, "--memory-budget has no files for what --layer-norm holds."),
        ({"model.residual": True}, "--memory-budget has no files for what --residual holds."),
        ({"train.task": "link"}, "--memory-budget is for --task node, not link. Leave it out."),
        ({"batch.memory_budget": "much"}, "memory budget 'much' is not a size."),
        ({"batch.memory_budget": "9KB"}, "a memory budget of 9 kB is too small: the arcs of a rank take"),
    ],
)
def test_what_cannot_be_walked_is_refused_by_one_line(change, line):
    made = RunConfig()
    made.batch.memory_budget = "70KB"
    from weft.train.config import update

    for path in sorted(change, reverse=True):
        update(made, path, change[path])
    with pytest.raises(UserError) as error:
        Trainer(small(), made)
    assert line in str(error.value)
    assert "\n" not in str(error.value)
