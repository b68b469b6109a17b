"""Epochs at the papers' sizes, foretold: the trainer's own step on tensors without numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ...planner import Machine, Shape, plan
from ...planner.default import default_profile
from ...planner.plan import Candidate
from ...planner.profile import Link
from ...train import RunConfig
from .item import FORETOLD, Row

Keep = Callable[[Candidate, int], bool]
"""(candidate, ranks) → whether it is the one that is meant."""

LATENCY = 1e-5
"""Seconds of a message between two hosts."""

NAMED: dict[str, Keep] = {
    "1d": lambda c, p: c.strategy == "1d",
    "1.5d c=2": lambda c, p: (c.strategy, c.grid.inner, c.exchange) == ("1.5d", 2, "dense"),
    "1.5d c=4": lambda c, p: (c.strategy, c.grid.inner, c.exchange) == ("1.5d", 4, "dense"),
    "2d": lambda c, p: c.strategy == "2d" and c.exchange == "dense" and c.grid.row == c.grid.feature,
    "3d": lambda c, p: c.strategy == "3d" and c.exchange == "dense",
    "a-stationary": lambda c, p: (
        c.strategy == "1.5d" and c.exchange == "dense" and c.grid.row == c.grid.inner
    ),
    "halo": lambda c, p: c.strategy == "halo",
}


def foretold(
    shape: Shape,
    config: RunConfig,
    ranks: Sequence[int],
    names: Sequence[str],
    per_host: int,
    bandwidth: float,
    partitions: Sequence[str] = ("random",),
) -> list[Row]:
    """A row for each number of ranks and name: seconds, words and memory of a steady epoch.

    Ranks are cores of the machine that weft was calibrated on, one thread each, `per_host` to a host, between
    hosts `bandwidth` bytes a second. What does not fit the memory of a host is left in: `fits` says so.
    Rows travel as in the papers, from rank to rank: what crosses by host (`--by-host`) is none of theirs.
    """
    rows: list[Row] = []
    profile = replace(default_profile(), cores=per_host)  # one each
    for p in ranks:
        machine = Machine(profile, p, -(-p // per_host), between=Link.of_bandwidth(LATENCY, bandwidth))
        chosen: Mapping[str, Keep] = {name: NAMED[name] for name in names}
        made = plan(
            shape,
            config,
            machine,
            list(partitions),
            lambda c, p=p, chosen=chosen: (  # type: ignore[misc]
                not c.by_host and any(keep(c, p) for keep in chosen.values())
            ),
        )
        for name, keep in chosen.items():
            for row in made.rows:
                if keep(row.candidate, p):
                    label = f"{name}, {row.candidate.partition}" if len(partitions) > 1 else name
                    rows.append(
                        {
                            "kind": FORETOLD,
                            "graph": shape.name,
                            "vertices": shape.vertices,
                            "arcs": shape.arcs,
                            "ranks": p,
                            "algorithm": label,
                            "seconds": row.seconds,
                            "time": {"local": row.compute, "messages": row.messages_seconds},
                            "words": row.words,
                            "bytes": row.bytes,
                            "fits": row.fits,
                        }
                    )
    return rows


def gcn(layers: int, hidden: int) -> RunConfig:
    """The papers' GCN: no dropout."""
    config = RunConfig()
    config.model.layers, config.model.hidden, config.model.dropout = layers, hidden, 0.0
    return config
