"""Training does not load torch's compiler; whoever asks for it gets it."""

from __future__ import annotations

import subprocess
import sys
import types

from weft.deferred import defer_compiler


def said(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


TRAIN = (
    "import sys; from weft.graph import load; from weft.train import RunConfig, Trainer;"
    "config = RunConfig(); config.train.epochs = 2; Trainer(load('karate'), config).fit();"
)


def test_a_run_leaves_the_compiler_out_and_who_asks_for_it_then_gets_it():
    """In a process of its own. Before: nothing of it is there. After: the module itself, its submodules, and
    what optimisers keep of it."""
    assert (
        said(
            TRAIN + "print(any(name.startswith('torch._dynamo.') for name in sys.modules), end=' ');"
            "import torch, torch._dynamo; from torch._dynamo.utils import counters;"
            "real = sys.modules['torch._dynamo']; print(real.__spec__.name, torch._dynamo is real, end=' ');"
            "p = torch.nn.Parameter(torch.ones(1)); o = torch.optim.SGD([p], 0.5); p.grad = torch.ones(1);"
            "o.step(); print(float(p.detach()), end=' ');"
            "kept = torch.optim.Optimizer.zero_grad.__wrapped__; o.zero_grad();"
            "print(getattr(kept, '__dynamo_disable') is kept)"
        )
        == "False torch._dynamo True 0.5 False"
    )


def test_a_compiler_that_is_loaded_stays(monkeypatch):
    real = types.ModuleType("torch._dynamo")
    monkeypatch.setitem(sys.modules, "torch._dynamo", real)
    defer_compiler()
    assert sys.modules["torch._dynamo"] is real
