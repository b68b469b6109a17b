"""What one steady epoch did on every rank, kept as soon as it is known: a run that dies later has it too.

`measured.json` of a run folder, for `weft report`; docs/logs.md tells its fields.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from .. import __version__
from .result import Result, peak_rss_bytes
from .watch import StepWatch

if TYPE_CHECKING:
    from .trainer import Trainer

MOST_EVENTS = 20_000
"""Messages of an epoch that are kept while it runs."""
MOST_SHOWN = 1_500
"""Events a rank in the time line; of longer epochs it has the beginning."""

Row = list[Any]
"""[kind, call, start, seconds, bytes received]: seconds from the epoch's start on rank 0's clock."""


def gather(trainer: Trainer, result: Result, epoch: int) -> dict[str, Any]:
    """What `result.watch` saw of an epoch, of all ranks; every rank calls it."""
    watch, comm = result.watch, trainer.comm
    assert watch is not None
    rows = timeline(watch)
    mine = {
        "host": socket.gethostname(), "words": result.moved.words, "messages": result.moved.messages,
        "predicted_words": result.foretold.words, "time": watch.seconds(), "seconds": watch.total,
        "received": [[rank, *moved] for rank, moved in watch.ledger.peers().items()],
        "vertices": trainer.A.rows.numel(), "arcs": trainer.A.arcs, "rss_bytes": peak_rss_bytes(),
        "start": watch.started - watch.offsets[comm.rank].seconds,
        "events": rows[:MOST_SHOWN], "whole": len(rows) <= MOST_SHOWN,
    }  # fmt: skip
    ranks = comm.all_gather_json(mine)

    def by_kind(key: str) -> dict[str, list[Any]]:
        kinds = dict.fromkeys(kind for rank in ranks for kind in rank[key])
        return {kind: [rank[key].get(kind, 0) for rank in ranks] for kind in kinds}

    def each(key: str) -> list[Any]:
        return [rank[key] for rank in ranks]

    return {
        "version": __version__, "epoch": epoch, "ranks": comm.size, "engine": comm.engine,
        "strategy": trainer.config.parallel.strategy, "grid": list(trainer.A.grid.shape),
        "exchange": trainer.shared.exchange, "hosts": each("host"),
        "clocks": [[offset.seconds, offset.error] for offset in watch.offsets],
        "words": by_kind("words"), "messages": by_kind("messages"),
        "predicted_words": by_kind("predicted_words"), "time": by_kind("time"), "seconds": each("seconds"),
        "received": each("received"), "vertices": each("vertices"), "arcs": each("arcs"),
        "rss_bytes": each("rss_bytes"), "timeline": _joined(ranks),
    }  # fmt: skip


def timeline(watch: StepWatch) -> list[Row]:
    """One rank's events in the order of their start, seconds from the start of its step."""
    rows: list[Row] = [[kind, "", start - watch.started, took, 0] for kind, start, took in watch.meter.events]
    for event in watch.ledger.events or []:
        size = 0 if event.moved is None else sum(n for _, _, n in event.moved.received)
        kind = "waiting" if event.waiting else event.phase
        what = f"{event.phase}: {event.call}" if event.waiting else event.call
        rows.append([kind, what, event.start - watch.started, event.seconds, size])
    return sorted(rows, key=lambda row: float(row[2]))


def _joined(ranks: list[dict[str, Any]]) -> dict[str, Any]:
    """The ranks' events on one time line, as far as all of them are there."""
    first = min(rank["start"] for rank in ranks)
    late = [rank["start"] - first for rank in ranks]
    until = max(a + rank["seconds"] for a, rank in zip(late, ranks, strict=True))
    for a, rank in zip(late, ranks, strict=True):
        if not rank["whole"]:
            until = min(until, a + rank["events"][-1][2])
    events = [
        [[kind, call, round(a + start, 7), round(took, 7), size] for kind, call, start, took, size
         in rank["events"] if a + start < until]
        for a, rank in zip(late, ranks, strict=True)
    ]  # fmt: skip
    return {"seconds": until, "whole": all(rank["whole"] for rank in ranks), "start": late, "events": events}
