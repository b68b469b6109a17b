"""Words and messages from block sizes alone: against counting, the papers' formulas, and the ledger."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from weft.comm import Communicator, Ledger, run_ranks
from weft.graph import Graph
from weft.parallel import Blocks, Grid, Operator, Volume

from .cases import check, directed, factorisations, numbers, propagated, received
from .formulas import Move, count_moves, dense_lines, propagation

side = st.integers(1, 4)


def connectivity(graph: Graph, parts: torch.Tensor, rank: int) -> int:
    """Vertices of other parts with an arc into this one: its share of Σ (λ − 1)."""
    into = parts[graph.rows] == rank
    sources = graph.indices.long()[into].unique()
    return int((parts[sources] != rank).sum())


def foretold(blocks: Blocks, width: int, **options: bool) -> list[Volume]:
    ranks = range(blocks.grid.size)
    return [propagation(blocks, p, width, *dense_lines(blocks, p), **options) for p in ranks]


@given(side, side, side, st.integers(1, 3), st.integers(1, 5))
def test_even_blocks_give_the_formula_of_the_design(r, k, f, rows, columns):
    """2·(n·w/P)(f−1)/f + (n·w/(k·f))(r−1)/r + (n·w/(r·f))(k−1)/k, where everything divides."""
    ranks = r * k * f
    n, w = rows * ranks, columns * f
    blocks = Blocks.even(n, Grid(r, k, f))
    per_rank = (
        2 * n * w // ranks * (f - 1) // f + n * w // (k * f) * (r - 1) // r + n * w // (r * f) * (k - 1) // k
    )
    for volume in foretold(blocks, w, backward=False):
        assert sum(volume.words.values()) == per_rank
    # Backward is the mirror: gather and reduce change places.
    for there, back in zip(
        foretold(blocks, w, backward=False), foretold(blocks, w, forward=False), strict=True
    ):
        assert sum(back.words.values()) == per_rank
        assert there.words.get("gather", 0) == n * w // (k * f) * (r - 1) // r
        assert back.words.get("gather", 0) == n * w // (r * f) * (k - 1) // k


@given(st.data())
def test_every_word_sent_is_received_whatever_the_blocks(data):
    """Counted from the sender's side, block by block."""
    grid = Grid(data.draw(side), data.draw(side), data.draw(side))
    parts = data.draw(st.lists(st.integers(0, grid.size - 1), max_size=25))
    width = data.draw(st.integers(1, 6))
    blocks = Blocks.of_parts(torch.tensor(parts, dtype=torch.int64), grid)
    columns = blocks.columns(width)
    sent = dict.fromkeys(("split", "gather", "reduce", "join"), 0)
    for rank in range(grid.size):
        i, k, f = grid.place(rank)
        union = blocks.union(i, k)[1] - blocks.union(i, k)[0]
        sent["split"] += blocks.sizes[rank] * (width - columns[f])
        sent["join"] += (union - blocks.sizes[rank]) * columns[f]
        sent["gather"] += union * columns[f] * (grid.row - 1)
        slab = blocks.slab(i)[1] - blocks.slab(i)[0]
        sent["reduce"] += (slab - union) * columns[f]
    got = {
        phase: sum(v.words.get(phase, 0) for v in foretold(blocks, width, backward=False)) for phase in sent
    }
    assert got == sent


@pytest.mark.parametrize("ranks", [2, 3, 5, 8])
@pytest.mark.parametrize("width", [1, 6])
def test_halo_words_are_the_connectivity_volume_times_the_width(ranks, width):
    """On P×1×1 with sparse exchange: exactly the vertices read and not owned, counted from the graph."""
    graph = directed(53, degree=5)
    g = torch.Generator().manual_seed(ranks)
    parts = torch.randint(ranks, (53,), generator=g)

    def work(comm: Communicator) -> None:
        a = Operator.build(
            graph, comm, Grid(ranks), "none", "sparse", Blocks.of_parts(parts, Grid(ranks)), torch.float64
        )
        with Ledger(comm) as books:
            a @ a.layout.take(numbers(53, width))
        assert books.words() == books.words("gather") == connectivity(graph, parts, comm.rank) * width

    run_ranks(work, ranks, "threads")
    total = sum(connectivity(graph, parts, p) for p in range(ranks))
    nets = [{int(parts[j])} | set(parts[graph.rows[graph.indices == j]].tolist()) for j in range(53)]
    assert total == sum(len(net) - 1 for net in nets)


@pytest.mark.parametrize("shape", factorisations(8))
def test_sparse_never_moves_more_than_dense(shape):
    graph = directed(41)

    def work(comm: Communicator, exchange: str) -> int:
        a = Operator.build(graph, comm, Grid(*shape), "gcn", exchange)
        return sum(a.foretell(lambda dry: propagated(dry, 4)).words.values())

    dense, sparse = (run_ranks(work, 8, "threads", exchange) for exchange in ("dense", "sparse"))
    assert all(s <= d for s, d in zip(sparse, dense, strict=True))
    assert shape == (1, 1, 8) or sum(sparse) < sum(dense)


@pytest.mark.parametrize("shape", factorisations(6))
def test_forward_alone_backward_alone_and_several_widths_are_foretold(shape):
    graph = directed(29)

    def work(comm: Communicator) -> None:
        a = Operator.build(graph, comm, Grid(*shape), "mean", dtype=torch.float64)
        both = Volume()
        for width in (3, 8):
            h = a.layout.take(numbers(29, width)).requires_grad_()
            with Ledger(comm) as books:
                y = a @ h
            forward = count_moves(a, [Move("propagate", width)], backward=False)
            assert received(books) == (forward.words, forward.messages)
            with Ledger(comm) as books:
                y.sum().backward()
            backward = count_moves(a, [Move("propagate", width)], forward=False)
            assert received(books) == (backward.words, backward.messages)
            both = both + forward + backward
        assert a.foretell(lambda dry: [propagated(dry, width) for width in (3, 8)]) == both
        assert a.foretell(lambda dry: None) == Volume()

    run_ranks(work, 6, "threads")


def test_no_gradient_is_sent_where_nobody_asks_for_it():
    def work(comm: Communicator) -> None:
        a = Operator.build(directed(29), comm, Grid(2, 2, 1), dtype=torch.float64)
        weight = numbers(4, 2).requires_grad_()
        with Ledger(comm) as books:
            (a @ a.layout.take(numbers(29, 4)) @ weight).sum().backward()
        once = a.foretell(lambda dry: propagated(dry, 4, backward=False))
        assert received(books) == (once.words, once.messages)

    run_ranks(work, 4, "threads")


def test_a_wrong_prediction_is_caught(monkeypatch):
    """Off by a single word, and the comparison of every grid's test fails."""
    case = ((2, 2, 2), "dense", "gcn", ("sum",), 31, 5, False, "even", True)
    run_ranks(check, 8, "threads", *case)
    honest = Volume.of.__func__

    def careless(cls, books) -> Volume:
        right = honest(cls, books)
        return right + Volume({"gather": 1}, {})

    monkeypatch.setattr(Volume, "of", classmethod(careless))
    with pytest.raises(AssertionError, match="words"):
        run_ranks(check, 8, "threads", *case)


def test_volumes_add_up_by_phase():
    total = Volume({"gather": 3}, {"gather": 1}) + Volume({"join": 4, "gather": 2}, {"join": 2, "gather": 1})
    assert total == Volume({"gather": 5, "join": 4}, {"gather": 2, "join": 2})
