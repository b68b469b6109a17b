"""Starting ranks, and what happens when one fails: every fault ends the job, loudly and completely."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from weft.comm import connect, in_job
from weft.comm.job import Failure, Outcome
from weft.comm.launch import host_cores, launch, run_job
from weft.errors import UserError

PROGRAM = """
import os, signal, sys, threading
from pathlib import Path
import torch
from weft.comm import connect
from weft.errors import UserError

comm = connect()
Path(sys.argv[2], f"{os.getpid()}.pid").touch()
comm.barrier()
fault = sys.argv[1]
if fault == "fine":
    print("hello from", comm.rank, os.environ["OMP_NUM_THREADS"], comm.all_reduce(torch.ones(1)).item())
    print("note from", comm.rank, sys.stdout.write_through or sys.stderr.write_through, file=sys.stderr)
    sys.exit(0)
if fault == "user":
    raise UserError("grid 4x2 needs 8 ranks. Use --ranks 8.")
if comm.rank == 1:
    if fault == "raise":
        raise ValueError("the first error\\nand its second line")
    if fault == "exit":
        sys.exit(5)
    if fault == "message":
        sys.exit("no such graph")
    if fault == "os-exit":
        os._exit(6)
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "stall":
        threading.Event().wait()
if fault == "wait" and comm.rank == 0:
    print("ready", flush=True)
