"""What ranks run in the tests of mini-batches; real ones load this file by itself, without its neighbours."""

from __future__ import annotations

from typing import Any

import torch

from weft.comm import Communicator, Ledger
from weft.graph import Graph, open_store
from weft.train import RunConfig
from weft.train.sampled import SampledTrainer

WAYS: dict[str, dict[str, Any]] = {
    "sage": {"model.name": "sage"},
    "sage max": {"model.name": "sage", "model.aggregate": "max", "batch.replace": True},
    "gcn": {"model.name": "gcn", "model.layers": 3, "batch.fanouts": "4,3,2"},
    "gcn, layer norm": {"model.name": "gcn", "model.layer_norm": True, "model.residual": True},
    "sgc": {"model.name": "sgc"},
    "gat": {"model.name": "gat", "model.hidden": 16, "model.heads": 8, "model.output_heads": 2},
}


def settings(way: str, **more: Any) -> RunConfig:
    made = RunConfig()
    made.train.dtype, made.train.lr, made.model.hidden = "float64", 0.05, 6
    made.batch.batch_size, made.batch.fanouts = 19, "4,3"
    for path, value in {**WAYS[way], **{k.replace("__", "."): v for k, v in more.items()}}.items():
        section, name = path.split(".")
        assert hasattr(getattr(made, section), name), path
        setattr(getattr(made, section), name, value)
    return made


def observe(
    comm: Communicator | None, source: Graph | str, made: RunConfig, epochs: int = 2
) -> dict[str, Any]:
    """Losses, whole gradients of the last batch, weights; the foretold words are checked here."""
    torch.set_num_threads(1)
    graph = open_store(source, verify=False) if isinstance(source, str) else source
    trainer = SampledTrainer(graph, made, comm)
    losses = []
    for epoch in range(1, epochs + 1):
        with Ledger(trainer.comm) as books:
            losses.append(trainer.step(epoch))
        if epoch <= 2:
            phases = [p for p in books.phases if books.words(p)]
            foretold = trainer.predict()
            assert {p: books.words(p) for p in phases} == foretold.words
            assert {p: books.messages(p) for p in phases} == foretold.messages
    return {
        "losses": losses,
        "gradients": trainer.gradients(),
        "weights": {name: p.detach().clone() for name, p in trainer.model.named_parameters()},
        "words": foretold.words,
        "facts": trainer.facts(),
        "notes": trainer.notes(),
        "held": trainer.sampler.topology.bytes + _features(trainer),
    }


def _features(trainer: SampledTrainer) -> int:
    """Bytes of the features that batches are fed from."""
    feed: Any = trainer.lane.feed
    x = feed.x_cols if hasattr(feed, "x_cols") else feed.x_own
    return int(x.numel() * x.element_size())


def both_feeds(comm: Communicator, store: str, ways: list[str]) -> int:
    """On real ranks: push-pull against pull, every model, in one launch."""
    for way in ways:
        pull = observe(comm, store, settings(way, batch__feed="pull"))
        push = observe(comm, store, settings(way, batch__feed="push-pull"))
        compare(push, pull, way)
        # A budget for one part: the frontier travels, and nobody has more than its share.
        copies = pull["facts"]["copies"]
        assert copies["arcs"] == comm.size
        index = 4 * open_store(store, verify=False).num_nodes
        least = copies["arcs_bytes"] // comm.size + index + copies["features_bytes"]
        parts = {"batch__memory_budget": f"{least}B", "batch__pipeline": True}
        push, pull = (
            observe(comm, store, settings(way, batch__feed=feed, **parts)) for feed in ("push-pull", "pull")
        )
        compare(push, pull, way)
        for ours in (push, pull):
            assert (ours["facts"]["copies"]["arcs"], ours["facts"]["copies"]["features"]) == (1, 1)
            assert ours["words"].get("frontier", 0) > 0
            assert ours["held"] <= least
    return comm.rank


def compare(ours: dict[str, Any], theirs: dict[str, Any], what: object) -> None:
    """Float64: sums in another order."""
    for a, b in zip(ours["losses"], theirs["losses"], strict=True):
        assert abs(a - b) <= 1e-9 * max(1.0, abs(b)), (what, a, b)
    for key in ("gradients", "weights"):
        assert ours[key].keys() == theirs[key].keys()
        for name, a in ours[key].items():
            b = theirs[key][name]
            assert a.shape == b.shape, (what, key, name)
            scale = max(1e-6, float(b.abs().max()))
            # Adam divides by the gradient's size: a weight differs by more digits than a gradient.
            limit = 1e-9 if key == "gradients" else 1e-7
            assert float((a - b).abs().max()) <= limit * scale, (what, key, name)
