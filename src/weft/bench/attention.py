"""Attention models over ranks, as the artifact of Besta et al. measures them: strong and weak scaling.

strong   the same graph on every number of ranks
weak     n grows with √P at a fixed density m / n²: the entries of A per rank stay the same
"""

from __future__ import annotations

import csv
import math
import random
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ..comm import Communicator, run_ranks
from ..comm.threads import single
from ..errors import UserError, unknown
from ..graph import Graph, load, open_store, write_store
from ..nn.registry import readers
from ..train import RunConfig, Trainer
from .pictures import check_drawable, new_figure, save
from .ranks import trainable

MODELS = ("gat", "agnn", "va")
DATASETS = ("uniform", "kronecker", "file")


@dataclass(frozen=True)
class Task:
    """One measurement: the arguments of the artifact's script, and how the work lies."""

    model: str = "gat"
    vertices: int = 131_072
    edges: int = 3_600_000
    features: int = 128
    classes: int = 40
    hidden: int = 128
    heads: int = 1
    layers: int = 3
    dataset: str = "kronecker"
    file: str = ""
    seed: int = 0
    type: str = "float32"
    repeat: int = 10
    warmup: int = 2
    inference: bool = False
    ranks: int = 1
    threads: int = 1
    strategy: str = "a-stationary"
    scaling: str = "strong"

    def on(self, ranks: int) -> Task:
        """The same on this many ranks; weak scaling: with n · √P vertices at the same density.

        >>> Task(vertices=1000, edges=5000, scaling="weak", dataset="uniform").on(4).vertices
        2000
        >>> Task(vertices=1000, edges=5000, scaling="weak", dataset="uniform").on(4).edges
        20000
        """
        if self.scaling == "strong":
            return replace(self, ranks=ranks)
        grown = round(self.vertices * math.sqrt(ranks))
        if self.dataset == "kronecker":  # a power of two, rounded down as the artifact does
            grown = 2 ** int(math.log2(grown))
        return replace(
            self, ranks=ranks, vertices=grown, edges=round(self.edges * (grown / self.vertices) ** 2)
        )

    def graph(self) -> Graph:
        """The graph, with random features and labels: the file's own where it brings both."""
        bare = self._bare()
        graph = trainable(bare, self.features, self.classes, self.seed)
        if bare.num_features:
            return graph
        # VA multiplies three rows an arc and sums over arcs: rows of length 1/√degree stay within float32.
        assert graph.features is not None
        length = math.sqrt(graph.num_features / 3 * max(1.0, graph.num_arcs / graph.num_nodes))
        return graph.replace(features=graph.features / length)

    def _bare(self) -> Graph:
        if self.dataset == "file":
            return load(self.file)
        if self.dataset == "uniform":
            degree = self.edges / self.vertices
            return load(f"er:nodes={self.vertices},degree={degree},seed={self.seed},directed=true")
        # Arcs that are drawn twice count once: some more are drawn, so that the density is the one asked for.
        scale = int(math.log2(self.vertices))
        wanted = min(self.edges, 4**scale)
        degree, graph = wanted / 2**scale, None
        for _ in range(4):
            graph = load(f"kronecker:scale={scale},degree={degree},seed={self.seed}")
            if graph.num_arcs >= 0.99 * wanted:
                break
            degree *= wanted / max(graph.num_arcs, 1)
        assert graph is not None
        return graph


_MEASURED = ("median", "low", "high", "deviation", "ratio")


def check_task(task: Task) -> None:
    """Refuse what cannot be measured."""
    if task.model not in MODELS:
        raise unknown("model for this benchmark", task.model, MODELS)
    if task.dataset not in DATASETS:
        raise unknown("dataset", task.dataset, DATASETS)
    if task.type not in ("float32", "float64"):
        raise unknown("type", task.type, ["float32", "float64"])
    if task.scaling not in ("strong", "weak"):
        raise unknown("scaling", task.scaling, ["strong", "weak"])
    if (task.dataset == "file") != bool(task.file):
        raise UserError("--dataset file and --file FILE go together. Give both or neither.")
    if task.dataset == "file" and task.scaling == "weak":
        raise UserError("a file has one size, weak scaling needs many. Use --dataset kronecker or uniform.")
    if task.dataset != "file" and not 1 <= task.edges <= task.vertices**2:
        raise UserError(f"{task.edges} edges do not fit among {task.vertices} vertices. Lower --edges.")


def seconds_of(comm: Communicator, store: str, tasks: list[dict[str, Any]]) -> list[list[float]]:
    """Seconds of every repetition of each task on the slowest rank: of a training step, or of inference.

    The tasks take turns, so that a busy moment of the machine hits all of them.
    """
    torch.set_num_threads(tasks[0]["threads"])
    trainers = [_trainer(comm, store, task) for task in tasks]
    found: list[list[float]] = [[] for _ in tasks]
    for turn in range(tasks[0]["warmup"] + tasks[0]["repeat"]):
        for task, trainer, times in zip(tasks, trainers, found, strict=True):
            comm.barrier()
            started = time.perf_counter()
            if task["inference"]:
                trainer.model.eval()
                with torch.no_grad():
                    trainer.model(trainer.A, trainer.x)
            else:
                trainer.step(turn + 1)
            spent = torch.tensor([time.perf_counter() - started], dtype=torch.float64)
            times.append(float(comm.all_reduce(spent, "max")))
    return [times[tasks[0]["warmup"] :] for times in found]


