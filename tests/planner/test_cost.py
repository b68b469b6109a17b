"""Seconds from steps, one function at a time."""

from __future__ import annotations

import dataclasses

import pytest

from weft.comm.ledger import Message
from weft.planner.cost import (
    Machine,
    Seconds,
    Timed,
    clock,
    kernel_seconds,
    message_seconds,
    product_seconds,
    run,
    side_by_side,
    step_seconds,
    table_of,
    timed,
)
from weft.planner.default import default_profile
from weft.planner.profile import KINDS, Curve, Link, Proved, tabulate
from weft.planner.record import Kernel, Pass, Post, Product, Wait

AXES = ("width", "degree", "bytes")


def flat(each: float):
    return tabulate(AXES, ((1, 64), (1, 64), (1, 1e9)), lambda *at: each)


PROFILE = dataclasses.replace(
    default_profile(), call_seconds=0.0, bandwidth=1e9, inside=Link(Curve((1.0, 2.0), (1.0, 2.0))),
    between=Link(Curve((1.0, 2.0), (10.0, 20.0)), overlap=1.0),
    slowdown=Curve((1.0, 2.0), (1.0, 3.0)), speedup=Curve((1.0, 2.0), (1.0, 2.0)),
    kernels={name: flat(each) for name, each in
             {"spmm": 1.0, "attend": 2.0, "attend_back": 3.0, "channel": 4.0, "channel_back": 5.0}.items()}
    | {"dense": tabulate(("inputs", "outputs"), ((1, 8), (1, 8)), lambda a, b: a),
       "outer": tabulate(("inputs", "outputs"), ((1, 8), (1, 8)), lambda a, b: 10 * b)},
)  # fmt: skip
"""Seconds that one can add up in one's head."""


@pytest.mark.parametrize(
    ("kind", "name", "table"),
    [("spmm", "multiply", "spmm"), ("attend", "attend", "attend"),
     ("attend", "attend_backward", "attend_back"),
     ("sddmm", "sddmm_heads", "attend_back"), ("attend", "channel_scores", "channel"),
     ("spmm", "channel_sum_backward", "channel_back"), ("fold", "fold", "spmm")],
)  # fmt: skip
def test_every_kernel_has_its_table(kind, name, table):
    assert table_of(Kernel(kind, name, 3, 3, 7, 4)) == table


def test_a_kernel_costs_by_arcs_and_beyond_the_table_by_width():
    assert kernel_seconds(PROFILE, Kernel("spmm", "multiply", 3, 3, 7, 4)) == pytest.approx(7)
    assert kernel_seconds(PROFILE, Kernel("spmm", "multiply", 3, 3, 7, 128)) == pytest.approx(14)
    assert kernel_seconds(PROFILE, Kernel("spmm", "multiply", 3, 3, 7, 4, itemsize=8)) == pytest.approx(14)
    assert kernel_seconds(PROFILE, Kernel("fold", "fold", 3, 3, 7, 4)) == pytest.approx(21)
    assert kernel_seconds(PROFILE, Kernel("spmm", "multiply", 5, 3, 0, 4)) == pytest.approx(5 * 4 * 4 / 1e9)


def test_a_product_takes_its_two_short_sides_to_the_table_of_its_long_one():
    assert product_seconds(PROFILE, Product(1000, 2, 4)) == pytest.approx(2 * 8000)
    assert product_seconds(PROFILE, Product(2, 1000, 4)) == pytest.approx(40 * 8000)
    assert product_seconds(PROFILE, Product(1000, 2, 4, itemsize=8)) == pytest.approx(2 * 2 * 8000)


def test_ranks_of_a_host_slow_each_other_down_and_threads_speed_up():
    step = Kernel("spmm", "multiply", 3, 3, 7, 4)
    assert step_seconds(Machine(PROFILE, 2), step) == ("walk", pytest.approx(21))
    assert step_seconds(Machine(PROFILE, 2, hosts=2), step) == ("walk", pytest.approx(7))
    assert step_seconds(Machine(PROFILE, 2, hosts=2, threads=2), step) == ("walk", pytest.approx(3.5))


