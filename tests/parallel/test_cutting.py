"""Cutting a rank's rows into the matrices of a plan."""

from __future__ import annotations

import pytest
import torch

from weft.parallel import cutting, source
from weft.parallel.source import Arcs, with_loops


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
@pytest.mark.parametrize("count", [0, 1, 7, 300])
def test_distinct_numbers_are_those_of_a_sort(monkeypatch, index, count):
    monkeypatch.setattr(cutting, "SOME_ARCS", 64)
    x = torch.randint(0, 90, (count,), dtype=index, generator=torch.Generator().manual_seed(count))
    found, which = cutting.distinct(x, 97)
    wanted, places = torch.unique(x, return_inverse=True)
    assert found.dtype == which.dtype == index
    assert torch.equal(found, wanted)
    assert torch.equal(which.long(), places)


def test_loops_find_their_places_whatever_is_looked_at_together(monkeypatch):
    generator = torch.Generator().manual_seed(1)
    dense = torch.rand(40, 60, generator=generator) < 0.2
    dense[7] = False  # a row without arcs
    dense[9] = True  # longer than a part
    row, vertex = dense.nonzero(as_tuple=True)
    own = torch.randperm(60, generator=generator)[:40].sort().values
    wanted = dense.clone()
    wanted[torch.arange(40), own] = True
    for some in (1 << 18, 16, 5):
        monkeypatch.setattr(source, "SOME_ARCS", some)
        found = with_loops(Arcs(row.int(), vertex.int(), None), own)
        assert torch.equal(
            torch.stack([found.row, found.vertex]).long(), torch.stack(wanted.nonzero(as_tuple=True))
        )
