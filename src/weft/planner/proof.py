"""The trainer's own step, foretold and measured: what is left between both goes into a factor for each kind.

    trial     a graph that is made here × model × strategy, on ranks that are there
    foretold  T(φ) = the slowest rank's clock, its steps of kind k taking φ_k times what the profile says
    fit       min over φ of Σ (log T(φ) − log measured)² + λ Σ (log φ_k)²

A profile's tables are made of pieces that are measured one at a time. A step is all of them: caches that the
piece before has filled, ranks that come late, sleepers that wake. Trials are of graphs that are made here, so
what they teach is about the machine.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..comm import Communicator
from ..graph import Graph, load
from ..memory import trim
from ..parallel import choose
from ..parallel.by_host import groups_of
from ..train import RunConfig, Trainer
from .cost import Machine, Timed, clock, side_by_side
from .cuts import HostLines, Shape, cut
from .foretell import foretell_rank
from .plan import make_work
from .profile import KINDS, Profile, Proved

_PRIOR = 0.03
"""λ: how sure a profile's own figures are, beside one trial."""
_ROUNDS, _STEP, _MOST = 12, 0.02, 2.0
_DOUBT = 0.25
"""A trial that is off by more than this share counts less."""
FEWEST = 6
"""Trials below which nothing is concluded: they would fit anything."""
_LEAST, _EPOCHS, _SECONDS = 3, 15, 0.12
"""Steady epochs of a trial: so many at least and at most, else as many as fit into so many seconds."""
_WARM = 3
"""Epochs before those: A·X is kept, buffers are made, one is timed."""
_GRAPHS = {
    "skewed": "kronecker:scale=13,degree=16,features=64,classes=16",
    "even": "er:nodes=20000,degree=8,features=64,classes=16",
    "wide": "er:nodes=6000,degree=12,features=400,classes=8",
    "small": "kronecker:scale=10,degree=12,features=32,classes=8",
    "large": "er:nodes=60000,degree=6,features=64,classes=16",
    "broad": "kronecker:scale=13,degree=6,features=600,classes=16",
}


@dataclass(frozen=True)
class Trial:
    """One way to train one made graph."""

    graph: str
    model: str
    strategy: str = "1d"
    exchange: str = ""
    by_host: bool = False
    """Rows cross between hosts once."""

    def config(self, machine: Machine) -> RunConfig:
        config = RunConfig()
        config.data.graph, config.model.name, config.model.hidden = _GRAPHS[self.graph], self.model, 64
        options = config.parallel
        options.ranks, options.strategy, options.exchange = machine.ranks, self.strategy, self.exchange
        options.by_host = "on" if self.by_host else "off"  # as it is foretold
        config.train.threads = machine.threads
        return config


@dataclass(frozen=True)
class Outcome:
    """A trial's steps on every rank, looked up, and the seconds that it took."""

    ranks: Sequence[Sequence[Timed]]
    share: float
    measured: float

    def foretold(self, factors: Mapping[str, float]) -> float:
        return side_by_side([clock(steps, factors) for steps in self.ranks], self.share).total


def trials(ranks: int, shared: bool = False) -> list[Trial]:
    """The most telling first: time may end. `shared`: of several hosts each has several ranks.

    >>> [trial.strategy for trial in trials(4)][:4], {trial.strategy for trial in trials(1)}
    (['halo', '1d', 'halo', '2d'], {'1d'})
    """
    grid = "1d" if ranks == 1 else "2d" if ranks % 2 == 0 and ranks > 2 else "feature"
    halo = "1d" if ranks == 1 else "halo"
    by_host = [Trial("skewed", "gcn", halo, by_host=True), Trial("even", "sage", "1d", by_host=True)]
    found = [
        Trial("large", "gcn", halo), Trial("large", "gat", "1d"), Trial("skewed", "gcn", halo),
        Trial("even", "sage", grid), Trial("skewed", "gat", halo), Trial("broad", "sage", halo),
        Trial("small", "gcn", "1d"), Trial("large", "gat", grid), Trial("large", "sage", grid),
        Trial("even", "gat", grid), Trial("broad", "gcn", "1d"), Trial("wide", "gcn", grid),
        Trial("small", "gat", halo), Trial("skewed", "sage", "1d"),
    ]  # fmt: skip
    return [*found[:4], *by_host, *found[4:]] if shared else found


