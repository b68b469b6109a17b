"""Every way to lay a run on ranks, foretold: seconds, words, memory; and the one to take."""

from __future__ import annotations

import copy
import importlib.util
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..comm.threads import single
from ..errors import NotForetold, UserError
from ..graph import Graph
from ..graph.arrays import as_read
from ..nn import Model, build
from ..parallel import Grid
from ..parallel.grid import most_even
from ..partition.methods import pick
from ..train.config import RunConfig
from ..train.encoders import blank_model
from ..train.facts import take_facts
from ..units import spell_bytes, spell_seconds
from .batches import feeds, foretell_feed
from .cost import Machine, side_by_side
from .cuts import Cut, HostLines, Shape, cut
from .foretell import Rank, Work, foretell_rank

FEW = 16
"""Ranks on shared cores that are all foretold."""
SIDES = 6
"""Sides of 1.5d and of 2d that are tried, of numbers that have many."""
CUT_ARCS = 2_000_000
"""Up to this many arcs every grid is cut by every partitioner; above, the rows alone."""


@dataclass(frozen=True)
class Candidate:
    """One way to lay the work."""

    strategy: str
    grid: Grid
    exchange: str
    partition: str
    overlap: bool = True
    asked: str = ""
    """What `--grid` said, of one that was not made here."""
    by_host: bool = False
    """Rows cross between hosts once."""

    @property
    def sides(self) -> str:
        """What `--grid` says; empty where the strategy says it."""
        if self.asked:
            return self.asked
        r, k, f = self.grid.shape
        whole = f"{r}x{k}x{f}"
        return {"1.5d": f"{r}x{k}", "2d": f"{r}x{f}", "3d": whole, "grid": whole}.get(self.strategy, "")

    def apply(self, config: RunConfig) -> None:
        """Make it the config's own."""
        options = config.parallel
        options.strategy, options.grid, options.replication = self.strategy, self.sides, 0
        options.exchange, options.partition, options.overlap = self.exchange, self.partition, self.overlap
        # Not `on`: a run that goes on where hosts have nothing to share is no mistake.
        options.by_host = "auto" if self.by_host else "off"

    def __str__(self) -> str:
        sides = f" {self.sides}" if self.sides else ""
        return f"{self.strategy}{sides}, {self.exchange}, {self.partition}" + (", by host" * self.by_host)


@dataclass(frozen=True)
class Forecast:
    """What a candidate would take."""

    candidate: Candidate
    seconds: float
    """Of a steady epoch, on the slowest rank."""
    compute: float
    messages_seconds: float
    """Of those, what is computed and what is waited for messages, on that rank."""
    words: int
    """That the busiest rank receives in an epoch."""
    messages: int
    crossing: int
    """Words of rows that a rank receives from other hosts, at most."""
    bytes: int
    """Of the fullest rank."""
    partition_seconds: float
    how: str
    """Where the sizes come from."""
    fits: bool

    def total(self, epochs: int) -> float:
        """Seconds of a run."""
        return self.partition_seconds + epochs * self.seconds

    def as_dict(self) -> dict[str, Any]:
        c = self.candidate
        return {
            "strategy": c.strategy, "grid": str(c.grid), "exchange": c.exchange, "partition": c.partition,
            "overlap": c.overlap, "by_host": c.by_host, "seconds": self.seconds,
            "compute_seconds": self.compute,
            "message_seconds": self.messages_seconds, "words": self.words, "messages": self.messages,
            "link_words": self.crossing,
            "bytes": self.bytes, "partition_seconds": self.partition_seconds, "how": self.how,
            "fits": self.fits,
        }  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """All candidates, the best first."""

    rows: list[Forecast]
    epochs: int
    machine: Machine
    notes: list[str] = field(default_factory=list)
    """What was left out, and why."""

    @property
    def best(self) -> Forecast:
        """The fastest that fits; where none does, the one that needs least."""
        fitting = [row for row in self.rows if row.fits]
        return fitting[0] if fitting else min(self.rows, key=lambda row: row.bytes)

    def pays_back(self, row: Forecast) -> float | None:
        """Epochs after which a partition has earned its seconds against the best without; None: never."""
        plain = [other.seconds for other in self.rows if not other.partition_seconds]
        if not row.partition_seconds:
            return 0.0
        gain = min(plain, default=row.seconds) - row.seconds
        return row.partition_seconds / gain if gain > 0 else None

    def beside(self, other: Plan) -> Plan:
        """The candidates of both."""
        rows = sorted([*self.rows, *other.rows], key=lambda row: row.total(self.epochs))
        return replace(self, rows=rows, notes=[*self.notes, *other.notes])

    def why(self) -> str:
        """The choice in one line."""
        best = self.best
        line = f"{best.candidate}: {spell_seconds(best.seconds)} an epoch, {spell_bytes(best.bytes)} a rank"
        plain = next((row for row in self.rows if row.candidate.strategy == "1d"), None)
        if plain is None or plain is best or not best.seconds:
            others = [row for row in self.rows if row is not best and row.fits]
            if not others:
                return line
            return f"{line}; the next, {others[0].candidate}, {spell_seconds(others[0].seconds)}"
        reason = f"1d {spell_seconds(plain.seconds)}"
        if 1.05 * best.words < plain.words:
            reason += f", which receives {plain.words / max(1, best.words):.1f} times the words"
        return f"{line}; {reason}"


