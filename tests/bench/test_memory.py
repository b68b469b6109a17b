"""Memory of a rank over ranks: strategies, batches and links run, and the fit tells what shrinks."""

from __future__ import annotations

import json

import pytest

from weft.bench.memory import WAYS, fit
from weft.cli import bench, main
from weft.errors import UserError


def test_ways_are_measured_and_fitted(capsys):
    ways = ["halo", *WAYS]
    graphs = ";".join(f"er:nodes={n},degree={d},features=4,classes=3" for n, d in ((300, 4), (600, 3)))
    assert main(["bench", "memory", "--graphs", graphs, "--ways", ",".join(ways), "--ranks", "2", "--json",
                 "--epochs", "1"]) == 0  # fmt: skip
    found = json.loads(capsys.readouterr().out)
    assert len(found["rows"]) == len(ways) * 2
    assert all(row["bytes"] > 0 for row in found["rows"])
    assert [f["way"] for f in found["fits"]] == ways
    assert {row["vertices"] for row in found["rows"]} == {300, 600}


def test_what_every_rank_has_is_told_from_what_ranks_share():
    def rows(shared: int, everywhere: int, slab: int) -> list[dict[str, float]]:
        return [
            {
                "ranks": p * c, "vertices": n, "slab": n / p, "held": m / p / c,
                "bytes": 1e4 + shared * n / p / c + slab * n / p + 40 * m / p / c + everywhere * n,
            }
            for p, c in ((1, 1), (2, 1), (2, 2), (4, 2), (4, 4))
            for n, m in ((1000, 8000), (1000, 3000), (4000, 9000))
        ]  # fmt: skip

    lean, fat = (fit("2d", rows(100, d, 50)) for d in (0, 16))
    assert lean["bytes"]["n"] == pytest.approx(0, abs=0.1)
    assert fat["bytes"]["n"] == pytest.approx(16, rel=0.01)
    assert fat["bytes"]["n/P"] == pytest.approx(100, rel=0.01)
    assert fat["bytes"]["n/(r f)"] == pytest.approx(50, rel=0.01)
    assert fat["error"] < 0.01


def test_an_unknown_way_is_named():
    with pytest.raises(UserError, match=r"unknown way 'gird'. Known: 1d, "):
        bench.run(["memory", "--ways", "gird"])
