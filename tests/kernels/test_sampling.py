from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from weft.kernels import native, use
from weft.kernels.sampling import ALL, relabel, sample_block, sample_rows


def csr(n: int, seed: int, index: torch.dtype = torch.int32) -> tuple[Tensor, Tensor]:
    """Degrees from 0 to about 90, so that a row is smaller and larger than any fan-out used here."""
    g = torch.Generator().manual_seed(seed)
    degree = (torch.rand(n, generator=g) ** 3 * 90).long() * (torch.rand(n, generator=g) < 0.8)
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), degree.cumsum(0)])
    return indptr, torch.randint(n, (int(indptr[-1]),), generator=g).to(index)


any_sample = given(
    n=st.integers(1, 40), seed=st.integers(0, 5), fanout=st.sampled_from([ALL, 0, 1, 3, 10, 70]),
    replace=st.booleans(), loops=st.booleans(), key=st.integers(0, 2**64 - 1),
    index=st.sampled_from([torch.int32, torch.int64]),
)  # fmt: skip


@any_sample
@settings(max_examples=80, deadline=None)
def test_both_kernels_pick_the_same(n, seed, fanout, replace, loops, key, index):
    indptr, indices = csr(n, seed, index)
    rows = torch.randint(n, (2 * n,), generator=torch.Generator().manual_seed(seed))
    vertices = rows * 3 + (2**33 if index == torch.int64 else 0)  # not the row numbers
    ours = sample_rows(indptr, indices, rows, vertices, fanout, key, replace, loops, want_arcs=True)
    with use("torch"):
        theirs = sample_rows(indptr, indices, rows, vertices, fanout, key, replace, loops, want_arcs=True)
    assert torch.equal(ours.indptr, theirs.indptr)
    assert torch.equal(ours.neighbours, theirs.neighbours)
    assert ours.arcs is not None
    assert theirs.arcs is not None
    assert torch.equal(ours.arcs, theirs.arcs)


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fanout", [1, 25, 700, 1300])
def test_both_kernels_pick_the_same_of_hubs(fanout, replace):
    """Rows of more than 1,024 neighbours are drawn in another way."""
    indptr = torch.tensor([0, 5000, 6100, 6103])
    indices = torch.randint(9000, (6103,), generator=torch.Generator().manual_seed(0)).int()
    rows = torch.arange(3)
    ours = sample_rows(indptr, indices, rows, rows, fanout, 5, replace, want_arcs=True)
    with use("torch"):
        theirs = sample_rows(indptr, indices, rows, rows, fanout, 5, replace, want_arcs=True)
    assert torch.equal(ours.indptr, theirs.indptr)
    assert torch.equal(ours.neighbours, theirs.neighbours)


@pytest.mark.parametrize("backend", ["native", "torch"])
@pytest.mark.parametrize("loops", [False, True])
def test_picks_are_neighbours_and_none_comes_twice(backend, loops):
    indptr, indices = csr(50, 1)
    rows = torch.arange(50)
    with use(backend):
        picked = sample_rows(indptr, indices, rows, rows, 10, key=7, loops=loops, want_arcs=True)
    assert picked.arcs is not None
    for i in range(50):
        arcs = picked.arcs[picked.indptr[i] : picked.indptr[i + 1]].tolist()
        names = picked.neighbours[picked.indptr[i] : picked.indptr[i + 1]].tolist()
        if loops:
            assert (arcs.pop(0), names.pop(0)) == (-1, i)
        begin, end = int(indptr[i]), int(indptr[i + 1])
        assert len(arcs) == min(10, end - begin)
        assert len(set(arcs)) == len(arcs)
        assert all(begin <= a < end for a in arcs)
        assert indices[arcs].tolist() == names


def test_a_sample_belongs_to_the_vertex_whoever_asks_and_however_many_threads():
    indptr, indices = csr(3000, 2)
    rows = torch.arange(3000)
    whole = sample_rows(indptr, indices, rows, rows, 5, key=3)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        again = sample_rows(indptr, indices, rows, rows, 5, key=3)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(whole.neighbours, again.neighbours)
    some = torch.tensor([2999, 17, 1234])
    few = sample_rows(indptr, indices, some, some, 5, key=3)
    for k, v in enumerate(some.tolist()):
        assert torch.equal(
            few.neighbours[few.indptr[k] : few.indptr[k + 1]],
            whole.neighbours[whole.indptr[v] : whole.indptr[v + 1]],
        )
    other = sample_rows(indptr, indices, rows, rows, 5, key=4)
    assert not torch.equal(whole.neighbours, other.neighbours)


@pytest.mark.parametrize("replace", [False, True])
def test_every_neighbour_is_picked_equally_often(replace):
    """10,000 keys, 3 of 7: 4286 each, with a spread of about 50; 300 is six of them."""
    indptr, indices = torch.tensor([0, 7]), torch.arange(7)
    counts = torch.zeros(7, dtype=torch.int64)
    one = torch.tensor([0])
    vertices = torch.arange(10_000)
    picked = sample_rows(indptr, indices, one.expand(10_000), vertices, 3, key=5, replace=replace)
    counts = torch.bincount(picked.neighbours, minlength=7)
    assert int(counts.sum()) == 30_000
    assert int((counts - 30_000 / 7).abs().max()) < 300


def test_full_neighbourhoods_are_the_rows_themselves():
    indptr, indices = csr(30, 4)
    rows = torch.arange(30)
    picked = sample_rows(indptr, indices, rows, rows, ALL, key=1, replace=True)
    assert torch.equal(picked.indptr, indptr)
    assert torch.equal(picked.neighbours, indices)


