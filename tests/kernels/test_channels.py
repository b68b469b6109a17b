"""Messages made column by column: what dense algebra and autograd give, by both kinds of kernels."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from weft.kernels import CSR, use
from weft.kernels.attention import Drop, Scores, attend, attend_backward, log_sum
from weft.kernels.channels import (
    Channels,
    Signs,
    channel_scores,
    channel_scores_backward,
    channel_stats,
    channel_stats_backward,
    channel_sum,
    channel_sum_backward,
)

from .matrices import matrices, random_csr, widths

backends = st.sampled_from(["native", "torch"])


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def operands(a: CSR, width: int, inner: int, row: bool) -> Channels:
    return Channels(
        random(a.shape[1], width, seed=1),
        random(a.shape[0], width, seed=2) if row else None,
        random(a.arcs, inner, seed=3) if inner else None,
        random(inner, width, seed=4) if inner else None,
    )


def learned(ch: Channels) -> list[Tensor]:
    return [t.requires_grad_() for t in (ch.column, ch.row, ch.weight) if t is not None]


def plain_z(a: CSR, ch: Channels) -> Tensor:
    """z of every arc, all at once."""
    z = ch.column[a.indices.long()]
    z = z if ch.row is None else z + ch.row[a.row_of]
    return z if ch.features is None or ch.weight is None else z + ch.features @ ch.weight


def by_row(a: CSR, m: Tensor) -> Tensor:
    return torch.zeros(a.shape[0], m.shape[1], dtype=m.dtype).index_add(0, a.row_of, m)


def close(ours: Tensor | None, theirs: Tensor | None) -> None:
    assert ours is not None
    assert theirs is not None
    torch.testing.assert_close(ours.detach(), theirs.detach(), rtol=1e-11, atol=1e-11)


def detached(ch: Channels) -> Channels:
    return Channels(*(None if t is None else t.detach() for t in ch.tensors))  # type: ignore[arg-type]


@given(a=matrices, width=widths, inner=st.sampled_from([0, 1, 5, 16]), row=st.booleans(), backend=backends)
def test_sums_and_their_gradients(a, width, inner, row, backend):
    ch, x, u = operands(a, width, inner, row), random(a.shape[1], width, seed=5), None
    if inner:
        u = random(inner, width, seed=6)
    g = random(a.shape[0], width, seed=7)
    leaves = [*learned(ch), x.requires_grad_(), *([] if u is None else [u.requires_grad_()])]
    z = plain_z(a, ch)
    values = (
        x[a.indices.long()] if u is None or ch.features is None else x[a.indices.long()] + ch.features @ u
    )
    for kind, message in (("relu", z.relu()), ("gate", z.sigmoid() * values)):
        want = by_row(a, message)
        wanted = dict(zip(map(id, leaves), torch.autograd.grad(
            (want * g).sum(), leaves, allow_unused=True, retain_graph=True), strict=True))  # fmt: skip
        gate, bare = kind == "gate", detached(ch)
        xs, us = (x.detach(), None if u is None else u.detach()) if gate else (None, None)
        with use(backend):
            close(channel_sum(a, bare, kind, xs, us), want)
            close(channel_sum(a, bare, kind, xs, us, out=g.clone()), want + g)
            ways = [None]
            for share in (
                () if gate or backend == "torch" else (1, 100_000)
            ):  # all signs, then the first row's alone
                ways.append(Signs.room(a, bare, 0, width, share=share))
                close(channel_sum(a, bare, kind, signs=ways[-1]), want)
            gradients = [channel_sum_backward(a, bare, kind, g, xs, us, signs) for signs in ways]
        for found in gradients:
            close(found.column, wanted[id(ch.column)])
            assert (found.row is None) == (ch.row is None)
            if ch.row is not None:
                close(found.row, wanted[id(ch.row)])
            if ch.weight is not None:
                close(found.weight, wanted[id(ch.weight)])
            if gate:
                close(found.x, wanted[id(x)])
            if gate and u is not None:
                close(found.value_weight, wanted[id(u)])


@given(a=matrices, width=widths, inner=st.sampled_from([0, 3, 16]), backend=backends)
def test_statistics_and_their_gradients(a, width, inner, backend):
    ch = operands(a, width, inner, row=False)
    leaves = learned(ch)
    z, at = plain_z(a, ch), a.row_of[:, None].expand(-1, width)
    start = torch.zeros(a.shape[0], width, dtype=torch.float64)
    wanted = [
        by_row(a, z), by_row(a, z * z), start.scatter_reduce(0, at, z, "amax", include_self=False),
        start.scatter_reduce(0, at, z, "amin", include_self=False),
    ]  # fmt: skip
    gs = tuple(random(a.shape[0], width, seed=10 + k) for k in range(4))
    want = torch.autograd.grad(sum((w * g).sum() for w, g in zip(wanted, gs, strict=True)), leaves)
    bare = detached(ch)
    with use(backend):
        *numbers, most, least = channel_stats(a, bare)
        dcolumn, dweight = channel_stats_backward(a, bare, gs, (most, least), None, True)
    for ours, theirs in zip(numbers, wanted, strict=True):
        close(ours, theirs)
    close(dcolumn, want[0])
    if inner:
        close(dweight, want[1])
    assert bool(((most < 0) == (a.counts == 0)[:, None]).all())


@given(a=matrices, dim=st.sampled_from([1, 3, 8, 33]), heads=st.sampled_from([1, 2, 5]),
       inner=st.sampled_from([0, 4, 16]), backend=backends)  # fmt: skip
def test_channel_scores_and_their_gradients(a, dim, heads, inner, backend):
    width = heads * dim
    ch, mix = operands(a, width, inner, row=True), random(width, seed=8).requires_grad_()
    leaves = [*learned(ch), mix]
    z = torch.nn.functional.leaky_relu(plain_z(a, ch), 0.2) * mix
    s, ds = z.view(a.arcs, heads, dim).sum(2), random(a.arcs, heads, seed=9)
    want = dict(zip(map(id, leaves), torch.autograd.grad((s * ds).sum(), leaves), strict=True))
    bare, plain, into = detached(ch), mix.detach(), random(a.shape[1], width, seed=10)
    for share in (1, 100_000):  # the second keeps the signs of the first row alone: others are made again
        with use(backend):
            signs = Signs.room(a, bare, 0, dim, share=share)
            assert (signs is None) == (backend == "torch")
            close(channel_scores(a, bare, plain, 0.2, 0, dim, heads, signs), s)
            drow, dcolumn, dweight, dmix = channel_scores_backward(
                a, bare, ds, plain, 0.2, 0, dim, signs, into.clone()
            )
            close(channel_scores_backward(a, bare, ds, plain, 0.2, 0, dim)[1], want[id(ch.column)])
        close(drow, want[id(ch.row)])
        close(dcolumn, want[id(ch.column)] + into)
        close(dmix, want[id(mix)])
        if ch.weight is not None:
            close(dweight, want[id(ch.weight)])


@given(a=matrices, inner=st.sampled_from([1, 7, 8, 16, 17, 33]),
       shape=st.sampled_from([(64, 1), (70, 1), (128, 1), (64, 2), (67, 3), (40, 1), (5, 4)]))  # fmt: skip
def test_float32_gradients_of_scores_are_those_of_float64_up_to_rounding(a, inner, shape):
    """Wide heads of float32 find the weights' gradient by sums of subsets, where vectors hold enough."""
    dim, heads = shape
    width = heads * dim
    ch, mix, ds = (
        detached(operands(a, width, inner, row=True)),
        random(width, seed=8),
        random(a.arcs, heads, seed=9),
    )
    with use("torch"):
        exact = channel_scores_backward(a, ch, ds, mix, 0.2, 0, dim)
    rough = Channels(*(None if t is None else t.float() for t in ch.tensors))  # type: ignore[arg-type]
    with use("native"):
        signs = Signs.room(a, rough, 0, dim)
        channel_scores(a, rough, mix.float(), 0.2, 0, dim, heads, signs)
        found = channel_scores_backward(a, rough, ds.float(), mix.float(), 0.2, 0, dim, signs)
    for ours, theirs in zip(found, exact, strict=True):
        assert ours is not None
        assert theirs is not None
        scale = float(theirs.abs().max()) if theirs.numel() else 0.0
        torch.testing.assert_close(ours.double(), theirs, rtol=0, atol=2e-5 * scale + 1e-6)


