"""What docs show runs; every public name has an entry in the reference; the site is whole."""

from __future__ import annotations

import base64
import importlib.util
import inspect
import json
import re
import subprocess
import sys
import threading
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import pytest
import torch

from weft.cli import main
from weft.cli.completion import commands
from weft.cli.options import captured
from weft.comm import run_ranks
from weft.errors import UserError
from weft.graph.known import KNOWN
from weft.graph.loading import ARC_OPTIONS, GENERATORS

from .snippets import ROOT, blocks, mentioned, options

DOCS = Path(__file__).parent.parent / "docs"
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


def script(name: str) -> ModuleType:
    """One of the scripts in docs/."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def reference() -> ModuleType:
    return script("reference")


def test_every_public_name_has_an_entry_in_the_reference_and_a_docstring():
    made = reference()
    text = (DOCS / "reference.md").read_text()
    for room, names in made.names().items():
        for name in names:
            title = f"### weft.{room + '.' if room else ''}{name}"
            assert f"{title}\n" in text, f"{title} is not in docs/reference.md. Run: ./dev docs"
            assert "(no docstring)" not in made.entry(room, name), name
    assert text == made.page(), "docs/reference.md is not what the docstrings say. Run: ./dev docs"


def test_every_field_of_a_run_folder_is_documented(tmp_path):
    from .report.folders import trained

    told = set(re.findall(r"`(\w+)`", (DOCS / "logs.md").read_text()))
    run = trained(tmp_path / "run", ranks=2)
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    measured = json.loads((run / "measured.json").read_text())
    fields = {name for line in lines for name in line} | measured.keys() | measured["timeline"].keys()
    fields |= measured["details"].keys() - {"kind", "split", "multilabel"}
    assert {"epoch", "words", "received"} <= fields <= told, fields - told


ALL = sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))
APART = {"from-pyg.md": "a test of its own, above", "reference.md": "docstrings, which are doctests"}
"""Pages whose Python is not run below, and why."""
COMMANDS_TOO = ("own-loop.md", "own-layer.md", "your-own-data.md", "choosing.md", "cluster.md")
"""Pages whose shell lines run as they stand."""


def with_python(pages: list[str]) -> list[str]:
    return [page for page in pages if any(block.kind == "python" for block in blocks(f"docs/{page}"))]


def a_store_with_names() -> None:
    Path("follows.tsv").write_text("ada\tbob\nbob\teve\n")
    assert main(["convert", "follows.tsv", "g.weft", "--text-ids"]) == 0


BEFORE = {"large.md": a_store_with_names}
"""What a page's commands would have made, before its Python runs."""
AFTER = {
    "large.md": lambda told: told["names"] == ["ada", "bob", "eve"],
    "own-loop.md": lambda told: len(told["losses"]) == 20,
    "algorithms/attention.md": lambda told: (
        all("not fused" in how for how in told["A"].explain().values())
        and next(iter(told["A"].explain())) in (DOCS / "algorithms/attention.md").read_text()
    ),
    "algorithms/semirings.md": lambda told: told["y"].shape == (34, 8),
    "algorithms/sampling.md": lambda told: (
        len(told["near_seeds"].sources) == told["near_input"].matrix.shape[0]
    ),
    "algorithms/subgraph.md": lambda told: {*told["rows"].tolist()} <= {0, 1, 2, 33},
}
"""What must hold of the names that a page's Python leaves, where the page itself does not assert it."""


@pytest.mark.parametrize("page", sorted({*with_python(ALL), *COMMANDS_TOO} - APART.keys()))
def test_a_page_runs_from_top_to_bottom(page, monkeypatch, capsys):
    """Its Python in one namespace, its shell lines beside it; what is not run says why."""
    pytest.importorskip("torch_geometric")
    monkeypatch.setattr("weft.nn.registry.MODELS", dict(registry().MODELS))
    BEFORE.get(page, lambda: None)()
    told: dict = {"__name__": "page"}
    ran = 0
    for block in blocks(f"docs/{page}"):
        if block.how == "not run":
            assert block.why
        elif block.kind == "python":
            exec(compile(block.code, page, "exec"), told)
            ran += 1
        elif block.kind == "sh" and page in COMMANDS_TOO:
            for words in block.commands():
                assert words[0] == "weft", words
                assert main(words[1:]) == 0, capsys.readouterr().err
                ran += 1
    assert ran or page == "cluster.md"
    assert AFTER.get(page, lambda told: True)(told)


