"""Attention as algebra: virtual n×n matrices, sampled where A has entries.

    S   = A * (H @ H.T)                                  vanilla attention
    S   = A * (H @ H.T) / outer(norms, norms)            AGNN, then softmax(beta * S)
    Psi = softmax(A * leaky_relu(rep(u) + rep(v).T))     GAT
    out = Psi @ X                                        [n, w], an ordinary tensor with autograd

Nothing here is n×n. A virtual matrix is a tree of what it is made of; `A * virtual` says where it is seen;
`@`, `sum` and `aggregate` compute, with numbers per entry of A and no more. The shapes that the fused kernels
know (dot products, cosines, sums of two vectors under a LeakyReLU, with or without softmax and dropout) run
through them, and then nothing per entry is kept either; `A.explain()` says which did. A is a
`weft.parallel.Operator`: in one process, on a grid of ranks, of a sampled block; the formulas are the same.

    H = tall(h)      h [n, w], or [n, heads · w] with heads=…: what stands in H @ H.T
    rep(u)           u [n] or [n, heads]: the matrix whose columns all are u;  rep(u).T: whose rows all are u
    outer(u, v)      rep(u) * rep(v).T
    arcs(e)          e [arcs, heads]: numbers at A's entries, such as A.entries.project("features", w)
    S.T, S + S.T     of a sampled one: multiplied with like S itself
    carried(name)    what arcs carry: S @ carried("features") is Σ_j s_ij f_ij
    + - * / **, and torch's elementwise functions (torch.exp, F.leaky_relu, …), entry by entry
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import Parameter

from ..errors import unknown
from ..kernels import CSR, Semiring, Stream, norms
from .adjacency import Adjacency
from .both import Both, Carried, carried
from .fused import recognise
from .nodes import Apply, Dot, Drop, Entries, Given, Rep, Softmax, Turned, numbers_at

__all__ = [
    "Both", "Sampled", "Tall", "Virtual", "aggregate", "arcs", "carried", "dropout", "exp", "leaky_relu",
    "outer", "rep", "softmax", "sum", "tall",
]  # fmt: skip

_ELEMENTWISE = frozenset(
    {
        "add", "sub", "rsub", "mul", "div", "true_divide", "truediv", "rtruediv", "rdiv", "pow", "rpow",
        "neg", "negative", "exp", "expm1", "log", "log1p", "sqrt", "rsqrt", "square", "abs", "sin", "cos",
        "tanh", "sigmoid", "relu", "leaky_relu", "elu", "gelu", "silu", "softplus", "selu", "celu", "maximum",
        "minimum", "clamp", "reciprocal", "sign", "erf", "logaddexp", "atan", "hardtanh", "logsigmoid",
        "mish", "relu6", "hardswish", "softsign", "hardsigmoid", "threshold", "log2", "log10", "exp2", "sinh",
        "cosh", "asinh", "tan", "asin", "acos", "floor", "ceil", "round", "sgn", "erfc",
    }
)  # fmt: skip
_SAME = {"true_divide": "div", "truediv": "div", "negative": "neg"}


class _Expression:
    """Entry-by-entry arithmetic, shared by virtual and sampled matrices."""

    node: Any

    def _make(self, node: Any, others: tuple[Any, ...]) -> _Expression:
        raise NotImplementedError

    def _apply(self, name: str, function: Callable[..., Tensor], *args: Any, **options: Any) -> Any:
        for arg in args:
            if isinstance(arg, Tall):
                raise TypeError("H itself is n×w. Only H @ H.T and rep(u) stand beside an n×n matrix.")
            if isinstance(arg, Tensor) and arg.dim() > 1:
                raise TypeError(
                    f"a tensor {tuple(arg.shape)} is no number per entry. Use rep(u), rep(u).T or H @ H.T."
                )
        nodes = tuple(a.node if isinstance(a, _Expression) else a for a in args)
        others = tuple(a for a in args if isinstance(a, _Expression))
        return self._make(Apply(_SAME.get(name, name), function, nodes, options), others)

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), options: Any = None
    ) -> Any:
        name = getattr(function, "__name__", str(function)).strip("_")
        me = next((a for a in args if isinstance(a, _Expression)), None)
        if me is None:  # in a list, or by keyword
            given = [*args, *(options or {}).values()]
            inside = [a for group in given if isinstance(group, list | tuple) for a in group]
            found = next(a for a in [*given, *inside] if isinstance(a, _Expression))
            if name not in _ELEMENTWISE:
                raise _needs_all(name, isinstance(found, Sampled))
            raise TypeError(f"{name} takes its matrices as plain arguments here: {name}(S, …).")
        if name not in _ELEMENTWISE:
            if name == "matmul" and isinstance(me, Sampled) and args[0] is me:
                return me @ args[1]
            raise _needs_all(name, isinstance(me, Sampled))
        return me._apply(name, function, *args, **(options or {}))

    def __add__(self, other: Any) -> Any:
        return self._apply("add", torch.add, self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._apply("sub", torch.sub, self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._apply("sub", lambda a, b: a - b, other, self)

    def __mul__(self, other: Any) -> Any:
        return self._apply("mul", torch.mul, self, other)

    def __rmul__(self, other: Any) -> Any:
        if isinstance(other, CSR):
            raise TypeError("A is a bare matrix. Use Operator.local(A): it answers what attention asks.")
        return self._apply("mul", torch.mul, self, other)

    def sampled_at(self, A: Adjacency) -> Sampled:
        """A * V: entry (i, j) of V where A has one, times a_ij."""
        if isinstance(self, Sampled):
            raise TypeError("this is sampled already. Multiply by A once.")
        return Sampled(A, Apply("mul", torch.mul, (Entries(), self.node)))

    def __truediv__(self, other: Any) -> Any:
        return self._apply("div", torch.div, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._apply("div", lambda a, b: a / b, other, self)

    def __pow__(self, power: Any) -> Any:
        return self._apply("pow", torch.pow, self, power)

    def __rpow__(self, base: Any) -> Any:
        return self._apply("pow", torch.pow, base, self)

    def __abs__(self) -> Any:
        return self._apply("abs", torch.abs, self)

    def __neg__(self) -> Any:
        return self._apply("neg", torch.neg, self)

    def _refuse(self, what: str) -> TypeError:
        return _needs_all(what, isinstance(self, Sampled))

    def __str__(self) -> str:
        raise self._refuse("printing")

    def __bool__(self) -> bool:
        raise self._refuse("a truth value")

    def __len__(self) -> int:
        raise self._refuse("len")

    def __iter__(self) -> Any:
        raise self._refuse("a walk over its rows")

    def __getitem__(self, key: Any) -> Any:
        raise self._refuse("indexing")

    def __getattr__(self, name: str) -> Any:
        # For what it does not have: V.sum() says why, as torch.sum(V) does.
        if name in ("sum", "mean", "max", "min", "numpy", "tolist", "item", "diagonal", "trace", "view"):
            raise self._refuse(name)
        raise AttributeError(f"{type(self).__name__} has no {name}")

    def __array__(self, *args: Any, **options: Any) -> Any:
        raise self._refuse("a numpy array of it")


def _needs_all(what: str, sampled: bool) -> TypeError:
    if sampled:
        return TypeError(
            f"{what} is not defined on a sampled matrix. Use S @ X, sum(S), softmax(S) or aggregate(S, X)."
        )
    return TypeError(f"{what} would need the whole n×n matrix. Sample it where A has entries first: A * (…).")


class Virtual(_Expression):
    """An n×n matrix that is never made: what each entry (i, j) is computed from."""

    def __init__(self, node: Any):
        self.node = node

    def _make(self, node: Any, others: tuple[Any, ...]) -> _Expression:
        sampled = next((o for o in others if isinstance(o, Sampled)), None)
        return Virtual(node) if sampled is None else sampled._make(node, others)

    @property
    def T(self) -> Virtual:
        """The transpose: entry (i, j) becomes (j, i)."""
        return Virtual(_transposed(self.node))

    def __matmul__(self, other: Any) -> Any:
        raise self._refuse("a product with it")

    def __rmatmul__(self, other: Any) -> Any:
        raise self._refuse("a product with it")

    def __repr__(self) -> str:
        return f"Virtual({_describe(self.node)})"


def _transposed(node: Any) -> Any:
    if isinstance(node, Rep):
        return Rep(node.x, "column" if node.side == "row" else "row")
    if isinstance(node, Dot):
        return Dot(node.y, node.x, node.heads)
    if isinstance(node, Given):
        raise TypeError("numbers per arc have no transpose: there may be no arc the other way.")
    if isinstance(node, Apply):
        return Apply(node.name, node.function, tuple(_transposed(a) for a in node.args), node.options)
    return node


def _describe(node: Any) -> str:
    if isinstance(node, Rep):
        return "rep(u)" if node.side == "row" else "rep(u).T"
    if isinstance(node, Dot):
        return "X @ Y.T"
    if isinstance(node, Given):
        return "arcs(e)"
    if isinstance(node, Apply):
        return f"{node.name}({', '.join(_describe(a) for a in node.args)})"
    if isinstance(node, Turned):
        return f"{_describe(node.of)}.T"
    if isinstance(node, Softmax | Drop):
        return f"{type(node).__name__.lower().strip('_')}({_describe(node.of)})"
    return "A" if isinstance(node, Entries) else f"{node}" if isinstance(node, float | int) else "number"


class Tall:
    """An n×w matrix that may stand in a virtual one: `H @ H.T` is n×n, and never made.

    >>> H = tall(torch.ones(3, 2))
    >>> H @ H.T
    Virtual(X @ Y.T)
    >>> (H @ torch.eye(2)).value.shape
    torch.Size([3, 2])
    """

    def __init__(self, value: Tensor, heads: int = 1):
        if heads < 1 or value.dim() != 2 or value.shape[1] % heads:
            raise ValueError(f"H must be [n, heads · w] with {heads} heads, not {tuple(value.shape)}")
        self.value, self.heads = value, heads

    @property
    def T(self) -> _Transposed:
        return _Transposed(self)

    @property
    def norms(self) -> Tensor:
        """The length of each row, per head: [n, heads]."""
        return norms(self.value, self.heads)

    def __matmul__(self, other: Any) -> Any:
        if isinstance(other, _Transposed):
            x, y = self, other.of
            if x.value.shape[1] != y.value.shape[1] or x.heads != y.heads:
                raise ValueError(
                    f"X @ Y.T needs as many columns and heads on both sides, not {tuple(x.value.shape)} with "
                    f"{x.heads} and {tuple(y.value.shape)} with {y.heads}"
                )
            return Virtual(Dot(x.value, y.value, x.heads))
        if _is_turned(other, self.value.shape):
            raise TypeError(
                "X @ h.T of a plain h would need the whole n×n matrix. Write X @ tall(h).T, or, where it is "
                "a weight, X @ w.contiguous()."
            )
        return Tall(self.value @ other, self.heads)

    def __rmatmul__(self, other: Any) -> Any:
        return other @ self.value


def _is_turned(x: Any, shape: torch.Size) -> bool:
    """Whether x is hᵀ of a plain h of this shape; a parameter that happens to have it is a weight."""
    base = x._base if isinstance(x, Tensor) else None
    return (
        base is not None
        and base.shape == shape
        and x.shape == shape[::-1]
        and not isinstance(base, Parameter)
    )


class _Transposed:
    """Yᵀ, waiting for X @ it."""

    def __init__(self, of: Tall):
        self.of = of

    def __rmatmul__(self, other: Any) -> Any:
        if isinstance(other, Tensor):
            return Tall(other, self.of.heads) @ self
        return NotImplemented


class Sampled(_Expression):
    """A virtual matrix at the entries of A. `S @ X` multiplies, `softmax`, `dropout`, `sum` work on its rows.

    >>> from weft.parallel import Operator
    >>> A = Operator.local(CSR(torch.tensor([0, 2, 2]), torch.tensor([0, 1]), None, (2, 2)))
    >>> S = A * (tall(torch.eye(2)) @ tall(torch.tensor([[1., 2.], [3., 4.]])).T)
    >>> S @ torch.tensor([[1.], [10.]])
    tensor([[31.],
            [ 0.]])
    """

    def __init__(self, A: Adjacency, node: Any):
        self.A, self.node = A, node

    def _make(self, node: Any, others: tuple[Any, ...]) -> _Expression:
        if any(isinstance(o, Sampled) and o.A is not self.A for o in others):
            raise TypeError("these are sampled at two different matrices. Sample both at the same A.")
        return Sampled(self.A, node)

    @property
    def T(self) -> Sampled:
        """Sᵀ: entry (j, i) at (i, j), where Aᵀ has entries; S.T.T is S. No entry moves, also on a grid.

        >>> from weft.parallel import Operator
        >>> A = Operator.local(CSR(torch.tensor([0, 2, 2]), torch.tensor([0, 1]), None, (2, 2)))
        >>> S = A * rep(torch.tensor([3., 4.])).T
        >>> (S.T @ torch.tensor([[1.], [10.]])).ravel(), ((S + S.T) @ torch.tensor([[1.], [10.]])).ravel()
        (tensor([3., 4.]), tensor([46.,  4.]))
        """
        if isinstance(self.node, Turned):
            return Sampled(self.node.A, self.node.of)
        return Sampled(self.A.T, Turned(self.A, self.node))

    def __add__(self, other: Any) -> Any:
        if isinstance(other, Sampled | Both) and not self._beside(other):
            return Both([self]) + other
        return super().__add__(other)

    def __sub__(self, other: Any) -> Any:
        if isinstance(other, Sampled | Both) and not self._beside(other):
            return Both([self]) + (-other)
        return super().__sub__(other)

    def _beside(self, other: Any) -> bool:
        """Whether the other has its entries where this one has, or nowhere that we know."""
        if isinstance(other, Both):
            return False
        return other.A is self.A or other.A is not self.A.T

    def values(self) -> Tensor:
        """The numbers at this rank's entries of A, [entries, heads]."""
        return numbers_at(self.A, self.node, {})

    def __matmul__(self, x: Any) -> Tensor:
        """Σ over j of s_ij x[j]. x [n, w], or [n, heads · w] where S has heads; or `carried(name)`."""
        if isinstance(x, Carried):
            self.A.note(f"{_describe(self.node)} @ {x!r}", "numbers per arc, times what arcs carry")
            return self.A.entries.data_sums(self.values(), x.name)
        x = _rows_of(x)
        fused = recognise(self.A, self.node, x)
        what = f"{_describe(self.node)} @ X"
        if isinstance(fused, Tensor):
            self.A.note(what, "fused: one pass over each row, nothing kept per arc")
            return fused
        self.A.note(what, f"numbers per arc, not fused: {fused}")
        return self.A.entries.weigh(self.values(), x)

    def aggregate(self, x: Any, reduce: str | Semiring = "sum") -> Tensor:
        """⊕ over j of s_ij ⊗ x[j]: sum, mean, max or min of products, or over a semiring."""
        if reduce == "sum":
            return self @ x
        x = _rows_of(x)
        name = f"({reduce.sum}, {reduce.product})" if isinstance(reduce, Semiring) else reduce
        self.A.note(
            f"{name} of {_describe(self.node)} X", "numbers per arc: fused kernels know the sum alone"
        )
        return self.A.entries.weigh(self.values(), x, reduce)

    def __repr__(self) -> str:
        return f"Sampled({_describe(self.node)})"


