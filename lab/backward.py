"""Backward of `1d` with every stage overlapped, against the one before it, in turns in the same ranks.

    weft run --ranks 4 --threads 1 lab/backward.py kronecker:scale=15,degree=16 --epochs 16
    python lab/hosts.py --hosts 4 --link 200mbit -- mpirun --hostfile {hosts} -n 4 python lab/backward.py

Three ways, an epoch of each in turn: `every` (`Exchange.sum_up`: a part travels while the next is made),
`first` (`Exchange.reduce`, as until November 2026: only the first part travels while a product runs), and
`none` (nothing is multiplied while something travels). Rank 0 prints one JSON object: the median epoch of
each, in seconds of the slowest rank.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from weft.bench.ranks import trainable
from weft.comm.launch import connect
from weft.graph import load
from weft.parallel.exchange import Exchange
from weft.train import RunConfig, Trainer

Sum = Callable[..., Tensor]
WAYS = ("every", "first", "none")
_every: Sum = Exchange.sum_up


def _first(
    self: Exchange,
    part: Callable[[int, int, int], Tensor],
    own: Callable[[Tensor | None], Tensor],
    like: Tensor,
    halve: bool = True,
    phase: str = "reduce",
) -> Tensor:
    """What backward was: one part after the other, made, sent and waited for."""
    me = self.comm.rank
    return self.reduce(lambda p: own(None) if p == me else part(p, 0, self.need_sizes[p]), phase)


def _none(self: Exchange, *arguments: Any, **more: Any) -> Tensor:
    kept, self.overlap = self.overlap, False
    try:
        return _every(self, *arguments, **more)
    finally:
        self.overlap = kept


def ways() -> dict[str, Sum]:
    """Name → what stands in for `Exchange.sum_up`."""
    return dict(zip(WAYS, (_every, _first, _none), strict=True))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("graph", nargs="?", default="kronecker:scale=14,degree=16")
    parser.add_argument("--strategy", default="1d")
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=12, help="of each way")
    parsed = parser.parse_args(arguments)
    torch.set_num_threads(1)
    comm = connect()
    config = RunConfig()
    config.model.hidden, config.model.layers, config.model.dropout = parsed.hidden, parsed.layers, 0.0
    config.parallel.strategy, config.parallel.ranks = parsed.strategy, comm.size
    config.parallel.by_host = "off"  # whose sums go their own way
    trainer = Trainer(trainable(load(parsed.graph)), config, comm)
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    for epoch in range(1, parsed.epochs + 2):  # the first is not counted: it makes A X and the transposes
        for way, sum_up in ways().items():
            Exchange.sum_up = sum_up  # type: ignore[method-assign]
            comm.barrier()
            started = time.perf_counter()
            trainer.step(epoch)
            took = max(comm.all_gather_json(time.perf_counter() - started))
            if epoch > 1:
                seconds[way].append(took)
    if comm.rank == 0:
        medians = {way: statistics.median(each) for way, each in seconds.items()}
        fastest = {way: min(each) for way, each in seconds.items()}
        print(
            json.dumps(
                {
                    "graph": parsed.graph, "strategy": parsed.strategy, "ranks": comm.size,
                    "seconds": medians, "fastest": fastest,
                    "first_over_every": medians["first"] / medians["every"],
                    "none_over_every": medians["none"] / medians["every"],
                }
            ), flush=True,
        )  # fmt: skip
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
