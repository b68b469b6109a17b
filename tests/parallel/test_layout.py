"""From one layout to another: numbers, gradients and words, on uneven and empty ranks."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from weft.comm import Communicator, Ledger, run_ranks
from weft.parallel import Blocks, Columns, Grid, Partial, Replicated, Rows, Stacked, redistribute

N, WIDTH = 11, 5


def parts_of(ranks: int, how: str) -> Tensor:
    """The owner of each vertex: even, uneven, or with ranks that own nothing."""
    if how == "even":
        return torch.arange(N) * ranks // N
    if how == "uneven":
        return (torch.arange(N) ** 2 * 7 % 13) % ranks
    return torch.full((N,), ranks - 1)  # the last has everything


def layout(comm: Communicator, how: str) -> Rows:
    return Rows(comm, Blocks.of_parts(parts_of(comm.size, how), Grid(comm.size)))


def numbers(width: int = WIDTH, seed: int = 0) -> Tensor:
    return torch.randn(N, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def words(books: Ledger) -> dict[str, int]:
    return {phase: int(line["words"]) for phase, line in books.as_dict().items() if line["words"]}


CASES = list(itertools.product([1, 2, 3, 4], ["even", "uneven", "empty"]))


@pytest.mark.parametrize(("ranks", "how"), CASES)
@pytest.mark.parametrize("width", [WIDTH, 2, 0])
def test_rows_become_columns_and_come_back(ranks, how, width):
    x, dy = numbers(width), numbers(width, 1)

    def work(comm: Communicator) -> None:
        rows = layout(comm, how)
        columns = Columns(rows, comm, width)
        here = slice(columns.begin, columns.end)
        own = rows.take(x).requires_grad_()
        with Ledger(comm) as there:
            cut = redistribute(own, rows, columns, phase="there")
        assert torch.equal(cut, x[:, here])
        with Ledger(comm) as mirrored:
            cut.backward(dy[:, here])
        assert torch.equal(own.grad, rows.take(dy))
        n_own, c_own = rows.ids.numel(), here.stop - here.start
        # In: the others' rows, of my columns. Back: my rows, of the others' columns.
        came, went = (N - n_own) * c_own, n_own * (width - c_own)
        assert words(there) == ({"there": came} if came else {})
        assert words(mirrored) == ({"there": went} if went else {})

        whole = x[:, here].clone().requires_grad_()
        with Ledger(comm) as there:
            back = redistribute(whole, columns, rows, phase="back")
        assert torch.equal(back, rows.take(x))
        with Ledger(comm) as mirrored:
            back.backward(rows.take(dy))
        assert torch.equal(whole.grad, dy[:, here])
        assert words(there) == ({"back": went} if went else {})
        assert words(mirrored) == ({"back": came} if came else {})

    run_ranks(work, ranks, "threads")


@pytest.mark.parametrize("how", ["even", "uneven", "empty"])
@pytest.mark.parametrize(("ranks", "size"), [(2, 1), (4, 2), (4, 1), (3, 1), (6, 3), (6, 2)])
def test_groups_hold_copies_of_the_same_columns(ranks, size, how):
    """Every group gets all columns; rows come back from the own group, gradients from all of them."""
    x, dy = numbers(), numbers(seed=1)

    def work(comm: Communicator) -> None:
        group = comm.split(comm.rank // size, comm.rank, "group")
        rows, copies = layout(comm, how), ranks // size
        columns = Columns(rows, group, WIDTH)
        here = slice(columns.begin, columns.end)
        assert columns.of_rank(comm.rank) == (columns.begin, columns.end)
        own = rows.take(x).requires_grad_()
        with Ledger(comm) as there:
            cut = redistribute(own, rows, columns, phase="there")
        assert torch.equal(cut, x[:, here])
        n_own, c_own = rows.ids.numel(), columns.end - columns.begin
        assert there.words("there") == (N - n_own) * c_own
        # Each copy used the rows for its own purposes: what they say is added up.
        with Ledger(comm) as mirrored:
            cut.backward((1 + comm.rank // size) * dy[:, here])
        torch.testing.assert_close(own.grad, sum(range(1, copies + 1)) * rows.take(dy))
        assert mirrored.words("there") == n_own * (copies * WIDTH - c_own)

        whole = x[:, here].clone().requires_grad_()
        with Ledger(comm) as there:
            back = redistribute(whole, columns, rows, phase="back")
        assert torch.equal(back, rows.take(x))  # once, not once a copy
        assert there.words("back") == n_own * (WIDTH - c_own)

    run_ranks(work, ranks, "threads")


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_partial_sums_become_everybodys(ranks):
    def work(comm: Communicator) -> None:
        t = (numbers(3) * (comm.rank + 1)).requires_grad_()
        with Ledger(comm) as there:
            total = redistribute(t, Partial(comm), Replicated(comm), phase="scores")
        torch.testing.assert_close(total, numbers(3) * sum(range(1, ranks + 1)))
        with Ledger(comm) as mirrored:
            total.backward(numbers(3, 1) * (comm.rank + 1))  # everybody used it otherwise
        torch.testing.assert_close(t.grad, numbers(3, 1) * sum(range(1, ranks + 1)))
        assert words(there) == words(mirrored)
        moved = comm.all_reduce(torch.tensor([there.words("scores")]))
        assert int(moved) == 2 * (ranks - 1) * N * 3

    run_ranks(work, ranks, "threads")


@pytest.mark.parametrize(("ranks", "how"), CASES)
def test_partial_sums_are_added_up_at_their_owners(ranks, how):
    sizes = torch.bincount(parts_of(ranks, how), minlength=ranks).tolist()

    def work(comm: Communicator) -> None:
        first, own = sum(sizes[: comm.rank]), sizes[comm.rank]
        t = (numbers(3) * (comm.rank + 1)).requires_grad_()
        with Ledger(comm) as there:
            mine = redistribute(t, Partial(comm), Stacked(comm, sizes), phase="pull")
        torch.testing.assert_close(mine, (numbers(3) * sum(range(1, ranks + 1)))[first : first + own])
        assert there.words("pull") == (ranks - 1) * own * 3
        with Ledger(comm) as mirrored:
            mine.backward(numbers(3, 1)[first : first + own])
        assert torch.equal(t.grad, numbers(3, 1))  # every rank's share is one summand
        assert mirrored.words("errors") == (N - own) * 3

    run_ranks(work, ranks, "threads")


@pytest.mark.parametrize(("ranks", "how"), CASES)
def test_rows_are_taken_and_collected_by_vertex_number(ranks, how):
    x = numbers()

    def work(comm: Communicator) -> None:
        rows = layout(comm, how)
        assert rows.count == N
        for thing in (x, x[:, 0], x.view(N, 1, WIDTH), torch.arange(N)):
            assert torch.equal(rows.collect(rows.take(thing)), thing)
        assert torch.equal(redistribute(rows.take(x), rows, Replicated(comm)), x)

    run_ranks(work, ranks, "threads")


def test_a_way_that_there_is_not_is_named():
    def work(comm: Communicator) -> None:
        with pytest.raises(TypeError, match="no way from Replicated to Rows"):
            redistribute(numbers(), Replicated(comm), layout(comm, "even"))

    run_ranks(work, 1, "threads")