def _rows_of(x: Any) -> Tensor:
    x = x.value if isinstance(x, Tall) else x
    if not isinstance(x, Tensor) or x.dim() != 2 or not x.is_floating_point():
        what = f"{x.dtype} {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
        raise TypeError(f"S @ X takes a matrix X [n, w] of floating-point numbers, not {what}")
    return x


def tall(h: Tensor, heads: int = 1) -> Tall:
    """h [n, w] (or [n, heads · w]) as a matrix that may stand in `H @ H.T`."""
    return Tall(h, heads)


def rep(u: Tensor) -> Virtual:
    """The n×n matrix whose columns all are u: entry (i, j) is u[i]. u [n], or [n, heads].

    >>> rep(torch.ones(3)).T
    Virtual(rep(u).T)
    """
    if u.dim() not in (1, 2):
        raise ValueError(f"rep takes [n] or [n, heads], not {tuple(u.shape)}")
    return Virtual(Rep(u[:, None] if u.dim() == 1 else u, "row"))


def outer(u: Tensor, v: Tensor) -> Virtual:
    """u vᵀ: entry (i, j) is u[i] v[j].

    >>> outer(torch.ones(3), torch.ones(3))
    Virtual(mul(rep(u), rep(u).T))
    """
    return rep(u) * rep(v).T