def prove(comm: Communicator, profile: Profile, hosts: int, threads: int, seconds: float) -> Proved | None:
    """Factors for as many ranks as `comm` has; all of them call it, and each gets the same.

    A trial that would take more than a `FEWEST`-th of the seconds is left out: on a slow link that leaves
    small graphs. None where the seconds are over before `FEWEST` trials.
    """
    told = tuple(comm.hosts) if len(set(comm.hosts)) == hosts > 1 else ()
    machine = Machine(profile, comm.size, hosts, threads, told=told)
    graphs: dict[str, Graph] = {}
    end, found = time.perf_counter() + seconds, list[Outcome]()
    for trial in trials(comm.size, groups_of(comm.hosts) is not None):
        if comm.all_gather_json(time.perf_counter() > end)[0]:
            break
        if trial.graph not in graphs:
            graphs[trial.graph] = load(_GRAPHS[trial.graph])
        blank = _foretold(comm, machine, trial, graphs[trial.graph])
        if (_WARM + _LEAST) * blank.foretold({}) > seconds / FEWEST:  # the same on every rank
            continue
        measured = _measure(comm, graphs[trial.graph], trial.config(machine))
        found.append(replace(blank, measured=measured))
    if len(found) < FEWEST:  # as many on every rank
        return None
    factors = fit(found) if comm.rank == 0 else {}  # the others leave it the cores
    left = [abs(outcome.foretold(factors) / outcome.measured - 1) for outcome in found]
    told = comm.all_gather_json([factors, statistics.median(left)])[0]
    return Proved(comm.size, hosts, threads, told[0], told[1])


def _foretold(comm: Communicator, machine: Machine, trial: Trial, graph: Graph) -> Outcome:
    """The trial's steps on every rank, not measured yet."""
    config = trial.config(machine)
    shape = Shape.of(graph)
    work = make_work(config, shape)
    options = config.parallel
    grid, exchange = choose(options.strategy, comm.size, options.grid, options.replication, options.exchange)
    lines = HostLines.on(grid, comm.hosts) if trial.by_host else None
    where = cut(shape, grid, options.partition, work.model.adjacency, config.train.seed, lines)
    bare = foretell_rank(work, where, exchange, comm.rank, machine, options.overlap, lines).steps
    told = comm.all_gather_json([_told(step) for step in bare])
    return Outcome([[_step(each) for each in steps] for steps in told], machine.share, 0.0)


def _told(step: Timed) -> list[Any]:
    return [step.what, dict(step.seconds), step.number, step.overlap, step.far]


def _step(told: Sequence[Any]) -> Timed:
    return Timed(*told)


def _measure(comm: Communicator, graph: Graph, config: RunConfig) -> float:
    """Seconds of a steady epoch, the slowest rank's: the median."""
    trainer = Trainer(graph, config, comm)
    for epoch in range(1, _WARM):
        trainer.step(epoch)
    once = max(comm.all_gather_json(_timed(trainer, _WARM)))
    epochs = int(min(_EPOCHS, max(_LEAST, _SECONDS / max(once, 1e-6))))
    taken = comm.all_gather_json([_timed(trainer, _WARM + 1 + epoch) for epoch in range(epochs)])
    del trainer
    gc.collect()
    trim()
    return statistics.median(max(ranks) for ranks in zip(*taken, strict=True))


def _timed(trainer: Trainer, epoch: int) -> float:
    start = time.perf_counter()
    trainer.step(epoch)
    return time.perf_counter() - start


def fit(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """The factors under which trials are foretold best (Gauss-Newton on their logarithms).

    >>> def took(walk, dense, seconds):
    ...     return Outcome([[Timed("work", {"walk": walk, "dense": dense})]], 1.0, seconds)
    >>> found = fit([took(1, 3, 5.0), took(3, 1, 7.0), took(2, 2, 6.0), took(4, 1, 9.0)] * 9)
    >>> round(found["walk"], 1), round(found["dense"], 1), found["long"]
    (2.0, 1.0, 1.0)
    """
    logs = np.zeros(len(KINDS))
    goal = np.log([outcome.measured for outcome in outcomes])

    def off(at: np.ndarray) -> np.ndarray:
        factors = dict(zip(KINDS, np.exp(at).tolist(), strict=True))
        return np.log([outcome.foretold(factors) for outcome in outcomes]) - goal

    for _ in range(_ROUNDS if outcomes else 0):
        here = off(logs)
        slopes = np.stack([(off(logs + step) - here) / _STEP for step in _STEP * np.eye(len(KINDS))], 1)
        weights = np.minimum(1.0, _DOUBT / np.maximum(np.abs(here), 1e-9))[:, None]
        normal = slopes.T @ (weights * slopes) + _PRIOR * np.eye(len(KINDS))
        move = np.linalg.solve(normal, -(slopes.T @ (weights[:, 0] * here) + _PRIOR * logs))
        logs = np.clip(logs + np.clip(move, -0.5, 0.5), -_MOST, _MOST)
    return dict(zip(KINDS, np.exp(logs).tolist(), strict=True))
