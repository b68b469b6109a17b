"""Code blocks of a Markdown page, and what an HTML comment before one says about running it."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
_BLOCK = re.compile(
    r"(?:^<!-- (?P<how>not run|stopped): (?P<why>[^\n]*?) -->\n)?"
    r"^```(?P<kind>\w+)(?: title=\"(?P<title>[\w.-]+)\")?\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """A fenced block.

    kind   sh, python, …
    title  the file that it is written to: ```python title="mine.py"
    how    "" (run it), "not run" or "stopped" (by Ctrl-C after some epochs)
    why    the reason that the comment gives
    """

    kind: str
    code: str
    title: str = ""
    how: str = ""
    why: str = ""

    def commands(self) -> list[list[str]]:
        """The words of each line of a shell block, without comments."""
        lines = self.code.replace("\\\n", " ").splitlines()
        return [words for line in lines if (words := shlex.split(line, comments=True))]


_FENCED = re.compile(r"^```[^\n]*\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"`([^`\n]+)`")
_OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")


def mentioned(page: str | Path) -> list[str]:
    """Every `weft COMMAND …` of a page, from `weft` to the end of its line: in blocks, then in sentences."""
    text = (ROOT / page).read_text(encoding="utf-8")
    code = "".join(match[1] for match in _FENCED.finditer(text)).replace("\\\n", " ").splitlines()
    lines = [*(line.split(" #")[0] for line in code), *_INLINE.findall(_FENCED.sub("", text))]
    return [
        line[match.start(1) :] for line in lines if (match := re.search(r"(?:^|[\s|])(weft [a-z])", line))
    ]


def options(page: str | Path) -> set[str]:
    """Every `--option` on a page, whosever it is."""
    return set(_OPTION.findall((ROOT / page).read_text(encoding="utf-8")))


def blocks(page: str | Path, changes: dict[str, str] | None = None) -> list[Block]:
    """The blocks of a page, in order; `changes` make sizes smaller, and each must occur."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for word, other in (changes or {}).items():
        assert word in text, f"{word} is not in {page}"
        text = text.replace(word, other)
    assert text.count("\n```") % 2 == 0, f"{page} has a block without an end"
    return [
        Block(m["kind"], m["code"], m["title"] or "", m["how"] or "", m["why"] or "")
        for m in _BLOCK.finditer(text)
    ]