comm.broadcast(torch.ones(3), root=1, phase="gather") if fault != "wait" else threading.Event().wait()
comm.all_reduce(torch.ones(3), phase="grad")
"""


def words(folder: Path, fault: str) -> list[str]:
    program = folder / "program.py"
    program.write_text(PROGRAM)
    return [str(program), fault, str(folder)]


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


class Launch(Protocol):
    def __call__(self, fault: str, engine: str, ranks: int = 2, **options: Any) -> Done: ...


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Launch:
    """A job of this process: a launcher of its own would cost the seconds of a rank more."""
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])

    def call(fault: str, engine: str, ranks: int = 2, **options: Any) -> Done:
        status = launch(words(tmp_path, fault), ranks, engine, **options)
        return Done(status, *capfd.readouterr())

    return call


def assert_nobody_left(folder: Path, ranks: int = 2) -> None:
    """All ranks came up, and all are gone; one that was just killed has a moment to go."""
    pids = [int(file.stem) for file in folder.glob("*.pid")]
    assert len(pids) == ranks
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        gone, _, _ = select.select([handle], [], [], 10)
        os.close(handle)
        assert gone, f"process {pid} was left behind"


FAULTS = {
    "raise": (1, "[rank 1] ValueError: the first error"),
    "exit": (5, "[rank 1] exited with status 5"),
    "message": (1, "[rank 1] no such graph"),
    "os-exit": (6, "[rank 1] exited with status 6"),
    "kill": (137, "[rank 1] was killed by SIGKILL"),
}


# On torch the ways to exit take the same path; a launch costs seconds.
@pytest.mark.parametrize(
    ("engine", "fault"), [*(("mpi", fault) for fault in FAULTS), ("torch", "raise"), ("torch", "kill")]
)
def test_a_rank_that_fails_ends_all_and_is_named_first(
    run: Launch, engine: str, fault: str, tmp_path: Path
) -> None:
    done = run(fault, engine)
    status, line = FAULTS[fault]
    assert done.stderr.splitlines()[0] == line
    assert done.returncode == status
    assert "mpirun" not in done.stderr.lower()
    assert "rank 0" not in done.stderr
    if fault == "raise":
        assert f'[rank 1]   File "{tmp_path / "program.py"}"' in done.stderr
        assert "child.py" not in done.stderr
    else:
        assert len(done.stderr.splitlines()) == 1
    assert_nobody_left(tmp_path)


@pytest.mark.parametrize("engine", ["mpi", "torch"])
def test_a_users_mistake_is_one_line_once_and_status_2(run: Launch, engine: str, tmp_path: Path) -> None:
    done = run("user", engine)
    assert done.stderr == "grid 4x2 needs 8 ranks. Use --ranks 8.\n"
    assert done.returncode == 2
    assert_nobody_left(tmp_path)


@pytest.mark.parametrize("engine", ["mpi", "torch"])
def test_a_stall_names_the_ranks_and_the_phase_and_ends_all(run: Launch, engine: str, tmp_path: Path) -> None:
    # Long enough for slow start-ups, which wait in the barrier, on a busy machine.
    done = run("stall", engine, ranks=3, stall_seconds=8)
    assert done.stderr == (
        "no progress for 8 s: ranks 0, 2 are waiting in phase 'gather' (broadcast); "
        "rank 1 is not in a message\n"
    )
    assert done.returncode == 1
    assert_nobody_left(tmp_path, 3)


@pytest.mark.parametrize("engine", ["mpi", "torch"])
def test_output_of_rank_0_passes_and_that_of_others_has_the_rank_in_front(
    run: Launch, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", "1")  # even then a line is written at once, not word by word
    done = run("fine", engine, ranks=3, threads=2)
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == [
        "[rank 1] hello from 1 2 3.0",
        "[rank 2] hello from 2 2 3.0",
        "hello from 0 2 3.0",
    ]
    assert sorted(done.stderr.splitlines()) == [
        "[rank 1] note from 1 False",
        "[rank 2] note from 2 False",
        "note from 0 False",
    ]
    assert_nobody_left(tmp_path, 3)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
@pytest.mark.parametrize("engine", ["mpi", "torch"])
def test_when_the_launcher_is_interrupted_or_killed_nothing_is_left(
    engine: str, number: signal.Signals, status: int, tmp_path: Path
) -> None:
    code = f"import sys; from weft.comm.launch import launch; sys.exit(launch(sys.argv[1:], 2, {engine!r}))"
    line = [sys.executable, "-c", code, *words(tmp_path, "wait")]
    (tmp_path / "private").mkdir()
    place = environment() | {"TMPDIR": str(tmp_path / "private")}
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=place) as job:
        assert job.stdout is not None
        assert job.stderr is not None
        assert job.stdout.readline() == b"ready\n"
        job.send_signal(number)
        assert job.wait(timeout=30) == status
        assert_nobody_left(tmp_path)
        assert job.stderr.read() == b""  # at its end: nobody holds the other side any more
    assert list((tmp_path / "private").iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ranks": 0}, "0 ranks were asked for"),
        ({"ranks": 2, "threads": 0}, "0 threads were asked for"),
        ({"ranks": 2, "engine": "mpl"}, "Did you mean 'mpi'"),
        ({"ranks": 2, "stall_seconds": -1.0}, "not positive"),
    ],
)
def test_a_wrong_argument_is_named(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        run_job(["-c", "pass"], **arguments)  # type: ignore[arg-type]


def test_where_mpirun_cannot_start_ranks_auto_uses_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "mpirun"
    broken.write_text("#!/bin/sh\necho no slots >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr("weft.comm.launch.find_mpirun", lambda: str(broken))
    code = "import os; print(os.environ['WEFT_ENGINE'], os.environ['WORLD_SIZE'])"
    assert run_job(["-c", code], 1, "auto").status == 0
    captured = capfd.readouterr()
    assert captured.out == "torch 1\n"
    assert "using torch.distributed instead" in captured.err
    asked = run_job(["-c", code], 1, "mpi")
    assert asked.status == 1
    assert "no slots" in asked.report()


def test_a_lone_process_is_one_rank() -> None:
    assert not in_job()
    comm = connect()
    assert (comm.rank, comm.size) == (0, 1)


def test_the_environment_tells_who_started_us(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    assert in_job()
    monkeypatch.delenv("OMPI_COMM_WORLD_SIZE")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert in_job()
    monkeypatch.delenv("RANK")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "4")
    with pytest.raises(UserError, match="srun --mpi=pmix"):
        in_job()


def test_a_consequence_is_not_reported_before_its_cause() -> None:
    lost = Failure(0, "peer", "PeerLost: connection closed", "", 1)
    report = Outcome(1, [Failure(1, "signal", "was killed by SIGKILL", "", 137), lost]).report()
    assert report == "[rank 1] was killed by SIGKILL"


def test_a_rank_that_somebody_stopped_is_named_as_the_cause() -> None:
    from weft.comm.watchdog import MappedSlot, stalled

    slots = [MappedSlot(bytearray(400), rank) for rank in range(3)]
    for slot in slots[:2]:
        slot.enter("grad", "all_reduce")
    assert stalled(slots, -1, halted=frozenset([1])) == (
        "no progress for -1 s: rank 1 is stopped by a signal, in phase 'grad' (all_reduce); "
        "rank 0 is waiting in phase 'grad' (all_reduce); rank 2 is not in a message"
    )


def test_a_job_that_was_suspended_as_a_whole_did_not_stall(monkeypatch: pytest.MonkeyPatch) -> None:
    from weft.comm.watchdog import Awake, MappedSlot, stalled

    now = 1000.0
    monkeypatch.setattr("weft.comm.watchdog.time.monotonic", lambda: now)
    slots = [MappedSlot(bytearray(400), rank) for rank in range(2)]
    slots[0].enter("grad", "all_reduce")
    watch = Awake()
    now += 3600  # nobody ran
    assert stalled(slots, 300, awake=watch.look()) is None
    for _ in range(301):  # now they run, and rank 0 still waits
        now += 1
        awake = watch.look()
    line = stalled(slots, 300, awake=awake)
    assert line is not None
    assert line.startswith("no progress for 300 s: rank 0 is waiting in phase 'grad'")


def test_after_ctrl_c_ranks_have_the_time_that_they_need(tmp_path: Path) -> None:
    """A step may take longer than any limit of the launcher's: here until the launcher has said its word."""
    program = tmp_path / "slow.py"
    program.write_text(
        "import os, pathlib, signal, sys, time\n"
        "asked = []\n"
        "signal.signal(signal.SIGINT, lambda *_: asked.append(1))\n"
        "here = pathlib.Path(sys.argv[1])\n"
        "(here / ('up' + os.environ['WEFT_RANK'])).touch()\n"
        "while not (asked and (here / 'said').exists()):\n"
        "    time.sleep(0.01)\n"
        "(here / ('saved' + os.environ['WEFT_RANK'])).touch()\n"
        "sys.exit(130)\n"
    )
    code = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from weft.comm import job\n"
        "from weft.comm.launch import launch\n"
        "job._INTERRUPT_SECONDS = job._WORD_SECONDS = 0.0\n"
        "sys.exit(launch(sys.argv[1:], 2, 'torch'))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(program), str(tmp_path)], stderr=subprocess.PIPE, text=True
    )
    try:
        deadline = time.monotonic() + 120
        while len(list(tmp_path.glob("up?"))) < 2:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.01)  # between two looks
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        line = process.stderr.readline()
        assert line == "weft: Ctrl-C was passed on to the ranks; once more ends them at once.\n"
        (tmp_path / "said").touch()
        assert process.wait(120) == 130
    finally:
        process.kill()
        process.communicate()
    assert len(list(tmp_path.glob("saved?"))) == 2


