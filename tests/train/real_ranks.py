"""What real ranks run in the trainer's tests; they load this file by itself, without its neighbours."""

from __future__ import annotations

from typing import Any

import torch

from weft.comm import Communicator
from weft.graph import open_store
from weft.train import LinkTrainer, RunConfig, Trainer


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
        result = trainer.fit()
        foretold = trainer.predict()
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
        trainer = LinkTrainer(open_store(store, verify=False), made, comm if number else None)
        result = trainer.fit()
        foretold = trainer.predict()
        assert (result.moved.words, result.moved.messages) == (foretold.words, foretold.messages), way
        losses.append([*result.loss, *result.scores.values()])
    return losses
