"""Where a command's ranks come from: those that are there, virtual ones, or new local processes."""

from __future__ import annotations

import copy
import dataclasses
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError, unknown
from ..train.config import RunConfig, to_toml
from .options import arc_columns

if TYPE_CHECKING:
    from ..comm import Communicator
    from ..graph import Graph, Store
    from ..parallel import Grid

Work = Callable[["Communicator", "Graph | Store"], int]
"""What every rank does: its exit status."""


def on_ranks(
    command: Sequence[str],
    config: RunConfig,
    work: Work,
    flags: Sequence[str] = (),
    store: str | None = None,
    trains: bool = True,
    during: Callable[[], AbstractContextManager[object]] = nullcontext,
    plan: Foretold | None = None,
) -> int:
    """Run `work` on every rank; the exit status.

    Inside a job (mpirun, srun, torchrun, or one that weft started) this process is one of its ranks.
    Else the graph is loaded and checked here, where a mistake costs nothing, and the ranks are started:
    one in this process, virtual ones, or processes, which read their shares from a store. A started rank
    runs `weft COMMAND run.toml FLAGS`. `trains`: whether the graph must have labels and a split.
    `during` is open in this thread while virtual ranks, which are other threads, work.
    `plan` is told what `--strategy auto` foretold; started ranks hear it as `--foretold`.
    """
    from ..comm import connect, in_job
    from ..comm.hosts import read_hosts
    from ..comm.launch import launch
    from ..comm.threads import run_threads, single
    from ..parallel.assign import check_assignment
    from ..train.tasks import check_task, check_task_options

    options = config.parallel
    check_task_options(config)
    if in_job():
        if options.hosts:
            raise UserError("these ranks were started by somebody else already. Leave out --hosts.")
        comm = connect("auto" if options.engine == "threads" else options.engine, options.stall_seconds)
        _set_threads(config.train.threads)
        if store is not None:
            from ..graph import open_store

            return work(comm, open_store(store, verify=False))
        return _join(config, comm, work, trains, plan)

    check_layout(config, options.ranks)
    ready = ready_store(config) if options.ranks > 1 and options.engine != "threads" else None
    graph = ready or load_graph(config, trains)
    hosts = len(read_hosts(Path(options.hosts))) if options.hosts else 1
    if trains:
        check_task(graph, config, options.ranks, min(hosts, options.ranks))
    if options.strategy == "auto":
        flags = [*flags, *_choose(config, graph, options.ranks, hosts, trains, plan)]
    grid = check_layout(config, options.ranks)
    assert grid is not None
    check_assignment(graph.num_nodes, grid, options)
    if options.hosts:
        return _on_hosts(command, config, graph, flags, trains)
    if options.ranks == 1:
        _set_threads(config.train.threads)
        return work(single(), graph)
    if options.engine == "threads":
        _set_threads(config.train.threads or 1)
        with during():
            return max(run_threads(work, options.ranks, graph))
    with swept_folder() as folder:
        settings = folder / "run.toml"
        settings.write_text(to_toml(config), encoding="utf-8")
        path = _stored(graph, config, folder)
        del graph, ready
        argv = ["-m", "weft", *command, str(settings), "--store", str(path), *flags]
        return launch(
            argv, options.ranks, options.engine, config.train.threads or None, options.stall_seconds,
            config.train.restarts if trains else 0,
        )  # fmt: skip


@dataclass
class Foretold:
    """What a plan said of an epoch; 0: nothing."""

    seconds: float = 0.0


def _choose(
    config: RunConfig, graph: Graph | Store, ranks: int, hosts: int, trains: bool, plan: Foretold | None
) -> list[str]:
    """Settle `--strategy auto`, say what was chosen; the flags that started ranks need beside the config."""
    from ..planner.choose import choose

    choice = choose(config, graph, ranks, hosts, trains)
    for line in choice.lines:
        print(line, file=sys.stderr, flush=True)
    if plan is None:
        return []
    plan.seconds = choice.seconds
    return ["--foretold", repr(choice.seconds)] if choice.seconds else []


