"""Steps and memory of what runs dry."""

from __future__ import annotations

import torch

from weft.comm import Dry
from weft.kernels import CSR, linear
from weft.meter import Meter
from weft.parallel import Blocks, Grid
from weft.parallel.foretell import dense_lines, planned
from weft.planner.record import Kernel, Pass, Post, Product, Recorder, Wait


def meta(*shape: int, **more) -> torch.Tensor:
    return torch.empty(*shape, device="meta", **more)


def test_a_product_forward_and_back_is_noted_with_its_sizes_and_nothing_after_it():
    w = meta(3, 4, requires_grad=True)
    with Recorder() as notes:
        linear(meta(9, 3), w).sum().backward()
    products = [step for step in notes.steps if isinstance(step, Product)]
    assert products == [Product(9, 3, 4), Product(3, 9, 4)]
    linear(meta(9, 3), w)
    assert [step for step in notes.steps if isinstance(step, Product)] == products


def test_memory_is_live_until_the_last_reference_dies_be_it_autograd_s():
    with Recorder() as notes:
        a = meta(10, 10)
        assert notes.live == 400
        b = a[:5].reshape(-1)  # a view costs nothing
        assert notes.live == 400
        del a
        assert notes.live == 400
        del b
        assert notes.live == 0
        w = meta(10, 10, requires_grad=True)
        y = (w * 2).exp()  # exp keeps its result, the product goes
        assert notes.live == 800
        del y
        assert notes.live == 400
    assert notes.peak == 1200


def test_messages_are_noted_in_order_with_the_wait_where_the_rank_waits():
    blocks = Blocks.even(12, Grid(2))
    A, line = planned(blocks, 0, *dense_lines(blocks, 0), [9, 8])
    A.plan.row.give = None
    with Recorder() as notes:
        line.state.notes = notes
        A @ meta(6, 5)
    kinds = [type(step) for step in notes.steps]
    assert kinds == [Post, Kernel, Wait, Kernel]
    post, first, _, second = notes.steps
    assert post.message == ("iswap", "row", ((1, 6 * 5 * 4),), ((1, 6 * 5 * 4),), 2)
    assert (first, second) == (Kernel("spmm", "multiply", 6, 6, 9, 5), Kernel("spmm", "multiply", 6, 6, 8, 5))
    assert not post.blocking


def test_without_overlap_the_message_comes_after_the_own_block():
    blocks = Blocks.even(12, Grid(2))
    A, line = planned(blocks, 0, *dense_lines(blocks, 0), [9, 8])
    A.plan.row.give, A.plan.row.overlap = None, False
    with Recorder() as notes:
        line.state.notes = notes
        A @ meta(6, 5)
    assert [type(step) for step in notes.steps] == [Kernel, Post, Wait, Kernel]


def test_a_kernel_inside_a_kernel_is_noted_once_and_a_plain_meter_goes_on_counting():
    from weft.kernels.spmm import best_values

    a = CSR.blank((4, 6), arcs=9)
    with Meter() as meter, Recorder() as notes:
        best_values(a, meta(6, 2), None, largest=True)  # asks another kernel when it runs dry
    assert notes.steps == [Kernel("spmm", "best_values", 4, 6, 9, 2)]
    assert list(meter.seconds) == ["spmm"]


def test_other_operations_are_passes_over_their_bytes():
    x = meta(100)
    with Recorder() as notes:
        y = x + 1
        y.mul_(2)
        y.view(10, 10)
    assert notes.steps == [Pass("aten::add", 800), Pass("aten::mul_", 400)]


def test_who_notes_messages_hears_every_call_and_the_ledger_counts_as_before():
    comm = Dry.alone(1, 3, "world")
    heard = []

    class Notes:
        def post(self, message, blocking):
            heard.append((message.call, message.sent, message.received, blocking))
            return lambda: heard.append("waited")

    comm.state.notes = Notes()
    comm.all_reduce(meta(6))
    comm.iall_gather(meta(2, 4), [1, 2, 0]).wait()
    comm.broadcast(meta(5), 0)
    comm.all_to_all(meta(3), [1, 1, 1], [0, 1, 2])
    comm.ireduce_scatter(meta(4), [1, 2, 1]).wait()
    assert heard == [
        ("all_reduce", ((0, 24), (2, 24)), ((0, 24), (2, 24)), True),
        ("all_gather", ((0, 32), (2, 32)), ((0, 16),), False), "waited",
        ("broadcast", (), ((0, 20),), True),
        ("all_to_all", ((0, 4), (2, 4)), ((2, 8),), True),
        ("reduce_scatter", ((0, 4), (2, 4)), ((0, 8), (2, 8)), False), "waited",
    ]  # fmt: skip
