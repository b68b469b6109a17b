"""A graph's weights that a model does not read: said aloud."""

from __future__ import annotations

import warnings

from ..errors import Note
from ..graph import Store
from ..nn import Model, ModelConfig
from ..nn.registry import readers
from ..parallel.source import Source


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
    has = source.has("weights") if isinstance(source, Store) else source.weights is not None
    if not has or (model.weighted and model.adjacency != "loops"):
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