def arcs(e: Tensor) -> Virtual:
    """The matrix whose entries where A has some are e [arcs, heads]; elsewhere nobody looks.

    >>> arcs(torch.ones(5, 1))
    Virtual(arcs(e))
    """
    if e.dim() != 2:
        raise ValueError(f"arcs takes [arcs, heads], not {tuple(e.shape)}")
    return Virtual(Given(e))


def leaky_relu(x: Any, slope: float = 0.2) -> Any:
    """max(x, 0) + slope · min(x, 0), entry by entry."""
    return F.leaky_relu(x, slope)


def exp(x: Any) -> Any:
    """e^x, entry by entry."""
    return torch.exp(x)


def softmax(s: Sampled) -> Sampled:
    """Each row's entries to e^s / Σ e^s over the row's entries in A; a row without entries stays empty.

    >>> from weft.parallel import Operator
    >>> A = Operator.local(CSR(torch.tensor([0, 2, 2]), torch.tensor([0, 1]), None, (2, 2)))
    >>> softmax(A * rep(torch.zeros(2))).values().ravel()
    tensor([0.5000, 0.5000])
    """
    return Sampled(_sampled(s, "softmax").A, Softmax(s.node))


def dropout(s: Sampled, p: float, stream: Stream | None) -> Sampled:
    """Each entry left out with probability p, the others divided by 1 − p; a function of the stream.

    Without a stream, as at inference, s itself.
    """
    _sampled(s, "dropout")
    if not 0 <= p < 1:
        raise ValueError(f"dropout must lie in [0, 1), not {p}")
    return s if stream is None or p == 0 else Sampled(s.A, Drop(s.node, p, stream))


