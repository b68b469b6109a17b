"""A run folder belongs to one run: the same command continues it until it has ended."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from weft.graph import write_store
from weft.train.checkpoint import Checkpoint, checkpoints

from ..train.graphs import small

QUICK = ["small.weft", "--hidden", "8", "--epochs", "12", "--lr", "0.05", "--dtype", "float64"]
EACH = ["--checkpoint-every", "1", "--keep", "99"]


@pytest.fixture(autouse=True)
def graph() -> None:
    write_store(small(), "small.weft")


def weights(run: str) -> dict[str, torch.Tensor]:
    return torch.load(Path(run) / "weights.pt", weights_only=True)


def same_weights(a: str, b: str) -> bool:
    ours, theirs = weights(a), weights(b)
    return ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in ours)


def losses(run: str) -> list[float]:
    return [json.loads(line)["loss"] for line in (Path(run) / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture
def died(weft, monkeypatch) -> str:
    """A run folder as a kill in the eighth epoch leaves it, and the run that was not killed."""
    assert weft("train", *QUICK, "--out", "whole").status == 0
    die(weft, monkeypatch, *QUICK)
    return "died"


def die(weft, monkeypatch, *words: str) -> None:
    """A run whose last checkpoint is that of the eighth epoch."""
    with monkeypatch.context() as patch:
        patch.setattr("weft.train.run.prune", lambda run, keep: None)
        patch.setattr("os.fsync", lambda handle: None)
        assert weft("train", *words, *EACH, "--out", "died").status == 0
    for path in checkpoints(Path("died")):
        if int(path.name[:6]) > 8:
            shutil.rmtree(path)
    for name in ("weights.pt", "summary.json", "embeddings.npy"):
        Path("died", name).unlink(missing_ok=True)
    with Path("died/metrics.jsonl").open("a") as file:
        file.write('{"epoch": 13, "lo')  # torn, as the last line of a process that was killed


def test_the_same_command_goes_on_with_a_run_that_died_and_says_nothing_is_left_after_its_end(weft, died):
    assert "died in epoch 13, resumable from checkpoint 000008.000000" in weft("info", died).out
    answer = weft("train", *QUICK, "--out", died)
    assert answer.status == 0, answer.err
    assert "resumed   died in epoch 8" in answer.out
    assert same_weights(died, "whole")
    assert losses(died) == losses("whole")
    assert sorted(p.name for p in Path(died).iterdir()) == sorted(p.name for p in Path("whole").iterdir())
    again = weft("train", *QUICK, "--out", died)
    assert (again.status, "ended, 12 epochs: nothing is left to do" in again.out) == (0, True)
    assert "ended, 12 epochs" in weft("info", died).out.splitlines()[0]
    assert json.loads(weft("train", *QUICK, "--out", died, "--json").out)["resumed"] == [8, 0]


def test_a_trace_that_a_stopped_run_wrote_stands_in_the_way_of_nothing(weft, died):
    """It is neither overwritten, nor a reason not to go on, nor asked for again by the run's own config."""
    words = [*QUICK, "--trace", "t.json"]
    Path("t.json").write_text("the trace of the first part")
    answer = weft("train", *words, "--out", died)
    assert answer.status == 0, answer.err
    assert "trace     t.2.json: t.json was there already" in answer.out
    assert same_weights(died, "whole")
    assert Path("t.json").read_text() == "the trace of the first part"
    assert json.loads(Path("t.2.json").read_text())["traceEvents"]
    assert weft("train", *words, "--out", died).out.startswith("run       died ended, 12 epochs")
    answer = weft("train", *words, "--out", "another")  # a run that begins writes where it was told to
    assert (answer.status, answer.err.count("\n")) == (2, 1)
    assert not Path("another").exists()


