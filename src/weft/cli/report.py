"""weft report: one HTML page of a run, or of several side by side."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ..errors import UserError
from .options import Parser

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
    out = Path(parsed.out)
    if os.path.lexists(out):
        raise UserError(f"{out} exists already. Choose another --out, or remove it.")
    from ..report import page, read_run
    from ..report.runs import name_apart

    runs = [read_run(Path(path)) for path in parsed.runs]
    name_apart(runs)
    text = page(runs)
    try:
        with out.open("x", encoding="utf-8") as file:  # never over a file that is there
            file.write(text)
    except OSError as error:
        raise UserError(f"cannot write {out}: {error.strerror}. Choose another --out.") from None
    print(out)
    return 0
