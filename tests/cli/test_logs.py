"""What is told of every epoch: lines without a terminal, logs of ranks, TensorBoard, Weights & Biases."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import sys
import time
import types
from pathlib import Path
from typing import ClassVar

import pytest

from weft.cli import logs, main, train
from weft.cli.console import console, is_watched
from weft.graph import write_store
from weft.train.every import Every

from ..train.graphs import small
from .conftest import Weft

QUICK = ["small.weft", "--hidden", "8", "--epochs", "7", "--out", "run"]


@pytest.fixture(autouse=True)
def graph() -> None:
    write_store(small(), "small.weft")


def epochs_told(text: str) -> list[int]:
    return [int(line.split()[1].split("/")[0]) for line in text.splitlines() if line.startswith("epoch ")]


def test_without_a_terminal_a_line_tells_loss_score_seconds_and_memory(weft: Weft):
    answer = weft("train", *QUICK, "--log-every", "3")
    assert answer.status == 0
    assert epochs_told(answer.out) == [1, 3, 6, 7]
    (first, *_) = [line for line in answer.out.splitlines() if line.startswith("epoch ")]
    assert " loss " in first
    assert " val " in first
    assert first.endswith("MB")
    assert "\x1b" not in answer.out + answer.err
    assert answer.err == ""


def test_lines_can_be_left_out_and_json_is_alone_on_standard_output(weft: Weft):
    answer = weft("train", *QUICK, "--log-every", "never")
    assert epochs_told(answer.out) == []
    answer = weft("train", *QUICK[:-1], "other", "--json", "--log-every", "1")
    assert json.loads(answer.out)["epochs"] == 7
    assert epochs_told(answer.err) == list(range(1, 8))


def test_words_are_told_on_several_ranks(weft: Weft):
    words = ["--engine", "threads", "--strategy", "1d", "--ranks", "2"]
    assert main(["train", *QUICK, "--log-every", "1", *words, "--rank-logs"]) == 0
    records = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    measured = json.loads(Path("run/measured.json").read_text())
    received = sum(words[0] for words in measured["words"].values())
    assert [record["words"] for record in records[1:]] == [received] * 6
    for rank in (0, 1):
        text = Path(f"run/logs/rank-{rank}.log").read_text()
        lines = [line.split(" ", 1)[1] for line in text.splitlines()]
        assert lines[0].startswith(f"start     rank {rank} of 2 on threads, host ")
        assert (
            lines[1] == f"holds     {measured['vertices'][rank]:,} vertices, {measured['arcs'][rank]:,} arcs"
        )
        assert epochs_told("\n".join(lines)) == list(range(1, 8))
        assert lines[-1] == "end       as it should"


def test_a_rank_log_says_how_it_ended(weft: Weft):
    answer = weft("train", *QUICK, "--lr", "1e30", "--rank-logs", "--dtype", "float32", "--epochs", "60")
    assert answer.status == 2
    last = Path("run/logs/rank-0.log").read_text().splitlines()[-1]
    assert "end       " in last


def test_seconds_decide_where_seconds_were_asked_for():
    now = [0.0]
    said: list[str] = []
    lines = logs.Lines(said.append, 100, "", Every.parse("30s"), lambda: now[0])
    for epoch in range(1, 101):
        now[0] = 7.0 * epoch
        lines({"epoch": epoch, "loss": 1.0, "seconds": 7.0})
    assert epochs_told("\n".join(said)) == [1, *range(6, 100, 5), 100]


def test_an_epoch_of_minutes_says_so_within_it_and_short_ones_do_not():
    now = [0.0]
    said: list[str] = []
    beats = logs.Beats(logs.Lines(said.append, 3, "", Every.parse("1"), lambda: now[0]), epoch=1)
    asked: list[float] = []

    def wait(over, seconds: float) -> bool:
        asked.append(seconds)
        now[0] += seconds
        return len(asked) == 4

    with logs.beating(beats, wait):
        pass
    assert asked == [60.0] * 4
    assert said == [f"epoch     1/3   {k * 60} s so far" for k in (1, 2, 3)]
    beats({"epoch": 1, "loss": 1.0, "seconds": 240.0})
    now[0] += 45
    beats({"epoch": 2, "loss": 1.0, "seconds": 45.0})
    now[0] += 45
    beats.beat()  # 45 s into the third, though the last one that was said long is 90 s ago
    assert beats.due() == 15.0
    beats({"epoch": 3, "loss": 1.0, "seconds": 45.0})
    now[0] += 1000
    beats.beat()  # the end is no epoch, and asks for no turn at once
    assert beats.due() == 60.0
    assert len(said) == 6


@pytest.mark.parametrize(
    ("every", "due"), [("5min", 300.0), ("10s", 60.0), ("3", 60.0), ("never", float("inf"))]
)
def test_a_line_within_an_epoch_comes_no_more_often_than_lines_were_asked_for(every, due):
    assert logs.Beats(logs.Lines(print, 3, "", Every.parse(every), lambda: 0.0), epoch=1).due() == due


def test_a_run_tells_how_long_setting_up_took_and_has_somebody_who_beats(weft: Weft, monkeypatch):
    @contextlib.contextmanager
    def beating(beats):
        begun = beats.lines.clock()
        beats.lines.clock = lambda: begun + 90
        beats.beat()
        yield beats

    monkeypatch.setattr(logs, "beating", beating)
    monkeypatch.setattr("weft.cli.train.time", types.SimpleNamespace(time=lambda: 103.5))
    answer = weft("train", *QUICK, "--begun", "100")
    assert answer.status == 0
    lines = [line for line in answer.out.splitlines() if line.startswith(("set up", "epoch "))]
    assert lines[0] == "set up    after 3.5 s"
    assert lines[1] == "epoch     1/7   90 s so far"
    assert lines[2].startswith("epoch     1/7   loss ")


def test_ranks_that_are_started_know_when_the_command_was_given(monkeypatch):
    started = []
    monkeypatch.setattr("weft.comm.launch.launch", lambda argv, *more: started.append(argv) or 0)
    before = time.time()
    assert main(["train", *QUICK, "--ranks", "2", "--engine", "torch"]) == 0
    ((*_, flag, begun),) = started
    assert flag == "--begun"
    assert before - 0.01 <= float(begun) <= time.time() + 0.01


def test_the_last_score_stands_in_lines_between_two_evaluations():
    said: list[str] = []
    lines = logs.Lines(said.append, 3, "val_accuracy", Every.parse("1"))
    for record in ({"val_accuracy": 0.5}, {}, {"val_accuracy": float("nan")}):
        lines({"epoch": len(said) + 1, "loss": 1.0, "seconds": 1.0} | record)
    assert ["val 0.5000" in line for line in said] == [True, True, False]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--log-every", "weekly"], "log_every 'weekly' is no number of epochs or minutes"),
        (["--log-every", "5batches"], "log_every '5batches'"),
        (["--log", "tensorbored"], "unknown log 'tensorbored'. Did you mean 'tensorboard'?"),
    ],
)
def test_a_mistake_is_one_line_before_anything_is_made(weft: Weft, words, said):
    answer = weft("train", *QUICK, *words)
    assert (answer.status, answer.err.count("\n")) == (2, 1)
    assert said in answer.err
    assert not Path("run").exists()


@pytest.mark.parametrize("name", ["tensorboard", "wandb"])
def test_a_package_that_is_missing_is_named(weft: Weft, monkeypatch, name):
    found = logs.importlib.util.find_spec
    monkeypatch.setattr(logs.importlib.util, "find_spec", lambda n: None if n == name else found(n))
    answer = weft("train", *QUICK, "--log", name)
    assert answer.err == f"weft: --log {name} needs the package {name}. Use: pip install {name}.\n"
    assert answer.status == 2


# Others who are told


class Board:
    """Stands in for TensorBoard's writer."""

    made: ClassVar[list[Board]] = []

    def __init__(self, folder: str, purge_step: int):
        self.folder, self.purge_step, self.told, self.closed = folder, purge_step, [], False
        Board.made.append(self)

    def __enter__(self) -> Board:
        return self

    def __exit__(self, *error: object) -> None:
        self.closed = True

    def add_scalar(self, name: str, value: float, step: int, at: float) -> None:
        self.told.append((name, value, step))

    def flush(self) -> None: ...


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """Packages named tensorboard and wandb that keep what they are told."""
    Board.made = []
    board = types.ModuleType("torch.utils.tensorboard")
    board.SummaryWriter = Board
    wandb = types.ModuleType("wandb")
    wandb.runs = []

    class Run:
        def __init__(self, **named):
            self.named, self.told, self.exit = named, [], None
            wandb.runs.append(self)

        def log(self, numbers, step):
            self.told.append((step, numbers))

        def finish(self, exit_code):
            self.exit = exit_code

    wandb.init = Run
    found = logs.importlib.util.find_spec
    monkeypatch.setattr(logs.importlib.util, "find_spec", lambda n: n if n in logs.SINKS else found(n))
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", board)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    return wandb


