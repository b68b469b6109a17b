"""The operator of a subgraph over all ranks: the dense submatrix, and Σ (λ − 1) · w words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from weft.comm import Communicator, Ledger, run_ranks
from weft.parallel import Blocks, Grid, Restriction, Rows
from weft.parallel.source import Arcs
from weft.partition import batch_volume

N = 13


def drawn(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """(V′, A′ as a dense matrix of all vertices, 0 outside V′): directed, some rows empty, weighted."""
    g = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(N, generator=g)[: 1 + seed % N].sort().values
    a = torch.rand(N, N, generator=g, dtype=torch.float64) * (torch.rand(N, N, generator=g) < 0.3)
    inside = torch.zeros(N, dtype=torch.bool)
    inside[chosen] = True
    return chosen, a * inside * inside[:, None]


def owners(ranks: int, seed: int) -> torch.Tensor:
    """[N] the rank of each vertex; some ranks may have none."""
    return torch.randint(ranks, (N,), generator=torch.Generator().manual_seed(100 + seed))


def multiply(comm: Communicator, seed: int, width: int) -> dict[str, Any]:
    parts = owners(comm.size, seed)
    layout = Rows(comm, Blocks.of_parts(parts, Grid(comm.size)))
    chosen, a = drawn(seed)
    places = torch.tensor([k for k, v in enumerate(layout.ids.tolist()) if v in chosen.tolist()]).long()
    mine = layout.ids[places]
    row, vertex = a[mine].nonzero(as_tuple=True)
    made = Restriction(layout)
    x = torch.arange(N * width, dtype=torch.float64).view(N, width).cos()
    h = x[mine].requires_grad_()
    with Ledger(comm) as books:
        A = made.operator(places, Arcs(row, vertex, a[mine][row, vertex]), torch.float64)
        y = A @ h
        (y * y).sum().backward()
    assert torch.equal(A.rows, mine)
    assert torch.equal(made.places(mine), torch.arange(mine.numel()))
    assert torch.equal(A.degrees.ravel().long(), (a[mine] != 0).sum(1))
    whole = a @ x
    assert torch.allclose(y, whole[mine], rtol=0, atol=1e-12)
    assert torch.allclose(h.grad, (2 * a.T @ whole)[mine], rtol=0, atol=1e-12)
    rows, columns = a.nonzero(as_tuple=True)
    volume = batch_volume(rows.numpy(), columns.numpy(), np.asarray(parts), comm.size)
    return {"words": {p: books.words(p) for p in ("plan", "gather", "reduce")}, "volume": volume}


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
def test_a_subgraph_is_the_dense_submatrix_and_moves_a_row_once_a_reader(ranks):
    for seed in range(6):
        width = 1 + seed
        found = run_ranks(multiply, ranks, "threads", seed, width)
        total = {p: sum(f["words"][p] for f in found) for p in ("plan", "gather", "reduce")}
        volume = found[0]["volume"]
        assert total["gather"] == total["reduce"] == volume * width
        assert total["plan"] == (volume + ranks * (ranks - 1) if ranks > 1 else 0)


def test_the_rows_of_one_subgraph_leave_nothing_behind_for_the_next():
    """The scratch of places is written, never cleared: vertices of the last step must not be found."""

    def work(comm: Communicator) -> list[float]:
        layout = Rows(comm, Blocks.even(4, Grid(2)))
        made, found = Restriction(layout), []
        # Rank 0 has vertices 0, 1; rank 1 has 2, 3. First all of them, then 1 and 3 with the arc 3 → 1.
        for places, column in ((torch.arange(2), 2), (torch.tensor([1]), 3)):
            own = comm.rank == 0
            row = torch.tensor([places.numel() - 1] if own else []).long()
            arcs = Arcs(row, torch.tensor([column] if own else []).long(), None)
            A = made.operator(places, arcs, torch.float64)
            h = (layout.ids[places] + 10.0).double()[:, None]
            found.append(float((A @ h).sum()))
        return found

    assert run_ranks(work, 2, "threads") == [[12.0, 13.0], [0.0, 0.0]]