def test_a_stopped_mpirun_does_not_hold_up_a_job_whose_ranks_have_ended(run: Launch, tmp_path: Path) -> None:
    """mpirun is the parent of the ranks' supervisors; rank 0 stops it and ends."""
    program = tmp_path / "stop.py"
    program.write_text(
        "import os, pathlib, signal\n"
        "stat = pathlib.Path(f'/proc/{os.getppid()}/stat').read_text()\n"
        "mpirun = int(stat.rpartition(')')[2].split()[1])\n"
        "if os.environ['WEFT_RANK'] == '0':\n"
        "    os.kill(mpirun, signal.SIGSTOP)\n"
        "    print(mpirun, flush=True)\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("weft.comm.job._END_SECONDS", 0.5)
        assert launch([str(program)], 2, "mpi") == 0


def test_a_rank_that_never_connects_is_a_stall(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import os, signal\n"
        "if os.environ['WEFT_RANK'] == '1': os.kill(os.getpid(), signal.SIGSTOP)\n"
        "from weft.comm import connect\n"
        "connect()\n"
    )
    outcome = run_job([str(program)], 2, "torch", stall_seconds=3)
    assert outcome.status == 1
    line = outcome.failures[0].line
    assert "no progress for 3 s: rank 1 is stopped by a signal; rank 0 is waiting in phase 'start'" in line


def test_signals_that_come_close_together_are_one_request() -> None:
    from weft.signals import Asked

    asked = Asked()
    assert asked.note(15)
    assert asked.note(2)
    assert asked.number == 15
    asked._since -= 10
    assert not asked.note(2)


def test_cores_of_a_host_are_more_than_those_that_a_rank_was_bound_to(monkeypatch):
    bound = {0: {3}, os.getppid(): {2, 3}}
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: bound[process], raising=False)
    assert host_cores() == {3}  # nobody started us as a rank: we were given this one
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "2")
    assert host_cores() == {2, 3}