def _on_hosts(
    command: Sequence[str], config: RunConfig, graph: Graph | Store, flags: Sequence[str], trains: bool
) -> int:
    """Ranks on several hosts, and on fewer where one is gone; all see the present folder."""
    from ..comm.hosts import launch_on_hosts

    options, restarts = config.parallel, config.train.restarts if trains else 0
    with swept_folder(Path.cwd()) as folder:
        path = _stored(graph, config, folder)
        settings = folder / "run.toml"

        def prepare(ranks: int) -> list[str]:
            fitted = fit_to(config, ranks)
            fitted.train.restarts = 0  # those are ours
            fitted.parallel.hosts = ""
            settings.write_text(to_toml(fitted), encoding="utf-8")
            return ["-m", "weft", *command, str(settings), "--store", str(path), *flags]

        return launch_on_hosts(
            prepare, Path(options.hosts), options.ranks, config.train.threads or 1, options.stall_seconds,
            folder, restarts,
        )  # fmt: skip


def fit_to(config: RunConfig, ranks: int) -> RunConfig:
    """The same run on other ranks: what was asked for where it fits, else what follows from their number.

    >>> config = RunConfig()
    >>> config.parallel.ranks, config.parallel.strategy, config.parallel.grid = 6, "2d", "3x2"
    >>> [fit_to(config, ranks).parallel.grid for ranks in (6, 4)]
    ['3x2', '']
    """
    out = copy.deepcopy(config)
    options = out.parallel
    if ranks != options.ranks:
        options.ranks = ranks
        if options.partition.endswith(".npy"):  # it has a part for each of the ranks there were
            options.partition = "random"
        try:
            check_layout(out, ranks)
        except UserError:
            options.grid, options.replication, options.move_adjacency = "", 0, False
    return out


def ready_store(config: RunConfig) -> Store | None:
    """The user's own store where ranks can read it as it is: it brings its split and checks its chunks.

    Nothing but its header is read. None: somebody must load the graph first.
    """
    from ..graph import open_store
    from ..graph.loading import locate
    from ..train.tasks import TASKS

    found = locate(config.data.graph, config.data.data or None)
    if found is None or found[0].suffix != ".weft" or not TASKS[config.train.task].by_header:
        return None
    arc_columns(config.data.arc_columns)
    store = open_store(found[0], verify=False)
    brings = "test_pairs" if config.train.task == "link" else "train_mask"
    return store if store.checks_itself and store.has(brings) and not config.data.arc_columns else None


@contextmanager
def swept_folder(where: Path | None = None) -> Iterator[Path]:
    """A folder for what ranks read, which goes with this process however that ends.

    A small shell waits for the end of a pipe that only this process holds, then removes the folder: nobody
    else is left to do it where mpirun or a kill -9 ends us.
    """
    folder = Path(tempfile.mkdtemp(prefix=".weft-" if where else "weft-", dir=where))
    sweeper = subprocess.Popen(
        ["/bin/sh", "-c", 'cat > /dev/null; rm -rf -- "$0"', str(folder)], stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,  # signals that are for us do not reach it
    )  # fmt: skip
    try:
        yield folder
    finally:
        assert sweeper.stdin is not None
        sweeper.stdin.close()
        sweeper.wait()


def load_graph(config: RunConfig, trains: bool = True) -> Graph:
    """The graph that the config names, split, or links held out, where it brings no split."""
    from ..graph import hold_out, load, split
    from ..train.tasks import TASKS

    graph = load(config.data.graph, config.data.data or None, arc_columns(config.data.arc_columns))
    if config.train.task == "link":
        holds = trains or config.link.hold_val or config.link.hold_test
        if graph.val_pairs is not None or graph.test_pairs is not None or not holds:
            return graph
        return hold_out(graph, config.link.hold_val, config.link.hold_test, config.train.seed)
    if graph.labels is None or graph.train_mask is not None or not TASKS[config.train.task].splits:
        return graph
    shares = (config.data.train_share, config.data.val_share)
    train, val = (int(share) if share >= 1 and share.is_integer() else share for share in shares)
    return split(graph, train, val, config.train.seed)


