"""What a model takes from the graph where nobody says otherwise: arcs' features, kinds, degrees."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch

from ..comm import Communicator
from ..errors import UserError
from ..graph import Store
from ..graph.arrays import FEATURES, KIND, key_of
from ..nn.registry import ModelConfig, open_options, readers
from ..parallel.source import Source


def _slab(source: Source, comm: Communicator) -> tuple[int, int]:
    """The vertices that this rank looks at."""
    n = source.num_nodes
    return n * comm.rank // comm.size, n * (comm.rank + 1) // comm.size


def _shape(source: Source, name: str) -> tuple[int, ...] | None:
    """[arcs, …] of what arcs carry under this name; None: nothing."""
    if isinstance(source, Store):
        return source.schema[key_of("arc", name)][1] if name in source.arc_names else None
    return tuple(source.arc_data[name].shape) if name in source.arc_data else None


def _arc_features(source: Source, comm: Communicator) -> int:
    shape = _shape(source, FEATURES)
    return 0 if shape is None else math.prod(shape[1:])  # a list: one feature an arc


def _kinds(source: Source, comm: Communicator) -> int:
    """1 + the largest kind."""
    if _shape(source, KIND) is None:
        raise UserError(f"rgcn reads kinds of arcs, the graph has none. Give it arc data named {KIND}.")
    first, last = _slab(source, comm)
    if isinstance(source, Store):
        kinds = source.rows(first, last, only=(key_of("arc", KIND),)).arc_data[KIND]
    else:
        kinds = source.arc_data[KIND][int(source.indptr[first]) : int(source.indptr[last])]
    if kinds.is_floating_point() or kinds.dim() != 1:
        what = f"{str(kinds.dtype).removeprefix('torch.')}, {kinds.dim()}-dimensional"
        raise UserError(f"arc data '{KIND}' are {what}. Kinds of arcs are whole numbers, one an arc.")
    most = int(kinds.max()) if kinds.numel() else -1
    own = torch.tensor([most], device="cpu")
    return int(comm.all_gather(own, [1] * comm.size, phase="plan").max()) + 1


def _relations(source: Source, comm: Communicator) -> int:
    """How many kinds there are. Each has weights and a share of a walk, so more than arcs are a mistake."""
    kinds, arcs = _kinds(source, comm), source.num_arcs
    if kinds > max(arcs, 1):
        raise UserError(
            f"arc data '{KIND}' hold a kind {kinds - 1}, the graph has {arcs:,} arcs. "
            "Number the kinds 0, 1, 2, …, or say --relations N."
        )
    return kinds


def _log_degree(source: Source, comm: Communicator) -> float:
    first, last = _slab(source, comm)
    if isinstance(source, Store):
        degrees = source.rows(first, last, only=("indptr",)).indptr.diff()
    else:
        degrees = source.indptr[first : last + 1].diff()
    # Counts of each degree are whole numbers: the mean is the same on any number of ranks.
    most = torch.tensor([int(degrees.max()) if degrees.numel() else 0], device="cpu")
    most = comm.all_gather(most, [1] * comm.size, phase="plan").max()
    counts = comm.all_reduce(torch.bincount(degrees, minlength=int(most) + 1).double(), phase="plan")
    logs = torch.arange(counts.numel(), dtype=torch.float64, device="cpu").add_(1).log_()
    return max(float((counts * logs).sum() / counts.sum().clamp(min=1)), 1e-12)


_FACTS: dict[str, Callable[[Source, Communicator], float]] = {
    "arc_features": _arc_features,
    "relations": _relations,
    "log_degree": _log_degree,
}


def take_facts(config: ModelConfig, source: Source, comm: Communicator) -> None:
    """Set what the model would take from the graph, refuse what the graph does not have; every rank calls it.

    >>> from weft.comm.threads import single
    >>> from weft.graph import karate
    >>> config = ModelConfig("pna")
    >>> take_facts(config, karate(), single())
    >>> config.arc_features, round(config.log_degree, 2)
    (0, 1.56)
    """
    left_open = open_options(config)
    for name in left_open:
        setattr(config, name, _FACTS[name](source, comm))
    given = {name for name in _FACTS if config.name in readers(name) and name not in left_open}
    if "arc_features" in given and config.arc_features:
        found = _arc_features(source, comm)
        if config.arc_features != found:
            raise UserError(
                f"{config.name} reads {config.arc_features} features an arc, the graph has {found}. "
                "Train with --arc-features -1 for the graph's, 0 for none."
            )
    if "relations" in given:
        found = _kinds(source, comm)
        if config.relations < found:
            raise UserError(
                f"{config.relations} relations are too few: the graph's arcs are of kinds up to {found - 1}. "
                f"Train with --relations {found}, or without it."
            )