def test_tensorboard_and_wandb_hear_of_every_epoch(weft: Weft, packages):
    assert weft("train", *QUICK, "--log", "tensorboard,wandb").status == 0
    losses = [json.loads(line)["loss"] for line in Path("run/metrics.jsonl").read_text().splitlines()]
    (board,), (run,) = Board.made, packages.runs
    assert (board.folder, board.purge_step, board.closed) == ("run/tensorboard", 1, True)
    assert [value for name, value, _ in board.told if name == "loss"] == losses
    assert [step for name, _, step in board.told if name == "val_accuracy"] == list(range(1, 8))
    assert [(step, numbers["loss"]) for step, numbers in run.told] == list(enumerate(losses, 1))
    assert (run.named["name"], run.named["resume"], run.exit) == ("run", "allow", 0)
    assert run.named["config"]["model"]["hidden"] == 8


@pytest.mark.filterwarnings("ignore")  # of packages that are not ours
def test_the_real_tensorboard_reads_back_what_it_was_told(weft: Weft):
    pytest.importorskip("tensorboard", reason="the package tensorboard is no part of weft's extras")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert weft("train", *QUICK, "--log", "tensorboard").status == 0
    read = EventAccumulator("run/tensorboard")
    read.Reload()
    lines = [json.loads(line) for line in Path("run/metrics.jsonl").read_text().splitlines()]
    for name in ("loss", "val_accuracy"):
        told = [(event.step, event.value) for event in read.Scalars(name)]
        assert told == [(line["epoch"], pytest.approx(line[name])) for line in lines]


