"""A call of every kernel, on operands made anywhere: for the tests of dry runs and of devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from weft import kernels
from weft.kernels import CSR, Semiring, Stream
from weft.kernels.attention import (
    Drop,
    Scores,
    attend,
    attend_backward,
    attend_self_backward,
    inverse,
    log_sum,
    weigh,
)
from weft.kernels.fold import Fold, Operands, fold_arcs, fold_backward
from weft.kernels.rows import scatter_rows_
from weft.kernels.sddmm import sddmm_heads
from weft.kernels.spmm import extremum, extremum_backward, multiply
from weft.memory import empty

from .matrices import random_csr

ROWS, COLUMNS, WIDTH, HEADS = 7, 9, 6, 2
NOISE = Stream(0, 1, 2)


@dataclass
class World:
    """What a call's operands are made by: numbers, row numbers, matrices."""

    x: Callable[..., Tensor]
    index: Callable[..., Tensor]
    matrix: Callable[[CSR], CSR]

    def a(self, dtype: torch.dtype | None = torch.float64) -> CSR:
        return self.matrix(random_csr(ROWS, COLUMNS, 0.4, seed=3, dtype=dtype))

    def square(self, dtype: torch.dtype | None = None) -> CSR:
        half = random_csr(ROWS, ROWS, 0.3, seed=4, dtype=torch.float64).dense()
        both = ((half != 0) | (half.T != 0)).double()
        indptr = torch.cat([torch.zeros(1), both.sum(1).cumsum(0)]).long()
        indices = both.nonzero()[:, 1]
        return self.matrix(
            CSR(indptr, indices, None if dtype is None else torch.ones(indices.numel()), (ROWS, ROWS))
        )


