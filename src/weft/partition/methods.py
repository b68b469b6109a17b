"""One interface to every way of cutting a graph."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ..errors import UserError, unknown, unread
from ..graph import Graph, Store
from ..graph.guard import free_bytes
from ..kernels.sampling import ALL
from . import simple
from .arcs import row_weights
from .best import CUTS, best
from .hypergraph import Hypergraph, choose_preset, load_library
from .metis import metis, metis_bytes
from .stochastic import Sampler, stochastic_hypergraph, uniform_batches
from .stream import stream


@dataclass(frozen=True)
class Method:
    """A way of cutting."""

    text: str
    """What it does."""
    reads: frozenset[str] = frozenset()
    """The fields of `PartitionOptions` that change its parts."""


_MOST = 1000
"""The largest epsilon: one part may have everything long before that."""
_LIBRARY = frozenset({"seed", "epsilon", "preset", "threads"})
_SAMPLES = frozenset({"theta", "delta", "batch_size", "fanouts", "batches", "sampler"})
METHODS = {
    "block": Method("the vertices in their order, in even blocks"),
    "random": Method("even blocks of a random order", frozenset({"seed"})),
    "hash": Method("by a hash of the vertex: no table is needed", frozenset({"seed"})),
    "metis": Method(
        "few arcs between the parts: METIS on the symmetrised graph", frozenset({"seed", "epsilon"})
    ),
    "hypergraph": Method(
        "few rows to move, exactly counted: Mt-KaHyPar on the column-net hypergraph", _LIBRARY
    ),
    "stochastic": Method(
        "few rows to move for a random mini-batch: the merged hypergraph of sampled batches",
        _LIBRARY | _SAMPLES,
    ),
    "best": Method(
        "for the rank that sends most: METIS and Mt-KaHyPar, both refined, and the better one kept", _LIBRARY
    ),
    "stream": Method(
        "few arcs between the parts, in passes over the rows: for graphs that no memory holds",
        frozenset({"seed", "epsilon", "passes", "buffer", "vertex_work"}),
    ),
    "auto": Method("hypergraph, metis or stream, by the size of the graph and the number of parts", _LIBRARY),
}
"""Name → what it does, and what it reads."""

BY_ROWS = frozenset({"block", "random", "hash", "stream"})
"""Methods that do not look at all arcs at once."""
_HYPERGRAPH_PINS, _METIS_ARCS = 20_000_000, 500_000_000
"""Up to these sizes `auto` takes the one, then the other: minutes, not hours, of one core."""


@dataclass
class PartitionOptions:
    """What methods may ask; each reads its own."""

    seed: int = 0
    """The same seed gives the same parts, except for hypergraphs with a preset that is not deterministic."""
    epsilon: float = 0.03
    """How far the heaviest part may be above the mean."""
    preset: str = "auto"
    """Of Mt-KaHyPar; auto: deterministic, and large-k from 128 parts on."""
    threads: int = 0
    """For Mt-KaHyPar, heard once a process; 0: all cores."""
    theta: float = 0.1
    """Stochastic: error of the expected connectivity, in parts."""
    delta: float = 0.5
    """Stochastic: probability of a larger error."""
    batch_size: int = 0
    """Stochastic: vertices of a sampled batch; 0: a sixteenth of the graph's."""
    fanouts: Sequence[int] = (ALL,)
    """Stochastic: neighbours that a batch reads of every vertex, hop by hop; -1: all."""
    batches: int = 0
    """Stochastic: sampled batches; 0: as many as θ and δ ask for, and until a vertex was in 12 of them."""
    sampler: Sampler | None = None
    """Stochastic: another sampler, seed → (rows, columns)."""
    passes: int = 4
    """Stream: passes over all arcs, to cluster and again to refine."""
    buffer: int = 1 << 20
    """Stream: arcs that are looked at together."""
    vertex_work: int = 0
    """Stream: arcs that a vertex counts for beside its own; 0: parts have equal arcs."""
    cuts: Mapping[str, Tensor] = field(default_factory=dict)
    """Best: parts that metis and hypergraph have made already, [n] each."""
    say: Callable[[str], None] | None = None
    """Told what is being done, a line at a time."""

    def tell(self, line: str) -> None:
        if self.say is not None:
            self.say(line)


