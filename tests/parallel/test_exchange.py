"""Rows along one axis: gather, its dual reduce, and what they move."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor

from weft.comm import Communicator, Ledger, run_ranks
from weft.parallel import Exchange

from .cases import numbers, received

SIZES = {1: [4], 2: [3, 2], 3: [4, 0, 3], 5: [2, 5, 0, 1, 3]}
"""Rows of each rank's block; some ranks have none."""
EVERY = list(product(SIZES, ["dense", "sparse"], [True, False]))


def needs(ranks: int, me: int) -> list[Tensor]:
    """Rows that rank `me` reads of everybody's block: some, none or all."""
    g = torch.Generator().manual_seed(10 * ranks + me)
    rows = [(torch.rand(size, generator=g) < 0.5).nonzero().ravel() for size in SIZES[ranks]]
    rows[me] = torch.arange(SIZES[ranks][me])
    return rows


def line(comm: Communicator, kind: str, overlap: bool) -> Exchange:
    need = needs(comm.size, comm.rank) if kind == "sparse" else None
    return Exchange(comm, SIZES[comm.size], need, overlap)


def block(ranks: int, of: int, width: int = 3) -> Tensor:
    return numbers(SIZES[ranks][of], width, seed=of)


def wanted(ranks: int, me: int, of: int, kind: str) -> Tensor:
    """Rows of `of`'s block that `me` reads."""
    return needs(ranks, me)[of] if kind == "sparse" else torch.arange(SIZES[ranks][of])


@pytest.mark.parametrize(("ranks", "kind", "overlap"), EVERY)
def test_gather_hands_out_what_is_read_own_block_first(ranks, kind, overlap):
    def work(comm: Communicator) -> None:
        plan = line(comm, kind, overlap)
        seen = []
        with Ledger(comm) as books:
            for p, rows in plan.gather(block(ranks, comm.rank)):
                want = block(ranks, p)[wanted(ranks, comm.rank, p, kind)]
                assert torch.equal(rows, block(ranks, p) if p == comm.rank else want)
                seen.append(p)
        assert seen[0] == comm.rank
        assert sorted(seen) == list(range(ranks))
        read = [wanted(ranks, comm.rank, p, kind).numel() for p in range(ranks) if p != comm.rank]
        words = {"gather": 3 * sum(read)} if any(read) else {}
        messages = {"gather": sum(1 for r in read if r)} if any(read) else {}
        assert received(books) == (words, messages)

    run_ranks(work, ranks, "threads")


@pytest.mark.parametrize(("ranks", "kind", "overlap"), EVERY)
def test_reduce_sums_everybodys_part_at_the_rows_they_read(ranks, kind, overlap):
    def part(of: int, to: int) -> Tensor:
        rows = SIZES[ranks][to] if of == to else wanted(ranks, of, to, kind).numel()
        return numbers(rows, 2, seed=100 * of + to)

    def work(comm: Communicator) -> None:
        plan = line(comm, kind, overlap)
        with Ledger(comm) as books:
            got = plan.reduce(lambda p: part(comm.rank, p))
        total = part(comm.rank, comm.rank)
        for p in range(ranks):
            if p != comm.rank:
                total.index_add_(0, wanted(ranks, p, comm.rank, kind), part(p, comm.rank))
        assert torch.allclose(got, total, rtol=0, atol=1e-14)
        given = [wanted(ranks, p, comm.rank, kind).numel() for p in range(ranks) if p != comm.rank]
        assert books.words("reduce") == 2 * sum(given)
        assert books.messages("reduce") == sum(1 for g in given if g)

    run_ranks(work, ranks, "threads")


@pytest.mark.parametrize(("ranks", "kind", "overlap"), EVERY)
def test_gather_and_reduce_are_transposes(ranks, kind, overlap):
    """⟨gather(x), y⟩ = ⟨x, reduce(y)⟩, summed over the ranks; and each moves what the other moves back."""

    def work(comm: Communicator) -> tuple[float, float, int, int]:
        plan = line(comm, kind, overlap)
        x = block(ranks, comm.rank)
        y = {p: numbers(plan.need_sizes[p], 3, seed=7 * comm.rank + p) for p in range(ranks)}
        with Ledger(comm) as there:
            left = sum(float((rows * y[p]).sum()) for p, rows in plan.gather(x))
        with Ledger(comm) as back:
            right = float((x * plan.reduce(lambda p: y[p].clone())).sum())
        assert there.words_sent() == back.words()
        assert there.words() == back.words_sent()
        return left, right, there.words(), back.words()

    left, right, there, back = map(sum, zip(*run_ranks(work, ranks, "threads"), strict=True))
    assert left == pytest.approx(right, rel=1e-12)
    assert there == back


@pytest.mark.parametrize("overlap", [True, False])
def test_gather_needs_two_receive_buffers_however_many_ranks(overlap):
    def work(comm: Communicator) -> int:
        plan = Exchange(comm, [3] * comm.size, overlap=overlap)
        return len({rows.data_ptr() for p, rows in plan.gather(torch.ones(3, 4)) if p != comm.rank})

    assert max(run_ranks(work, 7, "threads")) == 2


def test_a_receiver_that_reads_late_still_gets_its_block():
    """Blocks stay valid until the next is asked for, though the sender has long gone on."""

    def work(comm: Communicator) -> None:
        plan = Exchange(comm, [2] * comm.size)
        for round_ in range(3):
            x = torch.full((2, 2), float(10 * round_ + comm.rank))
            for p, rows in plan.gather(x):
                if comm.rank == 0:
                    comm_free = sum(range(20000))  # the others hurry ahead
                    assert comm_free
                assert torch.equal(rows, torch.full((2, 2), float(10 * round_ + p)))

    run_ranks(work, 4, "threads")


def test_a_gather_from_a_wrong_plan_is_caught():
    def work(comm: Communicator) -> None:
        plan = line(comm, "sparse", True)
        assert plan.give is not None
        plan.give = [rows.flip(0) for rows in plan.give]
        for p, rows in plan.gather(block(5, comm.rank)):
            want = block(5, p) if p == comm.rank else block(5, p)[wanted(5, comm.rank, p, "sparse")]
            assert torch.equal(rows, want), "rows in another order"

    with pytest.raises(AssertionError, match="rows in another order"):
        run_ranks(work, 5, "threads")
