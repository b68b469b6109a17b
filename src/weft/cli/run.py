"""weft run: a user's own script on ranks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import UserError
from .options import Parser, whole_number

_EXAMPLES = """  weft run --ranks 4 script.py
  weft run --ranks 2 --engine torch --threads 1 script.py --epochs 3

in the script:
  import weft
  with weft.ranks() as job:        # the ranks that run it; without weft run, this process alone
      data = job.share(data)       # this rank's share of a PyG Data, a graph or a store
      model = job.wrap(model)      # any nn.Module, in an ordinary loop"""


def run(arguments: Sequence[str]) -> int:
    from ..comm.launch import STALL_SECONDS, launch

    cut = next((i for i, word in enumerate(arguments) if word.endswith(".py")), len(arguments))
    parser = Parser(
        "run", "[OPTIONS] SCRIPT.py [ARGUMENTS]", "Start a Python script on local ranks.", _EXAMPLES
    )
    parser.add_argument("--ranks", default="2", metavar="N", help="ranks to start (2)")
    parser.add_argument("--engine", default="auto", help="mpi, torch or auto (auto)")
    parser.add_argument("--threads", default="0", metavar="N", help="threads a rank; 0 divides the cores (0)")
    parser.add_argument("--stall-seconds", default=str(STALL_SECONDS), metavar="S", help="(300)")
    parsed = parser.parse(arguments[:cut])
    if cut == len(arguments):
        raise UserError("weft run needs a script that ends in .py. Write weft run --ranks 4 script.py.")
    script = list(arguments[cut:])
    if parsed.engine == "threads":
        raise UserError("a script runs on processes, not on the engine 'threads'. Use --engine mpi or torch.")
    if not Path(script[0]).is_file():
        raise UserError(f"no file {script[0]}. Check the path.")
    try:
        stall = float(parsed.stall_seconds)
    except ValueError:
        raise UserError(f"--stall-seconds must be a number, not {parsed.stall_seconds!r}.") from None
    threads = whole_number(parsed.threads, "--threads", least=0)
    return launch(script, whole_number(parsed.ranks, "--ranks"), parsed.engine, threads or None, stall)
