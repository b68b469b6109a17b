"""Inference with saved weights: distributed, full graph, written by vertex."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..comm import Communicator
from ..errors import UserError
from ..graph import Graph, Store
from ..nn import Model, build
from ..parallel import DistributedGraph, choose
from .config import RunConfig, read_toml, update
from .trainer import assign, prepare_features


@dataclass(frozen=True)
class SavedRun:
    """A run folder as `weft train` left it."""

    path: Path
    config: RunConfig
    widths: list[int]
    weights: dict[str, Tensor]


def read_run(path: Path) -> SavedRun:
    """The config and weights of a run; one line says what is missing or does not fit."""
    if not (path / "config.toml").is_file():
        raise UserError(f"{path} is not a run folder: it has no config.toml. Give one that weft train made.")
    config = RunConfig()
    for name, value in read_toml(path / "config.toml").items():
        update(config, name, value)
    try:
        widths = [int(w) for w in json.loads((path / "summary.json").read_text())["widths"]]
        weights = torch.load(path / "weights.pt", weights_only=True)
    except FileNotFoundError as error:
        raise UserError(
            f"{path} has no {Path(error.filename).name}: that run did not end. Train again."
        ) from None
    except (KeyError, TypeError, ValueError, RuntimeError, EOFError, pickle.UnpicklingError):
        raise UserError(f"the weights or summary in {path} are damaged. Train again.") from None
    if not isinstance(weights, dict) or not all(isinstance(w, Tensor) for w in weights.values()):
        raise UserError(f"{path / 'weights.pt'} does not hold a dict of tensors. Train again.")
    return SavedRun(path, config, widths, weights)


def restore(run: SavedRun, features: int) -> Model:
    """The model of a run with its weights; a UserError where graph, config and weights do not fit."""
    if features != run.widths[0]:
        raise UserError(
            f"{run.path} was trained on {run.widths[0]} features, the graph has {features}. Use its graph."
        )
    model = build(run.config.model, run.widths[0], run.widths[-1]).to(getattr(torch, run.config.train.dtype))
    wanted = {name: tuple(p.shape) for name, p in model.state_dict().items()}
    given = {name: tuple(p.shape) for name, p in run.weights.items()}
    if wanted != given:
        odd = next(name for name in [*wanted, *given] if wanted.get(name) != given.get(name))
        raise UserError(
            f"the weights in {run.path} are of another model than its config: {odd} is "
            f"{given.get(odd, 'missing')}, not {wanted.get(odd, 'known')}. Train again."
        )
    model.load_state_dict(run.weights)
    return model.eval()


def predict(source: Graph | Store, run: SavedRun, comm: Communicator, out: Path) -> list[Path]:
    """Write `embeddings.npy` [n, hidden] and `classes.npy` by vertex; every rank writes its own rows.

    Classes are [n] int64, or [n, c] bool where vertices have several labels. Where the graph came with
    vertex ids of its own, `ids.npy` has the id of every row.
    """
    config, options = run.config, run.config.parallel
    model = restore(run, source.num_features)
    dtype = getattr(torch, config.train.dtype)
    grid, exchange = choose(options.strategy, comm.size, options.grid, options.replication, options.exchange)
    blocks = assign(source, grid, options, config.train.seed, comm)
    graph = DistributedGraph.build(
        source, comm, grid, model.adjacency, exchange, blocks, dtype, options.overlap, options.move_adjacency
    )
    x = graph.read(source, "features")
    assert x is not None
    with torch.no_grad():
        features = prepare_features(x, config.data.feature_norm, comm).to(dtype)
        embedding, logits = model.embed(graph, features)
    labels = graph.read(source, "labels")
    several = labels is not None and labels.dim() == 2
    classes = logits > 0 if several else logits.argmax(1)
    files = {"embeddings.npy": embedding, "classes.npy": classes}
    ids = graph.read(source, "ids")
    if ids is not None:
        files["ids.npy"] = ids
    for name, rows in files.items():
        _write_rows(out / name, rows.numpy(), graph, comm)
    return [out / name for name in files]


def _write_rows(path: Path, rows: np.ndarray, graph: DistributedGraph, comm: Communicator) -> None:
    """Every rank's rows into one .npy file, by vertex; no rank holds the whole."""
    shape = (graph.num_nodes, *rows.shape[1:])
    if comm.rank == 0:
        np.lib.format.open_memmap(path, "w+", rows.dtype, shape).flush()
    comm.barrier()
    np.lib.format.open_memmap(path, "r+")[graph.rows.numpy()] = rows
    comm.barrier()