def test_attention_has_a_slow_down_of_its_own_where_it_was_measured():
    step = Kernel("attend", "attend", 3, 3, 7, 4)
    assert step_seconds(Machine(PROFILE, 2), step)[1] == pytest.approx(42)  # as a walk
    own = Curve((1.0, 2.0), (1.0, 4.0)), Curve((1.0, 2.0), (1.0, 1.5))
    known = dataclasses.replace(PROFILE, others={"attend": own})
    assert step_seconds(Machine(known, 2), step)[1] == pytest.approx(21)
    assert step_seconds(Machine(known, 2, threads=2), step)[1] == pytest.approx(21 / 4)


def test_what_no_cache_holds_is_a_kind_of_its_own():
    for step, near in ((Product(10, 8, 8), "dense"), (Kernel("attend", "attend", 9, 9, 30, 4), "attend")):
        assert step_seconds(Machine(PROFILE, 2), step)[0] == near
    assert step_seconds(Machine(PROFILE, 2), Product(100_000, 8, 8))[0] == "dense"
    assert step_seconds(Machine(PROFILE, 4), Product(100_000, 8, 8))[0] == "dense_far"
    assert step_seconds(Machine(PROFILE, 4, hosts=2), Product(100_000, 8, 8))[0] == "dense"
    assert step_seconds(Machine(PROFILE, 1), Pass("add", 20 << 20))[0] == "pass_far"
    assert step_seconds(Machine(PROFILE, 1), Kernel("spmm", "multiply", 1, 5 << 20, 3, 1))[0] == "walk_far"


def test_an_operation_costs_something_however_small_it_is():
    slow = Machine(dataclasses.replace(PROFILE, call_seconds=0.5), 1)
    assert run(slow, [Pass("add", 10**9), Pass("add", 8)], 0, {}).total == pytest.approx(2.0)


def test_factors_of_a_proved_profile_multiply_what_each_kind_of_step_takes():
    factors = dict.fromkeys(KINDS, 1.0) | {"walk": 2.0, "long": 3.0}
    proved = Machine(dataclasses.replace(PROFILE, proved=(Proved(2, 1, 1, factors, 0.0),)), 2)
    step = Kernel("spmm", "multiply", 3, 3, 7, 4)
    assert run(proved, [step], 0, {}).total == 2 * run(Machine(PROFILE, 2), [step], 0, {}).total
    # 100 bytes take 100 s; of those the first 64 are what a short message takes.
    assert run(
        proved, [Post(0, swap(100, 100, 1, 1)._replace(size=2), True)], 0, {"row": range(2)}
    ).total == (pytest.approx(64 + 3 * 36))


def swap(sent: int, received: int, target: int, source: int) -> Message:
    return Message("iswap", "row", ((target, sent),), ((source, received),), 4)


def test_a_message_between_hosts_shares_the_link_of_its_host():
    two = Machine(PROFILE, 4, hosts=2)  # ranks 0, 1 and 2, 3
    assert message_seconds(two, swap(2, 1, 1, 1), 0, range(4)) == pytest.approx(2)  # within
    assert message_seconds(two, swap(1, 1, 2, 2), 0, range(4)) == pytest.approx(20)  # 2 bytes share it
    assert message_seconds(two, swap(1, 1, 1, 2), 0, range(4)) == pytest.approx(20)  # the slower of both
    assert message_seconds(Machine(PROFILE, 4, hosts=4), swap(1, 1, 1, 2), 0, range(4)) == pytest.approx(10)


