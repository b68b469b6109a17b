"""What real ranks run in the trainer's tests; they load this file by itself, without its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from weft.comm import Communicator, Ledger
from weft.graph import open_store
from weft.nn.registry import readers
from weft.parallel import Volume
from weft.train import RunConfig, Trainer
from weft.train.verify import compare, serial, trace


def train_in_turn(comm: Communicator, store: str, ways: list[dict[str, Any]]) -> list[list[float]]:
    """The losses of one process, then of each way to lie on the ranks, foretold words checked."""
    torch.set_num_threads(1)
    losses = []
    for number, way in enumerate([{}, *ways]):
        made = RunConfig()
        made.model.name, made.model.aggregate = "sage", "max"
        made.model.layers, made.model.hidden = 3, 8
        made.model.layer_norm = made.model.residual = True
        made.train.dtype, made.train.epochs, made.train.lr = "float64", 5, 0.05
        for name, value in way.items():
            setattr(made.parallel, name, value)
        trainer = Trainer(open_store(store, verify=False), made, comm if number else None)
        foretold = trainer.predict()  # before anything ran
        result = trainer.fit()
        assert (result.moved.words, result.moved.messages) == (foretold.words, foretold.messages), way
        losses.append(result.loss)
    return losses


def link_in_turn(comm: Communicator, store: str, ways: list[dict[str, Any]]) -> list[list[float]]:
    """The same for links, with embeddings that ranks own."""
    torch.set_num_threads(1)
    losses = []
    for number, way in enumerate([{}, *ways]):
        made = RunConfig()
        made.model.name, made.model.hidden = "sage", 6
        made.train.task, made.train.dtype, made.train.epochs, made.train.lr = "link", "float64", 3, 0.05
        made.train.clip_norm = 0.5
        made.link.embedding_width, made.link.pair_batch, made.link.hits = 3, 200, 7
        for name, value in way.items():
            setattr(made.parallel, name, value)
        trainer = Trainer(open_store(store, verify=False), made, comm if number else None)
        foretold = trainer.predict()  # before anything ran
        result = trainer.fit()
        assert (result.moved.words, result.moved.messages) == (foretold.words, foretold.messages), way
        losses.append([*result.loss, *result.scores.values()])
    return losses


OVER_ARCS = ("gat+arcs", "gatv2", "transformer", "gine", "resgated", "pna", "rgcn")
"""Models that read what arcs carry; GAT does where told."""


def attention(model: str, **parallel: Any) -> RunConfig:
    """A run of a model over arcs with everything that draws random numbers."""
    made = RunConfig()
    made.model.name, made.model.layers, made.model.hidden = model.removesuffix("+arcs"), 3, 6
    if made.model.name != model:
        made.model.arc_features = -1
    if made.model.name in readers("heads"):
        made.model.heads, made.model.output_heads = 2, 3
    if made.model.name in readers("attention_dropout"):
        made.model.attention_dropout = 0.4
    if model == "rgcn":
        made.model.bases = 2
    made.model.dropout, made.model.input_dropout = 0.3, 0.1
    made.train.dtype, made.train.epochs, made.train.lr = "float64", 3, 0.02
    for name, value in parallel.items():
        assert hasattr(made.parallel, name), name
        setattr(made.parallel, name, value)
    return made


def verify_attention(comm: Communicator, source: Any, ways: list[tuple[str, dict[str, Any]]]) -> list[float]:
    """For each (model, way to lie on the ranks) the largest difference to the serial run; words checked."""
    torch.set_num_threads(1)
    source = open_store(source, verify=False) if isinstance(source, str) else source
    found = []
    alone: dict[str, Any] = {}
    for model, parallel in ways:
        made = attention(model, **parallel)
        distributed = trace(source, made, comm)
        if comm.rank == 0 and model not in alone:
            alone[model] = serial(source, attention(model))
        rows = compare(distributed, alone[model]) if comm.rank == 0 else {}
        found.append(max(rows.values(), default=0.0))
        trainer = Trainer(source, made, comm)
        for epoch in (1, 2):  # the first counts degrees or kinds where the model needs them
            foretold = trainer.predict()
            with Ledger(comm) as books:
                trainer.step(epoch)
            lines = {phase: line for phase, line in books.as_dict().items() if line["words"]}
            moved = {phase: (line["words"], line["messages"]) for phase, line in lines.items()}
            words, messages = foretold.words, foretold.messages
            assert moved == {phase: (words[phase], messages[phase]) for phase in words}, (model, parallel)
    return found


def batches_over_arcs(comm: Communicator, source: Any, models: Sequence[str]) -> list[float]:
    """For each of these models, two epochs of batches: the difference to one rank's; words checked.

    Measured by the model's scale, after plain steps: a bias that moves every score of a softmax alike has a
    gradient of rounding alone, and Adam would make steps of it.
    """
    torch.set_num_threads(1)
    source = open_store(source, verify=False) if isinstance(source, str) else source
    found = []
    for model in models:
        made = attention(model)
        made.model.layers, made.batch.batch_size, made.batch.fanouts = 2, 29, "4,3"
        made.train.optimizer = "sgd"
        ours, alone = Trainer(source, made, comm), Trainer(source, made)
        for epoch in (1, 2):
            foretold = ours.predict(epoch)
            with Ledger(comm) as books:
                ours.step(epoch)
            alone.step(epoch)
            assert Volume.of(books) == foretold, model
        pairs = [
            (p.detach(), q.detach())
            for p, q in zip(ours.model.parameters(), alone.model.parameters(), strict=True)
        ]
        scale = max(float(q.abs().max()) for _, q in pairs)
        found.append(max(float((p - q).abs().max()) for p, q in pairs) / scale)
    return found
