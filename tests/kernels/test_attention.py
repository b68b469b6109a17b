"""The fused kernels against their torch reference, against dense algebra, and against themselves."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from weft.kernels import CSR, native, use
from weft.kernels.attention import Drop, Scores, attend, attend_backward, log_sum, weigh
from weft.kernels.sddmm import sddmm_heads

from .matrices import random_csr

TOLERANCE = {torch.float64: 1e-12, torch.float32: 3e-5}


def numbers(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def close(ours: Tensor, theirs: Tensor, what: object = None, factor: float = 1.0) -> None:
    """Sums in another order: some units in the last place of the largest number."""
    assert ours.shape == theirs.shape, what
    if ours.numel():
        scale = max(1.0, float(theirs.abs().max()))
        assert float((ours - theirs).abs().max()) <= factor * TOLERANCE[theirs.dtype] * scale, what


def scores_of(
    a: CSR, kind: str, heads: int, softmax: bool, p: float, gain: bool, key: int, dtype: torch.dtype
) -> Scores:
    """Random scores; vertices with names beyond 32 bits, so that dropout's counter is used whole."""
    rows, columns = a.shape
    drop = Drop(p, 987654321 << 20, torch.arange(rows) * 7 + 2**33, torch.arange(columns) * 3 + 2**34)
    common = {"kind": kind, "heads": heads, "softmax": softmax, "drop": drop}
    if kind == "given":
        return Scores(given=numbers(a.arcs, heads, seed=1, dtype=dtype), **common)
    width = heads if kind == "additive" else heads * key
    factor = numbers(columns, heads, seed=4, dtype=dtype) if gain and kind == "dot" else None
    row, column = (numbers(n, width, seed=s, dtype=dtype) for n, s in ((rows, 2), (columns, 3)))
    return Scores(row=row, column=column, slope=0.2, gain=factor, **common)


def dense(a: CSR, scores: Scores, x: Tensor, dim: int) -> Tensor:
    """y by n×n matrices, one head after the other; differentiable."""
    i, j = a.row_of, a.indices.long()
    keep = torch.ones(a.arcs, scores.heads, dtype=x.dtype)
    if scores.drop is not None and scores.drop.p:
        keep = scores.drop.factors(a, scores.heads, x.dtype)
    out = []
    for h in range(scores.heads):
        if scores.kind == "given":
            s = scores.given[:, h]
        elif scores.kind == "additive":
            s = torch.nn.functional.leaky_relu(scores.row[i, h] + scores.column[j, h], scores.slope)
        else:
            head = slice(h * scores.inner, (h + 1) * scores.inner)
            s = (scores.row[:, head] @ scores.column[:, head].T)[i, j]
            s = s if scores.gain is None else s * scores.gain[j, h]
        if scores.softmax:
            full = torch.full(a.shape, -torch.inf, dtype=x.dtype).index_put((i, j), s)
            s = full.softmax(1)[i, j]
        matrix = torch.zeros(a.shape, dtype=x.dtype).index_put((i, j), s * keep[:, h])
        out.append(matrix @ x[:, h * dim : (h + 1) * dim])
    return torch.cat(out, 1)


