"""A graph's weights that a model does not read: said aloud."""

from __future__ import annotations

import warnings

from ..errors import Note
from ..graph import Store
from ..nn import Model, ModelConfig
from ..nn.registry import readers
from ..parallel.source import Source

_ROWS, _ENOUGH = 1 << 14, 1 << 20
"""Rows of a store that are read at a time; arcs after which all count as 1."""


def note_unread_weights(model: Model, source: Source, config: ModelConfig) -> None:
    """Warn where arcs have weights and the model of this config computes the same without them.

    >>> from weft.graph import karate
    >>> from weft.nn import ModelConfig, build
    >>> deaf, reads = ModelConfig("gatv2"), ModelConfig("gcn")
    >>> graph = karate().replace(weights=karate().indices + 1.0)
    >>> with warnings.catch_warnings(record=True) as said:
    ...     warnings.simplefilter("always")
    ...     note_unread_weights(build(deaf, 34, 2), graph, deaf)
    ...     note_unread_weights(build(reads, 34, 2), graph, reads)
    >>> print(said[0].message, len(said))
    gatv2 does not read weights: the arcs of karate have some, and all count alike. Use gcn, sage, gin ... 1
    """
    if (model.weighted and model.adjacency != "loops") or not _uneven(source):
        return
    remedy = "Use gcn, sage, gin or sgc, or give them as features, which models over arcs read."
    if config.name in readers("normalise") and getattr(config, "form", "besta") == "besta":
        remedy = "Use --normalise none, gcn or mean."
    what = f"{config.name} does not read weights: the arcs of {source.name} have some, and all count alike"
    warnings.warn(
        f"{what}. {remedy}",
        Note,
        stacklevel=3,
    )


def _uneven(source: Source) -> bool:
    """Whether some weight is not 1; of a store the first arcs are looked at."""
    if not isinstance(source, Store):
        return source.weights is not None and not bool((source.weights == 1).all())
    seen = 0
    for first in range(0, source.num_nodes if source.has("weights") else 0, _ROWS):
        last = min(first + _ROWS, source.num_nodes)
        weights = source.rows(first, last, only=("weights",)).weights
        if weights is None or not bool((weights == 1).all()):
            return weights is not None
        seen += weights.numel()
        if seen > _ENOUGH:
            break
    return False
