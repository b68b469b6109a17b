"""Inference with saved weights: distributed, full graph, written by vertex."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..comm import Communicator
from ..errors import UserError
from ..graph import Graph, Store
from ..graph.graph import check_pairs
from ..graph.guard import about
from ..graph.normalise import rows_to_one
from ..graph.readers.columns import read_columns
from ..graph.readers.files import PARSING, map_array, read_bytes
from ..kernels.sampling import ALL
from ..minibatch import Sampler, Topology, reads_of
from ..minibatch.layerwise import fill, infer
from ..nn import Model, build
from ..nn.registry import check_model, model_widths
from ..parallel import Rows, Shared
from ..parallel.blocks import even_sizes, starts
from ..parallel.source import read_vertices
from .checkpoint import Checkpoint, Torn, checkpoints
from .config import RunConfig, load_toml
from .gradients import finite
from .inputs import settled_norm
from .links import Links, embedding_width
from .rows import read_rows, write_rows
from .run import refuse_pipes
from .state import EMBEDDINGS
from .tasks import TASKS, check_task_options
from .trainer import Trainer

_ROWS = 1 << 16
"""Rows of features that are looked at together."""


@dataclass(frozen=True)
class SavedRun:
    """A run folder as `weft train` left it: ended, or with the checkpoints of a run that did not end."""

    path: Path
    config: RunConfig
    widths: list[int]
    weights: dict[str, Tensor]
    checkpoint: Checkpoint | None = None
    """Where the weights are from, if the run did not end."""

    def note(self) -> str:
        """For people: whose weights these are; empty where the run has ended."""
        if self.checkpoint is None:
            return ""
        facts, kept = self.checkpoint.facts, bool(self.checkpoint.names("best/"))
        step = f" and {facts['step']} updates" if facts["step"] else ""
        epoch = (
            f"epoch {facts['best_epoch']}, the best so far" if kept else f"{facts['epoch'] - 1} epochs{step}"
        )
        return f"{self.path} did not end; these are the weights of {epoch}, from {self.checkpoint.path}"


def read_run(path: Path) -> SavedRun:
    """The config and weights of a run; one line says what is missing or does not fit."""
    if not (path / "config.toml").is_file():
        raise UserError(f"{path} is not a run folder: it has no config.toml. Give one that weft train made.")
    refuse_pipes(path)
    config = RunConfig()
    load_toml(config, path / "config.toml")
    checkpoint = None
    try:
        if (path / "weights.pt").exists() and (path / "summary.json").exists():
            facts = json.loads((path / "summary.json").read_text())
            with PARSING, warnings.catch_warnings():
                warnings.simplefilter("error")  # torch warns of pickles that it did not write
                weights = torch.load(path / "weights.pt", weights_only=True)
        else:
            checkpoint = _last_good(path)
            facts, weights = checkpoint.facts, _weights_of(checkpoint)
        widths = [int(w) for w in facts["widths"]]
        _settle_norm(config, facts.get("feature_norm"))
    except UserError:
        raise
    except FileNotFoundError as error:
        raise UserError(
            f"{path} has no {Path(error.filename).name}: that run did not end. "
            f"Go on with it: weft train --resume {path}."
        ) from None
    except Exception:  # what is damaged can raise nearly anything
        raise UserError(f"the weights or summary in {path} are damaged. Train again.") from None
    if not isinstance(weights, dict) or not all(isinstance(w, Tensor) for w in weights.values()):
        raise UserError(f"{path / 'weights.pt'} does not hold a dict of tensors. Train again.")
    if not widths or min(widths) < 1 or max(widths) >= 1 << 31:
        raise UserError(f"{path / 'summary.json'} has the widths {widths[:4]}. Train again.")
    _check_sizes(config, widths, weights, path)
    for name, w in weights.items():
        if w.is_floating_point() and not finite(w):
            raise UserError(f"the weight {name} in {path} is not finite. Train again, with a lower --lr.")
    return SavedRun(path, config, widths, weights, checkpoint)


def _settle_norm(config: RunConfig, settled: object) -> None:
    """Scale the features of any graph as the run scaled its own; `auto` would look at each graph anew."""
    if config.data.feature_norm == "auto" and settled in ("row", "none"):  # older runs did not write it down
        config.data.feature_norm = str(settled)


def _check_sizes(config: RunConfig, widths: list[int], weights: dict[str, Tensor], path: Path) -> None:
    """A model no larger than its weights, before any memory is taken for it."""
    check_model(config.model)
    largest = max((size for w in weights.values() for size in w.shape), default=0)
    few = config.model.layers <= 1000 + len(weights)
    if not few or max(model_widths(config.model, widths[0], widths[-1])[1:]) > largest:
        raise UserError(
            f"the weights in {path} are of another model than its config and summary. Train again."
        )


def _last_good(path: Path) -> Checkpoint:
    """The newest checkpoint of a run that did not end whose files are what was written."""
    for folder in checkpoints(path):
        with contextlib.suppress(Torn):
            found = Checkpoint(folder)
            found.verify()
            return found
    raise UserError(
        f"{path} has no weights yet: that run did not end. Go on with it: weft train --resume {path}."
    )


def _weights_of(found: Checkpoint) -> dict[str, Tensor]:
    """The best weights of a checkpoint, or the present ones where it has no best."""
    prefixes = ("best/",) if found.names("best/") else ("weights/", "buffers/")
    names = [(prefix, name) for prefix in prefixes for name in found.names(prefix)]
    return {
        name.removeprefix(prefix): torch.from_numpy(found.read(name))
        for prefix, name in names
        if not name.endswith(f"/{EMBEDDINGS}")
    }


def restore(run: SavedRun, features: int) -> Model:
    """The model of a run with its weights; a UserError where graph, config and weights do not fit."""
    check_task_options(run.config)
    _check_features(run, features)
    model = build(run.config.model, run.widths[0], run.widths[-1]).to(getattr(torch, run.config.train.dtype))
    return _load(model, run).eval()


def _check_features(run: SavedRun, features: int) -> None:
    if features != run.widths[0]:
        raise UserError(
            f"{run.path} was trained on {run.widths[0]} features, the graph has {features}. Use its graph."
        )


def _load(model: Model, run: SavedRun) -> Model:
    wanted = {name: tuple(p.shape) for name, p in model.state_dict().items()}
    given = {name: tuple(p.shape) for name, p in run.weights.items()}
    if wanted != given:
        odd = next(name for name in [*wanted, *given] if wanted.get(name) != given.get(name))
        raise UserError(
            f"the weights in {run.path} are of another model than its config: {odd} is "
            f"{given.get(odd, 'missing')}, not {wanted.get(odd, 'known')}. Train again."
        )
    model.load_state_dict(run.weights)
    return model


def check_fit(run: SavedRun, source: Graph | Store) -> None:
    """Refuse a graph that the run's weights are not for, before anything is made."""
    if run.config.train.task == "link":
        _check_features(run, source.num_features + embedding_width(source, run.config))
    else:
        restore(run, source.num_features)