def readers(option: str) -> list[str]:
    """The methods that read one of `PartitionOptions`.

    >>> readers("epsilon")
    ['metis', 'hypergraph', 'stochastic', 'best', 'stream', 'auto']
    """
    return [name for name, method in METHODS.items() if option in method.reads]


def check_read(methods: Sequence[str], options: Iterable[str]) -> None:
    """Refuse options that none of the methods reads.

    >>> check_read(["random", "metis"], ["epsilon"])
    >>> check_read(["random"], ["batches"])
    Traceback (most recent call last):
        ...
    weft.errors.UserError: method random does not read batches, stochastic does. Leave out --batches, ...
    """
    for method in methods:
        if method not in METHODS:
            raise unknown("partition method", method, METHODS)
    for option in options:
        reading = readers(option)
        if not set(methods) & set(reading):
            raise unread("method", methods, option, reading)


def check_method(method: str, parts: int, n: int, options: PartitionOptions | None = None) -> None:
    """Refuse what cannot be cut, before anything is read or computed.

    >>> check_method("metsi", 4, 34)
    Traceback (most recent call last):
        ...
    weft.errors.UserError: unknown partition method 'metsi'. Did you mean 'metis'? Known: block, ...
    """
    options = options or PartitionOptions()
    if method not in METHODS:
        raise unknown("partition method", method, METHODS)
    if parts < 1:
        raise UserError(f"{parts} parts were asked for. Use --parts 1 or more.")
    if parts > n:
        raise UserError(f"{parts} parts are more than the graph's {n} vertices. Use --parts {n} or fewer.")
    if not 0 <= options.epsilon < float("inf"):
        raise UserError(f"epsilon must be 0 or more, not {options.epsilon:g}. Use --epsilon 0.03.")
    if options.epsilon > _MOST:
        raise UserError(f"epsilon must be at most {_MOST}, not {options.epsilon:g}. Use --epsilon 0.03.")
    for name in ("passes", "buffer"):
        if getattr(options, name) < 1:
            raise UserError(f"{name} must be at least 1, not {getattr(options, name)}. Use --{name} 4.")
    if options.vertex_work < 0:
        raise UserError(f"vertex-work must be at least 0, not {options.vertex_work}. Use --vertex-work auto.")
    if options.seed < 0:
        raise UserError(f"seed must be at least 0, not {options.seed}.")
    choose_preset(options.preset, parts)
    if method in ("hypergraph", "stochastic"):
        load_library()
    if method == "metis" and importlib.util.find_spec("pymetis") is None:
        raise UserError("the method 'metis' needs pymetis. Use: pip install 'weft[partition]'.")


def partition_graph(
    graph: Graph | Store,
    parts: int,
    method: str = "auto",
    options: PartitionOptions | None = None,
    both: bool = False,
) -> Tensor:
    """Who owns which vertex: one part id a vertex, [n] int64 in 0..parts-1. A part may be empty.

    hypergraph:  minimise Σ_j (λ_j − 1)  subject to  W_p ≤ (1 + ε) mean W,  W_p the nonzeros of p's rows

    A store is read row by row by `stream`, which alone takes one; others look at all arcs at once.
    `both`: of the hypergraph, count rows that are written beside columns that are read, for grids with both.
    Where ε cannot be met, because a row alone is too heavy, the best that was found is returned, and
    `options.say` is told what was reached.

    >>> from weft.graph import karate
    >>> parts = partition_graph(karate(), 3, "metis")
    >>> parts.shape, sorted(set(parts.tolist()))
    (torch.Size([34]), [0, 1, 2])
    """
    options = options or PartitionOptions()
    n = graph.num_nodes
    check_method(method, parts, n, options)
    if method == "auto":
        method = pick(graph, parts)
        options.tell(f"auto: {method}")
    if parts == 1:
        return torch.zeros(n, dtype=torch.int64, device="cpu")
    if method == "block":
        return torch.from_numpy(simple.block(n, parts))
    if method == "random":
        return torch.from_numpy(simple.shuffled(n, parts, options.seed))
    if method == "hash":
        return torch.from_numpy(simple.hashed(n, parts, options.seed))
    if method == "stream":
        by_passes = stream(
            graph, parts, options.epsilon, options.seed, options.passes, options.buffer, options.say,
            options.vertex_work,
        )  # fmt: skip
        _tell_balance("stream", *by_passes.balance, options)
        return torch.from_numpy(by_passes.part.astype(np.int64))
    assert isinstance(graph, Graph)
    if method == "best":
        return torch.from_numpy(_best(graph, parts, options, both))
    made, weights = _cut(graph, parts, method, options, both)
    loads = np.bincount(made, weights=weights, minlength=parts)
    _tell_balance(method, loads, int(weights.max()), options)
    return torch.from_numpy(made)


