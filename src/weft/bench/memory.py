"""Peak memory of a rank over graphs and numbers of ranks, and what of it does not shrink with ranks.

    peak = a + b · n/P + c · n/(r f) + d · held + e · n        by least squares, no coefficient below 0

    held      arcs that the rank holds: arcs/P on rows alone, arcs/(r k) on a grid of r × k × f, all of them
              where every rank has them
    n/(r f)   rows of the slab that a rank writes to before they are added up; n/P where nothing is added up

b and d are bytes that ranks share; e is what every rank has, however many there are. Ranks are processes,
which run one graph after the other: of each run the private memory counts that is above what the rank had
before it.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..comm import Communicator, run_ranks
from ..errors import UserError
from ..graph import hold_out, load, open_store, write_store
from ..memory import trim
from ..parallel import STRATEGIES, choose
from ..train import RunConfig, Trainer

WAYS = ("batches", "link")
"""Beside the strategies: sampled batches, and links; both on 1d's grid."""
TERMS = ("fixed", "n/P", "n/(r f)", "held", "n")
_EVERY = 0.0005
"""Seconds between two looks at the memory."""
_SMALL = "er:nodes=4000,degree=8,features=32,classes=8"
"""Runs first, and does not count: what a rank makes once is then there."""


def bench_memory(
    graphs: list[str], ways: list[str], ranks: list[int], partition: str, hidden: int, epochs: int,
    say: Callable[[str], None] = lambda line: None, engine: str = "mpi",
) -> dict[str, Any]:  # fmt: skip
    """A row per graph, way and number of ranks: bytes of the fullest rank above idle; and a fit."""
    for way in ways:
        if way not in WAYS and (way not in STRATEGIES or way == "grid"):
            known = ", ".join([*(name for name in STRATEGIES if name != "grid"), *WAYS])
            raise UserError(f"unknown way {way!r}. Known: {known}.")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        sizes: list[Any] = []
        jobs: list[tuple[int, str, str, str, int, int]] = []
        for number, graph in enumerate([_SMALL, *graphs]):
            paths = {kind: Path(folder) / f"{number}-{kind}.weft" for kind in ("classes", "link")}
            sizes.append(json.loads(_forked(functools.partial(_write, graph, paths, "link" in ways))))
            for way in ways:
                path = paths["link" if way == "link" else "classes"]
                jobs.append((number, str(path), way, partition, hidden, epochs))
        for count in ranks:
            for way in ways:
                choose("1d" if way in WAYS else way, count)
            found = run_ranks("weft.bench.memory:peaks", count, engine, json.dumps(jobs), threads=1)
            by_job = zip(*map(json.loads, found), strict=True)
            for (number, _, way, *_), mine in zip(jobs, by_job, strict=True):
                if number == 0:
                    continue
                kind = "link" if way == "link" else "classes"
                most = max(mine, key=lambda rank: rank["bytes"])
                rows.append(
                    {"graph": graphs[number - 1], "way": way, "ranks": count, **sizes[number][kind], **most}
                )
                say(f"{graphs[number - 1]}, {way} on {count}: {most['bytes'] / 1e6:.2f} MB")
    return {"rows": rows, "fits": [fit(way, [r for r in rows if r["way"] == way]) for way in ways]}


