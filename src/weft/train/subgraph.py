"""Steps on subgraphs that all ranks draw alike, each row computed by its owner (Demirci et al., §4).

draw       V′ ∩ V(p) and E′ into it, by this rank (`weft.minibatch.Subgraphs`)
restrict   the halo plan of what E′ reads (`weft.parallel.Restriction`)
train      the model on it, as on the whole graph: Σ (λ − 1) · w words a propagation
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..comm.threads import single
from ..errors import UserError
from ..graph import Graph, Store
from ..kernels import gather_rows, pack_rows
from ..minibatch import (
    Features,
    Sampler,
    Subgraphs,
    Topology,
    fanouts_for,
    parse_fanouts,
    reads_of,
    sampled_reads,
)
from ..minibatch.topology import Reads
from ..nn import Model
from ..parallel import Cyclic, Operator, Restriction
from ..parallel.assign import bare
from ..parallel.propagate import Wrap
from ..parallel.source import read_vertices, row_starts
from ..partition.stochastic import Sampler as Batches
from .config import RunConfig
from .encoders import Whole, blank_model
from .task import Step

_NUMBERS = ("plan", "frontier", "sample")
"""Phases in which vertex numbers travel, not numbers of the model's type."""


class Subgraph(Whole):
    """The model on a subgraph in every step: drawn by counter, so losses do not depend on ranks."""

    name = "subgraph"

    def __init__(
        self, model: Model, A: Operator, features: Features, source: Graph | Store, config: RunConfig
    ):
        layout = A.layout
        super().__init__(model, A, features, layout)
        if features.learned is not None:
            raise UserError("learned features do not train on subgraphs. Use --batching neighbours.")
        comm, options, self.dtype = layout.comm, config.batch, features.given.dtype
        topology = Topology.read(source, reads_of(model), comm, layout.blocks, [comm.rank], self.dtype)
        self.restrict = Restriction(layout, config.parallel.overlap)
        fanouts = _fanouts(config)
        self.draws = Subgraphs(
            topology, options.subgraph, fanouts, config.train.seed, self.restrict.owners, comm,
            options.walk_length, row_starts(source) if options.subgraph == "edges" else None,
        )  # fmt: skip

    def _input(self, step: Step) -> tuple[Operator, Tensor]:
        assert step.drawn is not None
        share = self.draws.draw(step.drawn, step.noise.epoch)
        given = self.features.given
        A = self.restrict.operator(share.places, share.arcs, self.dtype)
        if given.device.type not in ("cpu", "meta"):
            A.plan, A.rows = A.plan.to(given.device), A.rows.to(given.device)
        return A, pack_rows(given, _beside(share.places, given))

    def _rows(self, h: Tensor, step: Step) -> Tensor:
        return gather_rows(h, _beside(self.restrict.places(step.ids), h), distinct=True)

    def dry(self, wrap: Wrap) -> Subgraph:
        out = copy.copy(self)
        out.live = out.model = blank_model(self.model)
        out.features, out.placed = self.features.dry(), self.placed.dry(wrap)
        out.restrict, out.draws = self.restrict.dry(wrap), self.draws.dry(wrap)
        return out

    def bytes_of(self, words: dict[str, int]) -> int:
        """Vertex numbers have their size: of plans 8 bytes, of those who are reached the graph's."""
        index = self.draws.sampler.topology.indices.element_size()
        sizes = {**dict.fromkeys(_NUMBERS, index), "plan": torch.int64.itemsize}
        own = self.features.given.element_size()
        return sum(n * sizes.get(phase, own) for phase, n in words.items())

    def facts(self) -> dict[str, Any]:
        more: dict[str, Any] = {"fanouts": self.draws.fanouts} if self.draws.kind == "seeds" else {}
        if self.draws.kind == "walks":
            more["walk_length"] = self.draws.length
        return {"batching": "subgraph", "subgraph": self.draws.kind, **more}

    def notes(self, batches: str) -> list[str]:
        hops = ",".join("all" if f < 0 else str(f) for f in self.draws.fanouts)
        how = {
            "vertices": "vertices and the arcs between them", "seeds": f"seeds, fan-outs {hops}",
            "walks": f"seeds, walks of {self.draws.length} and the arcs between all", "edges": "arcs",
        }[self.draws.kind]  # fmt: skip
        return [f"sampling  subgraphs: {batches}, {how}; each row is its owner's"]


def _beside(index: Tensor, x: Tensor) -> Tensor:
    """The index where x is; a dry run's x is nowhere, its sizes are real."""
    return index if x.is_meta else index.to(x.device)


def _fanouts(config: RunConfig) -> list[int]:
    return parse_fanouts(config.batch.fanouts) if config.batch.subgraph == "seeds" else []


def own_batches(
    source: Graph | Store, config: RunConfig, model: Model
) -> Callable[[], Batches | None] | None:
    """What `--partition stochastic` samples (Algorithm 3): batches like those that the run trains on.

    None where the whole graph is in every step, or where steps are not of training vertices. A function
    seed → (rows, columns) comes of a call; batches of another seed than the run's, drawn by its sampler. Of
    subgraphs these are arcs; of neighbours (seed, input vertex), what the seeds' owners pull.

    >>> from weft.graph import karate
    >>> from weft.nn import build
    >>> config = RunConfig()
    >>> config.batch.batch_size, config.batch.batching = 34, "subgraph"
    >>> rows, columns = own_batches(karate(), config, build(config.model, 3, 2))()(0)
    >>> rows.size                                # all vertices, and so all arcs
    156
    """
    options, task = config.batch, config.train.task
    if not options.batch_size or task != "node":
        return None

    def make() -> Batches | None:
        graph, n = bare(source), source.num_nodes
        topology = Topology.read(graph, Reads("none", values=False))
        mask = read_vertices(source, torch.arange(n, device="cpu"), "train_mask")
        kind = options.subgraph if options.batching == "subgraph" else ""
        starts = row_starts(graph) if kind == "edges" else None
        every = n if starts is None else graph.num_arcs
        if kind in ("vertices", "edges") or mask is None:
            vertices = torch.arange(every, device="cpu")
        else:
            vertices = mask.nonzero().ravel()
        size = min(options.batch_size, vertices.numel())
        if not size:
            return None  # nothing to train on: the task says so
        seed = config.train.seed
        if options.batching == "neighbours":
            fanouts = fanouts_for(model.hops, parse_fanouts(options.fanouts), config.model.layers)
            return sampled_reads(Sampler(topology, fanouts, seed, options.replace), vertices, size)
        draws = Subgraphs(
            topology, kind, _fanouts(config), seed, Cyclic(n, 1), single(), options.walk_length, starts
        )

        def arcs_of(batch: int) -> tuple[np.ndarray, np.ndarray]:
            generator = torch.Generator().manual_seed(batch)
            order = torch.randperm(vertices.numel(), generator=generator, device="cpu")
            return draws.arcs(vertices[order[:size]], batch)

        return arcs_of

    return make