def _best(graph: Graph, parts: int, options: PartitionOptions, both: bool) -> np.ndarray:
    def cut(method: str) -> np.ndarray:
        if method in options.cuts:
            return options.cuts[method].numpy()
        return _cut(graph, parts, method, options, both)[0]

    cycles = None
    if importlib.util.find_spec(CUTS["hypergraph"]) is not None:
        hypergraph = Hypergraph.both_nets(graph) if both else Hypergraph.column_net(graph)
        cycles = hypergraph.cycles(parts, options.epsilon, options.preset, options.seed, options.threads)
    made = best(graph, parts, cut, options.epsilon, options.seed, options.tell, cycles)
    weights = row_weights(graph)
    _tell_balance("best", np.bincount(made, weights=weights, minlength=parts), int(weights.max()), options)
    return made


def _tell_balance(method: str, loads: np.ndarray, heaviest: int, options: PartitionOptions) -> None:
    """Say so where ε was not met; `heaviest` is the work of one row."""
    reached = float(loads.max() / loads.mean()) - 1
    # The libraries count from the mean rounded up: weights are whole.
    if loads.max() > (1 + options.epsilon) * math.ceil(loads.mean()) + 1:
        share = float(heaviest / loads.mean())
        why = f"; one row alone is {share:.2f} times the mean of a part" if share > 1 else ""
        options.tell(f"{method}: epsilon {options.epsilon:g} was not met, {reached:.4g} was reached{why}")


def _cut(
    graph: Graph, parts: int, method: str, options: PartitionOptions, both: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The parts, and the weights that are even over them."""
    if method == "metis":
        options.tell(f"metis: {graph.num_nodes:,} vertices, {graph.num_arcs:,} arcs; {parts} parts")
        return metis(graph, parts, options.epsilon, options.seed), row_weights(graph)
    if method == "hypergraph":
        hypergraph = Hypergraph.both_nets(graph) if both else Hypergraph.column_net(graph)
    else:
        size = options.batch_size or max(1, graph.num_nodes // 16)
        sampler = options.sampler or uniform_batches(graph, size, options.fanouts)
        hypergraph, batches = stochastic_hypergraph(
            graph, sampler, parts, options.theta, options.delta, options.seed, options.batches
        )
        options.tell(f"stochastic: {batches} sampled batches")
    made = hypergraph.cut(parts, options.epsilon, options.preset, options.seed, options.threads, options.say)
    return made, hypergraph.weights


def pick(graph: Graph | Store, parts: int) -> str:
    """What `auto` means: the best model that takes minutes, of those that are installed and fit into memory.

    >>> from weft.graph import karate
    >>> pick(karate(), 1)
    'block'
    """
    if parts == 1:
        return "block"
    pins = graph.num_arcs + graph.num_nodes
    if pins <= _HYPERGRAPH_PINS and importlib.util.find_spec("mtkahypar") is not None:
        return "hypergraph"
    fits = metis_bytes(graph.num_nodes, graph.num_arcs) <= free_bytes()
    if pins <= _METIS_ARCS and fits and importlib.util.find_spec("pymetis") is not None:
        return "metis"
    return "stream"
