"""Virtual ranks: mistakes that would hang real ones are errors at once."""

from __future__ import annotations

import warnings

import pytest
import torch

from weft.comm import Communicator, PeerLost, run_ranks
from weft.errors import Note, UserError


def test_ranks_that_all_wait_are_a_deadlock_and_named() -> None:
    def work(comm: Communicator) -> None:
        right = (comm.rank + 1) % comm.size
        comm.iswap([torch.ones(1)], right, [torch.empty(1)], right, phase="halo").wait()

    with pytest.raises(PeerLost, match=r"deadlock.*rank 0 in phase 'halo' \(iswap\); rank 1 in phase 'halo'"):
        run_ranks(work, 3, "threads")


def test_waiting_for_a_rank_that_has_returned_is_a_deadlock() -> None:
    def work(comm: Communicator) -> None:
        if comm.rank:
            comm.barrier()

    with pytest.raises(PeerLost, match="1 of 3 ranks have already returned"):
        run_ranks(work, 3, "threads")


def test_different_calls_that_meet_are_named() -> None:
    def work(comm: Communicator) -> None:
        if comm.rank:
            comm.broadcast(torch.ones(1), 0)
        else:
            comm.all_reduce(torch.ones(1))

    with pytest.raises(UserError, match=r"broadcast.* where another rank calls|all_reduce.* where another"):
        run_ranks(work, 2, "threads")


def test_sizes_that_disagree_between_ranks_are_named() -> None:
    def work(comm: Communicator) -> None:
        x = torch.ones(3)
        comm.all_to_all(x, [1, 2] if comm.rank == 0 else [2, 1], [1, 1])

    with pytest.raises(UserError, match="Make send_sizes and recv_sizes agree"):
        run_ranks(work, 2, "threads")


def test_the_first_failure_is_raised_with_its_rank_and_the_others_stop() -> None:
    def work(comm: Communicator) -> None:
        if comm.rank == 2:
            raise KeyError("no such vertex")
        comm.barrier()

    with pytest.raises(KeyError, match="no such vertex") as caught:
        run_ranks(work, 5, "threads")
    assert caught.value.rank == 2  # type: ignore[attr-defined]


def test_a_sent_tensor_may_be_changed_after_wait() -> None:
    def work(comm: Communicator) -> float:
        x = torch.full((1,), float(comm.rank))
        comm.iswap([x], 1 - comm.rank, [], 1 - comm.rank).wait()
        x.fill_(-1)
        comm.barrier()
        (came,) = comm.iswap([], 1 - comm.rank, [torch.empty(1)], 1 - comm.rank).wait()
        return came.item()

    assert run_ranks(work, 2, "threads") == [1.0, 0.0]


def test_a_message_of_a_tensor_that_wants_a_gradient_says_that_it_ends_there() -> None:
    def work(comm: Communicator) -> list[bool]:
        x = torch.ones(2, requires_grad=True)
        with pytest.warns(Note, match=r"all_reduce: x wants a gradient, and .* Hand in x\.detach\(\)"):
            sums = comm.all_reduce(x)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            comm.all_reduce(x.detach())  # meant: nothing is said
        return [sums.requires_grad, bool((sums == comm.size).all())]

    assert run_ranks(work, 1, "threads") == [[False, True]]
