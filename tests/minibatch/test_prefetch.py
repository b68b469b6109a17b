"""Samples drawn ahead by a thread: the same ones, in order, without a message."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from weft.comm import run_ranks
from weft.errors import UserError
from weft.graph import karate
from weft.kernels import native
from weft.meter import Meter
from weft.minibatch import Ahead, Reads, Sampler, Topology
from weft.train import Trainer

from ..train.graphs import small
from ..train.sampled_ranks import observe, settings


def test_what_is_asked_is_drawn_ahead_of_its_turn_in_order_by_another_thread():
    asked: list[int] = []
    drew: list[tuple[int, str]] = []

    def ask() -> Any:
        for number in range(6):
            asked.append(number)
            yield number

    def draw(number: int) -> int:
        drew.append((number, threading.current_thread().name))
        return 10 * number

    turns = Ahead(draw, 2).over(ask())
    assert next(turns) == (0, 0)
    assert asked == [0, 1, 2]  # two more than this one
    assert list(turns) == [(k, 10 * k) for k in range(1, 6)]
    assert [number for number, _ in drew] == list(range(6))
    assert {name for _, name in drew} == {"weft-sampler_0"}
    here = threading.current_thread().name
    drew.clear()
    assert [k for k, _ in Ahead(draw, 0).over([3, 4])] == [3, 4]
    assert drew == [(3, here), (4, here)]


def test_a_draw_that_fails_says_so_at_its_turn_and_the_thread_ends():
    def draw(number: int) -> int:
        if number == 1:
            raise ValueError("no such vertex")
        return number

    turns = Ahead(draw, 3).over(range(5))
    assert next(turns) == (0, 0)
    with pytest.raises(ValueError, match="no such vertex"):
        next(turns)
    assert not [t for t in threading.enumerate() if t.name.startswith("weft-sampler")]


def test_the_thread_knows_which_kernels_are_used_and_takes_one_core():
    with native.use("torch"):
        found = list(Ahead(lambda _: (native.served(torch.ones(1)), native.threads(1 << 30)), 1).over([0]))
    assert found == [(0, (False, 1))]
    assert native.threads(1 << 30) == torch.get_num_threads()  # of this thread nothing has changed


def test_batches_count_the_time_that_they_wait_for_samples():
    for ahead in (0, 1):
        with Meter() as meter:
            list(Ahead(lambda k: k, ahead).over([1, 2]))
        assert [kind for kind, _, _ in meter.events] == ["sampling", "sampling"]
    with Meter() as meter:
        list(Ahead(lambda k: k, 0, metered=False).over([1]))
    assert not meter.events


def test_a_block_finds_its_sources_with_the_scratch_of_who_asks():
    """Else the thread, which relabels the next one meanwhile, would write into the same numbers."""
    sampler = Sampler(Topology.read(karate(), Reads("mean")), [3, 2], seed=0)
    other = sampler.beside()
    seeds = torch.tensor([0, 33, 5])
    for upto in ("labels", "picks", "targets"):
        ours, theirs = sampler.blocks(seeds, 4, upto), other.blocks(seeds, 4, upto)
        for a, b in zip(ours, theirs, strict=True):
            assert b.place is sampler._place
            assert torch.equal(a.sources, b.sources)
            assert torch.equal(a.neighbours, b.neighbours)
    assert other._place is not sampler._place


@pytest.mark.parametrize(
    ("way", "more"),
    [
        ("sage", {"batch__feed": "pull"}),
        ("gcn", {"batch__feed": "push-pull", "batch__pipeline": True}),
        ("gat", {"batch__feed": "pull", "batch__cache": "10%"}),
        ("sage max", {"batch__feed": "pull", "batch__pipeline": True}),
    ],
)
def test_training_gives_the_same_bits(way, more):
    """`observe` compares the words with the foretold ones, too."""
    plain = run_ranks(observe, 3, "threads", small(features=13), settings(way, **more))
    ahead = run_ranks(observe, 3, "threads", small(features=13), settings(way, **more, batch__prefetch=2))
    for ours, theirs in zip(ahead, plain, strict=True):
        assert ours["losses"] == theirs["losses"]
        assert ours["words"] == theirs["words"]
        for key in ("gradients", "weights"):
            assert all(torch.equal(x, theirs[key][name]) for name, x in ours[key].items())
    assert ahead[0]["facts"]["prefetch"] == 2
    assert "2 drawn ahead" in ahead[0]["notes"][0]


def test_another_seed_is_told_apart():
    one, two = (
        observe(None, small(), settings("sage", batch__prefetch=1, train__seed=seed), 1) for seed in (0, 1)
    )
    assert one["losses"] != two["losses"]


def test_arcs_on_other_ranks_and_numbers_below_0_are_refused():
    made = settings("sage", batch__prefetch=2, batch__memory_budget="5KB", batch__feed="pull")
    with pytest.raises(UserError, match="draws without messages, but --memory-budget 5KB leaves arcs"):
        run_ranks(lambda comm: Trainer(small(), made, comm), 4, "threads")
    with pytest.raises(UserError, match="prefetch must be at least 0, not -1"):
        Trainer(small(), settings("sage", batch__prefetch=-1))
    sampler = Sampler(Topology.read(karate(), Reads("mean")), [3], seed=0)
    sampler.topology.__dict__["row_of"] = object()
    with pytest.raises(ValueError, match="sends messages"):
        sampler.beside()
