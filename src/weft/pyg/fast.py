"""A PyG model through weft's kernels, by one line: `weft.accelerate(model)`.

A module that is recognised gets another `forward`, or another `propagate`; weights, state_dict, hooks and
class stay. Before its first use it is run beside PyG's own on a small graph, forward and back. Where it
cannot run, or differs, PyG's own runs, and one line says so.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import Note, UserError
from .recipes import Layer, propagate
from .recognise import Found, recognise, watched
from .views import Unfit

_CLOSE = 1e-9
"""The largest difference on the sample, in float64, relative to the largest number there."""
_SOURCES, _TARGETS, _ARCS = 9, 6, 26


def accelerate(model: nn.Module) -> nn.Module:
    """The model itself, whose PyG layers run through weft's kernels from now on, in one process.

        GCNConv, SAGEConv, GINConv, SGConv, APPNP, TAGConv, GATConv, GATv2Conv, TransformerConv, and every
        MessagePassing whose message is x_j or w x_j, added up, averaged, or its maximum or minimum

    A layer is compared with PyG's own on a small graph before it is first used. `weft.explain(model)` says
    how each layer runs, and why one runs as PyG's own; that is also told once as a warning. An edge_index is
    looked at once: hand the same tensor in again.

    >>> from torch_geometric.nn import GCNConv
    >>> model = accelerate(GCNConv(3, 2))
    >>> model(torch.ones(2, 3), torch.tensor([[0], [1]])).shape
    torch.Size([2, 2])
    >>> explain(model)
    {'GCNConv': 'weft'}
    """
    if not isinstance(model, nn.Module):
        raise UserError(f"a {type(model).__name__} cannot be accelerated. Give a torch.nn.Module.")
    if not install(model):
        warnings.warn(Note(f"{type(model).__name__} has no layer of PyG: nothing is faster."), stacklevel=2)
    return model


def install(model: nn.Module, chance: Any = None, quiet: bool = False) -> int:
    """Exchange what is recognised; how many MessagePassing modules there are.

    chance   as in `Layer`
    quiet    nobody asked for speed: it is told only where a layer was recognised and then differed
    """
    from torch_geometric.nn.conv import MessagePassing

    count = 0
    for path, module in model.named_modules():
        if not isinstance(module, MessagePassing):
            continue
        count += 1
        old = _fast_of(module)
        if old is not None:
            old.layer.chance = chance
            continue
        fast = Fast(Layer(module, path, chance), recognise(module), quiet=quiet)
        if fast.found.recipe is not None:
            module.forward = fast
        elif fast.found.reads:
            module.propagate = fast
        else:
            module.__dict__["_weft_fast"] = fast  # for `explain`, and to say so when it runs
            if not quiet:
                module.register_forward_pre_hook(_say_once)
    return count


def explain(model: nn.Module) -> dict[str, str]:
    """How each PyG layer of an accelerated or wrapped model runs: `weft`, or `PyG:` and why.

    Before a layer has run it is what is expected of it: `weft, once it is checked`.
    """
    from torch_geometric.nn.conv import MessagePassing

    out = {}
    for path, module in model.named_modules():
        if isinstance(module, MessagePassing):
            fast = _fast_of(module)
            kind = type(module).__name__
            name = f"{path} ({kind})" if path else kind
            out[name] = "PyG: it is not accelerated" if fast is None else fast.says()
    return out


def unrun(model: nn.Module) -> set[str]:
    """The paths of modules whose work is done inside of a recipe, or by a product with A: they never run."""
    out = set()
    for path, module in model.named_modules():
        fast = _fast_of(module)
        if fast is None or fast.found.why:
            continue
        inside = [name for name, _ in module.named_modules() if name]
        if fast.found.recipe is None:
            inside = [name for name in inside if name.split(".")[0] == "aggr_module"]
        else:
            # On ranks GINConv runs its `nn` as it is.
            inside = [name for name in inside if name.split(".")[0] != "nn"]
        out |= {f"{path}.{name}" if path else name for name in inside}
    return out


def _fast_of(module: nn.Module) -> Fast | None:
    for name in ("forward", "propagate", "_weft_fast"):
        found = module.__dict__.get(name)
        if isinstance(found, Fast):
            return found
    return None


def _say_once(module: nn.Module, args: Any) -> None:
    fast = _fast_of(module)
    if fast is not None:
        fast.told(fast.found.why)


@dataclass
class Fast:
    """In place of a module's `forward` or `propagate`.

    checked   kind of call → "" where it agreed with PyG's own, else why it is not used
    quiet     tell only what should not be
    reason    why the last call ran as PyG's own; "" where it did not; None before the first
    """

    layer: Layer
    found: Found
    checked: dict[Any, str] = field(default_factory=dict)
    reason: str | None = None
    quiet: bool = False
    _told: set[str] = field(default_factory=set)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module = self.layer.module
        try:
            self._ready(args, kwargs)
            out = self.run(module, args, kwargs)
        except Unfit as why:
            self.reason = str(why)
            self.told(self.reason)
            return self.plain(module, args, kwargs)
        self.reason = ""
        return out

    def run(self, module: Any, args: Any, kwargs: Any) -> Any:
        """Through weft's kernels."""
        layer = self.layer if module is self.layer.module else Layer(module, self.layer.path)
        if self.found.recipe is not None:
            return self.found.recipe(layer, *args, **kwargs)
        edge_index, size, rest = _of_propagate(*args, **kwargs)
        return propagate(layer, self.found.reads, self.found.weighs, edge_index, size, rest)

    def plain(self, module: Any, args: Any, kwargs: Any) -> Any:
        """As PyG's own."""
        name = "propagate" if self.found.recipe is None else "forward"
        return getattr(type(module), name)(module, *args, **kwargs)

    def says(self) -> str:
        if self.found.why:
            return f"PyG: {self.found.why}"
        if self.reason is None:
            return "weft, once it is checked"
        return f"PyG: {self.reason}" if self.reason else "weft"

    def told(self, why: str) -> None:
        """One line for each reason."""
        if why in self._told or why in _EXPECTED or (self.quiet and not why.startswith(_DIFFERED)):
            return
        self._told.add(why)
        warnings.warn(Note(f"{self.layer.name} runs as PyG's own: {why}."), stacklevel=4)

    def _ready(self, args: Any, kwargs: Any) -> None:
        """Refuse what cannot run, and look at a kind of call before its first time."""
        if why := watched(self.layer.module):
            raise Unfit(why)
        if torch.compiler.is_compiling():
            raise Unfit("it is being compiled")
        key = _kind(args), *((name, _kind((value,))) for name, value in sorted(kwargs.items()))
        if key not in self.checked:
            self.checked[key] = self._compare(args, kwargs)
        if self.checked[key]:
            raise Unfit(self.checked[key])

    def _compare(self, args: Any, kwargs: Any) -> str:
        """Why this layer is not used for such calls; "" where it gives what PyG gives on a small graph."""
        state = torch.get_rng_state()
        try:
            with torch._C.DisableTorchFunction(), torch.enable_grad(), torch.inference_mode(False):
                return self._sample(args, kwargs)
        finally:
            torch.set_rng_state(state)

    def _sample(self, args: Any, kwargs: Any) -> str:
        if any(isinstance(p, nn.parameter.UninitializedParameter) for p in self.layer.module.parameters()):
            raise Unfit(_EXPECTED[0])
        draw = torch.Generator(device="cpu").manual_seed(0)
        sample = _Sample(draw, self._signature(args, kwargs), self.found.reads or "x")
        results = []
        for run in (self.run, self.plain):
            try:
                module = _bare_copy(self.layer.module)
            except Exception as error:
                return f"it cannot be copied to compare it ({type(error).__name__})"
            leaves, given = sample.tensors()
            if run == self.run:
                out = run(module, (), given)
            else:
                try:
                    out = run(module, (), given)
                except Exception:
                    return "PyG's own fails on a sample"
            if not isinstance(out, Tensor) or not out.requires_grad:
                return "its result is not a tensor with a gradient"
            weight = torch.linspace(-1, 1, out.numel(), dtype=out.dtype, device=out.device).view(out.shape)
            wanted = [*leaves, *module.parameters()]
            grads = torch.autograd.grad((out * weight).sum(), wanted, allow_unused=True)
            results.append([out.detach(), *grads])
        return _differs(*results)

    def _signature(self, args: Any, kwargs: Any) -> dict[str, Any]:
        """The arguments by name."""
        if self.found.recipe is None:
            edge_index, _, rest = _of_propagate(*args, **kwargs)
            names = (self.found.reads, self.found.weighs)
            return {"edge_index": edge_index} | {k: v for k, v in rest.items() if k in names}
        bound = inspect.signature(self.found.recipe).bind(self.layer, *args, **kwargs).arguments
        bound.pop("layer")
        return {name: value for name, value in bound.items() if value is not None and name != "size"}


