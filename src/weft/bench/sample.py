"""Sampling against a vectorised numpy sampler, and whole training steps, in seeds a second."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..graph import Graph
from ..minibatch import Reads, Sampler, Topology
from ..train import RunConfig, Trainer
from ..train.classes import Classes
from .timing import interleaved

_TURN = 10
"""Batches of a contender before the other's turn."""


class NumpySampler:
    """The same hops in numpy: all rows a draw at a time (Floyd), relabelled through an array of n places.

    >>> sampler = NumpySampler(np.array([0, 3, 3]), np.array([0, 1, 1]), [2])
    >>> sampler.blocks(np.array([0]))[0][0].tolist()
    [0, 1]
    """

    def __init__(self, indptr: np.ndarray, indices: np.ndarray, fanouts: Sequence[int], seed: int = 0):
        self.indptr, self.indices, self.fanouts = indptr, indices, fanouts
        self.rng = np.random.default_rng(seed)
        self._place = np.full(len(indptr) - 1, -1, dtype=np.int64)

    def blocks(self, seeds: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """(sources, indptr, local) of each hop, that next to the seeds first."""
        found, frontier = [], seeds
        for fanout in self.fanouts:
            found.append(self._hop(frontier, fanout))
            frontier = found[-1][0]
        return found

    def _hop(self, rows: np.ndarray, fanout: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        begin = self.indptr[rows]
        degree = self.indptr[rows + 1] - begin
        count = np.minimum(degree, fanout)
        chosen = np.broadcast_to(np.arange(fanout), (len(rows), fanout)).copy()
        (many,) = np.nonzero(degree > fanout)
        picks = np.empty((len(many), fanout), dtype=np.int64)
        last = degree[many] - fanout
        for t in range(fanout):
            drawn = (self.rng.random(len(many)) * (last + t + 1)).astype(np.int64)
            taken = (picks[:, :t] == drawn[:, None]).any(1)
            picks[:, t] = np.where(taken, last + t, drawn)
        chosen[many] = picks
        arcs = (begin[:, None] + chosen)[np.arange(fanout) < count[:, None]]
        neighbours = self.indices[arcs]
        place = self._place
        place[rows] = np.arange(len(rows))
        new = neighbours[place[neighbours] < 0]
        place[new] = np.arange(len(new))
        first = new[place[new] == np.arange(len(new))]  # of equals the last one's number stands
        sources = np.concatenate([rows, first])
        place[sources] = np.arange(len(sources))
        local = place[neighbours]
        place[sources] = -1
        return sources, np.concatenate([[0], np.cumsum(count)]), local


def bench_sample(
    graph: Graph, fanouts: Sequence[int], batch: int, threads: Sequence[int], rounds: int
) -> list[dict[str, Any]]:
    """Seeds a second of our sampler and of numpy's, in turn, per number of threads."""
    order = torch.randperm(graph.num_nodes, generator=torch.Generator().manual_seed(0))
    batches = itertools.cycle(part for part in order.split(batch) if part.numel() == min(batch, len(order)))
    ours = Sampler(Topology.read(graph, Reads("mean")), fanouts, seed=0)
    theirs = NumpySampler(graph.indptr.numpy(), graph.indices.numpy(), fanouts)
    steps = itertools.count()

    # Several batches a turn: each contender finds its own data in the caches, as a loader would.
    def weft() -> None:
        for _ in range(_TURN):
            ours.blocks(next(batches), next(steps))

    def numpy() -> None:
        for _ in range(_TURN):
            theirs.blocks(next(batches).numpy())

    before, rows = torch.get_num_threads(), []
    try:
        for number in threads:
            torch.set_num_threads(number)
            seconds = interleaved({"weft": weft, "numpy": numpy}, rounds)
            rows.append({
                "threads": number, "weft_seeds": _TURN * batch / seconds["weft"],
                "numpy_seeds": _TURN * batch / seconds["numpy"], "ratio": seconds["numpy"] / seconds["weft"],
            })  # fmt: skip
    finally:
        torch.set_num_threads(before)
    return rows


def bench_steps(
    graph: Graph, fanouts: str, batch: int, hidden: int, threads: Sequence[int], batches: int
) -> list[dict[str, Any]]:
    """Seeds a second of whole training steps of GraphSAGE on one rank, sampling in it."""
    before, rows = torch.get_num_threads(), []
    try:
        for number in threads:
            torch.set_num_threads(number)
            config = RunConfig()
            config.model.name, config.model.hidden, config.model.layers = (
                "sage",
                hidden,
                fanouts.count(",") + 1,
            )
            config.batch.batch_size, config.batch.fanouts, config.batch.feed = batch, fanouts, "pull"
            trainer = Trainer(graph, config)
            task = trainer.task
            assert isinstance(task, Classes)
            trainer.train(task.epoch(1, 2))
            done = min(batches, task.steps)
            started = time.perf_counter()
            trainer.train(task.epoch(2, done))
            took = time.perf_counter() - started
            seeds = min(done * task.batch_size, task.train_ids.numel())
            rows.append({"threads": number, "seeds": seeds / took, "hidden": hidden})
    finally:
        torch.set_num_threads(before)
    return rows
