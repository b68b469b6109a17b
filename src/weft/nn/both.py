"""What a sampled matrix may stand beside: its transpose in a sum, and what arcs carry in a product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .adjacency import Adjacency


class Both:
    """S + Rᵀ: sampled matrices with entries at A's and at Aᵀ's. It is multiplied and summed, no more.

    >>> import torch
    >>> from weft.kernels import CSR
    >>> from weft.nn.algebra import rep, sum
    >>> from weft.parallel import Operator
    >>> A = Operator.local(CSR(torch.tensor([0, 2, 2]), torch.tensor([0, 1]), None, (2, 2)))
    >>> S = A * rep(torch.tensor([3.0, 4.0])).T
    >>> sum(S + S.T).ravel()
    tensor([10.,  4.])
    """

    def __init__(self, parts: list[Any]):
        self.parts = parts

    @property
    def T(self) -> Both:
        return Both([part.T for part in self.parts])

    def __add__(self, other: Any) -> Both:
        more = other.parts if isinstance(other, Both) else [other]
        if not all(hasattr(part, "A") for part in more):
            raise self.refuse("adding a number or a virtual matrix")
        here: Adjacency = self.parts[0].A
        if any(part.A is not here and part.A is not here.T for part in more):
            raise TypeError("these are sampled at two different matrices. Sample both at the same A.")
        parts = list(self.parts)
        for part in more:
            at = next((k for k, own in enumerate(parts) if own.A is part.A), None)
            parts = [*parts, part] if at is None else [*parts[:at], parts[at] + part, *parts[at + 1 :]]
        return Both(parts)

    __radd__ = __add__

    def __neg__(self) -> Both:
        return Both([-part for part in self.parts])

    def __sub__(self, other: Any) -> Both:
        return self + (-other)

    def __mul__(self, factor: Any) -> Both:
        if not isinstance(factor, float | int) and not (isinstance(factor, Tensor) and factor.dim() == 0):
            raise self.refuse("a product entry by entry")
        return Both([part * factor for part in self.parts])

    __rmul__ = __mul__

    def __matmul__(self, x: Any) -> Tensor:
        return _total([part @ x for part in self.parts])

    def sum(self) -> Tensor:
        """Σ over each row's entries. → [n, heads]"""
        return _total([part.A.entries.sum(part.values()) for part in self.parts])

    def refuse(self, what: str) -> TypeError:
        return TypeError(
            f"{what} is not defined on S + S.T, which has entries of A and of its transpose. Do it to S, or "
            "use (S + S.T) @ X, sum(S + S.T)."
        )

    def __repr__(self) -> str:
        return f"Both({', '.join(map(repr, self.parts))})"


def _total(each: list[Tensor]) -> Tensor:
    first, *others = each
    for other in others:
        first = first + other
    return first


@dataclass(frozen=True)
class Carried:
    """What arcs carry, [arcs, t] by name, as the right side of a product."""

    name: str

    def __repr__(self) -> str:
        return f"carried({self.name!r})"


def carried(name: str) -> Carried:
    """The arcs' own features f: S @ carried("features") is Σ_j s_ij f_ij in each head. → [n, heads · t].

    >>> import torch
    >>> from weft.kernels import CSR
    >>> from weft.nn.algebra import rep
    >>> from weft.parallel import Operator
    >>> f = {"features": torch.tensor([[1.0, 2.0], [3.0, 4.0]])}
    >>> A = Operator.local(CSR(torch.tensor([0, 2, 2]), torch.tensor([0, 1]), None, (2, 2), f))
    >>> A * rep(torch.tensor([1.0, 10.0])).T @ carried("features")
    tensor([[31., 42.],
            [ 0.,  0.]])
    """
    return Carried(name)
