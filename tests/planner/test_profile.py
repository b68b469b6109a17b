"""A profile goes to the disk and back; a damaged or foreign one is one line."""

from __future__ import annotations

import copy
import dataclasses
import json
import math
import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.comm.launch import cores
from weft.errors import UserError
from weft.planner.default import default_profile
from weft.planner.profile import (
    Curve,
    Link,
    Table,
    own_profile,
    parse_profile,
    path_of,
    read_profile,
    tabulate,
    write_profile,
)


def test_a_profile_is_the_same_after_the_disk():
    curve = Curve((1.0, 2.0), (1.0, 1.5))
    profile = dataclasses.replace(
        default_profile(), between=Link.of_bandwidth(1e-4, 1e9, 0.5), share=curve, update_seconds=1e-3,
        crowded=Link.of_bandwidth(1e-3, 1e9), seconds=21.5,
        others={"dense": (curve, curve), "pass": (curve, curve)},
    )  # fmt: skip
    path = write_profile(profile, Path("deep/er/p.json"))
    assert read_profile(path) == profile
    assert not list(path.parent.glob("*.part"))


def test_the_own_profile_lies_in_the_cache_folder_and_a_newer_one_replaces_it():
    assert own_profile() is None
    for date in ("2026-01-01", "2026-02-02"):
        write_profile(dataclasses.replace(default_profile(), date=date), path_of())
    found = own_profile()
    assert found is not None
    assert found.date == "2026-02-02"
    assert "cache/weft/profile-" in str(path_of())
    assert path_of("../../x").parent == path_of().parent


def test_doubts_name_another_machine_and_an_old_profile():
    here = dataclasses.replace(default_profile(), host=socket.gethostname(), cores=cores())
    fresh = dataclasses.replace(here, date="2999-01-01")
    assert fresh.doubts() == ""
    assert "days old. Use: weft calibrate" in dataclasses.replace(here, date="2001-01-01").doubts()
    assert "of host default, this is" in default_profile().doubts()
    assert f"here are {cores()}" in dataclasses.replace(fresh, cores=cores() + 1).doubts()


SOUND = default_profile().as_dict()


def changed(*path: str | int, value: object = None, drop: bool = False) -> object:
    out = copy.deepcopy(SOUND)
    place = out
    for step in path[:-1]:
        place = place[step]
    if drop:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return out


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([], "its content is no object"),
        (changed("host", drop=True), "host is missing"),
        (changed("weft_profile", value=2), "another format"),
        (changed("date", value="yesterday"), "date 'yesterday' is none"),
        (changed("cores", value=1.5), "cores is no whole number"),
        (changed("cores", value=0), "cores is 0, not between"),
        (changed("bandwidth", value=math.nan), "bandwidth is nan"),
        (changed("bandwidth", value=True), "bandwidth is no number"),
        (changed("bandwidth", value=10**400), "bandwidth is inf"),
        (changed("inside", "overlap", value=2), "inside.overlap is 2"),
        (changed("inside", "seconds", 0, value=-1), "inside.seconds is -1"),
        (changed("inside", "bytes", 1, value=0.5), "inside.bytes does not rise"),
        (changed("inside", "bytes", value=[1.0]), "bytes has 1 numbers, seconds 15"),
        (changed("kernels", "spmm", drop=True), "kernels.spmm is missing"),
        (changed("kernels", "spmm", "seconds", value=[1.0]), "a table has 1 numbers for 18 points"),
        (changed("kernels", "spmm", "axes", "width", value=[]), "kernels.spmm.axes.width is no list"),
        (changed("kernels", "dense", "axes", value=3), "kernels.dense.axes is no object"),
        (changed("partition", "metis", value="quick"), "partition.metis is no number"),
        (changed("slowdown", "factor", value=None), "slowdown.factor is no list"),
    ],
)
def test_each_damage_is_one_line_that_names_the_field(found, message):
    Path("p.json").write_text(json.dumps(found))
    with pytest.raises(UserError) as error:
        read_profile(Path("p.json"))
    assert message in str(error.value)
    assert str(error.value).startswith("p.json is no profile: ")
    assert str(error.value).endswith("Make one: weft calibrate.")


@pytest.mark.parametrize(
    ("text", "message"), [("{", "Expecting"), ("[" * 100_000, "recursion"), ("\xff", "codec")]
)
def test_what_is_no_json_is_one_line(text, message):
    Path("p.json").write_bytes(text.encode("latin1"))
    with pytest.raises(UserError, match=message):
        read_profile(Path("p.json"))


def test_a_file_that_is_not_there_or_far_too_large_is_one_line():
    with pytest.raises(UserError, match=r"^no file nowhere\.json"):
        read_profile(Path("nowhere.json"))
    with open("big.json", "wb") as file:
        file.truncate(5 << 20)
    with pytest.raises(UserError, match="too large for a profile"):
        read_profile(Path("big.json"))
    Path("a").mkdir()
    with pytest.raises(UserError, match="a is no plain file"):
        read_profile(Path("a"))


def test_a_name_that_a_terminal_would_obey_is_spelled_out():
    assert parse_profile(changed("host", value="a\x1b[31mb")).host == r"a\x1b[31mb"


def test_parse_refuses_what_it_is_not_given():
    with pytest.raises(UserError, match="this is no profile: host is missing"):
        parse_profile({"weft_profile": 1, "date": "2026-01-01", "kernels": {}, "partition": {}})


@given(st.floats(1e-3, 1e12))
def test_a_curve_never_falls_below_its_latency_and_passes_its_points(x):
    link = Link.of_bandwidth(1e-5, 1e9)
    assert link.seconds.at(x) >= 1e-5
    assert link.seconds.at(x) == pytest.approx(1e-5 + x / 1e9, rel=0.35)  # straight on logarithmic scales
    for size, seconds in zip(link.seconds.x, link.seconds.y, strict=True):
        assert link.seconds.at(size) == pytest.approx(seconds)
    assert Curve((3.0,), (7.0,)).at(x) == 7.0


@given(st.floats(1e-3, 1e6), st.floats(1e-3, 1e6))
def test_a_table_of_a_product_is_the_product_inside_and_its_border_outside(a, b):
    table = tabulate(("a", "b"), ((1, 10, 100), (2, 20)), lambda a, b: a * b)
    expected = min(max(a, 1), 100) * min(max(b, 2), 20)
    assert table.at(a=a, b=b) == pytest.approx(expected)
    assert Table(("a",), ((5.0,),), (3.0,)).at(a=a) == pytest.approx(3.0)