def stat_of(y: Tensor, dy: Tensor, state: Tensor | None, heads: int) -> Tensor:
    products = (y * dy).view(y.shape[0], heads, y.shape[1] // heads).sum(2)
    return torch.cat([torch.zeros_like(products) if state is None else log_sum(state), products], 1)


def variants() -> Iterator[tuple[str, bool, float, bool]]:
    """(kind, softmax, p, gain), each that is one."""
    for kind, softmax, p, gain in itertools.product(
        ("additive", "dot", "given"), (True, False), (0.0, 0.4), (False, True)
    ):
        if kind == "dot" or not gain:
            yield kind, softmax, p, gain


blocks = st.builds(
    random_csr,
    rows=st.integers(0, 13),
    columns=st.integers(1, 13),
    density=st.sampled_from([0.0, 0.2, 0.7, 1.0]),
    seed=st.integers(0, 10**6),
    dtype=st.none(),
    index=st.sampled_from([torch.int32, torch.int64]),
)
shapes = st.sampled_from(
    [(1, 1, 1), (1, 5, 3), (1, 16, 16), (2, 7, 5), (3, 7, 9), (8, 4, 3), (8, 16, 2), (1, 67, 33)]
)
kinds = st.sampled_from(list(variants()))
dtypes = st.sampled_from([torch.float32, torch.float64])


@settings(max_examples=60)
@given(a=blocks, shape=shapes, variant=kinds, dtype=dtypes, data=st.data())
def test_forward_is_the_torch_kernel_for_any_window_of_columns(a, shape, variant, dtype, data):
    heads, dim, key = shape
    kind, softmax, p, gain = variant
    scores = scores_of(a, kind, heads, softmax, p, gain, key, dtype)
    first = data.draw(st.integers(0, heads * dim - 1))
    width = data.draw(st.integers(1, heads * dim - first))
    x = numbers(a.shape[1], width, seed=5, dtype=dtype)
    y, state = attend(a, scores, x, dim, first)
    with use("torch"):
        want, want_state = attend(a, scores, x, dim, first)
    close(y, want, (shape, variant))
    assert (state is None) == (not softmax)
    if state is not None:
        busy = a.counts > 0
        close(log_sum(state)[busy], log_sum(want_state)[busy], factor=10)
        assert bool((log_sum(state)[~busy] == torch.inf).all())
    assert not y[a.counts == 0].any()


@settings(max_examples=40)
@given(a=blocks, shape=shapes, variant=kinds)
def test_both_kernels_are_the_dense_algebra(a, shape, variant):
    heads, dim, key = shape
    kind, softmax, p, gain = variant
    scores = scores_of(a, kind, heads, softmax, p, gain, key, torch.float64)
    x = numbers(a.shape[1], heads * dim, seed=5)
    want = torch.where(a.counts[:, None] > 0, dense(a, scores, x, dim), 0.0)  # an empty row's softmax is NaN
    for backend in ("native", "torch"):
        with use(backend):
            close(attend(a, scores, x, dim)[0], want, (backend, shape, variant))


@settings(max_examples=60)
@given(a=blocks, shape=shapes, variant=kinds.filter(lambda v: v[0] != "given"), dtype=dtypes)
def test_backward_is_the_torch_kernel(a, shape, variant, dtype):
    heads, dim, key = shape
    kind, softmax, p, gain = variant
    scores = scores_of(a, kind, heads, softmax, p, gain, key, dtype)
    x, dy = (numbers(n, heads * dim, seed=s, dtype=dtype) for n, s in ((a.shape[1], 5), (a.shape[0], 6)))
    y, state = attend(a, scores, x, dim)
    stat = stat_of(y, dy, state, heads)
    ours = attend_backward(a, scores, stat, dy, x, dim)
    with use("torch"):
        theirs = attend_backward(a, scores, stat, dy, x, dim)
    names = ("dx", "dcolumn", "dgain", "ds")
    for name, mine, want in zip(names, ours, theirs, strict=True):
        assert (mine is None) == (want is None), name
        if mine is not None:
            close(mine, want, (name, shape, variant), factor=20)
    quiet = a.T.counts == 0
    assert not ours[0][quiet].any()
    assert not ours[1][quiet].any()


@pytest.mark.parametrize(
    ("variant", "together"),
    [
        (v, together)
        for v in variants()
        for together in (False, True)
        if v[0] == "dot" or (v[0] == "additive" and not together)
    ],
    ids=str,
)
def test_backward_is_autograd_through_the_dense_algebra(variant, together):
    """Every gradient; `together`: keys that are the values, whose two gradients are one tensor."""
    kind, softmax, p, gain = variant
    heads, dim = 3, 5
    a = random_csr(17, 13, 0.5, 3, None)
    assert bool((a.counts > 0).all())
    scores = scores_of(a, kind, heads, softmax, p, gain, dim, torch.float64)
    x, dy = numbers(13, heads * dim, seed=5), numbers(17, heads * dim, seed=6)
    if together:
        scores = replace(scores, column=x)
    leaves = {"row": scores.row, "column": scores.column, "gain": scores.gain}
    leaves = {name: t.clone().requires_grad_() for name, t in leaves.items() if t is not None}
    leaf_x = leaves["column"] if together else x.clone().requires_grad_()
    dense(a, replace(scores, **leaves), leaf_x, dim).backward(dy)

    y, state = attend(a, scores, x, dim)
    dx, dcolumn, dgain, ds = attend_backward(a, scores, stat_of(y, dy, state, heads), dy, x, dim)
    close(dx, leaf_x.grad, "dx", 10)
    close(dcolumn, leaves["column"].grad, "dcolumn", 10)
    assert (dcolumn is dx) == together
    if gain:
        close(dgain, leaves["gain"].grad, "dgain", 10)
    if kind == "additive":
        drow = torch.zeros_like(scores.row).index_add_(0, a.row_of, ds)
    else:
        drow = weigh(a, ds, scores.column, dim)
    close(drow, leaves["row"].grad, "drow", 10)


@settings(max_examples=40)
@given(
    rows=st.integers(1, 9),
    columns=st.lists(st.integers(1, 8), min_size=2, max_size=4),
    density=st.sampled_from([0.1, 0.5, 1.0]),
    shape=shapes,
    variant=kinds.filter(lambda v: v[0] != "given"),
    backend=st.sampled_from(["native", "torch"]),
)
def test_blocks_one_after_the_other_are_the_row_in_one(rows, columns, density, shape, variant, backend):
    """The softmax's maximum and sum are carried; the last block finishes, also where it is empty."""
    heads, dim, key = shape
    kind, softmax, p, gain = variant
    whole = random_csr(rows, sum(columns), density, 7, None)
    scores = scores_of(whole, kind, heads, softmax, p, gain, key, torch.float64)
    x = numbers(sum(columns), heads * dim, seed=5)
    filled = torch.zeros(whole.shape, dtype=torch.bool)
    filled[whole.row_of, whole.indices.long()] = True
    out = state = None
    begin = 0
    with use(backend):
        want, want_state = attend(whole, scores, x, dim)
        for width in columns:
            cut = slice(begin, begin + width)
            begin += width
            part = filled[:, cut]
            indptr = torch.cat([torch.zeros(1, dtype=torch.int64), part.sum(1).cumsum(0)])
            block = CSR(indptr, part.nonzero()[:, 1].int(), None, (rows, width))
            drop = replace(scores.drop, column_names=scores.drop.column_names[cut])
            gains = None if scores.gain is None else scores.gain[cut]
            here = replace(scores, column=scores.column[cut], gain=gains, drop=drop)
            out, state = attend(block, here, x[cut], dim, 0, out, state, begin == sum(columns))
    close(out, want)
    if softmax:
        busy = whole.counts > 0
        close(log_sum(state)[busy], log_sum(want_state)[busy], factor=10)


@settings(max_examples=30)
@given(a=blocks, heads=st.sampled_from([1, 2, 3, 8]), dim=st.sampled_from([1, 5, 9]), first=st.integers(0, 4))
def test_numbers_of_arcs_are_found_through_the_permutation(a, heads, dim, first):
    """Aᵀ with the permutation of its arcs reads A's numbers; `out` is added to."""
    first = min(first, heads * dim - 1)
    values = numbers(a.arcs, heads, seed=1)
    x = numbers(a.shape[0], heads * dim, seed=2)[:, first:].contiguous()
    head = torch.arange(first, heads * dim) // dim
    want = torch.zeros(a.shape[1], heads * dim - first, dtype=torch.float64)
    want.index_add_(0, a.indices.long(), values[:, head] * x[a.row_of])
    for backend in ("native", "torch"):
        with use(backend):
            out = weigh(a.T, values, x, dim, first, permutation=a.permutation)
            close(out, want)
            close(weigh(a.T, values, x, dim, first, out.clone(), a.permutation), 2 * want)


@settings(max_examples=30)
@given(a=blocks, shape=shapes, first=st.integers(0, 6), dtype=dtypes)
def test_dots_per_head_of_a_window_of_columns(a, shape, first, dtype):
    heads, dim, _ = shape
    first = min(first, heads * dim - 1)
    left, right = (
        numbers(n, heads * dim - first, seed=s, dtype=dtype) for n, s in zip(a.shape, (1, 2), strict=True)
    )
    ours = sddmm_heads(a, left, right, first, dim, heads)
    with use("torch"):
        close(ours, sddmm_heads(a, left, right, first, dim, heads), factor=3)
    head = torch.arange(first, heads * dim) // dim
    for h in range(heads):
        want = (left[:, head == h] @ right[:, head == h].T)[a.row_of, a.indices.long()]
        close(ours[:, h], want, factor=3)


@pytest.mark.parametrize("backend", ["native", "torch"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1e4, -1e4])
def test_logits_of_ten_thousand_do_not_overflow(backend, dtype, size):
    a = random_csr(19, 23, 0.4, 2, None)
    column = numbers(23, 2, seed=1, dtype=dtype) * 3 + size
    column[::5] = -size
    row = numbers(19, 2, seed=2, dtype=dtype)
    scores = Scores("additive", 2, row, column, slope=1.0)
    x, dy = numbers(23, 6, seed=3, dtype=dtype), numbers(19, 6, seed=4, dtype=dtype)
    # The sums of row and column are rounded in the kernel's own type; the softmax of them is the truth.
    exact = replace(scores, row=torch.zeros(19, 2).double(), column=torch.zeros(23, 2).double(), kind="given",
                    given=(row[a.row_of] + column[a.indices.long()]).double())  # fmt: skip
    want = torch.where(a.counts[:, None] > 0, dense(a, exact, x.double(), 3), 0.0)
    with use(backend):
        y, state = attend(a, scores, x, 3)
        assert bool(torch.isfinite(y).all())
        close(y, want.to(dtype))
        for t in attend_backward(a, scores, stat_of(y, dy, state, 2), dy, x, 3):
            assert t is None or bool(torch.isfinite(t).all())


def test_a_matrix_without_arcs_gives_zeros_and_zero_gradients():
    a = random_csr(5, 4, 0.0, 0, None)
    x, dy = numbers(4, 6, seed=1), numbers(5, 6, seed=2)
    for variant in variants():
        if variant[0] == "given":
            continue
        scores = scores_of(a, *variant[:1], 2, *variant[1:], 3, torch.float64)
        y, state = attend(a, scores, x, 3)
        assert not y.any()
        found = attend_backward(a, scores, stat_of(y, dy, state, 2), dy, x, 3)
        assert all(t is None or not t.any() for t in found)


def test_rows_are_summed_in_the_same_order_on_any_number_of_threads():
    a = random_csr(300, 200, 0.3, 1, None)
    x, dy = numbers(200, 24, seed=1, dtype=torch.float32), numbers(300, 24, seed=2, dtype=torch.float32)
    before = torch.get_num_threads()
    assert native.threads((a.arcs + 300) * 24) == before  # enough work to be shared
    try:
        for kind, gain in (("additive", False), ("dot", True)):
            scores = scores_of(a, kind, 3, True, 0.3, gain, 8, torch.float32)
            found = []
            for threads in (1, 2):
                torch.set_num_threads(threads)
                y, state = attend(a, scores, x, 8)
                found.append([y, state, *attend_backward(a, scores, stat_of(y, dy, state, 3), dy, x, 8)])
            assert all(one is None or torch.equal(one, two) for one, two in zip(*found, strict=True))
    finally:
        torch.set_num_threads(before)


def test_dropout_leaves_out_its_share_and_scales_the_rest():
    a = random_csr(120, 120, 1.0, 0, None)
    keep = Drop(0.3, 5).factors(a, 5, torch.float64)
    assert set(keep.unique().tolist()) == {0.0, 1 / 0.7}
    assert float((keep == 0).double().mean()) == pytest.approx(0.3, abs=0.01)
    heads = (keep == 0).double()
    together = heads.T @ heads / a.arcs  # heads are dropped independently
    off = together[~torch.eye(5, dtype=torch.bool)]
    assert float((off - 0.09).abs().max()) < 0.02


_BOTH = """
import torch
from weft.kernels import native
from tests.kernels.matrices import random_csr
from tests.kernels.test_attention import numbers, scores_of, stat_of
from weft.kernels.attention import attend, attend_backward
a = random_csr(40, 30, 0.4, 1, None)
total = []
for kind, heads, dim in (("additive", 8, 5), ("dot", 3, 11), ("dot", 1, 37)):
    scores = scores_of(a, kind, heads, True, 0.3, kind == "dot", dim, torch.float64)
    x, dy = numbers(30, heads * dim, seed=1), numbers(40, heads * dim, seed=2)
    y, state = attend(a, scores, x, dim)
    found = attend_backward(a, scores, stat_of(y, dy, state, heads), dy, x, dim)
    total += [y.abs().sum(), *(t.abs().sum() for t in found if t is not None)]
print(native.extension.isa())
print(*(f"{float(t):.9g}" for t in total))
"""


def test_every_instruction_set_gives_the_same_attention():
    def outcome(isa: str) -> list[str]:
        env = os.environ | {"WEFT_ISA": isa}
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        return subprocess.run(
            [sys.executable, "-c", _BOTH], env=env, cwd=root, capture_output=True, text=True, check=True
        ).stdout.splitlines()

    assert "baseline" in native.extension.isas()
    answers = {isa: outcome(isa) for isa in native.extension.isas()}
    assert all(name == isa for isa, (name, _) in answers.items())
    assert len({answer for _, answer in answers.values()}) == 1, answers
