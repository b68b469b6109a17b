"""What the launcher starts in place of a rank: a supervisor, and its child, the rank itself.

The launcher runs this file as a script, before torch or weft are loaded, so it may import the standard
library only. The supervisor asks the launcher (over a socket in the job's private directory) for the
standard output and error of the rank, forks, and tells the launcher how the rank ended: an exception, an
exit status or a signal. So a rank that is killed is reported as well as one that raises.

    python child.py DIR -- script.py ARGUMENTS | -m MODULE ARGUMENTS | -c CODE ARGUMENTS
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import select
import shutil
import signal
import socket
import sys
import traceback

RANK_VARIABLES = ("WEFT_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID", "RANK")
_PIPE = 65536  # what a pipe holds, so that the rank's report never waits for a reader


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """The kernel sends this process a signal when its parent ends, however that ends. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, int(number), 0, 0, 0)


def main() -> None:
    """Supervise one rank."""
    folder, argv = sys.argv[1], sys.argv[3:]
    rank = next(int(os.environ[name]) for name in RANK_VARIABLES if name in os.environ)
    os.environ["WEFT_RANK"] = str(rank)
    # Ctrl-C is for the rank; the launcher sends it there. Mpirun's SIGTERM comes when the job is over anyway.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

    wire = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    wire.connect(os.path.join(folder, "wire"))
    report, failure = os.pipe()
    # The rank waits for the launcher's word, so that the launcher can end it from its first instruction on.
    child = os.fork()
    if child == 0:
        os.close(report)
        _become_rank(wire, failure, argv)
    os.close(failure)
    _send(wire, {"rank": rank, "supervisor": os.getpid(), "pid": child})
    if not _wait(child, wire):
        _clean_up(child, [folder, *filter(None, [os.environ.get("WEFT_MEMORY")])])
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    # Read after the rank's end and without waiting: processes it left behind may still hold the other side.
    os.set_blocking(report, False)
    try:
        text = os.read(report, _PIPE)
    except BlockingIOError:
        text = b""
    message = {"rank": rank, "code": code, "failure": json.loads(text) if text else None}
    with contextlib.suppress(OSError):
        _send(wire, message)
    os._exit(code if 0 <= code < 256 else 128 - code)


def _wait(child: int, wire: socket.socket) -> bool:
    """Wait for the end of the rank (true) or of the launcher (false)."""
    if not hasattr(os, "pidfd_open"):
        return True
    handle = os.pidfd_open(child)
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    poll.register(wire, select.POLLRDHUP)  # its end only: what it sends is for the rank
    return handle in (file for file, _ in poll.poll())


def _clean_up(child: int, folders: list[str]) -> None:
    """The launcher was killed: do its work."""
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    for kill in (os.killpg, os.kill):  # the rank may not lead its group yet
        with contextlib.suppress(ProcessLookupError):
            kill(child, signal.SIGKILL)


def _send(wire: socket.socket, message: dict[str, object]) -> None:
    wire.sendall(json.dumps(message).encode() + b"\n")


def _become_rank(wire: socket.socket, failure: int, argv: list[str]) -> None:
    die_with_parent()
    os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # rank 0 may write to the terminal from the background
    _, files, _, _ = socket.recv_fds(wire, 1, 2)
    wire.close()
    for place, file in zip((1, 2), files, strict=True):
        os.dup2(file, place)
        os.close(file)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.set_inheritable(failure, False)
    faulthandler.enable()  # a crash in native code says where
    # Whole lines, at once; with PYTHONUNBUFFERED the words of one print would mix with those of other ranks.
    for name, place in (("stdout", 1), ("stderr", 2)):
        old = getattr(sys, name)
        new = open(place, "w", buffering=1, encoding=old.encoding, errors=old.errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, new)
    try:
        run_program(argv)
    except BaseException as error:
        text = describe(error)
        if text is None:  # exit status 0
            sys.exit(0)
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os.write(failure, json.dumps(text).encode()[:_PIPE])
        # Not sys.exit: MPI_Finalize would wait for ranks that wait for us.
        os._exit(int(str(text["status"])))
    sys.exit(0)


def describe(error: BaseException) -> dict[str, object] | None:
    """How the launcher learns of an exception; None for an exit with status 0."""
    if isinstance(error, SystemExit):
        if error.code is None or error.code == 0:
            return None
        if isinstance(error.code, int):
            status = error.code & 255 or 1
            return {"kind": "exit", "line": f"exited with status {status}", "trace": "", "status": status}
        return {"kind": "exit", "line": str(error.code), "trace": "", "status": 1}
    if isinstance(error, KeyboardInterrupt):
        return {"kind": "interrupt", "line": "interrupted", "trace": "", "status": 130}
    names = {kind.__name__ for kind in type(error).__mro__}
    if "UserError" in names:
        return {"kind": "user", "line": str(error), "trace": "", "status": 2}
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>"):
        frames = frames.tb_next  # ours and Python's way into the program say nothing about it
    trace = "".join(traceback.format_exception(type(error), error, frames))
    name, text = type(error).__name__, str(error)
    return {
        "kind": "peer" if "PeerLost" in names else "error",
        "line": f"{name}: {text.splitlines()[0]}" if text else name,
        "trace": trace[-8000:],  # the end says most, and the report must fit in a pipe
        "status": 1,
        "type": name,
        "text": text[:4000],
    }


def run_program(argv: list[str]) -> None:
    """Run a program as the interpreter would."""
    import runpy

    if argv[0] == "-m":
        sys.argv = argv[1:]
        sys.path[0] = os.getcwd()
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    elif argv[0] == "-c":
        sys.argv = ["-c", *argv[2:]]
        sys.path[0] = ""
        exec(compile(argv[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = argv
        sys.path[0] = os.path.dirname(os.path.abspath(argv[0]))
        runpy.run_path(argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
