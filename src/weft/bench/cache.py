"""Rows kept between batches (`--cache`), over the room for them: words beside none and beside the fewest."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from ..comm import Communicator, Ledger, run_ranks
from ..errors import UserError
from ..graph import open_store, write_store
from ..minibatch import PullAhead
from ..train import RunConfig, Trainer
from ..train.sampled import Sampled
from .pictures import new_figure, save
from .ranks import furnished


@dataclass(frozen=True)
class Task:
    """What is measured."""

    batch_size: int
    fanouts: str
    model: str
    hidden: int
    partition: str


def bench_cache(
    graph: str, features: int, ranks: int, budgets: Sequence[str], task: Task, engine: str
) -> list[dict[str, Any]]:
    """A row for each budget, and one for pull without room: words of an epoch of all ranks.

    fewest   rows that travel at least, with that room and nothing kept when the epoch begins
    over     words of rows and of asking for them over those of the fewest rows
    less     how many times fewer words than pull without room
    """
    if ranks < 2:
        raise UserError("on one rank nothing travels. Use --ranks 2 or more.")
    loaded = furnished(graph, features)
    with tempfile.TemporaryDirectory(prefix="weft-") as folder:
        store = str(write_store(loaded, Path(folder) / "g.weft"))
        size = {"vertices": loaded.num_nodes, "arcs": loaded.num_arcs, "ranks": ranks}
        del loaded
        answers = run_ranks(
            "weft.bench.cache:measure", ranks, engine, store, list(budgets), asdict(task), stall_seconds=600
        )
    rows: list[dict[str, Any]] = []
    for number, budget in enumerate(["", *budgets]):
        each = [answer[number] for answer in answers]
        total = {key: sum(rank[key] for rank in each) for key in each[0] if key != "seconds"}
        words, least = total["pull"] + total["ask"], total["fewest"] * features
        plain = rows[0]["words"] if rows else words
        rows.append({
            **size, "budget": budget or "none", "room": each[0]["room"], "rows": total["pull"] // features,
            "fewest": total["fewest"], "distinct": total["distinct"], "words": words,
            "over": words / max(least, 1), "less": plain / max(words, 1), "batches": each[0]["batches"],
            "seconds": max(rank["seconds"] for rank in each),
        })  # fmt: skip
    return rows


def measure(
    comm: Communicator, store: str, budgets: list[str], task: dict[str, Any]
) -> list[dict[str, float]]:
    """On a rank: the first epoch with each room, without room first; words are as foretold."""
    if comm.engine != "threads":
        torch.set_num_threads(1)
    found = []
    for budget in ["", *budgets]:
        trainer = Trainer(open_store(store, verify=False), _config(task, budget), comm)
        foretold = trainer.foretell(1)
        comm.barrier()
        started = time.perf_counter()
        with Ledger(comm) as books:
            trainer.step(1)
        seconds = (time.perf_counter() - started) / trainer.task.steps
        words = {phase: books.words(phase) for phase in ("pull", "ask")}
        assert words == {phase: foretold.words.get(phase, 0) for phase in words}, "not what was foretold"
        told = {"room": 0, "fewest": words["pull"] // trainer.x.shape[1], "distinct": 0}
        feed = trainer.encoder.feed if isinstance(trainer.encoder, Sampled) else None
        if isinstance(feed, PullAhead):
            told = {"room": feed.room, "fewest": feed.schedule.fetched, "distinct": feed.schedule.distinct}
        found.append({**words, **told, "seconds": seconds, "batches": trainer.task.steps})
    return found


def _config(task: dict[str, Any], budget: str) -> RunConfig:
    config = RunConfig()
    config.model.name, config.model.hidden = task["model"], task["hidden"]
    config.model.layers = task["fanouts"].count(",") + 1
    config.batch.batch_size, config.batch.fanouts = task["batch_size"], task["fanouts"]
    config.batch.feed, config.batch.cache = "pull", budget
    config.parallel.partition = task["partition"]
    return config


def draw_cache(title: str, rows: Sequence[dict[str, Any]], path: str) -> None:
    """Rows that travel over the room for kept ones, with every row once as the floor."""
    kept = rows[1:]
    figure = new_figure(6.4, 4.0)
    panel = figure.subplots()
    where = range(len(rows))
    panel.bar(where, [row["rows"] for row in rows], 0.6, color="#20639b")
    for place, row in enumerate(rows):
        panel.text(place, row["rows"], f"{row['less']:.1f}x", ha="center", va="bottom", fontsize=8)
    if kept:
        panel.axhline(kept[0]["distinct"], color="#b3541e", linewidth=1, label="every row once")
        panel.legend(frameon=False, fontsize=8)
    panel.set_xticks(list(where), [row["budget"] for row in rows])
    panel.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    panel.tick_params(labelsize=8)
    panel.set_xlabel("room of a rank for rows of others", fontsize=8)
    panel.set_ylabel("rows that travel in an epoch, all ranks", fontsize=8)
    figure.suptitle(f"{title}\nabove each bar: how many times fewer words than without room", fontsize=9)
    save(figure, path)