def candidates(
    ranks: int, partitions: Sequence[str], overlap: bool = True, hosts: int | Sequence[int] = 1
) -> Iterator[Candidate]:
    """Points of the grid for so many ranks, dense under the first partition, sparse under each; where ranks
    of a line share hosts (so many, or that of each rank), directly and by host.

    >>> [str(c) for c in candidates(4, ["random"])][:4]
    ['1d, dense, random', 'halo, sparse, random', '1.5d 2x2, dense, random', '1.5d 2x2, sparse, random']
    >>> [str(c) for c in candidates(4, ["random"], hosts=2)][:2]
    ['1d, dense, random', '1d, dense, random, by host']
    >>> [str(c) for c in candidates(8, ["random"])][-2:]
    ['grid 1x8x1, sparse, random', 'grid 2x4x1, sparse, random']
    """
    places = [rank // -(-ranks // hosts) for rank in range(ranks)] if isinstance(hosts, int) else hosts
    grids: list[tuple[str, Grid]] = [("1d", Grid(ranks)), ("halo", Grid(ranks))]
    sides = [d for d in range(2, math.isqrt(ranks) + 1) if ranks % d == 0 and d < ranks]
    sides = sides[:: -(-len(sides) // SIDES) or 1]
    grids += [("1.5d", Grid(ranks // c, c)) for c in sides]
    grids += [("2d", Grid(ranks // c, 1, c)) for c in sides]
    cube = most_even(ranks, 3)
    if min(cube) > 1:
        grids.append(("3d", Grid(*cube)))
    if ranks > 1:
        grids.append(("feature", Grid(1, 1, ranks)))
        # Rows are whole and what is summed moves: little where few vertices of other parts are written.
        grids.append(("grid", Grid(1, ranks)))
    grids += [("grid", Grid(c, ranks // c)) for c in sides[-1:] if c * c < ranks]
    plain = next((p for p in partitions if p in ("random", "block", "hash")), partitions[0])
    for strategy, grid in grids:
        one = {"1d": ("dense",), "halo": ("sparse",), "feature": ("dense",), "grid": ("sparse",)}
        exchanges = one.get(strategy, ("dense", "sparse"))
        for exchange in exchanges:
            for partition in partitions if exchange == "sparse" and ranks > 1 else (plain,):
                yield Candidate(strategy, grid, exchange, partition, overlap)
                if HostLines.on(grid, places) is not None:
                    yield Candidate(strategy, grid, exchange, partition, overlap, by_host=True)


def partitioners(shape: Shape) -> list[str]:
    """Those that are here and can cut this graph, or a sample of it."""
    here = ("metis", "pymetis"), ("hypergraph", "mtkahypar")
    found = [name for name, package in here if importlib.util.find_spec(package) is not None]
    return [] if shape.source is None else found[: 2 if shape.arcs <= CUT_ARCS else 1]


def make_work(config: RunConfig, shape: Shape) -> Work:
    """The model and what it learns from, without numbers."""
    config = copy.deepcopy(config)
    data: dict[str, torch.Tensor] = {}
    share = config.data.train_share if config.data.train_share < 1 else 0.5
    if shape.source is not None:
        take_facts(config.model, shape.source, single())
    source = shape.source
    if isinstance(source, Graph):
        numbers = getattr(torch, config.train.dtype)
        data = {name: as_read(name, x[:0], numbers) for name, x in source.arc_data.items()}
        if source.train_mask is not None:
            share = float(source.train_mask.double().mean())
    features = shape.features
    if config.train.task == "link":
        features += config.link.embedding_width or (0 if features else config.model.hidden)
        share = 1.0
    outputs = config.model.hidden if config.train.task == "link" else shape.classes
    if not features or not outputs:
        raise UserError("a plan needs the widths of the model's ends. Give --features and --classes.")
    made: Model = build(config.model, features, outputs)
    model = blank_model(made.to(dtype=getattr(torch, config.train.dtype)))
    return Work(config, model, features, share, data)


def plan(
    shape: Shape,
    config: RunConfig,
    machine: Machine,
    partitions: Sequence[str],
    keep: Callable[[Candidate], bool] = lambda candidate: True,
) -> Plan:
    """Every candidate that `keep` keeps, foretold; the best for the config's number of epochs first."""
    if machine.ranks > max(1, shape.vertices):
        raise UserError(
            f"{machine.ranks} ranks are more than the graph's {shape.vertices} vertices. Use fewer."
        )
    work, seed = make_work(config, shape), config.train.seed
    if config.batch.batch_size and config.batch.batching == "subgraph":
        raise UserError("plans foretell batches of neighbours, not subgraphs. Leave out --batching subgraph.")
    if config.batch.cache:
        raise UserError("plans know nothing of rows that are kept between batches. Leave out --cache.")
    if config.batch.batch_size:
        return _plan_batches(shape, work, machine)
    cuts: dict[tuple[Any, ...], Cut] = {}
    rows, notes = [], []
    many = shape.arcs > CUT_ARCS
    ways = candidates(machine.ranks, partitions, config.parallel.overlap, machine.places)
    for candidate in filter(keep, ways):
        cheap = candidate.partition in ("random", "block", "hash")
        if many and not cheap and candidate.strategy != "halo":
            continue
        method = candidate.partition
        if method == "auto":
            method = "metis" if shape.graph is None else pick(shape.graph, machine.ranks)
        key = (candidate.grid.shape, method)
        hosts = HostLines.on(candidate.grid, machine.places)
        try:
            if key not in cuts:
                cuts[key] = cut(shape, candidate.grid, method, work.model.adjacency, seed, hosts)
            found = cuts[key]
            # On shared cores it counts what all do, elsewhere what the slowest does.
            every = machine.share < 1 and machine.ranks <= FEW
            lines = hosts if candidate.by_host else None
            ranks = [
                foretell_rank(work, found, candidate.exchange, rank, machine, candidate.overlap, lines)
                for rank in (found.ranks if every else found.outliers(candidate.exchange))
            ]
        except NotForetold:  # nor would any other candidate
            raise
        except UserError as error:
            notes.append(f"{candidate}: {error}")
            continue
        rows.append(_forecast(candidate, ranks, found.how, method, shape, machine))
    if not rows:
        raise UserError(notes[0] if notes else _none_left(config))
    if many and any(p not in ("random", "block", "hash") for p in partitions):
        notes.append(f"partitioners on halo alone: the graph has more than {CUT_ARCS:,} arcs")
    rows.sort(key=lambda row: row.total(config.train.epochs))
    return Plan(rows, config.train.epochs, machine, notes)


def _none_left(config: RunConfig) -> str:
    """What was asked for that no candidate has."""
    options = config.parallel
    named = {
        "--strategy": options.strategy if "parallel.strategy" in config.given else "auto",
        "--exchange": options.exchange or "auto", "--by-host": options.by_host,
    }  # fmt: skip
    flags = [f"{flag} {value}" for flag, value in named.items() if value != "auto"]
    return f"no candidate is left. Leave out {' or '.join(flags) or 'what is asked'}, or use more ranks."


def _plan_batches(shape: Shape, work: Work, machine: Machine) -> Plan:
    """Both feeds on the rows; partitions and grids do not change what a batch reads."""
    names, notes = feeds(work, work.config.batch.feed)
    if not names:
        raise UserError(f"{notes[0]}. Use --feed pull.")
    how = "from numbers" if shape.source is None else "from degrees"
    rows = [
        _forecast(
            Candidate("batches", Grid(machine.ranks), feed, "random"),
            [foretell_feed(work, shape, feed, machine)], how, "random", shape, machine,
        )
        for feed in names
    ]  # fmt: skip
    rows.sort(key=lambda row: row.seconds)
    return Plan(rows, work.config.train.epochs, machine, notes)


def _forecast(
    candidate: Candidate, ranks: Sequence[Rank], how: str, method: str, shape: Shape, machine: Machine
) -> Forecast:
    slowest = side_by_side([rank.seconds for rank in ranks], machine.share)
    busiest = max(ranks, key=lambda rank: sum(rank.volume.words.values()))
    memory = max(rank.bytes for rank in ranks)
    rate = machine.profile.partition.get(method, 0.0) if machine.ranks > 1 else 0.0
    return Forecast(
        candidate, slowest.total, slowest.compute, slowest.messages,
        sum(busiest.volume.words.values()), sum(busiest.volume.messages.values()),
        max(rank.crossing for rank in ranks), memory,
        rate * shape.arcs, how, memory <= machine.rank_bytes,
    )  # fmt: skip
