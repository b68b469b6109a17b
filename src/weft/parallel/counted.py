"""Is every weight among numbers per arc counted once? Along a feature axis ranks hold the same arcs."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ..errors import UserError

_ENDS = ("Number", "_Linear", "Dots", "Weigh", "WeighExtremum", "FoldArcs")
"""Where numbers per arc begin: a weight that was told of, or rows of vertices."""


def check_counted(e: Tensor, ranks: int) -> None:
    """Refuse numbers per arc that a weight went into without `A.entries.number`.

    All `ranks` of a feature line hold the same arcs and the same gradient of them: summed over the ranks,
    such a weight's gradient would be `ranks` times what it is.

        e  [arcs, h]   a leaf with a row for each arc is the user's own numbers, no weight
    """
    if ranks == 1 or e.is_meta or e.grad_fn is None:
        return
    seen: set[Any] = set()
    todo: list[Any] = [e.grad_fn]
    while todo:
        node = todo.pop()
        if node is None or node in seen or type(node).__name__.removesuffix("Backward") in _ENDS:
            continue
        seen.add(node)
        leaf = getattr(node, "variable", None)
        if leaf is not None and (leaf.dim() == 0 or leaf.shape[0] != e.shape[0]):
            shape = "x".join(map(str, leaf.shape)) or "one number"
            raise UserError(
                f"a weight ({shape}) stands among numbers per arc, which {ranks} ranks of the feature axis "
                f"hold alike: its gradient would count {ranks} times. Write A.entries.number(weight)."
            )
        todo += [next_node for next_node, _ in node.next_functions]
