"""What torch does while a graph is shared: a call that touches its rows goes by a rule, or is refused."""

from __future__ import annotations

import threading
import zlib
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from .. import place
from ..comm import Communicator
from ..errors import UserError
from ..kernels.function import Function
from . import adding, backward, chance, local, losses, norms, picking, products, reducing, shapes  # noqa: F401
from .call import RULES, Call, Refused, name_of
from .matrix import matrix_of, matrix_rule
from .refusals import REASONS
from .space import Count, Space, tag_of

_method = vars(torch.autograd.Function)["apply"]
_apply = _method.__func__
_guarding = threading.Lock()
_inside = [0]
"""How many jobs run in this process: virtual ranks are several."""


def _guarded(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """`Function.apply`, which torch shows to nobody: its backward is for the rows of one process."""
    if any(tag_of(a) is not None for a in args) and not issubclass(cls, Function):
        raise Refused(
            f"{cls.__name__} is an autograd.Function of its own, and weft cannot see what its backward does. "
            "Write it with torch's functions."
        )
    return _apply(cls, *args, **kwargs)


_ALWAYS = frozenset({"backward", "grad", "dropout", "arange", "rand", "randn", "randint", "randperm"})
"""Functions that have a rule also where no rows are given."""


_PLAIN = frozenset(local.ABOUT)


class Alone(TorchFunctionMode):
    """One rank is one process: torch's functions are torch's, but dropout has the masks that ranks have."""

    def __init__(self, seed: int):
        super().__init__()
        self.chance = chance.Chance(seed)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if name_of(func) != "dropout":
            return func(*args, **kwargs) if kwargs else func(*args)
        return chance.drop(Call(func, args, kwargs or {}, self))


class Sharing(TorchFunctionMode):
    """On: tensors of a shared graph are this rank's rows of it, and torch's functions are those of the whole.

    comm        the ranks
    numbered    spaces whose number of rows was read off an edge_index, as a plain number
    parameters  weights that every rank has, in the order in which their gradients are summed
    running     the modules that are running: (path, class), outermost first
    going_back  whether gradients are on their way: torch's functions are then plain
    """

    def __init__(self, comm: Communicator, seed: int):
        super().__init__()
        self.comm, self.chance = comm, chance.Chance(seed)
        self.numbered: list[Space] = []
        self.parameters: list[nn.Parameter] = []
        self.running: list[tuple[str, str]] = []
        self._places: list[Any] = []
        self.going_back = False

    def __enter__(self) -> Any:
        with _guarding:
            _inside[0] += 1
            torch.autograd.Function.apply = classmethod(_guarded)  # type: ignore[method-assign, assignment]
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        with _guarding:
            _inside[0] -= 1
            if not _inside[0]:
                torch.autograd.Function.apply = _method  # type: ignore[method-assign]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = name_of(func)
        if name in _PLAIN or (
            name not in _ALWAYS and not _touches(args) and not (kwargs and _touches(kwargs.values()))
        ):
            return func(*args, **kwargs)
        call = Call(func, args, kwargs, self)
        if (matrix := matrix_of(call)) is not None:
            return matrix_rule(call, matrix)
        rule = RULES.get(name)
        if rule is None:
            raise call.refuse("is not known for rows that are spread over ranks")
        self._same_weights(call)
        return rule(call)

    def _same_weights(self, call: Call) -> None:
        """Weights that nobody wrapped must be alike on all ranks: asked once, when rows first meet them."""
        for t in call.tensors():
            if "_weft_same" in t.__dict__ or not (t.is_leaf and t.requires_grad):
                continue
            t.__dict__["_weft_same"] = True
            if tag_of(t) is not None:
                continue
            mine = zlib.crc32(t.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
            if len(set(self.comm.all_gather_json(mine))) > 1:
                raise UserError(
                    f"{self.where()}a weight of shape {list(t.shape)} differs from rank to rank. "
                    "Use job.wrap(model) before the model."
                )

    def enter(self, path: str, kind: str) -> None:
        """A module begins: what waits from now on waits for it."""
        self.running.append((path, kind))
        self._places.append(place.at(f"{kind} ({path})" if path else kind))
        self._places[-1].__enter__()

    def leave(self) -> None:
        if self.running:
            self.running.pop()
            self._places.pop().__exit__(None, None, None)

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
    """Whether rows, or numbers of rows, are among the arguments."""
    for item in args:
        if isinstance(item, Tensor):
            found = tag_of(item) is not None
        elif isinstance(item, slice):
            found = isinstance(item.start, Count) or isinstance(item.stop, Count)
        else:
            found = isinstance(item, Count) or (isinstance(item, (list, tuple)) and _touches(item))
        if found:
            return True
    return False
