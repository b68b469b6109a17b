"""Fetches planned ahead: which rows of others a rank keeps between batches, and how long (Belady's rule).

What batches read follows from the seed, so a rank knows it before the epoch begins. Batch t reads the rows
S_t of others. Between two batches there is room for C rows; a batch's own rows lie in the batch:

    fetched   S_t without kept         asked of their owners, as without room
    kept      of kept ∪ S_t the C rows that are read again soonest; none that is not read again

Each pair of successive reads of a row is an interval; to keep the row over it saves one fetch, and between
two batches at most C intervals are kept. The most intervals that are nowhere more than C deep are found by
dropping, where one is too many, that which ends last (Carlisle and Lloyd; Faigle and Nawijn). That is the
rule above: with C rows of room, empty when the epoch begins, no plan fetches fewer rows.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import torch
from torch import Tensor

from ..comm import Communicator
from ..errors import UserError
from ..memory import empty
from ..nn import Model
from ..parallel import Fetch, Owners
from ..parallel.propagate import Wrap
from .cache import parse_bytes
from .feeds import Features, Flight, Pull
from .sampler import Upto


@dataclass(frozen=True, eq=False)
class Turn:
    """What a batch does with its sources, by their places among them."""

    count: int
    """Sources."""
    kept: Tensor
    """[h] those whose rows lie in a slot;   slots [h] in which."""
    slots: Tensor
    asked: Tensor
    """[m] the others: own rows, and those that are fetched."""
    new: Tensor
    """[k] those whose rows are kept from now on;   into [k] in which slot, once the kept ones were read."""
    into: Tensor


@dataclass
class Schedule:
    """The turns of coming batches, and what they fetch."""

    turns: list[Turn] = field(default_factory=list)
    slots: int = 0
    """Rows of room that are ever used."""
    fetched: int = 0
    """Rows of others that travel: the fewest for this room."""
    read: int = 0
    """Rows of others that batches read: what travels without room."""
    distinct: int = 0
    """Rows of others that are read at all: what travels with room for everything."""


def plan_fetches(reads: Sequence[Tensor], others: Sequence[Tensor], room: int) -> Schedule:
    """The turns of batches that read these vertices.

        reads   per batch [s]: its sources, none twice;   others  [s] bool: those whose rows another rank has
        room    rows that may be kept between batches

    >>> batches = [torch.tensor(b) for b in ([7, 8], [7, 9], [8, 9], [7, 9])]
    >>> all_of = [torch.ones(2, dtype=torch.bool)] * 4
    >>> [plan_fetches(batches, all_of, room).fetched for room in (0, 1, 2, 3)]
    [8, 5, 4, 3]
    """
    at = [mask.nonzero().ravel().numpy() for mask in others]
    sizes = [len(places) for places in at]
    ends = np.cumsum([0, *sizes])
    ids = np.concatenate([r.numpy()[places] for r, places in zip(reads, at, strict=True)] or [np.empty(0)])
    names, row = np.unique(ids, return_inverse=True)
    again, never = _next_reads(row, np.repeat(np.arange(len(reads)), sizes)), len(reads)
    room = min(room, len(names))
    slot_of = np.full(len(names), -1)
    holds, until = np.full(room, -1), np.full(room, never)  # slot → its row, and when that is read again
    out = Schedule(slots=room, read=len(row), distinct=len(names))
    for turn, (places, ids_here) in enumerate(zip(at, reads, strict=True)):
        here = slice(ends[turn], ends[turn + 1])
        mine, soon = row[here], again[here]
        slots = slot_of[mine]
        hit = slots >= 0
        until[slots[hit]] = soon[hit]
        out.fetched += int((~hit).sum())
        new = np.flatnonzero(~hit & (soon < never))
        new = new[_make_room(holds, until, slot_of, soon[new], never)]
        into = np.flatnonzero(holds < 0)[: len(new)]
        holds[into], until[into], slot_of[mine[new]] = mine[new], soon[new], into
        asked = np.ones(len(ids_here), dtype=bool)
        asked[places[hit]] = False
        parts = places[hit], slots[hit], np.flatnonzero(asked), places[new], into
        out.turns.append(Turn(len(ids_here), *(torch.from_numpy(x.astype(np.int32)) for x in parts)))
    return out


def _next_reads(row: np.ndarray, turn: np.ndarray) -> np.ndarray:
    """When each row is read again, the number of turns where never; both ascend by turn. [m], [m] → [m]

    >>> _next_reads(np.array([4, 5, 4]), np.array([0, 0, 1])).tolist()
    [1, 2, 2]
    """
    order = np.argsort(row, kind="stable")
    again = np.full(len(row), turn[-1] + 1 if len(turn) else 0)
    same = row[order[:-1]] == row[order[1:]]
    again[order[:-1][same]] = turn[order[1:][same]]
    return again


def _make_room(
    holds: np.ndarray, until: np.ndarray, slot_of: np.ndarray, soon: np.ndarray, never: int
) -> np.ndarray:
    """Let go of rows until the new ones fit; which of the new ones may stay. [k] → [at most k] places"""

    def let_go(slots: np.ndarray) -> None:
        slot_of[holds[slots]] = -1
        holds[slots], until[slots] = -1, never

    let_go(np.flatnonzero((holds >= 0) & (until == never)))
    held = np.flatnonzero(holds >= 0)
    over = len(held) + len(soon) - len(holds)
    stays = np.ones(len(soon), dtype=bool)
    if over > 0:
        when = np.concatenate([until[held], soon])
        dropped = np.argpartition(when, len(when) - over)[len(when) - over :]
        let_go(held[dropped[dropped < len(held)]])
        stays[dropped[dropped >= len(held)] - len(held)] = False
    return np.flatnonzero(stays)


class PullAhead(Pull):
    """Pull that keeps rows of others between batches, as a schedule says.

        room   rows that may be kept

    Every batch must be planned before it begins (`plan`). What is kept is read and written by `forward`,
    which runs batch after batch, in the pipeline too.
    """

    def __init__(self, comm: Communicator, features: Features, owners: Owners, room: int):
        super().__init__(comm, features, owners, at_home=False)
        self.room = room
        self.schedule = Schedule()
        self._turns: dict[int, Turn] = {}
        self._rows = features.given[:0]

    def plan(self, batches: Iterable[tuple[int, Tensor]]) -> None:
        """The coming batches: (step, sources) of each. What was kept before is forgotten."""
        steps, reads = zip(*batches, strict=True)
        others = [self.owners.find(sources.long())[0] != self.comm.rank for sources in reads]
        self.schedule = plan_fetches(reads, others, self.room)
        self._turns = dict(zip(steps, self.schedule.turns, strict=True))
        given = self.features.given
        self._rows = given[:0] if given.is_meta else empty(self.schedule.slots, given.shape[1], like=given)

    def upto(self, model: Model) -> Upto:
        return "labels"

    def begin(self, flight: Flight) -> None:
        turn = self._turns.pop(flight.batch.step)
        sources = flight.batch.blocks[0].sources[turn.asked.long()]
        plan = Fetch(self.comm, self.owners, sources, distinct=True)
        flight.state.update(plan=plan, request=plan.post(self.features.given), turn=turn)

    def _take(self, flight: Flight) -> Tensor:
        """*wait for the rows that were asked for; put the kept ones beside them; keep new ones*"""
        came, turn = super()._take(flight), cast(Turn, flight.state.pop("turn"))
        x = empty(turn.count, came.shape[1], like=came)
        if came.is_meta:
            return x
        asked, kept, slots, new, into = (
            index.long().to(came.device) for index in (turn.asked, turn.kept, turn.slots, turn.new, turn.into)
        )
        x.index_copy_(0, asked, came)
        x.index_copy_(0, kept, self._rows.index_select(0, slots))
        self._rows.index_copy_(0, into, x.index_select(0, new))
        return x

    def dry(self, wrap: Wrap) -> PullAhead:
        out = cast(PullAhead, super().dry(wrap))
        out._turns = copy.copy(self._turns)
        return out


def parse_room(text: str, vertices: int, row_bytes: int) -> int:
    """Rows of `--cache`: a share of all the graph's rows, or a size.

    >>> parse_room("10%", 500, 64), parse_room("6400", 500, 64)
    (50, 100)
    """
    word = text.strip()
    if not word.endswith("%"):
        return min(vertices, parse_bytes(word, "--cache") // max(row_bytes, 1))
    try:
        share = float(word[:-1]) / 100
    except ValueError:
        share = -1.0
    if not 0 < share <= 1:
        raise UserError(f"cache {text[:40]!r} is no share above 0% up to 100%. Write --cache 10%, or 500MB.")
    return int(share * vertices)
