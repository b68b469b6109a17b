"""How far a conversion is, where nobody watches: lines, by a clock of the test's."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from weft.cli import progress
from weft.cli.progress import Lines, Whole
from weft.graph.stream import Options, convert
from weft.graph.stream.plan import Plan


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_line_every_ten_seconds_tells_the_stage_its_share_and_when_all_is_done():
    said, clock = [], Clock()
    lines = Lines(said.append, clock)
    lines.expect({"read": 6 * 10**9, "write": 4 * 10**9})
    for second in range(60):
        clock.now = 100.0 + second
        lines("read", second * 10**8, 6 * 10**9)
    assert len(said) == 5
    assert said[2] == "reading   50 %, 3.00 of 6.00 GB; of all 30 %, 70 s left"
    clock.now += 20
    lines("write", 3 * 10**6, 4 * 10**6)
    assert said[-1] == "writing   75 %, 3.00 of 4.00 M; of all 90 %, 8.78 s left"


def test_what_was_done_before_is_no_measure_of_speed():
    clock = Clock()
    whole = Whole(clock)
    whole.expect({"read": 10})
    assert whole.left("read", 8, 10) is None  # this is where the last command stopped
    clock.now += 5
    assert whole.left("read", 9, 10) == pytest.approx(5)
    whole.expect({"read": 10, "name": 10})  # all begins again
    assert whole.left("read", 1, 10) is None


@pytest.mark.parametrize("how", ["plain", "text", "weights both ways", "wide"])
def test_a_conversion_tells_each_stage_that_it_said_it_would_have(tmp_path, monkeypatch, how):
    ids = np.random.default_rng(3).integers(80, size=(2, 900)) * (2**40 if how == "wide" else 1)
    third = "0.5" if how == "weights both ways" else ""
    (tmp_path / "g.txt").write_text("".join(f"{a} {b} {third}\n" for a, b in ids.T))
    n = len(np.unique(ids))
    np.save(tmp_path / "x.npy", np.ones((n, 4)))
    tiny = Plan(threads=1, run=100, part=1, bits=1 << 20, segment=1_000, free=1 << 26)
    monkeypatch.setattr(sys.modules["weft.graph.stream.convert"], "plan", lambda *_: tiny)

    class Heard(Whole):
        def expect(self, work):
            self.told, self.stages = [], list(work)
            super().expect(work)

        def __call__(self, stage, done, total):
            self.told.append((stage, self.share(stage, done, total)))

    heard = Heard()
    both = True if third else None
    options = Options(features=str(tmp_path / "x.npy"), undirected=both, text_ids=how == "text")
    convert([tmp_path / "g.txt"], tmp_path / "g.weft", options, heard)
    assert list(dict.fromkeys(stage for stage, _ in heard.told)) == heard.stages
    shares = [share for _, share in heard.told]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_lines_go_to_standard_error_without_escape_codes(tmp_path, weft, monkeypatch):
    (tmp_path / "g.txt").write_text("".join(f"{v} {v + 1}\n" for v in range(50)))
    assert weft("convert", "g.txt", "quick.weft").err == ""
    monkeypatch.setattr(progress, "EVERY", 0.0)
    answer = weft("convert", "g.txt", "g.weft")
    assert answer.out == "g.weft: 51 vertices, 50 arcs, 0 features, 0 classes\n"
    assert answer.err.startswith("reading   0 %, 0.00 of 0.00 GB; of all 0 %\n")
    assert "writing   100 %, 0.00 of 0.00 M; of all 100 %, 0 s left\n" in answer.err
    assert "\x1b" not in answer.err
