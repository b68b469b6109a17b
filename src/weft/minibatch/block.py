"""One hop of a batch: who aggregates from whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..kernels import CSR, relabel
from ..parallel import Operator


@dataclass(frozen=True, eq=False)
class Block:
    """The arcs of one hop, row by row: target i reads `neighbours[indptr[i]:indptr[i + 1]]`.

        targets     [m]      vertices whose rows of the next layer are computed
        neighbours  [arcs]   the vertices that they read, by their number in the graph
        values      [arcs]   entries of the matrix, or None: all 1
        mean        whether a row's sum is divided by its number of arcs
        data        name → [arcs, …], what the arcs carry

    Each vertex that occurs is a source once, the targets first. (Where blocks of several ranks are joined, a
    vertex may be a target of two, and is a source for each.)

    >>> import torch
    >>> place = torch.zeros(10, dtype=torch.int32)
    >>> targets, read = torch.tensor([4, 2], dtype=torch.int32), torch.tensor([2, 7, 7], dtype=torch.int32)
    >>> block = Block(targets, torch.tensor([0, 2, 3]), read, None, False, place)
    >>> block.sources.tolist(), block.local.tolist()
    ([4, 2, 7], [1, 2, 2])
    """

    targets: Tensor
    indptr: Tensor
    neighbours: Tensor
    values: Tensor | None
    mean: bool
    place: Tensor
    """[n + 1] scratch of the relabelling, shared by all blocks of a sampler; all 0 at first."""
    labels: Sequence[Tensor] | None = None
    """(sources, local), where they are known; else they are found when asked for."""
    data: dict[str, Tensor] = field(default_factory=dict)

    @property
    def arcs(self) -> int:
        return self.neighbours.numel()

    @cached_property
    def _labels(self) -> Sequence[Tensor]:
        return self.labels or relabel(self.targets, self.neighbours, self.place)

    @property
    def sources(self) -> Tensor:
        """[s]: every vertex of the block once, the targets first."""
        return self._labels[0]

    @property
    def local(self) -> Tensor:
        """[arcs]: where each neighbour stands among the sources."""
        return self._labels[1]

    @cached_property
    def matrix(self) -> CSR:
        """[targets, sources]."""
        shape = self.targets.numel(), self.sources.numel()
        return CSR(self.indptr, self.local, self.values, shape, self.data)

    def compact(self, device: torch.device | None = None, **more: Any) -> Operator:
        """The operator of an h on this device with a row for each source. Samples are drawn on the CPU."""
        device = device or self.targets.device
        ids = self.targets.to(device), self.sources.to(device)
        return Operator.local(_beside(self.matrix, device), *ids, self.mean, **more)

    def direct(self, x: Tensor, place_of: Tensor | None = None, **more: Any) -> Operator:
        """The operator of an h that is a whole feature matrix x, of which no rows are copied out."""
        own, device = self.targets.long(), x.device
        targets = (own if place_of is None else place_of[own]).to(device)
        matrix = _beside(self.over(x.shape[0], place_of), device)
        return Operator.local(matrix, self.targets.to(device), mean=self.mean, targets=targets, **more)

    def over(self, columns: int, place_of: Tensor | None = None) -> CSR:
        """[targets, columns]: the same rows over all `columns` rows of a feature matrix, without relabelling.

        Column v is vertex v, or `place_of[v]`, the row in which v's features stand.
        """
        index = self.neighbours if place_of is None else place_of[self.neighbours.long()]
        return CSR(self.indptr, index, self.values, (self.targets.numel(), columns), self.data)


def _beside(a: CSR, device: torch.device) -> CSR:
    return a if a.indices.device == device else a.to(device)


@dataclass(frozen=True, eq=False)
class Batch:
    """Some seeds and the blocks above them; `blocks[0]` reads the input, `blocks[-1]` gives the seeds' rows.

    The targets of a block are the sources of the next.
    """

    step: int
    """The batch's number in the run: with the seed it names the random numbers."""
    seeds: Tensor
    """[s] this rank's share of the batch's vertices."""
    blocks: list[Block]
