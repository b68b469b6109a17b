"""A semiring: what a sum over arcs is made of, when it is not a sum of products.

    y_i = 0 ⊕ a_ij ⊗ h_j ⊕ a_il ⊗ h_l ⊕ …          over the arcs of row i; 0 where it has none

    Semiring(torch.add, torch.mul, 0.0)                  sums: what A @ h is
    Semiring(torch.maximum, torch.add, -torch.inf)       tropical: longest paths
    Semiring(torch.minimum, torch.add, torch.inf)        shortest paths
    Semiring(torch.logaddexp, torch.add, -torch.inf)     sums of products, in logarithms
    Semiring(torch.maximum, torch.minimum, -torch.inf)   widest paths: yours, written in torch

Both operations are entry by entry. The first four and (max, ×), (min, ×) are known by their functions and run
in C++; any other is evaluated some arcs at a time (`fold.py`).
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import UserError

Binary = Callable[[Tensor, Tensor], Tensor]
SumGradient = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(m, y, dy) → dm, of one summand m in the whole sum y."""
ProductGradient = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""(a, h, dm) → (da, dh), of m = a ⊗ h."""

_SUMS: dict[object, str] = {
    torch.add: "sum", operator.add: "sum", torch.maximum: "max", torch.minimum: "min",
    torch.logaddexp: "logsum",
}  # fmt: skip
_PRODUCTS: dict[object, str] = {
    torch.mul: "times", torch.multiply: "times", operator.mul: "times", torch.add: "plus",
    operator.add: "plus",
}  # fmt: skip
_NATIVE = {
    ("sum", "times"), ("max", "times"), ("min", "times"), ("max", "plus"), ("min", "plus"), ("logsum", "plus")
}  # fmt: skip


@dataclass(frozen=True)
class Reduction:
    """⊕ alone, for messages that come from elsewhere: add, zero as in `Semiring`, gradient as add_gradient.

    >>> check_reduction(Reduction(lambda a, b: a + b + a * b, 0.0))  # 1 + y is the product of all 1 + m
    """

    add: Binary
    zero: float
    gradient: SumGradient | None = None

    @property
    def name(self) -> str:
        """sum, max, min or logsum; "own" where it is the user's."""
        return (None if self.gradient else _SUMS.get(self.add)) or "own"

    @property
    def known_gradient(self) -> SumGradient | None:
        """dm from the whole sum: log-sum-exp's, or the user's."""
        return logsum_gradient if self.name == "logsum" else self.gradient


def logsum_gradient(m: Tensor, y: Tensor, dy: Tensor) -> Tensor:
    """dm = dy e^(m − y); 0 where the whole sum is."""
    return torch.where(y == -torch.inf, 0.0, dy * torch.exp(m - y))


@dataclass(frozen=True)
class Semiring:
    """(⊕, ⊗, 0), entry by entry, with their gradients.

        add(a, b)        commutative and associative, for arcs and ranks come in any order; 0 ⊕ 0 = 0
        multiply(a, h)   a [k, 1] or [k, w] the arcs' entries, h [k, w] the neighbours' rows → [k, w]
        zero             what an empty row gives; no gradient goes anywhere from it

    Gradients come from torch's autograd, on what is made again in backward. Or from you, which is faster, and
    on a grid keeps no partial results:

        add_gradient(m, y, dy) → dm            m one summand, y the whole sum
        multiply_gradient(a, h, dm) → (da, dh)

    Of equal ones under torch.maximum and torch.minimum the smallest vertex takes the whole gradient.

    >>> widest = Semiring(torch.maximum, torch.minimum, -torch.inf)
    >>> widest.native, Semiring(torch.minimum, torch.add, torch.inf).native
    (False, True)
    >>> check_semiring(Semiring(torch.add, torch.mul, 1.0))
    Traceback (most recent call last):
        ...
    weft.errors.UserError: zero 1 ⊕ zero is 2, not zero. Give add's neutral element.
    """

    add: Binary
    multiply: Binary
    zero: float
    add_gradient: SumGradient | None = None
    multiply_gradient: ProductGradient | None = None

    @property
    def reduction(self) -> Reduction:
        return Reduction(self.add, self.zero, self.add_gradient)

    @property
    def sum(self) -> str:
        """⊕ by name: sum, max, min or logsum; "own" where it is the user's."""
        return self.reduction.name

    @property
    def product(self) -> str:
        """⊗ by name: times or plus; "own" where it is the user's."""
        known = None if self.multiply_gradient else _PRODUCTS.get(self.multiply)
        return known or "own"

    @property
    def native(self) -> bool:
        """Whether C++ knows it."""
        return (self.sum, self.product) in _NATIVE