def test_resume_and_the_config_of_a_run_with_a_trace_do_not_ask_for_it_again(weft, monkeypatch):
    die(weft, monkeypatch, *QUICK, "--trace", "t.json")
    assert weft("train", "--resume", "died").status == 0
    assert weft("train", "died/config.toml", "--out", "again").status == 0
    assert losses("again") == losses("died")
    assert [path.name for path in Path().glob("*.json")] == ["t.json"]


def test_resume_takes_the_settings_of_the_run_and_other_ranks(weft, died):
    from weft.cli import main

    status = main(["train", "--resume", died, "--ranks", "3", "--engine", "threads", "--partition", "hash"])
    assert status == 0
    ours, theirs = weights(died), weights("whole")
    assert all(torch.allclose(ours[key], theirs[key], rtol=1e-12, atol=1e-14) for key in ours)
    assert losses(died) == pytest.approx(losses("whole"), rel=1e-12)


def test_more_epochs_may_be_asked_for(weft, died):
    assert weft("train", *QUICK, "--out", "longer", "--epochs", "15").status == 0
    assert weft("train", "--resume", died, "--epochs", "15").status == 0
    assert same_weights(died, "longer")


def test_a_torn_checkpoint_is_told_and_the_one_before_is_used(weft, died):
    newest = checkpoints(Path(died))[0]
    file = next(newest.glob("*.npy"))
    file.write_bytes(file.read_bytes()[:-1])
    answer = weft("train", "--resume", died)
    assert answer.status == 0
    assert f"torn      checkpoint 000008.000000: {file} is not what was written." in answer.out
    assert "resumed   died in epoch 7" in answer.out
    assert same_weights(died, "whole")


def test_where_no_checkpoint_is_whole_it_begins_anew(weft, died):
    for path in checkpoints(Path(died)):
        (path / "manifest.json").unlink()
    answer = weft("train", "--resume", died)
    assert "restarted died from the beginning: no checkpoint is whole" in answer.out
    assert same_weights(died, "whole")
    assert losses(died) == losses("whole")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--hidden", "9"], "died holds a run with model.hidden = 8, not 9. Choose another --out"),
        (["--seed", "1"], "died holds a run with train.seed = 0, not 1."),
        (["--model", "gat", "--heads", "2"], "died holds a run with model.name = 'gcn', not 'gat'."),
    ],
)
def test_another_run_is_refused_and_nothing_is_lost(weft, died, words, message):
    before = sorted(Path(died).rglob("*"))
    answer = weft("train", *QUICK, *words, "--out", died)
    assert (answer.status, answer.err.count("\n")) == (2, 1)
    assert message in answer.err
    assert sorted(Path(died).rglob("*")) == before


def test_another_graph_is_refused_by_its_checksum(weft, died):
    write_store(small(seed=1), "small.weft", overwrite=True)
    answer = weft("train", *QUICK, "--out", died)
    assert (answer.status, answer.err.count("\n")) == (2, 1)
    assert "is of another graph than small: their checksums differ. Use the run's own graph" in answer.err
    assert len(checkpoints(Path(died))) == 7


def test_the_graph_may_have_moved(weft, died):
    Path("elsewhere").mkdir()
    Path("small.weft").rename("elsewhere/small.weft")
    assert weft("train", "elsewhere/small.weft", "--resume", died).status == 0
    assert same_weights(died, "whole")


def test_what_is_no_run_is_refused(weft):
    answer = weft("train", "--resume", "nowhere")
    assert (answer.status, answer.err.count("\n")) == (2, 1)
    assert "nowhere is not a run folder" in answer.err


def test_a_run_that_somebody_trains_is_left_alone(weft, died):
    from weft.train import RunFolder

    with RunFolder(Path(died)):
        assert "running, epoch 13" in weft("info", died).out
        answer = weft("train", "--resume", died)
    assert (answer.status, answer.err.count("\n")) == (2, 1)
    assert "died is being trained just now." in answer.err


