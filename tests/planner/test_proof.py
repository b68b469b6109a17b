"""What a profile says of the trainer's own step, held against the step itself."""

from __future__ import annotations

import dataclasses

import pytest

from weft.comm import run_ranks
from weft.errors import UserError
from weft.planner.cost import Machine, Timed
from weft.planner.default import default_profile
from weft.planner.profile import KINDS, Proved, parse_profile
from weft.planner.proof import _GRAPHS, Outcome, Trial, fit, prove, trials


def work(**seconds: float) -> Timed:
    return Timed("work", seconds)


def outcome(steps: list[Timed], factors: dict[str, float], ranks: int = 1) -> Outcome:
    """A trial that took what these factors say."""
    blank = Outcome([steps] * ranks, 1.0, 1.0)
    return dataclasses.replace(blank, measured=blank.foretold(factors))


def small_trials(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Trials of little graphs, which conclude something from so few on."""
    monkeypatch.setattr(
        "weft.planner.proof.trials", lambda ranks, shared=False: trials(ranks, shared)[:count]
    )
    monkeypatch.setattr("weft.planner.proof.FEWEST", count)
    monkeypatch.setattr("weft.planner.proof._SECONDS", 0.0)
    small = dict.fromkeys(_GRAPHS, "er:nodes=60,degree=4,features=5,classes=3")
    monkeypatch.setattr("weft.planner.proof._GRAPHS", small)


def test_a_fit_finds_the_factors_that_made_the_trials():
    true = {"walk": 1.6, "dense": 0.7, "call": 2.5, "long": 1.3, "short": 1.0, "pass": 1.0}
    shapes = [(5, 1, 1, 2), (1, 6, 1, 1), (1, 1, 4, 1), (2, 2, 1, 8), (3, 1, 2, 1), (1, 2, 3, 5)]
    found = fit(
        [
            outcome([work(walk=w, dense=d, call=c), Timed("call", {"short": 0.0, "long": m})], true)
            for w, d, c, m in shapes * 8
        ]
    )
    assert {kind: found[kind] for kind in ("walk", "dense", "call", "long")} == {
        "walk": pytest.approx(1.6, rel=0.05), "dense": pytest.approx(0.7, rel=0.05),
        "call": pytest.approx(2.5, rel=0.05), "long": pytest.approx(1.3, rel=0.05),
    }  # fmt: skip
    assert found["pass"] == found["short"] == 1.0  # nothing was seen of them


def test_one_trial_that_was_disturbed_does_not_move_the_factors_much():
    steady = [outcome([work(walk=w, dense=d)], {}) for w, d in ((4, 1), (1, 4), (2, 2), (3, 1), (1, 3))]
    odd = dataclasses.replace(steady[0], measured=10 * steady[0].measured)
    assert all(abs(factor - 1) < 0.25 for factor in fit([*steady, odd]).values())


def test_what_overlaps_is_fitted_as_it_is_foretold():
    hidden = [Timed("post", {"short": 0.0, "long": 2.0}, 0, 1.0), work(walk=5.0), Timed("wait", {}, 0)]
    found = fit([outcome(hidden, {"walk": 1.5})] * 20)
    assert found["walk"] == pytest.approx(1.5, rel=0.02)
    assert found["long"] == pytest.approx(1.0, abs=0.01)


def test_no_trials_leave_the_profile_as_it_is():
    assert fit([]) == dict.fromkeys(KINDS, 1.0)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_rank_gets_the_same_factors(ranks, monkeypatch):
    small_trials(monkeypatch, 2)
    found = run_ranks(lambda comm: prove(comm, default_profile(), 1, 1, 60.0), ranks, "threads")
    assert all(each == found[0] for each in found)
    assert found[0].ranks == ranks
    assert set(found[0].factors) == set(KINDS)
    assert found[0].error >= 0


def test_too_few_trials_conclude_nothing():
    assert run_ranks(lambda comm: prove(comm, default_profile(), 1, 1, 0.0), 2, "threads") == [None, None]


def test_a_trial_that_would_take_most_of_the_time_is_left_out(monkeypatch):
    small_trials(monkeypatch, 2)
    measured = []
    monkeypatch.setattr("weft.planner.proof._measure", lambda comm, graph, config: measured.append(1) or 1.0)
    slow = dataclasses.replace(default_profile(), update_seconds=10.0)
    for seconds, few in ((100.0, True), (300.0, False)):  # six epochs of 10 s, of each half of the time
        measured.clear()
        found = run_ranks(lambda comm, s=seconds: prove(comm, slow, 1, 1, s), 1, "threads")
        assert (found == [None], measured == []) == (few, few)


def test_trials_run_as_they_are_foretold():
    config = Trial("small", "gcn", "halo").config(Machine(default_profile(), 4, hosts=2))
    assert config.parallel.by_host == "off"


def test_hosts_of_several_ranks_are_tried_by_host_too(monkeypatch):
    assert sum(trial.by_host for trial in trials(4, shared=True)[:6]) == 2
    assert not any(trial.by_host for trial in trials(4))
    small_trials(monkeypatch, 6)
    monkeypatch.setattr("weft.planner.proof._measure", lambda comm, graph, config: 1.0)
    seen = []
    monkeypatch.setattr(
        "weft.planner.proof.fit", lambda found: seen.append(found) or dict.fromkeys(KINDS, 1.0)
    )

    def work(comm):
        comm.hosts = [0, 0, 1, 1]
        return prove(comm, default_profile(), 2, 1, 1e6)

    assert run_ranks(work, 4, "threads")[0].hosts == 2
    (found,) = seen  # rank 0 alone computes
    kinds = {kind for outcome in found for steps in outcome.ranks for s in steps for kind in s.seconds}
    assert {"long", "long_far", "short", "short_far"} <= kinds


def test_trials_are_of_rows_and_of_columns():
    for ranks in (2, 3, 4, 5, 8):
        assert {"1d", "halo"} < {trial.strategy for trial in trials(ranks)}


def profile_with(**changes: object) -> dict:
    proved = Proved(4, 2, 1, dict.fromkeys(KINDS, 1.5), 0.07)
    told = dataclasses.replace(default_profile(), proved=(proved,)).as_dict()
    told["proved"][0] |= changes
    return told


def test_what_was_proved_is_kept_with_the_profile():
    assert parse_profile(profile_with()).proved == (Proved(4, 2, 1, dict.fromkeys(KINDS, 1.5), 0.07),)
    older = profile_with()
    factors = older["proved"][0]["factors"] = dict.fromkeys(KINDS, 1.5) | {"long": 2.0}
    del factors["long_far"], factors["short_far"]  # one factor for all messages
    assert parse_profile(older).proved[0].factors == factors | {"long_far": 2.0, "short_far": 1.5}
    del older["proved"]
    assert parse_profile(older).proved == ()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"ranks": 0}, "ranks"),
        ({"factors": {}}, r"proved\[0\].factors.walk"),
        ({"error": "x"}, r"proved\[0\].error"),
        ({"factors": dict.fromkeys(KINDS, -1)}, r"factors.walk"),
    ],
)
def test_damage_to_what_was_proved_is_named(changes, named):
    with pytest.raises(UserError, match=named):
        parse_profile(profile_with(**changes))
