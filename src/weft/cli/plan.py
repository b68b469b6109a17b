"""weft plan: every strategy foretold, for machines that are here or not."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..tables import columns
from ..train.config import RunConfig
from .options import FOLDER, Parser, add_config, config_from, number, refuse

if TYPE_CHECKING:
    from ..planner import Forecast, Link, Machine, Plan, Shape
    from ..planner.profile import Profile

_EXAMPLES = """  weft plan g.weft --ranks 8                                      on this machine
  weft plan g.weft --model gat --ranks 64 --hosts 8 --link 10Gbit   on eight like it
  weft plan g.weft --ranks 16 --profile fast.json --partition random,metis
  weft plan --vertices 1e9 --arcs 1e11 --features 128 --ranks 64 --hosts 64 --link 100Gbit
  weft plan cora --ranks 4 --json                                 for programs
  weft plan g.weft --ranks 16 --plot plan.png"""
_BARS = 20
"""Candidates that are drawn: more of them make a tower that nobody reads."""
_UNITS = {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}


def run(arguments: Sequence[str]) -> int:
    parser = Parser(
        "plan", "[GRAPH] [OPTIONS]",
        "Seconds, words, messages and memory of every strategy, before anything is run or allocated: the "
        "trainer's own code runs on tensors without numbers, a profile (weft calibrate) gives the seconds. "
        "--strategy, --exchange and --partition (a list) leave only those.", _EXAMPLES,
    )  # fmt: skip
    add_config(parser)
    group = parser.add_argument_group("the machine, which need not be this one")
    group.add_argument(
        "--profile", metavar="FILE", help="a machine profile (this host's, else built-in figures)"
    )
    group.add_argument(
        "--link", metavar="RATE", help="between hosts, such as 10Gbit or 100Mbit (the profile's)"
    )
    group.add_argument("--memory", metavar="SIZE", help="of a host, such as 256GB (the profile's)")
    numbers = parser.add_argument_group("a graph by numbers, in place of GRAPH")
    for name, text in (("vertices", "its vertices, such as 1e9"), ("arcs", "its arcs"),
                       ("features", "features a vertex"), ("classes", "classes to tell apart")):  # fmt: skip
        numbers.add_argument(f"--{name}", metavar="N", help=text)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--plot", metavar="FILE", help="draw seconds of all candidates: .png, .svg or .pdf")
    parsed = parser.parse(arguments)
    from ..parallel import check_by_host
    from ..planner.choose import link_doubts

    refuse(parsed, "plan", [f"train.{name}" for name in FOLDER])
    config = config_from(parsed)
    if parsed.plot:
        from ..bench.pictures import check_drawable

        check_drawable(parsed.plot)
    partitions = config.parallel.partition.split(",")
    config.parallel.partition = partitions[0]
    machine, doubts = _machine(config, parsed)
    check_by_host(config.parallel.by_host, machine.places)
    shape = _shape(config, parsed)
    found = _plan(shape, config, machine, partitions)
    if parsed.json:
        notes = {"profile_note": doubts, "link_note": link_doubts(machine)}
        print(json.dumps(as_dict(found, shape, machine) | notes))
    else:
        for line in describe(found, shape, machine, doubts):
            print(line)
    if parsed.plot:
        draw(found, parsed.plot)
    return 0


def _plan(shape: Shape, config: RunConfig, machine: Machine, partitions: list[str]) -> Plan:
    from ..errors import unknown
    from ..parallel.assign import check_partition
    from ..parallel.grid import STRATEGIES
    from ..planner.choose import as_asked
    from ..planner.plan import Candidate, partitioners, plan

    options, given = config.parallel, config.given
    strategy = options.strategy if "parallel.strategy" in given and options.strategy != "auto" else ""
    if strategy and strategy not in STRATEGIES:
        raise unknown("strategy", strategy, [*STRATEGIES, "auto"])
    for name in ("grid", "replication"):
        if f"parallel.{name}" in given:
            raise UserError(f"a plan tries grids itself. Leave out --{name}.")
    if "parallel.partition" in given:
        for partition in partitions:
            check_partition(partition)
    else:
        partitions = ["random", *partitioners(shape)]

    def keep(candidate: Candidate) -> bool:
        names = {candidate.strategy} | ({"a-stationary"} if candidate.strategy == "1.5d" else set())
        return (not strategy or strategy in names) and as_asked(config, candidate)

    return plan(shape, config, machine, partitions, keep)


def _machine(config: RunConfig, parsed: Any) -> tuple[Machine, str]:
    from dataclasses import replace

    from ..planner.choose import machine_of, this_profile
    from ..planner.profile import read_profile

    profile: Profile
    if parsed.profile:
        profile, doubts = read_profile(Path(parsed.profile)), ""
    else:
        profile, doubts = this_profile()
    ranks = config.parallel.ranks
    if ranks < 1:
        raise UserError(f"{ranks} ranks were asked for. Use --ranks 1 or more.")
    hosts = _hosts(config.parallel.hosts, ranks)
    if isinstance(hosts, int) and hosts > ranks:
        raise UserError(f"{ranks} ranks do not fill {hosts} hosts. Use --ranks {hosts} or more.")
    memory = _bytes(parsed.memory) if parsed.memory else 0
    machine = machine_of(profile, config, ranks, hosts, memory)
    return replace(machine, between=parse_link(parsed.link, profile) if parsed.link else None), doubts


def _hosts(text: str, ranks: int) -> int | list[int]:
    """How many there are, or that of each rank as a host file's slots are filled."""
    if not text:
        return 1
    if text.isdecimal() and len(text) < 8:
        if not int(text):
            raise UserError("--hosts 0 is no number of hosts. Use 1 or more, or a host file.")
        return int(text)
    from ..comm.hosts import filled, read_hosts

    listed = read_hosts(Path(text))
    slots = sum(host.slots for host in listed)
    if ranks > slots:
        raise UserError(
            f"{text} has {slots} slots, {ranks} ranks were asked for. Use fewer --ranks, or more slots."
        )
    return filled(listed, ranks)