def real_x(*shape: int, grad: bool = False, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.rand(*shape, dtype=dtype).requires_grad_(grad)


def meta_x(*shape: int, grad: bool = False, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.empty(*shape, dtype=dtype, device="meta").requires_grad_(grad)


def real_index(count: int, below: int, dtype: torch.dtype = torch.int64) -> Tensor:
    return (torch.arange(count) % below).to(dtype)


def meta_index(count: int, below: int, dtype: torch.dtype = torch.int64) -> Tensor:
    return torch.empty(count, dtype=dtype, device="meta")


def blank_of(a: CSR) -> CSR:
    kind = None if a.values is None else a.values.dtype
    return CSR.blank(a.shape, a.arcs, kind, a.indices.dtype)


REAL = World(real_x, real_index, lambda a: a)
DRY = {
    "real index": World(meta_x, real_index, lambda a: a),
    "meta index": World(meta_x, meta_index, blank_of),
    "meta index alone": World(real_x, meta_index, blank_of),
}


def scores(w: World, a: CSR, kind: str, p: float = 0.5, softmax: bool = True) -> Scores:
    drop = Drop(p, 5, w.index(a.shape[0], 99), w.index(a.shape[1], 99)) if p else None
    if kind == "given":
        return Scores("given", HEADS, given=w.x(a.arcs, HEADS), softmax=softmax, drop=drop)
    width = HEADS if kind == "additive" else WIDTH
    gains = (w.x(a.shape[1], HEADS), w.x(a.shape[0], HEADS)) if kind == "dot" else (None, None)
    row, column = w.x(a.shape[0], width), w.x(a.shape[1], width)
    return Scores(
        kind, HEADS, row, column, slope=0.2, softmax=softmax, drop=drop, gain=gains[0], row_gain=gains[1]
    )


def attention_backward(w: World, kind: str, together: bool = False) -> object:
    a = w.a(None)
    s, x, dim = scores(w, a, kind), w.x(COLUMNS, WIDTH), WIDTH // HEADS
    s = replace(s, column=x) if together else s
    return attend_backward(a, s, w.x(ROWS, 2 * HEADS), w.x(ROWS, WIDTH), x, dim)


def folded(w: World, semiring: Semiring) -> object:
    """Forward, and back to columns and numbers per arc."""
    a, fold = w.a(None), Fold.of(semiring)
    ops = Operands(w.x(COLUMNS, WIDTH), w.x(a.arcs, 1))
    found = fold_arcs(a, fold, ops)
    back = fold_backward(a, fold, ops, found, w.x(ROWS, WIDTH), (True, False, True))
    return found.y, back.column, back.arc


PLAIN: dict[str, Callable[[World], object]] = {
    "multiply": lambda w: multiply(w.a(), w.x(COLUMNS, WIDTH), w.a().values),
    "multiply mean": lambda w: multiply(w.a(None), w.x(COLUMNS, WIDTH), None, mean=True),
    "multiply into": lambda w: multiply(
        w.a(None), w.x(COLUMNS, WIDTH), None, out=w.x(ROWS, WIDTH), accumulate=True
    ),
    "multiply float32": lambda w: multiply(w.a(None), w.x(COLUMNS, WIDTH, dtype=torch.float32), None),
    "extremum": lambda w: extremum(w.a(), w.x(COLUMNS, WIDTH), w.a().values, True),
    "extremum_backward": lambda w: extremum_backward(
        w.a().T, w.x(ROWS, WIDTH), w.index(ROWS * WIDTH, COLUMNS, torch.int32).view(ROWS, WIDTH),
        w.a().T.values, w.index(COLUMNS, COLUMNS, torch.int32),
    ),
    "sddmm": lambda w: kernels.sddmm(w.a(), w.x(ROWS, WIDTH), w.x(COLUMNS, WIDTH)),
    "sddmm_heads": lambda w: sddmm_heads(w.a(), w.x(ROWS, WIDTH), w.x(COLUMNS, WIDTH), 0, 3, HEADS),
    **{
        f"{name} {kind}": lambda w, kind=kind, call=call: call(w, w.a(None), kind)
        for kind in ("given", "additive", "dot")
        for name, call in {
            "attend": lambda w, a, kind: attend(a, scores(w, a, kind), w.x(COLUMNS, WIDTH), 3),
            "attend plain": lambda w, a, kind: attend(
                a, scores(w, a, kind, 0, False), w.x(COLUMNS, WIDTH), 3
            ),
            "attend further": lambda w, a, kind: attend(
                a, scores(w, a, kind), w.x(COLUMNS, WIDTH), 3, 0,
                w.x(ROWS, WIDTH), w.x(ROWS, 2 * HEADS), False,
            ),
            "Scores.of": lambda w, a, kind: scores(w, a, kind).of(a),
        }.items()
    },
    "attend slope": lambda w: attend(
        w.a(None), scores(w, w.a(None), "dot"), w.x(COLUMNS, WIDTH), 3, slope=w.x(ROWS, WIDTH)
    ),
    "attend_backward additive": lambda w: attention_backward(w, "additive"),
    "attend_backward dot": lambda w: attention_backward(w, "dot"),
    "attend_backward of keys that are the values": lambda w: attention_backward(w, "dot", together=True),
    "attend_self_backward": lambda w: attend_self_backward(
        w.square(), Scores("dot", HEADS), w.x(ROWS, 4 * HEADS), w.x(ROWS, WIDTH), w.x(ROWS, WIDTH)
    ),
    "weigh": lambda w: weigh(w.a(), w.x(w.a().arcs, HEADS), w.x(COLUMNS, WIDTH), 3),
    "weigh the transpose into": lambda w: weigh(
        w.a().T, w.x(w.a().arcs, HEADS), w.x(ROWS, WIDTH), 3, 0, w.x(COLUMNS, WIDTH), w.a().permutation
    ),
    "pack_rows": lambda w: kernels.pack_rows(w.x(COLUMNS, WIDTH), w.index(4, COLUMNS)),
    "pack_rows into": lambda w: kernels.pack_rows(w.x(COLUMNS, WIDTH), w.index(4, COLUMNS), w.x(4, WIDTH)),
    "add_rows_": lambda w: kernels.add_rows_(w.x(COLUMNS, WIDTH), w.index(4, COLUMNS), w.x(4, WIDTH)),
    "scatter_rows_": lambda w: scatter_rows_(w.x(COLUMNS, WIDTH), w.index(4, 2), w.x(4, WIDTH)),
    "tropical extremum": lambda w: extremum(w.a(), w.x(COLUMNS, WIDTH), w.a().values, False, plus=True),
    **{
        f"fold {name}": lambda w, s=s: folded(w, s)
        for name, s in {
            "log": Semiring(torch.logaddexp, torch.add, -torch.inf),
            "winners": Semiring(torch.maximum, torch.minimum, -torch.inf),
            "tree": Semiring(torch.fmax, torch.mul, -torch.inf),
        }.items()
    },
    "pair_products": lambda w: kernels.pair_products(w.x(COLUMNS, 3), w.index(4, 9), w.index(4, 3)),
    "add_pair_products_": lambda w: kernels.add_pair_products_(
        w.x(COLUMNS, 3), w.x(COLUMNS, 3), w.index(4, 9), w.index(4, 3), w.x(4, 3)
    ),
    "Drop.factors": lambda w: Drop(0.5, 3).factors(
        w.a(), HEADS, torch.float32, w.x(1).device if w.index is real_index else None
    ),
}  # fmt: skip
ALONE: dict[str, Callable[[World], object]] = {
    "draw": lambda w: kernels.draw(w.index(4, 9), 10, 5),
    "uniform": lambda w: kernels.uniform(w.index(4, 9), 3, 0.1, 5),
    "shuffled": lambda w: kernels.shuffled(w.index(4, 9), 10, 5),
    "log_sum": lambda w: log_sum(w.x(ROWS, 2 * HEADS)),
    "inverse": lambda w: inverse(w.x(ROWS, HEADS)),
    "row_products": lambda w: kernels.row_products(w.x(ROWS, WIDTH), w.x(ROWS, WIDTH), HEADS),
    "empty": lambda w: empty(1000, 1000, like=w.x(1)),
    "empty of another type": lambda w: empty(3, like=w.x(1), dtype=torch.int32),
}
Operation = tuple[Callable[..., Tensor | tuple[Tensor, ...]], tuple[tuple[int, ...], ...]]
"""What to call with a world and leaves, and the leaves' shapes."""
DIFFERENTIABLE: dict[str, Operation] = {
    **{
        f"spmm {reduce}": (lambda w, x, r=reduce: kernels.spmm(w.a(), x, reduce=r), ((COLUMNS, WIDTH),))
        for reduce in ("sum", "mean", "max", "min")
    },
    **{
        f"spmm {reduce} of given values": (
            lambda w, x, v, r=reduce: kernels.spmm(w.a(None), x, v, r),
            ((COLUMNS, WIDTH), (REAL.a().arcs,)),
        )
        for reduce in ("sum", "mean", "max", "min")
    },
    "spmm of a vector": (lambda w, x: kernels.spmm(w.a(), x), ((COLUMNS,),)),
    "gather_rows": (lambda w, x: kernels.gather_rows(x, w.index(20, COLUMNS)), ((COLUMNS, WIDTH),)),
    "gather_rows distinct": (lambda w, x: kernels.gather_rows(x, w.index(4, 4), True), ((COLUMNS, WIDTH),)),
    "scatter_add": (lambda w, x: kernels.scatter_add(w.index(20, 5), x, 5), ((20, WIDTH),)),
    "dropout": (lambda w, x: kernels.dropout(x, 0.5, NOISE), ((ROWS, WIDTH),)),
    "dropout of named rows": (
        lambda w, x: kernels.dropout(x, 0.5, NOISE, w.index(ROWS, 99)),
        ((ROWS, WIDTH),),
    ),
    "relu_dropout_": (
        lambda w, x: kernels.relu_dropout_(x * 2, 0.5, NOISE, w.index(ROWS, 99)),
        ((ROWS, WIDTH),),
    ),
    "relu alone": (lambda w, x: kernels.relu_dropout_(x * 2, 0.0, NOISE), ((ROWS, WIDTH),)),
    "add_bias": (lambda w, x, b: kernels.add_bias(x, b), ((ROWS, WIDTH), (WIDTH,))),
    "add_scaled": (
        lambda w, y, x, s: kernels.add_scaled(y, x, s[0]),
        ((ROWS, WIDTH), (ROWS, WIDTH), (1,)),
    ),
    "relu_": (lambda w, x: kernels.relu_(x * 2), ((ROWS, WIDTH),)),
    "cross_entropy": (lambda w, x: kernels.cross_entropy(x, w.index(ROWS, WIDTH)), ((ROWS, WIDTH),)),
    "elu_": (lambda w, x: kernels.elu_(x * 2), ((ROWS, WIDTH),)),
    "norms": (lambda w, x: kernels.norms(x, HEADS), ((ROWS, WIDTH),)),
    "linear": (lambda w, *t: kernels.linear(*t), ((ROWS, WIDTH), (WIDTH, 3), (3,))),
    "linear to one column": (lambda w, *t: kernels.linear(*t), ((ROWS, WIDTH), (WIDTH, 1))),
    "linears": (
        lambda w, h, a, b, c: kernels.linears(h, (a, b), (c, None)),
        ((ROWS, WIDTH), (WIDTH, 3), (3,), (WIDTH, 4)),
    ),
    "add_linear_": (
        lambda w, y, h, weight: kernels.add_linear_(y * 2, h, weight),
        ((ROWS, 3), (ROWS, WIDTH), (WIDTH, 3)),
    ),
}


def tensors(result: object) -> list[Tensor | None]:
    """A kernel's results, one or several, as a list."""
    return list(result) if isinstance(result, tuple) else [result]  # type: ignore[list-item]


def forward_and_backward(name: str, world: World) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """(results, gradients of their sum) of one of DIFFERENTIABLE."""
    call, shapes = DIFFERENTIABLE[name]
    leaves = [world.x(*shape, grad=True) for shape in shapes]
    results = tensors(call(world, *leaves))
    grads = torch.autograd.grad(sum(r.sum() for r in results if r is not None), leaves)
    return tuple(r.detach() for r in results if r is not None), grads
