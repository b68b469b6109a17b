"""README.md runs from top to bottom: every command and every snippet, in order, in a fresh folder.

By default graphs are smaller, weft's commands run in this process and ranks are threads. Set
WEFT_README_SCALE=full to run every line as it stands, each in a process of its own, as `.ci/run` does once.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from weft.cli import main

from .snippets import ROOT, Block, blocks

FULL = os.environ.get("WEFT_README_SCALE", "small") == "full"
SMALL = {
    "nodes=20000": "nodes=400",
    "--ranks 64 --hosts 8": "--ranks 8 --hosts 2",
    "--scale 12": "--scale 11",
    "--epochs 100\n": "--epochs 8\n",
}
NOT_RUN = ["installs weft, which the newcomer's protocol does (docs/newcomer.md)", "needs a cluster"]
"""What is not run, and why, as the page says."""
HAVE_RANKS = {"train", "verify", "predict"}


@pytest.fixture
def page(monkeypatch: pytest.MonkeyPatch) -> list[Block]:
    pytest.importorskip("torch_geometric")
    pytest.importorskip("pymetis")
    monkeypatch.syspath_prepend(os.getcwd())
    monkeypatch.delenv("WEFT_DATA", raising=False)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    return blocks("README.md", None if FULL else SMALL)


@pytest.mark.slow
def test_every_line_runs_in_order_and_does_what_the_page_says(page):
    said: list[str] = []
    for block in page:
        if block.how == "not run":
            continue
        if block.title:
            Path(block.title).write_text(block.code)
        elif block.kind == "python":
            said.append(snippet(block.code))
        elif block.kind == "sh":
            for words in block.commands():
                status, out = shell(words, block.how == "stopped")
                assert status == (130 if block.how == "stopped" else 0), f"{' '.join(words)}: {out}"
                said.append(out)
    text = "\n".join(said)
    # Not only exit status 0.
    assert json.loads(Path("gat.json").read_text())["ranks"] == 2
    first, again = (Path(f"runs/sbm-sage-{k}/metrics.jsonl").read_text() for k in (1, 2))
    losses = [[json.loads(line)["loss"] for line in lines.splitlines()] for lines in (first, again)]
    assert losses[0] == losses[1]
    one, two = (re.search(rf"{k} ranks: loss ([\d.]+)", text) for k in (1, 2))
    assert one is not None
    assert two is not None
    assert float(two[1]) == pytest.approx(float(one[1]), rel=1e-3)
    assert "{'conv1 (GCNConv)': 'weft, once it is checked'" in text
    assert "equal to the serial run" in text
    assert re.findall(r"^resumable\s+(yes|no)", text, re.MULTILINE) == [
        "no",
        "yes",
        "no",
    ]  # ended, stopped, ended


def test_what_is_not_run_has_a_reason():
    page = blocks("README.md")
    assert [block.why for block in page if block.how == "not run"] == NOT_RUN
    assert sum(len(block.commands()) for block in page if block.kind == "sh") >= 25


def test_the_page_is_short_and_every_link_of_it_leads_somewhere():
    text = (ROOT / "README.md").read_text()
    assert text.count("\n") < 250
    assert "You need Linux on x86-64, Python 3.11" in text  # as docs/install.md says
    for link in re.findall(r"\]\(([^)]+)\)", text):
        if not link.startswith("https://"):
            assert (ROOT / link.partition("#")[0]).exists(), link


def shell(words: list[str], stop: bool) -> tuple[int, str]:
    """Run a line, perhaps until Ctrl-C: exit status, and what it printed."""
    words, target = (words[:-2], words[-1]) if words[-2:-1] == [">"] else (words, "")
    if FULL or words[:2] == ["weft", "run"]:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        with stopped(words, process.pid) if stop else contextlib.nullcontext():
            out, err = process.communicate()
        status = process.returncode
    else:
        with stopped(words, os.getpid()) if stop else contextlib.nullcontext():
            status, out, err = here(words)
    if target:
        Path(target).write_text(out)
    return status, out + err


def here(words: list[str]) -> tuple[int, str, str]:
    """A line in this process; what is neither weft's nor Python's is not known how to run."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        if words[0] == "weft":
            ranks = ["--engine", "threads"] if words[1] in HAVE_RANKS else []
            status = main([*words[1:], *ranks])
        else:
            assert words[0] == "python", f"{words}: mark it with <!-- not run: why -->"
            runpy.run_path(words[1], run_name="__main__")
            status = 0
    return status, out.getvalue(), err.getvalue()


def snippet(code: str) -> str:
    if FULL:
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})
    return out.getvalue()


@contextlib.contextmanager
def stopped(words: list[str], process: int) -> Iterator[None]:
    """Ctrl-C, as soon as the run that is under way has written some epochs."""
    written = Path(words[words.index("--out") + 1]) / "metrics.jsonl"
    over = threading.Event()

    def press() -> None:
        while not over.is_set():
            if written.exists() and written.read_text().count("\n") > 3:
                os.kill(process, signal.SIGINT)
                return
            time.sleep(0.05)

    finger = threading.Thread(target=press)
    finger.start()
    try:
        yield
    finally:
        over.set()
        finger.join()
