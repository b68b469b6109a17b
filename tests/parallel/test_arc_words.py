"""Every cell of the tables of words in docs/algorithms/arcs.md, against the ledger, on every rank."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from weft.comm import Communicator, Ledger, ledger, run_ranks
from weft.graph import Graph
from weft.nn import GATLayer, VALayer
from weft.nn.arcs import GatedLayer, GATv2Layer, GINELayer, PNALayer, RGCNLayer, TransformerLayer
from weft.parallel import Grid, Operator

from .cases import Shape, directed, numbers, owners, received
from .formulas import line_of

PAGE = Path(__file__).parents[2] / "docs" / "algorithms" / "arcs.md"
IN, OUT, H, T, BASES, KINDS = 7, 9, 3, 4, 2, 5
"""Widths of which no two give the same word counts by chance."""
HEADED: dict[str, Any] = {"heads": H, "arcs": T}
LAYERS: dict[str, tuple[Callable[[], torch.nn.Module], int]] = {
    "gat with features": (lambda: GATLayer(IN, OUT, **HEADED), OUT),
    "gatv2": (lambda: GATv2Layer(IN, OUT, **HEADED), OUT),
    "transformer": (lambda: TransformerLayer(IN, OUT, **HEADED), OUT),
    "gine": (lambda: GINELayer(IN, OUT, arcs=T), IN),
    "resgated": (lambda: GatedLayer(IN, OUT, arcs=T), OUT),
    "pna": (lambda: PNALayer(IN, OUT, arcs=T), IN),
    "rgcn with bases": (lambda: RGCNLayer(IN, OUT, relations=KINDS, bases=BASES), OUT),
    "rgcn": (lambda: RGCNLayer(IN, OUT, relations=KINDS), OUT),
}
"""Name in the tables → (the layer, its w)."""
PHASES = ("split", "gather", "reduce", "join")


def table(first: str) -> list[list[str]]:
    """The rows of the page's table whose head has this first line, cell by cell."""
    lines = PAGE.read_text().split(first + "\n")[1].splitlines()[1:]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[: lines.index("")]]
    for above, row in pairwise(rows):
        row[0] = (row[0] or above[0]).replace("`", "")
    rows[0][0] = rows[0][0].replace("`", "")
    return rows


def value(cell: str, known: dict[str, Any]) -> int:
    """A cell as a number: `2 T₁(h·t)` is 2 * T1(h * t)."""
    text = re.sub(r"(\d)\s*([A-Za-z])", r"\1 * \2", cell.replace("·", " * ").replace("₁", "1"))
    return int(eval(text, {"__builtins__": {}}, known))


@functools.cache
def carrying(n: int) -> Graph:
    plain = directed(n)
    data = {"features": numbers(plain.num_arcs, T, seed=3), "type": torch.arange(plain.num_arcs) % KINDS}
    return Graph(plain.indptr, plain.indices, arc_data=data)


def built(comm: Communicator, shape: Shape, exchange: str, n: int, parts: str = "even") -> Operator:
    grid = Grid(*shape)
    return Operator.build(
        carrying(n), comm, grid, "none", exchange, owners(parts, n, grid), torch.float64,
        data=("features", "type"),
    )  # fmt: skip


def moved(comm: Communicator, A: Operator, name: str) -> tuple[dict[str, int], dict[str, int]]:
    """Words by phase of one layer: (forward, back)."""
    layer = LAYERS[name][0]().double()
    x = A.layout.take(numbers(A.layout.count, IN, seed=1)).requires_grad_()
    _ = A.degrees  # counted once, as kinds are
    A.entries.share_of_kind("type", KINDS)
    with Ledger(comm) as there:
        y = layer(A, x)
    with Ledger(comm) as back:
        y.backward(torch.ones_like(y))
    return received(there)[0], received(back)[0]