_POSITIVE = (0.3, 0.7, 1.1, 1.9)
_SIGNED = (-1.9, -0.7, 0.3, 1.1)
"""Numbers of the test products: many an ⊕ has an order below zero alone."""


def _some(numbers: tuple[float, ...] = _POSITIVE, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    few = torch.tensor(numbers, dtype=dtype, device="cpu")
    return tuple(t.reshape(-1, 1) for t in torch.meshgrid(few, few, few, indexing="ij"))


@functools.lru_cache(maxsize=256)
def check_reduction(by: Reduction, dtype: torch.dtype = torch.float64) -> None:
    """Refuse, by test products, a ⊕ that depends on the order of arcs or ranks, or changes shape or type.

    The order is tried in float64, with numbers above zero and of both signs. Where ⊕ gives NaN it has none.
    """
    a, b, _ = _some(dtype=dtype)
    ab = check_made("add", by.add(a, b), a)
    for numbers in (_POSITIVE, _SIGNED):
        _check_order(by.add, *_some(numbers))
    zero = torch.full_like(a, by.zero)
    twice = by.add(zero, zero)
    if not torch.equal(twice, zero):
        raise UserError(
            f"zero {by.zero:g} ⊕ zero is {float(twice[0]):g}, not zero. Give add's neutral element."
        )
    if by.gradient is not None:
        check_made("add_gradient", by.gradient(a, ab, b), a)


@functools.lru_cache(maxsize=256)
def check_semiring(semiring: Semiring, dtype: torch.dtype = torch.float64) -> None:
    """The same of a semiring; its ⊗, and the gradient of it, by a test product in the type of the rows."""
    if not dtype.is_floating_point:
        kind = str(dtype).removeprefix("torch.")
        raise UserError(f"a semiring's rows are {kind}. Use floating point numbers: h.float().")
    check_reduction(semiring.reduction, dtype)
    a, b, c = _some(dtype=dtype)
    wide = torch.cat([a, b, c], 1)
    check_made("multiply", semiring.multiply(a, wide), wide)
    if semiring.multiply_gradient is not None:
        _check_product_gradient(semiring.multiply_gradient(a, wide, wide), a, wide)


def check_made(what: str, found: object, like: Tensor) -> Tensor:
    """What a user's function returned, if it has the shape and the type of `like`; else `UserError`."""
    if not isinstance(found, Tensor) or found.shape != like.shape:
        shape = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise UserError(
            f"{what} returned {shape} for {tuple(like.shape)}. Return one number for each: "
            "work entry by entry."
        )
    if found.dtype != like.dtype:
        theirs, ours = (str(t.dtype).removeprefix("torch.") for t in (found, like))
        raise UserError(f"{what} returned {theirs} for {ours}. Return numbers of the type that it was given.")
    return found


def _check_product_gradient(found: object, a: Tensor, h: Tensor) -> None:
    if not isinstance(found, tuple) or len(found) != 2:
        raise UserError(f"multiply_gradient returned {type(found).__name__}. Return (da, dh).")
    da, dh = found
    check_made("multiply_gradient's dh", dh, h)
    one = isinstance(da, Tensor) and da.shape == a.shape  # summed over the columns already
    check_made("multiply_gradient's da", da, a if one else h)


def _check_order(add: Binary, a: Tensor, b: Tensor, c: Tensor) -> None:
    ab = add(a, b)
    _same(a, b, ab, add(b, a), "add is not commutative: {a:g} ⊕ {b:g} = {x:g}, {b:g} ⊕ {a:g} = {y:g}")
    _same(a, b, add(ab, c), add(a, add(b, c)), "add is not associative: "
          "({a:g} ⊕ {b:g}) ⊕ {c:g} = {x:g}, {a:g} ⊕ ({b:g} ⊕ {c:g}) = {y:g}", c)  # fmt: skip


def _same(a: Tensor, b: Tensor, x: Tensor, y: Tensor, text: str, c: Tensor | None = None) -> None:
    differ = ~(torch.isclose(x, y, rtol=1e-9, atol=1e-12) | x.isnan() | y.isnan()).ravel()
    if bool(differ.any()):
        at = int(differ.nonzero()[0])
        named = {"a": a[at].item(), "b": b[at].item(), "x": x[at].item(), "y": y[at].item()}
        told = text.format(**named, c=0.0 if c is None else c[at].item())
        raise UserError(f"{told}. Arcs and ranks come in any order: use one that is.")