@pytest.fixture(scope="module")
def known() -> dict[tuple[str, ...], set[str]]:
    """Command → its options."""
    return {command.words: {option.name for option in command.options} for command in commands()}


FOREIGN = {
    "--map-by", "--allow-run-as-root", "--hostfile",  # mpirun's
    "--mpi", "--nodes", "--ntasks-per-node", "--cpus-per-task", "--time", "--signal", "--requeue",  # Slurm's
    "--nnodes", "--nproc-per-node",  # torchrun's
    "--cases", "--tally",  # ./dev kill's and fuzz's
    "--options",  # any
}  # fmt: skip
"""Options on pages of ours that are not weft's."""


def not_there(line: str, known: dict[tuple[str, ...], set[str]]) -> list[str]:
    """The command or the options of a line that weft does not have.

    Of a generator the arguments are options of `weft generate`; a script's own stand after it.
    """
    words = line.split("|")[0].split()
    command = tuple(words[1:3] if words[1] == "bench" else words[1:2])
    if len(command) == 1 and command[0] in ("bench", "help") and len(words) == 2:
        return []
    script = next((k for k, word in enumerate(words) if word.endswith(".py")), len(words))
    given = {word.partition("=")[0] for word in words[: script if command == ("run",) else None]}
    given = {word for word in given if word.startswith("--")} - {"--help"}
    has = known.get(command)
    if has is None:
        return [] if re.fullmatch(r"[A-Z]+|…", command[-1]) else [" ".join(command)]
    if command == ("generate",):
        of_kind = inspect.signature(GENERATORS[words[2].partition(":")[0]]).parameters
        has = has | {f"--{name.replace('_', '-')}" for name in [*of_kind, *ARC_OPTIONS]}
    return sorted(given - has)


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{page}" for page in ALL if page != "log.md")])
def test_every_command_and_option_that_a_page_names_is_there(page, known):
    """The log tells what was there once."""
    wrong = {line: lost for line in mentioned(page) if (lost := not_there(line, known))}
    assert not wrong
    every = set().union(*known.values()) | {"--help", "--version"}
    every |= {f"--{name}" for kind in GENERATORS.values() for name in inspect.signature(kind).parameters}
    assert not options(page) - every - FOREIGN


def test_a_page_that_names_an_option_or_a_command_that_is_gone_is_told(known):
    assert not_there("weft train g.weft --ranks 4 --stratgy=2d", known) == ["--stratgy"]
    assert not_there("weft bench epoch --against pyg --gone", known) == ["--gone"]
    assert not_there("weft bench kernel", known) == ["bench kernel"]
    assert not_there("weft trian karate", known) == ["trian"]
    assert not_there("weft generate kronecker --scale 3 --scales 3 --out g.weft", known) == ["--scales"]
    assert not_there("weft run --ranks 2 mine.py --own-option 3", known) == []
    Path("page.md").write_text(
        "`mpirun -n 2 weft train g --a`\n```sh\nsrun weft plan g \\\n  --b  # --c\n```\n"
    )
    here = Path("page.md").resolve()
    assert [line.split()[1:] for line in mentioned(here)] == [["plan", "g", "--b"], ["train", "g", "--a"]]


