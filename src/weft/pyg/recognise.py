"""Which of PyG's modules weft's kernels can do, read off the class, its options and its message."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from . import attending, recipes

_HOOKS = (
    "_propagate_forward_pre_hooks", "_propagate_forward_hooks", "_message_forward_pre_hooks",
    "_message_forward_hooks", "_aggregate_forward_pre_hooks", "_aggregate_forward_hooks",
    "_message_and_aggregate_forward_pre_hooks", "_message_and_aggregate_forward_hooks",
    "_edge_update_forward_pre_hooks", "_edge_update_forward_hooks",
)  # fmt: skip
_PARTS = ("message", "aggregate", "update", "edge_update", "message_and_aggregate")
_TEMPLATES = ("propagate", "edge_updater")
"""Methods that PyG exchanges for compiled ones, class by class."""
RECIPES: dict[str, Callable[..., Any]] = {
    "GCNConv": recipes.gcn, "SAGEConv": recipes.sage, "GINConv": recipes.gin, "SGConv": recipes.sgc,
    "TAGConv": recipes.tag, "APPNP": recipes.appnp, "GATConv": attending.gat, "GATv2Conv": attending.gatv2,
    "TransformerConv": attending.transformer,
}  # fmt: skip
"""Class of torch_geometric.nn → its recipe."""


@dataclass(frozen=True)
class Found:
    """How a module runs.

    recipe          its whole forward; None: none is known
    reads, weighs   the names of x and of the weights in `propagate`, where that alone is exchanged
    why             where neither: what stands in the way
    """

    recipe: Callable[..., Any] | None = None
    reads: str = ""
    weighs: str = ""
    why: str = ""


def recognise(module: Any) -> Found:
    """The way to run a MessagePassing module.

    >>> from torch_geometric.nn import EdgeConv, GCNConv, LGConv
    >>> recognise(GCNConv(3, 2)).recipe.__name__
    'gcn'
    >>> recognise(LGConv()).reads, recognise(LGConv()).weighs
    ('x', 'edge_weight')
    >>> recognise(EdgeConv(torch.nn.Linear(6, 2))).why
    'its message reads x_i'
    """
    import torch_geometric.nn as g

    kind = type(module)
    for name, recipe in RECIPES.items():
        base = getattr(g, name)
        if issubclass(kind, base) and _unchanged(module, base, ("forward", *_PARTS)):
            return Found(recipe)
    why = _plain(module)
    return why if isinstance(why, Found) else Found(why=why)


def watched(module: Any) -> str:
    """Why a module must run as PyG's own just now: it is explained, or hooks watch its steps."""
    if module.explain:
        return "it is being explained"
    if any(getattr(module, name, None) for name in _HOOKS):
        return "hooks watch its messages"
    if module.decomposed_layers > 1:
        return "it is decomposed into several layers"
    return ""


def _unchanged(module: Any, base: type, names: tuple[str, ...]) -> bool:
    """Whether a module's methods are those of `base`, and `propagate` is everybody's."""
    kind = type(module)
    if any(name in module.__dict__ for name in names):
        return False
    if any(getattr(kind, name, None) is not getattr(base, name, None) for name in names):
        return False
    return all(_everybodys(kind, name) and name not in module.__dict__ for name in _TEMPLATES)


def _everybodys(kind: type, name: str) -> bool:
    """Whether a method that PyG compiles is still that of MessagePassing."""
    from torch_geometric.nn.conv import MessagePassing

    own = kind.__mro__[: kind.__mro__.index(MessagePassing)]
    compiled = {id(k.__dict__[f"_jinja_{name}"]) for k in own if f"_jinja_{name}" in k.__dict__}
    for k in own:
        method = k.__dict__.get(f"_orig_{name}", k.__dict__.get(name))
        if method is None or method is getattr(MessagePassing, name):
            continue
        if id(method) not in compiled or method is k.__dict__.get(f"_jinja_{name}"):
            return False
    return True


def _plain(module: Any) -> Found | str:
    """A module whose messages are x_j or w x_j, plainly aggregated: its `propagate` is a product with A."""
    from torch_geometric import nn as g
    from torch_geometric.nn.conv import MessagePassing

    kind = type(module)
    if not _unchanged(module, MessagePassing, ("aggregate", "update", "edge_update")):
        return "it has an aggregate, update or propagate of its own"
    if type(module.aggr_module) not in (
        g.SumAggregation, g.MeanAggregation, g.MaxAggregation, g.MinAggregation
    ):  # fmt: skip
        return f"its aggregation is {module.aggr}"
    if "message" in module.__dict__:
        return "its message was exchanged"
    names = list(inspect.signature(kind.message).parameters)[1:]
    reads = [name for name in names if name.endswith("_j")]
    weighs = [name for name in names if name not in reads]
    strange = [name for name in weighs if name.endswith("_i") or name in kind.special_args]
    if strange:
        return f"its message reads {strange[0]}"
    if len(reads) != 1 or len(weighs) > 1:
        return f"its message reads {', '.join(names)}"
    if _reads_self(kind.message):
        return "its message reads what the module keeps"
    weight = weighs[0] if weighs else ""
    if not _is_product(module, reads[0], weight):
        return "its message is not x_j or a weight times x_j"
    return Found(reads=reads[0].removesuffix("_j"), weighs=weight)


def _reads_self(message: Any) -> bool:
    """Whether the code of a method uses its first argument: then what it does may change."""
    code = message.__code__
    mine = code.co_varnames[0]
    return bool(code.co_freevars) or any(step.argval == mine for step in dis.get_instructions(code))


def _is_product(module: Any, reads: str, weighs: str) -> bool:
    """Tried on numbers of both signs, with zeros."""
    draw = torch.Generator(device="cpu").manual_seed(14)
    x = torch.randn(11, 3, generator=draw, dtype=torch.float64, device="cpu")
    w = torch.randn(11, generator=draw, dtype=torch.float64, device="cpu")
    x[2], x[3, 0], w[4] = 0, 1e6, 0
    state = torch.get_rng_state()
    try:
        with torch._C.DisableTorchFunction(), torch.no_grad():
            tries: list[Tensor | None] = [w, None] if weighs else [None]
            return all(_agrees(module, reads, weighs, x, each) for each in tries)
    finally:
        torch.set_rng_state(state)  # a message may draw numbers


def _agrees(module: Any, reads: str, weighs: str, x: Tensor, w: Tensor | None) -> bool:
    more = {weighs: w} if weighs else {}
    try:
        found = type(module).message(module, **{reads: x.clone()}, **more)
    except Exception:
        # Without a weight it may not run at all, and then never will. Some want [m, 1].
        if w is None:
            return bool(weighs)
        try:
            found = type(module).message(module, **{reads: x.clone()}, **{weighs: w[:, None]})
        except Exception:
            return False
    want = x if w is None else w[:, None] * x
    return isinstance(found, Tensor) and found.shape == want.shape and torch.equal(found, want)
