"""weft verify: is the distributed run the serial run?"""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..train.config import RunConfig
from .options import FOLDER, Parser, add_config, config_from, refuse
from .ranks import on_ranks

if TYPE_CHECKING:
    from ..comm import Communicator
    from ..graph import Graph, Store

_EXAMPLES = """  weft verify cora --strategy 2d --grid 2x2 --ranks 4
  weft verify karate --strategy grid --grid 3x2x1 --ranks 6 --exchange sparse --dtype float64
  weft verify cora --model sage --batch-size 50 --fanouts 5,5 --feed push-pull --ranks 3
  weft verify g.weft --ranks 27 --strategy 3d --engine threads --json
  weft verify script.py:make_model cora --ranks 3     a module of your own; --help after it"""


def run(arguments: Sequence[str]) -> int:
    if any(".py:" in word for word in arguments[:1]):
        from .verify_module import run as run_module

        return run_module(arguments)
    parser = Parser(
        "verify", "[GRAPH | RUN.toml] [OPTIONS]",
        "Train on ranks and alone, and compare every loss, every gradient and the embeddings; exit status 1 "
        "where they differ.", _EXAMPLES,
    )  # fmt: skip
    add_config(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    parser.add_argument("--store", help=argparse.SUPPRESS)
    parsed = parser.parse(arguments)
    refuse(parsed, "verify", [f"train.{name}" for name in FOLDER])
    base = RunConfig()
    base.train.epochs = 20
    config = config_from(parsed, base)
    work = functools.partial(verify, config=config, as_json=parsed.json)
    return on_ranks(["verify"], config, work, ["--json"] if parsed.json else [], parsed.store)


def verify(comm: Communicator, source: Graph | Store, config: RunConfig, as_json: bool) -> int:
    """What every rank does: the distributed run; rank 0 then runs alone and compares."""
    from ..train.verify import TOLERANCE, compare, serial, trace

    distributed = trace(source, config, comm)
    rows: dict[str, float] = {}
    if comm.rank == 0:
        rows = compare(distributed, serial(source, config))
    rows = comm.all_gather_json(rows)[0]
    tolerance = TOLERANCE[config.train.dtype]
    equal = all(value <= tolerance for value in rows.values())  # a NaN is not equal
    if comm.rank == 0:
        largest = {
            kind: max(value for name, value in rows.items() if name.startswith(kind))
            for kind in ("loss", "gradient", "embedding")
        }
        if as_json:
            print(json.dumps({
                "max_relative_difference": largest, "equal": equal, "tolerance": tolerance,
                "differences": rows, "strategy": config.parallel.strategy, "ranks": comm.size,
                "epochs": config.train.epochs,
            }), flush=True)  # fmt: skip
        else:
            width = max(map(len, rows))
            for name, value in rows.items():
                print(f"{name:<{width}}  {value:.1e}  {'ok' if value <= tolerance else 'DIFFERS'}")
            word = "equal" if equal else "NOT equal"
            print(f"{word} to the serial run within {tolerance:g}: "
                  f"{config.parallel.strategy} on {comm.size} ranks, "
                  f"{config.train.epochs} epochs, {config.train.dtype}", flush=True)  # fmt: skip
    return 0 if equal else 1