@pytest.mark.parametrize(
    "words",
    [
        QUICK,
        [*QUICK, "--keep-weights", "last"],
        [*QUICK, "--task", "link", "--hits", "5", "--embedding-width", "3"],
        [*QUICK, "--task", "link", "--hits", "5", "--embedding-width", "3", "--batch-size", "90",
         "--fanouts", "4,3", "--feed", "push-pull", "--keep-weights", "last"],
    ],
)  # fmt: skip
def test_a_run_that_was_killed_predicts_with_what_its_last_good_checkpoint_has(weft, monkeypatch, words):
    ranks = ["--ranks", "2", "--engine", "threads"]
    die(weft, monkeypatch, *words, *ranks)
    answer = weft("predict", "died", "--into", "ours")
    assert answer.status == 0, answer.err
    assert answer.err.startswith("weft: died did not end; these are the weights of ")
    assert answer.err.endswith(", from died/checkpoints/000008.000000.\n")
    torn = checkpoints(Path("died"))[0] / "manifest.json"
    kept = torn.read_bytes()
    torn.write_bytes(kept[:-1])
    assert "died/checkpoints/000007.000000." in weft("predict", "died", "--into", "older").err
    torn.write_bytes(kept)
    assert weft("train", *words, *ranks, "--epochs", "7", "--out", "seven").status == 0
    assert weft("predict", "seven", "--into", "theirs").status == 0
    files = sorted(path.name for path in Path("theirs").iterdir())
    assert files == sorted(path.name for path in Path("ours").iterdir())
    for name in files:
        assert np.array_equal(np.load(f"ours/{name}"), np.load(f"theirs/{name}")), name
    for path in checkpoints(Path("died")):
        shutil.rmtree(path)
    answer = weft("predict", "died", "--into", "none")
    assert (answer.status, answer.err.count("\n")) == (2, 1)
    assert "died has no weights yet: that run did not end. Go on with it: weft train --resume" in answer.err