def symbols(A: Operator, name: str, phase: str) -> dict[str, Any]:
    """S, T, F and the others of one rank, by the sizes of its plan."""
    blocks, rank = A.layout.blocks, A.layout.comm.rank
    line = blocks.grid.peers(rank, "feature")
    place, own = line.index(rank), blocks.sizes[rank]
    others = [blocks.sizes[peer] for peer in line if peer != rank]
    row, inner = (
        sum(side.give if phase == "reduce" else side.need)
        for side in (line_of(A.plan.row), line_of(A.plan.inner))
    )

    def mine(w: int) -> int:
        return blocks.columns(w)[place]

    def feature(w: int) -> int:
        return sum(others) * mine(w) if phase == "split" else own * (w - mine(w))

    def arcs(h: int) -> int:
        # Attention's sums go block by block, those of numbers per arc together.
        blocks_of = [sum(A.plan.arcs)] if name.startswith("rgcn") else A.plan.arcs
        return sum(ledger.all_reduce(count * h, place, len(line)).words for count in blocks_of)

    bases = BASES if name == "rgcn with bases" else KINDS
    return {
        "S": lambda w: row * mine(w), "T": lambda w: inner * mine(w), "F": feature, "E": arcs,
        "S1": lambda w: row * w, "T1": lambda w: inner * w, "F1": lambda w: sum(others) * w,
        "w": LAYERS[name][1], "h": H, "t": T, "b": bases,
    }  # fmt: skip


def check_cells(comm: Communicator, shape: Shape, exchange: str, parts: str) -> None:
    A = built(comm, shape, exchange, 31, parts)
    rows = table("| model | way | split | gather | reduce | join |")
    found = {name: dict(zip(("forward", "back"), moved(comm, A, name), strict=True)) for name in LAYERS}
    seen = set()
    for name, way, *cells in rows:
        for phase, cell in zip(PHASES, cells, strict=True):
            want = value(cell, symbols(A, name, phase))
            assert found[name][way].pop(phase, 0) == want, (name, way, phase, shape, exchange, comm.rank)
        assert not found[name][way], "a phase that the table does not have"
        seen.add((name, way))
    assert seen == {(name, way) for name in LAYERS for way in ("forward", "back")}


@pytest.mark.parametrize("exchange", ["dense", "sparse"])
@pytest.mark.parametrize(
    ("shape", "parts"),
    [((3, 1, 1), "random"), ((2, 2, 1), "even"), ((2, 1, 2), "even"), ((1, 1, 3), "random"),
     ((2, 2, 2), "even"), ((1, 2, 3), "random")],
)  # fmt: skip
def test_each_cell_is_what_every_rank_receives(shape, parts, exchange):
    run_ranks(check_cells, shape[0] * shape[1] * shape[2], "threads", shape, exchange, parts)


def check_sums(comm: Communicator, shape: Shape, columns: tuple[int, int], rows: int) -> None:
    A = built(comm, shape, "dense", 32)
    lines = table("| model | 1d, forward | 1d, back | √P × √P, forward | √P × √P, back |")
    assert [line[0] for line in lines] == list(LAYERS)
    for name, *cells in lines:
        for words, column in zip(moved(comm, A, name), columns, strict=True):
            want = rows * value(cells[column], symbols(A, name, "gather"))
            assert sum(words.values()) == want, (name, shape, cells[column])


@pytest.mark.parametrize(("shape", "columns", "rows"), [((4, 1, 1), (0, 1), 24), ((2, 2, 1), (2, 3), 8)])
def test_even_blocks_move_so_many_rows(shape, columns, rows):
    run_ranks(check_sums, 4, "threads", shape, columns, rows)


def weighted_va(comm: Communicator, how: str) -> int:
    n, grid = 32, Grid(4)
    A = Operator.build(directed(n), comm, grid, how, dtype=torch.float64)
    x = A.layout.take(numbers(n, IN)).requires_grad_()
    with Ledger(comm) as books:
        VALayer(IN, OUT).double()(A, x).sum().backward()
    return sum(received(books)[0].values())


def test_entries_that_are_not_all_one_move_twice_as_much():
    """As docs/algorithms/attention.md says of VA on P × 1 × 1."""
    rows = 32 * 3 // 4
    assert run_ranks(weighted_va, 4, "threads", "loops") == [3 * rows * IN] * 4
    assert run_ranks(weighted_va, 4, "threads", "mean") == [6 * rows * IN] * 4
