"""Where a command's ranks come from: those that are there, virtual ones, or new local processes."""

from __future__ import annotations

import copy
import dataclasses
import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
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
_LARGE = 1 << 28
"""From so many bytes on a store is read by rows, if by one process alone."""
_HELD_OUT = 100
"""Bytes an arc that holding links out takes: the arcs and their mirrors as pairs of int64, sorted."""


def on_ranks(
    command: Sequence[str],
    config: RunConfig,
    work: Work,
    flags: Sequence[str] = (),
    store: str | None = None,
    trains: bool = True,
    during: Callable[[], AbstractContextManager[object]] = nullcontext,
    plan: Foretold | None = None,
    kept: bool = False,
) -> int:
    """Run `work` on every rank; the exit status.

    Inside a job (mpirun, srun, torchrun, or one that weft started) this process is one of its ranks.
    Else the graph is loaded and checked here, where a mistake costs nothing, and the ranks are started:
    one in this process, virtual ones, or processes, which read their shares from a store. A started rank
    runs `weft COMMAND run.toml FLAGS`. `trains`: whether the graph must have labels and a split.
    `during` is open in this thread while virtual ranks, which are other threads, work.
    `plan` is told what `--strategy auto` foretold; started ranks hear it as `--foretold`.
    `kept`: the settings are those of a run that may have had other ranks; what a plan chose for those follows
    from the ranks that are there now.
    """
    from ..comm import connect, in_job
    from ..comm.hosts import filled, read_hosts
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
            return work(comm, _open_shared(Path(store)))
        if kept:
            _loosen(config, comm.size)
        return _join(config, comm, work, trains, plan)

    if kept:
        _loosen(config, options.ranks)
    check_layout(config, options.ranks)
    processes = options.ranks > 1 and options.engine != "threads"
    with ExitStack() as stack:
        listed = read_hosts(Path(options.hosts)) if options.hosts else []
        where = Path.cwd() if options.hosts else None  # all hosts see the present folder
        folder = functools.cache(lambda: stack.enter_context(swept_folder(where)))
        ready = ready_store(config, folder, trains) if processes or _is_large(config) else None
        graph = ready or load_graph(config, trains)
        places = filled(listed, options.ranks) if listed else [0] * options.ranks
        if trains:
            check_task(graph, config, options.ranks, len(set(places)))
        if options.strategy == "auto":
            flags = [*flags, *_choose(config, graph, places, _threads(config), trains, plan)]
        grid = check_layout(config, options.ranks)
        assert grid is not None
        check_assignment(graph.num_nodes, grid, options)
        if options.hosts:
            return _on_hosts(command, config, _stored(graph, config, folder), folder(), flags, trains)
        if options.ranks == 1:
            _set_threads(config.train.threads)
            return work(single(), graph)
        if options.engine == "threads":
            _set_threads(config.train.threads or 1)
            with during():
                return max(run_threads(work, options.ranks, graph))
        settings = folder() / "run.toml"
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
    """What a plan said of an epoch; 0: nothing. `asked`: whether somebody asked for it."""

    seconds: float = 0.0
    asked: bool = True


def _choose(
    config: RunConfig, graph: Graph | Store, places: Sequence[int], threads: int, trains: bool,
    plan: Foretold | None,
) -> list[str]:  # fmt: skip
    """Settle `--strategy auto`, say what was chosen; the flags that started ranks need beside the config.

    places    the host of each rank      threads   of each, as they are started
    """
    from ..planner.choose import choose

    asked = plan is None or plan.asked
    choice = choose(config, graph, len(places), places, trains, asked, threads)
    for line in choice.lines:
        print(line, file=sys.stderr, flush=True)
    if plan is None:
        return []
    plan.seconds = choice.seconds
    return ["--foretold", repr(choice.seconds)] if choice.seconds else []


