"""What the papers' algorithms move is what the papers say, word for word: their formulas with true blocks."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from weft.bench.baselines import make, train
from weft.bench.baselines.baseline import Problem
from weft.bench.baselines.words import baseline_words, beside
from weft.bench.words import with_features
from weft.comm import Ledger, run_ranks
from weft.graph import er, write_store
from weft.parallel import Blocks, Grid
from weft.partition import measure, partition_graph

N, F = 144, 24  # every side below divides both, so that the formulas are exact


@pytest.fixture(scope="module")
def graph():
    return with_features(er(nodes=N, degree=5, directed=True), F)


def steps(name, ranks, graph, blocking=0):
    """Phase → words into each rank, of each equation by itself."""

    def work(comm):
        problem = Problem.of(graph, F, 2)
        one = make(name, comm, problem.a, Blocks.even(N, Grid(ranks)), blocking)
        x, w = one.take(problem.x), problem.weights[0]
        books = {}
        with Ledger(comm) as books["product"]:
            t = one.product(x)
        with Ledger(comm) as books["times"]:
            one.times(t, w)
        with Ledger(comm) as books["complete"]:
            one.complete(t, F)
        with Ledger(comm) as books["outer"]:
            one.outer(x, t, (F, F))
        return {step: {p: book.words(p) for p in book.phases} for step, book in books.items()}

    return run_ranks(work, ranks, "threads")


def each(answers, step, phase):
    return [answer[step].get(phase, 0) for answer in answers]


@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_one_d_receives_n_f_but_for_its_own_block(graph, ranks):
    """α(P − 1) + (P − 1)/P · β n f (IV-A.1); an all-reduce of f² (IV-A.4)."""
    found = steps("cagnet-1d", ranks, graph)
    assert each(found, "product", "broadcast H") == [(ranks - 1) * N * F // ranks] * ranks
    assert each(found, "outer", "weights") == [2 * F * F * (ranks - 1) // ranks] * ranks
    assert not any(each(found, "times", "broadcast T"))
    assert not any(each(found, "complete", "complete"))


@pytest.mark.parametrize(("ranks", "c"), [(4, 2), (8, 2), (16, 4), (36, 6)])
def test_one_and_a_half_d_receives_n_f_over_c_and_a_sum_of_n_f_c_over_p(graph, ranks, c):
    """β(nf/c + nfc/P) (IV-B.1): a rank in whose chunk its own block is receives one block less."""
    found = steps("cagnet-1.5d", ranks, graph)
    block, stages = N * F * c // ranks, ranks // c**2
    own = [rank // c // stages == rank % c for rank in range(ranks)]
    assert each(found, "product", "broadcast H") == [block * (stages - mine) for mine in own]
    assert max(each(found, "product", "broadcast H")) == N * F // c
    # A ring's all-reduce of m words receives 2m(c − 1)/c: the paper's m where c = 2.
    assert each(found, "product", "sum T") == [2 * block * (c - 1) // c] * ranks


def blocks_of_a(graph, a, b, c):
    """Entries of A[I_i, C(j, k)] as [a, b, c]."""
    dense = (Problem.of(graph, F, 2).a.dense() != 0).long()
    piece, width = N // (a * c), N // (b * c)
    inner = torch.stack(
        [torch.cat([torch.arange(piece) + piece * (i * c + k) for i in range(a)]) for k in range(c)]
    )
    rows, columns = (
        dense.split(N // a),
        [[inner[k, j * width : (j + 1) * width] for k in range(c)] for j in range(b)],
    )
    return [[[int(rows[i][:, columns[j][k]].sum()) for k in range(c)] for j in range(b)] for i in range(a)]


@pytest.mark.parametrize(
    ("name", "a", "b", "c"),
    [("cagnet-2d", 2, 2, 1), ("cagnet-2d", 4, 2, 1), ("cagnet-2d", 4, 4, 1), ("cagnet-3d", 2, 2, 2),
     ("cagnet-3d", 4, 2, 2)],
)  # fmt: skip
@pytest.mark.parametrize("blocking", [0, 9])
def test_summa_moves_the_papers_words(graph, name, a, b, c, blocking):
    """IV-C.1, C.2, C.4, C.6 and IV-D.1, D.4, with (1 − 1/side) for the own block."""
    ranks = a * b * c
    found = steps(name, ranks, graph, blocking)
    whole = blocks_of_a(graph, a, b, c)
    place = [(rank // (b * c), rank % (b * c) // c, rank % c) for rank in range(ranks)]
    others = [sum(whole[i][q][k] for q in range(b) if q != j) for i, j, k in place]
    assert each(found, "product", "broadcast A") == others  # nnz/(a·c) but for the own block
    assert each(found, "product", "broadcast H") == [N * F // (b * c) * (a - 1) // a] * ranks
    assert each(found, "product", "sum T") == [N * F // (a * b) * (c - 1) // c] * ranks
    row = N * F // (a * c) * (b - 1) // b
    assert each(found, "times", "broadcast T") == [row] * ranks
    assert each(found, "complete", "complete") == [row] * ranks
    assert each(found, "outer", "outer") == [row + N * F // (b * c) * (a - 1) // a] * ranks
    assert max(each(found, "outer", "transpose")) <= N * F // ranks
    if not blocking:  # indices, and the row lengths of every block that comes
        mesh = [N // a * len({q for q in range(b) if q != j}) for _, j, _ in place]
        pieces = a * b if a != b else b  # stretches end where either owner changes
        stages = mesh if pieces == b else [m * (max(a, b) // b) for m in mesh]
        assert each(found, "product", "pattern") == [n + s for n, s in zip(others, stages, strict=True)]


@pytest.mark.parametrize("name", ["cagnet-2d", "cagnet-3d"])
def test_an_epoch_is_never_above_the_papers_total(graph, name):
    """IV-C.5 and IV-D.5 count all-gathers and a fibre's share that ReLU and complete rows do not need."""
    ranks, layers, nnz = (16 if name == "cagnet-2d" else 27), 3, Problem.of(graph, F, 2).a.arcs
    side = ranks**0.5 if name == "cagnet-2d" else ranks ** (2 / 3)
    words = [a["words"] for a in run_ranks(train, ranks, "threads", graph, None, name, F, layers, 1)]
    mean = sum(sum(w.values()) - w["pattern"] - w["weights"] - w["loss"] for w in words) / ranks
    assert mean <= layers * ((8 if ranks == 16 else 12) * N * F + 2 * nnz) / side