def predict(
    source: Graph | Store, run: SavedRun, comm: Communicator, out: Path, memory: int = 0
) -> list[Path]:
    """Write `embeddings.npy` [n, hidden] and the task's predictions by vertex; every rank its own rows.

    Of classes these are `classes.npy`. Where the graph came with vertex ids of its own, `ids.npy` has the id
    of every row. With `memory`, layer by layer: rows lie on disk, and a step takes at most so many bytes.
    """
    model = restore(run, source.num_features)
    if memory:
        return _layer_by_layer(source, run, model, comm, out, memory)
    trainer = Trainer(source, run.config, comm, judged=False, model=model)
    layout = trainer.A.layout
    model.eval()
    with torch.no_grad():
        embedding, logits = model.embed(trainer.A, trainer.x)
    predicted = trainer.task.predictions(logits, source, layout)
    return _write(source, layout, {"embeddings.npy": embedding, **predicted}, out)


def _layer_by_layer(
    source: Graph | Store, run: SavedRun, model: Model, comm: Communicator, out: Path, memory: int
) -> list[Path]:
    """The same rows, some vertices at a time (`weft.minibatch.layerwise`)."""
    config, dtype = run.config, getattr(torch, run.config.train.dtype)
    by_rows = dataclasses.replace(config.parallel, strategy="halo", grid="", replication=0, exchange="")
    shared = Shared(source, comm, by_rows, config.train.seed)
    layout, owners = shared.layout, shared.owners
    parts = None if comm.size == 1 else [comm.rank]
    arcs = Topology.read(source, reads_of(model), comm, shared.blocks, parts, dtype)

    def read(piece: slice) -> Tensor:
        found = read_vertices(source, layout.ids[piece], "features")
        assert found is not None
        return found

    count, width = layout.ids.numel(), source.num_features
    raw = fill(count, width, dtype, read)
    pieces = (raw.rows[begin : begin + _ROWS] for begin in range(0, count, _ROWS))
    if settled_norm(pieces, config.data.feature_norm, comm) == "row":
        raw = fill(count, width, dtype, lambda piece: rows_to_one(read(piece).to(dtype)))
    raw.rest()
    task = TASKS[config.train.task].make(config)
    embedding, result = infer(
        model,
        raw,
        lambda hops: Sampler(arcs, [ALL] * hops, 0, owners=owners, comm=comm),
        owners,
        comm,
        memory,
    )
    predicted = task.predictions(result.rows, source, layout)
    return _write(source, layout, {"embeddings.npy": embedding.rows, **predicted}, out)