def test_only_those_of_a_host_share_its_link_whose_messages_leave_it_at_once():
    two = Machine(PROFILE, 4, hosts=2)
    # One place on, of ranks 0 and 1 only 1 leaves the host; two places on both do.
    assert message_seconds(two, swap(1, 1, 2, 0), 1, range(4)) == pytest.approx(10)
    assert message_seconds(two, swap(1, 1, 3, 3), 1, range(4)) == pytest.approx(20)
    # Lines of their own: the other rank of the host does as this one.
    assert message_seconds(two, swap(1, 1, 1, 1), 0, [0, 2]) == pytest.approx(20)
    both = Message("all_to_all", "x", ((1, 2), (2, 1)), (), 4)  # near, then through the shared link
    assert message_seconds(two, both, 0, range(4)) == pytest.approx(2 + 20)


def test_ranks_that_are_more_than_cores_get_a_share_of_one():
    step = Pass("add", 10**9)
    lines = {"row": range(4)}
    crowded = dataclasses.replace(PROFILE, slowdown=Curve((1.0,), (1.0,)))
    assert Machine(crowded, 2).share == 1
    four = Machine(crowded, 4)  # on the two cores of the profile
    assert four.share == 0.5
    assert run(four, [step], 0, lines).total == pytest.approx(2)
    # Hosts that share cores: one rank of each was measured to get a quarter.
    lab = dataclasses.replace(crowded, share=Curve((1.0,), (0.25,)))
    assert Machine(lab, 4, hosts=4).share == 0.25
    assert Machine(lab, 8, hosts=4).share == 0.125


def test_a_share_of_a_core_is_that_of_as_many_ranks_where_they_were_measured():
    known = dataclasses.replace(PROFILE, share=Curve((1.0, 2.0, 4.0), (1.0, 0.97, 0.46)))
    assert [Machine(known, ranks).share for ranks in (1, 2, 4)] == [1.0, 1.0, pytest.approx(0.46)]
    assert Machine(known, 8).share == pytest.approx(4 * 0.46 / 8)
    whole = dataclasses.replace(PROFILE, share=Curve((1.0, 2.0), (1.0, 0.95)), cores=3)
    assert Machine(whole, 6).share == 0.5


def test_crowded_ranks_wait_as_crowded_ones_do():
    slow = Link(Curve((1.0, 2.0), (5.0, 10.0)))
    profile = dataclasses.replace(PROFILE, crowded=slow)
    assert Machine(profile, 2).inside is profile.inside
    assert Machine(profile, 4).inside is slow
    assert message_seconds(Machine(profile, 4), swap(2, 1, 1, 1), 0, range(4)) == pytest.approx(10)


def test_on_shared_cores_the_slowest_ends_with_a_core_of_its_own():
    quick, slow = Seconds(3.0, 2.0, 1.0), Seconds(9.0, 8.0, 1.0)
    assert side_by_side([quick, slow], 1.0) == slow
    assert side_by_side([quick, slow], 0.5) == Seconds(6.0, 5.0, 1.0)  # the mean's at its share
    assert side_by_side([quick] * 7 + [slow], 0.5) == Seconds(5.0, 4.0, 1.0)  # its own, alone


def test_collectives_are_messages_of_peers():
    one = Machine(PROFILE, 4)
    everybody = tuple((p, 2) for p in (1, 2, 3))
    assert message_seconds(one, Message("all_to_all", "x", everybody, everybody[:1], 4), 0, range(4)) == 6
    # log₂ 4 messages of 4 bytes, or 2 · 3 of 1
    reduce = Message("all_reduce", "x", tuple((p, 4) for p in (1, 2, 3)), (), 4)
    assert message_seconds(one, reduce, 0, range(4)) == pytest.approx(min(2 * 4, 2 * 3 * 1))
    assert message_seconds(one, Message("all_reduce", "x", (), (), 1), 0, range(1)) == 0


