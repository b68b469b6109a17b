"""P-TAGS: a layer as partition, scatter, gather, transform, sync and apply (Gandhi and Iyer, OSDI '21).

    partition   which parameters are cut by rows, with the columns of the features       `cut`
    scatter     the message of each source                                               h    → m [s, w]
    gather      the messages of its neighbours, aggregated at each target                m    → a [t, w]
    transform   a product with this rank's rows of the weights: a partial result         v, a → t [t, out]
    sync        the sum of the partial results, at the rank that the targets belong to   t    → t [t, out]
    apply       the rest: bias                                                           t    → z [t, out]

In the first layer under push-pull a rank has some columns of the features and the same rows of the weights:
`scatter`, `gather` and `transform` give a part of the sum, `sync` adds the parts up. Everywhere else, and in
all layers under pull, the rank has everything, and `sync` is the identity. A layer is written once and does
not know which.

What is linear in the features may be left partial; what is not (a score inside a leaky ReLU, a maximum over
sums) must be synced first, with the `sync` that `scatter` is given. A maximum per feature is no obstacle:
each column is on one rank.

The parameters are those of the layer in `weft.nn`, by the same names: one `state_dict` serves both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..kernels import CSR, gather_rows, linear, spmm
from .block import Block
from .topology import Reads

Sync = Callable[[Tensor], Tensor]
"""Adds up partial results over the ranks; the identity where nothing is partial."""


@dataclass(frozen=True, eq=False)
class Hop:
    """A block beside the rows that it reads.

    A         CSR [t, rows of h]
    targets   [t] where each target's own row stands in h; None: the first t rows
    """

    block: Block
    A: CSR
    targets: Tensor | None = None

    @classmethod
    def compact(cls, block: Block) -> Hop:
        """h has a row for each source of the block."""
        return cls(block, block.matrix)

    @classmethod
    def direct(cls, block: Block, columns: int, place_of: Tensor | None = None) -> Hop:
        """h is a whole feature matrix: the rows that are read are not copied out of it."""
        own = block.targets.long()
        return cls(block, block.over(columns, place_of), own if place_of is None else place_of[own])

    def own(self, h: Tensor) -> Tensor:
        """h of the targets. [t, w]."""
        if self.targets is None:
            return h[: self.A.shape[0]]
        return gather_rows(h, self.targets, distinct=True)

    def sum(self, h: Tensor) -> Tensor:
        """y[i] = Σ over j of a_ij h[j], or the mean of h[j] where the block says so. [t, w]."""
        return spmm(self.A, h, reduce="mean" if self.block.mean else "sum")

    def max(self, h: Tensor) -> Tensor:
        """y[i] = the largest a_ij h[j], column by column. [t, w]."""
        return spmm(self.A, h, reduce="max")

    def compacted(self, h: Tensor) -> tuple[Hop, Tensor]:
        """The same with a row of h for each source only, as a layer wants that multiplies them all."""
        if self.targets is None:
            return self, h
        where = self.block.sources.long()
        # The map from vertices to rows of h, read off the arcs' columns and the targets.
        place = torch.empty(where.numel(), dtype=torch.int64)
        place[self.block.local.long()] = self.A.indices.long()
        place[: self.targets.numel()] = self.targets
        return Hop.compact(self.block), gather_rows(h, place, distinct=True)


class Tags:
    """A layer in P-TAGS form; subclasses say what differs. `layer` holds the parameters.

    To add a model: subclass, set `cut` and `reads`, write what differs, and enter it with `register`
    (docs/algorithms/push-pull.md has an example).
    """

    cut: tuple[str, ...] = ("weight",)
    """`partition`: the names of the parameters [in, ...] whose rows go with the columns of the input."""

    entrywise = False
    """Whether `apply` treats every entry for itself. Under push-pull, entries that the dropout after it drops
    then stay at home, and so do errors that its ReLU made 0."""

    def __init__(self, layer: nn.Module):
        self.layer = layer

    def reads(self, adjacency: str) -> Reads:
        """The matrix that `gather` multiplies with, for a model whose A is normalised so."""
        return Reads(adjacency)

    def scatter(self, hop: Hop, h: Tensor, sync: Sync) -> tuple[Hop, Tensor]:
        """(hop, m): the message of each row of h; here the row itself."""
        return hop, h

    def gather(self, hop: Hop, m: Tensor) -> Tensor:
        return hop.sum(m)

    def transform(self, v: Tensor, a: Tensor) -> Tensor:
        return linear(a, self._parameter("weight"))

    def apply(self, t: Tensor) -> Tensor:
        return t if self.layer.bias is None else t + self._parameter("bias")

    def _parameter(self, name: str) -> Tensor:
        found: Tensor = getattr(self.layer, name)
        return found

    def partial(self, hop: Hop, h: Tensor, sync: Sync) -> Tensor:
        """Everything before the sync."""
        at, m = self.scatter(hop, h, sync)
        return self.transform(hop.own(h), self.gather(at, m))

    def run(self, hop: Hop, h: Tensor) -> Tensor:
        """The whole layer on a rank that has everything: sync is the identity."""
        return self.apply(self.partial(hop, h, _identity))


def _identity(t: Tensor) -> Tensor:
    return t


class GCNTags(Tags):
    """z_i = (Σ_j â_ij h_j) W + b: the loop always, the others sampled and scaled."""

    entrywise = True

    def reads(self, adjacency: str) -> Reads:
        return Reads("gcn", loops=True)


class SAGETags(Tags):
    """z_i = h_i W_self + (⊕_j h_j) W_near + b, ⊕ the mean or the maximum."""

    cut = ("weight_self", "weight_near")
    entrywise = True

    def reads(self, adjacency: str) -> Reads:
        return Reads(adjacency, scaled=self.layer.reduce == "sum")

    def gather(self, hop: Hop, m: Tensor) -> Tensor:
        return hop.sum(m) if self.layer.reduce == "sum" else hop.max(m)

    def transform(self, v: Tensor, a: Tensor) -> Tensor:
        return linear(v, self._parameter("weight_self")) + linear(a, self._parameter("weight_near"))


class SGCTags(GCNTags):
    """The first hop of Â … Â h W + b: the product, so that what travels is narrow."""

    def apply(self, t: Tensor) -> Tensor:
        return t


class SGCHopTags(SGCTags):
    """The hops between: a propagation and nothing else."""

    cut = ()

    def transform(self, v: Tensor, a: Tensor) -> Tensor:
        return a


class SGCLastTags(SGCHopTags):
    """The last hop, with the bias."""

    def apply(self, t: Tensor) -> Tensor:
        return Tags.apply(self, t)


class SGCOnlyTags(GCNTags):
    """K = 1: one hop that is first and last."""


@dataclass(frozen=True, eq=False)
class Attended(Hop):
    """A hop with a weight for each arc and head. [arcs, heads]."""

    alpha: Tensor = field(default_factory=lambda: torch.empty(0, 0))


class GATTags(Tags):
    """α_ij = softmax_j leaky(⟨a₁, z_i⟩ + ⟨a₂, z_j⟩), z = h W, per head;  z'_i = Σ_j α_ij z_j + b.

    The scores are not linear in h: their two sides, which are, are synced before the leaky ReLU. That is
    `heads` numbers a vertex; z itself stays partial until the sum over neighbours.
    """

    entrywise = True

    def reads(self, adjacency: str) -> Reads:
        return Reads("none", loops=True, scaled=False, values=False)

    def scatter(self, hop: Hop, h: Tensor, sync: Sync) -> tuple[Hop, Tensor]:
        hop, h = hop.compacted(h)
        z = linear(h, self._parameter("weight"))
        attend_row, attend_column = self._parameter("attend_row"), self._parameter("attend_column")
        per_head = z.view(-1, *attend_row.shape)
        targets = hop.A.shape[0]
        row = (per_head[:targets] * attend_row).sum(2)  # [t, heads]
        column = (per_head * attend_column).sum(2)  # [s, heads]
        both = sync(torch.cat([row, column]))
        scores = both[:targets][hop.A.row_of] + both[targets:][hop.A.indices.long()]
        slope: float = getattr(self.layer, "slope", 0.2)
        return Attended(hop.block, hop.A, alpha=_softmax(hop.A, nn.functional.leaky_relu(scores, slope))), z

    def gather(self, hop: Hop, m: Tensor) -> Tensor:
        assert isinstance(hop, Attended)
        heads = hop.alpha.shape[1]
        parts = m.view(m.shape[0], heads, m.shape[1] // heads)
        plain = CSR(hop.A.indptr, hop.A.indices, None, hop.A.shape)
        return torch.cat(
            [spmm(plain, parts[:, k].contiguous(), hop.alpha[:, k].contiguous()) for k in range(heads)], 1
        )

    def transform(self, v: Tensor, a: Tensor) -> Tensor:
        if not getattr(self.layer, "average", False):
            return a
        return a.view(-1, *self._parameter("attend_row").shape).mean(1)


def _softmax(a: CSR, scores: Tensor) -> Tensor:
    """exp(s) / Σ over the row's arcs. [arcs, heads] → [arcs, heads]."""
    shape = (a.shape[0], scores.shape[1])
    row = a.row_of[:, None].expand(-1, shape[1])
    most = scores.detach().new_full(shape, -torch.inf).scatter_reduce(0, row, scores.detach(), "amax")
    weights = torch.exp(scores - most[a.row_of])
    total = weights.new_zeros(shape).index_add(0, a.row_of, weights)
    return weights / total[a.row_of]


