"""Forecasts at the papers' sizes: each layout once, with rows that travel as in the papers."""

from __future__ import annotations

import pytest

from weft.bench.reproduce.foretold import NAMED, foretold, gcn
from weft.planner import Shape

SHAPE = Shape(10_000, 80_000, 16, 4, name="ten thousand")


@pytest.mark.parametrize(("ranks", "per_host"), [(36, 6), (64, 48), (4, 6)])
def test_each_name_is_foretold_once_however_many_hosts_there_are(ranks, per_host):
    names = ["1d", "1.5d c=2", "1.5d c=4", "2d", "halo"]
    rows = foretold(SHAPE, gcn(2, 16), [ranks], names, per_host, 12.5e9)
    found = [row["algorithm"] for row in rows]
    assert len(found) == len(set(found))
    assert {"1d", "halo"} <= set(found) <= set(NAMED)


def test_each_partition_is_foretold_once():
    rows = foretold(SHAPE, gcn(2, 16), [12], ["halo"], 6, 12.5e9, ["random", "block"])
    assert [row["algorithm"] for row in rows].count("halo, random") == 1
    assert len({row["algorithm"] for row in rows}) == len(rows)
