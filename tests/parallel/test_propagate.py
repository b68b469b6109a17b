"""A·h and its gradient on every grid against dense algebra; the words are those foretold."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.comm import Communicator, Ledger, run_ranks
from weft.errors import UserError
from weft.graph import Graph, Store, open_store, write_store
from weft.nn import Chain
from weft.parallel import Blocks, Grid, Operator
from weft.parallel.propagate import FeatureLine

from .cases import (
    ALL,
    Shape,
    brief_cases_of,
    cases_of,
    check,
    check_all,
    close,
    dense,
    directed,
    factorisations,
    numbers,
    problem,
    propagated,
    received,
    serial,
)

SMALL, LARGE = (1, 2, 3, 4, 6), (8, 9, 12, 16, 27)
"""Every factorisation of these is tried; the large ones in full only in the slow tests."""


def grids(*sizes: int) -> list[Shape]:
    return [shape for ranks in sizes for shape in factorisations(ranks)]


def ranks_of(shape: Shape) -> int:
    return Grid(*shape).size


# Every factorisation: values, gradients, words, messages


@pytest.mark.parametrize("shape", grids(*SMALL))
def test_every_small_grid_equals_serial_with_the_predicted_words(shape):
    run_ranks(check_all, ranks_of(shape), "threads", cases_of(shape))


@pytest.mark.parametrize("shape", grids(*LARGE))
def test_every_large_grid_equals_serial_with_the_predicted_words(shape):
    run_ranks(check_all, ranks_of(shape), "threads", brief_cases_of(shape))


@pytest.mark.slow
@pytest.mark.parametrize("shape", grids(*LARGE))
def test_every_large_grid_equals_serial_in_every_case(shape):
    run_ranks(check_all, ranks_of(shape), "threads", cases_of(shape, n=37, width=7))


@pytest.mark.parametrize("shape", [(4, 4, 4)])
def test_sixty_four_ranks_equal_serial(shape):
    run_ranks(check_all, 64, "threads", brief_cases_of(shape, n=67))


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(64, 1, 1), (1, 64, 1), (1, 1, 64), (8, 8, 1), (8, 1, 8), (2, 16, 2)])
def test_sixty_four_ranks_equal_serial_on_more_grids(shape):
    run_ranks(check_all, 64, "threads", brief_cases_of(shape, n=131))


# Starting processes takes longer than the cases do: one launch runs all of them.
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_real_ranks_equal_serial_on_every_grid(mpi_ranks, ranks):
    cases = [case for shape in factorisations(ranks) for case in cases_of(shape)]
    assert mpi_ranks(check_all, ranks, cases) == [len(cases)] * ranks


def test_eight_real_ranks_equal_serial_on_every_grid(mpi_ranks):
    cases = [case for shape in factorisations(8) for case in brief_cases_of(shape)]
    assert mpi_ranks(check_all, 8, cases) == [len(cases)] * 8


@pytest.mark.slow
def test_the_second_engine_equals_serial_too():
    cases = [case for shape in factorisations(4) for case in brief_cases_of(shape)]
    assert run_ranks(check_all, 4, "torch", cases) == [len(cases)] * 4


# Random graphs, grids, widths and owners


@settings(max_examples=40)
@given(data=st.data())
def test_any_graph_on_any_grid_with_any_owners(data):
    n = data.draw(st.integers(1, 13), label="n")
    shape = tuple(data.draw(st.integers(1, 3), label=axis) for axis in ("row", "inner", "feature"))
    grid = Grid(*shape)
    width = data.draw(st.integers(1, 5), label="width")
    arcs = data.draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=40))
    parts = data.draw(st.lists(st.integers(0, grid.size - 1), min_size=n, max_size=n), label="parts")
    how = data.draw(st.sampled_from(["gcn", "mean", "none"]), label="how")
    reduce = data.draw(st.sampled_from(ALL), label="reduce")
    exchange = data.draw(st.sampled_from(["dense", "sparse"]), label="exchange")
    graph = Graph.from_arcs([a for a, _ in arcs], [b for _, b in arcs], n)
    h, dy = numbers(n, width, seed=1, ties=True), numbers(n, width, seed=2)
    y, dh = serial(graph, how, reduce, h, dy)

    def work(comm: Communicator) -> None:
        blocks = Blocks.of_parts(torch.tensor(parts), grid)
        a = Operator.build(graph, comm, grid, how, exchange, blocks, torch.float64)
        if reduce == "mean":
            _ = a.degrees
        own = a.layout.take(h).requires_grad_()
        with Ledger(comm) as books:
            ours = a.aggregate(own, reduce)
            ours.backward(a.layout.take(dy))
        close(ours.detach(), a.layout.take(y), "forward")
        close(own.grad, a.layout.take(dh), "backward")
        foretold = a.foretell(lambda dry, reduce=reduce: propagated(dry, width, reduce))
        assert received(books) == (foretold.words, foretold.messages)
        assert torch.equal(a.layout.collect(a.layout.take(h)), h)

    run_ranks(work, grid.size, "threads")


# Winners of max and min


@pytest.mark.parametrize("exchange", ["dense", "sparse"])
@pytest.mark.parametrize("shape", [(3, 1, 1), (1, 3, 1), (2, 2, 2), (1, 4, 2), (3, 2, 1)])
@pytest.mark.parametrize("reduce", ["max", "min"])
def test_of_equal_neighbours_the_smallest_vertex_takes_the_gradient(shape, exchange, reduce):
    n = 11
    everybody = torch.arange(n).repeat(n), torch.arange(n).repeat_interleave(n)
    graph = Graph.from_arcs(*everybody, n)

    def work(comm: Communicator) -> None:
        # A random order of owners: the smallest vertex is in no particular slab.
        blocks = Blocks.even(n, Grid(*shape), seed=5)
        a = Operator.build(graph, comm, Grid(*shape), "none", exchange, blocks, torch.float64)
        h = torch.ones(a.rows.numel(), 3, dtype=torch.float64, requires_grad=True)
        a.aggregate(h, reduce).sum().backward()
        whole = a.layout.collect(h.grad)
        assert torch.equal(whole[0], torch.full((3,), float(n), dtype=torch.float64))
        assert not whole[1:].any()

    run_ranks(work, ranks_of(shape), "threads")


def test_a_tie_broken_otherwise_is_caught(monkeypatch):
    from weft.parallel import propagate

    honest = propagate.take_better

    def last_wins(own, at, incoming, largest):
        value, winner = own
        candidate, name = incoming
        assert at is None
        if value.shape == candidate.shape:
            take = (name >= 0) & (candidate == value)
            own[1].copy_(torch.where(take, name, winner))
        honest(own, at, incoming, largest)

    case = ((1, 3, 1), "dense", "none", ("max",), 31, 5, False, "random", True)
    run_ranks(check, 3, "threads", *case)
    monkeypatch.setattr(propagate, "take_better", last_wins)
    with pytest.raises(AssertionError, match="backward"):
        run_ranks(check, 3, "threads", *case)


@pytest.mark.parametrize("reduce", ["max", "min"])
@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 1, 1), (1, 3, 1), (2, 2, 1)])
def test_a_nan_wins_everywhere(shape, reduce):
    """As on one device: an overflow upstream must show and not vanish in a maximum."""
    graph = directed(13)
    _, there = dense(graph, "none")
    h = numbers(13, 2, seed=1)
    h[4, 0] = h[9, 0] = torch.nan

    def work(comm: Communicator) -> None:
        a = Operator.build(graph, comm, Grid(*shape), "none", dtype=torch.float64)
        own = a.layout.take(h).requires_grad_()
        y = a.aggregate(own, reduce)
        y[:, 0].sum().backward()
        hit = there[:, [4, 9]].any(1)
        assert torch.equal(a.layout.collect(y)[:, 0].isnan(), hit)
        assert not a.layout.collect(y)[:, 1].isnan().any()
        # Of two NaNs the smaller vertex takes the gradient.
        assert float(a.layout.collect(own.grad)[4, 0]) == int(there[:, 4].sum())

    run_ranks(work, ranks_of(shape), "threads")


# The rest of what a layer and a trainer ask


def test_complete_rows_become_columns_and_come_back():
    def work(comm: Communicator) -> None:
        grid = Grid(1, 2, 3)
        blocks = Blocks.of_parts(torch.tensor([0, 0, 0, 1, 3, 5, 5]), grid)  # ranks 2 and 4 own nothing
        sizes = [blocks.sizes[peer] for peer in grid.peers(comm.rank, "feature")]
        columns = FeatureLine(grid.along(comm, "feature"), sizes)
        begin, end = blocks.own(comm.rank)
        x = numbers(7, 5)[begin:end]
        f = grid.place(comm.rank)[2]
        split = columns.split(x)
        first, last = blocks.union(0, grid.place(comm.rank)[1])
        assert torch.equal(split, numbers(7, 5)[first:last, [slice(0, 2), slice(2, 4), slice(4, 5)][f]])
        assert torch.equal(columns.join(split, 5), x)

    run_ranks(work, 6, "threads")


@pytest.mark.parametrize("shape", [(1, 1, 1), (5, 1, 1), (2, 2, 2)])
@pytest.mark.parametrize("form", [(13,), (13, 1), (13, 4), (13, 2, 3)])
def test_collect_of_own_is_the_whole(shape, form):
    x = torch.arange(float(torch.tensor(form).prod())).reshape(form)

    def work(comm: Communicator) -> None:
        a = Operator.build(directed(13), comm, Grid(*shape), blocks=Blocks.even(13, Grid(*shape), 7))
        assert torch.equal(a.layout.collect(a.layout.take(x)), x)
        assert torch.equal(a.layout.collect(a.layout.take(x.long())), x.long())

    run_ranks(work, ranks_of(shape), "threads")


@pytest.mark.parametrize("exchange", ["dense", "sparse"])
@pytest.mark.parametrize("how", ["gcn", "mean", "none"])
@pytest.mark.parametrize("weighted", [False, True])
def test_a_store_gives_what_its_graph_gives(tmp_path, how, exchange, weighted):
    graph = directed(23, weighted)
    store = open_store(write_store(graph, tmp_path / "g.weft"), verify=False)
    assert isinstance(store, Store)

    def work(comm: Communicator, source: Graph | Store) -> torch.Tensor:
        grid = Grid(2, 2, 1)
        blocks = Blocks.of_parts(torch.arange(23) % 3, grid)  # rank 3 owns nothing
        a = Operator.build(source, comm, grid, how, exchange, blocks, torch.float64)
        return a.layout.collect(a @ a.layout.take(numbers(23, 3)))

    for ours, theirs in zip(
        run_ranks(work, 4, "threads", store), run_ranks(work, 4, "threads", graph), strict=True
    ):
        assert torch.equal(ours, theirs)


def test_what_never_changes_is_computed_once():
    graph = directed(13)

    def work(comm: Communicator) -> None:
        a = Operator.build(graph, comm, Grid(2, 1, 2), dtype=torch.float64)
        x = a.layout.take(numbers(13, 4))
        a.hold(x)
        first, twice = a @ x, Chain([a, a]) @ x
        close(twice, a @ (a @ x), "two hops")
        with Ledger(comm) as books:
            assert (a @ x) is first
            assert (Chain([a, a]) @ x) is twice
        assert not books.words()
        x.add_(1)  # changed in place: the old answer would be wrong
        close(a @ x, a @ x.clone(), "the new x")
        close(Chain([a, a]) @ x, a @ (a @ x.clone()), "two hops of the new x")

    run_ranks(work, 4, "threads")


def test_gradients_flow_through_several_propagations():
    graph = directed(17)
    a_dense, _ = dense(graph, "gcn")
    h = numbers(17, 3).requires_grad_()
    torch.tanh(a_dense @ torch.tanh(a_dense @ h)).square().sum().backward()

    def work(comm: Communicator) -> None:
        a = Operator.build(graph, comm, Grid(2, 3, 2), "gcn", "sparse", dtype=torch.float64)
        own = a.layout.take(h.detach()).requires_grad_()
        torch.tanh(a @ torch.tanh(a @ own)).square().sum().backward()
        close(own.grad, a.layout.take(h.grad), "two layers")

    run_ranks(work, 12, "threads")


def test_each_rank_holds_only_its_share_of_the_arcs():
    graph = directed(101, degree=6)

    def work(comm: Communicator) -> int:
        a = Operator.build(graph, comm, Grid(2, 3, 2), "none", blocks=Blocks.even(101, Grid(2, 3, 2)))
        return a.arcs

    arcs = run_ranks(work, 12, "threads")
    # Ranks that differ in the feature only share a block of A; the blocks together are A, once.
    assert sum(arcs[::2]) == sum(arcs[1::2]) == graph.num_arcs


# Mistakes


def test_a_plan_that_reads_too_little_is_caught(monkeypatch):
    from weft.parallel import cutting, direct

    honest = cutting.exchange_along

    def careless(comm, sizes, need, overlap, by_host):
        if need is not None and comm.size > 1:
            give = honest(comm, sizes, need, overlap, by_host)
            assert give.give is not None
            # Somebody gives the row before the one that was asked for.
            give.give = [(rows - 1).clamp(min=0) for rows in give.give]
            return give
        return honest(comm, sizes, need, overlap, by_host)

    case = ((3, 1, 1), "sparse", "none", ("sum",), 31, 5, False, "even", True)
    run_ranks(check, 3, "threads", *case)
    for way in (cutting, direct):  # without the C++ kernels, and with them
        monkeypatch.setattr(way, "exchange_along", careless)
    with pytest.raises(AssertionError, match="forward"):
        run_ranks(check, 3, "threads", *case)


MISTAKES = {
    "grid 2x1x2 needs 4 ranks, 3 are here. Use --ranks 4.": {"grid": Grid(2, 1, 2)},
    "unknown exchange 'dens'. Did you mean 'dense'? Known: dense, sparse.": {"exchange": "dens"},
    "unknown normalisation 'gnc'. Did you mean 'gcn'? Known: gcn, mean, none, loops.": {"how": "gnc"},
    "the blocks are those of 12 vertices, the graph has 13. Make them for this graph.": {
        "blocks": Blocks.even(12, Grid(3))
    },
    "the blocks are for grid 1x3x1, this is 3x1x1. Make them for this grid.": {
        "blocks": Blocks.even(13, Grid(1, 3))
    },
}


@pytest.mark.parametrize("message", MISTAKES)
def test_a_mistake_is_one_line(message):
    arguments = {"grid": Grid(3)} | MISTAKES[message]
    with pytest.raises(UserError) as caught:
        run_ranks(lambda comm: Operator.build(directed(13), comm, **arguments), 3, "threads")
    assert str(caught.value) == message


def test_an_unknown_reduction_and_a_wrong_h_are_refused():
    def work(comm: Communicator) -> None:
        a = Operator.build(directed(13), comm, Grid(2))
        with pytest.raises(UserError, match=r"unknown reduction 'maximum'\. Did you mean 'max'\?"):
            a.aggregate(a.layout.take(torch.ones(13, 2)), "maximum")
        with pytest.raises(ValueError, match=r"h is \(13, 2\), for \d vertices at hand"):
            a @ torch.ones(13, 2)

    run_ranks(work, 2, "threads")


def test_the_serial_answer_is_what_torch_derives():
    """The reference itself, against autograd where winners are alone."""
    graph = directed(13, weighted=True)
    a, there = dense(graph, "mean")
    for reduce in ALL:
        h = numbers(13, 3, seed=4).requires_grad_()
        terms = a[:, :, None] * h[None]
        if reduce in ("sum", "mean"):
            y = terms.sum(1) / (there.sum(1, keepdim=True).clamp(min=1) if reduce == "mean" else 1)
        else:
            sign = 1.0 if reduce == "max" else -1.0
            y = sign * torch.where(there[:, :, None], sign * terms, -torch.inf).amax(1)
            y = torch.where(there.any(1)[:, None], y, 0.0)
        dy = numbers(13, 3, seed=5)
        y.backward(dy)
        want, want_dh = serial(graph, "mean", reduce, h.detach(), dy)
        close(want, y.detach(), reduce)
        close(want_dh, h.grad, reduce)
    assert problem(13, True, "mean", "max", 3)[0].unique().numel() < 8  # many ties in the checks
