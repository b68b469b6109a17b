"""Where one step's time went, and what it moved: a ledger and a meter side by side."""

from __future__ import annotations

import json
import time
from typing import Any

from ..comm import Communicator, Ledger
from ..errors import UserError
from ..meter import Meter
from ..parallel import Volume

KINDS = {"spmm": "SpMM", "dense": "dense products", "other": "other work", "waiting": "waiting"}
"""The kinds that are not message phases, and what people call them."""


class StepWatch:
    """Open around one step of training.

    seconds()   by kind: spmm, dense, a line per message phase, waiting, and other (what is left)
    received()  words and messages by phase
    """

    def __init__(self, comm: Communicator, keep_events: bool = False):
        self.comm = comm
        self.ledger = Ledger(comm, keep_events)
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
        """The step as Chrome trace events: a process per rank, microseconds."""
        rows = [(kind, KINDS.get(kind, kind), start, took) for kind, start, took in self.meter.events]
        rows += [(phase, call, start, took) for phase, call, start, took in self.ledger.events or []]
        rows.append(("step", "epoch", self.started, self.total))
        return [
            {"cat": kind, "name": f"{kind}: {name}" if kind not in KINDS else name, "ph": "X",
             "ts": start * 1e6, "dur": took * 1e6, "pid": self.comm.rank, "tid": 0}
            for kind, name, start, took in rows
        ]  # fmt: skip


def write_trace(watch: StepWatch, path: str) -> None:
    """All ranks' events into one file; every rank calls it, rank 0 writes."""
    ranks = watch.comm.all_gather_json(watch.events())
    if watch.comm.rank:
        return
    names = [
        {"ph": "M", "name": "process_name", "pid": r, "args": {"name": f"rank {r}"}}
        for r in range(len(ranks))
    ]
    text = json.dumps({"traceEvents": names + [e for events in ranks for e in events]})
    try:
        with open(path, "x", encoding="utf-8") as file:  # never over a file that is there
            file.write(text)
    except OSError as error:
        raise UserError(f"cannot write the trace {path}: {error.strerror}. Choose another --trace.") from None


def time_table(time_by_kind: dict[str, list[float]]) -> list[str]:
    """Lines for people: kind, share, and milliseconds of the least, the mean and the busiest rank.

    >>> print("\\n".join(time_table({"spmm": [0.002, 0.004], "other": [0.001, 0.001]})))
    time        share  min ms  mean ms  max ms
    SpMM          75%     2.0      3.0     4.0
    other work    25%     1.0      1.0     1.0
    """
    means = {kind: sum(values) / len(values) for kind, values in time_by_kind.items()}
    total = sum(means.values()) or 1.0
    names = {kind: KINDS.get(kind, kind) for kind in means}
    width = max(map(len, [*names.values(), "time"]), default=4)
    lines = [f"{'time':<{width}}  share  min ms  mean ms  max ms"]
    for kind in sorted(means, key=lambda k: -means[k]):
        values = time_by_kind[kind]
        lines.append(
            f"{names[kind]:<{width}}  {means[kind] / total:>5.0%}  {min(values) * 1e3:>6.1f}  "
            f"{means[kind] * 1e3:>7.1f}  {max(values) * 1e3:>6.1f}"
        )
    return lines
