"""Pictures that are neither towers nor have ticks between whole things."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from weft.bench.partition import draw_partition
from weft.bench.pictures import draw_volumes, new_figure, whole_ticks


def size(path: Path) -> tuple[int, int]:
    """(width, height) of a PNG."""
    return struct.unpack(">II", path.read_bytes()[16:24])


def test_parts_have_whole_numbers():
    figure = new_figure(4, 4)
    panel = figure.subplots()
    panel.imshow(np.ones((3, 3)))
    whole_ticks(panel.xaxis, panel.yaxis)
    assert all(tick == round(tick) for axis in (panel.xaxis, panel.yaxis) for tick in axis.get_ticklocs())


@pytest.mark.parametrize("graphs", [1, 2, 3, 5])
def test_ratios_of_any_number_of_graphs_are_wider_than_high(tmp_path, graphs):
    keys = ("volume_average_ratio", "volume_max_ratio", "messages_average_ratio")
    rows = [
        {"graph": f"g{g}", "method": method, "parts": parts} | dict.fromkeys(keys, 0.5)
        for g in range(graphs) for method in ("random", "metis") for parts in (2, 4)
    ]  # fmt: skip
    draw_partition(rows, str(tmp_path / "p.png"))
    width, height = size(tmp_path / "p.png")
    assert width > height


def test_a_heat_map_is_drawn_even_where_nothing_is_sent(tmp_path):
    draw_volumes({"metis": np.zeros((2, 2), int)}, str(tmp_path / "v.png"))
    assert min(size(tmp_path / "v.png")) > 100
