"""weft doctor: what works on this machine."""

from __future__ import annotations

import json
from collections.abc import Sequence

from .options import Parser

_EXAMPLES = """  weft doctor
  weft doctor --json"""


def run(arguments: Sequence[str]) -> int:
    parser = Parser(
        "doctor", "[OPTIONS]",
        "Which engines work here, with a 2-rank self-test of each; versions, cores, memory, kernels; what to "
        "install. Exit status 1 where no engine starts ranks.", _EXAMPLES,
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse(arguments)
    from ..comm.doctor import diagnose, table
    from ..kernels import native

    extension = native.extension
    report = diagnose()
    report["kernels"] = (
        f"C++, {extension.isa()} of {', '.join(extension.isas())}, {extension.pool()} thread pool"
        if extension
        else "torch only: reinstall weft with a C++ compiler, e.g. apt install g++"
    )
    print(json.dumps(report) if parsed.json else table(report))
    engines = report["engines"]
    return 0 if engines["mpi"]["works"] or engines["torch"]["works"] else 1
