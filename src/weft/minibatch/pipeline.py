"""The order in which the phases of batches run: one batch after the other, or three in flight.

The static schedule of P³ (two forward phases, two backward phases a slot):

    slot t    push(t)    backward(t − 2)    finish(t − 3), update    begin(t)    forward(t − 1)

Three batches are under way when batch t joins them. It takes the weights after update t − 4, that is w_{t−3}
(w_0 for the first three), and uses that copy in all its phases (weight stashing); its update is the t-th. So
w_{t+1} = w_t − α ∇f(w_{t−3}). What a phase posts is waited for after other batches have computed: the block
after two phases of the same slot, partial sums and errors in the next slot. At the end of an epoch the
pipeline is drained.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator

from .feeds import Feed, Flight

STALENESS = 3
"""Updates between reading the weights of a batch and applying its gradient."""


def drive(
    flights: Iterable[Flight],
    feed: Feed,
    update: Callable[[Flight], None],
    pipelined: bool = False,
    begin: Callable[[Flight], None] | None = None,
) -> None:
    """Run all phases of all flights; `update` is called with each in their order.

    `begin` stands in for the feed's own.

    `flights` is read one at a time, when a batch begins: each then takes the weights of that moment.
    """
    begin = begin or feed.begin
    if not pipelined:
        for flight in flights:
            feed.push(flight)
            begin(flight)
            feed.forward(flight)
            feed.backward(flight)
            feed.finish(flight)
            update(flight)
        return
    for begun, forward, backward, last in _slots(flights):
        if begun is not None:
            feed.push(begun)
        if backward is not None:
            feed.backward(backward)
        if last is not None:
            feed.finish(last)
            update(last)
        if begun is not None:
            begin(begun)
        if forward is not None:
            feed.forward(forward)


def _slots(flights: Iterable[Flight]) -> Iterator[tuple[Flight | None, ...]]:
    """The flights of each slot, by phase; None before the pipeline is full and while it drains.

    >>> ["".join(str(f or "-") for f in slot) for slot in _slots("abcde")]
    ['a---', 'ba--', 'cba-', 'dcba', 'edcb', '-edc', '--ed', '---e']
    """
    under_way: deque[Flight | None] = deque([None] * (STALENESS + 1), maxlen=STALENESS + 1)
    for flight in flights:
        under_way.appendleft(flight)
        yield tuple(under_way)
    for _ in range(STALENESS):
        under_way.appendleft(None)
        if any(flight is not None for flight in under_way):
            yield tuple(under_way)
