"""What ranks run in the tests of mini-batches; real ones load this file by itself, without its neighbours."""

from __future__ import annotations

from typing import Any

import torch

from weft.comm import Communicator, Ledger
from weft.graph import Graph, open_store
from weft.minibatch import Sampler
from weft.parallel import Volume
from weft.train import RunConfig, Trainer
from weft.train.config import BatchConfig
from weft.train.result import agrees

WAYS: dict[str, dict[str, Any]] = {
    "sage": {"model.name": "sage"},
    "sage max": {"model.name": "sage", "model.aggregate": "max", "batch.replace": True},
    "gcn": {"model.name": "gcn", "model.layers": 3, "batch.fanouts": "4,3,2"},
    "gcn, layer norm": {"model.name": "gcn", "model.layer_norm": True, "model.residual": True},
    "sgc": {"model.name": "sgc"},
    "gat": {"model.name": "gat", "model.hidden": 16, "model.heads": 8, "model.output_heads": 2},
    "gin": {"model.name": "gin", "train.clip_norm": 0.1},
    "agnn": {"model.name": "agnn", "model.input_dropout": 0.3},
    "va": {"model.name": "va", "model.attention_dropout": 0.2, "train.lr": 0.01},
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
    trainer = Trainer(graph, made, comm)
    losses = []
    for epoch in range(1, epochs + 1):
        foretold = trainer.predict(epoch)  # before it is run
        with Ledger(trainer.comm) as books:
            losses.append(trainer.step(epoch))
        check_words(trainer, Volume.of(books), foretold)
    return {
        "losses": losses,
        "gradients": trainer.gradients(),
        "weights": {name: p.detach().clone() for name, p in trainer.model.named_parameters()},
        "words": Volume.of(books).words,
        "bytes": trainer.bytes_of(Volume.of(books).words),
        "facts": trainer.facts(),
        "notes": trainer.notes(),
        "held": _sampler(trainer).topology.bytes + _features(trainer),
    }


def check_words(trainer: Trainer, moved: Volume, foretold: Volume) -> None:
    """To the word and the message; of errors behind a ReLU, whose zeros stay at home, no more than that."""
    if not (trainer.model.rectified and trainer.encoder.name == "push-pull"):
        assert moved == foretold
        return
    assert agrees(moved.words, foretold.words)
    assert agrees(moved.messages, foretold.messages)
    most = foretold.words.get("errors", 0)
    assert moved.words.get("errors", 0) < most or not most


def _sampler(trainer: Trainer) -> Sampler:
    encoder = trainer.encoder
    found: Sampler = encoder.draws.sampler if encoder.name == "subgraph" else encoder.sampler
    return found


def in_subgraph(way: str, kind: str, **more: Any) -> RunConfig:
    """The same settings on subgraphs of about 50 vertices."""
    made = settings(way, **more)
    made.batch.batching, made.batch.subgraph, made.batch.batch_size = "subgraph", kind, 17
    made.batch.replace = False
    if kind != "seeds":
        made.batch.fanouts = BatchConfig().fanouts
    if kind == "vertices":
        made.batch.batch_size = 60
    if kind == "edges":
        made.batch.batch_size = 150
    if kind == "walks":
        made.batch.walk_length = 2
    return made


def subgraphs(comm: Communicator, store: str, ways: list[tuple[str, str]]) -> int:
    """On real ranks: every (model, kind) against one process, in one launch."""
    for way, kind in ways:
        made = in_subgraph(way, kind)
        compare(observe(comm, store, made, 1), observe(None, store, made, 1), (way, kind))
    return comm.rank


def kept(comm: Communicator, store: str, ways: list[str]) -> int:
    """On real ranks: rows kept between batches against none, to the bit, in one launch."""
    for way in ways:
        plain, ahead = (
            observe(comm, store, settings(way, batch__feed="pull", batch__cache=cache))
            for cache in ("", "10%")
        )
        assert plain["losses"] == ahead["losses"]
        for name, weight in plain["weights"].items():
            assert torch.equal(weight, ahead["weights"][name]), (way, name)
        assert ahead["words"]["pull"] < plain["words"]["pull"]
    return comm.rank


def _features(trainer: Trainer) -> int:
    """Bytes of the features that batches are fed from."""
    x = trainer.encoder.features.now()
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
