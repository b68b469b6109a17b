"""What docs show runs; every public name has an entry in the reference."""

from __future__ import annotations

import importlib.util
import re
import threading
from pathlib import Path
from types import ModuleType

import pytest
import torch

from weft.comm import run_ranks

DOCS = Path(__file__).parent.parent / "docs"
SMALL = {'"cora"': '"sbm:nodes=97,features=8,classes=4"', "epochs=200": "epochs=4"}


def blocks(page: str) -> list[str]:
    """The Python of a page, made small: another graph, fewer epochs."""
    text = (DOCS / page).read_text()
    for word, other in SMALL.items():
        assert word in text
        text = text.replace(word, other)
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_from_pyg_runs_as_it_stands_and_ends_on_four_ranks(capsys):
    pytest.importorskip("torch_geometric")
    told: dict = {"__name__": "tutorial"}
    code = blocks("from-pyg.md")
    assert len(code) == 4
    for block in code:
        exec(compile(block, "from-pyg.md", "exec"), told)
    out = capsys.readouterr().out
    assert "{'conv1 (GCNConv)': 'weft', 'conv2 (GCNConv)': 'weft'}" in out
    # Dropout's random numbers are torch's in both: accelerated, the losses are the same.
    assert told["fast"] == pytest.approx(told["losses"], rel=1e-4)
    assert told["classes_of"].shape == (97,)
    made, lock = told["GCN"], threading.Lock()

    def one_at_a_time(*args):
        """Ranks that are threads share torch's generator: each makes its weights alone."""
        with lock:
            torch.manual_seed(0)
            return made(*args)

    told["GCN"] = one_at_a_time
    (one, score), *_ = run_ranks(told["main"], 1, "threads", "random")
    for losses, there in run_ranks(told["main"], 4, "threads", "random"):
        assert losses == pytest.approx(one, rel=1e-4)
        assert there == score


def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", DOCS / "reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_public_name_has_an_entry_in_the_reference_and_a_docstring():
    made = reference()
    text = (DOCS / "reference.md").read_text()
    for room, names in made.names().items():
        for name in names:
            title = f"### weft.{room + '.' if room else ''}{name}"
            assert f"{title}\n" in text, f"{title} is not in docs/reference.md. Run: ./dev docs"
            assert "(no docstring)" not in made.entry(room, name), name