def test_what_pages_say_of_weft_by_a_dotted_name_is_there_after_import_weft_alone():
    """What is called, as attributes; what is only named may be imported.

    In a process of its own: here other tests have imported the packages.
    """
    pages = [ROOT / "README.md", *(DOCS / page for page in ALL if page != "log.md")]
    names = {name for page in pages for name in dotted(page.read_text(encoding="utf-8"))}
    assert {"weft.graph.from_pyg()", "weft.RunConfig()", "weft.parallel.Shared"} <= names
    code = """
import operator, pkgutil, sys, weft
for name in sys.argv[1:]:  # those that are called first: what others import would help them
    operator.attrgetter(name[5:-2])(weft) if name.endswith("()") else pkgutil.resolve_name(name)
"""
    called_first = sorted(names, key=lambda name: not name.endswith("()"))
    done = subprocess.run([sys.executable, "-c", code, *called_first], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = "`weft.Grpah(x)`, `weft.toml`, weft.a, `g.weft`\n```python\nimport weft.nn\nweft.load('k')\n```\n"
    assert dotted(page) == {"weft.Grpah()", "weft.load()"}


def test_as_many_data_sets_are_known_as_the_page_says():
    text = (DOCS / "your-own-data.md").read_text(encoding="utf-8")
    assert f"{len(KNOWN)} public ones are known by name" in text


def dotted(text: str) -> set[str]:
    """Names like `weft.graph.load` in code, with () where they are called; not what their line imports."""
    code = [line for block in _CODE.finditer(text) for line in re.split(r"[\n;]", block[1] or block[2])]
    found = (_DOTTED.findall(line) for line in code if not re.match(r"\s*(from|import) weft", line))
    return {name + "()" * bool(call) for names in found for name, call in names} - {"weft.toml"}


_CODE = re.compile(r"^```python[^\n]*\n(.*?)^```$|`([^`\n]+)`", re.DOTALL | re.MULTILINE)
_DOTTED = re.compile(r"(?<![\w./-])(weft(?:\.[A-Za-z_]\w*)+)(?![\w/])(\()?")


def test_shell_blocks_of_pages_are_understood_by_the_commands_own_parsers():
    """Every line with `weft COMMAND`, values and all; nothing is run."""
    count = 0
    for page in ALL:
        for block in blocks(f"docs/{page}"):
            for words in block.commands() if block.kind == "sh" else ():
                if "weft" in words[:-1] and words[0] != "export":
                    understood(words[words.index("weft") + 1 :])
                    count += 1
    assert count > 60
    with pytest.raises(UserError, match="expected one argument"):
        understood(["train", "--ranks"])


def understood(words: list[str]) -> None:
    """As far as the parser, with the words of one line; what the shell takes of them is left out."""
    words = words[: next((k for k, word in enumerate(words) if word in (">", "|", "&&")), None)]
    with captured() as caught:
        main(words)
    assert caught.parser is not None, words
    left = words[2:] if words[0] == "bench" else words[1:]
    if words[0] == "run":
        left = left[: next(k for k, word in enumerate(left) if word.endswith(".py"))]
    _, rest = caught.parser.parse_known_args(left)
    assert words[0] == "generate" or not rest, rest


def test_the_notebook_runs_and_whoever_opens_it_sees_what_it_shows():
    """Numbers apart: those of the graph, which is smaller here, and those that rounding changes."""
    pytest.importorskip("matplotlib")
    made = script("notebook")
    cells = json.loads((DOCS / "first.ipynb").read_text())["cells"]
    shown, told = made.run(cells, lambda source: source.replace("nodes=1500", "nodes=300"))
    kept = [cell["outputs"] for cell in cells if cell["cell_type"] == "code"]
    assert [telling(out) for out in kept] == [telling(out) for out in shown], "Run: python docs/notebook.py"
    assert told["apart"] < 1e-4
    assert "words that rank 0 received" in kept[2][0]["text"][1]
    assert len(base64.b64decode(kept[3][0]["data"]["image/png"])) > 5000


def telling(outputs: list[dict]) -> list[str]:
    """What a cell shows, without its numbers."""
    return [re.sub(r"[\d.,e+-]*\d", "#", "".join(out.get("text") or out["output_type"])) for out in outputs]


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
