"""The arcs that a rank samples from: its own rows, those of more parts, or all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ..comm import Communicator
from ..comm.threads import single
from ..errors import UserError
from ..graph import Store
from ..memory import empty
from ..nn import Model
from ..nn.layer import data_of
from ..parallel import Blocks, ByBlocks, Cyclic, Owners
from ..parallel.source import Source, count_arcs_of, data_bytes, loop_data, read_arcs, read_normalised


@dataclass(frozen=True)
class Reads:
    """Which matrix a layer multiplies with, entry by entry.

    how     the normalisation: gcn, mean, none, loops (`weft.graph.normalise`)
    loops   every vertex reads itself, always: the loop is not left to chance
    scaled  entries of a sampled row are multiplied by degree / picks, so that a sum keeps its mean
    values  whether the entries matter at all; attention makes its own
    data    the names of what arcs carry and the layers read
    """

    how: str
    loops: bool = False
    scaled: bool = True
    values: bool = True
    data: tuple[str, ...] = ()


def reads_of(model: Model) -> Reads:
    """The matrix that sampled blocks of a model are made of: one for all hops.

    >>> from weft.nn import ModelConfig, build
    >>> reads_of(build(ModelConfig("gcn"), 3, 2))
    Reads(how='gcn', loops=True, scaled=True, values=True, data=())
    """
    how = model.adjacency
    wishes = {getattr(layer, "scaled", None) for layer in model.layers}
    if len(wishes) > 1:
        kinds = ", ".join(sorted({type(layer).__name__ for layer in model.layers}))
        raise UserError(
            f"the layers {kinds} disagree on whether sampled sums are scaled. Give all the same `scaled`."
        )
    wish = wishes.pop()
    scaled = how != "loops" if wish is None else bool(wish)
    values = (how != "loops" and model.weighted) or scaled
    return Reads(how, how in ("gcn", "loops"), scaled, values, data_of(model.layers))


class RowsOf:
    """The row of each vertex where a rank holds some parts, one after the other: found through the owners.

    >>> from weft.parallel import Cyclic
    >>> RowsOf(Cyclic(7, 3), [2, 0], [3, 2, 2]).find(torch.tensor([0, 1, 5])).tolist()   # 2, 5, then 0, 3, 6
    [2, -1, 1]
    """

    def __init__(self, owners: Owners, parts: Sequence[int], sizes: Sequence[int]):
        self.owners = owners
        self._begin = torch.full((len(sizes),), -1, device="cpu")
        held = 0
        for part in parts:
            self._begin[part] = held
            held += sizes[part]

    def find(self, ids: Tensor) -> Tensor:
        """[m] → [m] int64, −1 where the vertex is not at hand."""
        return self.at(*self.owners.find(ids.long()))

    def at(self, owner: Tensor, place: Tensor) -> Tensor:
        """The same for vertices whose owners were found."""
        begin = self._begin[owner]
        return torch.where(begin < 0, -1, begin + place)


@dataclass(frozen=True, eq=False)
class Topology:
    """Rows of in-neighbours that are at hand, by vertex number in the graph.

        indptr   [rows + 1]   indices [arcs]   values [arcs] or None   loops [rows] or None: values of loops
        reads    what the model reads of A      num_nodes, dtype  of the graph, of the values
        row_of   which row is that of a vertex; None: row v is vertex v
        data     name → [arcs, …]   loop_data  name → [rows, …]: what arcs carry, and loops

    Replicated, a rank samples alone. Else it asks the owners (`weft.minibatch.Sampler`).
    """

    reads: Reads
    indptr: Tensor
    indices: Tensor
    values: Tensor | None
    loops: Tensor | None
    row_of: RowsOf | None
    num_nodes: int
    dtype: torch.dtype
    data: dict[str, Tensor] = field(default_factory=dict)
    loop_data: dict[str, Tensor] = field(default_factory=dict)

    @property
    def replicated(self) -> bool:
        return self.row_of is None

    @property
    def bytes(self) -> int:
        held = [self.indptr, self.indices, self.values, self.loops]
        held += [*self.data.values(), *self.loop_data.values()]
        return sum(t.numel() * t.element_size() for t in held if t is not None)

    @classmethod
    def read(
        cls,
        source: Source,
        reads: Reads,
        comm: Communicator | None = None,
        blocks: Blocks | None = None,
        parts: list[int] | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> Topology:
        """Read the rows of `parts` of `blocks` (the own part first), or of all vertices where parts is None.

        >>> from weft.graph import karate
        >>> whole = Topology.read(karate(), Reads("mean"))
        >>> whole.replicated, whole.indices.numel(), whole.values is None
        (True, 156, True)
        """
        n = source.num_nodes
        unweighted = reads.how == "none" or (reads.how == "mean" and not reads.loops)
        plain = reads.how == "loops" or (unweighted and not _weighted(source))
        if parts is None or blocks is None or comm is None:
            vertices = torch.arange(n, device="cpu")
            row_of: RowsOf | None = None
            around: tuple[Communicator, tuple[int, int], Owners] = single(), (0, n), Cyclic(n, 1)
        else:
            vertices = torch.cat([blocks.span(*blocks.own(part)) for part in parts])
            row_of = RowsOf(ByBlocks(blocks), parts, blocks.sizes)
            around = comm, (0, blocks.sizes[comm.rank]), ByBlocks(blocks)
        normalised = reads.values and not plain
        if normalised:
            arcs = read_normalised(source, vertices, reads.how, *around, reads.data, dtype)
        else:
            arcs = read_arcs(source, vertices, reads.data, dtype)
        loops, of_loops = None, {}
        if reads.loops:
            at_home = arcs.vertex == vertices[arcs.row]
            if normalised and reads.how == "gcn":  # every row has its loop already, in the order of rows
                of_loops = {name: x[at_home] for name, x in arcs.data.items()}
            else:
                of_loops = loop_data(arcs, vertices, around[0])
            if normalised and arcs.value is not None:
                loops = torch.zeros(vertices.numel(), dtype=dtype, device=vertices.device)
                loops[arcs.row[at_home]] = arcs.value[at_home].to(dtype)
            arcs = arcs.pick(~at_home)
        counts = torch.bincount(arcs.row, minlength=vertices.numel())
        index = torch.int32 if n < 2**31 else torch.int64
        return cls(
            reads,
            _settled(torch.cat([counts.new_zeros(1), counts.cumsum(0)])),
            _settled(arcs.vertex.to(index)),
            arcs.value.to(dtype) if arcs.value is not None and normalised else None,
            loops,
            row_of,
            n,
            dtype,
            arcs.data,
            of_loops,
        )


def _settled(x: Tensor) -> Tensor:
    """A copy in memory of large pages: random reads miss the TLB less."""
    return empty(*x.shape, like=x).copy_(x)


def part_bytes(source: Source, vertices: Tensor, reads: Reads, dtype: torch.dtype) -> int:
    """What a topology of these rows takes, from their degrees alone.

    >>> from weft.graph import karate
    >>> part_bytes(karate(), torch.arange(34), Reads("mean"), torch.float32)  # 35 pointers, 156 arcs
    904
    """
    valued = reads.values and (reads.how == "gcn" or (reads.how != "loops" and _weighted(source)))
    index, value = 4 if source.num_nodes < 2**31 else 8, dtype.itemsize if valued else 0
    value += data_bytes(source, reads.data, dtype)
    arcs, rows = count_arcs_of(source, vertices), vertices.numel()
    return 8 * (rows + 1) + arcs * (index + value) + (rows * value if reads.loops else 0)


def _weighted(source: Source) -> bool:
    return source.has("weights") if isinstance(source, Store) else source.weights is not None
