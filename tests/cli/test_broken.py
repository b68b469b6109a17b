"""What was found by trying to break weft: each is one line now, and nothing is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from weft.errors import UserError
from weft.graph import Graph, load, write_store
from weft.train import RunFolder, Trainer
from weft.train.rows import read_rows, write_rows

from ..train.graphs import config, small

QUICK = ["small.weft", "--hidden", "8", "--epochs", "4", "--lr", "0.05"]


@pytest.fixture(autouse=True)
def graph() -> None:
    write_store(small(), "small.weft")


def one_line(answer) -> str:
    """The mistake."""
    assert (answer.status, answer.err.count("\n")) == (2, 1), answer.err
    return answer.err.splitlines()[-1]


# A disk that is full


def test_a_full_disk_under_standard_output_is_one_line():
    command = [sys.executable, "-m", "weft", "info", "karate"]
    with open("/dev/full", "w") as full:
        answer = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert answer.returncode == 2
    assert answer.stderr == "weft: there is no space left on the disk. Make room, or write elsewhere.\n"


def test_a_metrics_line_that_cannot_be_written_costs_the_line_alone(weft, monkeypatch, capsys):
    class Full:
        """A file on a disk that is full from the third line on."""

        def __init__(self, file):
            self.file, self.lines = file, 0

        def write(self, data):
            self.lines += 1
            if self.lines > 2:
                raise OSError(28, "No space left on device")
            return self.file.write(data)

        def __getattr__(self, name):
            return getattr(self.file, name)

    made = RunFolder.__init__

    def init(folder, path):
        made(folder, path)
        folder._metrics = Full(folder._metrics)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "__init__", init)
        answer = weft("train", *QUICK, "--out", "run")
    assert answer.status == 0
    assert "weft: metrics.jsonl lacks epochs: No space left on device. Training goes on." in answer.err
    kept = Path("run/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in kept] == [1, 2]
    assert torch.load("run/weights.pt", weights_only=True)


def test_rows_for_which_there_is_no_room_are_refused_before_a_page_is_touched(monkeypatch):
    trainer = Trainer(small(), config())

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(UserError, match=r"^cannot write rows\.npy: No space left on device\. Make room"):
        write_rows(Path("rows.npy"), torch.ones(160, 3), trainer.A.layout)
    assert not list(Path().glob("rows.npy*"))


def test_what_had_no_room_leaves_nothing_in_the_way_of_the_same_command(weft, monkeypatch):
    """No folder, no file that would be refused as one that exists already."""

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        assert "cannot write into run: No space" in one_line(weft("train", *QUICK, "--out", "run"))
    with monkeypatch.context() as patch:
        real = open

        def opened(path, mode, **how):
            file = real(path, mode, **how)
            file.close()  # what is written to it then is refused, as on a full disk
            return real("/dev/full", "w", encoding="utf-8")

        patch.setattr("weft.train.watch.open", opened, raising=False)
        line = one_line(weft("train", *QUICK, "--trace", "trace.json", "--out", "run"))
        assert "cannot write the trace trace.json: No space left on device." in line
    assert not Path("trace.json").exists()
    assert weft("train", *QUICK, "--trace", "trace.json", "--out", "other").status == 0
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        assert "embeddings.npy: No space left" in one_line(weft("predict", "other", "--into", "rows"))
    assert weft("predict", "other", "--into", "rows").status == 0


def test_weights_that_cannot_be_written_leave_the_run_resumable(weft, monkeypatch):
    real = Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        if path.name == "weights.pt.part":
            raise OSError(28, "No space left on device")
        return real(path, data)

    words = ["train", *QUICK, "--checkpoint-every", "1", "--out", "run"]
    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        line = one_line(weft(*words))
    assert "cannot write run/weights.pt: No space left on device. Make room, then go on: weft train" in line
    assert weft("train", "--resume", "run").status == 0
    assert torch.load("run/weights.pt", weights_only=True)


# Damaged files, and options that torch refuses


@pytest.mark.parametrize("kind", [">f4", ">f8", "<f2"])
def test_embeddings_in_another_byte_order_are_read(kind):
    layout = Trainer(small(), config()).A.layout
    rows = np.arange(320, dtype=kind).reshape(160, 2)
    np.save("rows.npy", rows)
    assert torch.equal(read_rows(Path("rows.npy"), layout, 2).double(), torch.from_numpy(rows.astype("f8")))


@pytest.mark.parametrize("kind", ["<f16", "<c16", "<i8", "<U3"])
def test_embeddings_that_torch_does_not_know_are_refused(kind):
    layout = Trainer(small(), config()).A.layout
    np.save("rows.npy", np.zeros((160, 2), dtype=kind))
    with pytest.raises(UserError, match="which torch does not know"):
        read_rows(Path("rows.npy"), layout, 2)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--lr", "1e38"], "lr 1e+38 or weight_decay 0.0005 is too large for torch.float32."),
        (["--weight-decay", "1e39"], "weight_decay 1e+39 is too large for torch.float32."),
        (["--set", "train.optimizer_options.betas=[0.9]"], "optimizer adam refuses the options"),
        (["--set", "train.optimizer_options.capturable=true"], "optimizer adam refuses the options"),
        (["--set", "train.optimizer_options.betas=['a','b']"], "optimizer adam refuses the options"),
        (["--scheduler", "step", "--set", "train.scheduler_options.step_size=0"], "scheduler step refuses"),
        (["--partition", "metis", "--epsilon", "1e300"], "epsilon must be at most 1000, not 1e+300."),
        (["--checkpoint-every", "weekly"], "checkpoint_every 'weekly' is no number of epochs"),
        (["--on-nan", "panic"], "unknown on_nan 'panic'."),
        (["--keep", "0"], "keep must be at least 1, not 0."),
        (["--keep", "last"], "train.keep is how many checkpoints are kept. Use --keep-weights last."),
    ],
)
def test_options_that_cannot_be_are_one_line(weft, words, message):
    assert message in one_line(weft("train", *QUICK, *words))


@pytest.mark.parametrize("text", ["x = " + "[" * 5000, "x = " + "9" * 5000, "[train]\nseed = " + "9" * 5000])
def test_toml_of_great_depth_or_length_is_one_line(weft, text):
    Path("run.toml").write_text(text)
    assert "run.toml is not TOML" in one_line(weft("train", "run.toml"))


# Numbers


def test_numbers_that_break_after_the_last_step_are_found(weft):
    line = one_line(weft("train", *QUICK, "--epochs", "1", "--lr", "1e30"))
    assert "an evaluation is not finite in epoch 1, first the result of layer 2, GCNLayer, at vertex" in line


def test_predicting_with_weights_that_are_not_finite_is_refused(weft):
    assert weft("train", *QUICK, "--out", "run").status == 0
    weights = torch.load("run/weights.pt", weights_only=True)
    next(iter(weights.values()))[0, 0] = float("nan")
    torch.save(weights, "run/weights.pt")
    assert "in run is not finite. Train again, with a lower --lr." in one_line(weft("predict", "run"))


def test_in_the_first_step_the_features_are_blamed_and_not_the_rate(weft):
    wild = small().features.clone()
    wild[:] = 3e38
    write_store(small().replace(features=wild), "wild.weft")
    words = [
        "train",
        "wild.weft",
        "--epochs",
        "3",
        "--feature-norm",
        "none",
        "--model",
        "gin",
        "--hidden",
        "8",
    ]
    line = one_line(weft(*words))
    assert "Nothing was learned yet: scale the features" in line
    assert "the result of layer" in line


def test_what_was_learned_before_a_loss_broke_is_kept_and_can_be_skipped(weft, monkeypatch):
    from weft.train.classes import Classes

    real = Classes.step

    def step(task, epoch, number):
        made = real(task, epoch, number)

        def broken(z, model):
            loss, back = made.objective(z, model)
            return loss * float("nan") if epoch == 3 else loss, back

        return type(made)(made.ids, broken, made.noise, made.share, made.local)

    monkeypatch.setattr(Classes, "step", step)
    line = one_line(weft("train", *QUICK, "--out", "run"))
    assert "the loss or a gradient is not finite in epoch 3" in line
    assert torch.load("run/weights.pt", weights_only=True)
    assert json.loads(Path("run/summary.json").read_text())["failure"] in line
    assert "failed in epoch 3, not resumable: the loss or a gradient" in weft("info", "run").out
    answer = weft("train", *QUICK, "--on-nan", "skip", "--out", "skipped", "--json")
    assert answer.status == 0
    lines = [json.loads(text) for text in Path("skipped/metrics.jsonl").read_text().splitlines()]
    assert [line.get("skipped") for line in lines] == [None, None, 1, 1]


def test_features_whose_sum_overflows_are_scaled_all_the_same(weft):
    wild = torch.full((160, 8), 3e38)
    wild[:, 4:] = 0.0
    write_store(small().replace(features=wild), "wild.weft")
    settings = config()
    settings.data.feature_norm = "row"
    trainer = Trainer(small().replace(features=wild), settings)
    assert trainer.x[0].tolist() == [0.25] * 4 + [0.0] * 4


def test_weights_of_arcs_that_add_up_to_infinity_are_refused():
    heavy = Graph.from_arcs([0, 1, 2], [3, 3, 3], weights=torch.full((3,), 1e308, dtype=torch.float64))
    marked = heavy.replace(
        features=torch.ones(4, 2), labels=torch.tensor([0, 1, 0, 1]), train_mask=torch.ones(4).bool()
    )
    with pytest.raises(UserError, match="add up to more than float64 holds"):
        Trainer(marked, config(dtype="float64"))


# Names and paths


def test_a_trace_is_never_written_over_a_file(weft):
    Path("precious.txt").write_text("mine")
    line = one_line(weft("train", *QUICK, "--trace", "precious.txt"))
    assert "precious.txt exists already. Choose another --trace" in line
    assert Path("precious.txt").read_text() == "mine"


def test_a_name_cannot_command_the_terminal(weft):
    write_store(small().replace(name="\x1b[31mred\x07"), "loud.weft")
    assert load("loud.weft").name == "\\x1b[31mred\\x07"
    for words in (["info", "loud.weft"], ["train", "loud.weft", *QUICK[1:]]):
        answer = weft(*words)
        assert "\x1b[31mred" not in answer.out + answer.err
    assert "\x1b" not in one_line(weft("info", "\x1b[31mnothing.weft"))


@pytest.mark.parametrize("name", ["a.weft", "a.txt", "a.npz", "a.mtx", "a.toml"])
def test_a_pipe_is_not_waited_for(weft, name):
    os.mkfifo(name)
    answer = weft("train", name) if name.endswith("toml") else weft("info", name)
    one_line(answer)


@pytest.mark.parametrize("name", ["summary.json", "weights.pt", "metrics.jsonl", "checkpoints/000001.000000"])
def test_nor_is_a_pipe_in_a_run_folder(weft, name):
    """The folder may be somebody else's."""
    folder = Path("run")
    folder.mkdir()
    (folder / "config.toml").write_text('graph = "karate"\n[train]\nepochs = 3\n')
    Path(folder, name).parent.mkdir(exist_ok=True)
    os.mkfifo(folder / name)
    for words in (["info", "run"], ["predict", "run"], ["train", "--resume", "run"]):
        line = one_line(weft(*words))
        assert line == f"weft: run/{name} is no plain file. Remove it, or name another run."


def test_nor_is_one_as_a_profile(weft):
    os.mkfifo("p.json")
    assert "p.json is no plain file." in one_line(weft("plan", "small.weft", "--profile", "p.json"))


def test_a_path_that_is_not_utf8_is_one_line(weft):
    os.rename("small.weft", b"\xff.weft")
    name = os.fsdecode(b"\xff.weft")
    assert weft("info", name).status == 0
    assert "is not UTF-8" in one_line(weft("train", name, *QUICK[1:]))
