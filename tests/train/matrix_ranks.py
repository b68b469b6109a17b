"""What ranks run in the matrix of models, ways and tasks; real ones load this file by itself."""

from __future__ import annotations

import functools
import importlib.util
import sys
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from weft.comm import Communicator, Ledger
from weft.comm.threads import single
from weft.graph import Graph, hold_out, load, split
from weft.parallel import Volume
from weft.train import RunConfig, Trainer
from weft.train.result import agrees
from weft.train.verify import gradient_differences, relative_difference

EPOCHS, FEATURES = 2, 13  # which neither 2, 3 nor 4 ranks divide


@functools.cache
def graph_of(task: str) -> Graph:
    graph = split(
        load(f"sbm:nodes=301,features={FEATURES},classes=4,degree=6,arc_features=3,arc_types=3"), 0.5, 0.25, 0
    )
    return hold_out(graph) if task == "link" else graph


def settings(model: str, how: str, task: str, **more: Any) -> RunConfig:
    """`more`: `section__name` = value."""
    made = RunConfig()
    made.model.name, made.model.hidden, made.train.dtype, made.train.task = model, 8, "float64", task
    if task == "link":
        made.link.hits = 3
    if how == "whole":
        if task == "link":
            made.link.pair_batch = 400
    else:
        made.batch.batch_size, made.batch.fanouts = 64 if task == "node" else 400, "5,4"
        made.batch.feed, made.batch.pipeline = "pull" if how == "pull" else "push-pull", how == "pipeline"
    for path, value in more.items():
        section, name = path.split("__")
        setattr(getattr(made, section), name, value)
    return made


@dataclass
class Seen:
    losses: list[float] = field(default_factory=list)
    gradients: dict[str, Tensor] = field(default_factory=dict)
    embedding: Tensor = field(default_factory=lambda: torch.empty(0))
    words: list[tuple[Volume, Volume]] = field(default_factory=list)
    """(moved, foretold before) of each epoch but the first, which may make what is kept."""
    bound: bool = False
    """Whether errors that are 0 stay at home, so that what is foretold of them is the most."""
    ranks: int = 1
    first: list[int] = field(default_factory=list)
    """The shape of this rank's weights of the first layer."""


def train(comm: Communicator, graph: Graph, made: RunConfig) -> Seen:
    trainer, seen = Trainer(graph, made, comm), Seen(ranks=comm.size)
    for epoch in range(1, EPOCHS + 1):
        foretold = trainer.predict(epoch) if comm.size > 1 and epoch > 1 else None
        with Ledger(comm) as books:
            seen.losses.append(trainer.step(epoch))
        if foretold is not None:
            seen.words.append((Volume.of(books), foretold))
    seen.gradients = trainer.gradients()
    seen.embedding = trainer.A.layout.collect(trainer.embed())
    seen.bound = trainer.model.rectified and trainer.encoder.name == "push-pull"
    seen.first = [p.shape[0] for p in trainer.encoder.live.layers[0].parameters() if p.dim() == 2]
    return seen


def check(ours: Seen, alone: Seen, what: object) -> None:
    assert ours.losses == pytest.approx(alone.losses, rel=1e-9), what
    assert ours.gradients.keys() == alone.gradients.keys(), what
    for name, difference in gradient_differences(ours.gradients, alone.gradients).items():
        assert ours.gradients[name].shape == alone.gradients[name].shape, (what, name)
        assert difference <= 1e-9, (what, name)
    assert relative_difference(ours.embedding, alone.embedding) <= 1e-9, what
    assert len(ours.words) == (EPOCHS - 1 if ours.ranks > 1 else 0)
    for moved, foretold in ours.words:
        if ours.bound:
            assert agrees(moved.words, foretold.words), (what, moved.words, foretold.words)
            assert moved.words["errors"] < foretold.words["errors"], what  # many are 0
        else:
            assert moved == foretold, (what, moved, foretold)


def reference(model: str, how: str, task: str, **more: Any) -> RunConfig:
    """Of push-pull: pull on one rank; of the pipeline: the pipeline with pull on one rank."""
    alone = settings(model, how, task, **more)
    if how != "whole":
        alone.batch.feed = "pull"
    return alone


def on_real_ranks(comm: Communicator, cases: list[list[str]], examples: list[str]) -> int:
    """Cases (model, how, task) one after the other; rank 0 compares them with its own run alone."""
    torch.set_num_threads(1)
    for number, path in enumerate(examples):  # they register their models
        spec = importlib.util.spec_from_file_location(f"example{number}", path)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    for model, how, task in cases:
        ours = train(comm, graph_of(task), settings(model, how, task))
        if comm.rank == 0:
            check(ours, train(single(), graph_of(task), reference(model, how, task)), (model, how, task))
    return len(cases)
