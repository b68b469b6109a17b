"""Who owns which vertices and columns: whole, without overlap, in order."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from weft.errors import UserError
from weft.parallel import Blocks, Grid
from weft.parallel import blocks as module
from weft.parallel.assign import check_assignment
from weft.parallel.blocks import even_sizes, starts
from weft.train.config import ParallelConfig

side = st.integers(1, 4)


@given(st.integers(0, 50), st.integers(1, 12))
def test_even_sizes_differ_by_one_and_add_up(count, parts):
    sizes = even_sizes(count, parts)
    assert sum(sizes) == count
    assert len(sizes) == parts
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)
    assert starts(sizes) == [sum(sizes[:p]) for p in range(parts)]


@given(st.data())
def test_ranges_nest_and_cover_whatever_the_parts(data):
    grid = Grid(data.draw(side), data.draw(side), data.draw(side))
    parts = torch.tensor(data.draw(st.lists(st.integers(0, grid.size - 1), max_size=30)), dtype=torch.int64)
    n = parts.numel()
    blocks = Blocks.of_parts(parts, grid)
    assert blocks.order.sort().values.tolist() == list(range(n))
    assert torch.equal(blocks.order[blocks.place_of], torch.arange(n))
    # A rank owns its part, ascending.
    for rank in range(grid.size):
        begin, end = blocks.own(rank)
        assert blocks.order[begin:end].tolist() == [v for v in range(n) if parts[v] == rank]
        assert blocks.sizes[rank] == end - begin
    # Own ranges lie in unions, unions in slabs, end to end.
    ends = 0
    for i in range(grid.row):
        assert blocks.slab(i)[0] == ends
        for k in range(grid.inner):
            assert blocks.union(i, k)[0] == ends
            for f in range(grid.feature):
                assert blocks.own(grid.rank(i, k, f))[0] == ends
                ends = blocks.own(grid.rank(i, k, f))[1]
            assert blocks.union(i, k)[1] == ends
        assert blocks.slab(i)[1] == ends
    assert ends == n


def test_even_blocks_keep_the_order_and_a_seed_permutes():
    grid = Grid(2, 1, 3)
    plain = Blocks.even(13, grid)
    assert plain.order.tolist() == list(range(13))
    assert plain.sizes == [3, 2, 2, 2, 2, 2]
    one, again, other = (Blocks.even(13, grid, seed) for seed in (1, 1, 2))
    assert torch.equal(one.order, again.order)
    assert not torch.equal(one.order, other.order)
    assert one.sizes == plain.sizes
    for rank in range(6):
        mine = one.order[slice(*one.own(rank))]
        assert torch.equal(mine, mine.sort().values)


def test_columns_are_cut_evenly_and_may_run_out():
    blocks = Blocks.even(5, Grid(1, 1, 4))
    assert blocks.columns(10) == [3, 3, 2, 2]
    assert blocks.columns(2) == [1, 1, 0, 0]
    assert blocks.columns(0) == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("parts", "wild"), [([0, 1, 4], "4"), ([0, -1, 2], "-1"), ([9, -3], "-3"), ([3, 100], "100")]
)
def test_a_part_that_no_rank_has_is_refused(parts, wild):
    with pytest.raises(UserError) as caught:
        Blocks.of_parts(torch.tensor(parts), Grid(2, 2))
    assert (
        str(caught.value)
        == f"the partition has part {wild}, but 4 ranks have 0 to 3. Make it with --parts 4."
    )


class Widest(TorchDispatchMode):
    """The most numbers of 8 bytes that anything made inside of this has."""

    most = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for x in out if isinstance(out, tuple) else (out,):
            if isinstance(x, torch.Tensor) and x.element_size() == 8:
                self.most = max(self.most, x.numel())
        return out


@pytest.mark.parametrize("kind", [torch.int32, torch.uint8])
def test_places_of_parts_are_counted_some_at_a_time_and_stable(kind, monkeypatch):
    monkeypatch.setattr(module, "SOME", 7)
    generator = torch.Generator().manual_seed(1)
    parts = torch.randint(4, (101,), generator=generator).to(kind)
    parts[parts == 2] = 1  # an empty part
    with Widest() as widest:
        found = Blocks.of_parts(parts, Grid(4))
    assert widest.most <= 8
    assert found.sizes == parts.long().bincount(minlength=4).tolist()
    assert found.order.tolist() == parts.long().argsort(stable=True).tolist()
    key = torch.randperm(101, generator=generator)
    first = key.argsort()
    by_key = Blocks.of_parts(parts, Grid(4), key).order.tolist()
    assert by_key == first[parts.long()[first].argsort(stable=True)].tolist()


def test_a_file_of_parts_is_checked_without_their_order(monkeypatch):
    np.save("p.npy", np.array([0, 2, 1, 2], dtype=np.uint64))
    monkeypatch.setattr(Blocks, "of_parts", None)
    check_assignment(4, Grid(3), ParallelConfig(partition="p.npy"))
    with pytest.raises(UserError, match="the partition has part 2, but 2 ranks have 0 to 1"):
        check_assignment(4, Grid(2), ParallelConfig(partition="p.npy"))
    np.save("p.npy", np.array([0, 1 << 32, 1, 2]))
    with pytest.raises(UserError, match="the partition has part 4294967296, but 3 ranks"):
        check_assignment(4, Grid(3), ParallelConfig(partition="p.npy"))