def _bytes(text: str) -> int:
    from ..minibatch import parse_bytes

    return parse_bytes(text)


def parse_link(text: str, profile: Profile) -> Link:
    """A link of a bandwidth; its latency is the profile's, or that of a usual network.

    >>> from weft.planner.default import default_profile
    >>> round(parse_link("8Gbit", default_profile()).seconds.at(1e9), 2)
    1.0
    """
    from ..planner import Link

    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgt]?)(bit|b|byte)(?:/?s|ps)?", text.strip().lower())
    if match is None or not 0 < float(match[1]) < 1e9:
        raise UserError(f"--link {text!r} is no bandwidth. Write 10Gbit, or 1.2GB.")
    rate = float(match[1]) * _UNITS[match[2]] / (8 if match[3] == "bit" else 1)
    if profile.between is not None:
        return Link.of_bandwidth(profile.between.seconds.at(1), rate, profile.between.overlap)
    return Link.of_bandwidth(3e-5, rate, 0.5)


def _shape(config: RunConfig, parsed: Any) -> Shape:
    from dataclasses import replace

    from ..planner import Shape
    from .ranks import load_graph, ready_store

    given = {name: _count(getattr(parsed, name), name)
             for name in ("vertices", "arcs", "features", "classes") if getattr(parsed, name)}  # fmt: skip
    if "vertices" in given or "arcs" in given:
        if parsed.graph:
            raise UserError(
                "a graph is given by its name or by --vertices and --arcs, not both. Leave one out."
            )
        if not {"vertices", "arcs"} <= given.keys():
            raise UserError("a graph by numbers needs --vertices and --arcs.")
        whole = {"features": config.model.hidden, "classes": 16} | given
        return Shape(
            whole["vertices"], whole["arcs"], whole["features"], whole["classes"], None, "by numbers"
        )
    shape = Shape.of(ready_store(config) or load_graph(config, trains=False))
    return replace(
        shape, features=given.get("features", shape.features), classes=given.get("classes", shape.classes)
    )


