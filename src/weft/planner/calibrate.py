"""Measure a machine: kernels on one rank alone, then on all at once, then messages within and between hosts;
at last the trainer's own step (`proof.py`).

Every rank calls `calibrate`; while one measures, the others sleep. All stays within a budget of seconds.
"""

from __future__ import annotations

import datetime
import importlib.util
import itertools
import math
import socket
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import torch

from .. import __version__
from ..comm import Communicator
from ..errors import UserError
from ..graph import Graph
from ..graph.generators import karate, kronecker
from ..graph.guard import machine_bytes
from ..kernels import CSR, Stream, native, relu_dropout_, sample_rows
from ..kernels.attention import Scores, attend
from ..kernels.spmm import multiply
from ..meter import Meter
from ..nn import ModelConfig, Noise, build
from ..parallel import Grid, Operator
from ..partition import partition_graph
from ..train import RunConfig, Trainer
from .cost import Machine, table_of
from .cuts import Shape, cut
from .default import default_profile
from .foretell import foretell_rank
from .plan import make_work
from .profile import OTHERS, Curve, Link, Profile, Proved, Table, tabulate
from .proof import prove
from .record import Kernel

SECONDS = 20.0
_MOST_SECONDS = 600.0
_WIDTHS, _DEGREES, _BYTES = (8, 32, 128), (4, 16, 64), (1 << 18, 1 << 22, 1 << 26)
_WALKED = ((8, 32, 128), (4, 16, 64), (1 << 18, 1 << 22, 1 << 25))
_CHANNELS = ((16, 128), (8, 32), (1 << 18, 1 << 24))
_SIDES = (8, 16, 32, 64, 128, 512)
_FANOUTS = (5, 25)
_ARCS, _NUMBERS = 200_000, 2_000_000
_MESSAGES = tuple(4**k for k in range(3, 13))
_BATCHES = 5
"""Of messages: the quickest counts."""
_SHARES = {"kernels": 0.3, "other": 0.1, "messages": 0.1, "proof": 0.5}
"""Of the budget; where there is no time for the proof, the others have it."""
_PROOF = 5.0
"""Seconds for as many ranks, below which no trials are begun."""
_SHARED = 0.9
"""Of a core, below which ranks are said to share it."""
_BESIDE = 0.15
"""Seconds of each piece of work beside others."""
_PIECES = 200
"""Small products between two messages: some tenths of a millisecond."""


def calibrate(comm: Communicator, seconds: float = SECONDS, base: Profile | None = None) -> Profile:
    """The profile of the host of rank 0; every rank calls it, and every rank gets it.

    base   a profile of the same machine, whose kernels stand: ranks and messages alone are measured
    """
    if not 0.5 <= seconds <= _MOST_SECONDS:
        raise UserError(f"--seconds {seconds:g} is no time to measure in. Use 5 to {_MOST_SECONDS:g}.")
    began = time.perf_counter()
    hosts = _hosts(comm)
    cores = _cores(comm, hosts)
    counts, several = _counts(comm.size, hosts), len(set(hosts))
    given, proof = seconds, seconds * _SHARES["proof"]
    if proof < _PROOF * len(counts):  # no trials: their time is the others'
        given, proof = seconds / (1 - _SHARES["proof"]), 0.0
    alone: dict[str, Any] = {}
    if comm.rank == 0 and base is None:
        alone = _alone(given, cores)
    _sleep_until(comm)
    together = _together(comm, hosts)
    crowd = together["share"][-1] < _SHARED
    links = _links(comm, hosts, cores, crowd, given * _SHARES["messages"] / 2)
    made = {**alone, **together, **links} if comm.rank == 0 else {}
    found: dict[str, Any] = comm.all_gather_json(made)[0]
    profile = _unpack(found) if base is None else _linked(base, found)
    profile = _proved(comm, profile, cores, counts, several, proof)
    return replace(profile, seconds=comm.all_gather_json(time.perf_counter() - began)[0])


