"""Arcs of one segment, collected and sorted into runs on disk."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from weft.errors import UserError
from weft.graph.arrays import KIND
from weft.graph.stream import native
from weft.graph.stream.pieces import Arcs
from weft.graph.stream.plan import Plan
from weft.graph.stream.runs import Run, Space, write_run


class TooWide(Exception):
    """An id for which the set of those present has no room."""


class Heap:
    """Arcs of a segment on their way into runs.

    both     each arc is entered in both directions;  payload  whether something goes along with arcs
    limit    ids are below this;  present  the bits of those that occur are set here
    """

    def __init__(
        self, folder: Path, plan: Plan, both: bool, payload: bool, space: Space, order: tuple[int, int],
        limit: int, present: np.ndarray | None,
    ) -> None:  # fmt: skip
        self.folder, self.plan, self.both, self.payload = folder, plan, both, payload
        self.space, self.order, self.limit, self.present = space, order, limit, present
        self.keys = {+1: self._room(+1), -1: np.zeros(0, np.uint64)}
        self.held = {+1: 0, -1: 0}
        self.columns: dict[int, list[dict[str, np.ndarray]]] = {+1: [], -1: []}
        self.runs: list[Run] = []

    def _room(self, side: int) -> np.ndarray:
        name = "keys" if side > 0 else "mirrors"
        return self.space.take(name, self.plan.run // (1 if side > 0 else 2), np.uint64)

    def add(self, arcs: Arcs) -> None:
        """Enter some arcs; a file's own mirrors come after all others."""
        carried = dict(arcs.data)
        if arcs.weights is not None:
            carried["weight"] = arcs.weights
        self._enter(+1, arcs.source, arcs.target, carried)
        if self.both:
            self._enter(+1, arcs.target, arcs.source, {})
        if arcs.sign:
            if not len(self.keys[-1]):
                self.keys[-1] = self._room(-1)
            off = arcs.source != arcs.target
            other = {name: x[off] for name, x in carried.items()}
            if arcs.sign < 0 and "weight" in other:
                other["weight"] = -other["weight"]
            self._enter(-1, arcs.target[off], arcs.source[off], other)

    def _enter(
        self, side: int, source: np.ndarray, target: np.ndarray, carried: dict[str, np.ndarray]
    ) -> None:
        most = len(self.keys[side])
        for first in range(0, len(source), most):
            part = slice(first, first + most)
            count = len(source[part])
            if self.held[side] + count > most:
                self._flush(side)
            at = self.held[side]
            room = self.keys[side][at : at + count]
            own = [np.ascontiguousarray(ids[part], dtype=np.int64) for ids in (source, target)]
            if not native.pack(own[0], own[1], self.limit, room, self.present):
                raise TooWide
            self.held[side] += count
            if carried:
                self.columns[side].append({name: x[part] for name, x in carried.items()})

    def _flush(self, side: int) -> None:
        count, self.held[side] = self.held[side], 0
        if not count:
            return
        keys = self.keys[side][:count]
        scratch = self.space.take("scratch", count, np.uint64)
        number = len(self.runs)
        path = self.folder / f"r-{self.order[0]}-{self.order[1]}-{number}"
        order = (0 if side > 0 else 1, *self.order, number)
        columns: dict[str, np.ndarray] = {}
        if self.payload:
            index = np.arange(count, dtype=np.uint32)
            native.sort(keys, scratch, index, self.space.take("other", count, np.uint32))
            pieces, self.columns[side] = self.columns[side], []
            for name in pieces[0]:
                whole = np.concatenate([piece[name] for piece in pieces])
                if whole.dtype.kind == "i" and whole.min(initial=0) < 0:
                    if name == KIND:
                        raise UserError(
                            f"arc data '{KIND}' hold {whole.min()}. Kinds are whole numbers, from 0 on."
                        )
                    whole = whole.astype(np.float64)  # whole numbers below 0 are no types
                columns[name] = whole[index]
            self.runs.append(write_run(path, keys, columns, order))
            return
        native.sort(keys, scratch, None, None)
        kept = native.unique(keys, None)
        self.runs.append(write_run(path, keys[:kept], columns, order))

    def close(self) -> list[Run]:
        for side in (+1, -1):
            self._flush(side)
        return self.runs
