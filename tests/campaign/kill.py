"""Kill a rank by SIGKILL at a random moment, go on, and compare: `./dev kill [--cases 200]`.

A case follows from its number: engine (mpi, torch), work (the whole graph, batches, links), the moment
(loading, in an epoch, evaluating, while a checkpoint is being written), the rank that is killed, and how the
run goes on (`--restarts`, the same command, other ranks). It holds where the run goes on to its end, with the
bits of a run that nobody killed on the same ranks, and within 1e-12 of it on others; where every epoch is
recorded once; and where nothing is left behind: no process, no shared memory, no temporary file.

`--tally FILE` adds up over several calls: a campaign may be run in pieces.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib
import io
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    os.environ["OMP_NUM_THREADS"] = "1"  # before torch: a fork has no threads of its parent

import numpy as np
import torch

from weft.cli import main as weft
from weft.comm import child, job
from weft.comm.watchdog import _SLOT, Awake
from weft.graph import hold_out, split, write_store
from weft.graph.generators import sbm
from weft.train.checkpoint import checkpoints

RANKS, EPOCHS = 2, 24
ENGINES = ("mpi", "torch")
WORKS = {
    "whole": [],
    "batches": ["--model", "sage", "--batch-size", "150", "--fanouts", "4,3", "--dropout", "0.3"],
    "links": ["--task", "link", "--model", "sage", "--hits", "5", "--embedding-width", "4",
              "--pair-batch", "2000", "--evaluate-every", "2"],
}  # fmt: skip
MOMENTS = ("loading", "epoch", "evaluating", "writing")
WAYS = ("restarts", "same", "other")
_Popen = subprocess.Popen
PATIENCE = 240.0
"""Seconds after which a run counts as hung."""


@dataclass(frozen=True)
class Case:
    """What a case does.

    >>> Case.drawn(3) == Case.drawn(3), len({Case.drawn(k).moment for k in range(4)})
    (True, 4)
    """

    number: int
    engine: str
    work: str
    moment: str
    way: str
    victim: int
    epoch: int
    """Epochs that are recorded when the kill is due, at least."""
    delay: float
    """Of the time between that and the kill, 0 to 1."""

    @classmethod
    def drawn(cls, number: int) -> Case:
        draw = random.Random(number)
        return cls(
            number, ENGINES[number // 4 % 2], list(WORKS)[number // 8 % 3], MOMENTS[number % 4],
            WAYS[number // 24 % 3], draw.randrange(RANKS), draw.randrange(1, EPOCHS * 3 // 4), draw.random(),
        )  # fmt: skip

    def words(self, out: Path) -> list[str]:
        """`weft train …` of this case, into this folder."""
        graph = "links.weft" if self.work == "links" else "classes.weft"
        often = "2" if self.work != "batches" else "7batches"
        return [
            "train", graph, *WORKS[self.work], "--hidden", "16", "--dtype", "float64",
            "--epochs", str(EPOCHS),
            "--ranks", str(RANKS), "--engine", self.engine, "--checkpoint-every", often, "--out", str(out),
        ]  # fmt: skip


# Processes


def start(words: list[str], log: Path, scratch: Path) -> int:
    """`weft WORDS` in a process of its own; a fork, because loading torch takes seconds."""
    process = os.fork()
    if process:
        return process
    status = 70
    with contextlib.suppress(BaseException):
        os.setpgid(0, 0)
        out = os.open(log, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(out, 2)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ |= {"TMPDIR": str(scratch), "OMP_NUM_THREADS": "1"}
        tempfile.tempdir = str(scratch)
        torch.set_num_threads(1)
        job.subprocess.Popen = functools.partial(opened, told=log.with_suffix(".ranks"))  # type: ignore
        try:
            status = weft(words)
        except Exception:
            traceback.print_exc()  # to the log: a launcher that fails is a finding
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


class Forked:
    """`subprocess.Popen` of a supervisor, as a fork of this process: a rank then need not load torch either.

    mpirun starts its ranks itself; these load it.
    """

    def __init__(self, line: list[str], told: Path, **how: Any) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            with contextlib.suppress(BaseException):
                os.setsid()
                how["preexec_fn"]()
                for number in signal.valid_signals():
                    with contextlib.suppress(OSError, ValueError):
                        signal.signal(number, signal.SIG_DFL)
                for place, file in enumerate(
                    (os.open(os.devnull, os.O_RDONLY), how["stdout"], how["stderr"])
                ):
                    os.dup2(file, place)
                os.closerange(3, 1024)
                os.environ.clear()
                os.environ.update(how["env"])
                with told.open("a") as file:
                    file.write(json.dumps([int(how["env"]["RANK"]), os.getpid(), how["env"]]) + "\n")
                sys.argv = line[1:]
                try:
                    child.main()
                except SystemExit as error:  # a rank that has done its work
                    sys.stdout.flush()
                    os._exit(int(error.code or 0))
            os._exit(70)

    def poll(self) -> int | None:
        with contextlib.suppress(ChildProcessError):
            done, _ = os.waitpid(self.pid, os.WNOHANG)
            return 0 if done else None
        return 0

    def wait(self) -> int:
        while self.poll() is None:
            time.sleep(0.005)  # between two looks
        return 0


def opened(line: list[str], told: Path, **how: Any) -> Any:
    """A supervisor of ranks as a fork; anything else as the process that it is."""
    ours = line[0] == sys.executable and "RANK" in (how.get("env") or {})
    return Forked(line, told, **how) if ours else _Popen(line, **how)


def load_all(folder: Path) -> None:
    """What ranks load, loaded here once: forks have it then."""
    importlib.import_module("weft.comm.torch_distributed")
    nowhere = io.StringIO()
    for number, more in enumerate(([], ["--task", "link", "--hits", "2", "--hold-val", "0.1"])):
        run = folder / f"load-{number}"
        with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            weft(["train", "karate", *more, "--epochs", "2", "--ranks", "1", "--out", str(run)])
        shutil.rmtree(run, ignore_errors=True)


def wait(process: int, seconds: float = PATIENCE) -> int:
    """Its exit status; -1 where it had to be ended. Time in which nobody ran does not count."""
    for _ in range(round(seconds / 0.01)):
        done, status = os.waitpid(process, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)  # between two looks
    for each in [*descendants(process), process]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    os.waitpid(process, 0)
    return -1


def _parents() -> dict[int, int]:
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                stat = Path("/proc", name, "stat").read_text()
                found[int(name)] = int(stat.rpartition(")")[2].split()[1])
    return found


def descendants(process: int) -> list[int]:
    """Processes that it started, and those that they started."""
    parents = _parents()
    found, seen = [process], {process}
    for each in found:
        found += [child for child, parent in parents.items() if parent == each and child not in seen]
        seen |= set(found)
    return found[1:]


def _is_child(process: int) -> bool:
    with contextlib.suppress(OSError):
        return b"comm/child.py" in Path(f"/proc/{process}/cmdline").read_bytes()
    return False


def ranks_of(launcher: int, told: Path) -> dict[int, tuple[int, dict[str, str]]]:
    """Rank → (process, environment) of the ranks that are up."""
    parents, found = _parents(), {}
    if told.exists():
        for line in told.read_text().splitlines():
            rank, supervisor, environment = json.loads(line)
            process = next((p for p, parent in parents.items() if parent == supervisor), 0)
            if process:
                found[rank] = (process, environment)
        return found
    for process in descendants(launcher):
        parent = parents.get(process, 0)
        if not (_is_child(process) and _is_child(parent)):
            continue  # a supervisor, mpirun
        with contextlib.suppress(OSError, ValueError, StopIteration):
            raw = Path(f"/proc/{parent}/environ").read_bytes().decode(errors="replace")
            environment = dict(pair.split("=", 1) for pair in raw.split("\0") if "=" in pair)
            names = ("OMPI_COMM_WORLD_RANK", "PMIX_RANK", "RANK")
            rank = next(int(environment[name]) for name in names if name in environment)
            found[rank] = (process, environment)
    return found


# Moments


def epochs_of(run: Path) -> int:
    with contextlib.suppress(OSError):
        return (run / "metrics.jsonl").read_bytes().count(b"\n")
    return 0


def _slot(environment: dict[str, str], rank: int) -> str:
    """The phase in which a rank waits; empty: in none."""
    with contextlib.suppress(OSError, struct.error):
        raw = (Path(environment["WEFT_RUN_DIR"]) / "slots").read_bytes()
        since, text = _SLOT.unpack_from(raw, rank * _SLOT.size)
        return text.decode(errors="replace") if since else ""
    return ""


def _writes(run: Path) -> bool:
    with contextlib.suppress(OSError):
        return any(path.name.endswith(".part") for path in (run / "checkpoints").iterdir())
    return False


def kill_at(case: Case, launcher: int, run: Path, told: Path, loads: float) -> tuple[str, dict[str, str]]:
    """Kill the rank; (the moment that it was, its environment). The moment is empty where it was missed."""

    def ended() -> bool:
        return os.waitid(os.P_PID, launcher, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def until(ready: Callable[[], object], seconds: float = PATIENCE) -> bool:
        awake = Awake()
        while not ready():
            if ended() or time.monotonic() - awake.look() > seconds:
                return False
        return True

    found: dict[int, tuple[int, dict[str, str]]] = {}

    def up() -> bool:
        time.sleep(0.005)  # between two looks
        with contextlib.suppress(ValueError):  # half a line
            found.update(ranks_of(launcher, told))
        return len(found) == RANKS

    if not until(up):
        return "", {}
    process, environment = found[case.victim]
    moment = case.moment
    if moment == "loading":
        begun = time.monotonic()
        if until(
            lambda: time.sleep(0.002) or epochs_of(run) or time.monotonic() - begun > case.delay * loads
        ):
            moment = "epoch" if epochs_of(run) else "loading"
    else:
        if not until(lambda: time.sleep(0.0005) or epochs_of(run) >= case.epoch):
            return "", environment
        signs = {
            "evaluating": lambda: time.sleep(1e-4) or "'metrics'" in _slot(environment, case.victim),
            "writing": lambda: time.sleep(1e-4) or _writes(run),
        }
        if moment in signs and not until(signs[moment], 20):
            moment = "epoch"
        time.sleep(case.delay * (0.02 if moment == "epoch" else 0.003))
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return "", environment
    return "" if ended() and (run / "summary.json").exists() else moment, environment


# What must hold


def learned(run: Path) -> dict[str, np.ndarray]:
    """All that a run has learned."""
    found = {k: w.numpy() for k, w in torch.load(run / "weights.pt", weights_only=True).items()}
    if (run / "embeddings.npy").exists():
        found["embeddings"] = np.load(run / "embeddings.npy")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    if [line["epoch"] for line in lines] != list(range(1, EPOCHS + 1)):
        raise AssertionError(f"epochs recorded: {[line['epoch'] for line in lines]}")
    return found | {"losses": np.array([line["loss"] for line in lines])}


def difference(run: Path, whole: Path) -> float:
    """The largest difference, relative to the largest magnitude of its array; 0: the same bits."""
    ours, theirs = learned(run), learned(whole)
    if ours.keys() != theirs.keys():
        raise AssertionError("other weights")
    return max(float(np.abs(ours[k] - theirs[k]).max() / np.abs(theirs[k]).max()) for k in ours)


def left_behind(processes: list[int], places: list[Path], scratch: Path, run: Path) -> list[str]:
    """What is still there."""
    awake = Awake()
    while True:
        alive = [p for p in processes if os.path.exists(f"/proc/{p}") and _parents().get(p) is not None]
        alive = [p for p in alive if _state(p) not in ("Z", "X", "")]
        files = [str(p) for p in scratch.rglob("*") if not p.is_dir()] + [
            str(p) for p in places if p.exists()
        ]
        files += [str(p) for p in run.rglob("*") if p.name.endswith((".part", ".tmp"))]
        files += [str(p) for p in checkpoints(run)]
        if (not alive and not files) or time.monotonic() - awake.look() > 20:
            return [f"process {p}" for p in alive] + files
        time.sleep(0.02)  # between two looks


def _state(process: int) -> str:
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    return ""


class Campaign:
    """Cases in a folder: graphs, runs that nobody kills, and those that are killed."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.loads = {"mpi": 4.0, "torch": 0.6}
        """Seconds in which ranks of an engine are killed as they load; forks have no torch to load."""
        os.chdir(folder)
        torch.set_num_threads(1)
        load_all(folder)
        if not Path("classes.weft").exists():
            graph = sbm(nodes=1500, classes=4, features=12, seed=1)
            write_store(split(graph, 0.5, 0.25, 0), "classes.weft")
            write_store(hold_out(graph, 0.1, 0.1, 0), "links.weft")

    def whole(self, case: Case) -> Path:
        """The same run, which nobody kills."""
        run = Path(f"whole-{case.engine}-{case.work}")
        if not (run / "summary.json").exists():
            shutil.rmtree(run, ignore_errors=True)
            with self._scratch("whole") as scratch:
                log = Path("whole.log")
                status = wait(start(case.words(run), log, scratch))
                log.with_suffix(".ranks").unlink(missing_ok=True)
            if status:
                raise SystemExit(
                    f"the run that nobody kills ended with status {status}: {log.read_text()[-2000:]}"
                )
        return run

    @contextlib.contextmanager
    def _scratch(self, name: str) -> Iterator[Path]:
        # Short: the address of a socket has room for 107 characters.
        with tempfile.TemporaryDirectory(prefix=f"w{name[0]}") as folder:
            yield Path(folder)

    def run(self, case: Case) -> dict[str, object]:
        """What came of a case; `wrong` is empty where all holds."""
        whole, run, log = self.whole(case), Path(f"case-{case.number}"), Path(f"case-{case.number}.log")
        shutil.rmtree(run, ignore_errors=True)
        log.unlink(missing_ok=True)
        log.with_suffix(".ranks").unlink(missing_ok=True)
        restarts = ["--restarts", "1"] if case.way == "restarts" else []
        with self._scratch("case") as scratch:
            begun = time.monotonic()
            launcher = start([*case.words(run), *restarts], log, scratch)
            told = log.with_suffix(".ranks")
            loads = self.loads[case.engine]
            moment, environment = kill_at(case, launcher, run, told, loads)
            told.unlink(missing_ok=True)
            seen = descendants(launcher)
            status = wait(launcher)
            if not moment:
                return {
                    "moment": "",
                    "wrong": "" if status == 0 else f"status {status}: {log.read_text()[-1500:]}",
                }
            wrong, ranks = "", RANKS
            if case.way == "restarts":
                if status:
                    wrong = f"was not started again, status {status}"
            elif status == 0:
                wrong = "ended well without a rank"
            else:
                words = case.words(run)
                if case.way == "other":
                    ranks = 1
                    words = (
                        ["train", "--resume", str(run), "--ranks", "1"]
                        if run.exists()
                        else [*words, "--ranks", "1"]
                    )
                again = start(words, log, scratch)
                status = wait(again)
                wrong = f"did not go on, status {status}" if status else ""
            far = -1.0
            if not wrong:
                try:
                    far = difference(run, whole)
                    if far > (0.0 if ranks == RANKS else 1e-12):
                        wrong = f"differs by {far:.2g} on {ranks} ranks"
                except (AssertionError, OSError, ValueError) as error:
                    wrong = str(error)
            places = [Path(environment[k]) for k in ("WEFT_RUN_DIR", "WEFT_MEMORY") if k in environment]
            left = left_behind(seen, places, scratch, run)
            if left and not wrong:
                wrong = f"left behind: {left[:5]}"
        if wrong:
            wrong = f"{case}: {wrong}\n{log.read_text()[-3000:]}"
        else:
            shutil.rmtree(run, ignore_errors=True)
            log.unlink()
            log.with_suffix(".ranks").unlink(missing_ok=True)
        return {"moment": moment, "far": far, "equal": ranks == RANKS, "wrong": wrong,
                "seconds": time.monotonic() - begun}  # fmt: skip