@given(targets=st.lists(st.integers(0, 20)), picked=st.lists(st.integers(0, 20)))
@settings(max_examples=60, deadline=None)
def test_both_kernels_label_alike_where_targets_come_twice(targets, picked):
    seeds, neighbours = torch.tensor(targets, dtype=torch.int32), torch.tensor(picked, dtype=torch.int32)
    place = torch.zeros(22, dtype=torch.int32)
    sources, local = relabel(seeds, neighbours, place)
    assert sources[: len(targets)].tolist() == targets
    assert sources[local.long()].tolist() == picked
    with use("torch"):
        again = relabel(seeds, neighbours, place)
    assert torch.equal(again[0], sources)
    assert torch.equal(again[1], local)


@pytest.mark.parametrize(
    "place", [torch.zeros(4), torch.zeros(4).long(), torch.zeros(0).int(), torch.zeros(3).int()]
)
def test_scratch_of_another_type_or_size_is_refused(place):
    indptr, indices, targets = torch.tensor([0, 1, 2, 2]), torch.tensor([1, 2]).int(), torch.tensor([0])
    with pytest.raises(ValueError, match=r"place is torch\.\w+ \(\d,\), not torch\.int32 \[4\]"):
        sample_block(indptr, indices, targets, 1, 0, place)
    if place.dtype != torch.int32 or not place.numel():
        with pytest.raises(ValueError, match=r"not torch\.int32 \[n \+ 1\]"):
            relabel(targets, indices, place)


@given(targets=st.lists(st.integers(0, 20), unique=True), picked=st.lists(st.integers(0, 20)))
@settings(max_examples=60, deadline=None)
def test_relabelling_names_each_source_once_targets_first(targets, picked):
    seeds, neighbours = torch.tensor(targets, dtype=torch.int32), torch.tensor(picked, dtype=torch.int32)
    place = torch.zeros(22, dtype=torch.int32)
    relabel(torch.tensor([9, 0, 4]), torch.tensor([4, 20], dtype=torch.int32), place)  # an earlier use
    sources, local = relabel(seeds, neighbours, place)
    assert sources[: len(targets)].tolist() == targets
    assert len(set(sources.tolist())) == sources.numel()
    assert sources[local.long()].tolist() == picked
    with use("torch"):
        again = relabel(seeds, neighbours, place)
    assert torch.equal(again[0], sources)
    assert torch.equal(again[1], local)


@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_numbers_that_run_out_begin_anew(index):
    """Numbers count on from use to use: the second use here still finds room, the third does not."""
    largest = torch.iinfo(index).max
    place = torch.zeros(8, dtype=index)
    targets, neighbours = torch.tensor([5, 1]).to(index), torch.tensor([6, 1, 6]).to(index)
    place[-1], place[6] = largest - 8, largest - 8
    given = []
    for _ in range(3):
        sources, local = relabel(targets, neighbours, place)
        assert sources.tolist() == [5, 1, 6]
        assert local.tolist() == [2, 1, 2]
        given.append(int(place[-1]))
    assert given == [largest - 5, largest - 2, 3]


@any_sample
@settings(max_examples=80, deadline=None)
def test_a_block_is_rows_picked_and_relabelled(n, seed, fanout, replace, loops, key, index):
    indptr, indices = csr(n, seed, index)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    place = torch.zeros(n + 1, dtype=index)
    for targets in (order[: n // 2], order):
        picked, sources, local = sample_block(
            indptr, indices, targets, fanout, key, place, replace, loops, want_arcs=True
        )
        with use("torch"):
            apart = sample_rows(
                indptr, indices, targets, targets, fanout, key, replace, loops, want_arcs=True
            )
            labels = relabel(targets, apart.neighbours, place)
            together = sample_block(indptr, indices, targets, fanout, key, place, replace, loops)
        assert torch.equal(picked.indptr, apart.indptr)
        assert torch.equal(picked.neighbours, apart.neighbours)
        assert picked.arcs is not None
        assert apart.arcs is not None
        assert torch.equal(picked.arcs, apart.arcs)
        for ours, theirs, again in zip((sources, local), labels, together[1:], strict=True):
            assert torch.equal(ours, theirs)
            assert torch.equal(ours, again)


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_a_block_is_the_same_on_any_number_of_threads(threads):
    n = 3000
    indptr, indices = csr(n, 3)
    targets, place = torch.randperm(n, generator=torch.Generator().manual_seed(1)), torch.zeros(n + 1).int()
    alone, sources, local = sample_block(indptr, indices, targets, 9, 5, torch.zeros(n + 1).int())
    assert alone.neighbours.numel() > 10_000  # enough work for threads
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for _ in range(20):
            picked, *labels = sample_block(indptr, indices, targets, 9, 5, place)
            assert torch.equal(picked.neighbours, alone.neighbours)
            assert torch.equal(labels[0], sources)
            assert torch.equal(labels[1], local)
    finally:
        torch.set_num_threads(before)


def test_a_wrong_fanout_is_refused():
    none = torch.tensor([], dtype=torch.int32)
    with pytest.raises(ValueError, match="a fan-out is 0 or more"):
        sample_rows(torch.tensor([0]), none, none, none, -2, 0)
    with pytest.raises(ValueError, match="a fan-out is 0 or more"):
        sample_block(torch.tensor([0]), none, none, -2, 0, torch.zeros(1).int())


def test_the_extension_is_what_was_tested():
    assert native.extension is not None
