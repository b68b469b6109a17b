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
from ..parallel import choose as grid_of
from ..train.config import RunConfig, load_toml
from ..train.run import is_run
from ..units import spell_bytes, spell_seconds
from .cost import Machine
from .cuts import Shape
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


def this_profile() -> tuple[Profile, str]:
    """(the profile of this machine, one line of what is wrong with it)."""
    found = own_profile()
    if found is None:
        return (
            default_profile(),
            "no machine profile: figures of a machine of two cores stand in. Use: weft calibrate",
        )
    return found, found.doubts()


def check_open(config: RunConfig) -> None:
    """Refuse what only a named strategy reads."""
    for name in ("grid", "replication", "move_adjacency"):
        if getattr(config.parallel, name):
            flag = "--" + name.replace("_", "-")
            raise UserError(f"--strategy auto chooses the grid itself. Leave out {flag}, or name a strategy.")


def choose(
    config: RunConfig, source: Graph | Store, ranks: int, hosts: int = 1, trains: bool = True,
    asked: bool = True,
) -> Choice:  # fmt: skip
    """Settle `--strategy auto` in the config; refuse what does not fit, and say what would.

    Where nobody `asked` for it, the choice is to cost next to nothing: large graphs are not counted, METIS is
    looked at where it is cheap, and a profile of no machine's own is passed over in silence.

    One rank has one way. Batches read rows by their feed, and inference passes once: both take the rows.
    """
    check_open(config)
    options = config.parallel
    kept = _kept(config, ranks)
    if kept is not None:
        kept.apply(config)
        return Choice([f"strategy  {kept}, as the run began"] if asked else [], 0.0)
    if ranks == 1 or config.batch.batch_size or not trains:
        options.strategy = "1d" if options.exchange != "sparse" else "halo"
        why = "batches read rows by their feed" if config.batch.batch_size else "one pass over the graph"
        if config.batch.batch_size and config.batch.batching == "subgraph":
            why = "each row of a subgraph is its owner's"
        return Choice([f"strategy  {options.strategy}: {why}"] if asked and ranks > 1 else [], 0.0)
    profile, doubts = this_profile()
    machine = machine_of(profile, config, ranks, hosts, machine_bytes())
    shape = Shape.of(source) if asked else Shape.of(source, FEW_ARCS)

    def look(partitions: list[str]) -> Plan:
        return plan(shape, config, machine, partitions, lambda c: _asked(config, c))

    try:
        found = look(partitions_of(config))
    except NotForetold as error:
        if asked:
            raise UserError(f"{error}. Name a --strategy.") from None
        options.strategy = "1d" if options.exchange != "sparse" else "halo"
        return Choice([f"strategy  {options.strategy}: {error}"], 0.0)
    if not asked and _cuts_cheaply(config, found, shape):
        found = look([config.parallel.partition, "metis"])
    check_memory(found)
    found.best.candidate.apply(config)
    lines = [f"strategy  {found.why()}"]
    if asked:
        return Choice(lines if not doubts else [*lines, f"profile   {doubts}"], found.best.seconds)
    # A profile of another machine tells strategies apart; its seconds are not held against this one.
    return Choice(lines, 0.0 if doubts else found.best.seconds)


def _cuts_cheaply(config: RunConfig, found: Plan, shape: Shape) -> bool:
    """Whether METIS, which nobody asked for, is here and takes little of the run that was foretold."""
    rate = found.machine.profile.partition.get("metis")
    if "parallel.partition" in config.given or rate is None or shape.arcs > FEW_ARCS:
        return False
    return "metis" in partitioners(shape) and rate * shape.arcs < CHEAP * found.best.total(found.epochs)


def _kept(config: RunConfig, ranks: int) -> Candidate | None:
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
    by_host = old.by_host == "on"
    return Candidate(old.strategy, grid, exchange, old.partition, old.overlap, old.grid, by_host)


def machine_of(profile: Profile, config: RunConfig, ranks: int, hosts: int, memory: int = 0) -> Machine:
    """The ranks of a run; threads as the launcher gives them."""
    per_host = -(-ranks // hosts)
    threads = config.train.threads or max(1, profile.cores // per_host)
    return Machine(profile, ranks, hosts, threads, memory_bytes=memory)


def partitions_of(config: RunConfig) -> list[str]:
    """What may be cut by: what was asked for, and beside `auto` none."""
    asked = config.parallel.partition
    return ["random", "auto"] if asked == "auto" else [asked]


def _asked(config: RunConfig, candidate: Candidate) -> bool:
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