def summary(done: dict[str, dict[str, object]]) -> str:
    """One line about all cases so far."""
    killed = {int(k): v for k, v in done.items() if v["moment"]}
    bad = [k for k, v in done.items() if v["wrong"]]
    cases = [Case.drawn(k) for k in killed]
    equal = [v for v in killed.values() if v["equal"] and not v["wrong"]]
    other = [float(str(v["far"])) for v in killed.values() if not v["equal"] and not v["wrong"]]

    def spread(values: list[str]) -> str:
        return ", ".join(f"{name} {count}" for name, count in sorted(Counter(values).items()))

    return (
        f"{len(killed)} kills ({spread([str(v['moment']) for v in killed.values()])}; "
        f"{spread([c.engine for c in cases])}; {spread([c.work for c in cases])}; "
        f"{spread([c.way for c in cases])}): {len(bad)} wrong; same bits at equal ranks "
        f"{len(equal)}, on other ranks {len(other)}, at most {max(other, default=0.0):.1e} off; "
        f"{len(done) - len(killed)} ended before their kill"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev kill", description=__doc__)
    parser.add_argument("--cases", type=int, default=200, help="kills, those of the tally too")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no case after so many")
    parser.add_argument("--engines", default=",".join(ENGINES), help="of these alone, by commas")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    parser.add_argument("--tally", type=Path, help="go on with what this file counts")
    parser.add_argument("--folder", type=Path, help="where runs lie; by default a temporary folder")
    asked = parser.parse_args()
    tally = None if asked.tally is None else asked.tally.resolve()
    done = json.loads(tally.read_text()) if tally is not None and tally.exists() else {}
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="weft-kill-") as scratch:
        folder = (asked.folder or Path(scratch)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        campaign, number = Campaign(folder), asked.first
        while sum(bool(v["moment"]) for v in done.values()) < asked.cases:
            if time.monotonic() - started > asked.seconds:
                break
            if str(number) not in done and Case.drawn(number).engine in asked.engines.split(","):
                done[str(number)] = result = campaign.run(Case.drawn(number))
                if result["wrong"]:
                    print(f"--- {result['wrong']}", flush=True)
                if tally is not None:
                    tally.write_text(json.dumps(done))
            number += 1
        os.chdir("/")
    print(summary(done))
    return int(any(v["wrong"] for v in done.values()))


if __name__ == "__main__":
    sys.exit(main())
