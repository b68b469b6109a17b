"""Pull against push-pull, over feature width, hidden width and ranks: bytes, messages, seconds, crossing."""

from __future__ import annotations

import math
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from ..comm import Communicator, Ledger, run_ranks
from ..errors import UserError
from ..graph import Graph, Store, open_store, write_store
from ..parallel import Volume
from ..train import RunConfig, Trainer
from ..train.classes import Classes
from ..train.result import agrees
from ..train.sampled import FEEDS
from .pictures import new_figure, save
from .ranks import furnished


@dataclass(frozen=True)
class Task:
    """What is measured on one number of ranks."""

    hidden: list[int]
    batch_size: int
    fanouts: str
    model: str
    dropout: float
    batches: int
    """Batches a round."""
    rounds: int
    pipeline: bool = False
    partition: str = "random"


def bench_feed(
    graph: str, features: Sequence[int], ranks: Sequence[int], task: Task, engine: str
) -> dict[str, Any]:
    """A row for each width of features, hidden width, number of ranks and feed; and where the two cross."""
    check_ranks(min(ranks))
    loaded = furnished(graph, max(features))
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        stores = {
            width: str(write_store(narrowed(loaded, width), Path(folder) / f"{width}.weft"))
            for width in features
        }
        facts = {"vertices": loaded.num_nodes, "arcs": loaded.num_arcs}
        del loaded
        for size in ranks:
            for width in features:
                answers = run_ranks(
                    "weft.bench.feed:measure", size, engine, stores[width], asdict(task), stall_seconds=600
                )
                rows += _rows(answers, width, task)
    return _result(graph, facts, task, engine, rows)


def join_feed(
    comm: Communicator, graph: str, loaded: Graph, features: Sequence[int], task: Task
) -> dict[str, Any]:
    """The same on ranks that somebody started, which may lie on several hosts; every rank calls it with the
    graph as `furnished` gives it with the largest width."""
    check_ranks(comm.size)
    rows: list[dict[str, Any]] = []
    for width in features:
        mine = _measure(comm, narrowed(loaded, width), asdict(task))
        rows += _rows(comm.all_gather_json(mine), width, task)
    facts = {"vertices": loaded.num_nodes, "arcs": loaded.num_arcs}
    return _result(graph, facts, task, comm.engine, rows)


def check_ranks(ranks: int) -> None:
    """Refuse one rank."""
    if ranks < 2:
        raise UserError("on one rank nothing travels, whatever the feed. Use --ranks 2 or more.")


def narrowed(graph: Graph, width: int) -> Graph:
    """The graph with the first columns of its features."""
    assert graph.features is not None
    return graph.replace(features=graph.features[:, :width].contiguous())


def _result(
    graph: str, facts: dict[str, int], task: Task, engine: str, rows: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "graph": graph, **facts, **asdict(task), "engine": engine, "rows": rows, "crossings": crossings(rows)
    }  # fmt: skip


def _rows(answers: Sequence[list[dict[str, Any]]], width: int, task: Task) -> list[dict[str, Any]]:
    """A row for each hidden width and feed, of what every rank measured."""
    rows = []
    for number, row in enumerate(answers[0]):
        each = [answer[number] for answer in answers]
        assert all(agrees(r["words"], r["predicted"]) for r in each), "not the words that were predicted"
        seconds = statistics.median(max(r["seconds"][k] for r in each) for k in range(task.rounds))
        rows.append({
            "ranks": len(answers), "features": width, "hidden": row["hidden"], "feed": row["feed"],
            "bytes": sum(r["bytes"] for r in each), "messages": sum(r["messages"] for r in each),
            "by_phase": {p: sum(r["words"].get(p, 0) for r in each) for p in
                         dict.fromkeys(p for r in each for p in r["words"])},
            "seconds": seconds, "seeds_per_second": row["seeds"] / seconds,
            "batch_size": row["batch_size"], "batches": row["batches"],
        })  # fmt: skip
    return rows


def measure(comm: Communicator, store: str, task: dict[str, Any]) -> list[dict[str, Any]]:
    """On a rank that was started for it."""
    return _measure(comm, open_store(store, verify=False), task)


def _measure(comm: Communicator, source: Graph | Store, task: dict[str, Any]) -> list[dict[str, Any]]:
    """On a rank: every hidden width by both feeds, taken in turn; bytes and messages of one batch."""
    if comm.engine != "threads":
        torch.set_num_threads(1)
    rows = []
    for hidden in task["hidden"]:
        trainers = {feed: _trainer(comm, source, task, hidden, feed) for feed in FEEDS}
        seconds: dict[str, list[float]] = {feed: [] for feed in FEEDS}
        counted = {}
        for round_ in range(1 + task["rounds"]):  # the first warms up, and is counted
            for feed, trainer in trainers.items():
                work = trainer.task
                assert isinstance(work, Classes)
                batches = min(task["batches"], work.steps)
                foretold = Volume() if round_ else trainer.foretell(1, batches)
                comm.barrier()
                started = time.perf_counter()
                with Ledger(comm) as books:
                    trainer.train(work.epoch(1 + round_, batches))
                if round_:
                    seconds[feed].append((time.perf_counter() - started) / batches)
                else:
                    words = {p: books.words(p) for p in books.phases if books.words(p)}
                    seeds = min(batches * work.batch_size, work.train_ids.numel())
                    counted[feed] = {
                        "words": words, "predicted": foretold.words,
                        "bytes": trainer.bytes_of(words) / batches, "messages": books.messages() / batches,
                        "batches": batches, "batch_size": work.batch_size, "seeds": seeds / batches,
                    }  # fmt: skip
        rows += [{"hidden": hidden, "feed": f, "seconds": seconds[f], **counted[f]} for f in FEEDS]
    return rows


