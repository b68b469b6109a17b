"""weft report: one HTML page of a run, or of several side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .options import Parser
from .outputs import new_file, write_new

_EXAMPLES = """  weft report runs/sbm-gcn-1
  weft report runs/a runs/b runs/c --out compared.html
  weft report runs/mine --out mine.html            a run that goes on, or died: what there is"""


def run(arguments: Sequence[str]) -> int:
    parser = Parser(
        "report", "RUN [RUN ...] [OPTIONS]",
        "One HTML page of a run: curves, what the scores are made of, where the time went, who sent how much "
        "to whom, balance, settings; several runs are compared. It needs no network and no JavaScript.",
        _EXAMPLES,
    )  # fmt: skip
    parser.add_argument("runs", nargs="+", metavar="RUN", help="a run folder that weft train made")
    parser.add_argument("--out", default="report.html", metavar="FILE", help="where to write (report.html)")
    parsed = parser.parse(arguments)
    from ..report import page, read_run
    from ..report.runs import name_apart

    runs = [read_run(Path(path)) for path in parsed.runs]
    new_file(parsed.out, "--out")
    name_apart(runs)
    write_new(parsed.out, page(runs), "--out")
    print(parsed.out)
    return 0
