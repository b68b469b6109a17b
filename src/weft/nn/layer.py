"""A layer: an equation in two halves, written once and run everywhere (P-TAGS: Gandhi and Iyer, OSDI '21).

    partial(A, h)   scatter, gather, transform: linear in h, so it may be left partial   [s, in]  → [t, out]
    apply(t)        the rest, of whole numbers: bias, a second product                   [t, out] → [t, out]

    forward(A, h) = apply(A.complete(partial(A, h)))

The same object runs on the whole graph, whatever the grid; on sampled blocks; under push-pull, where a rank
has some columns of h and those rows of the weights in `cut`, so that `partial` gives a share of the sum; and
in the pipeline, which posts `complete` and waits for it later. It does not know which.

What is not linear in h (a score under a LeakyReLU, a length) is made of numbers that went through `A.sync`.
A maximum per feature is no obstacle: each column is on one rank. A layer that has only `forward(A, h)` runs
everywhere but under push-pull.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..kernels import Stream, linear
from .adjacency import Adjacency

_CLAIMS = {
    "partial": ("direct", "fresh"),
    "apply": ("entrywise", "fresh"),
    "forward": ("direct", "entrywise", "fresh"),
}
"""What a layer says of each of its halves."""


class Layer(nn.Module):
    """Subclasses write `partial` and `apply`, or `forward` alone.

    >>> class Mean(Layer):
    ...     direct = True
    ...     def partial(self, A, h):
    ...         return A.aggregate(h, "mean")
    >>> from weft.kernels import CSR
    >>> from weft.parallel import Operator
    >>> A = Operator.local(CSR(torch.tensor([0, 2, 2]), torch.tensor([0, 1]), None, (2, 2)))
    >>> Mean()(A, torch.tensor([[1.0], [3.0]])).ravel()
    tensor([2., 0.])
    """

    cut: tuple[str, ...] = ()
    """`partition`: the parameters [in, …] whose rows go with the columns of the input."""
    entrywise: bool = False
    """Whether `apply` adds a constant to every entry and does nothing else. Under push-pull, entries that the
    dropout after it drops then stay at home, and so do errors that its ReLU made 0."""
    direct: bool = False
    """Whether h is read through A alone (A @ h, A.own(h)): then h may have rows that A never reads."""
    fresh: bool = False
    """Whether nothing else reads what is returned, the layer's backward included: the activation then writes
    into it."""
    sync: str = "sum"
    """How partial results of ranks become whole: sum, or max."""
    hops: int = 1
    """How often the layer multiplies with A: so many sampled blocks it takes."""
    scaled: bool | None = None
    """Whether a sampled row stands for the whole one: its entries are multiplied by degree / picks. None: of
    sums and normalised sums, not of A's bare pattern, which attention weighs by itself."""
    weighted: bool = True
    """Whether A's values, where it has some, enter its equation: most attention reads the pattern alone."""
    data: tuple[str, ...] = ()
    """Arrays per arc that it reads, by name (`Graph.arc_data`): A's entries then carry them."""
    drop: float = 0.0
    """Share of arcs that it drops while training; its random numbers are those of `stream`."""
    stream: Stream | None = None
    """The random numbers of this pass, set by the model; None: nothing is dropped."""

    def __init_subclass__(cls, **more: Any) -> None:
        """What was said of a half does not hold of another in its place: a subclass that writes one anew
        says anew whether it is `entrywise`, `direct`, `fresh`."""
        super().__init_subclass__(**more)
        written = [half for half in _CLAIMS if half in vars(cls)]
        for claim in {claim for half in written for claim in _CLAIMS[half]} - vars(cls).keys():
            setattr(cls, claim, False)

    def partial(self, A: Adjacency, h: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no partial: it runs as a whole, by forward")

    def apply(self, t: Tensor) -> Tensor:  # type: ignore[override]
        return t

    def rest(self, t: Tensor) -> Tensor:
        """What follows the sync: `apply`, of what came."""
        return self.apply(t)

    def forward(self, A: Adjacency, h: Tensor) -> Tensor:
        t = self.partial(A, h)
        if not isinstance(t, Tensor) or t.dim() != 2:
            what = tuple(t.shape) if isinstance(t, Tensor) else type(t).__name__
            raise UserError(
                f"partial of {type(self).__name__} returned {what}. "
                "Return one row a vertex: [rows of A, width]."
            )
        return self.rest(A.complete(t, self.sync))


def in_halves(layer: nn.Module) -> TypeGuard[Layer]:
    """Whether a layer is written as `partial` and `apply`, so that it runs under push-pull too."""
    if not isinstance(layer, Layer):
        return False
    kind = type(layer)
    return kind.partial is not Layer.partial and kind.forward is Layer.forward


def data_of(layers: Iterable[nn.Module]) -> tuple[str, ...]:
    """The names of what arcs carry and these layers read, each once.

    >>> layer = Layer()
    >>> layer.data = ("features", "type")
    >>> data_of([Layer(), layer, layer])
    ('features', 'type')
    """
    return tuple(dict.fromkeys(name for layer in layers for name in getattr(layer, "data", ())))


def propagate(A: Adjacency, h: Tensor, weight: Tensor) -> Tensor:
    """A h W, in the order that costs less."""
    if A.gathers_first(h, weight.shape[1]):
        return linear(A @ h, weight)
    return A @ linear(h, weight)


def add_(t: Tensor, bias: Tensor | None) -> Tensor:
    """t + b, in t's memory where that is ours."""
    if bias is None:
        return t
    return t + bias if from_wire(t) else t.add_(bias)


def from_wire(t: Tensor) -> bool:
    """Whether t is kept for its gradient, as what came from other ranks is: nobody writes into it."""
    return t.is_leaf and t.requires_grad


def weight_of(inputs: int, outputs: int) -> nn.Parameter:
    """A weight [in, out], drawn as Glorot and Bengio do."""
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(inputs, outputs, device="cpu")))


def bias_of(outputs: int, wanted: bool) -> nn.Parameter | None:
    return nn.Parameter(torch.zeros(outputs, device="cpu")) if wanted else None
