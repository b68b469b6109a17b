"""Attention over the arcs of one sparse block: scores, row softmax and weighted sum in one pass.

    s[e,h]   the score of arc e = (i, j) in head h (`Scores`)
    p[e,h]   s itself, or softmax over the arcs of row i
    y[i,c]   Σ over e of keep[e,h] p[e,h] x[j,c],  h = (first + c) // dim the head of column c

Columns are grouped by head, head 0 first. A block may hold only columns first … first + w of them: a rank of
the feature axis. A row's softmax may run over several blocks, one after the other: `state` carries its
maximum and sum. No autograd here: `weft.parallel.attend` calls both directions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..memory import empty
from ..meter import metered
from . import dry, native
from .channels import Channels, Signs, channel_scores
from .csr import CSR
from .dropout import _threshold, philox
from .sddmm import head_of, sddmm_heads

_KINDS = {"given": 0, "additive": 1, "dot": 2, "channel": 3}
_ARCS = 1 << 18


@dataclass(frozen=True)
class Drop:
    """Dropout of arcs: keep[e,h] = 1/(1 − p) or 0, a function of (key, vertex i, vertex j, h) alone."""

    p: float
    key: int
    row_names: Tensor | None = None
    """[rows] int64: the vertex of each row; None: row i is vertex i."""
    column_names: Tensor | None = None

    def factors(self, a: CSR, heads: int, dtype: torch.dtype, device: torch.device | None = None) -> Tensor:
        """keep, [arcs, heads]; on A's device, or on that of the numbers they multiply."""
        keep = torch.empty(a.arcs, heads, dtype=dtype, device=device or a.indices.device)
        if dry.is_dry(keep, a.indices, self.row_names, self.column_names):
            return dry.written(keep)
        # The generator's 64-bit words are many times the size of the factors: some arcs at a time.
        for begin in range(0, a.arcs, _ARCS):
            some = slice(begin, begin + _ARCS)
            i, j = a.row_of[some], a.indices[some].long()
            i = i if self.row_names is None else self.row_names[i]
            j = j if self.column_names is None else self.column_names[j]
            words = []
            for group in range((heads + 3) // 4):
                counter = (j & 0xFFFFFFFF, i & 0xFFFFFFFF, i >> 32, (1 + group) ^ ((j >> 32) << 16))
                words += list(philox(counter, self.key))
            keep[some] = (torch.stack(words[:heads], 1) >= _threshold(self.p)).to(dtype)
        return keep.div_(1 - self.p)


@dataclass(frozen=True)
class Scores:
    """How arc (i, j) is scored in each head.

    given      s[e,h] = given[e,h]
    additive   s[e,h] = leaky(row[i,h] + column[j,h] + bias[e,h]),     leaky(t) = t or slope·t where t ≤ 0
    dot        s[e,h] = row_gain[i,h] gain[j,h] ⟨row[i,h,:], column[j,h,:]⟩ + bias[e,h]
    channel    s[e,h] = Σ_c mix[h,c] leaky(z[e,h,c]) + bias[e,h],  z = row[i] + column[j] + features[e] weight

    row     [rows, heads]     (dot and channel: [rows, heads · d])
    column  [columns, heads]  (dot and channel: [columns, heads · d])
    gain    [columns, heads]  or None: 1;  row_gain [rows, heads] or None, for `attend` alone
    given   [arcs, heads];    bias [arcs, heads] or None: 0
    mix     [heads · d];      features [arcs, t] and weight [t, heads · d], or None
    """

    kind: str
    heads: int = 1
    row: Tensor | None = None
    column: Tensor | None = None
    given: Tensor | None = None
    slope: float = 1.0
    softmax: bool = True
    drop: Drop | None = None
    gain: Tensor | None = None
    row_gain: Tensor | None = None
    bias: Tensor | None = None
    mix: Tensor | None = None
    features: Tensor | None = None
    weight: Tensor | None = None

    @property
    def inner(self) -> int:
        """Columns per head of the two sides, where they are wider than a number a head."""
        return self.row.shape[1] // self.heads if self.wide and self.row is not None else 0

    @property
    def wide(self) -> bool:
        return self.kind in ("dot", "channel")

    @property
    def channels(self) -> Channels:
        """What z is made of, of channel scores."""
        assert self.column is not None
        return Channels(self.column, self.row, self.features, self.weight)

    def of(self, a: CSR) -> Tensor:
        """s, [arcs, heads], before softmax and dropout."""
        known = self.row if self.given is None else self.given
        assert known is not None
        if dry.is_dry(known, self.column, self.gain, self.row_gain, a.indices):
            return dry.blank(a.arcs, self.heads, dtype=known.dtype)
        if self.given is not None:
            return self.given
        assert self.row is not None
        assert self.column is not None
        if self.kind == "additive":
            t = self.sums(a)
            return torch.where(t > 0, t, t * self.slope)
        if self.kind == "channel":
            assert self.mix is not None
            s = channel_scores(a, self.channels, self.mix, self.slope, 0, max(self.inner, 1), self.heads)
        else:
            s = sddmm_heads(a, self.row, self.column, 0, max(self.inner, 1), self.heads)
            s = s if self.row_gain is None else s * self.row_gain[a.row_of]
            s = s if self.gain is None else s * self.gain[a.indices.long()]
        return s if self.bias is None else s + self.bias

    def sums(self, a: CSR) -> Tensor:
        """row + column + bias of additive scores, before the LeakyReLU."""
        assert self.row is not None
        assert self.column is not None
        t = self.row[a.row_of] + self.column[a.indices.long()]
        return t if self.bias is None else t + self.bias

    def _native(self, permutation: Tensor | None = None) -> Any:
        assert native.extension is not None
        out = native.extension.Scores()
        out.kind, out.heads, out.softmax = _KINDS[self.kind], self.heads, self.softmax
        out.given, out.permutation = native.address(self.given), native.address(permutation)
        out.row, out.column = native.address(self.row), native.address(self.column)
        out.row_stride = 0 if self.row is None else self.row.shape[1]
        out.inner, out.slope, out.gain = self.inner, self.slope, native.address(self.gain)
        out.row_gain, out.bias, out.mix = map(native.address, (self.row_gain, self.bias, self.mix))
        out.features, out.weight = native.address(self.features), native.address(self.weight)
        out.feature_width = 0 if self.features is None else self.features.shape[1]
        if self.drop is not None and self.drop.p > 0:
            out.threshold, out.scale = _threshold(self.drop.p), 1 / (1 - self.drop.p)
            out.key = self.drop.key
            out.row_names = native.address(self.drop.row_names)
            out.column_names = native.address(self.drop.column_names)
        return out


def _served(a: CSR, x: Tensor, *more: Tensor | None) -> bool:
    return native.served(x, a.indices, *more) and x.is_floating_point()


@metered("attend")
def attend(
    a: CSR,
    scores: Scores,
    x: Tensor,
    dim: int,
    first: int = 0,
    out: Tensor | None = None,
    state: Tensor | None = None,
    finish: bool = True,
    permutation: Tensor | None = None,
    slope: Tensor | None = None,
    raw: Tensor | None = None,
    signs: Signs | None = None,
) -> tuple[Tensor, Tensor | None]:
    """(y, state): y[i,c] = Σ over e of keep[e,h] p[e,h] x[j,c]; row by row, nothing kept per arc.

        x      [columns, w]    columns first … first + w − 1 of heads · dim
        y      [rows, w]       rows without arcs are 0
        state  [rows, 2·heads] softmax: maximum and sum of exp(s − maximum); None without softmax
        slope  [rows, w]       written where given: ∂y[i,c] / ∂row_gain[i,h], of dot products in one block
        raw    [arcs, heads]   written where given: s
        signs  of the first rows, written where given: those of z, of channel scores

    Blocks of one row after the other: hand y and state of the last call in as `out` and `state`, and
    `finish` with the last: only then y is divided by the sum.

    >>> a = CSR(torch.tensor([0, 2]), torch.tensor([0, 1]), None, (1, 2))
    >>> scores = Scores("additive", row=torch.zeros(1, 1), column=torch.tensor([[5.], [5.]]))
    >>> attend(a, scores, torch.tensor([[1., 2.], [3., 4.]]), dim=2)[0]
    tensor([[2., 3.]])
    """
    rows, width, heads = a.shape[0], x.shape[1], scores.heads
    begin = out is None
    if slope is not None and not (begin and finish and scores.kind == "dot"):
        raise ValueError("a slope is that of dot products in one block")
    if out is None:
        out = empty(rows, width, like=x)
        state = empty(rows, 2 * heads, like=x) if scores.softmax else None
    if _served(a, x, scores.row, scores.column, scores.given, scores.features):
        how = scores._native(permutation)
        how.raw = native.address(raw)
        if signs is not None:
            how.signs, _, how.signs_end = signs.native(a)
        native.kernel("attend", x, a.indices)(
            rows, *map(native.address, (a.indptr, a.indices)), how, native.address(x),
            width, first, max(dim, 1), *map(native.address, (state, out, slope)), begin, finish,
            native.threads((a.arcs + rows) * max(width, heads)),
        )  # fmt: skip
        return out, state
    if dry.is_dry(x, a.indices, scores.row, scores.column, scores.given, out):
        return dry.written(out), None if state is None else dry.written(state)
    s = scores.of(a)
    s = s if permutation is None else s[permutation]
    p = s
    if raw is not None:
        raw.copy_(s)
    if begin:
        out.zero_()
    head = head_of(width, first, dim, x.device)
    if state is not None:
        old, total = (
            (torch.full_like(state[:, :heads], -torch.inf), torch.zeros_like(state[:, heads:]))
            if begin
            else state.split(heads, 1)
        )
        most = old.scatter_reduce(0, a.row_of[:, None].expand(-1, heads), s, "amax")
        factor = torch.where(most == old, 1.0, torch.exp(old - most))
        p = torch.exp(s - _finite(most)[a.row_of])
        total = (total * factor).index_add(0, a.row_of, p)
        out.mul_(factor[:, head])
        state = torch.cat([most, total], 1)
    if scores.drop is not None and scores.drop.p > 0:
        p = p * scores.drop.factors(a, heads, x.dtype)
    out.index_add_(0, a.row_of, p[:, head] * x[a.indices.long()])
    if state is not None and finish:
        out.mul_(inverse(state[:, heads:])[:, head])
    if slope is not None:
        _slope_of(a, scores, x, p, state, head, slope)
    return out, state


def _slope_of(
    a: CSR, scores: Scores, x: Tensor, kept: Tensor, state: Tensor | None, head: Tensor, out: Tensor
) -> None:
    """∂y / ∂row_gain = Σ_e keep p (c − Σ_e p c) x[j], c = s / row_gain; without softmax Σ_e keep c x[j]."""
    plain = replace(scores, row_gain=None).of(a)
    weights = plain
    if state is not None:
        most, total = state.chunk(2, 1)
        p = torch.exp(scores.of(a) - _finite(most)[a.row_of]) * inverse(total)[a.row_of]
        mean = torch.zeros_like(total).index_add_(0, a.row_of, p * plain)
        weights = kept * inverse(total)[a.row_of] * (plain - mean[a.row_of])
    elif scores.drop is not None and scores.drop.p > 0:
        weights = plain * scores.drop.factors(a, scores.heads, x.dtype)
    out.zero_().index_add_(0, a.row_of, weights[:, head] * x[a.indices.long()])


def _finite(most: Tensor) -> Tensor:
    """A maximum to subtract: 0 where all scores are −∞, which then count nothing."""
    if most.is_meta:
        return torch.empty_like(most)
    return torch.where(most == -torch.inf, 0.0, most)


def inverse(total: Tensor) -> Tensor:
    """1 / total, and 0 for rows without arcs."""
    if total.is_meta:
        return torch.empty_like(total)
    return torch.where(total == 0, 0.0, 1 / total)


def log_sum(state: Tensor) -> Tensor:
    """log Σ exp(s) of each row, [rows, heads], from a finished state; +∞ for rows without arcs."""
    most, total = state.chunk(2, 1)
    if state.is_meta:
        return most.new_empty(most.shape)
    return torch.where(total == 0, torch.inf, most + total.log())


@metered("attend")
def attend_backward(
    a: CSR, scores: Scores, stat: Tensor, dy: Tensor, x: Tensor, dim: int, extra: Tensor | None = None
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor]:
    """(dx, dcolumn, dgain, ds) of a finished `attend`, in one walk over Aᵀ.

        stat   [rows, 2·heads]  log Σ exp(s), and Σ_c dy[i,c] y[i,c] over the head's columns
        dp     = keep ∘ (⟨dy[i], x[j]⟩ + extra[e])         ds = p ∘ (dp − stat)      (no softmax: ds = dp)
        dx[j]  = Σ_i keep p dy[i]
        dcolumn  additive: Σ_i ds · leaky'    dot: Σ_i ds · gain[j] row[i]    given: None
        dgain  Σ_i ds ⟨row[i], column[j]⟩;  None without a gain
        ds     [arcs, heads], in A's order: of the sum row + column (+ bias), of the dot product, or of s
        extra  [arcs, heads] or None: what else the weights p are multiplied with

    Where dot's keys are the values (column is x), dcolumn is added into dx, and both are the same tensor.
    Channel scores are walked back as given ones; `channel_scores_backward` goes on from their ds.
    """
    rows, width, heads = a.shape[0], x.shape[1], scores.heads
    if scores.kind == "channel":
        raise ValueError("channel scores are walked back as given ones")
    together = scores.column is x
    dcolumn: Tensor | None
    if _served(a, x, scores.row, scores.column, scores.given, dy, stat, extra):
        t = a.T
        dx = empty(a.shape[1], width, like=x)
        dcolumn = dx if together else None if scores.column is None else empty(*scores.column.shape, like=x)
        dgain = None if scores.gain is None else torch.empty_like(scores.gain)
        ds = empty(a.arcs, heads, like=x)
        how = scores._native(a.permutation)
        how.extra = native.address(extra)
        native.kernel("attend_backward", x, a.indices)(
            t.shape[0], *map(native.address, (t.indptr, t.indices)), how,
            *map(native.address, (stat, dy, x)), width, max(dim, 1), native.address(dx),
            *map(native.address, (dcolumn, dgain, ds)), native.threads((a.arcs + rows) * max(width, heads)),
        )  # fmt: skip
        return dx, dcolumn, dgain, ds
    if dry.is_dry(x, a.indices, scores.row, scores.column, scores.given, dy, stat):
        dx = dry.blank(a.shape[1], width, dtype=x.dtype)
        dcolumn = dx if together else None
        if scores.column is not None and not together:
            dcolumn = dry.blank(*scores.column.shape, dtype=x.dtype)
        dgain = None if scores.gain is None else dry.blank(*scores.gain.shape, dtype=x.dtype)
        return dx, dcolumn, dgain, dry.blank(a.arcs, heads, dtype=x.dtype)
    i, j = a.row_of, a.indices.long()
    p, ds = scores.of(a), sddmm_heads(a, dy, x, 0, dim, heads)
    ds = ds if extra is None else ds + extra
    keep = dgain = None
    if scores.drop is not None and scores.drop.p > 0:
        keep = scores.drop.factors(a, heads, x.dtype)
        ds = ds * keep
    if scores.softmax:
        p = torch.exp(p - stat[i, :heads])
        ds = p * (ds - stat[i, heads:])
    dcolumn = None
    if scores.kind == "additive":
        assert scores.column is not None
        ds = torch.where(scores.sums(a) > 0, ds, ds * scores.slope)
        dcolumn = torch.zeros_like(scores.column).index_add_(0, j, ds)
    elif scores.kind == "dot":
        assert scores.row is not None
        assert scores.column is not None
        if scores.gain is not None:
            plain = sddmm_heads(a, scores.row, scores.column, 0, max(scores.inner, 1), heads)
            dgain = torch.zeros_like(scores.gain).index_add_(0, j, ds * plain)
            ds = ds * scores.gain[j]
        key = ds.repeat_interleave(max(scores.inner, 1), 1)[:, : scores.row.shape[1]]
        dcolumn = torch.zeros_like(scores.column).index_add_(0, j, key * scores.row[i])
    p = p if keep is None else p * keep
    dx = torch.zeros_like(x).index_add_(0, j, p[:, head_of(width, 0, dim, x.device)] * dy[i])
    if together:
        assert dcolumn is not None
        dx = dcolumn = dx.add_(dcolumn)
    return dx, dcolumn, dgain, ds


@metered("attend")
def attend_self_backward(
    a: CSR, scores: Scores, stat: Tensor, dy: Tensor, x: Tensor
) -> tuple[Tensor, Tensor]:
    """(dx, dgains) of a finished `attend` of x with itself, where A has (j, i) for every (i, j): one walk.

    stat    [n, 4·heads]  row_gain, gain, log Σ exp(s), Σ_c dy[i,c] y[i,c]
    dx      [n, w]        of all three places where x stands
    dgains  [n, 2·heads]  of row_gain and gain
    """
    n, width, heads = a.shape[0], x.shape[1], scores.heads
    if _served(a, x, dy, stat):
        dx, dgains = empty(n, width, like=x), empty(n, 2 * heads, like=x)
        native.kernel("attend_self_backward", x, a.indices)(
            n, *map(native.address, (a.indptr, a.indices)), scores._native(),
            *map(native.address, (stat, dy, x)), width, *map(native.address, (dx, dgains)),
            native.threads((a.arcs + n) * width),
        )  # fmt: skip
        return dx, dgains
    if dry.is_dry(x, a.indices, dy, stat):
        return dry.blank(n, width, dtype=x.dtype), dry.blank(n, 2 * heads, dtype=x.dtype)
    row_gain, gain, logs, products = stat.split(heads, 1)
    dim = width // heads
    row = x * row_gain.repeat_interleave(dim, 1)
    # The general walk, with the row gain folded into the row operand.
    folded = Scores("dot", heads, row, x.clone(), None, 1.0, scores.softmax, scores.drop, gain.contiguous())
    dx, dkey, dgain, ds = attend_backward(a, folded, torch.cat([logs, products], 1), dy, x, dim)
    assert dkey is not None
    assert dgain is not None
    drow = weigh(a, ds, x, dim)
    drow_gain = (drow * x).view(n, heads, dim).sum(2)
    dx = dx + dkey + drow * row_gain.repeat_interleave(dim, 1)
    return dx, torch.cat([drow_gain, dgain], 1)


def weigh(
    a: CSR,
    values: Tensor,
    x: Tensor,
    dim: int,
    first: int = 0,
    out: Tensor | None = None,
    permutation: Tensor | None = None,
) -> Tensor:
    """y[i,c] (+)= Σ over e of values[e,h] x[j,c], h the head of column c; added to `out` where given.

        values       [arcs, heads]
        permutation  [arcs]: arc e's values stand at permutation[e] (for the transpose)

    >>> a = CSR(torch.tensor([0, 1]), torch.tensor([0]), None, (1, 1))
    >>> weigh(a, torch.tensor([[2., 3.]]), torch.ones(1, 4), dim=2)
    tensor([[2., 2., 3., 3.]])
    """
    scores = Scores("given", values.shape[1], given=values.contiguous(), softmax=False)
    return attend(a, scores, x.contiguous(), dim, first, out, permutation=permutation)[0]
