"""weft verify script.py:make_model GRAPH: is a module of your own, on ranks, that of one process?"""

from __future__ import annotations

import json
import runpy
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError, unknown
from .options import Parser, whole_number

if TYPE_CHECKING:
    from ..comm import Communicator

_EXAMPLES = """  weft verify script.py:make_model cora --ranks 3
  weft verify script.py:make_model karate --ranks 4 --engine threads --partition metis --json
  weft verify script.py:make_model cora --ranks 4 --strategy 2d --grid 2x2

in the script:
  def make_model(data):            # a PyG Data; or without arguments
      return GCN(data.num_features, 16, 7)"""
_making = threading.Lock()
"""Virtual ranks build one after the other: PyG compiles classes when they are first used."""


def run(arguments: Sequence[str]) -> int:
    from ..comm import connect, in_job
    from ..comm.launch import ENGINES, STALL_SECONDS, launch
    from ..comm.threads import run_threads, single
    from ..parallel import choose
    from ..train.verify import TOLERANCE

    parser = Parser(
        "verify", "SCRIPT.py:FUNCTION GRAPH [OPTIONS]",
        "Run a module of your own on ranks and alone, and compare what every submodule gives, every weight's "
        "gradient and that of x; exit status 1 where they differ, and the first that does.", _EXAMPLES,
    )  # fmt: skip
    parser.add_argument("function", help="the function that makes the module")
    parser.add_argument("graph", help="a graph, as weft train has it")
    parser.add_argument("--ranks", default="2", metavar="N", help="ranks to compare with one (2)")
    parser.add_argument("--engine", default="auto", help="mpi, torch, threads or auto (auto)")
    parser.add_argument(
        "--partition", default="random", help="block, random, metis, hypergraph, stream or a file (random)"
    )
    parser.add_argument("--strategy", default="halo", help="halo, 1d, 2d, …, as weft train has it (halo)")
    parser.add_argument("--grid", default="", help="its grid, such as 2x2")
    parser.add_argument("--dtype", default="float64", help="float64 or float32 (float64)")
    parser.add_argument("--seed", default="0", metavar="N", help="of weights, dropout and the partition (0)")
    parser.add_argument("--data", default="", help="the folder of data sets")
    parser.add_argument(
        "--eval", action="store_true", help="compare the module in eval mode, not as it trains"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    options = parser.parse(arguments)
    if options.dtype not in TOLERANCE:
        raise unknown("dtype", options.dtype, TOLERANCE)
    if options.engine not in (*ENGINES, "threads"):
        raise unknown("engine", options.engine, (*ENGINES, "threads"))
    count = whole_number(options.ranks, "--ranks")
    whole_number(options.seed, "--seed", least=0)
    find(options.function)
    choose(options.strategy, count, options.grid)

    def work(comm: Communicator) -> int:
        return _verify(comm, options, TOLERANCE[options.dtype])

    if in_job():
        return work(connect("auto" if options.engine == "threads" else options.engine))
    if count == 1:
        return work(single())
    if options.engine == "threads":
        return max(run_threads(work, count))
    return launch(["-m", "weft", "verify", *arguments], count, options.engine, None, STALL_SECONDS)


def find(address: str) -> Callable[..., Any]:
    """The function that `script.py:name` means; the script runs as a module, not as a program."""
    path, _, name = address.rpartition(":")
    if not Path(path).is_file():
        raise UserError(f"no file {path}. Check the path.")
    found = runpy.run_path(path, run_name="weft_script").get(name)
    if not callable(found):
        raise UserError(
            f"{path} has no function {name!r}. Define it there: def {name}(data): return a module."
        )
    return found


def _verify(comm: Communicator, options: Any, tolerance: float) -> int:
    """What every rank does."""
    import torch

    from ..graph import load, to_pyg
    from ..pyg.verify import differences

    with _making:
        data = to_pyg(load(options.graph, options.data or None))
        model = _make(find(options.function), data, int(options.seed))
    dtype = getattr(torch, options.dtype)
    for key, value in data:
        if torch.is_tensor(value) and value.is_floating_point():
            data[key] = value.to(dtype)
    model = model.to(dtype).train(not options.eval)
    rows = differences(
        model, data, comm, options.partition, int(options.seed), options.strategy, options.grid
    )
    wrong = [name for name, value in rows.items() if not value <= tolerance]  # a NaN is not equal
    if comm.rank == 0:
        _report(rows, wrong, tolerance, comm.size, options.json)
    return 1 if wrong else 0


def _make(function: Callable[..., Any], data: Any, seed: int) -> Any:
    import inspect

    import torch

    torch.manual_seed(seed)
    model = function(data) if inspect.signature(function).parameters else function()
    if not isinstance(model, torch.nn.Module):
        raise UserError(
            f"{function.__name__} gives a {type(model).__name__}, not a torch.nn.Module. Return the module."
        )
    return model


def _report(rows: dict[str, float], wrong: list[str], tolerance: float, ranks: int, as_json: bool) -> None:
    first = wrong[0] if wrong else None
    if as_json:
        from ..train.run import finite

        answer = {
            "equal": not wrong,
            "first": first,
            "tolerance": tolerance,
            "ranks": ranks,
            "differences": rows,
        }
        print(json.dumps(finite(answer)), flush=True)
        return
    width = max(map(len, rows), default=0)
    for name, value in rows.items():
        print(f"{name:<{width}}  {value:.1e}  {'DIFFERS' if name in wrong else 'ok'}")
    end = "equal to one process" if not wrong else f"NOT equal to one process: first the {first}"
    print(f"{end}, within {tolerance:g}, on {ranks} ranks", flush=True)
