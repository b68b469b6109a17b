"""One epoch rank by rank, as a run folder keeps it."""

from __future__ import annotations

import json

import pytest
import torch

from weft.comm import run_ranks
from weft.comm.clock import Offset
from weft.train import Trainer, measured
from weft.train.ranking import rank, spread
from weft.train.run import RunFolder
from weft.train.watch import StepWatch, write_trace

from .graphs import config, multilabel, small


def fitted(comm, graph, made, path):
    """A run with a folder; what rank 0 kept of it."""
    trainer = Trainer(graph, made, comm)
    made.train.out = str(path)
    folder = RunFolder.create(made) if comm.rank == 0 else None
    result = trainer.fit(folder)
    if folder is not None:
        folder.__exit__()
    return result.measured, result.details, result.scores, result.moved.words


def test_words_by_peer_are_the_words_by_phase_and_lie_in_the_folder_before_the_end(tmp_path):
    made = config(epochs=3)
    made.parallel.strategy = "2d"
    found = run_ranks(fitted, 4, "threads", small(), made, tmp_path / "run")
    kept = found[0][0]
    assert json.loads((tmp_path / "run" / "measured.json").read_text()) == json.loads(json.dumps(kept))
    assert kept["predicted_words"] == kept["words"]
    for number, (*_, words) in enumerate(found):
        row = kept["received"][number]
        assert sum(count for _, count, _ in row) == sum(words.values())
        # float32, but for the loss, a word of float64.
        assert sum(size for *_, size in row) == 4 * sum(words.values()) + 4 * words["loss"]
    assert sum(kept["vertices"]) == 160
    assert kept["epoch"] == 2


def test_the_time_line_has_every_kind_in_order_and_inside_the_epoch(tmp_path):
    ((kept, *_), *_) = run_ranks(fitted, 3, "threads", small(), config(epochs=3), tmp_path / "run")
    line = kept["timeline"]
    assert line["whole"]
    assert min(line["start"]) == 0
    for number, lane in enumerate(line["events"]):
        assert {"spmm", "dense", "grad", "loss"} <= {kind for kind, *_ in lane}
        starts = [start for _, _, start, _, _ in lane]
        assert starts == sorted(starts)
        begins = line["start"][number]
        assert begins - 1e-6 <= starts[0] <= starts[-1] <= begins + kept["seconds"][number] + 1e-6
        assert sum(size for *_, size in lane) == sum(size for *_, size in kept["received"][number])


def test_of_a_long_epoch_all_ranks_have_the_same_beginning(tmp_path, monkeypatch):
    monkeypatch.setattr(measured, "MOST_SHOWN", 5)
    ((kept, *_), *_) = run_ranks(fitted, 3, "threads", small(), config(epochs=3), tmp_path / "run")
    line = kept["timeline"]
    assert not line["whole"]
    assert all(len(lane) <= 5 for lane in line["events"])
    assert max(start for lane in line["events"] for _, _, start, _, _ in lane) < line["seconds"]


def test_a_trace_names_peers_and_bytes_on_the_clock_of_rank_0(tmp_path):
    def work(comm):
        trainer = Trainer(small(), config(), comm)
        trainer.step(1)
        with StepWatch(comm, keep_events=True) as watch:
            trainer.step(2)
        watch.offsets = [Offset(), Offset(3600.0, 0.25)]
        write_trace(watch, str(tmp_path / "t.json"))
        return watch.started, {peer: size for peer, (_, size) in watch.ledger.peers().items()}

    ranks = run_ranks(work, 2, "threads")
    trace = json.loads((tmp_path / "t.json").read_text())
    events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    for number, (started, peers) in enumerate(ranks):
        mine = [e for e in events if e["pid"] == number]
        (step,) = [e for e in mine if e["cat"] == "step"]
        assert step["ts"] == pytest.approx((started - 3600 * number) * 1e6, abs=1.0)
        told = [e["args"] for e in mine if "received_from" in e.get("args", {})]
        other = str(1 - number)
        assert sum(a["received_from"].get(other, 0) for a in told) == peers[1 - number] > 0
        assert all(a["received_bytes"] == sum(a["received_from"].values()) for a in told)
        assert all(a["axis"] for a in told)
    assert trace["otherData"]["clocks"][1] == {"ahead_seconds": 3600.0, "error_seconds": 0.25}


def test_who_was_taken_for_whom_is_the_same_on_any_ranks_and_adds_up_to_the_accuracy(tmp_path):
    answers = [
        run_ranks(fitted, ranks, "threads", small(), config(epochs=3, dtype="float64"), tmp_path / str(ranks))
        for ranks in (1, 3)
    ]
    (_, alone, scores, _), *_ = answers[0]
    for _, details, _, _ in answers[1]:
        assert details == alone
    square = torch.tensor(alone["confusion"])
    assert float(square.diag().sum() / square.sum()) == pytest.approx(scores["test_accuracy"])


def test_of_several_labels_and_of_many_classes_the_sums_are_kept(tmp_path, monkeypatch):
    ((_, several, scores, _),) = run_ranks(
        fitted, 1, "threads", multilabel(), config(epochs=3), tmp_path / "several"
    )
    right, true, guessed = (sum(several[key]) for key in ("right", "true", "guessed"))
    assert 2 * right / (true + guessed) == pytest.approx(scores["test_accuracy"])
    ((_, whole, *_),) = run_ranks(fitted, 1, "threads", small(), config(epochs=3), tmp_path / "whole")
    monkeypatch.setattr("weft.train.classes.MOST_CLASSES", 3)
    ((_, sums, *_),) = run_ranks(fitted, 1, "threads", small(), config(epochs=3), tmp_path / "sums")
    square = torch.tensor(whole["confusion"])
    assert sums["true"] == square.sum(1).tolist()
    assert sums["guessed"] == square.sum(0).tolist()
    assert sums["right"] == square.diag().tolist()


def test_hits_of_a_report_are_those_of_the_metrics_on_any_ranks():
    generator = torch.Generator().manual_seed(3)
    true, false = torch.randn(53, generator=generator) + 0.5, torch.randn(71, generator=generator)

    def work(comm):
        mine = [x.tensor_split(comm.size)[comm.rank] for x in (true, false)]
        return spread(*mine, comm), [rank(*mine, k, comm).hits for k in (1, 3, 10, 20, 50)]

    alone = work_alone = spread(true, false)
    for found, hits in run_ranks(work, 3, "threads"):
        assert found == work_alone
        assert list(found["hits"].values()) == hits
    assert sum(alone["histogram"]["true"]) == 53
    assert sum(alone["histogram"]["false"]) == 71
    a, b = (torch.tensor(column) for column in zip(*alone["roc"], strict=True))
    area = torch.trapezoid(b, a)
    assert float(area) == pytest.approx(rank(true, false, 1).auc, abs=0.02)


def test_pairs_that_all_score_alike_and_none_at_all_are_no_error():
    same = spread(torch.zeros(4), torch.zeros(3))
    assert same["hits"] == {1: 0.0, 3: 0.0}
    assert sum(same["histogram"]["true"]) == 4
    assert spread(torch.zeros(0), torch.zeros(3)) == {}