def _count(text: str, name: str) -> int:
    value = number(text, f"--{name}")
    if not 1 <= value <= 1e15 or value != int(value):
        raise UserError(f"--{name} must be a whole number from 1 on, not {text!r}.")
    return int(value)


# What is told.


def _row(found: Plan, row: Forecast) -> list[str]:
    from ..units import spell_bytes, spell_seconds

    c, back = row.candidate, found.pays_back(row)
    paid = "" if not row.partition_seconds else "never" if back is None else f"{back:,.0f}"
    return [
        c.strategy, str(c.grid), c.exchange + ", by host" * c.by_host, c.partition,
        spell_seconds(row.seconds), spell_seconds(row.messages_seconds), f"{row.words:,}",
        *([f"{row.crossing:,}"] if found.machine.hosts > 1 else []), f"{row.messages:,}",
        spell_bytes(row.bytes) + ("" if row.fits else " !"),
        spell_seconds(row.partition_seconds) if row.partition_seconds else "", paid,
    ]  # fmt: skip


def describe(found: Plan, shape: Shape, machine: Machine, doubts: str) -> list[str]:
    """The table, the winner and why."""
    from ..planner.choose import link_doubts
    from ..units import spell_bytes

    heads = ["strategy", "grid", "exchange", "partition", "epoch", "messages take", "words",
             *(["over the link"] if machine.hosts > 1 else []), "messages", "memory a rank", "cut takes",
             "paid back after"]  # fmt: skip
    hosts = f" on {machine.hosts} hosts" if machine.hosts > 1 else ""
    lines = [
        f"graph     {shape.name}: {shape.vertices:,} vertices, {shape.arcs:,} arcs; sizes "
        f"{', '.join(sorted({row.how for row in found.rows}))}",
        f"machine   {machine.ranks} ranks{hosts} of {machine.threads} thread{'s' * (machine.threads > 1)}, "
        f"{spell_bytes(machine.rank_bytes)} a rank; profile of {machine.profile.host}, "
        f"{machine.profile.date}",
    ]
    lines += [f"profile   {line}" for line in (doubts, link_doubts(machine)) if line]
    lines += ["", columns(heads, [_row(found, row) for row in found.rows], left=4), ""]
    if any(not row.fits for row in found.rows):
        lines.append("!         does not fit")
    lines += [f"left out  {note}" for note in found.notes]
    return [*lines, f"best      {found.why()}"]


def as_dict(found: Plan, shape: Shape, machine: Machine) -> dict[str, Any]:
    """For programs."""
    rows = [row.as_dict() | {"pays_back_epochs": found.pays_back(row)} for row in found.rows]
    return {
        "graph": shape.name, "vertices": shape.vertices, "arcs": shape.arcs, "ranks": machine.ranks,
        "hosts": machine.hosts, "threads": machine.threads, "rank_bytes": machine.rank_bytes,
        "profile": machine.profile.host, "epochs": found.epochs, "candidates": rows, "notes": found.notes,
        "best": found.best.as_dict(), "why": found.why(),
    }  # fmt: skip


def draw(found: Plan, path: str) -> None:
    """A bar a candidate, of the best: what is computed, and what is waited for messages."""
    from ..bench.pictures import new_figure, save

    rows = found.rows[:_BARS][::-1]
    figure = new_figure(8, 1.2 + 0.28 * len(rows))
    panel = figure.subplots()
    names = [str(row.candidate) for row in rows]
    compute = [row.compute for row in rows]
    panel.barh(names, compute, label="compute")
    panel.barh(names, [row.messages_seconds for row in rows], left=compute, label="messages")
    left_out = f" (the best {len(rows)} of {len(found.rows)})" if len(rows) < len(found.rows) else ""
    panel.set(xlabel=f"seconds an epoch, foretold{left_out}")
    panel.legend(frameon=False)
    save(figure, path)
