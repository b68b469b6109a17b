"""weft plan, as people type it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from weft.cli import main
from weft.planner.default import default_profile
from weft.planner.profile import write_profile


@pytest.fixture(autouse=True)
def no_profile(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def planned(capsys, *words: str) -> dict:
    assert main(["plan", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_a_table_with_the_winner_and_why(capsys):
    assert main(["plan", "karate", "--ranks", "4", "--hidden", "4", "--partition", "random"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("graph     karate: 34 vertices, 156 arcs; sizes counted")
    assert "no machine profile" in lines[2]
    assert lines[4].split()[:4] == ["strategy", "grid", "exchange", "partition"]
    assert lines[-1].startswith("best      ")
    assert sum(line.startswith("1d ") for line in lines) == 1


def test_json_has_every_candidate_and_a_slow_link_changes_seconds_and_no_words(capsys):
    words = ["karate", "--ranks", "4", "--hidden", "4", "--partition", "random"]
    fast, slow = planned(capsys, *words), planned(capsys, *words, "--hosts", "4", "--link", "1Mbit")

    def by_name(found: dict, key: str) -> dict:
        return {(row["grid"], row["exchange"]): row[key] for row in found["candidates"]}

    assert by_name(fast, "words") == by_name(slow, "words")
    for name, seconds in by_name(slow, "seconds").items():
        assert seconds > by_name(fast, "seconds")[name]
    assert fast["best"]["seconds"] == min(row["seconds"] for row in fast["candidates"])
    assert (slow["hosts"], slow["ranks"]) == (4, 4)


def test_1e11_arcs_on_paper_are_one_command(capsys):
    words = ["--vertices", "1e9", "--arcs", "1e11", "--features", "64", "--classes", "10", "--ranks", "8"]
    found = planned(capsys, *words, "--hosts", "8", "--memory", "4TB", "--exchange", "dense")
    assert (found["vertices"], found["arcs"]) == (10**9, 10**11)
    assert {row["how"] for row in found["candidates"]} == {"from numbers"}
    assert found["best"]["fits"]


def test_what_was_named_is_left(capsys):
    words = ["karate", "--ranks", "4", "--hidden", "4", "--partition", "random,metis"]
    found = planned(capsys, *words, "--strategy", "halo")
    assert [row["partition"] for row in found["candidates"]] == ["random", "metis"]
    assert {row["exchange"] for row in planned(capsys, *words, "--exchange", "sparse")["candidates"]} == {
        "sparse"
    }


def test_ways_by_host_are_rows_of_their_own_and_are_left_out_on_request(capsys):
    words = ["karate", "--ranks", "4", "--hidden", "4", "--partition", "random", "--hosts", "2"]
    assert main(["plan", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("profile   10 Gbit/s and 50 µs stand in") for line in lines)
    assert "over the link" in next(line for line in lines if line.startswith("strategy"))
    ways = [line.split("  ")[0] + line.partition("random")[0] for line in lines if line.startswith("1d ")]
    assert sorted("by host" in way for way in ways) == [False, True]
    found = {row["by_host"]: row for row in planned(capsys, *words)["candidates"] if row["strategy"] == "1d"}
    # Of the dense rows of two other ranks, each comes once a host.
    assert found[False]["link_words"] == 2 * found[True]["link_words"] > 0
    for asked in ("on", "off"):
        rows = planned(capsys, *words, "--by-host", asked)["candidates"]
        assert {row["by_host"] for row in rows} == {asked == "on"}
    named = planned(capsys, *words, "--link", "1Gbit")
    assert named["link_note"] == ""


def test_slots_of_a_host_file_are_filled_one_host_after_the_other(capsys):
    Path("hosts").write_text("a slots=4\nb slots=4\n")
    words = ["karate", "--ranks", "4", "--partition", "random", "--hosts", "hosts"]
    assert planned(capsys, *words)["hosts"] == 1
    assert main(["plan", *words, "--by-host", "on"]) == 2
    assert "--by-host on needs two hosts or more" in capsys.readouterr().err


def test_a_profile_by_hand_and_a_host_file(capsys):
    write_profile(default_profile(), Path("p.json"))
    Path("hosts").write_text("a slots=2\nb slots=2\n")
    found = planned(
        capsys, "karate", "--ranks", "4", "--profile", "p.json", "--hosts", "hosts", "--partition", "block"
    )
    assert (found["hosts"], found["profile"], found["profile_note"]) == (2, "default", "")


def test_a_picture_is_drawn_and_never_over_another(capsys):
    words = ["plan", "karate", "--ranks", "2", "--partition", "random", "--plot", "plan.svg"]
    assert main(words) == 0
    assert "seconds an epoch" in Path("plan.svg").read_text()
    Path("plan.svg").write_text("mine")
    assert main(words) == 2
    assert "plan.svg exists already. Choose another --plot, or remove it." in capsys.readouterr().err
    assert Path("plan.svg").read_text() == "mine"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--link", "fast"], "--link 'fast' is no bandwidth. Write 10Gbit"),
        (["--link", "0bit"], "--link '0bit' is no bandwidth"),
        (["--hosts", "0"], "--hosts 0 is no number of hosts"),
        (["--hosts", "9"], "4 ranks do not fill 9 hosts. Use --ranks 9"),
        (["--hosts", "nowhere"], "no file nowhere"),
        (["--ranks", "0"], "0 ranks were asked for"),
        (["--ranks", "99"], "99 ranks are more than the graph's 34 vertices"),
        (["--profile", "nowhere"], "no file nowhere. Make a profile: weft calibrate."),
        (["--vertices", "5"], "a graph is given by its name or by --vertices"),
        (["--grid", "2x2"], "a plan tries grids itself. Leave out --grid"),
        (["--strategy", "4d"], "unknown strategy '4d'"),
        (["--partition", "random,metsi"], "unknown partition 'metsi'"),
        (["--plot", "plan.doc"], "--plot plan.doc is no picture's name"),
        (["--memory", "lots"], "lots"),
        (["--by-host", "yes"], "unknown value of --by-host 'yes'"),
        (["--by-host", "on"], "--by-host on needs two hosts or more"),
    ],
)
def test_mistakes_are_one_line(words, message, capsys):
    assert main(["plan", "karate", "--ranks", "4", *words]) == 2
    shown = capsys.readouterr().err
    assert message in shown
    assert shown.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--vertices", "5"], "a graph by numbers needs --vertices and --arcs"),
     (["--vertices", "1.5", "--arcs", "9"], "--vertices must be a whole number from 1 on"),
     (["--vertices", "1e99", "--arcs", "9"], "--vertices must be a whole number from 1 on")],
)  # fmt: skip
def test_numbers_that_are_no_graph_are_one_line(words, message, capsys):
    assert main(["plan", "--ranks", "2", *words]) == 2
    assert message in capsys.readouterr().err


def test_of_many_candidates_the_best_are_drawn(capsys, monkeypatch):
    monkeypatch.setattr("weft.cli.plan._BARS", 3)
    words = ["plan", "--vertices", "1e4", "--arcs", "1e5", "--ranks", "4", "--plot", "plan.svg"]
    assert main([*words, "--json"]) == 0
    many = len(json.loads(capsys.readouterr().out)["candidates"])
    assert many > 3
    assert f"the best 3 of {many}" in Path("plan.svg").read_text()