def _threads(config: RunConfig) -> int:
    """Of a rank that is to be started."""
    from ..comm.launch import cores

    options = config.parallel
    alone = bool(options.hosts) or options.engine == "threads"
    return config.train.threads or (1 if alone else max(1, cores() // options.ranks))


def _on_hosts(
    command: Sequence[str], config: RunConfig, path: Path, folder: Path, flags: Sequence[str], trains: bool
) -> int:
    """Ranks on several hosts, and on fewer where one is gone; all see the present folder."""
    from ..comm.hosts import launch_on_hosts

    options, restarts = config.parallel, config.train.restarts if trains else 0
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
        out.given = set()
        _loosen(out, ranks)
    return out


def _loosen(config: RunConfig, ranks: int) -> None:
    """Forget sides of a grid that are of another number of ranks, and a strategy that has none for this.

    >>> config = RunConfig()
    >>> config.parallel.strategy, config.parallel.grid = "2d", "2x2"
    >>> _loosen(config, 6)
    >>> config.parallel.strategy, config.parallel.grid
    ('2d', '')
    """
    options = config.parallel
    asked = ("strategy", "grid", "replication", "exchange", "by_host", "move_adjacency")
    if any(f"parallel.{name}" in config.given for name in asked):
        return  # a mistake that is told
    if options.by_host == "on":
        options.by_host = "auto"  # where hosts still have ranks to share
    try:
        check_layout(config, ranks)
    except UserError:
        options.grid, options.replication, options.move_adjacency = "", 0, False
    try:
        check_layout(config, ranks)
    except UserError:
        options.strategy = "halo" if options.exchange == "sparse" else "1d"


def ready_store(
    config: RunConfig, folder: Callable[[], Path] | None = None, trains: bool = True
) -> Store | None:
    """The user's own store, which ranks read as it is, with the split that it brings or that is drawn here.

    Its header is read; of one that brings no split the labels too, once, some at a time: the masks, those
    that `weft.graph.split` draws of the whole graph, go to a file in `folder()`, beside the store. Without a
    folder nothing is drawn. A store without checksums of its chunks is compared with its sections' once.
    None: somebody must load the graph first, as pairs of links are held out of all arcs.
    """
    from ..graph import open_store
    from ..graph.beside import SUFFIX, draw_split, write_beside
    from ..train.tasks import TASKS

    found, entry = _named_store(config), TASKS[config.train.task]
    if found is None or not entry.by_header:
        return None
    if arc_columns(config.data.arc_columns) is not None:
        return None  # a mistake that loading tells
    path, name = found
    store = open_store(path, verify=False)
    if config.train.task == "link":
        if _holds_out(config, trains) and not (store.has("val_pairs") or store.has("test_pairs")):
            if folder is not None:
                _check_held_out(store)
            return None
        draws = False
    else:
        draws = entry.splits and store.has("labels") and not store.has("train_mask")
    if not store.checks_itself:
        store.verify()
    if name is not None:
        store.name = name
    if draws and folder is not None:
        part = draw_split(store, *_shares(config), config.train.seed)
        store = write_beside(store, part, store.name, folder() / f"graph{SUFFIX}")
    return store


def _named_store(config: RunConfig) -> tuple[Path, str | None] | None:
    """The store that the config names, and the name of the data set that it is; None where it is none."""
    from ..graph.loading import locate

    found = locate(config.data.graph, config.data.data or None)
    return None if found is None or found[0].suffix != ".weft" else found


def _is_large(config: RunConfig) -> bool:
    found = _named_store(config)
    return found is not None and found[0].is_file() and found[0].stat().st_size > _LARGE


def _check_held_out(store: Store) -> None:
    """Refuse to hold links out of more arcs than memory has room for: all of them are looked at together."""
    from ..graph.guard import check_fits

    check_fits(
        _HELD_OUT * store.num_arcs, f"{store.path} brings no pairs, and to hold some out of all arcs",
        remedy="Bring them: weft.hold_out and weft.write_store on a machine with more.",
    )  # fmt: skip


def _open_shared(path: Path) -> Store:
    """What a rank was told to read: a store, or masks beside one."""
    from ..graph import open_store
    from ..graph.beside import SUFFIX, open_beside

    return open_beside(path) if path.suffix == SUFFIX else open_store(path, verify=False)


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
        if graph.val_pairs is not None or graph.test_pairs is not None or not _holds_out(config, trains):
            return graph
        return hold_out(graph, config.link.hold_val, config.link.hold_test, config.train.seed)
    if graph.labels is None or graph.train_mask is not None or not TASKS[config.train.task].splits:
        return graph
    return split(graph, *_shares(config), config.train.seed)


def _holds_out(config: RunConfig, trains: bool) -> bool:
    return bool(trains or config.link.hold_val or config.link.hold_test)


def _shares(config: RunConfig) -> tuple[float | int, float | int]:
    """What to train and to validate on: fractions, or counts."""
    shares = (config.data.train_share, config.data.val_share)
    train, val = (int(share) if share >= 1 and share.is_integer() else share for share in shares)
    return train, val


def check_layout(config: RunConfig, ranks: int) -> Grid | None:
    """The grid, or the mistake in it, before anything is loaded; None where it is to be chosen."""
    from ..comm.launch import ENGINES
    from ..parallel import STRATEGIES, check_by_host, check_slices, choose

    options = config.parallel
    if options.engine not in (*ENGINES, "threads"):
        raise unknown("engine", options.engine, (*ENGINES, "threads"))
    if options.hosts and options.engine not in ("auto", "mpi"):
        raise UserError(f"hosts are reached by mpirun, not by {options.engine}. Use --engine mpi.")
    if options.stall_seconds <= 0:
        raise UserError(f"stall_seconds must be above 0, not {options.stall_seconds:g}.")
    check_by_host(options.by_host)
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


def _stored(graph: Graph | Store, config: RunConfig, folder: Callable[[], Path]) -> Path:
    """What ranks read: the user's own store where it is one, masks beside it, or a store of its own."""
    from ..graph import Store, open_store, write_store
    from ..graph.beside import SUFFIX, part_of, write_beside

    if isinstance(graph, Store):
        return graph.beside or graph.path.resolve()
    found = _named_store(config)
    if found is None or config.train.task == "link":  # whose arcs change where pairs are held out
        if found is not None and open_store(found[0], verify=False).has("test_pairs"):
            return found[0].resolve()
        return write_store(graph, folder() / "graph.weft")
    store = open_store(found[0], verify=False)
    if store.has("train_mask") or graph.train_mask is None:
        return found[0].resolve()
    path = folder() / f"graph{SUFFIX}"
    write_beside(store, part_of(graph), graph.name, path)
    return path


def _join(
    config: RunConfig, comm: Communicator, work: Work, trains: bool, plan: Foretold | None = None
) -> int:
    """One of ranks that somebody else started: rank 0 loads the graph and shares it as a store."""
    from ..train.tasks import check_task

    check_layout(config, comm.size)
    hosts = len(set(comm.hosts))
    with ExitStack() as stack:
        folder = functools.cache(lambda: stack.enter_context(_shared_folder(config, hosts)))
        told: dict[str, Any] = {"path": "", "error": "", "chosen": {}, "seconds": 0.0}
        if comm.rank == 0:
            try:
                graph = ready_store(config, folder, trains) or load_graph(config, trains)
                if trains:
                    check_task(graph, config, comm.size, hosts)
                if config.parallel.strategy == "auto":
                    own = Foretold(asked=plan is None or plan.asked)
                    _choose(config, graph, comm.hosts, _own_threads(), trains, own)
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
        status = work(comm, _open_shared(Path(told["path"])))
        comm.barrier()  # nobody still reads the store when it goes
        return status


def _own_threads() -> int:
    """As many as this rank has, as OMP_NUM_THREADS, --threads or whoever bound it to its cores says."""
    import torch

    from ..comm.launch import cores

    return min(torch.get_num_threads(), cores())


def _shared_folder(config: RunConfig, hosts: int) -> AbstractContextManager[Path]:
    """A folder for what all ranks read: of several hosts that of the store, which all of them see."""
    found = _named_store(config)
    if hosts == 1 or found is None:
        return swept_folder()
    place = found[0].resolve().parent
    if not os.access(place, os.W_OK):
        raise UserError(
            f"{found[0]} brings no split, and {place}, which all hosts see, cannot be written. "
            "Bring one: weft convert --split 0.6,0.2."
        )
    return swept_folder(place)


def raise_everywhere(comm: Communicator, mistake: str) -> None:
    """Rank 0's mistake on every rank, each of which calls it; said once. Empty: there is none."""
    if not mistake:
        return
    if comm.rank and "WEFT_RANK" not in os.environ and comm.engine != "threads":
        raise SystemExit(2)  # rank 0 says it; where weft started the ranks, the launcher does
    error = UserError(mistake)
    error.everywhere = True  # type: ignore[attr-defined]
    raise error


def everywhere(comm: Communicator, make: Callable[[], Graph]) -> Graph:
    """What each rank makes for itself, as a graph that it loads: hosts need not share a folder. One rank's
    mistake is everybody's."""
    graph, mistake = None, ""
    try:
        graph = make()
    except UserError as error:
        mistake = str(error)
    raise_everywhere(comm, next((each for each in comm.all_gather_json(mistake) if each), ""))
    assert graph is not None
    return graph


def _set_threads(threads: int) -> None:
    import torch

    if threads:
        torch.set_num_threads(threads)
