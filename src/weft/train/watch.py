"""Where one step's time went, and what it moved: a ledger and a meter side by side."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from ..comm import Communicator, Ledger
from ..comm.clock import Offset
from ..comm.ledger import Moved
from ..errors import UserError
from ..meter import Meter
from ..parallel import Volume
from ..tables import columns
from ..units import spell_seconds

KINDS = {
    "spmm": "SpMM", "dense": "dense products", "sampling": "sampling", "other": "other work",
    "waiting": "waiting",
}  # fmt: skip
"""The kinds that are not message phases, and what people call them."""


class StepWatch:
    """Open around one step of training.

    seconds()   by kind: spmm, dense, a line per message phase, waiting, and other (what is left)
    received()  words and messages by phase
    """

    def __init__(self, comm: Communicator, keep_events: bool = False, most: int | None = None):
        self.comm = comm
        self.ledger = Ledger(comm, keep_events, most)
        self.offsets = [Offset()] * comm.size
        """How far the ranks' clocks are ahead of rank 0's: what `comm.clock.align` found."""
        self.meter = Meter()
        self.total = 0.0

    def __enter__(self) -> StepWatch:
        self.ledger.__enter__()
        self.meter.__enter__()
        self.started = time.perf_counter()
        return self

    def __exit__(self, *error: Any) -> None:
        self.total = time.perf_counter() - self.started
        self.meter.__exit__()
        self.ledger.__exit__(None, None, None)

    def received(self) -> Volume:
        """Words and messages of the phases in which anything came."""
        return Volume.of(self.ledger)

    def seconds(self) -> dict[str, float]:
        """Seconds by kind; they add up to the step's."""
        out = dict(self.meter.seconds)
        for phase, line in self.ledger.as_dict().items():
            out[phase] = line["seconds"] - line["waited"]
        out["waiting"] = self.ledger.waited()
        out["other"] = max(0.0, self.total - sum(out.values()))
        return out

    def events(self) -> list[dict[str, Any]]:
        """The step as Chrome trace events: a process per rank, microseconds on rank 0's clock.

        A message says how many bytes went to and came from whom, and along which axis; what waits for it says
        that it waits.
        """
        rows: list[tuple[str, str, float, float, dict[str, Any]]] = [
            (kind, KINDS.get(kind, kind), start, took, {}) for kind, start, took in self.meter.events
        ]
        for event in self.ledger.events or []:
            told: dict[str, Any] = {"waits": True} if event.waiting else {}
            rows.append((event.phase, event.call, event.start, event.seconds, told | _told(event.moved)))
        rows.append(("step", "epoch", self.started, self.total, {}))
        ahead = self.offsets[self.comm.rank].seconds
        return [
            {"cat": kind, "name": f"{kind}: {name}" if kind not in KINDS else name, "ph": "X",
             "ts": (start - ahead) * 1e6, "dur": took * 1e6, "pid": self.comm.rank, "tid": 0,
             **({"args": told} if told else {})}
            for kind, name, start, took, told in rows
        ]  # fmt: skip


def _told(moved: Moved | None) -> dict[str, Any]:
    """What a trace says of a message: bytes, and peer by peer."""
    if moved is None:
        return {}
    sent, received = ({str(rank): size for rank, _, size in side} for side in (moved.sent, moved.received))
    return {
        "axis": moved.line, "sent_bytes": sum(sent.values()), "received_bytes": sum(received.values()),
        "sent_to": sent, "received_from": received,
    }  # fmt: skip


def write_trace(watch: StepWatch, path: str) -> None:
    """All ranks' events into one file; every rank calls it, rank 0 writes."""
    ranks = watch.comm.all_gather_json(watch.events())
    if watch.comm.rank:
        return
    names = [
        {"ph": "M", "name": "process_name", "pid": r, "args": {"name": f"rank {r}"}}
        for r in range(len(ranks))
    ]
    clocks = [{"ahead_seconds": o.seconds, "error_seconds": o.error} for o in watch.offsets]
    text = json.dumps(
        {"traceEvents": names + [e for events in ranks for e in events], "otherData": {"clocks": clocks}}
    )
    try:
        file = open(path, "x", encoding="utf-8")  # noqa: SIM115 - never over a file that is there
        try:
            with file:
                file.write(text)
        except OSError:
            os.unlink(path)
            raise
    except OSError as error:
        raise UserError(f"cannot write the trace {path}: {error.strerror}. Choose another --trace.") from None


def time_table(time_by_kind: dict[str, list[float]]) -> list[str]:
    """Lines for people: kind, share, and the time of the least, the mean and the busiest rank.

    >>> print("\\n".join(time_table({"spmm": [0.002, 0.004], "other": [0.0001, 0.0001]})))
    time        share     min    mean     max
    SpMM          97%    2 ms    3 ms    4 ms
    other work     3%  100 µs  100 µs  100 µs
    >>> print("\\n".join(time_table({"spmm": [0.002], "waiting": [0.0]})))
    time  share  took
    SpMM   100%  2 ms
    """
    means = {kind: sum(values) / len(values) for kind, values in time_by_kind.items()}
    total = sum(means.values()) or 1.0
    names = {kind: KINDS.get(kind, kind) for kind in means}
    rows: list[list[str]] = []
    alone = all(len(values) == 1 for values in time_by_kind.values())
    for kind in sorted(means, key=lambda k: -means[k]):
        values = time_by_kind[kind]
        spent = (min(values), means[kind], max(values))
        if means[kind]:
            told = map(spell_seconds, spent[:1] if alone else spent)
            rows.append([names[kind], f"{means[kind] / total:.0%}", *told])
    heads = ["time", "share", "took"] if alone else ["time", "share", "min", "mean", "max"]
    return columns(heads, rows).splitlines()
