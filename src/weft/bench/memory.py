"""Peak memory of a rank over graphs and numbers of ranks, and what of it does not shrink with ranks.

    peak = a + b · n/P + c · arcs/P + d · n + e · arcs        by least squares, no coefficient below 0

b and c are bytes that ranks share; d and e are what every rank has, however many there are. Ranks are
virtual: P threads of a process that is forked for each run, and whose private memory is divided by P.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..comm import Communicator
from ..comm.threads import run_threads
from ..errors import UserError
from ..graph import hold_out, load, open_store, write_store
from ..parallel import STRATEGIES, choose
from ..train import RunConfig, Trainer

WAYS = ("batches", "link")
"""Beside the strategies: sampled batches, and links; both on 1d's grid."""
TERMS = ("fixed", "n/P", "arcs/P", "n", "arcs")
_ARENA_MAX = -8  # of malloc.h
_EVERY = 0.001
"""Seconds between two looks at the memory."""


def bench_memory(
    graphs: list[str], ways: list[str], ranks: list[int], partition: str, hidden: int, epochs: int,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:  # fmt: skip
    """A row per graph, way and number of ranks: bytes of a rank above idle; and a fit of each way."""
    for way in ways:
        if way not in WAYS and (way not in STRATEGIES or way == "grid"):
            known = ", ".join([*(name for name in STRATEGIES if name != "grid"), *WAYS])
            raise UserError(f"unknown way {way!r}. Known: {known}.")
    torch.optim.Adam([torch.nn.Parameter(torch.zeros(1))])  # the first one imports much: here, once
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for graph in graphs:
            paths = {kind: Path(folder) / f"{kind}.weft" for kind in ("classes", "link")}
            sizes = json.loads(_forked(functools.partial(_write, graph, paths)))
            for way in ways:
                for count in ranks:
                    kind = "link" if way == "link" else "classes"
                    work = functools.partial(_peak, paths[kind], way, count, partition, hidden, epochs)
                    rows.append(
                        {"graph": graph, "way": way, "ranks": count, **sizes[kind],
                         "bytes": json.loads(_forked(work))}
                    )  # fmt: skip
                    say(f"{graph}, {way} on {count}: {rows[-1]['bytes'] / 1e6:.2f} MB a rank")
            for path in paths.values():
                path.unlink()
    return {"rows": rows, "fits": [fit(way, [r for r in rows if r["way"] == way]) for way in ways]}


def fit(way: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Bytes of each term, and the largest error of the fit as a share of what was measured.

    >>> rows = [{"ranks": p, "vertices": n, "arcs": m, "bytes": 7 + 3 * n / p + 5 * m / p + 2 * n}
    ...         for p in (1, 2, 4) for n, m in ((10, 40), (20, 40), (20, 90))]
    >>> {term: round(x, 3) for term, x in fit("1d", rows)["bytes"].items()}
    {'fixed': 7.0, 'n/P': 3.0, 'arcs/P': 5.0, 'n': 2.0, 'arcs': 0.0}
    """
    from scipy.optimize import nnls

    measured = np.array([float(r["bytes"]) for r in rows])
    sizes = np.array(
        [
            [1, r["vertices"] / r["ranks"], r["arcs"] / r["ranks"], r["vertices"], r["arcs"]]
            for r in rows
        ]
    )  # fmt: skip
    # Every run counts alike: errors are shares of what was measured.
    weighed = sizes / measured[:, None]
    scale = np.abs(weighed).max(0)
    found = nnls(weighed / scale, np.ones(len(rows)))[0] / scale
    error = float(np.abs(weighed @ found - 1).max())
    return {"way": way, "bytes": dict(zip(TERMS, found.tolist(), strict=True)), "error": error}


def _write(graph: str, paths: dict[str, Path]) -> str:
    whole = load(graph)
    held = hold_out(whole, 0.01, 0.01, 0)
    for kind, made in (("classes", whole), ("link", held)):
        write_store(made, paths[kind])
    sizes = {"classes": whole, "link": held}
    return json.dumps({k: {"vertices": g.num_nodes, "arcs": g.num_arcs} for k, g in sizes.items()})


def _peak(path: Path, way: str, ranks: int, partition: str, hidden: int, epochs: int) -> str:
    config = RunConfig()
    config.model.hidden, config.train.epochs = hidden, epochs
    config.parallel.strategy = "1d" if way in WAYS else way
    config.parallel.partition = partition
    if way == "batches":
        config.batch.batch_size, config.batch.fanouts, config.batch.memory_budget = 512, "5,5", ""
    if way == "link":
        config.train.task, config.link.pair_batch, config.link.hits = "link", 4096, 1
    choose(config.parallel.strategy, ranks)
    with watched() as peak:
        run_threads(_train, ranks, path, config)
    return json.dumps(peak() / ranks)


def _train(comm: Communicator, path: Path, config: RunConfig) -> None:
    trainer = Trainer(open_store(path, verify=False), config, comm)
    for epoch in range(1, config.train.epochs + 1):
        trainer.step(epoch)


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
            # One heap, as a process has that is one rank: threads would each keep what they freed.
            ctypes.CDLL(None).mallopt(_ARENA_MAX, 1)
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
