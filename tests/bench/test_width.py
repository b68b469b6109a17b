"""The picture of peaks over width: what it says, all of it inside."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

pytest.importorskip("matplotlib")

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from weft.bench.width import draw, picture

SIX = ("gat+arcs", "gatv2", "transformer", "gine", "resgated", "pna")


def measured(models: tuple[str, ...], contenders: tuple[str, ...]) -> dict[str, Any]:
    rows = [
        {"model": m, "contender": c, "vertices": 32_768, "arcs": arcs, "width": w,
         "above_idle_bytes": 10**8 + 9 * arcs + 700 * w + (4 * arcs * w if c != "weft" else 0)}
        for m in models for c in contenders for arcs in (524_288, 1_048_576, 2_097_152)
        for w in (32, 64, 128, 256)
    ]  # fmt: skip
    return {"layers": 3, "rows": rows}


@pytest.mark.parametrize("models", [("gatv2",), SIX[:2], SIX[:4], SIX])
def test_title_axes_and_legend_are_there_and_inside_the_picture(models):
    figure = picture(measured(models, ("weft", "pyg-edges")))
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    words = [text for text in figure.findobj(Text) if text.get_text() and text.get_visible()]
    told = {text.get_text() for text in words}
    assert {"Peak memory of training: 32,768 vertices, 3 layers", *models} <= told
    assert {"hidden width (columns)", "peak above idle (MB)"} <= told
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [
        f"{who}, {arcs} arcs" for arcs in ("524 k", "1.05 M", "2.10 M") for who in ("weft", "pyg-edges")
    ] + ["one more float32 an arc and column"]
    inside = {id(text) for text in legend.findobj(Text)}
    boxes = [text.get_window_extent(canvas.get_renderer()) for text in words if id(text) not in inside]
    beside = legend.get_window_extent(canvas.get_renderer())
    width, height = canvas.get_width_height()
    for box in (*boxes, beside):
        assert min(box.x0, box.y0) >= 0, box
        assert box.x1 <= width, box
        assert box.y1 <= height, box
    assert not any(box.overlaps(beside) for box in boxes)
    shown = [panel for panel in figure.axes if panel.axison]
    assert [panel.get_title() for panel in shown] == list(models)
    assert all(panel.get_xticks().tolist() == [32, 64, 128, 256] for panel in shown)


def test_the_dashed_line_is_one_number_more_an_arc_and_column():
    figure = picture(measured(("gine",), ("weft",)))
    solid, dashed = (figure.axes[0].get_lines()[k].get_ydata() for k in (0, 1))
    assert dashed[0] == solid[0]
    assert dashed[-1] - dashed[0] == pytest.approx(524_288 * 224 * 4 / 1e6)


def test_the_same_measurements_are_the_same_svg(tmp_path):
    for name in ("a.svg", "b.svg"):
        draw(measured(SIX[:1], ("weft",)), str(tmp_path / name))
    first = (tmp_path / "a.svg").read_bytes()
    assert first == (tmp_path / "b.svg").read_bytes()
    assert ElementTree.fromstring(first).tag.endswith("svg")
