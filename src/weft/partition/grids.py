"""An assignment for a grid: parts of the vertex set arranged as row × inner.

On a grid the sparse exchange moves, for one propagation of width w,

    gather   w · Σ_j (λ^I_j − 1)    I(v) the slab of v:   slabs that own column j or read it
    reduce   w · Σ_v (λ^K_v − 1)    K(v) its inner slab:  inner slabs that own row v or write it

so the whole cost is two cuts, of the columns by I and of the rows by K, and U(i,k) = I⁻¹(i) ∩ K⁻¹(k) must be
of about equal work. Cutting into r · k parts first, by the nets of columns and rows alike, keeps work even,
because a good part reads mostly itself: A(i,k) is then mostly U(i,k) × U(i,k). What is left is who stands
where. Two parts of one slab exchange no columns, two of one inner slab no rows; so parts that exchange much
should share a line.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..graph import Graph, Store
from .arcs import distinct, rows_and_columns
from .methods import BY_ROWS, PartitionOptions, check_method, partition_graph
from .metrics import measure_rows
from .simple import block
from .walk import Walk

Shape = tuple[int, int, int]
"""(row, inner, feature) of a grid."""


def partition_for_grid(
    graph: Graph | Store, shape: Shape, method: str = "auto", options: PartitionOptions | None = None
) -> Tensor:
    """Who owns which vertex on a grid: rank (i, k, f) = (i · inner + k) · feature + f, [n] int64.

    Along `feature` only sizes matter: the vertices of U(i,k) are dealt out evenly.

    >>> from weft.graph import karate
    >>> parts = partition_for_grid(karate(), (2, 2, 2), "metis")
    >>> int(parts.max())
    7
    """
    options = options or PartitionOptions()
    row, inner, feature = shape
    check_method(method, row * inner * feature, graph.num_nodes, options)
    parts = partition_lines(graph, (row, inner), method, options)
    return spread_features(parts, row * inner, feature)


def partition_lines(
    graph: Graph | Store, shape: tuple[int, int], method: str, options: PartitionOptions
) -> Tensor:
    """The parts of row × inner, arranged.

    With rows alone only columns move: the column nets. With inner alone only rows: those of Aᵀ, and a part's
    work is that of its columns. With both, both.
    """
    parts = cut_for(graph, shape, method, options)
    if min(shape) == 1 or method in BY_ROWS:  # nobody has looked at all arcs, nor does who arranges
        return parts
    assert isinstance(graph, Graph)
    return arrange(graph, parts, shape, options.seed)


def nets_for(shape: tuple[int, int]) -> str:
    """What moves on row × inner: columns, rows or both.

    >>> nets_for((4, 1)), nets_for((1, 4)), nets_for((2, 2))
    ('columns', 'rows', 'both')
    """
    row, inner = shape
    return "columns" if inner == 1 else "rows" if row == 1 else "both"


def cut_for(graph: Graph | Store, shape: tuple[int, int], method: str, options: PartitionOptions) -> Tensor:
    """The parts of row × inner in any order: they depend on their number and on `nets_for(shape)` alone."""
    nets, count = nets_for(shape), shape[0] * shape[1]
    if method in BY_ROWS:
        return partition_graph(graph, count, method, options)
    assert isinstance(graph, Graph)
    if nets == "rows":
        return partition_graph(graph.transposed(), count, method, options)
    # Of a symmetric graph row nets are column nets: once is enough.
    both = nets == "both" and method == "hypergraph" and not graph.is_symmetric
    return partition_graph(graph, count, method, options, both)


def spread_features(parts: Tensor, count: int, feature: int) -> Tensor:
    """Part p becomes ranks p · feature + f, its vertices dealt out evenly in their order.

    >>> spread_features(torch.tensor([0, 1, 0, 0]), 2, 2).tolist()
    [0, 2, 0, 1]
    """
    if feature == 1:
        return parts
    order = torch.argsort(parts, stable=True).numpy()
    out, begin = np.empty(parts.numel(), dtype=np.int64), 0
    for part, size in enumerate(np.bincount(parts.numpy(), minlength=count).tolist()):
        out[order[begin : begin + size]] = part * feature + block(size, feature)
        begin += size
    return torch.from_numpy(out)


def crossings(
    graph: Graph, parts: Tensor | np.ndarray, shape: tuple[int, int],
    groups: tuple[Sequence[int], Sequence[int]] | None = None,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """(read, wrote): how many rows cross between the slabs of row × inner in one propagation.

    read[i, j, k]    columns of part (j, k) that an arc of slab i ≠ j reads             [row, row, inner]
    wrote[k', i, k]  rows of part (i, k) into which an arc of inner slab k' ≠ k writes  [inner, row, inner]
    groups           of slabs and of inner slabs: a group then stands for its members, and what several of
                     them read or write crosses to it once                             [groups, row, inner]

    >>> g = Graph.from_arcs([0, 0], [1, 2])                                # 1 and 2 read 0
    >>> crossings(g, [0, 1, 2], (3, 1))[0].sum(), crossings(g, [0, 1, 2], (3, 1), ([0, 1, 1], [0]))[0].sum()
    (np.int64(2), np.int64(1))
    """
    place = np.asarray(parts)
    rows, columns = rows_and_columns(graph)
    slab_of, inner_of = map(np.asarray, groups or (range(shape[0]), range(shape[1])))
    slab, inner = slab_of[place // shape[1]], inner_of[place % shape[1]]

    def count(vertex: np.ndarray, other: np.ndarray, span: int) -> np.ndarray:
        vertex, other = distinct(vertex, other, span)
        found = np.bincount(
            other * (shape[0] * shape[1]) + place[vertex], minlength=span * shape[0] * shape[1]
        )
        return found.reshape(span, *shape)

    across = slab[rows] != slab[columns]
    read = count(columns[across], slab[rows][across], int(slab_of.max()) + 1)
    across = inner[rows] != inner[columns]
    return read, count(rows[across], inner[columns][across], int(inner_of.max()) + 1)


def line_volumes(graph: Graph, parts: Tensor | np.ndarray, shape: tuple[int, int]) -> tuple[int, int]:
    """(gather, reduce): rows that move along row and along inner in one propagation.

    >>> g = Graph.from_arcs([0, 0, 1], [1, 2, 3])
    >>> line_volumes(g, torch.tensor([0, 1, 2, 3]), (2, 2))   # 2 and 3 read across slabs, 1 within its own
    (2, 1)
    """
    read, wrote = crossings(graph, parts, shape)
    return int(read.sum()), int(wrote.sum())


def block_imbalance(graph: Graph, parts: Tensor | np.ndarray, shape: tuple[int, int]) -> float:
    """How far the arcs of the largest block A(i,k) are above the mean: a rank's work on a grid.

    >>> block_imbalance(Graph.from_arcs([0, 1, 0, 0], [0, 1, 1, 2]), torch.tensor([0, 1, 1]), (1, 2))
    0.5
    """
    place = np.asarray(parts)
    rows, columns = rows_and_columns(graph)
    arcs = np.bincount(
        place[rows] // shape[1] * shape[1] + place[columns] % shape[1], minlength=shape[0] * shape[1]
    )
    return float(arcs.max() / arcs.mean()) - 1 if len(rows) else 0.0


def measure_lines(
    source: Graph | Store, parts: Tensor | np.ndarray, shape: tuple[int, int], buffer: int = 1 << 20
) -> tuple[int, int, float]:
    """`line_volumes` and `block_imbalance` in passes over the rows: (gather, reduce, imbalance).

    Gathered are the columns that cross between the slabs, as if these were the parts; what is written of a
    row is seen with the row. Held are 12 bytes a vertex and some rows.

    >>> g = Graph.from_arcs([0, 0, 1], [1, 2, 3])
    >>> measure_lines(g, torch.tensor([0, 1, 2, 3]), (2, 2))[:2]
    (2, 1)
    """
    place, (row, inner) = np.ascontiguousarray(parts, dtype=np.int32), shape
    gather = measure_rows(source, place // inner, row, buffer).volume_total
    arcs, reduce = np.zeros(row * inner, dtype=np.int64), 0
    for some in Walk.over(source, buffer).raw():
        rows = np.repeat(np.arange(some.begin, some.end), np.diff(some.indptr))
        mine, theirs = place[rows], place[some.columns] % inner
        arcs += np.bincount(mine // inner * inner + theirs, minlength=row * inner)
        crosses = mine % inner != theirs
        reduce += len(np.unique(rows[crosses] * inner + theirs[crosses]))
    return gather, reduce, float(arcs.max() / arcs.mean()) - 1 if arcs.any() else 0.0


def arrange(graph: Graph, parts: Tensor, shape: tuple[int, int], seed: int = 0, starts: int = 8) -> Tensor:
    """The same parts under other numbers, so that they cost less on row × inner.

    Between two parts cross `reads` columns and `writes` rows; swaps go downhill on

        Σ over p, q of reads[p, q] · [slabs differ] + writes[p, q] · [inner slabs differ]

    from several starts; the one with the least true volume wins, the given numbering among them.
    """
    row, inner = shape
    place = parts.numpy()
    rows, columns = rows_and_columns(graph)
    crosses = place[rows] != place[columns]
    rows, columns = rows[crosses], columns[crosses]
    count = row * inner

    def between(things: np.ndarray, others: np.ndarray) -> np.ndarray:
        thing, part = distinct(things, place[others], count)
        table = np.bincount(place[thing] * count + part, minlength=count * count).reshape(count, count)
        return table + table.T

    reads, writes = between(columns, rows), between(rows, columns)
    rng = np.random.default_rng(seed)
    best, least = parts, sum(line_volumes(graph, parts, shape))
    for start in range(starts):
        first = np.arange(count) if start == 0 else rng.permutation(count)
        made = torch.from_numpy(_descend(reads, writes, first, inner)[place])
        cost = sum(line_volumes(graph, made, shape))
        if cost < least:
            best, least = made, cost
    return best


def _descend(reads: np.ndarray, writes: np.ndarray, place: np.ndarray, inner: int) -> np.ndarray:
    """Swap the two parts whose swap gains most, until none does. place[p] = slab · inner + inner slab."""
    place = place.copy()
    count = len(place)
    for _ in range(10 * count):
        gain = np.zeros((count, count))
        for weights, group in ((reads, place // inner), (writes, place % inner)):
            same = np.eye(count // inner if weights is reads else inner)[group]  # [P, groups]
            kept = weights @ same  # what p exchanges with each group
            own = kept[np.arange(count), group]
            # p goes to q's group and q to p's; the pair itself stays as far apart as before.
            moved = kept[:, group] - own[:, None]
            gain += np.where(group[:, None] == group, 0, moved + moved.T - 2 * weights)
        p, q = np.unravel_index(int(gain.argmax()), gain.shape)
        if gain[p, q] <= 0:
            break
        place[p], place[q] = place[q], place[p]
    return place
