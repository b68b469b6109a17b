"""Words and messages of a piece of work, foretold by running it with tensors that hold no numbers.

An operation says what it moves in one place: where it sends. `counted` runs it on communicators that count by
the ledger's rules and move nothing (`weft.comm.Dry`), so what is foretold is what the same code will do.
Row counts that a plan needs and does not have yet do travel, as numbers of the plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..comm import Communicator, Dry, Ledger
from .propagate import Wrap
from .sizes import Sizes


@dataclass
class Volume:
    """Words and messages that one rank receives, by phase; volumes add up.

    >>> a = Volume({"gather": 5}, {"gather": 1})
    >>> (a + a).words
    {'gather': 10}
    """

    words: dict[str, int] = field(default_factory=dict)
    messages: dict[str, int] = field(default_factory=dict)

    def __add__(self, other: Volume) -> Volume:
        def total(a: dict[str, int], b: dict[str, int]) -> dict[str, int]:
            return {phase: a.get(phase, 0) + b.get(phase, 0) for phase in [*a, *(p for p in b if p not in a)]}

        return Volume(total(self.words, other.words), total(self.messages, other.messages))

    @classmethod
    def of(cls, books: Ledger) -> Volume:
        """What a ledger counted, without phases in which nothing came."""
        lines = {phase: line for phase, line in books.as_dict().items() if line["words"]}
        return cls(
            {phase: int(line["words"]) for phase, line in lines.items()},
            {phase: int(line["messages"]) for phase, line in lines.items()},
        )


def counted(comm: Communicator, prepare: Callable[[Wrap], Callable[[], object]]) -> Volume:
    """What this rank would receive in the work that `prepare` returns.

    `prepare(wrap)` makes it; `wrap(line)` is a line that counts instead of moving.

    >>> import torch
    >>> from weft.comm import run_ranks
    >>> def words(comm):
    ...     gradient = torch.empty(6, device="meta")
    ...     return counted(comm, lambda wrap: lambda: wrap(comm).all_reduce(gradient, phase="grad")).words
    >>> run_ranks(words, 3, "threads")
    [{'grad': 8}, {'grad': 8}, {'grad': 8}]
    """
    whole = Dry(comm)
    work = prepare(lambda line: Dry(line, whole.state))
    with Ledger(whole) as books, Sizes():
        work()
    return Volume.of(books)
