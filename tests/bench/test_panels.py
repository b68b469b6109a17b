"""Pictures in the manner of the papers: what stands on their axes, and how wide a lone bar is."""

from __future__ import annotations

import pytest

from weft.bench import cache
from weft.bench.reproduce import panels
from weft.bench.reproduce.panels import Panel

pytest.importorskip("matplotlib", reason="matplotlib is not installed: it comes with weft[plot]")


@pytest.fixture
def drawn(monkeypatch):
    """The axes of what is drawn; nothing is written."""
    figures = []
    for home in (panels, cache):
        monkeypatch.setattr(home, "save", lambda figure, path: figures.append(figure))

    def draw(draw_it, *what):
        draw_it(*what)
        figures[-1].draw_without_rendering()
        return figures[-1].axes

    return draw


def of(*made: Panel):
    return panels.figure_of(made), "x.png"


@pytest.mark.parametrize("form", ["bars", "stacked"])
def test_a_lone_bar_leaves_room_beside_it(drawn, form):
    y = {"spmm": 1.0, "dense": 2.0} if form == "stacked" else 3.0
    stack = ("spmm", "dense") if form == "stacked" else ()
    (one,) = drawn(*of(Panel("", [{"ranks": 4, "y": y}], "ranks", "y", form=form, stack=stack)))
    low, high = one.get_xlim()
    assert high - low == pytest.approx(3)
    assert all(bar.get_width() < (high - low) / 3 for bar in one.patches)
    rows = [{"ranks": ranks, "y": y} for ranks in (4, 8, 16)]
    (three,) = drawn(*of(Panel("", rows, "ranks", "y", form=form, stack=stack)))
    assert len(three.get_xticks()) == 3


def test_a_stacked_bar_is_as_high_as_all_its_parts_also_those_that_nobody_named(drawn):
    time = {"dense": 1.0, "split": 0.5, "join": 0.25, "loss": 0.0}
    panel = Panel("", [{"ranks": 4, "time": time}], "ranks", "time", form="stacked", stack=("dense", "spmm"))
    (place,) = drawn(*of(panel))
    assert max(bar.get_y() + bar.get_height() for bar in place.patches) == 1.75
    shown = [text.get_text() for text in place.get_legend().get_texts()]
    assert shown == ["dense", "spmm", "split", "join"]
    assert len({bar.get_facecolor() for bar in place.patches}) == 4


def test_ticks_of_a_logarithmic_axis_are_plain_and_of_one_size(drawn):
    rows = [{"ranks": 4, "words": 9_000_000}, {"ranks": 16, "words": 2_100_000}]
    (place,) = drawn(*of(Panel("", rows, "ranks", "words", form="lines", log=True)))
    ticks = [*place.yaxis.get_major_ticks(), *place.yaxis.get_minor_ticks()]
    shown = [tick.label1 for tick in ticks if tick.label1.get_text()]
    assert {"3M", "6M"} <= {label.get_text() for label in shown}
    assert {label.get_fontsize() for label in shown} == {7}


def test_small_seconds_are_told_in_ms(drawn):
    def label_and_ticks(seconds: float, label: str) -> tuple[str, list[str]]:
        rows = [{"ranks": 2, "seconds": seconds}]
        (place,) = drawn(*of(Panel("", rows, "ranks", "seconds", label=label)))
        return place.get_ylabel(), [tick.get_text() for tick in place.get_yticklabels()]

    label, ticks = label_and_ticks(0.012, "seconds a batch")
    assert label == "ms a batch"
    assert "10" in ticks
    assert label_and_ticks(12.0, "seconds a batch")[0] == "seconds a batch"
    assert label_and_ticks(0.012, "seeds a second")[0] == "seeds a second"


def test_a_feed_has_its_colour_whatever_stands_beside_it(drawn):
    rows = [{"x": 1, "y": 1.0, "feed": feed} for feed in ("pull (as DGL)", "push-pull (P3)")]
    for order in (rows, rows[::-1]):
        (place,) = drawn(*of(Panel("", order, "x", "y", "feed")))
        colours = {c.get_label(): c.patches[0].get_facecolor()[0] for c in place.containers}
        assert colours["pull (as DGL)"] > colours["push-pull (P3)"]  # orange has more red than blue


def test_rows_that_travel_have_separators(drawn):
    rows = [{"rows": 702_232, "less": 1.0, "budget": "none", "distinct": 65_825}] * 2
    (place,) = drawn(cache.draw_cache, "a graph", rows, "x.png")
    assert "600,000" in [tick.get_text() for tick in place.get_yticklabels()]
