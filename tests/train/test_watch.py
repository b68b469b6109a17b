from __future__ import annotations

import json

import pytest

from weft.comm import run_ranks
from weft.errors import UserError
from weft.graph import karate
from weft.train import RunConfig, Trainer
from weft.train.watch import StepWatch, write_trace


def watched(comm, path=None):
    config = RunConfig()
    config.parallel.strategy = "2d" if comm.size == 4 else "1d"
    trainer = Trainer(karate(), config, comm)
    trainer.step(1)
    with StepWatch(comm, keep_events=True) as watch:
        trainer.step(2)
    if path is not None:
        write_trace(watch, path)
    return watch.seconds(), watch.total, watch.received() == trainer.predict()


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_the_kinds_add_up_to_the_step_and_the_words_to_the_prediction(ranks):
    for seconds, total, foretold in run_ranks(watched, ranks, "threads"):
        assert sum(seconds.values()) == pytest.approx(total)
        assert {"spmm", "dense", "other", "waiting"} <= seconds.keys()
        assert min(seconds.values()) >= 0
        assert foretold


def test_a_trace_has_every_rank_and_kind_inside_its_step(tmp_path):
    path = tmp_path / "trace.json"
    run_ranks(watched, 4, "threads", str(path))
    events = [e for e in json.loads(path.read_text())["traceEvents"] if e["ph"] == "X"]
    assert {e["pid"] for e in events} == {0, 1, 2, 3}
    assert {"spmm", "dense", "gather", "split", "join", "grad", "loss", "step"} <= {e["cat"] for e in events}
    for rank in range(4):
        (step,) = [e for e in events if e["pid"] == rank and e["cat"] == "step"]
        inside = [e for e in events if e["pid"] == rank]
        assert all(
            step["ts"] <= e["ts"] <= e["ts"] + e["dur"] <= step["ts"] + step["dur"] + 1 for e in inside
        )


def test_a_trace_that_cannot_be_written_is_one_line(tmp_path):
    with pytest.raises(UserError, match="cannot write the trace"):
        run_ranks(watched, 1, "threads", str(tmp_path / "no" / "trace.json"))