def _counts(ranks: int, hosts: Sequence[str]) -> list[int]:
    """Numbers of ranks to be proved: of one host all, half of them and so on down to one; of several all.

    >>> _counts(6, ["a"] * 6), _counts(4, ["a", "a", "b", "b"])
    ([6, 3, 1], [4])
    """
    counts = [ranks]
    while len(set(hosts)) == 1 and counts[-1] > 1:
        counts.append(counts[-1] // 2)
    return counts


def _proved(
    comm: Communicator, profile: Profile, cores: int, counts: Sequence[int], several: int, seconds: float
) -> Profile:
    """With factors for each of these numbers of ranks; without time for trials the profile stays as it is."""
    known = [p for p in profile.proved if (p.hosts > 1) != (several > 1)]
    if not seconds:
        return replace(profile, proved=tuple(known))
    given = torch.get_num_threads()
    for count in counts:
        threads = max(1, cores // count) if several == 1 else 1
        some = comm.split(0 if comm.rank < count else None, comm.rank, "world")
        made = None
        if some is not None:
            torch.set_num_threads(threads)
            # Fewer ranks than were started may have cores of their own: they wait as such ranks do.
            asleep = count > cores if several == 1 else None
            with _waiting(comm, asleep):
                proved = prove(some, profile, several, threads, seconds / len(counts))
            made = proved and proved.as_list()
        _sleep_until(comm)
        if told := comm.all_gather_json(made)[0]:
            known.append(Proved.of(told))
    torch.set_num_threads(given)
    return replace(profile, proved=tuple(known))


def _hosts(comm: Communicator) -> list[str]:
    return comm.all_gather_json(socket.gethostname())


def _cores(comm: Communicator, hosts: Sequence[str]) -> int:
    """Of rank 0's host: those that any of its ranks may use, for mpirun may have bound each to one."""
    from ..comm.launch import host_cores

    told = comm.all_gather_json(sorted(host_cores()))
    return len({core for cores, host in zip(told, hosts, strict=True) if host == hosts[0] for core in cores})


def _link(found: Any) -> Link | None:
    return Link(Curve(tuple(found[0]), tuple(found[1])), found[2]) if found else None


def _linked(base: Profile, made: dict[str, Any]) -> Profile:
    """The same machine with other ranks and messages."""
    ranks = tuple(made["ranks"])
    return replace(
        base, inside=_link(made["inside"]) or base.inside, between=_link(made["between"]),
        crowded=_link(made["crowded"]), slowdown=Curve(ranks, tuple(made["slowdown"]["walk"])),
        share=Curve(ranks, tuple(made["share"])),
        others={
            kind: (up, Curve(ranks, tuple(made["slowdown"][kind]))) for kind, (up, _) in base.others.items()
        },
    )  # fmt: skip


def _unpack(made: dict[str, Any]) -> Profile:
    kernels = {
        name: Table(tuple(names), tuple(map(tuple, points)), tuple(values))
        for name, (names, points, values) in made["kernels"].items()
    }
    ranks = tuple(made["ranks"])
    slowdown = {kind: Curve(ranks, tuple(found)) for kind, found in made["slowdown"].items()}
    speedup = {kind: Curve(*map(tuple, found)) for kind, found in made["speedup"].items()}
    # On one rank nobody is there to be asked: the default's figures.
    inside = _link(made["inside"]) or default_profile().inside
    return Profile(
        made["host"], made["cores"], made["isa"], made["date"], __version__, made["memory"], made["idle"],
        made["bandwidth"], made["call"], inside, _link(made["between"]), kernels,
        speedup["walk"], slowdown["walk"], made["partition"], Curve(ranks, tuple(made["share"])),
        _link(made["crowded"]), made["update"], {kind: (speedup[kind], slowdown[kind]) for kind in OTHERS},
    )  # fmt: skip


# One rank alone.


def _alone(seconds: float, cores: int) -> dict[str, Any]:
    from ..comm.launch import cores as own_cores
    from ..train.result import peak_rss_bytes

    given = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        # First: what is resident then is what a rank needs that trains next to nothing.
        call, update = _call(seconds * _SHARES["other"] / 6)
        idle = peak_rss_bytes()
        walks = [math.prod(map(len, axes)) for axes in (_WALKED, _CHANNELS)]
        points = len(_WIDTHS) * len(_DEGREES) * len(_BYTES) + 2 * sum(walks) + len(_SIDES) ** 2
        each = seconds * _SHARES["kernels"] / points
        tables = _kernels(each)
        rest = seconds * _SHARES["other"] / 6
        bandwidth = _bandwidth(rest)
        partition = _partition()
        speedup = _speedup(rest, own_cores())
    finally:
        torch.set_num_threads(given)
    return {
        "host": socket.gethostname(), "cores": cores,
        "isa": native.extension.isa() if native.extension else "torch", "idle": idle,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(), "memory": machine_bytes(),
        "bandwidth": bandwidth, "call": call, "update": update, "partition": partition, "speedup": speedup,
        "kernels": {name: (t.names, t.points, t.values) for name, t in tables.items()},
    }  # fmt: skip


def _kernels(each: float) -> dict[str, Table]:
    axes = ("width", "degree", "bytes")
    tables = {"spmm": tabulate(axes, (_WIDTHS, _DEGREES, _BYTES), lambda w, d, size: _spmm(w, d, size, each))}
    for model, front, back, points in (
        ("gat", "attend", "attend_back", _WALKED), ("gatv2", "channel", "channel_back", _CHANNELS),
    ):  # fmt: skip
        # Both walks of a point are measured together, in the order of the table.
        found = [_walks(model, w, d, size, 2 * each) for w, d, size in itertools.product(*points)]
        for name in (front, back):
            values = iter(found)
            tables[name] = tabulate(axes, points, lambda *at, v=values, name=name: next(v)[name])
    sides = ("inputs", "outputs"), (_SIDES, _SIDES)
    tables["dense"] = tabulate(*sides, lambda a, b: _dense(int(a), int(b), False, each / 2))
    tables["outer"] = tabulate(*sides, lambda a, b: _dense(int(a), int(b), True, each / 2))
    tables["dropout"] = tabulate(("width",), ((8, 64),), lambda width: _dropout(int(width), each))
    tables["sample"] = tabulate(("fanout",), (_FANOUTS,), lambda fanout: _sample(int(fanout), each))
    return tables


def _quickest(call: Callable[[], object], seconds: float) -> float:
    """The shortest of calls that fit into so many seconds, two at least: others disturb, nobody helps."""
    call()
    end, best, done = time.perf_counter() + seconds, float("inf"), 0
    while done < 2 or (time.perf_counter() < end and done < 1000):
        start = time.perf_counter()
        call()
        best, done = min(best, time.perf_counter() - start), done + 1
    return best


def _matrix(width: float, degree: float, size: float) -> CSR:
    """Random entries: rows of a degree over so many columns that x takes `size` bytes.

    Columns are drawn as u² of an even u, scattered: some are read often, as in most graphs.
    """
    columns = max(64, int(size / 4 / width))
    rows = max(16, min(columns, int(_ARCS / degree)))
    drawn = torch.Generator().manual_seed(1)
    often = (torch.rand(rows * int(degree), generator=drawn).square() * columns).long().clamp(max=columns - 1)
    indices = torch.randperm(columns, generator=drawn)[often].int()
    return CSR(torch.arange(0, rows + 1) * int(degree), indices, None, (rows, columns))


def _spmm(width: float, degree: float, size: float, seconds: float) -> float:
    a = _matrix(width, degree, size)
    x = torch.ones(a.shape[1], int(width))
    return _quickest(lambda: multiply(a, x, None), seconds) / a.arcs


class _Walks(Meter):
    """Seconds an arc by table."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, list[float]] = {}
        self._step: Kernel | None = None

    def begin(self, kind: str, name: str, operands: Sequence[Any]) -> None:
        matrix = next((x for x in operands if isinstance(x, CSR)), None)
        self._step = None if matrix is None else Kernel(kind, name, *matrix.shape, matrix.arcs, 0)

    def add(self, kind: str, start: float, seconds: float) -> None:
        if self._step is not None:
            self.found.setdefault(table_of(self._step), []).append(seconds / max(1, self._step.arcs))


def _walks(model: str, width: float, degree: float, size: float, seconds: float) -> dict[str, float]:
    """Seconds an arc of the kernels of an attention layer, forward and back."""
    a = _matrix(width, degree, size)
    n = min(a.shape)
    square = CSR(a.indptr[: n + 1], a.indices[: int(a.indptr[n])] % n, None, (n, n))
    layer = build(ModelConfig(model, layers=1), int(width), int(width), seed=0)
    A = Operator.local(square)
    x = torch.ones(n, int(width), requires_grad=True)

    def step() -> _Walks:
        walks = _Walks()
        with walks:
            layer(A, x, Noise(0, 0)).sum().backward()
        return walks

    step()
    end, best = time.perf_counter() + seconds, dict[str, float]()
    while not best or time.perf_counter() < end:
        for name, each in step().found.items():
            best[name] = min(best.get(name, float("inf")), sum(each))
    if model == "gat":
        return {"attend": best["attend"], "attend_back": best.get("attend_back", 2 * best["attend"])}
    front = best.get("channel", best["attend"])
    return {"channel": front, "channel_back": best.get("channel_back", 2 * front)}


def _dense(inputs: int, outputs: int, across: bool, seconds: float) -> float:
    """Seconds a multiply-add of h W, or across of hᵀ dy, whose inner dim is long.

    h and dy are larger than caches, as those of a graph are.
    """
    rows = max(256, _NUMBERS // (inputs + outputs))
    h, w, dy = torch.ones(rows, inputs), torch.ones(inputs, outputs), torch.ones(rows, outputs)
    call = (lambda: torch.mm(h.t(), dy, out=w)) if across else (lambda: torch.mm(h, w, out=dy))
    return _quickest(call, seconds) / (rows * inputs * outputs)


def _dropout(width: int, seconds: float) -> float:
    x, stream = torch.ones(1 << 17 >> width.bit_length(), width), Stream(0, 0, 0)
    return _quickest(lambda: relu_dropout_(x, 0.5, stream), seconds) / x.numel()


def _sample(fanout: int, seconds: float) -> float:
    graph = _graph()
    seeds = torch.arange(0, graph.num_nodes, 3, dtype=graph.indices.dtype)

    def draw() -> int:
        return int(sample_rows(graph.indptr, graph.indices, seeds, seeds, fanout, 7).neighbours.numel())

    return _quickest(draw, seconds) / max(1, draw())


def _graph() -> Graph:
    return kronecker(scale=11, degree=16)


def _bandwidth(seconds: float) -> float:
    x = torch.ones(1 << 23)
    y = torch.empty_like(x)
    return 2 * x.nbytes / _quickest(lambda: torch.mul(x, 2.0, out=y), seconds)


def _call(seconds: float) -> tuple[float, float]:
    """(what an operation costs however small it is, what a step costs beside): steps of two models on 34
    vertices, one of few operations and one of many."""
    (few, short), (many, long) = (_small_step(model, seconds / 2) for model in ("gcn", "gat"))
    each = max(1e-6, (long - short) / (many - few))
    return each, max(0.0, short - few * each)


def _small_step(model: str, seconds: float) -> tuple[int, float]:
    """(operations, seconds) of a step on next to nothing."""
    config, graph = RunConfig(), karate()
    config.model.name, config.model.hidden = model, 4
    trainer = Trainer(graph, config)
    trainer.step(1)
    trainer.predict()
    taken = _quickest(lambda: trainer.step(2), seconds)
    shape = Shape.of(graph)
    work = make_work(config, shape)
    found = cut(shape, Grid(1), "block", work.model.adjacency)
    return foretell_rank(work, found, "dense", 0, Machine(default_profile(), 1)).operations, taken


def _partition() -> dict[str, float]:
    """Seconds an arc; those that are not installed are left out."""
    graph, found = _graph(), {}
    for method, package in (("metis", "pymetis"), ("hypergraph", "mtkahypar")):
        if importlib.util.find_spec(package) is not None:
            partition_graph(karate(), 4, method)  # its library is loaded before the clock runs
            start = time.perf_counter()
            partition_graph(graph, 4, method)
            found[method] = (time.perf_counter() - start) / graph.num_arcs
    return found


def _workloads() -> dict[str, Callable[[], object]]:
    """A piece of each kind of work, as large as those of graphs: a walk, attention, a dense product, a plain
    pass."""
    a = _matrix(64, 16, 1 << 24)
    x = torch.ones(a.shape[1], 64)
    scores = Scores("additive", row=torch.zeros(a.shape[0], 1), column=torch.zeros(a.shape[1], 1))
    h, w = torch.ones(_ARCS // 8, 64), torch.ones(64, 64)
    y, z = torch.empty_like(h), torch.empty_like(h)
    return {
        "walk": lambda: multiply(a, x, None), "attend": lambda: attend(a, scores, x, 64),
        "dense": lambda: torch.mm(h, w, out=y), "pass": lambda: torch.mul(h, 2.0, out=z),
    }  # fmt: skip


def _speedup(seconds: float, cores: int) -> dict[str, tuple[list[float], list[float]]]:
    """Kind of work → (threads, how much faster)."""
    counts = [c for c in (1, 2, 4, 8, 16, 32, 64, 128) if c < cores] + [cores]
    found, pieces = {}, _workloads()
    for kind, call in pieces.items():
        taken = []
        for count in counts:
            torch.set_num_threads(count)
            taken.append(_quickest(call, seconds / len(counts) / len(pieces)))
        found[kind] = [float(c) for c in counts], [taken[0] / t for t in taken]
    torch.set_num_threads(1)
    return found


# All ranks.


def _sleep_until(comm: Communicator) -> None:
    """Until rank 0 is here: asking now and then leaves it the cores."""
    request = comm.ibroadcast(torch.zeros(1, device="cpu"), 0, phase="plan")
    while not request.test():
        time.sleep(0.01)


def _place(rank: int, hosts: Sequence[str]) -> int:
    """Which of its host's ranks it is.

    >>> [_place(rank, ["a", "a", "b"]) for rank in range(3)]
    [0, 1, 0]
    """
    return list(hosts[:rank]).count(hosts[rank])


def _together(comm: Communicator, hosts: list[str]) -> dict[str, Any]:
    """While so many ranks of every host work: core time of each over that of one alone, by kind of work, and
    how much of a core it gets. Cores that hosts share show here, too."""
    given = torch.get_num_threads()
    torch.set_num_threads(1)
    own, place = hosts.count(hosts[0]), _place(comm.rank, hosts)
    counts = [k for k in (1, 2, 4, 8, 16, 32, 64) if k < own] + [own]
    shares: dict[int, list[float]] = {count: [] for count in counts}
    slower: dict[str, list[float]] = {}
    for kind, call in _workloads().items():
        once = _quickest(call, 0.05) if comm.rank == 0 else 0.0
        # As many for everybody: who ends early leaves the others too much room.
        repeats = int(comm.all_gather_json(max(3, round(_BESIDE / once)) if once else 0)[0])
        alone = _cpu(call, repeats)[0] if comm.rank == 0 else 0.0
        _sleep_until(comm)
        first, slower[kind] = float(comm.all_gather_json(alone)[0]), []
        for count in counts:
            comm.barrier()
            taken = _cpu(call, repeats) if place < count else (0.0, 0.0)
            _sleep_until(comm)
            told = [t for t, host in zip(comm.all_gather_json(taken), hosts, strict=True) if host == hosts[0]]
            working = [(cpu, wall) for cpu, wall in told if wall]
            slower[kind].append(max(1.0, statistics.fmean(cpu for cpu, _ in working) / first))
            shares[count].append(min(1.0, statistics.fmean(cpu / wall for cpu, wall in working)))
    torch.set_num_threads(given)
    share = [statistics.median(shares[count]) for count in counts]
    return {"ranks": [float(count) for count in counts], "slowdown": slower, "share": share}


def _cpu(call: Callable[[], object], repeats: int) -> tuple[float, float]:
    """(core time, wall time) of a call."""
    call()
    began, start = time.process_time(), time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.process_time() - began) / repeats, (time.perf_counter() - start) / repeats


def _links(comm: Communicator, hosts: list[str], cores: int, crowd: bool, seconds: float) -> dict[str, Any]:
    """[bytes, seconds, overlap] of messages within a host, on cores of one's own and on shared ones, and
    between hosts. All rings of a kind are measured at once, as exchanges use them."""
    place, index = _place(comm.rank, hosts), sorted(set(hosts)).index(hosts[comm.rank])
    fewest = min(hosts.count(host) for host in hosts)
    own = hosts[comm.rank] == hosts[0]
    inside = 0 if own and place < min(cores, hosts.count(hosts[0])) else None
    found = {"inside": _ring(comm, inside, seconds, asleep=False)}
    found["crowded"] = _ring(comm, index, seconds, asleep=True) if crowd else None
    between = _ring(comm, place if place < fewest else None, seconds, asleep=None)
    if between is not None:  # so many ranks of a host shared its link
        between[0] = [size * fewest for size in between[0]]
    found["between"] = between if len(set(hosts)) > 1 else None
    return found


def _ring(comm: Communicator, color: int | None, seconds: float, asleep: bool | None) -> Any:
    """What the ring of rank 0 found; those that are in none sleep meanwhile."""
    ring = comm.split(color, comm.rank, "ring")
    rings = comm.split(None if ring is None or ring.size < 2 else 0, comm.rank, "rings")
    found = None
    if ring is not None and rings is not None:
        with _waiting(comm, asleep):
            found = _messages(ring, rings, seconds)
    _sleep_until(comm)
    return comm.all_gather_json(found)[0]


def _waiting(comm: Communicator, asleep: bool | None) -> AbstractContextManager[None]:
    if asleep is None or comm.engine != "mpi":
        return nullcontext()
    from ..comm.mpi import waiting

    return waiting(asleep)


def _messages(ring: Communicator, rings: Communicator, seconds: float) -> list[Any]:
    """Messages around a ring: alone, and between pieces of work, after which nobody comes at once.

    Each measurement begins on all ranks of `rings` and is over when the last of them is done: of rings that
    share a link one may be served before another, all of their bytes take what the link takes.
    """
    after, before = (ring.rank + 1) % ring.size, (ring.rank - 1) % ring.size
    taken: list[float] = []
    each = seconds / (len(_MESSAGES) + 1)
    sizes: list[float] = []
    work = torch.ones(1 << 12)

    def compute(pieces: int = _PIECES) -> None:
        for _ in range(pieces):
            work.mul_(1.0)

    def told(call: Callable[[], object], repeats: int) -> float:
        return _agree(rings, _timed(call, repeats))

    turns = max(2, min(50, int(each / 4 / told(compute, 5))))
    alone = statistics.median(told(compute, turns) for _ in range(_BATCHES))
    for size in _MESSAGES:
        give, take = torch.ones(size // 4), torch.empty(size // 4)
        swap = lambda: ring.iswap([give], after, [take], before).wait()  # noqa: B023, E731

        def amid() -> None:
            compute()
            swap()  # noqa: B023

        once = told(swap, 2)
        if taken and once > 4 * each:  # a slow link: the last two points say how it goes on
            break
        repeats = max(1, min(200, int(each / 2 / max(once, 1e-7) / _BATCHES)))
        quick = min(told(swap, repeats) for _ in range(_BATCHES))
        many = max(1, min(turns, int(each / 2 / (once + alone) / _BATCHES)))
        both = statistics.median(told(amid, many) for _ in range(_BATCHES))
        taken.append(max(quick, both - alone))
        sizes.append(float(size))

    def beside(call: Callable[[], object]) -> float:
        return min(told(call, 1) for _ in range(_BATCHES))

    return [sizes, taken, _overlap(ring, int(sizes[-1]), taken[-1], compute, alone, beside)]


def _timed(call: Callable[[], object], repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def _agree(rings: Communicator, seconds: float) -> float:
    """The slowest, known to all."""
    return float(rings.all_reduce(torch.tensor([seconds], dtype=torch.float64, device="cpu"), "max"))


def _overlap(
    ring: Communicator, size: int, taken: float, compute: Callable[[int], None], piece: float,
    told: Callable[[Callable[[], object]], float],
) -> float:  # fmt: skip
    """The share of a message that is over when work as long as it is over."""
    after, before = (ring.rank + 1) % ring.size, (ring.rank - 1) % ring.size
    give, take = torch.ones(size // 4), torch.empty(size // 4)
    pieces = max(1, round(_PIECES * taken / piece))

    def both() -> None:
        request = ring.iswap([give], after, [take], before)
        compute(pieces)
        request.wait()

    work, beside = told(lambda: compute(pieces)), told(both)
    return min(1.0, max(0.0, (taken + work - beside) / max(1e-9, min(taken, work))))