def fit(way: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Bytes of each term, and the largest and the median error of the fit as shares of what was measured.

    >>> rows = [{"ranks": p, "vertices": n, "slab": n / p, "held": m / p,
    ...          "bytes": 7 + 3 * n / p + 5 * m / p + 2 * n}
    ...         for p in (1, 2, 4) for n, m in ((10, 40), (20, 40), (20, 90))]
    >>> {term: round(x, 3) for term, x in fit("1d", rows)["bytes"].items()}
    {'fixed': 7.0, 'n/P': 3.0, 'n/(r f)': 0.0, 'held': 5.0, 'n': 2.0}
    """
    from scipy.optimize import nnls

    measured = np.array([float(r["bytes"]) for r in rows])
    sizes = np.array(
        [[1, r["vertices"] / r["ranks"], r["slab"], r["held"], r["vertices"]] for r in rows], dtype=float
    )
    if np.allclose(sizes[:, 1], sizes[:, 2]):  # nothing is added up: the one cannot be told from the other
        sizes[:, 2] = 0
    # Every run counts alike: errors are shares of what was measured.
    weighed = sizes / measured[:, None]
    scale = np.abs(weighed).max(0)
    scale[scale == 0] = 1
    found = nnls(weighed / scale, np.ones(len(rows)))[0] / scale
    errors = np.abs(weighed @ found - 1)
    return {
        "way": way, "bytes": dict(zip(TERMS, found.tolist(), strict=True)), "error": float(errors.max()),
        "median_error": float(np.median(errors)),
    }  # fmt: skip


def _write(graph: str, paths: dict[str, Path], links: bool) -> str:
    whole = load(graph)
    made = {"classes": whole} | ({"link": hold_out(whole, 0.01, 0.01, 0)} if links else {})
    for kind, one in made.items():
        write_store(one, paths[kind])
    return json.dumps({k: {"vertices": g.num_nodes, "arcs": g.num_arcs} for k, g in made.items()})


def peaks(comm: Communicator, jobs: str) -> str:
    """Of each run what this rank held above idle, and the sizes that it follows from; all ranks call it."""
    torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])  # the first one imports much
    return json.dumps([_peak(comm, *job[1:]) for job in json.loads(jobs)])


def _peak(
    comm: Communicator, path: str, way: str, partition: str, hidden: int, epochs: int
) -> dict[str, float]:
    config = RunConfig()
    config.model.hidden, config.train.epochs = hidden, epochs
    config.parallel.strategy = "1d" if way in WAYS else way
    config.parallel.partition = partition
    if way == "batches":
        config.batch.batch_size, config.batch.fanouts, config.batch.memory_budget = 512, "5,5", ""
    if way == "link":
        config.train.task, config.link.pair_batch, config.link.hits = "link", 4096, 1
    comm.barrier(phase="bench")
    with watched() as peak:
        held, slab = _train(comm, path, config, all_arcs=way == "batches")
    most = peak()
    gc.collect()
    trim()
    return {"bytes": most, "held": held, "slab": slab}


def _train(comm: Communicator, path: str, config: RunConfig, all_arcs: bool) -> tuple[int, float]:
    trainer = Trainer(open_store(path, verify=False), config, comm)
    for epoch in range(1, config.train.epochs + 1):
        trainer.step(epoch)
    row, _, feature = trainer.A.grid.shape
    store = open_store(path, verify=False)
    return store.num_arcs if all_arcs else trainer.A.arcs, store.num_nodes / (row * feature)


def private_bytes() -> int:
    """Memory of this process that is no page of a file."""
    found = {}
    with open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            key, _, rest = line.partition(":")
            if key in ("RssAnon", "RssShmem"):
                found[key] = 1024 * int(rest.split()[0])
    return sum(found.values())


@contextlib.contextmanager
def watched() -> Iterator[Callable[[], int]]:
    """How far private memory rose above that of the beginning: looked at often, by a thread."""
    idle, most, over = private_bytes(), 0, threading.Event()

    def look() -> None:
        nonlocal most
        while not over.wait(_EVERY):
            most = max(most, private_bytes() - idle)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield lambda: max(most, private_bytes() - idle)
    finally:
        over.set()
        thread.join()


def _forked(work: Callable[[], str]) -> str:
    """What `work` says in a process of its own, which has everything imported and nothing loaded."""
    torch.set_num_threads(1)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(read)
            with os.fdopen(write, "w") as file:
                try:
                    file.write("+" + work())
                    status = 0
                except UserError as error:
                    file.write(f"-{error}")
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read) as file:
        said = file.read()
    os.waitpid(child, 0)
    if not said.startswith("+"):
        raise UserError(said[1:] or "a run ended without a word. Look at what it printed.")
    return said[1:]
