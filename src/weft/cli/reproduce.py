"""weft reproduce: figures and tables of the papers, as commands."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..tables import columns
from .options import Parser

if TYPE_CHECKING:
    from ..bench.reproduce import Item, Paper


def run(arguments: Sequence[str]) -> int:
    parser = Parser(
        "reproduce", "[PAPER [FIGURE|TABLE ...]] [OPTIONS]",
        "Figures and tables of the papers, made anew: CSV, a picture, and the paper's numbers beside ours. "
        "Alone it lists all of them with what they cost; PAPER all runs all of a paper that can be run.",
        "  weft reproduce\n  weft reproduce cagnet\n  weft reproduce cagnet fig1 --out cagnet\n"
        "  weft reproduce p3 fig10 --set ranks=2 --set features=16,64\n  weft reproduce besta all --full",
    )  # fmt: skip
    parser.add_argument("paper", nargs="?", metavar="PAPER", help="cagnet, demirci, besta, p3 or mggcn")
    parser.add_argument("items", nargs="*", metavar="FIGURE", help="fig1, table2, …, or all")
    parser.add_argument(
        "--full", action="store_true", help="at the paper's size; by default scaled to a laptop"
    )
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE",
                        help="change a parameter; lists by commas, graphs by semicolons")  # fmt: skip
    parser.add_argument("--out", default="reproduced", metavar="FOLDER", help="where to write (reproduced)")
    parser.add_argument("--no-plot", action="store_true", help="no pictures: works without matplotlib")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parsed = parser.parse(arguments)
    from ..bench.reproduce import PAPERS, find_paper

    if parsed.paper is None:
        if parsed.full or parsed.set:
            raise UserError("--full and --set are for a figure. Name the paper and the figure.")
        return _list(list(PAPERS.values()), parsed.json)
    paper = find_paper(parsed.paper)
    if not parsed.items:
        return _list([paper], parsed.json)
    return _run(paper, parsed)


def _list(papers: list[Paper], as_json: bool) -> int:
    if as_json:
        told = {paper.name: [_facts(item) for item in paper.items] for paper in papers}
        print(json.dumps(told))
        return 0
    for number, paper in enumerate(papers):
        print(f"{'' if number == 0 else chr(10)}{paper.name}: {paper.title}")
        print(columns(["", "about", "what"], [_line(item) for item in paper.items], left=3))
    if len(papers) == 1:
        changed = {item.name: ", ".join(item.scaled) for item in papers[0].items if item.run and item.scaled}
        rows = [[f"  {name}", names] for name, names in changed.items()]
        print("\n" + columns(["  figure", "parameters for --set"], rows, left=2))
        wants = [[f"  {item.name}", item.needs or "nothing more"] for item in papers[0].items if item.run]
        print("\n" + columns(["  figure", "what --full needs"], wants, left=2))
    print(
        "\nweft reproduce PAPER FIGURE runs one; seconds are of two cores, scaled; --full: the paper's size."
    )
    return 0


def _line(item: Item) -> list[str]:
    cost = f"{item.seconds} s" if item.run else "-"
    return [f"  {item.name}", cost, item.title if item.run else f"{item.title}: not run, {item.why}"]


def _facts(item: Item) -> dict[str, Any]:
    return {
        "name": item.name, "title": item.title, "runs": item.run is not None,
        "seconds": item.seconds if item.run else None, "why_not": item.why, "full_needs": item.needs,
        "parameters": {key: _changed(item, key) for key in item.scaled},
    }  # fmt: skip


def _changed(item: Item, key: str) -> dict[str, Any]:
    return {"scaled": item.scaled[key], "full": item.full.get(key, item.scaled[key])}


def _run(paper: Paper, parsed: Any) -> int:
    changes = dict(_assignment(text) for text in parsed.set)
    asked = parsed.items
    if asked == ["all"]:
        if changes:
            raise UserError("--set changes one figure, all are named. Name the figure.")
        items = [item for item in paper.items if item.run]
    else:
        items = [paper.find(name) for name in asked]
    for item in items:
        if item.run is None:
            raise UserError(f"{paper.name} {item.name} ({item.title}) is not run: {item.why}.")
    chosen = [(item, item.parameters(parsed.full, changes)) for item in items]
    from ..bench.reproduce.output import check_folder, sizes_of, write

    sizes = [_size(paper, item, parameters, changes) if parsed.full else "scaled"
             for item, parameters in chosen]  # fmt: skip

    if not parsed.no_plot:
        from ..bench.pictures import check_drawable

        check_drawable("picture.png")
    names = [f"{paper.name}-{item.name}" for item in items]
    check_folder(parsed.out, names)
    answers = []
    for (item, parameters), name, size in zip(chosen, names, sizes, strict=True):
        title = f"{paper.name} {item.name}: {item.title}, {size}"
        started = time.perf_counter()
        outcome = item.start(parameters)
        seconds = time.perf_counter() - started
        files = write(outcome, parsed.out, name, title, not parsed.no_plot)
        if parsed.json:
            answers.append({
                "paper": paper.name, "item": item.name, "size": size, "parameters": parameters,
                "rows": outcome.rows, "sizes": sizes_of(outcome.rows),
                "compared": [vars(line) for line in outcome.compared], "notes": outcome.notes,
                "files": files, "seconds": seconds,
            })  # fmt: skip
            continue
        print(f"{title} ({seconds:.0f} s)")
        if outcome.compared:
            told = [[f"  {line.what}", line.paper, line.ours] for line in outcome.compared]
            print(columns(["", "paper", "ours"], told, left=3))
        for line in sizes_of(outcome.rows):
            print(f"  {line}")
        for note in outcome.notes:
            print(f"  note: {note}")
        print(f"  wrote {', '.join(files)}")
    if parsed.json:
        print(json.dumps(answers[0] if len(answers) == 1 else answers))
    return 0


def _size(paper: Paper, item: Item, parameters: dict[str, Any], changes: dict[str, str]) -> str:
    """How a run with --full is called: at the paper's size only where all of it is the paper's."""
    from ..bench.reproduce.sets import stand_ins

    others = stand_ins(paper, item, parameters)
    if others:
        return f"the paper’s parameters on {', '.join(others)}, none of its graphs"
    return f"the paper’s size but for {', '.join(changes)}" if changes else "at the paper’s size"


def _assignment(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not value:
        raise UserError(f"--set {text} has no value. Write --set NAME=VALUE.")
    return name.strip().replace("-", "_"), value.strip()
