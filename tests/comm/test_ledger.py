"""The ledger: counts by the rules of its table, nesting, and no cost when there is none."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from weft.comm import Communicator, Ledger, run_ranks
from weft.comm import ledger as tally
from weft.comm.threads import single

blocks = st.lists(st.integers(0, 9), min_size=1, max_size=8)


@given(blocks)
def test_what_one_rank_sends_another_receives(sizes: list[int]) -> None:
    ranks = range(len(sizes))
    for rule in (tally.all_gather, tally.reduce_scatter):
        moved = [rule(sizes, rank) for rank in ranks]
        assert (
            sum(t.words_sent for t in moved) == sum(t.words for t in moved) == sum(sizes) * (len(sizes) - 1)
        )
        assert sum(t.messages_sent for t in moved) == sum(t.messages for t in moved)


@given(st.integers(0, 100), st.integers(1, 9))
def test_all_reduce_moves_twice_m_times_g_minus_1_in_all(words: int, size: int) -> None:
    moved = [tally.all_reduce(words, rank, size) for rank in range(size)]
    assert sum(t.words for t in moved) == 2 * words * (size - 1)
    assert all(t.words == t.words_sent for t in moved)
    if words % size == 0:
        assert {t.words for t in moved} == {2 * words * (size - 1) // size}
    if words >= size:
        assert {t.messages for t in moved} == {2 * (size - 1)}


@given(st.integers(0, 100), st.integers(1, 9))
def test_all_reduce_is_a_reduce_scatter_and_an_all_gather(words: int, size: int) -> None:
    even = [words // size + (rank < words % size) for rank in range(size)]
    for rank in range(size):
        a, b = tally.reduce_scatter(even, rank), tally.all_gather(even, rank)
        assert tally.all_reduce(words, rank, size) == tuple(x + y for x, y in zip(a, b, strict=True))


@given(blocks, st.data())
def test_words_of_peers_add_up_to_the_traffic_and_what_is_sent_is_received(
    sizes: list[int], data: st.DataObject
) -> None:
    g = len(sizes)
    root = data.draw(st.integers(0, g - 1))
    row = st.lists(st.integers(0, 9), min_size=g, max_size=g)
    table = data.draw(st.lists(row, min_size=g, max_size=g))
    columns = [list(column) for column in zip(*table, strict=True)]
    cases = {
        "broadcast": [
            (tally.broadcast(7, root, r, g), tally.broadcast_flow(7, root, r, g)) for r in range(g)
        ],
        "gather": [(tally.all_gather(sizes, r), tally.all_gather_flow(sizes, r)) for r in range(g)],
        "scatter": [(tally.reduce_scatter(sizes, r), tally.reduce_scatter_flow(sizes, r)) for r in range(g)],
        "reduce": [(tally.all_reduce(root, r, g), tally.all_reduce_flow(root, r, g)) for r in range(g)],
        "all": [
            (tally.all_to_all(table[r], columns[r], r), tally.all_to_all_flow(table[r], columns[r], r))
            for r in range(g)
        ],
    }
    for call, ranks in cases.items():
        for r, (traffic, flow) in enumerate(ranks):
            assert sum(flow.received) == traffic.words, call
            assert flow.received[r] == flow.sent[r] == 0
            assert [other.sent[r] for _, other in ranks] == flow.received


def test_peers_are_numbered_as_in_the_job_whatever_line_they_speak_on() -> None:
    def work(comm: Communicator) -> tuple[object, ...]:
        line = comm.split(comm.rank % 2, key=-comm.rank, name="odd")
        assert line is not None
        with Ledger(comm, keep_events=True) as ledger:
            line.all_gather(torch.ones(2, 3, dtype=torch.float64), [2, 2], phase="gather")
        (event,) = ledger.events or []
        return list(line.members), ledger.peers(), event.moved

    for rank, (members, peers, moved) in enumerate(run_ranks(work, 4, "threads")):
        other = (rank + 2) % 4
        assert members == sorted([rank, other], reverse=True)
        assert peers == {other: (6, 48)}
        assert moved == tally.Moved("odd", ((other, 6, 48),), ((other, 6, 48),))


def test_even_blocks_give_the_formulas_of_the_design() -> None:
    g, m = 4, 20
    assert tally.broadcast(m, 1, 1, g)[:2] == (m, 0)
    assert tally.broadcast(m, 1, 0, g)[:2] == (0, m)
    assert tally.reduce_scatter([5] * g, 2)[:2] == (m * (g - 1) // g,) * 2
    assert tally.all_gather([5] * g, 2)[1] == 15
    assert tally.all_reduce(m, 2, g)[:2] == (2 * m * (g - 1) // g,) * 2


def test_one_rank_moves_nothing() -> None:
    with Ledger() as ledger:
        comm = single()
        x = torch.ones(3)
        comm.all_reduce(x, phase="a")
        comm.broadcast(x, 0, phase="a")
        comm.all_to_all(x, [3], [3], phase="a")
    assert (ledger.words(), ledger.messages(), ledger.words_sent(), ledger.messages_sent()) == (0, 0, 0, 0)


def test_nested_ledgers_count_each_for_itself() -> None:
    def work(comm: Communicator) -> tuple[int, int, int]:
        x = torch.ones(4)
        with Ledger() as outer:
            comm.all_reduce(x, phase="a")
            with Ledger(comm) as inner:
                comm.all_reduce(x, phase="a")
            comm.all_reduce(x, phase="a")
        comm.all_reduce(x, phase="a")
        return outer.words("a"), inner.words("a"), len(comm.state.ledgers)

    assert run_ranks(work, 2, "threads") == [(12, 4, 0)] * 2


def test_a_ledger_belongs_to_its_rank() -> None:
    def work(comm: Communicator) -> int:
        if comm.rank == 0:
            with Ledger() as ledger:
                comm.broadcast(torch.ones(6), 0)
            return ledger.words_sent()
        comm.broadcast(torch.ones(6), 0)
        return len(comm.state.ledgers)

    assert run_ranks(work, 3, "threads") == [6, 0, 0]


def test_a_request_is_counted_once_with_its_time() -> None:
    def work(comm: Communicator) -> tuple[int, int, bool]:
        with Ledger() as ledger:
            request = comm.iall_gather(torch.ones(2), [2, 2], phase="gather")
            request.wait()
            request.wait()
        return ledger.words("gather"), ledger.messages("gather"), ledger.seconds("gather") > 0

    assert run_ranks(work, 2, "threads") == [(2, 1, True)] * 2


def test_sub_communicators_write_in_the_same_ledger() -> None:
    def work(comm: Communicator) -> int:
        with Ledger() as ledger:
            part = comm.split(comm.rank % 2)
            assert part is not None
            part.broadcast(torch.ones(5), 0, phase="gather")
            comm.broadcast(torch.ones(7), 0, phase="gather")
        return ledger.words("gather")

    assert run_ranks(work, 4, "threads") == [0, 7, 12, 12]


def test_bookkeeping_is_not_counted() -> None:
    def work(comm: Communicator) -> dict[str, dict[str, float]]:
        with Ledger() as ledger:
            comm.barrier()
            comm.split(0)
            comm.all_gather_json({"a": 1})
            comm.all_gather(torch.ones(0))
        return ledger.as_dict()

    for lines in run_ranks(work, 2, "threads"):
        assert all(line["words"] == line["messages"] == 0 for line in lines.values())


def test_the_table_and_the_dict_hold_the_same() -> None:
    ledger = Ledger()
    ledger.count("gather", tally.Traffic(1, 2000, 3, 4), 0.5)
    ledger.count("grad", tally.Traffic(5, 6, 7, 8), 0.25)
    assert json.loads(json.dumps(ledger.as_dict()))["grad"]["words"] == 6
    assert [line.split()[0] for line in ledger.table().splitlines()] == ["phase", "gather", "grad", "total"]
    assert "2,006" in ledger.table()
    assert ledger.phases == ["gather", "grad"]
    ledger.clear()
    assert ledger.words() == 0


def test_without_a_ledger_nothing_is_computed_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: object) -> None:
        raise AssertionError("the ledger's rule was evaluated without a ledger")

    monkeypatch.setattr(tally, "all_reduce", never)
    comm = single()
    comm.all_reduce(torch.ones(3))
    with pytest.raises(AssertionError), Ledger():
        comm.all_reduce(torch.ones(3))