def test_a_sum_over_hosts_meets_near_ranks_first():
    two = Machine(PROFILE, 4, hosts=2)  # of two rounds one is within the host, in one both of a host cross
    reduce = Message("all_reduce", "x", tuple((p, 1) for p in (1, 2, 3)), (), 4)
    assert message_seconds(two, reduce, 0, range(4)) == pytest.approx(1 + 20)
    assert message_seconds(Machine(PROFILE, 4, hosts=4), reduce, 0, range(4)) == pytest.approx(20)


def test_near_messages_do_not_queue_behind_those_that_leave_the_host():
    near = [Timed("post", {"long": 1.0}, 1, 1.0), Timed("wait", {}, 1)]
    far = [Timed("post", {"long_far": 100.0}, 0, 1.0, far=True), Timed("wait", {}, 0)]
    steps = [far[0], *near, Timed("work", {"walk": 50.0}), far[1]]
    assert clock(steps, {}).total == pytest.approx(100)
    assert clock(steps, {"long_far": 2.0}).total == pytest.approx(200)
    both = Machine(PROFILE, 4, hosts=2)
    posts = [Post(n, swap(1, 1, p, p), blocking=False) for n, p in enumerate((1, 2))]
    looked_up = timed(both, posts, 0, {"row": range(4)})
    assert [(step.far, set(step.seconds)) for step in looked_up] == [
        (False, {"short", "long"}), (True, {"short_far", "long_far"}),
    ]  # fmt: skip


def test_ranks_that_are_slow_in_turns_hold_each_other_up_unless_messages_travel_meanwhile():
    def rank(*phases: tuple[float, float]) -> Seconds:
        total = sum(seconds for seconds, _ in phases)
        return Seconds(total, total, 0.0, tuple((seconds, seconds, hidden) for seconds, hidden in phases))

    for hidden, total in ((0.0, 7.0), (0.5, 6.0), (1.0, 5.0)):
        turns = [rank((3, hidden), (1, hidden), (1, 0)), rank((1, hidden), (3, hidden), (1, 0))]
        assert side_by_side(turns, 1.0).total == pytest.approx(total)
    hard = [rank((3, 0), (1, 1.0), (1, 0)), rank((1, 0), (3, 1.0), (1, 0))]  # a sum over all in between
    assert side_by_side(hard, 1.0).total == pytest.approx(3 + 4)
    others = [rank((3, 0.0)), rank((1, 0.0), (3, 0.0))]  # they do not meet as often
    assert side_by_side(others, 1.0).total == 4


def test_what_travels_beside_a_product_is_waited_for_only_as_far_as_it_takes_longer():
    far = Machine(PROFILE, 2, hosts=2)
    product = Kernel("spmm", "multiply", 3, 3, 7, 4)  # 7 seconds
    post = Post(0, swap(1, 1, 1, 1), blocking=False)  # 10 seconds, all of it beside others
    lines = {"row": range(2)}
    found = run(far, [post, product, Wait(0), product], 0, lines)
    assert (found.total, found.compute, found.messages) == pytest.approx((17, 14, 3))
    late = run(far, [post, Wait(0), product, product], 0, lines)
    assert late.total == pytest.approx(24)
    blocking = Post(0, post.message, blocking=True)
    assert run(far, [product, blocking, product], 0, lines).total == pytest.approx(24)


def test_two_messages_share_the_rank_s_link_and_one_that_does_not_overlap_is_paid_in_full():
    far, lines = Machine(PROFILE, 2, hosts=2), {"row": range(2)}
    posts = [Post(n, swap(1, 1, 1, 1), blocking=False) for n in (0, 1)]
    assert run(far, [*posts, Wait(0), Wait(1)], 0, lines).total == pytest.approx(20)
    near = Machine(PROFILE, 2)  # overlap 0 within a host; products three times slower beside another
    product = Kernel("spmm", "multiply", 3, 3, 7, 4)
    assert run(near, [posts[0], product, Wait(0)], 0, lines).total == pytest.approx(21 + 1)
