"""What docs show runs; every public name has an entry in the reference; the site is whole."""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
import threading
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest
import torch

from weft.cli import main
from weft.comm import run_ranks

from .snippets import blocks

DOCS = Path(__file__).parent.parent / "docs"
PAGES = ("own-loop.md", "own-layer.md", "your-own-data.md", "choosing.md", "cluster.md")
SMALL = {'"cora"': '"sbm:nodes=97,features=8,classes=4"', "epochs=200": "epochs=4"}


def test_from_pyg_runs_as_it_stands_and_ends_on_four_ranks(capsys):
    pytest.importorskip("torch_geometric")
    told: dict = {"__name__": "tutorial"}
    code = [block.code for block in blocks("docs/from-pyg.md", SMALL) if block.kind == "python"]
    assert len(code) >= 4
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


def test_every_field_of_a_run_folder_is_documented(tmp_path):
    from .report.folders import trained

    told = set(re.findall(r"`(\w+)`", (DOCS / "logs.md").read_text()))
    run = trained(tmp_path / "run", ranks=2)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    measured = json.loads((run / "measured.json").read_text())
    fields = {name for line in lines for name in line} | measured.keys() | measured["timeline"].keys()
    fields |= measured["details"].keys() - {"kind", "split", "multilabel"}
    assert {"epoch", "words", "received"} <= fields <= told, fields - told


@pytest.mark.parametrize(
    "page", ["own-loop.md", "own-layer.md", "your-own-data.md", "choosing.md", "cluster.md"]
)
def test_a_page_runs_from_top_to_bottom(page, monkeypatch, capsys):
    """Its Python in one namespace, its shell lines beside it; what is not run says why."""
    pytest.importorskip("torch_geometric")
    monkeypatch.setattr("weft.nn.registry.MODELS", dict(registry().MODELS))
    told: dict = {"__name__": "page"}
    ran = 0
    for block in blocks(f"docs/{page}"):
        if block.how == "not run":
            assert block.why
        elif block.kind == "python":
            exec(compile(block.code, page, "exec"), told)
            ran += 1
        elif block.kind == "sh":
            for words in block.commands():
                assert words[0] == "weft", words
                assert main(words[1:]) == 0, capsys.readouterr().err
                ran += 1
    assert ran or page == "cluster.md"


def test_large_reads_names_as_it_says():
    (block,) = (b for b in blocks("docs/large.md") if b.kind == "python" and "names =" in b.code)
    Path("follows.tsv").write_text("ada\tbob\nbob\teve\n")
    assert main(["convert", "follows.tsv", "g.weft", "--text-ids"]) == 0
    told: dict = {}
    exec(block.code, told)
    assert told["names"] == ["ada", "bob", "eve"]


def test_the_notebook_runs_and_two_ranks_agree_with_one(monkeypatch, capsys):
    pytest.importorskip("matplotlib").use("agg")
    cells = json.loads((DOCS / "first.ipynb").read_text())["cells"]
    assert not any(cell.get("outputs") for cell in cells), "clear the outputs before you commit"
    told: dict = {"__name__": "notebook"}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(
                compile("".join(cell["source"]).replace("nodes=1500", "nodes=300"), "first.ipynb", "exec"),
                told,
            )
    assert told["apart"] < 1e-4
    assert Path("loss.png").stat().st_size > 5000
    assert "words that rank 0 received" in capsys.readouterr().out


def registry() -> ModuleType:
    return importlib.import_module("weft.nn.registry")


def test_every_public_class_and_field_has_a_docstring():
    """A field is told by a string below it, or by its name in the docstring of its class."""
    made, missing = reference(), []
    for room, names in made.names().items():
        module = importlib.import_module(f"weft.{room}" if room else "weft")
        for name in names:
            kind = getattr(module, name)
            if not inspect.isclass(kind):
                continue
            doc = vars(kind).get("__doc__") or ""
            if not doc or doc.startswith(f"{name}("):  # what dataclass makes up
                missing.append(f"{room}.{name}")
            told = made.fields(kind)
            fields = (f for f in inspect.get_annotations(kind) if not f.startswith("_"))
            missing += [
                f"{room}.{name}.{f}" for f in fields if f not in told and not re.search(rf"\b{f}\b", doc)
            ]
    assert not missing


class Links(HTMLParser):
    """What a page of the site refers to, and the places in it that can be referred to."""

    def __init__(self, text: str):
        super().__init__()
        self.links: list[tuple[str, str]] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("href", "src") and value:
                self.links.append((tag, value))
            if name == "id" and value:
                self.places.add(value)


def test_the_site_is_built_strictly_and_every_link_of_it_leads_somewhere(tmp_path, monkeypatch):
    pytest.importorskip("material")
    monkeypatch.setenv("NO_MKDOCS_2_WARNING", "1")
    config = importlib.import_module("mkdocs.config").load_config(
        str(DOCS.parent / "mkdocs.yml"), site_dir=str(tmp_path / "site"), strict=True
    )
    importlib.import_module("mkdocs.commands.build").build(config)
    pages = {path: Links(path.read_text()) for path in (tmp_path / "site").rglob("*.html")}
    assert len(pages) > 35
    for page, found in pages.items():
        for tag, link in found.links if page.name != "404.html" else ():
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:  # read, or followed, without a network
                assert tag == "a", f"{page.name} fetches {link}"
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            target = target / "index.html" if target.is_dir() else target
            assert target.exists(), f"{page.name}: {link}"
            if parts.fragment and target in pages and tag == "a":
                assert unquote(parts.fragment) in pages[target].places | {"__top"}, f"{page.name}: {link}"
