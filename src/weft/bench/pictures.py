"""Pictures of measurements: PNG, SVG or PDF, drawn without a display."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def check_drawable(path: str) -> None:
    """Refuse a picture that cannot be drawn, before anything is measured."""
    if Path(path).suffix not in (".png", ".svg", ".pdf"):
        raise UserError(f"--plot {path} is no picture's name. Use a name that ends in .png, .svg or .pdf.")
    if not Path(path).parent.is_dir():
        raise UserError(f"no folder {Path(path).parent} to draw {Path(path).name} into. Make it first.")
    if os.path.lexists(path):
        raise UserError(f"{path} exists already. Choose another --plot, or remove it.")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UserError("--plot needs matplotlib. Use: pip install 'weft[plot]'.") from None


def new_figure(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def whole_ticks(*axes: Any) -> None:
    """Ticks at whole numbers alone: there is no part 0.5."""
    from matplotlib.ticker import MaxNLocator

    for axis in axes:
        axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))


def save(figure: Figure, path: str) -> None:
    """Write it; the same measurements give the same bytes of an SVG."""
    from matplotlib import rc_context

    plain: dict[str, Any] = {"metadata": {"Date": None}} if path.endswith(".svg") else {}
    try:
        with rc_context({"svg.hashsalt": "weft"}):
            figure.savefig(path, dpi=100, **plain)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}. Check the folder.") from None


def draw_volumes(between: dict[str, np.ndarray], path: str) -> None:
    """Rows that part p sends to part q, a heat map a method, on one scale of colours."""
    check_drawable(path)
    from matplotlib.colors import LogNorm

    columns = min(3, len(between))
    lines = math.ceil(len(between) / columns)
    figure = new_figure(4.6 * columns + 1, 4.4 * lines + 0.6)
    most = max(1, *(int(v.max()) for v in between.values()))
    shades: Any = LogNorm(1, most) if most > 1 else None
    image: Any = None
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    for panel, (method, volumes) in zip(panels, between.items(), strict=False):
        # Nothing sent is white, not the lowest shade.
        image = panel.imshow(
            np.ma.masked_equal(volumes, 0), norm=shades, cmap="viridis_r", interpolation="nearest"
        )
        panel.set(title=f"{method}: {int(volumes.sum()):,} rows", xlabel="to part", ylabel="from part")
        whole_ticks(panel.xaxis, panel.yaxis)
    for panel in panels[len(between) :]:
        panel.set_axis_off()
    figure.colorbar(image, ax=list(panels), label="rows sent in one propagation (white: none)", shrink=0.9)
    save(figure, path)
