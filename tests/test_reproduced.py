"""docs/reproduced.py: the page's tables follow from what weft reproduce answered."""

from __future__ import annotations

import doctest
import importlib.util
import json
from pathlib import Path

import pytest

from weft.bench.reproduce import PAPERS

PLACE = Path(__file__).parent.parent / "docs" / "reproduced.py"


@pytest.fixture(scope="module")
def maker():
    spec = importlib.util.spec_from_file_location("reproduced", PLACE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def text(maker):
    return maker.PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def shown(maker):
    return {path.name for path in (maker.DOCS / "pictures").glob("reproduce-*.png")}


ANSWER = {
    "paper": "besta", "item": "fig8", "size": "scaled", "rows": [], "seconds": 1.0, "notes": [], "files": [],
    "compared": [{"what": "share of a|b", "paper": "57 %", "ours": "31%"},
                 {"what": "words", "paper": "bounded", "ours": "1.33"}],
    "sizes": ["measured: kronecker, 8 vertices, 9 arcs; ranks 1, 4", "foretold: any"],
}  # fmt: skip


def test_the_page_is_what_the_script_makes_of_itself(maker, text, shown):
    assert maker.page(text, {}, shown) == text


def test_every_figure_and_table_has_its_rows(maker, text):
    for paper in PAPERS.values():
        section = text.split(f"## {paper.name}: ")[1].split("\n## ")[0]
        assert maker.old_lines(section).keys() == {item.name for item in paper.items}


def test_an_answer_takes_the_place_of_a_figures_rows_and_nothing_else_changes(maker, text, shown, tmp_path):
    file = tmp_path / "besta.json"
    older = ANSWER | {"compared": []}
    file.write_text(json.dumps([older, ANSWER]))
    found = maker.answers([file])
    made = maker.page(text, found, shown)
    assert "| `fig8` | weak scaling of training, Kronecker graphs: share of a\\|b | 57 % | 31% |" in made
    assert "|  | words | bounded | 1.33 |" in made
    gone = [line for line in text.splitlines() if line not in made.splitlines()]
    assert all(line.startswith("| `fig8`") for line in gone)
    assert maker.page(made, {}, shown) == made
    older = maker.page(text, {("besta", "fig8"): older | {"notes": ["no data"]}}, shown)
    assert "| `fig8` | weak scaling of training, Kronecker graphs | | ran; no data |" in older


def test_a_new_picture_is_shown_with_what_was_measured(maker, text, shown):
    made = maker.page(text, {("besta", "fig8"): ANSWER}, {*shown, "reproduce-besta-fig8.png"})
    said = "besta fig8: weak scaling of training, Kronecker graphs. Measured: kronecker, 8 vertices"
    assert f"![{said}, 9 arcs; ranks 1, 4](pictures/reproduce-besta-fig8.png)" in made


def test_where_and_when_is_said_anew(maker, text, shown):
    made = maker.page(text, {}, shown, "on a Tuesday")
    assert "\nThe column *ours* was made on a Tuesday.\n\n" in made


def test_pictures_are_brought_with_few_colours(maker, tmp_path):
    image = pytest.importorskip("PIL.Image")
    source, folder = tmp_path / "besta-fig8.png", tmp_path / "pictures"
    folder.mkdir()
    image.effect_noise((90, 60), 40).convert("RGB").save(source)
    maker.bring(ANSWER | {"files": ["besta-fig8.csv", str(source)]}, folder)
    [made] = folder.iterdir()
    assert made.name == "reproduce-besta-fig8.png"
    assert len(image.open(made).convert("RGB").getcolors()) <= maker.COLOURS


def test_its_examples_run(maker):
    assert doctest.testmod(maker).failed == 0