def test_a_checkpoint_of_a_later_version_is_one_line_and_nothing_is_lost(weft, died):
    from weft.train.checkpoint import _sealed

    manifest = checkpoints(Path(died))[0] / "manifest.json"
    body = json.loads(manifest.read_text())
    body.pop("checksum")
    manifest.write_text(_sealed(body | {"format": 2}))
    before = {path: path.read_bytes() for path in Path(died).rglob("*") if path.is_file()}
    answer = weft("train", "--resume", died)
    assert (answer.status, answer.err.count("\n")) == (2, 1)
    assert "000008.000000 has format 2; this weft reads up to 1. Upgrade weft." in answer.err
    assert {path: path.read_bytes() for path in Path(died).rglob("*") if path.is_file()} == before


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A disk of 400 kB."""
    folder = Path("disk").resolve()
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=400k", "weft-test", str(folder)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("needs root, to mount a small disk")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_is_full_costs_what_had_no_room_and_nothing_older(weft, small_disk, monkeypatch):
    from weft.train import RunFolder

    words = [*QUICK[:-2], "--hidden", "32", "--dtype", "float64"]
    assert weft("train", *words, "--out", "whole").status == 0
    run, real = small_disk / "run", RunFolder.finish

    def finish(folder, *what):
        """Not a page is left for the weights."""
        with contextlib.suppress(OSError), open(small_disk / "filler", "wb", buffering=0) as file:
            while file.write(bytes(4096)) == 4096:
                pass
        real(folder, *what)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "finish", finish)
        answer = weft("train", *words, *EACH, "--out", str(run))
    assert answer.status == 2
    kept = checkpoints(run)
    assert 2 <= len(kept) < 11
    assert [line for line in answer.err.splitlines() if line.startswith("weft:")] == [
        "weft: no checkpoint was written: No space left on device; training goes on, "
        f"{kept[0]} is the last good one.",
        f"weft: cannot write {run}/weights.pt: No space left on device. Make room, then go on: "
        f"weft train --resume {run}.",
    ]
    for path in kept:
        Checkpoint(path).verify()
    assert not [path for path in run.rglob("*") if path.name.endswith((".part", ".tmp"))]
    assert f"resumable from checkpoint {kept[0].name}" in weft("info", str(run)).out
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    assert f"in epoch {int(kept[0].name[:6])}\n" in weft("train", "--resume", str(run)).out
    assert same_weights(str(run), "whole")
    assert losses(str(run)) == losses("whole")


# Signals


def start(*words: str) -> subprocess.Popen[str]:
    # A shell that runs tests in the background has them ignore SIGINT, and children inherit that.
    program = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler);"
        "from weft.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    return subprocess.Popen(
        [sys.executable, "-c", program, "train", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def trained_for(process: subprocess.Popen[str], run: str, epochs: int = 1) -> None:
    metrics, deadline = Path(run, "metrics.jsonl"), time.monotonic() + 120
    while not (metrics.exists() and metrics.read_text().count("\n") >= epochs):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "no metrics in two minutes"
        time.sleep(0.01)  # between two looks


LONG = ["small.weft", "--hidden", "8", "--epochs", "1000000", "--dtype", "float64", "--keep-weights", "last"]


@pytest.mark.parametrize(
    ("ranks", "numbers"),
    [
        (["1"], [signal.SIGUSR1]),
        (["3", "--engine", "threads"], [signal.SIGINT]),
        (["2", "--engine", "mpi"], [signal.SIGINT, signal.SIGINT]),
        pytest.param(["2", "--engine", "torch"], [signal.SIGTERM, signal.SIGTERM], marks=pytest.mark.slow),
    ],
)
def test_a_signal_saves_everywhere_and_the_run_goes_on(weft, ranks, numbers):
    words = [*LONG, "--ranks", *ranks]
    process = start(*words, "--out", "run")
    try:
        trained_for(process, "run")
        for number in numbers:  # a double press is one request
            process.send_signal(number)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 128 + numbers[0], err
    assert "Traceback" not in err
    name = "Ctrl-C" if numbers[0] == signal.SIGINT else numbers[0].name
    assert f"stopped by {name}" in out
    assert "go on     weft train --resume run" in out
    epochs = len(losses("run"))
    assert weights("run")
    more = ["--epochs", str(epochs + 3)]
    from weft.cli import main

    assert main(["train", "--resume", "run", *more]) == 0
    assert main(["train", *LONG, "--ranks", "1", *more, "--out", "whole"]) == 0
    assert len(losses("run")) == epochs + 3
    assert losses("run") == pytest.approx(losses("whole"), rel=1e-9)  # sums of other ranks, many epochs
    assert ranks != ["1"] or same_weights("run", "whole")
    assert not Path("run/checkpoints").exists()


@pytest.mark.slow
def test_nohup_stays_in_force():
    command = ["nohup", sys.executable, "-m", "weft", "train", *LONG, "--ranks", "2", "--out", "run"]
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        trained_for(process, "run")
        process.send_signal(signal.SIGHUP)
        trained_for(process, "run", len(losses("run")) + 20)
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 128 + signal.SIGTERM, err


def test_ranks_that_are_killed_are_started_again_and_nothing_is_left(weft):
    words = [
        *LONG[:-2],
        "--keep-weights",
        "last",
        "--ranks",
        "2",
        "--restarts",
        "1",
        "--checkpoint-every",
        "5",
    ]
    process = start(*words, "--out", "run", "--epochs", "400")
    try:
        trained_for(process, "run", 12)
        ranks = subprocess.run(
            ["pgrep", "-f", "--", f"--store {Path.cwd()}/small.weft"],
            capture_output=True,
            text=True,
            check=False,
        ).stdout.split()
        os.kill(int(ranks[-1]), signal.SIGKILL)
        _, err = process.communicate(timeout=200)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, err
    assert "weft: the ranks are started again, 1 of 1." in err
    assert weft("train", *LONG, "--ranks", "1", "--epochs", "400", "--out", "whole").status == 0
    assert losses("run") == pytest.approx(losses("whole"), rel=1e-9)


@pytest.mark.parametrize("words", [["--ranks", "1"], ["--ranks", "2", "--engine", "threads"]])
def test_restarts_need_ranks_that_can_die(words, capsys):
    from weft.cli import main

    assert main(["train", *QUICK, "--restarts", "2", *words]) == 2
    assert "restarts are for ranks that weft starts." in capsys.readouterr().err


def test_under_plain_mpirun_a_folder_that_cannot_be_made_is_one_line_and_no_hang():
    from weft.comm.launch import _mpi_environment, find_mpirun

    Path("file").write_text("")
    memory = Path("memory").resolve()
    memory.mkdir()
    command = [str(find_mpirun()), "-n", "2", "--host", "localhost:2", sys.executable, "-m", "weft", "train"]
    answer = subprocess.run(
        [*command, *QUICK, "--out", "file/run"], capture_output=True, text=True, timeout=200, check=False,
        env=os.environ | _mpi_environment(memory) | {"TMPDIR": str(memory), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert answer.returncode == 2
    lines = [line for line in answer.stderr.splitlines() if "weft:" in line]
    assert lines == ["weft: cannot make the run folder file/run: Not a directory. Name another with --out."]
    assert not list(memory.glob("weft-*"))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGINT])
def test_under_plain_mpirun_what_was_learned_is_kept_and_nothing_is_left_behind(weft, number):
    """SIGUSR1 is passed on; after Ctrl-C mpirun ends its ranks, and the last checkpoint at least is left."""
    from weft.comm.launch import _mpi_environment, find_mpirun

    memory = Path("memory").resolve()
    memory.mkdir()
    words = ["sbm:nodes=300,features=5", "--epochs", "1000000", "--checkpoint-every", "5", "--out", "run"]
    process = subprocess.Popen(
        [str(find_mpirun()), "-n", "2", "--host", "localhost:2", sys.executable, "-m", "weft",
         "train", *words],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env=os.environ | _mpi_environment(memory) | {"TMPDIR": str(memory), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    try:
        trained_for(process, "run", 8)
        assert list(memory.glob("weft-*/graph.weft"))
        process.send_signal(number)
        process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode
    deadline = time.monotonic() + 60
    while list(memory.glob("weft-*")):
        assert time.monotonic() < deadline, list(memory.rglob("*"))
        time.sleep(0.01)  # between two looks
    # After Ctrl-C mpirun gives the ranks a moment: whether they end by themselves is not ours to say.
    assert Path("run/weights.pt").exists() or number == signal.SIGINT
    assert weft("predict", "run", "--ranks", "1", "--into", "rows").status == 0
    epochs = len(losses("run"))
    answer = weft("train", "--resume", "run", "--ranks", "1", "--epochs", str(epochs + 3))
    assert answer.status == 0, answer.err
    assert len(losses("run")) == epochs + 3


def test_where_the_launcher_is_killed_no_store_is_left_behind():
    Path("private").mkdir()
    words = ["sbm:nodes=300,features=5", "--epochs", "1000000", "--ranks", "2", "--engine", "torch"]
    process = subprocess.Popen(
        [sys.executable, "-m", "weft", "train", *words, "--out", "run"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env=os.environ | {"OMP_NUM_THREADS": "1", "TMPDIR": str(Path("private").resolve())},
    )  # fmt: skip
    try:
        trained_for(process, "run")
        assert list(Path("private").glob("weft-*/graph.weft"))
    finally:
        process.kill()
        process.wait()
    deadline = time.monotonic() + 60
    while list(Path("private").glob("weft-*")):  # torch keeps an empty folder of its own there
        assert time.monotonic() < deadline, list(Path("private").rglob("*"))
        time.sleep(0.01)  # between two looks
