"""Rows along one axis: gather, its dual reduce, and what they move."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor

from tests.examples import load_lab
from weft.comm import Communicator, Ledger, run_ranks
from weft.graph import er
from weft.meter import Meter
from weft.parallel import Exchange, Grid, Operator

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


class Order(Ledger):
    """What one rank does, in order and without times: ("post" | "wait", phase) of its swaps."""

    def __init__(self, comm: Communicator, log: list[str]):
        super().__init__(comm)
        self.log = log

    def count(self, phase, traffic, seconds=0.0, call="", start=0.0, waiting=False, moved=None):
        self.log.append(f"{'wait' if waiting else 'post'} {phase}")
        super().count(phase, traffic, seconds, call, start, waiting, moved)


def order_of_backward(ranks: int, exchange: str, overlap: bool, large: int, monkeypatch) -> list[list[str]]:
    """The trace of one backward propagation on each rank: post, multiply and wait events."""
    monkeypatch.setattr("weft.parallel.exchange.LARGE", large)
    graph = er(nodes=67, degree=9, directed=True)

    def work(comm: Communicator) -> list[str]:
        log: list[str] = []

        class Products(Meter):
            def begin(self, kind, name, operands):
                log.append(kind)

        A = Operator.build(graph, comm, Grid(ranks), exchange=exchange, overlap=overlap)
        h = torch.ones(A.rows.numel(), 4, requires_grad=True)
        y = A @ h
        with Order(comm, log), Products():
            y.backward(torch.ones_like(y))
        return log

    return run_ranks(work, ranks, "threads")


@pytest.mark.parametrize("large", [1 << 22, 0], ids=["whole", "halves"])
@pytest.mark.parametrize("exchange", ["dense", "sparse"])
@pytest.mark.parametrize("ranks", [2, 4, 5])
def test_every_transfer_of_backward_is_under_way_while_a_product_runs(ranks, exchange, large, monkeypatch):
    pieces = (ranks - 1) * (1 if large else 2)
    for log in order_of_backward(ranks, exchange, True, large, monkeypatch):
        waits = [place for place, event in enumerate(log) if event == "wait reduce"]
        posts = [place for place, event in enumerate(log) if event == "post reduce"]
        assert len(posts) == len(waits) == pieces
        assert all("spmm" in log[post:wait] for post, wait in zip(posts, waits, strict=True))
        assert log.count("spmm") == pieces + 1
        if exchange == "dense":  # one at a time
            assert log == ["spmm"] + ["post reduce", "spmm", "wait reduce"] * pieces


def test_the_ways_that_the_lab_times_give_one_sum_and_overlap_as_they_say(monkeypatch):
    """lab/backward.py: every stage, the first alone, none."""
    ways = load_lab("backward").ways()
    graph = er(nodes=67, degree=9, directed=True)

    def work(comm: Communicator) -> Tensor:
        A = Operator.build(graph, comm, Grid(4), dtype=torch.float64)
        h = numbers(A.rows.numel(), 4).requires_grad_()
        (A @ h).square().sum().backward()
        assert h.grad is not None
        return h.grad

    sums, traces = {}, {}
    for way, sum_up in ways.items():
        monkeypatch.setattr(Exchange, "sum_up", sum_up)
        sums[way] = torch.cat(run_ranks(work, 4, "threads"))
        traces[way] = order_of_backward(4, "dense", True, 1 << 22, monkeypatch)[0]
    for way in ("first", "none"):
        assert torch.allclose(sums[way], sums["every"], rtol=1e-12)
    assert traces["every"] == ["spmm"] + ["post reduce", "spmm", "wait reduce"] * 3
    assert traces["first"] == ["spmm", "post reduce", "spmm", "wait reduce"] + [
        "spmm", "post reduce", "wait reduce",
    ] * 2  # fmt: skip
    assert traces["none"] == ["spmm"] + ["post reduce", "wait reduce", "spmm"] * 3


def test_a_small_halo_is_posted_at_once_forward_and_back(monkeypatch):
    """Demirci et al., Algorithms 1 and 2: nobody waits before all is sent and the own block is multiplied."""
    for log in order_of_backward(4, "sparse", True, 1 << 22, monkeypatch):
        assert log == ["spmm", "post reduce"] * 3 + ["spmm"] + ["wait reduce"] * 3

    def forward(comm: Communicator) -> list[str]:
        log: list[str] = []
        plan = line(comm, "sparse", True)
        with Order(comm, log):
            for p, _ in plan.gather(block(5, comm.rank)):
                log.append("own" if p == comm.rank else "other")
        return log

    logs = run_ranks(forward, 5, "threads")
    assert max(log.count("post gather") for log in logs) >= 3
    for log in logs:
        before, after = log[: log.index("own")], log[log.index("own") + 1 :]
        assert set(before) <= {"post gather"}
        assert set(after) <= {"wait gather", "other"}


def test_a_halo_larger_than_two_blocks_goes_by_stages(monkeypatch):
    monkeypatch.setattr("weft.parallel.exchange.LARGE", 0)

    def work(comm: Communicator) -> bool:
        every = [torch.arange(3) for _ in range(comm.size)]
        return Exchange(comm, [3] * comm.size, every).at_once(4)

    assert run_ranks(work, 2, "threads") == [True, True]  # three rows come, three go
    assert run_ranks(work, 5, "threads") == [False] * 5


def test_without_overlap_no_product_runs_beside_a_transfer(monkeypatch):
    for log in order_of_backward(4, "dense", False, 1 << 22, monkeypatch):
        assert log == ["spmm"] + ["post reduce", "wait reduce", "spmm"] * 3


@pytest.mark.parametrize(("ranks", "kind", "overlap"), EVERY)
@pytest.mark.parametrize("halve", [False, True])
def test_products_in_pieces_sum_up_to_what_reduce_gives(ranks, kind, overlap, halve, monkeypatch):
    monkeypatch.setattr("weft.parallel.exchange.LARGE", 0)

    def work(comm: Communicator) -> None:
        plan = line(comm, kind, overlap)
        made = {p: numbers(plan.need_sizes[p], 2, seed=9 * comm.rank + p) for p in range(ranks)}

        def own(out: Tensor | None) -> Tensor:
            return made[comm.rank].clone() if out is None else out.add_(made[comm.rank])

        want = plan.reduce(lambda p: made[p].clone())
        with Ledger(comm) as books:
            got = plan.sum_up(lambda p, begin, end: made[p][begin:end], own, made[comm.rank], halve)
        assert torch.allclose(got, want, rtol=0, atol=1e-14)
        given = [rows for p, rows in enumerate(plan.give_sizes) if p != comm.rank]
        assert books.words("reduce") == 2 * sum(given)
        assert books.messages("reduce") == sum(min(rows, 2 if halve else 1) for rows in given)

    run_ranks(work, ranks, "threads")