_DIFFERED = "it differed"
_EXPECTED = ("its weights have no shape yet",)
"""Reasons that go by themselves: nobody is told."""


def _of_propagate(edge_index: Any, *rest: Any, size: Any = None, **kwargs: Any) -> tuple[Any, Any, Any]:
    if rest:
        raise Unfit("propagate is called with arguments by place")
    return edge_index, size, kwargs


def _kind(values: Any) -> Any:
    """What a call must be like for a comparison to hold for it: which arguments, dims, and what learns."""
    return tuple(
        (value.dim(), value.requires_grad) if isinstance(value, Tensor)
        else _kind(value) if isinstance(value, (tuple, list)) else type(value).__name__
        for value in values
    )  # fmt: skip


def _bare_copy(module: Any) -> Any:
    """The module as PyG made it, in float64, without what it remembers of a graph, and without dropout."""
    kept = {name: module.__dict__.pop(name) for name in ("forward", "propagate") if name in module.__dict__}
    cached = {name: getattr(module, name) for name in vars(module) if name.startswith("_cached")}
    for name in cached:
        setattr(module, name, None)
    try:
        made = copy.deepcopy(module)
    finally:
        module.__dict__.update(kept)
        for name, value in cached.items():
            setattr(module, name, value)
    return made.double().eval()