def _trainer(
    comm: Communicator, source: Graph | Store, task: dict[str, Any], hidden: int, feed: str
) -> Trainer:
    config = RunConfig()
    config.model.name, config.model.hidden, config.model.dropout = task["model"], hidden, task["dropout"]
    config.model.layers = task["fanouts"].count(",") + 1
    config.batch.batch_size, config.batch.fanouts = task["batch_size"], task["fanouts"]
    config.batch.feed, config.batch.pipeline = feed, task["pipeline"]
    config.parallel.partition = task["partition"]
    return Trainer(source, config, comm)


def crossings(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each width of features and number of ranks the hidden width from which pull moves fewer bytes.

    Between two measured widths it is interpolated; None where push-pull stays below, 0 where it never is.

    >>> cost = [(16, "pull", 10), (16, "push-pull", 4), (32, "pull", 10), (32, "push-pull", 12)]
    >>> rows = [{"ranks": 2, "features": 64, "hidden": h, "feed": f, "bytes": b} for h, f, b in cost]
    >>> crossings(rows)
    [{'ranks': 2, 'features': 64, 'hidden': 28.0}]
    """
    found = []
    for ranks, features in dict.fromkeys((r["ranks"], r["features"]) for r in rows):
        here = [r for r in rows if (r["ranks"], r["features"]) == (ranks, features)]
        hidden = sorted({r["hidden"] for r in here})
        cost = {(r["hidden"], r["feed"]): r["bytes"] for r in here}
        gap = [cost[h, "push-pull"] - cost[h, "pull"] for h in hidden]
        at: float | None = 0.0 if gap[0] >= 0 else None
        for k in range(1, len(hidden)):
            if gap[k - 1] < 0 <= gap[k]:
                share = -gap[k - 1] / (gap[k] - gap[k - 1])
                at = hidden[k - 1] + share * (hidden[k] - hidden[k - 1])
        found.append({"ranks": ranks, "features": features, "hidden": at})
    return found


def draw_feed(result: dict[str, Any], path: str) -> None:
    """Bytes and time of a batch, against features at the smallest hidden width (the paper's Figure 10) and
    against hidden width at the middle width of features (its Figure 15); a column a number of ranks."""
    rows = result["rows"]
    ranks = sorted({r["ranks"] for r in rows})
    hidden, features = (sorted({r[key] for r in rows}) for key in ("hidden", "features"))
    middle = features[len(features) // 2]
    sides = [("features", features, "hidden", hidden[0]), ("hidden", hidden, "features", middle)]
    units = [("bytes", 1e-6, "MB a batch, all ranks"), ("seconds", 1e3, "ms a batch")]
    lines = [(side, unit) for side in sides for unit in units]
    figure = new_figure(4.2 * len(ranks) + 0.6, 3.4 * len(lines) + 0.4)
    panels = figure.subplots(len(lines), len(ranks), squeeze=False)
    colours = {"pull": "#b3541e", "push-pull": "#20639b"}
    for column, size in enumerate(ranks):
        for line, ((key, values, fixed, at), (what, scale, label)) in enumerate(lines):
            panel = panels[line][column]
            cost = {(r[key], r["feed"]): scale * r[what] for r in rows
                    if (r["ranks"], r[fixed]) == (size, at)}  # fmt: skip
            for place, feed in enumerate(FEEDS):
                where = [k + 0.4 * (place - 0.5) for k in range(len(values))]
                panel.bar(where, [cost[v, feed] for v in values], 0.38, label=feed, color=colours[feed])
            top = panel.get_ylim()[1]
            for k, value in enumerate(values):
                ratio = cost[value, "pull"] / cost[value, "push-pull"]
                highest = max(cost[value, feed] for feed in FEEDS)
                panel.text(k, highest + 0.015 * top, f"{ratio:.1f}x", ha="center", fontsize=8)
            panel.set_ylim(0, top * 1.08)
            panel.set_xticks(range(len(values)), [str(v) for v in values])
            panel.set_xlabel(f"{'features' if key == 'features' else 'hidden width'}, {fixed} {at}")
            if line == 0:
                panel.set_title(f"{size} ranks", fontsize=10)
            if column == 0:
                panel.set_ylabel(label)
    panels[0][0].legend(frameon=False)
    crossing = next(
        (c["hidden"] for c in result["crossings"] if (c["ranks"], c["features"]) == (ranks[-1], middle)), None
    )
    told = ""
    if crossing:
        told = f"; at {middle} features on {ranks[-1]} ranks the bytes cross at hidden {crossing:.0f}"
    figure.suptitle(f"Pull and push-pull; above each pair pull over push-pull{told}", fontsize=11)
    save(figure, path)


def finite(crossing: float | None, most: int) -> str:
    """A crossing as people read it, where hidden widths up to `most` were measured."""
    if crossing is None:
        return f"above {most}"
    return "always" if crossing == 0 else f"{math.ceil(crossing)}"
