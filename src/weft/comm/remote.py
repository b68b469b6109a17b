"""A rank on some host: a program, and a file that says how it ended.

    python -m weft.comm.remote DIR -- script.py ARGUMENTS | -m MODULE ARGUMENTS

`DIR/end.RANK` is `null`, or the failure that the launcher reports. A rank that was killed leaves none.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from weft.comm.child import RANK_VARIABLES, describe, run_program

_ENDS = "WEFT_ENDS"


def tell(failure: dict[str, object] | None) -> None:
    """How this rank ended, where somebody on another host wants to know; the first word counts."""
    folder = os.environ.get(_ENDS)
    if folder is None:
        return
    path = Path(folder, f"end.{os.environ['WEFT_RANK']}")
    if not path.exists():
        scratch = path.with_name(f"part.{path.name}")  # of this rank alone: all ranks end at once
        scratch.write_text(json.dumps(failure))
        os.replace(scratch, path)


def main() -> None:
    folder, argv = sys.argv[1], sys.argv[3:]
    rank = next(os.environ[name] for name in RANK_VARIABLES if name in os.environ)
    os.environ["WEFT_RANK"], os.environ[_ENDS] = rank, folder
    try:
        run_program(argv)
    except BaseException as error:
        failure = describe(error)
        tell(failure)
        sys.stdout.flush()
        sys.stderr.flush()
        if failure is not None:
            os._exit(int(str(failure["status"])))  # MPI_Finalize would wait for ranks that wait for us
        return
    tell(None)


if __name__ == "__main__":
    main()
