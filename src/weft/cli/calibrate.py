"""weft calibrate: measure this machine once, for plans."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from .options import Parser, number, whole_number
from .outputs import new_file
from .ranks import raise_everywhere

if TYPE_CHECKING:
    from ..comm import Communicator
    from ..planner import Link, Profile

_EXAMPLES = """  weft calibrate                        this machine, half a minute at most
  weft calibrate --ranks 4 --seconds 60 with steps of the trainer itself, for plans that are right
  mpirun -n 8 weft calibrate            the ranks that are there, of one host or of several
  weft calibrate --out fast.json        to be edited, and given to weft plan --profile fast.json"""


def run(arguments: Sequence[str]) -> int:
    parser = Parser(
        "calibrate", "[OPTIONS]",
        "Measure what plans need to know of this machine: kernels by width and degree, memory, messages "
        "within a host and between hosts, ranks beside each other. The result is kept for this host, a newer "
        "one takes its place.", _EXAMPLES,
    )  # fmt: skip
    parser.add_argument("--ranks", metavar="N", help="ranks to start (twice the cores, 8 at most)")
    parser.add_argument(
        "--seconds",
        metavar="X",
        default="20",
        help="time to measure in (20); with 60, steps of the trainer are tried, too",
    )
    parser.add_argument(
        "--engine", metavar="TEXT", help="how ranks talk: mpi, torch or threads (what is here)"
    )
    parser.add_argument(
        "--out", metavar="FILE", help="write the profile here, not into the user's cache; must not exist"
    )
    parser.add_argument("--json", action="store_true", help="print the profile as one JSON object")
    parsed = parser.parse(arguments)
    from ..comm import connect, in_job, run_ranks
    from ..comm.launch import cores, find_mpirun
    from ..planner.calibrate import calibrate
    from ..planner.profile import parse_profile

    seconds = number(parsed.seconds, "--seconds")
    if in_job():
        if parsed.ranks or parsed.engine:
            raise UserError(
                "these ranks were started by somebody else already. Leave out --ranks and --engine."
            )
        comm = connect()
        raise_everywhere(comm, comm.all_gather_json(_in_the_way(parsed.out))[0])
        profile = calibrate(comm, seconds)
        if comm.rank == 0:
            _keep(profile, parsed.out, parsed.json)
        comm.barrier()
        return 0
    if parsed.out:
        new_file(parsed.out, "--out")
    ranks = whole_number(parsed.ranks, "--ranks") if parsed.ranks else min(8, 2 * cores())
    engine = parsed.engine or ("mpi" if find_mpirun() and importlib.util.find_spec("mpi4py") else "torch")
    found = run_ranks("weft.cli.calibrate:measured", ranks, engine, seconds, stall_seconds=seconds + 300)[0]
    _keep(parse_profile(found), parsed.out, parsed.json)
    return 0


def _in_the_way(out: str | None) -> str:
    """Why a profile cannot be written there, or nothing: rank 0 looks, and all ranks hear of it."""
    try:
        if out:
            new_file(out, "--out")
    except UserError as error:
        return str(error)
    return ""


def measured(comm: Communicator, seconds: float, base: dict[str, object] | None = None) -> dict[str, object]:
    """What a started rank does; `base`: a profile whose kernels stand."""
    from ..planner.calibrate import calibrate
    from ..planner.profile import parse_profile

    return calibrate(comm, seconds, None if base is None else parse_profile(base)).as_dict()


def _keep(profile: Profile, out: str | None, as_json: bool) -> None:
    from ..planner.profile import path_of, write_profile

    path = write_profile(profile, Path(out) if out else path_of())
    if as_json:
        print(json.dumps(profile.as_dict()))
        return
    for line in describe(profile):
        print(line)
    print(f"kept      {path}")


def describe(profile: Profile) -> list[str]:
    """Lines for people."""
    from ..units import spell_bytes, spell_rate, spell_seconds

    def link(name: str, found: Link) -> str:
        big = 1 << 24
        rate = spell_rate(big / found.seconds.at(big))
        return (
            f"{name:<9} {spell_seconds(found.seconds.at(64))} a small message, {rate} a large one, "
            f"{100 * found.overlap:.0f} % beside work"
        )

    spmm, dense = profile.kernels["spmm"], profile.kernels["dense"]
    rate = {width: 1 / spmm.at(width=width, degree=16, bytes=1 << 25) / 1e6 for width in (16, 128)}
    lines = [
        f"profile   {profile.host}: {profile.cores} cores, {profile.isa}, "
        f"{spell_bytes(profile.memory_bytes)}, {profile.date}",
        link("inside", profile.inside),
    ]
    if profile.between is not None:
        lines.append(link("between", profile.between))
    if profile.crowded is not None:
        lines.append(link("crowded", profile.crowded))
    slow = profile.slowdown
    lines += [
        f"spmm      {rate[16]:,.0f} million arcs a second of width 16, {rate[128]:,.0f} of 128 (1 thread)",
        f"dense     {2e-9 / dense.at(inputs=128, outputs=128):.1f} GFLOP/s (1 thread); memory "
        f"{spell_rate(profile.bandwidth)}; an operation {spell_seconds(profile.call_seconds)} at least",
        f"together  {slow.x[-1]:.0f} ranks of a host are {slow.y[-1]:.2f} times slower each; "
        f"{profile.speedup.x[-1]:.0f} threads {profile.speedup.y[-1]:.2f} times faster",
    ]
    if profile.seconds:
        lines.append(f"took      {spell_seconds(profile.seconds)}")
    for p in profile.proved:
        ranks = f"{p.ranks} rank{'s' * (p.ranks > 1)} of {p.threads} thread{'s' * (p.threads > 1)}"
        hosts = f" on {p.hosts} hosts" * (p.hosts > 1)
        lines.append(f"proved    {ranks}{hosts}: plans of trials are {100 * p.error:.0f} % off by the median")
    if not profile.proved:
        lines.append("proved    no: no time for trials. Use --seconds 60, or more on a slow link")
    return lines
