"""A picture of a command in a terminal: python docs/pictures/terminal.py OUT.svg weft train

The command runs on a real terminal of its own, and what is on the screen at the end becomes an SVG.
"""

from __future__ import annotations

import io
import os
import pty
import re
import sys

from rich.console import Console
from rich.text import Text

COLUMNS = 96
_ERASE = re.compile(r"^.*\r(?:\x1b\[2K)?", re.DOTALL)
_CLIP = re.compile(r'(clip-terminal">\s*<rect [^>]*height=")([\d.]+)')
_FONTS = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def screen(command: list[str]) -> str:
    """What the command leaves on a terminal of COLUMNS columns, colours included."""
    process, terminal = pty.fork()
    if process == 0:
        os.environ |= {"COLUMNS": str(COLUMNS), "LINES": "40", "TERM": "xterm-256color"}
        os.execvp(command[0], command)
    output = b""
    try:
        while part := os.read(terminal, 65536):
            output += part
    except OSError:  # how Linux says that the other end has closed
        pass
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    if status:
        sys.exit(f"{' '.join(command)} ended with status {status}")
    lines = output.decode().replace("\r\n", "\n").split("\n")
    return "\n".join(_ERASE.sub("", line) for line in lines).rstrip()


def picture(command: list[str]) -> str:
    """The screen as SVG, without fonts from elsewhere."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.assemble(("$ ", "dim"), (" ".join(command), "bold")))
    console.print(Text.from_ansi(screen(command)))
    svg = console.export_svg(title="weft", unique_id="weft")
    svg = _CLIP.sub(lambda found: f"{found[1]}{float(found[2]) + 8:g}", svg)  # the last line's descenders
    return _FONTS.sub("", svg).replace("Fira Code", "ui-monospace, Menlo, Consolas, DejaVu Sans Mono")


if __name__ == "__main__":
    out, *words = sys.argv[1:]
    with open(out, "w", encoding="utf-8") as file:
        file.write(picture(words))
