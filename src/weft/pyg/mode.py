"""What torch does while a graph is shared: every call that touches its rows goes through a rule, or is refused."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from ..comm import Communicator
from . import adding, backward, chance, local, losses, norms, picking, products, reducing, shapes  # noqa: F401
from .call import RULES, Call, Refused, counts, name_of
from .refusals import REASONS
from .space import Space, tag_of

_ALWAYS = frozenset({"backward", "grad", "dropout"})
"""Functions that have a rule also where no rows are given."""


class Sharing(TorchFunctionMode):
    """On: tensors of a shared graph are this rank's rows of it, and torch's functions are those of the whole.

        comm        the ranks
        vertices    the spaces of vertices that are shared
        parameters  weights that every rank has, in the order in which their gradients are summed
        running     the modules that are running: (path, class), outermost first
    """

    def __init__(self, comm: Communicator, seed: int):
        super().__init__()
        self.comm, self.chance = comm, chance.Chance(seed)
        self.vertices: list[Space] = []
        self.parameters: list[nn.Parameter] = []
        self.running: list[tuple[str, str]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = name_of(func)
        if name not in _ALWAYS and not _touches(args) and not (kwargs and _touches(kwargs.values())):
            return func(*args, **kwargs)
        call = Call(func, args, kwargs, self)
        rule = RULES.get(name)
        try:
            if rule is None:
                raise call.refuse("is not known for rows that are spread over ranks")
            return rule(call)
        except Refused:
            if self.comm.size > 1:
                raise
            return func(*args, **kwargs)  # one rank has all rows: this is one process

    def where(self) -> str:
        """The module that is running, as the start of an error."""
        if not self.running:
            return ""
        path, kind = self.running[-1]
        return f"{kind} ({path}): " if path else f"{kind}: "

    def reason(self) -> str:
        """What is known of the modules that are running, as the end of an error."""
        found = next((REASONS[kind] for _, kind in reversed(self.running) if kind in REASONS), "")
        return f" {found}" if found else ""


def _touches(args: Any) -> bool:
    for item in args:
        if isinstance(item, Tensor):
            if tag_of(item) is not None:
                return True
        elif isinstance(item, (list, tuple)):
            if _touches(item) or any(True for _ in counts(item)):
                return True
        elif isinstance(item, int) and any(True for _ in counts((item,))):
            return True
        elif isinstance(item, slice) and any(True for _ in counts((item.start, item.stop))):
            return True
    return False
