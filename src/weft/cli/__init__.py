"""Parse, build a config, call. One file a command; nothing here computes."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import signal
import sys
import time
import warnings
from collections.abc import Sequence
from typing import Any

from ..errors import Note, UserError, unknown

COMMANDS = {
    "train": "train a model on a graph, on one rank or many",
    "verify": "compare a distributed run with the serial one",
    "predict": "embeddings and classes from a trained run",
    "report": "one HTML page of a run, or of several side by side",
    "data": "public data sets: which are here, and how to get the others",
    "fetch": "download a public data set, its licence shown first",
    "info": "describe a graph, or a run",
    "generate": "make a graph and store it",
    "convert": "turn a graph file into a memory-mapped store",
    "partition": "cut a graph into parts, and count what will move between them",
    "calibrate": "measure this machine, for plans",
    "plan": "which strategy would be fastest, on how much memory, before anything is run",
    "run": "start your own script on ranks",
    "bench": "measure: kernels, epochs against PyG, messages",
    "reproduce": "figures and tables of the papers, made anew beside the paper's numbers",
    "doctor": "what works on this machine",
    "completion": "a script for the shell's Tab: bash, zsh or fish",
}
"""Command → one line. Each lives in `weft/cli/<command>.py` as `run(arguments) -> exit status`."""


# torch's idle OpenMP workers spin for milliseconds by default, and take the core from whoever has work:
# on a busy machine an epoch then takes many times as long. A short spin keeps the gain without the harm
# (docs/log.md). It must be set before torch is loaded.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")


_begun = time.time()


def begun() -> float:
    """When the command was given, in seconds since 1970: what it says to take counts from here."""
    return _begun


def main(argv: Sequence[str] | None = None) -> int:
    """The `weft` command. A user's mistake is one line on standard error and exit status 2."""
    global _begun
    _begun = time.time()
    arguments = list(sys.argv[1:] if argv is None else argv)
    shown = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if issubclass(category, Note):
            print(f"weft: {' '.join(str(message).split())}", file=sys.stderr)
        else:
            shown(message, category, *where, **more)

    warnings.showwarning = show
    try:
        try:
            status = _dispatch(arguments)
            sys.stdout.flush()  # here, so that a reader who has gone is noticed below and not at exit
            return status
        except (MemoryError, RuntimeError, OSError) as error:
            told = _short(error)
            if told is None:
                raise
            _drop_output()
            raise told from None
    except UserError as error:
        if "WEFT_RANK" in os.environ:  # a rank that weft started: the launcher shows it, once for all ranks
            raise
        print(f"weft: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
        if not getattr(error, "everywhere", False):
            _abort_others()
        return 2
    except KeyboardInterrupt as stop:
        print("weft: stopped.", file=sys.stderr)
        return 128 + getattr(stop, "number", signal.SIGINT)
    except BrokenPipeError:  # the reader of our output has gone, as in `weft info g.weft | head -1`
        _drop_output()
        return 1
    finally:
        warnings.showwarning = shown


def _abort_others() -> None:
    """This rank made a mistake that the others don't know of."""
    launch = sys.modules.get("weft.comm.launch")
    if launch is not None:
        launch.abort(2)


def _drop_output() -> None:
    """Nobody reads it, or there is no room: what is still in the buffer must not fail again at exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _short(error: BaseException) -> UserError | None:
    """The line for an error that is nobody's mistake and no bug: memory or a disk that is full.

    >>> print(_short(MemoryError()))
    there is not enough memory for this. Use a smaller graph or model, more ranks, or a bigger machine.
    """
    text = str(error)
    if isinstance(error, MemoryError) or "can't allocate memory" in text or "not enough memory" in text:
        return UserError(
            "there is not enough memory for this. Use a smaller graph or model, more ranks, or a bigger "
            "machine."
        )
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = f" for {error.filename}" if error.filename else ""
        return UserError(f"there is no space left on the disk{where}. Make room, or write elsewhere.")
    return None


def _dispatch(arguments: list[str]) -> int:
    if arguments[:1] == ["help"] and len(arguments) > 1:
        arguments = [*arguments[1:], "--help"]
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(_overview())
        return 0
    if arguments[0] in ("-V", "--version"):
        from .. import __version__

        print(f"weft {__version__}")
        return 0
    command = arguments[0]
    if command not in COMMANDS:
        raise unknown("command", command, COMMANDS)
    module = importlib.import_module(f".{command}", __name__)
    return int(module.run(arguments[1:]))


def _overview() -> str:
    width = max(map(len, COMMANDS))
    rows = "\n".join(f"  weft {name:<{width}}  {text}" for name, text in COMMANDS.items())
    return f"""weft trains graph neural networks on graphs too big or too slow for one process.

{rows}

Start here:
  weft train                              a built-in graph: progress bar, test accuracy
  weft train cora --model sage            a data set under $WEFT_DATA
  weft COMMAND --help                     options, with examples"""