def _trainer(comm: Communicator, store: str, task: dict[str, Any]) -> Trainer:
    config = RunConfig()
    config.model.name, config.model.layers = task["model"], task["layers"]
    config.model.hidden, config.model.dropout = task["hidden"], 0.0
    if task["model"] in readers("heads"):
        config.model.heads = config.model.output_heads = task["heads"]
    config.train.dtype, config.train.seed = task["type"], task["seed"]
    config.parallel.strategy = task["strategy"] if comm.size > 1 else "1d"
    return Trainer(open_store(store, verify=False), config, comm)


def median_interval(times: list[float], draws: int = 2000) -> tuple[float, float, float]:
    """(median, low, high): the median and its 95 % confidence interval by bootstrap.

    >>> median_interval([1.0, 1.0, 1.0])
    (1.0, 1.0, 1.0)
    """
    chance = random.Random(0)
    medians = sorted(statistics.median(chance.choices(times, k=len(times))) for _ in range(draws))
    return statistics.median(times), medians[int(0.025 * draws)], medians[int(0.975 * draws) - 1]


def bench_attention(tasks: list[Task], engine: str = "mpi") -> list[dict[str, Any]]:
    """A row per task: median seconds, its confidence interval, and the ratio to the first of its model."""
    for task in tasks:
        check_task(task)
    rows: list[dict[str, Any]] = []
    in_turn: dict[Task, list[Task]] = {}
    for task in tasks:  # those that differ in their model alone are measured in turn
        in_turn.setdefault(replace(task, model=""), []).append(task)
    with tempfile.TemporaryDirectory() as folder:
        stores: dict[tuple[Any, ...], tuple[Path, dict[str, int]]] = {}
        for alike in in_turn.values():
            task = alike[0]
            key = (task.dataset, task.vertices, task.edges, task.features, task.seed, task.file)
            if key not in stores:
                graph = task.graph()
                path = write_store(graph, Path(folder) / f"{len(stores)}.weft")
                sizes = {
                    "vertices": graph.num_nodes, "edges": graph.num_arcs, "features": graph.num_features,
                    "classes": graph.num_classes,
                }  # fmt: skip
                stores[key] = path, sizes
            path, sizes = stores[key]
            work = (str(path), [asdict(task) for task in alike])
            if task.ranks == 1:
                measured = seconds_of(single(), *work)
            else:
                measured = run_ranks(seconds_of, task.ranks, engine, *work, stall_seconds=600)[0]
            for task, times in zip(alike, measured, strict=True):
                rows.append(_row(task, sizes, times, rows))
    models = [task.model for task in tasks]
    return sorted(rows, key=lambda row: models.index(row["model"]))


def _row(
    task: Task, sizes: dict[str, int], times: list[float], earlier: list[dict[str, Any]]
) -> dict[str, Any]:
    median, low, high = median_interval(times)
    first = next((row["median"] for row in earlier if row["model"] == task.model), median)
    measured = {
        "heads": task.heads if task.model in readers("heads") else 1,
        "median": median, "low": low, "high": high,
        "deviation": statistics.stdev(times) if len(times) > 1 else 0.0, "ratio": median / first,
    }  # fmt: skip
    return asdict(task) | sizes | measured


def check_csv(path: str) -> None:
    """Refuse a file that rows cannot be appended to, before anything is measured."""
    names = [*asdict(Task()), *_MEASURED]
    try:
        with Path(path).open("a+", newline="") as file:
            file.seek(0)
            found = next(csv.reader(file), names)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}. Check the folder.") from None
    if found != names:
        raise UserError(f"{path} has other columns than this benchmark's. Name another with --csv.")


def write_csv(rows: list[dict[str, Any]], path: str) -> None:
    """Append the rows; a new file gets a line of names first."""
    try:
        fresh = not Path(path).exists() or Path(path).stat().st_size == 0
        with Path(path).open("a", newline="") as file:
            writer = csv.DictWriter(file, fieldnames=list(rows[0]))
            if fresh:
                writer.writeheader()
            writer.writerows(rows)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}. Check the folder.") from None


def draw(rows: list[dict[str, Any]], path: str) -> None:
    """Seconds over ranks with confidence intervals, a line a model; beside it the ideal."""
    check_drawable(path)
    figure = new_figure(6.4, 4.4)
    panel = figure.subplots()
    for number, model in enumerate(dict.fromkeys(row["model"] for row in rows)):
        mine = sorted((r for r in rows if r["model"] == model), key=lambda r: r["ranks"])
        ranks = [r["ranks"] for r in mine]
        median = [r["median"] for r in mine]
        spread = [[r["median"] - r["low"] for r in mine], [r["high"] - r["median"] for r in mine]]
        panel.errorbar(ranks, median, spread, marker="o", capsize=3, color=f"C{number}", label=model)
        weak = mine[0]["scaling"] == "weak"
        ideal = [median[0] if weak else median[0] * ranks[0] / p for p in ranks]
        panel.plot(ranks, ideal, ":", color=f"C{number}", linewidth=1)
    first = rows[0]
    what = "inference" if first["inference"] else "training step"
    panel.set_xscale("log", base=2)
    panel.set_yscale("log")
    panel.set_xticks(sorted({r["ranks"] for r in rows}), [str(p) for p in sorted({r["ranks"] for r in rows})])
    panel.set(
        xlabel="ranks", ylabel=f"seconds of a {what}, median and 95 % interval",
        title=f"{first['scaling']} scaling, {first['dataset']}, {first['features']} features, "
        f"{first['layers']} layers (dotted: ideal)",
    )  # fmt: skip
    panel.grid(alpha=0.3)
    panel.legend()
    save(figure, path)