def _write(source: Graph | Store, layout: Rows, files: dict[str, Tensor], out: Path) -> list[Path]:
    """Everybody's rows into one file each, and the vertices' own ids where the graph brought some."""
    ids = layout.read(source, "ids")
    if ids is not None:
        files["ids.npy"] = ids
    for name, rows in files.items():
        write_rows(out / name, rows, layout)
    return [out / name for name in files]


def restore_links(source: Graph | Store, run: SavedRun, comm: Communicator) -> Trainer:
    """The trainer of a run that predicts links, with the run's weights and embeddings."""
    trainer = Trainer(source, run.config, comm, judged=False)
    _load(trainer.model, run)
    width = trainer.task.learned_width
    learned = _learned(run, trainer.A.layout, width) if width else None
    trainer.encoder.load(trainer.model, learned)
    return trainer


def _learned(run: SavedRun, layout: Rows, width: int) -> Tensor:
    """The learned features of this rank's vertices. [n_own, width]"""
    found = run.checkpoint
    if found is None:
        return read_rows(run.path / "embeddings.npy", layout, width)
    name = f"best/{EMBEDDINGS}" if found.names("best/") else f"weights/{EMBEDDINGS}"
    if found.shape(name) != (layout.count, width):
        raise UserError(
            f"{run.path} has embeddings of {found.shape(name)[0]} vertices, the graph has {layout.count}. "
            "Use its graph."
        )
    return torch.from_numpy(found.read(name, layout.ids.numpy()))


def wanted_pairs(trainer: Trainer, source: Graph | Store, path: Path) -> Tensor:
    """The pairs of a file, as the graph numbers its vertices; every rank calls it. [m, 2] int64."""
    layout = trainer.A.layout
    ids = layout.read(source, "ids")
    return read_pairs(path, layout.count, None if ids is None else layout.collect(ids))


def predict_links(trainer: Trainer, source: Graph | Store, wanted: Tensor | None, out: Path) -> list[Path]:
    """Write `embeddings.npy` [n, hidden] by vertex and, of wanted pairs, `scores.npy` [m] in their order.

    A score is a logit: σ(score) is the chance that the pair is a link. Messages run over the arcs that the
    run trained on; what was held out stays out.
    """
    comm, task = trainer.comm, trainer.task
    assert isinstance(task, Links)
    written = _write(source, trainer.A.layout, {"embeddings.npy": trainer.embed()}, out)
    if wanted is not None:
        sizes = even_sizes(len(wanted), comm.size)
        first = starts(sizes)[comm.rank]
        mine = task.score(wanted[first : first + sizes[comm.rank]], trainer.encode, trainer.model)
        scores = comm.all_gather(mine, sizes, phase="collect")
        if comm.rank == 0:
            np.save(out / "scores.npy", scores.numpy())
        written.append(out / "scores.npy")
    return written


def read_pairs(path: Path, n: int, ids: Tensor | None = None) -> Tensor:
    """Pairs of vertices from a .npy array [m, 2] or a text file, two ids a line. [m, 2] int64.

    Vertices are named as in the graph's source: by `ids` where it brought its own, else 0 to n-1.
    """
    if path.suffix == ".npy":
        found = map_array(path)
        if found.dtype.kind not in "iu":
            raise UserError(f"{path} does not hold whole numbers. Give two vertices a pair, [m, 2].")
        pairs = torch.from_numpy(np.atleast_1d(found).astype(np.int64))
    else:
        source, target, _ = read_columns(read_bytes(path), path)
        pairs = torch.from_numpy(np.stack([source, target], 1).astype(np.int64))
    if not len(pairs):
        raise UserError(f"{path} holds no pairs. Give two vertices a line.")
    with about(path):
        if ids is None:
            check_pairs(pairs, n)
            return pairs
        check_pairs(pairs, torch.iinfo(torch.int64).max)
        ordered = ids.sort()
        at = torch.searchsorted(ordered.values, pairs).clamp(max=n - 1)
        unknown = (ordered.values[at] != pairs).nonzero()
        if unknown.numel():
            wild = int(pairs[tuple(unknown[0])])
            raise UserError(f"no vertex of the graph has the id {wild}. Correct the id.")
        return ordered.indices[at]
