"""The tables and pictures of docs/reproduce.md from what `weft reproduce PAPER … --json` answered:

    for p in cagnet demirci besta p3 mggcn; do weft reproduce $p all --out out --json > out-$p.json; done
    python docs/reproduced.py out-*.json

Of a figure that was run several times the last counts; rows of a figure that no file has stay as they are.
`--when "on 18 November 2026, on two cores"` says anew where and when.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from weft.bench.reproduce import PAPERS
from weft.bench.reproduce.item import Item, Paper

DOCS = Path(__file__).parent
PAGE = DOCS / "reproduce.md"
HEAD = ["| | what | the paper | ours |", "|---|---|---|---|"]
COLOURS = 128
"""Of a picture: as many as lines and letters need."""

Answer = dict[str, Any]
"""What one figure answered: paper, item, compared, notes, files, …"""


def answers(files: Iterable[Path]) -> dict[tuple[str, str], Answer]:
    """(paper, item) → the last answer."""
    found = {}
    for file in files:
        told = json.loads(file.read_text(encoding="utf-8"))
        for answer in told if isinstance(told, list) else [told]:
            found[answer["paper"], answer["item"]] = answer
    return found


def cell(text: str) -> str:
    """Text inside a cell.

    >>> cell("a | b")
    'a \\\\| b'
    """
    return " ".join(text.replace("|", "\\|").split())


def lines_of(item: Item, answer: Answer | None, old: list[str]) -> list[str]:
    """The rows of a figure: as it answered, else as they stand in the page."""
    if not item.run:
        return [f"| {item.name} | {cell(item.title)} | | not run: {cell(item.why)} |"]
    if answer is None:
        return old or [
            f"| `{item.name}` | {cell(item.title)} | | not made for this page: about {item.seconds} s |"
        ]
    compared = answer["compared"]
    if not compared:
        notes = "; ".join(answer["notes"])
        return [f"| `{item.name}` | {cell(item.title)} | | ran{'; ' if notes else ''}{cell(notes)} |"]
    lines = []
    for number, line in enumerate(compared):
        name, title = (f"`{item.name}`", f"{item.title}: ") if number == 0 else ("", "")
        lines.append(
            f"| {name} | {cell(title + line['what'])} | {cell(line['paper'])} | {cell(line['ours'])} |"
        )
    return lines


def old_lines(section: str) -> dict[str, list[str]]:
    """Item → its rows in the page; a row without a name belongs to the one above.

    >>> old_lines("| | what | the paper | ours |\\n| `fig1` | a | 1 | 2 |\\n|  | b | 1 | 2 |")
    {'fig1': ['| `fig1` | a | 1 | 2 |', '|  | b | 1 | 2 |']}
    """
    found: dict[str, list[str]] = {}
    name = ""
    for line in section.splitlines():
        if line.startswith("|") and line not in HEAD:
            name = line.split("|")[1].strip(" `") or name
            found.setdefault(name, []).append(line)
    return found


def sized(answer: Answer) -> str:
    """What a picture shows, in words for who does not see it, with the sizes that were measured."""
    measured = [line.removeprefix("measured: ") for line in answer["sizes"] if line.startswith("measured: ")]
    return "; ".join(measured[:2])


def section_of(paper: Paper, found: Mapping[tuple[str, str], Answer], section: str, shown: set[str]) -> str:
    """The part of a page between two headings, with its table and pictures made anew; its other text stays.

    shown   names of the pictures that there are
    """
    old = old_lines(section)
    table = [*HEAD]
    pictures: list[str] = []
    for item in paper.items:
        answer = found.get((paper.name, item.name))
        table += lines_of(item, answer, old.get(item.name, []))
        name = f"reproduce-{paper.name}-{item.name}.png"
        if name in shown:
            stood = re.search(rf"!\[[^\]]*\]\(pictures/{re.escape(name)}\)", section)
            said = f"{paper.name} {item.name}: {item.title}"
            if answer is not None and sized(answer):
                said += f". Measured: {sized(answer)}"
            pictures.append(f"![{said}](pictures/{name})" if answer is not None or not stood else stood[0])
    text = [line for line in section.splitlines() if not line.startswith(("|", "!["))]
    kept = re.sub(r"\n{3,}", "\n\n", "\n".join(text).strip())
    parts = ["\n".join(table), *pictures, *([kept] if kept else [])]
    return "\n\n" + "\n\n".join(parts) + "\n\n"


def page(text: str, found: Mapping[tuple[str, str], Answer], shown: set[str], when: str = "") -> str:
    """The page with every paper's section made anew."""
    parts = re.split(r"(?m)^(## .*)$", text)
    for place in range(1, len(parts), 2):
        name = parts[place].removeprefix("## ").partition(":")[0]
        if name in PAPERS:
            parts[place + 1] = section_of(PAPERS[name], found, parts[place + 1], shown)
    made = "".join(parts)
    if when:
        made, count = re.subn(
            r"(?s)The column \*ours\* was made .*?(?=\n\n)",
            lambda _: f"The column *ours* was made {when}.",
            made,
        )
        assert count == 1, "the sentence that begins with: The column *ours* was made"
    return made


def bring(answer: Answer, folder: Path) -> None:
    """The answer's picture into this folder, with few colours where Pillow is installed."""
    for file in map(Path, answer["files"]):
        if file.suffix == ".png" and file.exists():
            target = folder / f"reproduce-{answer['paper']}-{answer['item']}.png"
            try:
                from PIL import Image
            except ImportError:
                target.write_bytes(file.read_bytes())
                continue
            with Image.open(file) as picture:
                picture.convert("RGB").quantize(COLOURS).save(target, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, help="answers of weft reproduce --json")
    parser.add_argument("--when", default="", help="where and when the figures were made")
    parser.add_argument("--no-pictures", action="store_true", help="the tables alone")
    given = parser.parse_args()
    found = answers(given.files)
    for answer in [] if given.no_pictures else found.values():
        bring(answer, DOCS / "pictures")
    shown = {path.name for path in (DOCS / "pictures").glob("reproduce-*.png")}
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), found, shown, given.when), encoding="utf-8")
    missing = [
        f"{p.name} {i.name}"
        for p in PAPERS.values()
        for i in p.items
        if i.run and (p.name, i.name) not in found
    ]
    print(f"{len(found)} figures and tables" + (f"; as they were: {', '.join(missing)}" if missing else ""))


if __name__ == "__main__":
    main()
