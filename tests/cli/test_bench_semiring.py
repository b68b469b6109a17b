"""weft bench semiring: rows with ratios. Nothing here looks at a time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


def test_semirings_are_measured_beside_a_product_and_torch(weft):
    words = "karate --widths 3 --own-widths 2,3 --threads 1 --rounds 1 --own-rounds 1"
    answer = weft("bench", "semiring", *words.split(), "--json")
    assert (answer.status, answer.err) == (0, "")
    result = json.loads(answer.out)
    assert [row["semiring"] for row in result["known"]] == [
        "(+, ×)", "(max, +)", "(min, +)", "(max, ×)", "(min, ×)", "(logsum, +)",
    ]  # fmt: skip
    first = result["known"][0]
    assert (first["ratio"], first["forward_ratio"]) == (1.0, 1.0)
    for row in result["known"]:
        assert row["ratio"] == pytest.approx(first["seconds"] / row["seconds"])
    assert [(row["semiring"], row["width"]) for row in result["own"]] == [
        (name, width) for width in (2, 3) for name in ("widest (max, min)", "product (×, +)")
    ]
    assert all(row["arcs_times_width_bytes"] == 4 * 156 * row["width"] for row in result["own"])
    table = weft("bench", "semiring", *words.split()).out
    assert all(word in table for word in ("(logsum, +)", "widest", "that of (+, ×) is 1", "peak MB"))


def test_what_a_user_writes_in_torch_is_the_same():
    import torch

    from weft.bench.semiring import OWN, by_torch, weighted
    from weft.graph import karate
    from weft.parallel import Operator

    a, h = weighted(karate()), torch.rand(34, 3)
    for semiring, reduce, product in OWN.values():
        torch.testing.assert_close(Operator.local(a).aggregate(h, semiring), by_torch(a, h, product, reduce))


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="only Linux forgets a peak")
def test_what_a_call_takes_is_not_hidden_by_an_earlier_peak():
    import torch

    from weft.bench.semiring import peak_grown

    torch.ones(1 << 26)  # 268 MB, given back
    assert 60e6 < peak_grown(lambda: torch.ones(1 << 24)) < 200e6
    assert peak_grown(lambda: None) < 20e6
