"""A calibration gives a whole profile, on virtual ranks; nothing here looks at its seconds."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from weft.cli import main
from weft.cli.calibrate import describe
from weft.comm import run_ranks
from weft.comm.launch import cores
from weft.errors import UserError
from weft.planner import calibrate as room
from weft.planner import proof
from weft.planner.calibrate import calibrate
from weft.planner.default import default_profile
from weft.planner.profile import Proved, own_profile, read_profile


@pytest.fixture(autouse=True)
def few_points(monkeypatch):
    monkeypatch.setattr(room, "_WIDTHS", (8, 16))
    monkeypatch.setattr(room, "_DEGREES", (4,))
    monkeypatch.setattr(room, "_BYTES", (1 << 12,))
    monkeypatch.setattr(room, "_WALKED", ((16,), (8,), (1 << 12,)))
    monkeypatch.setattr(room, "_CHANNELS", ((16,), (8,), (1 << 12,)))
    monkeypatch.setattr(room, "_SIDES", (8, 32))
    monkeypatch.setattr(room, "_ARCS", 500)
    monkeypatch.setattr(room, "_NUMBERS", 500)
    monkeypatch.setattr(room, "_MESSAGES", (64, 4096))
    monkeypatch.setattr(room, "_partition", lambda: {"metis": 1e-6})
    monkeypatch.setattr(proof, "_GRAPHS", dict.fromkeys(proof._GRAPHS, "er:nodes=40,features=4,classes=3"))


def test_ranks_of_one_host_and_of_two_are_measured_apart(monkeypatch):
    assert run_ranks(lambda comm: calibrate(comm, 0.5).between, 2, "threads") == [None, None]
    monkeypatch.setattr(room, "_hosts", lambda comm: ["a", "a", "b"])
    found = run_ranks(lambda comm: calibrate(comm, 0.5), 3, "threads")
    assert found[0] == found[1] == found[2]
    assert found[0].between is not None
    assert found[0].inside.seconds.x[0] == 64
    assert found[0].slowdown.x == (1.0, 2.0)
    assert found[0].share is not None
    assert found[0].share.x == (1.0, 2.0)
    assert found[0].call_seconds > 0
    assert found[0].cores == cores()
    assert found[0].seconds > 0


def test_rings_that_share_a_link_are_measured_together(monkeypatch):
    told: list[list] = []
    measure = room._messages
    monkeypatch.setattr(room, "_messages", lambda *words: told.append(measure(*words)) or told[-1])
    run_ranks(lambda comm: room._links(comm, ["a", "a", "b", "b"], 2, False, 0.1), 4, "threads")
    inside, between = told[:2], told[2:]
    assert len(between) == 4
    assert all(found == inside[0] for found in inside)
    assert all(found == between[0] for found in between)  # of two rings: the slower counts for both


def test_a_host_of_one_rank_keeps_out_of_the_rings_of_the_others(monkeypatch):
    found = run_ranks(lambda comm: room._links(comm, ["a", "a", "b"], 1, True, 0.1), 3, "threads")
    assert found[0]["crowded"] is not None
    assert found[0]["between"] is not None
    assert found[0] == found[1] == found[2]


def test_kernels_of_a_known_machine_stand_and_its_links_are_measured(monkeypatch):
    monkeypatch.setattr(room, "_hosts", lambda comm: ["a", "b"])
    base = replace(default_profile(), call_seconds=0.125)
    found = run_ranks(lambda comm: calibrate(comm, 0.5, base), 2, "threads")[0]
    assert found.kernels == base.kernels
    assert found.call_seconds == 0.125
    assert found.between is not None
    assert found.inside == base.inside  # nobody shares a host


def test_the_command_keeps_a_profile_that_can_be_read_and_the_doctor_shows_it(capsys, monkeypatch):
    assert main(["calibrate", "--engine", "threads", "--ranks", "1", "--seconds", "0.5"]) == 0
    found = own_profile()
    assert found is not None
    assert found.doubts() == ""
    shown = capsys.readouterr().out
    assert shown.startswith("profile   ")
    assert "kept      " in shown
    monkeypatch.setattr("weft.cli.doctor.diagnose", lambda: {"engines": {"mpi": {"works": True, "cases": 1}}})
    assert main(["doctor", "--json"]) == 0
    assert f"{found.date}, 0 days old" in json.loads(capsys.readouterr().out)["profile"]


def test_out_names_another_place_and_json_prints_it(capsys):
    words = [
        "calibrate",
        "--engine",
        "threads",
        "--ranks",
        "1",
        "--seconds",
        "0.5",
        "--out",
        "p.json",
        "--json",
    ]
    assert main(words) == 0
    assert json.loads(capsys.readouterr().out) == read_profile(Path("p.json")).as_dict()
    assert own_profile() is None
    kept = Path("p.json").read_text()  # perhaps edited by now: it is not written over
    assert main(words) == 2
    assert capsys.readouterr().err == "weft: p.json exists already. Choose another --out, or remove it.\n"
    assert Path("p.json").read_text() == kept


def test_fewer_ranks_than_were_started_wait_as_ranks_with_cores_of_their_own(monkeypatch):
    asked: list[bool | None] = []

    def waiting(comm: object, asleep: bool | None) -> AbstractContextManager[None]:
        asked.append(asleep)
        return nullcontext()

    monkeypatch.setattr(room, "_waiting", waiting)
    monkeypatch.setattr(room, "prove", lambda *_: None)
    for several, expected in ((1, {True, False}), (2, {None})):
        asked.clear()
        run_ranks(
            lambda comm, n=several: room._proved(comm, default_profile(), 2, [4, 2], n, 9.0), 4, "threads"
        )
        assert set(asked) == expected
        assert len(asked) == 6


def test_cores_are_those_of_all_ranks_of_a_host_where_each_is_bound_to_one(monkeypatch):
    class Told:
        def all_gather_json(self, own: list[int]) -> list[list[int]]:
            return [own, [1], [0, 1, 2]]

    monkeypatch.setattr("weft.comm.launch.host_cores", lambda: {0})
    assert room._cores(Told(), ["a", "a", "b"]) == 2


def test_what_was_proved_is_told():
    assert describe(default_profile())[-1].startswith("proved    no: no time for trials. Use --seconds 60")
    proved = replace(default_profile(), proved=(Proved(4, 2, 1, {}, 0.084),))
    assert describe(proved)[-1] == (
        "proved    4 ranks of 1 thread on 2 hosts: plans of trials are 8 % off by the median"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--seconds", "0"], "--seconds 0 is no time"), (["--seconds", "x"], "--seconds must be a number"),
     (["--ranks", "0"], "--ranks must be at least 1"), (["--engine", "pigeon"], "unknown engine 'pigeon'")],
)  # fmt: skip
def test_mistakes_are_one_line(words, message, capsys):
    assert main(["calibrate", "--engine", "threads", "--ranks", "1", *words]) == 2
    assert message in capsys.readouterr().err


def test_no_time_is_refused():
    with pytest.raises(UserError, match="is no time"):
        run_ranks(lambda comm: calibrate(comm, 1e9), 1, "threads")
