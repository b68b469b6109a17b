"""Gradients of what ranks compute together.

What is the same on every rank, such as a loss, is one number, not one for each rank. So every rank sends back
1/P of its gradient: together they send it once, also where a term, such as a penalty on weights, was computed
by all of them alike. A weight's gradient is then the sum over ranks, in one all-reduce after each `backward`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from ..comm import Communicator
from ..parallel import sum_together
from .call import Call, put, rule
from .space import Tag, tag_of


@rule("backward")
def backward(call: Call) -> Any:
    """`loss.backward()` and `torch.autograd.backward(losses)`."""
    roots = call.args[0] if call.args else call.kwargs["tensors"]
    roots = [roots] if isinstance(roots, Tensor) else list(roots)
    given = call.get(1, "gradient", call.kwargs.get("grad_tensors"))
    seeds = _seeds(call, roots, [given] if given is None or isinstance(given, Tensor) else list(given))
    rest = {k: v for k, v in call.kwargs.items() if k in ("retain_graph", "create_graph", "inputs")}
    for k, word in enumerate(("retain_graph", "create_graph"), 2):
        if k < len(call.args):
            rest[word] = call.args[k]
    weights = _weights(call.home.parameters, roots)
    before = [w.grad for w in weights]
    for w in weights:
        w.grad = None
    call.home.going_back = True
    try:
        torch.autograd.backward(roots, seeds, **rest)
    finally:
        call.home.going_back = False
    summed = sum_over_ranks([w.grad for w in weights], weights, call.comm)
    for w, old, new in zip(weights, before, summed, strict=True):
        w.grad = old if new is None else new if old is None else old.add_(new)
    return None


@rule("grad")
def grad(call: Call) -> Any:
    """`torch.autograd.grad(loss, weights)`: of weights the sum over ranks, of rows this rank's."""
    outputs, inputs = call.get(0, "outputs"), call.get(1, "inputs")
    if not any(isinstance(t, Tensor) for t in call.tensors()):
        return call.run()
    roots = [outputs] if isinstance(outputs, Tensor) else list(outputs)
    leaves = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    given = call.get(2, "grad_outputs")
    seeds = _seeds(call, roots, [given] if given is None or isinstance(given, Tensor) else list(given))
    rest = {k: v for k, v in call.kwargs.items() if k not in ("outputs", "inputs", "grad_outputs")}
    if len(call.args) > 3:
        raise call.refuse("is called in a way that is not known. Name its arguments")
    found: list[Tensor | None] = list(torch.autograd.grad(roots, leaves, seeds, **rest))
    shared = [k for k, leaf in enumerate(leaves) if tag_of(leaf) is None]
    sums = sum_over_ranks([found[k] for k in shared], [leaves[k] for k in shared], call.comm)
    for k, value in zip(shared, sums, strict=True):
        found[k] = value
    for leaf, value in zip(leaves, found, strict=True):
        if value is not None and (tag := tag_of(leaf)) is not None:
            put(value, Tag(tag.space, tag.dim))
    return tuple(found)


def _seeds(call: Call, roots: Sequence[Tensor], given: list[Any]) -> list[Tensor]:
    """Of what all ranks have 1/P of the gradient; of rows the gradient of these rows."""
    if len(given) == 1 and len(roots) > 1:
        given = given * len(roots)
    seeds = []
    for root, seed in zip(roots, given, strict=True):
        if tag_of(root) is not None:
            if seed is None:
                raise call.refuse("needs one number, not rows. Take their mean() or sum() first")
            seeds.append(seed)
        else:
            seeds.append((torch.ones_like(root) if seed is None else seed) / call.comm.size)
    return seeds


def _weights(known: Iterable[Tensor], roots: Sequence[Tensor]) -> list[Tensor]:
    """The leaves that are the same on every rank: those of wrapped models, and what else was used."""
    out = {id(w): w for w in known if w.requires_grad}
    seen: set[Any] = set()
    todo = [root.grad_fn for root in reversed(roots) if root.grad_fn is not None]
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None and tag_of(leaf) is None:
            out.setdefault(id(leaf), leaf)
        todo += [n for n, _ in reversed(node.next_functions) if n is not None]
    return list(out.values())


def sum_over_ranks(
    grads: Sequence[Tensor | None], like: Sequence[Tensor], comm: Communicator
) -> list[Tensor | None]:
    """The sums over ranks, in one message a type; None where no rank has a gradient."""
    out: list[Tensor | None] = [None] * len(grads)
    for dtype in dict.fromkeys(x.dtype for x in like):
        mine = [k for k, x in enumerate(like) if x.dtype == dtype]
        own = [torch.zeros_like(like[k]) if (g := grads[k]) is None else g for k in mine]
        there = like[mine[0]].new_tensor([float(grads[k] is not None) for k in mine])
        _, (*sums, there) = sum_together([*own, there], comm)
        for k, part, ranks in zip(mine, sums, there.tolist(), strict=True):
            out[k] = part if ranks else None
    return out