def test_pgcn_moves_connectivity_minus_one_rows_forward_and_back(graph):
    """Σ_j (λ_j − 1) · Σ_k (d_{k−1} + d_k), equation (11); Aᵀ has its own λ where arcs have a direction."""
    ranks, hidden, layers = 5, 10, 3
    parts = partition_graph(graph, ranks, "metis")
    answers = run_ranks(train, ranks, "threads", graph, parts, "pgcn", hidden, layers, 1)
    widths = [F, hidden, hidden, F]
    forward = measure(graph.with_self_loops(), parts, ranks).volume_total
    back = measure(graph.with_self_loops().transposed(), parts, ranks).volume_total
    want = forward * sum(widths[:-1]) + back * sum(widths[1:])
    assert sum(a["words"]["halo"] for a in answers) == want
    assert forward != back


def test_weft_moves_less_than_every_paper(graph):
    rows = baseline_words(graph, [8], 3)
    assert [row["algorithm"] for row in rows] == [
        "cagnet-1d",
        "cagnet-1.5d",
        "cagnet-2d",
        "cagnet-3d",
        "pgcn",
    ]
    for row in rows:
        assert row["ratio"] == row["weft_epoch"] / row["epoch"] < 0.75, row
        assert (row["epoch_of_a"] > 0) == (row["algorithm"] in ("cagnet-2d", "cagnet-3d"))


def test_the_same_ranks_take_every_algorithm_in_turn_and_meter_what_each_alone_does(graph, tmp_path):
    write_store(graph, tmp_path / "graph.weft")
    np.save(tmp_path / "parts.npy", partition_graph(graph, 4, "random").numpy())
    told = run_ranks(beside, 4, "threads", str(tmp_path), 3, 2)
    apart = baseline_words(graph, [4], 3)
    for rows, alone in zip(zip(*told, strict=True), apart, strict=True):
        assert {row["algorithm"] for row in rows} == {alone["algorithm"]}
        assert all(len(row["seconds"]) == len(row["weft_seconds"]) == 2 for row in rows)
        for key in ("epoch", "weft_epoch"):
            assert max(row[key] for row in rows) == alone[key], (alone["algorithm"], key)
