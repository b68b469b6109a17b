"""Clocks of several hosts on one time line."""

from __future__ import annotations

import time

from weft.comm import Ledger, run_ranks
from weft.comm.clock import align, this_host

AHEAD = {"a": 0.0, "b": 86_400.0, "c": -0.25}
HOSTS = ["a", "b", "a", "c", "b"]


def aligned(comm):
    host = HOSTS[comm.rank]
    return [(o.seconds, o.error) for o in align(comm, lambda: time.perf_counter() + AHEAD[host], host)]


def test_every_rank_learns_how_far_each_host_is_ahead_within_the_error_that_is_told():
    answers = run_ranks(aligned, 5, "threads")
    assert all(answer == answers[0] for answer in answers)
    for host, (seconds, error) in zip(HOSTS, answers[0], strict=True):
        assert abs(seconds - AHEAD[host]) <= error + 1e-9
        assert (error == 0) == (host == "a")


def test_ranks_of_one_host_share_its_clock_and_send_nothing_for_it():
    def work(comm):
        with Ledger(comm) as ledger:
            found = align(comm)
        return [o.seconds for o in found], ledger.words()

    assert run_ranks(work, 3, "threads") == [([0.0] * 3, 0)] * 3
    assert this_host() == this_host() != ""


def test_a_clock_that_jumped_is_seen():
    """The estimate follows the clock: with another hour it would be wrong."""

    def work(comm):
        return align(comm, lambda: time.perf_counter() + 7200 * comm.rank, str(comm.rank))[1].seconds

    assert all(abs(seconds - 3600) > 3000 for seconds in run_ranks(work, 2, "threads"))