class _Sample:
    """A small directed graph with a loop, an arc twice and a vertex without arcs, as a call would have it.

    x has the columns of the call's x, with zeros and equal numbers; of a pair both sides have.
    """

    def __init__(self, draw: torch.Generator, like: dict[str, Any], reads: str):
        self._fixed: set[str] = set()
        pair = any(isinstance(v, (tuple, list)) for v in like.values())
        targets = _TARGETS if pair else _SOURCES
        edges = torch.stack(
            [torch.randint(_SOURCES - 1, (_ARCS,), generator=draw, device="cpu"),
             torch.randint(targets - 1, (_ARCS,), generator=draw, device="cpu")]
        )  # fmt: skip
        edges[:, 0], edges[:, 1] = edges[:, 2], 1
        self._made: dict[str, Any] = {}
        for name, value in like.items():
            if name == "edge_index":
                self._made[name] = edges
            elif isinstance(value, (tuple, list)):
                self._made[name] = tuple(
                    None if v is None else self._rows(draw, n, v)
                    for n, v in zip((_SOURCES, targets), value, strict=True)
                )
            elif isinstance(value, Tensor):
                rows = _SOURCES if name == reads else _ARCS
                self._made[name] = self._rows(draw, rows, value, positive=rows == _ARCS)
                if rows == _ARCS and not value.requires_grad:
                    self._fixed.add(name)
            else:
                self._made[name] = value

    @staticmethod
    def _rows(draw: torch.Generator, rows: int, like: Tensor, positive: bool = False) -> Tensor:
        x = torch.randn(rows, *like.shape[1:], generator=draw, dtype=torch.float64, device="cpu")
        return x.abs().add_(0.1) if positive else x.relu_() if like.dim() == 2 and rows > 3 else x

    def tensors(self) -> tuple[list[Tensor], dict[str, Any]]:
        """(those that ask for a gradient, the arguments): new ones for every run."""
        leaves: list[Tensor] = []

        def leaf(name: str, value: Any) -> Any:
            if isinstance(value, (tuple, list)):
                return tuple(leaf(name, v) for v in value)
            if isinstance(value, Tensor) and value.is_floating_point() and name not in self._fixed:
                leaves.append(value.clone().requires_grad_())
                return leaves[-1]
            return value.clone() if isinstance(value, Tensor) else value

        return leaves, {name: leaf(name, value) for name, value in self._made.items()}


def _differs(ours: list[Any], theirs: list[Any]) -> str:
    # A gradient that is nothing but rounding, as of a bias under a softmax, is held against the others.
    least = 1e-3 * max(float(b.abs().max()) for b in theirs if b is not None and b.numel())
    for a, b in zip(ours, theirs, strict=True):
        if a is None and b is None:
            continue
        a, b = (torch.zeros_like(b) if a is None else a), (torch.zeros_like(a) if b is None else b)
        if a.shape != b.shape:
            return f"it gave {list(a.shape)} on a sample where PyG gives {list(b.shape)}"
        if not a.numel():
            continue
        gap = float((a - b).abs().max()) / max(float(b.abs().max()), least, 1e-30)
        if not gap <= _CLOSE:
            return f"{_DIFFERED} by {gap:.1e} on a sample"
    return ""
