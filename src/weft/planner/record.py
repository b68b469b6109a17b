"""What a rank does in a step, in order, noted while the same code runs on tensors without numbers.

    noted      by whom                                    what
    Kernel     `weft.meter.metered`                       SpMM, attention, … : rows, columns, arcs, width
    Product    torch, below autograd                      a dense product [rows, inputs] · [inputs, outputs]
    Draw       `weft.meter.left_out`                      a mask of dropout
    Pass       torch, and `left_out`                      any other operation: bytes read and written
    Post, Wait `weft.comm.Dry`                            a message begins; the rank waits for its end

Memory is counted on the way: a tensor's bytes from the moment it is made until the last reference to it dies,
be it autograd's. So what a step holds at its peak is known before anything is allocated.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ..comm.ledger import Message
from ..kernels import CSR
from ..meter import Meter


@dataclass(frozen=True)
class Kernel:
    """A walk over a sparse matrix [rows, columns] with so many arcs, beside dense operands of a width."""

    kind: str
    name: str
    rows: int
    columns: int
    arcs: int
    width: int
    itemsize: int = 4


@dataclass(frozen=True)
class Product:
    """A dense product [rows, inputs] · [inputs, outputs]."""

    rows: int
    inputs: int
    outputs: int
    itemsize: int = 4


@dataclass(frozen=True)
class Draw:
    """A mask of dropout, drawn and applied."""

    rows: int
    width: int
    itemsize: int = 4


@dataclass(frozen=True)
class Pass:
    """An operation that reads and writes so many bytes once."""

    name: str
    bytes: int


@dataclass(frozen=True)
class Post:
    """A message begins; `blocking`: the rank waits for it at once."""

    number: int
    message: Message
    blocking: bool


@dataclass(frozen=True)
class Wait:
    """The rank waits for the end of a message."""

    number: int


Step = Kernel | Product | Draw | Pass | Post | Wait
_PRODUCTS = {"aten::mm": 0, "aten::addmm": 1, "aten::addmm_": 1, "aten::bmm": 0}
"""Where the first factor stands among the operands."""
_FREE = ("aten::empty", "aten::new_empty", "aten::detach", "aten::_local_scalar_dense", "aten::_unsafe_view")
"""What touches no memory."""


class Recorder(Meter):
    """Notes the steps of what this thread runs dry while it is open, and the bytes that are live meanwhile.

    >>> import torch
    >>> from weft.kernels import linear
    >>> with Recorder() as notes:
    ...     y = linear(torch.empty(9, 3, device="meta"), torch.empty(3, 4, device="meta"))
    >>> notes.steps, notes.live
    ([Product(rows=9, inputs=3, outputs=4, itemsize=4)], 144)
    """

    def __init__(self) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.live = self.peak = 0
        self._depth = self._posted = 0
        self._known: set[int] = set()
        self._watch = _Watch(self)

    def __enter__(self) -> Recorder:
        super().__enter__()
        self._watch.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._watch.__exit__(*error)
        super().__exit__(*error)

    def forget(self) -> None:
        """Drop the steps so far: what comes next is what counts. What is live stays."""
        self.steps.clear()
        self.peak = self.live

    # Kernels.

    def begin(self, kind: str, name: str, operands: Sequence[Any]) -> None:
        if kind == "dense":  # its products are seen themselves
            return
        self._depth += 1
        if self._depth > 1:
            return
        matrix = next((x for x in operands if isinstance(x, CSR)), None)
        dense = list(_tensors(operands))
        width = max((t.shape[1] for t in dense if t.dim() == 2), default=1)
        size = dense[0].element_size() if dense else 4
        if matrix is not None:
            self.steps.append(Kernel(kind, name, *matrix.shape, matrix.arcs, width, size))

    def add(self, kind: str, start: float, seconds: float) -> None:
        if kind != "dense":
            self._depth -= 1

    def left_out(self, name: str, operands: Sequence[Any]) -> None:
        x = operands[0]
        if name == "product":
            self.steps.append(Product(x.shape[0], x.shape[1], operands[1].shape[1], x.element_size()))
        elif name == "dropout":
            self.steps.append(Draw(x.shape[0], x.shape[1], x.element_size()))
        else:
            # What is added is read, and what it is added to read and written.
            self.steps.append(Pass(name, (3 if name == "add_rows" else 2) * x.nbytes))

    # Messages, where a communicator is told of it: `comm.state.notes = recorder`.

    def post(self, message: Message, blocking: bool) -> Callable[[], None]:
        self._posted, number = self._posted + 1, self._posted
        self.steps.append(Post(number, message, blocking))
        return lambda: self.steps.append(Wait(number))

    # Everything else.

    def saw(self, operator: Any, operands: Sequence[Any], result: Any) -> None:
        """An operation of torch: time where no kernel is around it, memory always."""
        made = list(_tensors((result,)))
        for t in made:
            self._take(t)
        name = operator._schema.name
        if self._depth or name.startswith(_FREE) or operator.is_view:
            return
        at = _PRODUCTS.get(name)
        if at is not None:
            a, b = operands[at], operands[at + 1]
            rows = a.shape[0] * (a.shape[1] if a.dim() == 3 else 1)
            self.steps.append(Product(rows, a.shape[-1], b.shape[-1], a.element_size()))
            return
        touched = {id(t): t.nbytes for t in (*_tensors(operands), *made)}
        self.steps.append(Pass(name, sum(touched.values())))

    def _take(self, t: Tensor) -> None:
        if not t.is_meta:
            return
        storage = t.untyped_storage()
        key = storage._cdata
        if key in self._known:
            return
        size = storage.nbytes()
        self._known.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._drop, key, size).atexit = False

    def _drop(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.live -= size


class _Watch(TorchDispatchMode):
    """Shows every operation to the recorder, forward and backward."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = weakref.proxy(recorder)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here, and loading the compiler takes seconds

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self._recorder.saw(func, args, result)
        return result


def _tensors(values: Sequence[Any]) -> Iterator[Tensor]:
    """The tensors among them, of lists, tuples and dataclasses too."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, CSR):
            continue
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
        elif hasattr(value, "__dataclass_fields__"):
            yield from (t for t in vars(value).values() if isinstance(t, Tensor))
