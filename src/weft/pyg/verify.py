"""Any module on ranks against one process: every submodule's output, weight gradients, input gradients."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from ..comm import Communicator
from ..comm.threads import single
from ..errors import UserError
from ..train.verify import relative_difference
from .fast import unrun
from .job import Job, ranks
from .space import tag_of


@dataclass
class Trace:
    """What a pass forward and back computed, in the order in which it did: name → rows of the whole graph."""

    values: dict[str, Tensor] = field(default_factory=dict)

    def put(self, name: str, value: Tensor) -> None:
        k = 1
        while (key := name if k == 1 else f"{name}, call {k}") in self.values:
            k += 1
        self.values[key] = value


def trace(model: nn.Module, data: Any, job: Job, cut: dict[str, Any], hidden: Collection[str] = ()) -> Trace:
    """One pass on a job: outputs of all submodules as they end, then gradients. Every rank calls it.

    loss = mean of out²; the gradient of x and of every weight follows from it.
    cut      how `job.share` cuts the graph: partition, strategy, grid
    hidden   submodules that do not run where weft's kernels do their parent's work
    """
    found = Trace()
    shared = job.share(data, **cut)
    if shared.x is not None and shared.x.is_floating_point():
        shared.x.requires_grad_()

    def keep(name: str) -> Any:
        def hook(module: nn.Module, args: Any, out: Any) -> None:
            for part in _parts(out):
                found.put(f"output of {name}", job.collect(part).clone())

        return hook

    hooks = [
        module.register_forward_hook(
            keep(f"{type(module).__name__} ({path})" if path else type(module).__name__)
        )
        for path, module in model.named_modules()
        if path not in hidden
    ]
    out = call(model, shared)
    for hook in hooks:
        hook.remove()
    first = next(_parts(out), None)
    if first is not None and first.requires_grad:
        first.square().mean().backward()
    for name, p in model.named_parameters():
        if p.grad is not None:
            found.put(f"gradient of {name}", p.grad.detach().clone())
    if shared.x is not None and shared.x.grad is not None:
        found.put("gradient of x", job.collect(shared.x.grad))
    return found


def call(model: nn.Module, data: Any) -> Any:
    """model(x, edge_index, …): each argument of `forward` is the attribute of data that has its name.

    >>> from types import SimpleNamespace
    >>> call(nn.ReLU(), SimpleNamespace(input=Tensor([-1.0, 2.0])))
    tensor([0., 2.])
    """
    given = {}
    for name, parameter in inspect.signature(model.forward).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        value = getattr(data, name, None)
        if value is not None:
            given[name] = value
        elif parameter.default is parameter.empty:
            raise UserError(
                f"forward of {type(model).__name__} asks for {name}, and the graph has no data.{name}. "
                "Give a model of x and edge_index, or a graph that has it."
            )
    return model(**given)


def _parts(out: Any) -> Iterator[Tensor]:
    """The tensors of numbers in a result; vertex numbers are no result."""
    if isinstance(out, Tensor):
        tag = tag_of(out)
        if tag is None or tag.names is None:
            yield out
    elif isinstance(out, (tuple, list)):
        for part in out:
            yield from _parts(part)
    elif isinstance(out, dict):
        for part in out.values():
            yield from _parts(part)


def compare(a: Trace, b: Trace) -> dict[str, float]:
    """Name → the largest difference, relative to the largest magnitude in the tensors.

    A gradient that is nothing but rounding, as of a bias before a norm, is compared with a hundredth of the
    largest gradient there is. What one of the two has and the other has not is infinitely different.
    """
    largest = [
        float(g.abs().max()) for name, g in b.values.items() if name.startswith("gradient") and g.numel()
    ]
    out = {}
    for name in dict.fromkeys([*a.values, *b.values]):
        x, y = a.values.get(name), b.values.get(name)
        if x is None or y is None or x.shape != y.shape:
            out[name] = float("inf")
            continue
        least = max(largest) / 100 if name.startswith("gradient") else 0.0
        size = float(y.abs().max()) if y.numel() else 0.0
        part = size / least if size < least else 1.0
        out[name] = relative_difference(x.double(), y.double()) * part
    return out


def differences(
    model: nn.Module, data: Any, comm: Communicator, partition: str = "random", seed: int = 0,
    strategy: str = "halo", grid: str = "",
) -> dict[str, float]:  # fmt: skip
    """The largest relative difference of each thing, as they were computed. Every rank calls it.

    Layers that go through weft's kernels do so in both: dropout of arcs is then the same. They were compared
    with PyG's own, without dropout, before their first use.
    """
    alone = copy.deepcopy(model)
    with ranks(comm, seed=seed) as job:
        wrapped = job.wrap(model)
        hidden = unrun(wrapped)
        cut: dict[str, Any] = {"partition": partition, "strategy": strategy, "grid": grid}
        found = trace(wrapped, data, job, cut, hidden)
    rows: dict[str, float] = {}
    if comm.rank == 0:
        with ranks(single(), seed=seed) as job:
            want = trace(job.wrap(alone), data, job, {}, hidden)
        rows = compare(found, want)
    return dict(comm.all_gather_json(list(rows.items()))[0])