def sum(s: Sampled | Both) -> Tensor:
    """Σ over each row's entries. → [n, heads].

    >>> from weft.parallel import Operator
    >>> A = Operator.local(CSR(torch.tensor([0, 2, 2]), torch.tensor([0, 1]), None, (2, 2)))
    >>> sum(A * rep(torch.tensor([3., 4.])).T).ravel()
    tensor([7., 0.])
    """
    return s.sum() if isinstance(s, Both) else _sampled(s, "sum").A.entries.sum(s.values())


def aggregate(s: Sampled, x: Any, reduce: str | Semiring = "sum") -> Tensor:
    """⊕ over j of s_ij ⊗ x[j]: sum, mean, max or min of products, or over a semiring. x [n, w] → [n, w].

    >>> from weft.parallel import Operator
    >>> A = Operator.local(CSR(torch.tensor([0, 2, 2]), torch.tensor([0, 1]), None, (2, 2)))
    >>> nearest = Semiring(torch.minimum, torch.add, torch.inf)
    >>> aggregate(A * rep(torch.tensor([4., 1.])).T, torch.tensor([[1.], [3.]]), nearest).ravel()
    tensor([4., inf])
    """
    if not isinstance(reduce, Semiring) and reduce not in ("sum", "mean", "max", "min"):
        raise unknown("reduction", reduce, ["sum", "mean", "max", "min"])
    return _sampled(s, "aggregate").aggregate(x, reduce)


def _sampled(s: Any, what: str) -> Sampled:
    if isinstance(s, Both):
        raise s.refuse(what)
    if not isinstance(s, Sampled):
        raise _needs_all(what, sampled=False)
    return s
