"""P³'s programming interface, P-TAGS (Gandhi and Iyer, OSDI '21, section 3.5), as a `Layer`.

    partition   `cut`: the weights whose rows go with the columns of the input
    scatter     a message for every arc, of its source, what it carries and its target
    gather      the messages of a vertex, reduced by anything commutative
    transform   the vertex and what it gathered → a partial result
    sync        partial results of the ranks → whole ones, by sum or maximum
    apply       the vertex and the whole result → its new representation

    partial(A, h) = transform(own(h), gather(scatter(h_j, arc_ij, h_i)))
    forward(A, h) = apply(v, sync(partial(A, h)))

So it runs wherever a layer does: on the whole graph on any grid, on sampled blocks, under push-pull.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import UserError, unknown
from ..kernels.fold import Fold
from ..kernels.semiring import Reduction, check_reduction
from .adjacency import Adjacency
from .layer import Layer

Scatter = Callable[[Tensor, Tensor | None, Tensor | None], Tensor]


@dataclass(frozen=True)
class Messages:
    """The messages of every vertex, not made yet: `gather` says how they are reduced.

    mean(), sum(), max(), min() and reduce(Reduction(add, zero)); 0 (or zero) where a vertex has none.

        A, h      the operator, and the sources' rows
        scatter   a message of (source, what the arc carries, target)
        data      the name of what arcs carry, "" for nothing
        target    whether scatter reads the target's row
        learned   tensors inside scatter that want a gradient
        copies    whether the message is the source as it is
    """

    A: Adjacency
    h: Tensor
    scatter: Scatter
    data: str
    target: bool
    learned: Sequence[Tensor]
    copies: bool

    def sum(self) -> Tensor:
        if self.copies:
            if self.A.entries.plain:
                return self.A.aggregate(self.h)
            return self.A.entries.weigh(torch.ones_like(self.A.entries.values(self.h.dtype)), self.h)
        return self._fold("sum", torch.add, 0.0)

    def mean(self) -> Tensor:
        return self.sum() / self.A.degrees.clamp(min=1).to(self.h.dtype)

    def max(self) -> Tensor:
        return self._fold("max", torch.maximum, None)

    def min(self) -> Tensor:
        return self._fold("min", torch.minimum, None)

    def reduce(self, by: Reduction) -> Tensor:
        """By a function of one's own, commutative and associative."""
        check_reduction(by, self.h.dtype)
        return self._fold(by.name, by.add, by.zero, by)

    def _fold(
        self, kind: str, add: Callable[..., Tensor], zero: float | None, by: Reduction | None = None
    ) -> Tensor:
        gradient = None if by is None else by.known_gradient
        fold = Fold(self.scatter, kind, add, zero, gradient)
        self.A.note(f"messages, by {kind}", "some arcs at a time: no kernel knows a message of one's own")
        return self.A.fold(self.h, fold, self.data, self.target, self.learned)


class PTagsLayer(Layer):
    """Subclasses write scatter, gather, transform and apply; what is left out is the identity.

        scatter(source [k, w], arc [k, ·], target [k, w]) → [k, w]   entry by entry
        gather(messages) → [t, w]                  messages.mean(), sum(), max(), min(), reduce(…)
        transform(v [t, w], a [t, w]) → [t, out]
        apply(v, t [t, out]) → [t, out]            v is None unless `reads_vertex`

    `arc` is what arcs carry under the one name in `data`, or A's entry [k, 1]. `target` is given where
    `reads_target`: it costs a gather of the rows.

    >>> from weft.kernels import CSR
    >>> from weft.parallel import Operator
    >>> class Widest(PTagsLayer):
    ...     def scatter(self, source, arc, target):
    ...         return torch.minimum(source, arc)
    ...     def gather(self, messages):
    ...         return messages.max()
    >>> a = CSR(torch.tensor([0, 2, 2]), torch.tensor([0, 1]), torch.tensor([5.0, 1.0]), (2, 2))
    >>> Widest()(Operator.local(a), torch.tensor([[3.0], [4.0]])).ravel()
    tensor([3., 0.])
    """

    scaled = False
    reads_target: bool = False
    """Whether `scatter` reads the target's row."""
    reads_vertex: bool = False
    """Whether `apply` reads the vertex' own row: under push-pull it then travels with the partial result."""

    def scatter(self, source: Tensor, arc: Tensor | None, target: Tensor | None) -> Tensor:
        return source

    def gather(self, messages: Messages) -> Tensor:
        return messages.mean()

    def transform(self, v: Tensor, a: Tensor) -> Tensor:
        return a

    def apply(self, v: Tensor | None, t: Tensor) -> Tensor:  # type: ignore[override]
        return t

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if cls.sync not in ("sum", "max"):
            raise unknown(f"sync of {cls.__name__}", cls.sync, ["sum", "max"])

    # The layer that these make.

    def partial(self, A: Adjacency, h: Tensor) -> Tensor:
        if len(self.data) > 1:
            names = ", ".join(self.data)
            raise UserError(f"scatter reads one array of the arcs, not {names}. Name one in `data`.")
        learned = [p for p in self.parameters() if p.requires_grad]
        messages = Messages(
            A, h, self.scatter, self.data[0] if self.data else "", self.reads_target, learned, self._copies()
        )
        own = A.own(h)
        t = self.transform(own, self.gather(messages))
        if not self.reads_vertex:
            return t
        among = 0.0 if self.sync == "sum" else -torch.inf
        return torch.cat([t, A.widen(own, self.inputs, among)], 1)

    @property
    def inputs(self) -> int:
        """Columns of the whole input, of a layer whose `apply` reads it."""
        name = type(self).__name__
        raise UserError(f"{name} reads the vertex in apply. Give it `inputs`, the columns of h.")

    def rest(self, t: Tensor) -> Tensor:
        if not self.reads_vertex:
            return self.apply(None, t)
        cut = t.shape[1] - self.inputs
        return self.apply(t[:, cut:], t[:, :cut])

    def _copies(self) -> bool:
        """Whether the message is the source's row as it is: a sum of them is a product with A's pattern."""
        if self.data or self.reads_target:
            return False
        one = torch.ones(1, 1, device="cpu")
        return self.scatter(one, torch.ones(1, 1, device="cpu"), None) is one