def test_a_run_that_goes_on_is_one_curve_there_too(weft: Weft, packages, monkeypatch):
    from weft.train import Trainer

    words = ["train", *QUICK, "--log", "tensorboard,wandb", "--checkpoint-every", "2"]
    evaluate = Trainer.evaluate

    def die(self, epoch=0):
        if epoch == 5:
            raise RuntimeError("killed")
        return evaluate(self, epoch)

    monkeypatch.setattr(Trainer, "evaluate", die)
    with pytest.raises(RuntimeError, match="killed"):
        weft(*words)
    monkeypatch.setattr(Trainer, "evaluate", evaluate)
    assert weft(*words).status == 0
    first, second = packages.runs
    assert first.exit == 1
    assert first.named["id"] == second.named["id"]
    assert [board.purge_step for board in Board.made] == [1, 5]
    steps = [step for step, _ in second.told]
    assert steps == [5, 6, 7]
    epochs = [json.loads(line)["epoch"] for line in Path("run/metrics.jsonl").read_text().splitlines()]
    assert epochs == list(range(1, 8))


# Who watches


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_bold_words_and_a_file_has_none(monkeypatch):
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for stream, escapes in ((Terminal(), True), (io.StringIO(), False)):
        console(stream).print("[bold]x[/bold]")
        assert ("\x1b" in stream.getvalue()) == escapes == is_watched(stream)


@pytest.mark.parametrize(
    ("variable", "value"), [("NO_COLOR", "1"), ("TERM", "dumb"), ("OMPI_COMM_WORLD_SIZE", "2")]
)
def test_no_color_a_dumb_terminal_and_mpirun_get_no_escape_codes(monkeypatch, variable, value):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    monkeypatch.setenv(variable, value)
    stream = Terminal()
    console(stream).print("[bold red]x[/bold red]")
    assert "\x1b" not in stream.getvalue()
    assert is_watched(stream) == (variable == "NO_COLOR")


def test_force_color_does_not_reach_files(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    stream = io.StringIO()
    console(stream).print("[bold]x[/bold]")
    assert stream.getvalue() == "x\n"


@pytest.mark.parametrize(
    ("line", "bold"),
    [("set up    after 3 s", "set up"), ("accuracy  train 1.0", "accuracy"), ("restarted a", "restarted"),
     ("epoch     9/9   loss 1", "epoch")],
)  # fmt: skip
def test_the_heading_of_a_line_is_bold_be_it_one_word_or_two(monkeypatch, line, bold):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    stream = Terminal()
    train._say_to(stream)(line)
    assert stream.getvalue().startswith(f"\x1b[1m{bold}\x1b[0m ")


def test_a_real_terminal_is_watched(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream:
        assert is_watched(stream)
    os.close(ours)
