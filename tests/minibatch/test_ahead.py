"""Fetches planned ahead: the fewest that the room allows, found in another way too; every row is there."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

from weft.errors import UserError
from weft.minibatch import Schedule, parse_room, plan_fetches

N = 12


def batches(seed: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """What some batches read, and which of it lies elsewhere; some read nothing."""
    g = np.random.default_rng(seed)
    reads = [torch.from_numpy(g.permutation(N)[: g.integers(0, N)]).int() for _ in range(g.integers(1, 9))]
    return reads, [r % 4 != 0 for r in reads]


def fewest(reads: list[torch.Tensor], others: list[torch.Tensor], room: int) -> int:
    """A linear program over all intervals between two reads of a row; its matrix is one of intervals, so that
    the best vertex is whole."""
    seen: dict[int, int] = {}
    intervals, uses = [], 0
    for turn, (ids, mask) in enumerate(zip(reads, others, strict=True)):
        for v in ids[mask].tolist():
            uses += 1
            if v in seen:
                intervals.append((seen[v], turn))
            seen[v] = turn
    if not intervals or len(reads) < 2:
        return uses
    deep = np.array([[a <= gap < b for a, b in intervals] for gap in range(len(reads) - 1)], dtype=float)
    best = linprog(-np.ones(len(intervals)), A_ub=deep, b_ub=np.full(len(deep), room), bounds=(0, 1))
    assert best.status == 0
    return uses + round(best.fun)


def replay(reads: list[torch.Tensor], others: list[torch.Tensor], schedule: Schedule) -> int:
    """Follow the turns with real slots: every source has its row, and this many were fetched."""
    slots: dict[int, int] = {}
    fetched = 0
    for ids, mask, turn in zip(reads, others, schedule.turns, strict=True):
        assert turn.count == ids.numel()
        x = torch.full((turn.count,), -1)
        x[turn.asked.long()] = ids[turn.asked.long()].long()
        fetched += int(mask[turn.asked.long()].sum())
        for place, slot in zip(turn.kept.tolist(), turn.slots.tolist(), strict=True):
            assert mask[place]
            x[place] = slots[slot]
        assert torch.equal(x, ids.long())
        assert len(set(turn.into.tolist())) == turn.into.numel()
        slots |= dict(zip(turn.into.tolist(), ids[turn.new.long()].tolist(), strict=True))
        assert len(slots) <= schedule.slots
    return fetched


@pytest.mark.parametrize("seed", range(30))
def test_a_plan_fetches_the_fewest_rows_and_every_row_is_there(seed):
    reads, others = batches(seed)
    for room in (0, 1, 2, 3, 5, N):
        schedule = plan_fetches(reads, others, room)
        assert replay(reads, others, schedule) == schedule.fetched == fewest(reads, others, room)
        assert schedule.slots <= room
    assert schedule.fetched == schedule.distinct  # with room for all, each row once
    assert plan_fetches(reads, others, 0).fetched == schedule.read


def test_keeping_what_was_read_last_would_fetch_more():
    """So that the test above can fail: row 1 is read soon again, row 2 late."""
    reads = [torch.tensor(b) for b in ([1], [2], [1], [2])]
    everywhere = [torch.ones(1, dtype=torch.bool)] * 4
    assert plan_fetches(reads, everywhere, 1).fetched == fewest(reads, everywhere, 1) == 3
    # The most recent one is gone each time.
    assert plan_fetches(reads, everywhere, 0).fetched == 4


def test_room_is_a_share_of_all_rows_or_a_size():
    assert parse_room("100%", 7, 4) == 7
    assert parse_room(" 12.5% ", 80, 4) == 10
    assert parse_room("1KB", 10**6, 8) == 125
    assert parse_room("1GB", 10, 8) == 10  # there are no more
    for wrong in ("0%", "101%", "x%", "ten", "-3"):
        with pytest.raises(UserError, match="--cache"):
            parse_room(wrong, 7, 4)