_TAGS: dict[str, Callable[[nn.Module], list[Tags]]] = {}


def register(layer: str, make: Callable[[nn.Module], list[Tags]]) -> None:
    """Say how a layer of `weft.nn`, by the name of its class, is written in P-TAGS: one Tags a hop."""
    _TAGS[layer] = make


def _sgc(layer: nn.Module) -> list[Tags]:
    hops = int(layer.hops)  # type: ignore[arg-type]
    if hops == 1:
        return [SGCOnlyTags(layer)]
    return [SGCTags(layer), *[SGCHopTags(layer) for _ in range(hops - 2)], SGCLastTags(layer)]


register("GCNLayer", lambda layer: [GCNTags(layer)])
register("SAGELayer", lambda layer: [SAGETags(layer)])
register("GATLayer", lambda layer: [GATTags(layer)])
register("SGCLayer", _sgc)


def tags_of(layer: nn.Module) -> list[Tags]:
    """The layer in P-TAGS form, a Tags for each hop it takes.

    >>> from weft.nn import SGCLayer
    >>> len(tags_of(SGCLayer(3, 2, hops=3)))
    3
    """
    name = type(layer).__name__
    if name not in _TAGS:
        known = ", ".join(sorted(n.removesuffix("Layer").lower() for n in _TAGS))
        raise UserError(
            f"{name} is not written for mini-batches yet; these are: {known}. Use one, or --batch-size 0."
        )
    return _TAGS[name](layer)
