"""No room above `kernels` makes a tensor without naming its device: read off the source, every path of it.

`tests/devices.py` refuses such calls while code runs; here no call is missed because no test came by.
"""

from __future__ import annotations

import ast
from pathlib import Path

import torch

import weft

from .devices import NamedDevices

ROOMS = ("parallel", "nn", "minibatch", "train", "partition", "pyg", "report", "cli")
"""Not `planner` and `bench`: what they measure is this machine's CPU."""
FACTORIES = {
    "empty", "zeros", "ones", "full", "arange", "tensor", "rand", "randn", "randint", "randperm", "eye",
    "linspace", "as_tensor",
}  # fmt: skip
ROOT = Path(weft.__file__).parent


def nameless(text: str) -> list[int]:
    """Lines that call torch.<factory> without device=."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        module, name = node.func.value, node.func.attr
        named = any(keyword.arg == "device" for keyword in node.keywords)
        if isinstance(module, ast.Name) and module.id == "torch" and name in FACTORIES and not named:
            found.append(node.lineno)
    return found


def test_every_tensor_above_the_kernels_names_its_device():
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        for line in nameless(path.read_text())
    ]
    assert not wrong, wrong


def test_a_nameless_tensor_is_found():
    assert nameless("x = torch.zeros(3)\ny = torch.zeros(3, device=d)\nz = x.new_zeros(3)") == [1]


def test_a_training_step_names_every_device():
    """The mode that watches while code runs, around a whole-graph step and a batch."""
    from weft.graph import load, split
    from weft.train import RunConfig, Trainer

    graph = split(load("sbm:nodes=60,features=5,classes=3"), 0.5, 0.2, 0)
    for batch in (0, 16):
        config = RunConfig()
        config.model.hidden, config.batch.batch_size = 4, batch
        if batch:
            config.batch.fanouts = "3,2"
        config.model.layer_norm = True
        with NamedDevices(*ROOMS):
            trainer = Trainer(graph, config)
            trainer.step(1)
            trainer.evaluate()
    assert torch.get_default_device().type == "cpu"
