from __future__ import annotations

import pytest
import torch
from torch import Tensor

from weft.comm import Communicator, Ledger, run_ranks
from weft.parallel import Blocks, ByBlocks, Cyclic, Fetch, Grid, Owners, counted, fetch

N, WIDTH = 23, 3


def received(books: Ledger) -> tuple[dict[str, int], dict[str, int]]:
    """Ranks that are processes load this file by itself, so it imports nothing of its neighbours."""
    phases = [phase for phase in books.phases if books.words(phase)]
    return {p: books.words(p) for p in phases}, {p: books.messages(p) for p in phases}


def owners_of(kind: str, ranks: int) -> Owners:
    if kind == "cyclic":
        return Cyclic(N, ranks)
    grid = Grid(ranks)
    if kind == "lumps":  # some ranks own nothing
        return ByBlocks(Blocks.of_parts((torch.arange(N) ** 2 + 2) % 7 * ranks // 8, grid))
    return ByBlocks(Blocks.even(N, grid, seed=1))


def by_hand(need: list[int], give: list[int], rank: int) -> tuple[dict[str, int], dict[str, int]]:
    """(words, messages) that `rank` receives, from how many distinct rows go where.

    ask   Σ over p ≠ rank of 1 + give(p)    a count and the ids that p wants
    pull  Σ over p ≠ rank of need(p) · w
    back  Σ over p ≠ rank of give(p) · w
    """
    others = [p for p in range(len(need)) if p != rank]
    sent = {
        "ask": [1] * len(others) + [give[p] for p in others],
        "pull": [need[p] * WIDTH for p in others],
        "back": [give[p] * WIDTH for p in others],
    }
    words = {phase: sum(counts) for phase, counts in sent.items() if any(counts)}
    return words, {phase: sum(1 for n in sent[phase] if n) for phase in words}


def wanted(rank: int) -> Tensor:
    """Rank 0 wants nothing; the others want different numbers of rows, some of them several times."""
    return torch.randint(N, (7 * rank,), generator=torch.Generator().manual_seed(rank))


def check(comm: Communicator, kind: str) -> None:
    owners = owners_of(kind, comm.size)
    x = torch.randn(N, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    own = owners.own(comm.rank)
    x_own = x[own].requires_grad_()
    ids = wanted(comm.rank)
    dy = (ids[:, None] + comm.rank + torch.arange(WIDTH)).double()
    with Ledger(comm) as books:
        y = fetch(x_own, ids, owners, comm)
        y.backward(dy)
    assert torch.equal(y.detach(), x[ids])
    # Whole numbers add up exactly, in any order.
    dx = torch.zeros(N, WIDTH, dtype=torch.float64)
    for rank in range(comm.size):
        theirs = wanted(rank)
        dx.index_add_(0, theirs, (theirs[:, None] + rank + torch.arange(WIDTH)).double())
    assert x_own.grad is not None
    assert torch.equal(x_own.grad, dx[own])
    # Words from what everybody wants, counted here without the plan.
    need = [int(torch.isin(ids.unique(), owners.own(p)).sum()) for p in range(comm.size)]
    give = [int(torch.isin(wanted(p).unique(), own).sum()) for p in range(comm.size)]
    assert received(books) == by_hand(need, give, comm.rank)

    def dry(wrap) -> None:
        plan = Fetch(wrap(comm), owners, ids)
        rows = plan.rows(torch.empty(own.numel(), WIDTH, device="meta", requires_grad=True))
        rows.backward(torch.empty_like(rows))

    foretold = counted(comm, lambda wrap: lambda: dry(wrap))
    assert received(books) == (foretold.words, foretold.messages)
    # By hand what autograd did: rows that are posted, and gradients that are sent home.
    plan = Fetch(comm, owners, ids)
    assert torch.equal(plan.take(plan.post(x_own)), x[ids])
    assert torch.equal(plan.back(dy, own.numel()), dx[own])


@pytest.mark.parametrize("kind", ["cyclic", "random", "lumps"])
@pytest.mark.parametrize("ranks", [1, 2, 3, 8, 25])
def test_rows_and_gradients_find_their_owners_with_the_predicted_words(ranks, kind):
    run_ranks(check, ranks, "threads", kind)


def test_a_plan_serves_other_rows():
    def work(comm: Communicator) -> None:
        owners = Cyclic(N, comm.size)
        ids = torch.arange(comm.rank, N, 2)
        with Ledger(comm) as books:
            plan = Fetch(comm, owners, ids, distinct=True)
            first = plan.rows(owners.own(comm.rank)[:, None].double())
        assert sum(received(books)[0].values()) > 0
        assert torch.equal(first.ravel(), ids.double())
        labels = plan.rows(owners.own(comm.rank)[:, None] * 2)  # whole numbers travel too
        assert torch.equal(labels.ravel(), ids * 2)

    run_ranks(work, 3, "threads")


def test_every_vertex_has_one_owner_and_one_place():
    for kind in ("cyclic", "random", "lumps"):
        owners = owners_of(kind, 4)
        owner, place = owners.find(torch.arange(N))
        for v in range(N):
            assert int(owners.own(int(owner[v]))[place[v]]) == v


def test_a_vector_is_refused():
    with pytest.raises(ValueError, match=r"x_own must be \[n_own, w\]"):
        run_ranks(lambda comm: fetch(torch.ones(5), torch.tensor([1]), Cyclic(5, 1), comm), 1, "threads")


def many(comm: Communicator) -> int:
    for kind in ("cyclic", "random", "lumps"):
        check(comm, kind)
    return comm.size


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_real_ranks_find_their_owners(mpi_ranks, ranks):
    assert mpi_ranks(many, ranks) == [ranks] * ranks