def check_layout(config: RunConfig, ranks: int) -> Grid | None:
    """The grid, or the mistake in it, before anything is loaded; None where it is to be chosen."""
    from ..comm.launch import ENGINES
    from ..parallel import STRATEGIES, check_slices, choose

    options = config.parallel
    if options.engine not in (*ENGINES, "threads"):
        raise unknown("engine", options.engine, (*ENGINES, "threads"))
    if options.hosts and options.engine not in ("auto", "mpi"):
        raise UserError(f"hosts are reached by mpirun, not by {options.engine}. Use --engine mpi.")
    if options.stall_seconds <= 0:
        raise UserError(f"stall_seconds must be above 0, not {options.stall_seconds:g}.")
    if options.strategy == "auto":
        from ..planner.choose import check_open

        check_open(config)
        choose("1d", ranks, exchange=options.exchange)
        return None
    if options.strategy not in STRATEGIES:
        raise unknown("strategy", options.strategy, [*STRATEGIES, "auto"])
    grid = choose(options.strategy, ranks, options.grid, options.replication, options.exchange)[0]
    if options.move_adjacency:
        check_slices(grid)
    return grid


def _stored(graph: Graph | Store, config: RunConfig, folder: Path) -> Path:
    """The store that ranks read: the user's own where it is one and brings its split."""
    from ..graph import Store, open_store, write_store

    if isinstance(graph, Store):
        return graph.path.resolve()
    named = Path(config.data.graph)
    brings = "test_pairs" if config.train.task == "link" else "train_mask"
    if named.suffix == ".weft" and open_store(named, verify=False).has(brings):
        return named.resolve()
    return write_store(graph, folder / "graph.weft")


def _join(
    config: RunConfig, comm: Communicator, work: Work, trains: bool, plan: Foretold | None = None
) -> int:
    """One of ranks that somebody else started: rank 0 loads the graph and shares it as a store."""
    from ..graph import open_store
    from ..train.tasks import check_task

    check_layout(config, comm.size)
    hosts = len(set(comm.all_gather_json(socket.gethostname())))
    with swept_folder() if comm.rank == 0 else nullcontext(Path()) as folder:
        told: dict[str, Any] = {"path": "", "error": "", "chosen": {}, "seconds": 0.0}
        if comm.rank == 0:
            try:
                graph = ready_store(config) or load_graph(config, trains)
                if trains:
                    check_task(graph, config, comm.size, hosts)
                if config.parallel.strategy == "auto":
                    own = Foretold()
                    _choose(config, graph, comm.size, hosts, trains, own)
                    told["chosen"], told["seconds"] = dataclasses.asdict(config.parallel), own.seconds
                told["path"] = str(_stored(graph, config, folder))
                del graph
            except UserError as error:
                told["error"] = str(error)
        told = comm.all_gather_json(told)[0]
        raise_everywhere(comm, told["error"])
        for name, value in told["chosen"].items():
            setattr(config.parallel, name, value)
        if plan is not None:
            plan.seconds = told["seconds"]
        if not Path(told["path"]).exists():
            raise UserError(
                f"this rank cannot see {told['path']}. "
                "Give a .weft store on a file system that all ranks share."
            )
        status = work(comm, open_store(told["path"], verify=False))
        comm.barrier()  # nobody still reads the store when it goes
        return status


def raise_everywhere(comm: Communicator, mistake: str) -> None:
    """Rank 0's mistake on every rank, each of which calls it; said once. Empty: there is none."""
    if not mistake:
        return
    if comm.rank and "WEFT_RANK" not in os.environ and comm.engine != "threads":
        raise SystemExit(2)  # rank 0 says it; where weft started the ranks, the launcher does
    error = UserError(mistake)
    error.everywhere = True  # type: ignore[attr-defined]
    raise error


def _set_threads(threads: int) -> None:
    import torch

    if threads:
        torch.set_num_threads(threads)
