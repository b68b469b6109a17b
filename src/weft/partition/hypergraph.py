"""The column-net model: a hypergraph whose connectivity−1 is the volume, exactly; cut by Mt-KaHyPar."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import UserError, unknown
from ..graph import Graph
from ..graph.guard import check_fits
from ..units import spell_bytes
from .arcs import distinct, row_weights, rows_and_columns

PRESETS = (
    "auto",
    "default",
    "quality",
    "highest-quality",
    "large-k",
    "deterministic",
    "deterministic-quality",
)
LARGE_K = 128
"""From so many parts on, `auto` takes the large-k preset."""

Say = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Hypergraph:
    """Vertices with weights, and nets; net e connects `pins[starts[e]:starts[e + 1]]`.

    >>> h = Hypergraph.column_net(Graph.from_arcs([0, 0, 1], [1, 2, 2]))
    >>> [h.pins[a:b].tolist() for a, b in zip(h.starts, h.starts[1:])]
    [[0, 1, 2], [1, 2]]
    """

    weights: np.ndarray
    """[n]: the work of each vertex."""
    starts: np.ndarray
    """[nets + 1]"""
    pins: np.ndarray

    @classmethod
    def column_net(cls, graph: Graph) -> Hypergraph:
        """Net j: vertex j, and the rows with an entry in column j. Nets of one pin can't be cut: left out."""
        rows, columns = rows_and_columns(graph)
        return cls.of_arcs(rows, columns, row_weights(graph))

    @classmethod
    def both_nets(cls, graph: Graph) -> Hypergraph:
        """The column nets, and the row nets: j and the columns with an entry in row j. A part's work is that
        of its rows and of its columns.

        >>> h = Hypergraph.both_nets(Graph.from_arcs([0, 0, 1], [1, 2, 2]))
        >>> [h.pins[a:b].tolist() for a, b in zip(h.starts, h.starts[1:])]
        [[0, 1, 2], [1, 2], [0, 1], [0, 1, 2]]
        """
        rows, columns = rows_and_columns(graph)
        n = graph.num_nodes
        nets, pins = np.concatenate([columns, rows.astype(np.int64) + n]), np.concatenate([rows, columns])
        return cls.of_arcs(pins, nets, row_weights(graph) + row_weights(graph.transposed()))

    @classmethod
    def of_arcs(cls, rows: np.ndarray, columns: np.ndarray, weights: np.ndarray) -> Hypergraph:
        """Net j of the arcs (row, column j): j itself and the rows. A column may be one of many batches:
        then it is batch · n + vertex."""
        n = len(weights)
        nets, owners = columns.astype(np.int64), np.unique(columns)
        net, pin = distinct(np.concatenate([nets, owners]), np.concatenate([rows, owners % n]), n)
        begins = (
            np.concatenate([[0], np.flatnonzero(net[1:] != net[:-1]) + 1]) if len(net) else np.zeros(0, int)
        )
        lengths = np.diff(np.append(begins, len(net)))
        keep = np.repeat(lengths > 1, lengths)
        return cls(weights, np.concatenate([[0], np.cumsum(lengths[lengths > 1])]), pin[keep])

    @property
    def num_nets(self) -> int:
        return len(self.starts) - 1

    @property
    def bytes_needed(self) -> int:
        """A generous estimate of what cutting it takes: lists for the library, and its levels."""
        return 160 * len(self.pins) + 400 * (len(self.weights) + self.num_nets)

    def cut(
        self, parts: int, epsilon: float, preset: str, seed: int, threads: int = 0, say: Say | None = None
    ) -> np.ndarray:
        """Parts of about equal weight with the least Σ (λ − 1) over the nets that is found. [n]

        The deterministic presets give the same parts for the same seed, on any number of threads; the
        others do not, not even on one.
        """
        n = len(self.weights)
        if say:
            say(
                f"hypergraph: {n:,} vertices, {self.num_nets:,} nets, {len(self.pins):,} pins, about "
                f"{spell_bytes(self.bytes_needed)}; {parts} parts, preset {choose_preset(preset, parts)}"
            )
        if not self.num_nets:  # nothing to keep together
            return np.arange(n) % parts
        made, context = self._in_library(parts, epsilon, preset, seed, threads)
        with _ctrl_c_ends_the_process():
            return np.asarray(made.partition(context).get_partition(), dtype=np.int64)

    def cycles(
        self, parts: int, epsilon: float, preset: str, seed: int, threads: int = 0
    ) -> Callable[[np.ndarray], np.ndarray]:
        """What makes parts better by a V-cycle: coarser within the parts, then finer, and refined on the way.

        Parts that are too heavy are relieved. The hypergraph is built once, at the first call.
        """
        kept: list[Any] = []

        def better(owner: np.ndarray) -> np.ndarray:
            if not self.num_nets:
                return owner
            if not kept:
                kept.extend(self._in_library(parts, epsilon, preset, seed, threads))
            made, context = kept
            held = made.create_partitioned_hypergraph(context, parts, owner.tolist())
            with _ctrl_c_ends_the_process():
                held.improve_partition(context, 1)
            return np.asarray(held.get_partition(), dtype=np.int64)

        return better

    def _in_library(
        self, parts: int, epsilon: float, preset: str, seed: int, threads: int
    ) -> tuple[Any, Any]:
        """(hypergraph, context) as the library holds them."""
        mtkahypar = load_library()
        chosen = choose_preset(preset, parts)
        n, threads = len(self.weights), threads or len(os.sched_getaffinity(0))
        check_fits(self.bytes_needed, f"a hypergraph of {len(self.pins):,} pins")
        # The library is initialised once a process; later numbers of threads are not heard.
        library = mtkahypar.initialize(threads, print_warnings=False)
        mtkahypar.set_seed(seed % 2**31)
        context = library.context_from_preset(getattr(mtkahypar.PresetType, chosen.upper().replace("-", "_")))
        context.set_partitioning_parameters(parts, epsilon, mtkahypar.Objective.KM1)
        context.logging = False
        # It takes lists of lists. One int object a vertex, shared by all pins: 8 bytes a pin instead of 40.
        names = np.array(range(n), dtype=object)
        flat, starts = names[self.pins].tolist(), self.starts.tolist()
        nets = [flat[a:b] for a, b in itertools.pairwise(starts)]
        del flat
        made = library.create_hypergraph(context, n, len(nets), nets, self.weights.tolist(), [1] * len(nets))
        return made, context


@contextlib.contextmanager
def _ctrl_c_ends_the_process() -> Iterator[None]:
    """The library works for minutes without a look at Python, whose handler would wait for it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def choose_preset(preset: str, parts: int) -> str:
    """The preset that `auto` means: large-k for many parts, else deterministic.

    >>> choose_preset("auto", 16), choose_preset("auto", 512), choose_preset("quality", 512)
    ('deterministic', 'large-k', 'quality')
    """
    if preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    if preset != "auto":
        return preset
    return "large-k" if parts >= LARGE_K else "deterministic"


def load_library() -> Any:
    """Mt-KaHyPar, or the line that names the extra."""
    try:
        import mtkahypar
    except ImportError:
        raise UserError(
            "the methods 'hypergraph' and 'stochastic' need mtkahypar. Use: pip install 'weft[partition]'."
        ) from None
    return mtkahypar
