"""`--strategy auto`: the plan's best, told in one line, before ranks are started.

The choice follows from the graph, the config and the profile: the same three give the same run. It is written
into the config, so a run folder keeps it, and a run that goes on keeps it too.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import NotForetold, UserError
from ..graph import Graph, Store
from ..graph.guard import machine_bytes
from ..parallel import check_by_host
from ..parallel import choose as grid_of
from ..train.config import RunConfig, load_toml
from ..train.run import is_run
from ..units import spell_bytes, spell_seconds
from .cost import GUESSED, Machine
from .cuts import HostLines, Shape
from .default import default_profile
from .plan import Candidate, Plan, partitioners, plan
from .profile import Profile, own_profile

OFF = 1.25
"""From this factor on a forecast is said to have been off."""
FEW_ARCS = 2_000_000
"""Up to so many arcs a graph is counted for a choice that nobody asked for; above, degrees speak for it."""
CHEAP = 0.1
"""A partitioner is looked at unasked where it takes less than this share of the run."""
SEEN = 6
"""Epochs that a forecast is compared with; the first, which warms up, is left out."""


@dataclass(frozen=True)
class Choice:
    """What was chosen."""

    lines: list[str]
    """For people."""
    seconds: float
    """Foretold of an epoch; 0: nothing was."""


def this_profile(asked: bool = True) -> tuple[Profile, str]:
    """(the profile of this machine, one line of what is wrong with it).

    A damaged one is a mistake where a plan was `asked` for; else other figures stand in, and the line says
    so. Where there is none, the line is for those who asked alone.
    """
    stand_in = "figures of a machine of two cores stand in"
    try:
        found = own_profile()
    except UserError as error:
        if asked:
            raise
        return default_profile(), f"{str(error).rstrip('.')}; {stand_in}"
    if found is None:
        return default_profile(), f"no machine profile: {stand_in}. Use: weft calibrate" if asked else ""
    return found, found.doubts()


def link_doubts(machine: Machine) -> str:
    """One line where figures stand in for the link between hosts; empty where it is known.

    >>> link_doubts(Machine(default_profile(), 4, hosts=2))
    '10 Gbit/s and 50 µs stand in for messages between hosts. Use on these hosts: mpirun … weft calibrate'
    """
    if not machine.guessed:
        return ""
    rate = f"{8 * GUESSED[1] / 1e9:.0f} Gbit/s and {spell_seconds(GUESSED[0])}"
    return f"{rate} stand in for messages between hosts. Use on these hosts: mpirun … weft calibrate"


def check_open(config: RunConfig) -> None:
    """Refuse what only a named strategy reads."""
    for name in ("grid", "replication", "move_adjacency"):
        if getattr(config.parallel, name):
            flag = "--" + name.replace("_", "-")
            raise UserError(f"--strategy auto chooses the grid itself. Leave out {flag}, or name a strategy.")


def choose(
    config: RunConfig, source: Graph | Store, ranks: int, places: Sequence[int] = (), trains: bool = True,
    asked: bool = True, threads: int = 0,
) -> Choice:  # fmt: skip
    """Settle `--strategy auto` in the config; refuse what does not fit, and say what would.

        places    the host of each rank; empty: all share one
        threads   of a rank, as its launcher gives them; 0: what follows from the cores

    Where nobody `asked` for it, the choice is to cost next to nothing: large graphs are not counted, METIS is
    looked at where it is cheap. That there is no profile is then passed over in silence; what is wrong with
    one that is there is said, and its seconds are not held against the run.

    One rank has one way. Batches read rows by their feed, and inference passes once: both take the rows.
    """
    check_open(config)
    options = config.parallel
    places = places or [0] * ranks
    kept = _kept(config, ranks, places)
    if kept is not None:
        kept.apply(config)
        return Choice([f"strategy  {kept}, as the run began"] if asked else [], 0.0)
    if ranks == 1 or config.batch.batch_size or not trains:
        options.strategy = "1d" if options.exchange != "sparse" else "halo"
        why = "batches read rows by their feed" if config.batch.batch_size else "one pass over the graph"
        if config.batch.batch_size and config.batch.batching == "subgraph":
            why = "each row of a subgraph is its owner's"
        return Choice([f"strategy  {options.strategy}: {why}"] if asked and ranks > 1 else [], 0.0)
    check_by_host(options.by_host, places)
    profile, doubts = this_profile(asked)
    machine = machine_of(profile, config, ranks, places, machine_bytes(), threads)
    known = asked or profile.host != default_profile().host
    shape = Shape.of(source) if asked else Shape.of(source, FEW_ARCS)
    try:
        found = plan(shape, config, machine, partitions_of(config), lambda c: as_asked(config, c))
    except NotForetold as error:
        if asked:
            raise UserError(f"{error}. Name a --strategy.") from None
        options.strategy = "1d" if options.exchange != "sparse" else "halo"
        return Choice([f"strategy  {options.strategy}: {error}"], 0.0)
    if not asked and (worth := _worth_cutting(config, found, shape)):
        found = found.beside(
            plan(shape, config, machine, ["metis"], lambda c: c.exchange == "sparse" and _way(c) in worth)
        )
    check_memory(found)
    found.best.candidate.apply(config)
    lines = [f"strategy  {found.why()}"]
    told = [line for line in (doubts, link_doubts(machine) if known else "") if line]
    lines += [f"profile   {line}" for line in told]
    # A profile of another machine tells strategies apart; its seconds are held against no run that nobody
    # planned. Nor are those of a decoder of links known, which is no part of a plan.
    silent = config.train.task == "link" or (not asked and (told or not known))
    return Choice(lines, 0.0 if silent else found.best.seconds)


def _way(candidate: Candidate) -> tuple[str, str, bool]:
    return candidate.strategy, candidate.sides, candidate.by_host


def _worth_cutting(config: RunConfig, found: Plan, shape: Shape) -> set[tuple[str, str, bool]]:
    """The ways that METIS, which nobody asked for, is tried on: it saves messages alone, so those whose
    computing takes less than the best so far; few where cuts take much of the run that was foretold."""
    rate = found.machine.profile.partition.get("metis")
    if "parallel.partition" in config.given or rate is None or shape.arcs > FEW_ARCS:
        return set()
    best, epochs = found.best.total(found.epochs), found.epochs
    cost = rate * shape.arcs  # of a cut: one to look at it, one more in the run
    rows = [row for row in found.rows if row.candidate.exchange == "sparse"]
    rows = [row for row in rows if cost + epochs * row.compute < best]
    worth: set[tuple[str, str, bool]] = set()
    grids: set[str] = set()
    for row in sorted(rows, key=lambda row: row.compute):
        grid = str(row.candidate.grid)
        if grid not in grids and cost * (len(grids) + 2) >= CHEAP * best:
            continue
        grids.add(grid)
        worth.add(_way(row.candidate))
    return worth if worth and "metis" in partitioners(shape) else set()


def _kept(config: RunConfig, ranks: int, places: Sequence[int]) -> Candidate | None:
    """What a run that goes on was begun with, on as many ranks."""
    path = Path(config.train.out)
    if not config.train.out or not is_run(path):
        return None
    theirs = RunConfig()
    load_toml(theirs, path / "config.toml")
    old = theirs.parallel
    try:
        grid, exchange = grid_of(old.strategy, ranks, old.grid, old.replication, old.exchange)
    except UserError:  # of another number of ranks
        return None
    by_host = old.by_host != "off" and HostLines.on(grid, places) is not None
    return Candidate(old.strategy, grid, exchange, old.partition, old.overlap, old.grid, by_host)


def machine_of(
    profile: Profile, config: RunConfig, ranks: int, hosts: int | Sequence[int], memory: int = 0,
    threads: int = 0,
) -> Machine:  # fmt: skip
    """The ranks of a run on so many hosts, or on those of each rank; `threads` as the launcher gives them: of
    one host its cores are divided, on several a rank has one unless told.

    >>> config, profile = RunConfig(), default_profile()
    >>> [machine_of(profile, config, 2, hosts).threads for hosts in (1, 2, [0, 0], [0, 1])]
    [1, 1, 1, 1]
    >>> machine_of(profile, config, 1, 1).threads, machine_of(profile, config, 2, 2, threads=2).threads
    (2, 2)
    """
    told = () if isinstance(hosts, int) else tuple(hosts)
    count = hosts if isinstance(hosts, int) else len(set(hosts))
    usual = max(1, profile.cores // ranks) if count == 1 else 1
    threads = config.train.threads or threads or usual
    return Machine(profile, ranks, count, threads, memory_bytes=memory, told=told if count > 1 else ())


def partitions_of(config: RunConfig) -> list[str]:
    """What may be cut by: what was asked for, and beside `auto` none."""
    asked = config.parallel.partition
    return ["random", "auto"] if asked == "auto" else [asked]


def as_asked(config: RunConfig, candidate: Candidate) -> bool:
    """Whether a candidate has the exchange, and goes by host or not, as was asked for."""
    by_host = {"on": True, "off": False}.get(config.parallel.by_host, candidate.by_host)
    return config.parallel.exchange in ("", candidate.exchange) and candidate.by_host == by_host


def check_memory(found: Plan) -> None:
    """Refuse a plan of which nothing fits; what would, in one line."""
    best, have = found.best, found.machine.rank_bytes
    if best.fits:
        return
    memory = found.machine.memory_bytes or found.machine.profile.memory_bytes
    hosts = -(-best.bytes * found.machine.ranks // memory)
    raise UserError(
        f"{best.candidate} needs {spell_bytes(best.bytes)} a rank, {spell_bytes(have)} are here, and all "
        f"others need more. Use about {hosts} hosts as this (--hosts FILE), or --batch-size 1000."
    )


def off_by(foretold: float, seconds: Sequence[float]) -> str:
    """One line where the first epochs took another time than was foretold; empty while all is well.

    >>> off_by(1.0, [9.0, 2.0, 2.1, 1.9])
    'plan      foretold 1 s an epoch, measured 2 s, 2.0 times that. Use: weft calibrate'
    >>> off_by(1.0, [9.0, 1.1, 1.0, 0.9])
    ''
    """
    if not foretold or len(seconds) < 2:
        return ""
    measured = statistics.median(seconds[1:])
    ratio = measured / foretold
    if 1 / OFF <= ratio <= OFF:
        return ""
    return (
        f"plan      foretold {spell_seconds(foretold)} an epoch, measured {spell_seconds(measured)}, "
        f"{ratio:.1f} times that. Use: weft calibrate"
    )
