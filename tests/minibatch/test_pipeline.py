from __future__ import annotations

import pytest

from weft.minibatch import STALENESS, drive


class Recorder:
    """A feed that writes down which phase of which batch ran."""

    def __init__(self):
        self.seen = []

    def __getattr__(self, phase):
        return lambda batch: self.seen.append((phase, batch))


@pytest.mark.parametrize("batches", [0, 1, 3, 4, 9])
@pytest.mark.parametrize("pipelined", [False, True])
def test_every_batch_goes_through_its_phases_in_order_and_updates_come_in_order(batches, pipelined):
    feed = Recorder()
    drive(range(batches), feed, lambda batch: feed.seen.append(("update", batch)), pipelined)
    for batch in range(batches):
        phases = [phase for phase, b in feed.seen if b == batch]
        assert phases == ["push", "begin", "forward", "backward", "finish", "update"]
    assert [b for phase, b in feed.seen if phase == "update"] == list(range(batches))
    for batch in range(batches):
        before = feed.seen[: feed.seen.index(("push", batch))]  # that is when it takes its weights
        updates = sum(1 for phase, _ in before if phase == "update")
        assert updates == (max(0, batch - STALENESS) if pipelined else batch)


def test_weights_are_read_when_a_batch_begins():
    """The flights are made one by one: each could copy the weights of its moment."""
    made, done = [], []

    def flights():
        for batch in range(6):
            made.append((batch, len(done)))
            yield batch

    drive(flights(), Recorder(), done.append, pipelined=True)
    assert made == [(0, 0), (1, 0), (2, 0), (3, 0), (4, 1), (5, 2)]
