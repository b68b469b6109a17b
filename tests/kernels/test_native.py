from __future__ import annotations

import os
import subprocess
import sys

import pytest

from weft.kernels import native, use

_SUM = """
import torch
from weft.kernels import CSR, Stream, native, relu_dropout_, spmm
g = torch.Generator().manual_seed(0)
indices = torch.randint(50, (400,), generator=g).int()
a = CSR(torch.arange(0, 401, 8), indices, torch.rand(400, generator=g), (50, 50))
x = torch.rand(50, 37, generator=g)
y = relu_dropout_(spmm(a, x) - 2, 0.5, Stream(0, 0, 0))
e = native.extension
print(e.isa() if e else "none", e.pool() if e else "")
print(f"{float(y.double().sum()):.3f} {int((y > 0).sum())} {float(spmm(a, x, reduce='max').sum()):.4f}")
"""


def outcome(**environment: str) -> list[str]:
    env = os.environ | environment
    done = subprocess.run([sys.executable, "-c", _SUM], env=env, capture_output=True, text=True, check=True)
    return [*done.stdout.splitlines(), done.stderr]


def test_every_instruction_set_and_pool_gives_the_same_answer():
    wanted = outcome()[1]
    for isa in native.extension.isas():
        name, answer, _ = outcome(WEFT_ISA=isa)
        assert name.split()[0] == isa
        assert answer == wanted
    name, answer, _ = outcome(WEFT_POOL="own")
    assert name.split()[1] == "own"
    assert answer == wanted


def test_without_the_extension_torch_serves_and_says_so_once():
    hide = "import sys; sys.modules['weft._native'] = None\n"
    done = subprocess.run([sys.executable, "-c", hide + _SUM], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "none "
    assert done.stdout.splitlines()[1] == outcome()[1]
    assert done.stderr.count("without its C++ kernels") == 1


def test_an_instruction_set_that_is_not_here_is_refused():
    env = os.environ | {"WEFT_ISA": "neon9"}
    done = subprocess.run([sys.executable, "-c", _SUM], env=env, capture_output=True, text=True)
    assert done.returncode != 0
    assert "WEFT_ISA=neon9 does not run on this machine" in done.stderr


def test_use_refuses_an_unknown_backend():
    with pytest.raises(ValueError, match="Did you mean 'native'"), use("natve"):
        pass
