"""The torch paths stay on their operands' device: what a GPU would refuse, found without one."""

from __future__ import annotations

import sys
import types

import pytest
import torch

from weft import kernels
from weft.kernels import CSR, dry, native, rows, use

from ..devices import ROOT, NamedDevices
from .calls import ALONE, DIFFERENTIABLE, DRY, PLAIN, REAL, forward_and_backward
from .test_dry import alike

BACKENDS = ["torch"] if native.extension is None else ["torch", "native"]
META = DRY["meta index"]


def planted(code: str, place: str = "kernels/planted.py") -> None:
    """Run code as if it stood in a file of weft."""
    exec(compile(code, str(ROOT / place), "exec"), {"torch": torch})


@pytest.mark.parametrize(
    "code",
    ["torch.empty(3)", "torch.tensor([1])", "torch.as_tensor(1)", "torch.arange(3, device=None)"],
)
def test_a_factory_without_a_device_is_named_with_its_line(code: str):
    with (
        NamedDevices("kernels"),
        pytest.raises(AssertionError, match=r"src/weft/kernels/planted.py:2 calls torch"),
    ):
        planted(f"\n{code}")
    with NamedDevices("comm"):
        planted(code)


def test_torchs_own_frames_count_as_their_callers():
    with NamedDevices("nn"), pytest.raises(AssertionError, match=r"nn/planted.py:1 calls torch.empty"):
        planted("torch.nn.Linear(3, 4)", "nn/planted.py")


def test_a_named_device_a_tensor_and_a_test_are_let_through():
    with NamedDevices("kernels"):
        torch.empty(3)
        planted("torch.empty(3, device='cpu'); x = torch.zeros(3, device='meta'); torch.as_tensor(x)")
        planted("y = torch.ones(3, device='cpu'); torch.arange(3, out=y); torch.zeros_like(y); y.new_ones(2)")
        planted(
            "x = torch.ones(2, device='cpu', requires_grad=True)\nx.sum().backward()\n"
            "torch.optim.Adam([x]).step()"
        )


def test_a_factory_in_backward_is_seen_too():
    code = """
class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x
    @staticmethod
    def backward(ctx, dy):
        return dy * torch.full((), 2.0)
Twice.apply(torch.ones(2, device="cpu", requires_grad=True)).sum().backward()
"""
    with NamedDevices("kernels"), pytest.raises(AssertionError, match=r"planted.py:8 calls torch.full"):
        planted(code)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", [*PLAIN, *ALONE])
def test_a_kernel_names_the_device_of_what_it_makes(name: str, backend: str):
    with use(backend), NamedDevices("kernels", "memory"):
        {**PLAIN, **ALONE}[name](REAL)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_a_kernel_and_its_backward_name_the_device_of_what_they_make(name: str, backend: str):
    with use(backend), NamedDevices("kernels", "memory"):
        forward_and_backward(name, REAL)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("loops", [False, True])
def test_sampling_names_the_device_of_what_it_makes(backend: str, replace: bool, loops: bool):
    a = REAL.square()
    some, place = torch.tensor([1, 3, 5]), torch.zeros(a.shape[0] + 1, dtype=torch.int64)
    with use(backend), NamedDevices("kernels"):
        kernels.sample_block(a.indptr, a.indices, some, 2, 5, place, replace, loops, want_arcs=True)
        kernels.sample_rows(a.indptr, a.indices, some, some, 2, 5, replace, loops)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_matrix_names_the_device_of_its_parts(backend: str):
    a = REAL.a(None)
    with use(backend), NamedDevices("kernels"):
        for part in ("counts", "row_of", "T", "permutation", "row_picks", "column_picks"):
            getattr(a, part)
        a.dense()
        CSR.blank((2, 3), 4, True)


@pytest.fixture
def _nothing_is_dry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meta tensors take the torch paths, as CUDA's would: there an operand on the CPU is an error.

    Matrices stay dry: whether one is well formed, or its own transpose, is a look at numbers.
    """
    wet = types.SimpleNamespace(**{**vars(dry), "is_dry": lambda *tensors: False})
    for name in ("attention", "dropout", "elementwise", "rows", "sddmm", "spmm"):
        # By name: weft.kernels.spmm is the function.
        monkeypatch.setattr(sys.modules[f"weft.kernels.{name}"], "dry", wet)
    monkeypatch.setattr(rows, "_check", lambda index, n: None)


@pytest.mark.usefixtures("_nothing_is_dry")
@pytest.mark.parametrize("name", [*PLAIN, *ALONE])
def test_a_torch_path_touches_no_other_device(name: str):
    call = {**PLAIN, **ALONE}[name]
    with NamedDevices("kernels", "memory"):
        ours = call(META)
    alike(ours, call(REAL))


@pytest.mark.usefixtures("_nothing_is_dry")
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_a_torch_path_and_its_backward_touch_no_other_device(name: str):
    with NamedDevices("kernels", "memory"):
        ours = forward_and_backward(name, META)
    for dry_ones, real in zip(ours, forward_and_backward(name, REAL), strict=True):
        alike(dry_ones, real)
