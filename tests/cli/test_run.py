from __future__ import annotations

import pytest

from weft.cli import main

SCRIPT = """
import sys
import torch
from weft.comm import connect
comm = connect()
total = comm.all_reduce(torch.tensor([comm.rank + 1]))
if comm.rank == 0:
    print("sum", int(total), sys.argv[1:])
"""


@pytest.mark.parametrize("engine", ["mpi", "torch"])
def test_a_script_of_ones_own_runs_on_ranks(engine, tmp_path, capfd):
    (tmp_path / "script.py").write_text(SCRIPT)
    assert main(["run", "--ranks", "3", "--engine", engine, "script.py", "--epochs", "3"]) == 0
    assert "sum 6 ['--epochs', '3']" in capfd.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["nosuch.py"],
        ["--ranks", "0", "s.py"],
        ["--ranks", "2"],
        ["--stall-seconds", "x", "s.py"],
        ["--engine", "threads", "s.py"],
    ],
)
def test_a_mistake_is_one_line(arguments, tmp_path, capfd):
    (tmp_path / "s.py").write_text("")
    assert main(["run", *arguments]) == 2
    assert capfd.readouterr().err.count("\n") == 1