@pytest.mark.parametrize("kind", ["additive", "dot", "channel"])
@pytest.mark.parametrize("dropped", [False, True])
@pytest.mark.parametrize(("rows", "columns", "density"), [(7, 5, 0.6), (23, 31, 0.3), (2, 400, 0.9)])
def test_a_bias_and_values_of_arcs_in_attention(kind, dropped, rows, columns, density):
    """Two heads; some rows longer than a tile. The C++ walk and torch's give the same, to the last digits."""
    a, heads, dim, inner = random_csr(rows, columns, density, 3, None), 2, 9, 4
    width, drop = heads * dim, Drop(0.4, 77) if dropped else None
    wide = heads if kind == "additive" else width
    scores = Scores(
        kind, heads, random(rows, wide, seed=1), random(columns, wide, seed=2), slope=0.2, drop=drop,
        bias=random(a.arcs, heads, seed=3), mix=random(width, seed=4) if kind == "channel" else None,
        features=random(a.arcs, inner, seed=5) if kind == "channel" else None,
        weight=random(inner, width, seed=6) if kind == "channel" else None,
    )  # fmt: skip
    x, dy, extra = random(columns, width, seed=7), random(rows, width, seed=8), random(a.arcs, heads, seed=9)

    def both() -> list[Tensor]:
        raw = torch.zeros(a.arcs, heads, dtype=torch.float64)
        y, state = attend(a, scores, x, dim, raw=raw)
        assert state is not None
        stat = torch.cat([log_sum(state), torch.full((rows, heads), 0.3, dtype=torch.float64)], 1)
        back = Scores("given", heads, given=raw, drop=drop) if kind == "channel" else scores
        found = attend_backward(a, back, stat, dy, x, dim, extra)
        return [y, state, raw, *(t for t in found if t is not None)]

    with use("native"):
        ours = both()
    with use("torch"):
        theirs = both()
    for mine, other in zip(ours, theirs, strict=True):
        close(mine, other)
    close(ours[2], scores.of(a))


def test_a_sum_over_arcs_does_not_depend_on_the_threads():
    a = random_csr(300, 200, 0.3, 1, None)
    ch = Channels(*(None if t is None else t.float() for t in operands(a, 24, 5, False).tensors))  # type: ignore[arg-type]
    g, found = random(300, 24).float(), []
    before = torch.get_num_threads()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        sums, ds = channel_sum_backward(a, ch, "relu", g), g[:, :1].new_ones(a.arcs, 1)
        more = channel_scores_backward(a, ch, ds, g[0].contiguous(), 0.2, 0, 24)
        found.append([sums.column, sums.weight, *more])
    torch.set_num_threads(before)
    for other in found[1:]:
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(found[0], other, strict=True))  # type: ignore[arg-type]
