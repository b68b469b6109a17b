"""Runs docs/first.ipynb and keeps what its cells show, as a notebook does: python docs/notebook.py"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).with_name("first.ipynb")


def run(cells: list[dict[str, Any]], change: Callable[[str], str] = str) -> tuple[list[list[dict]], dict]:
    """What each code cell shows, in order, and the names that they leave; `change` makes a source smaller."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    names: dict[str, Any] = {"__name__": "notebook"}
    shown = []
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        pyplot.close("all")
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(change("".join(cell["source"])), NOTEBOOK.name, "exec"), names)
        out: list[dict] = []
        if said.getvalue():
            lines = said.getvalue().splitlines(keepends=True)
            out.append({"name": "stdout", "output_type": "stream", "text": lines})
        out += [picture(pyplot.figure(number)) for number in pyplot.get_fignums()]
        shown.append(out)
    return shown, names


def picture(figure: Any) -> dict:
    """A figure as Jupyter keeps it."""
    made = io.BytesIO()
    figure.savefig(made, format="png", dpi=100, metadata={"Software": None})
    return {
        "output_type": "display_data",
        "metadata": {},
        "data": {"image/png": base64.b64encode(made.getvalue()).decode(), "text/plain": [str(figure)]},
    }


def main() -> None:
    book = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        shown, _ = run(book["cells"])
    code = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    for number, (cell, out) in enumerate(zip(code, shown, strict=True), 1):
        cell["outputs"], cell["execution_count"] = out, number
    NOTEBOOK.write_text(json.dumps(book, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
