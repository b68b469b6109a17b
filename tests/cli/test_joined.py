"""Streaming commands on the ranks of a job."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from weft.cli import convert, generate
from weft.comm import run_ranks
from weft.errors import UserError


@pytest.fixture
def job(monkeypatch):
    """run(command, arguments) on three virtual ranks that believe to be mpirun's."""
    here = threading.local()
    monkeypatch.setattr("weft.comm.in_job", lambda: True)
    monkeypatch.setattr("weft.comm.connect", lambda *_: here.comm)

    def work(comm, command, arguments):
        here.comm = comm
        return command.run(arguments)

    return lambda command, *arguments: run_ranks(work, 3, "threads", command, arguments)


def test_ranks_share_a_conversion_and_the_first_tells_of_it(tmp_path, job, monkeypatch, capsys):
    ids = np.random.default_rng(0).integers(90, size=(400, 2)) * 5
    path = tmp_path / "g.txt"
    path.write_text("".join(f"{a} {b}\n" for a, b in ids))
    with monkeypatch.context() as alone:
        alone.setattr("weft.comm.in_job", lambda: False)
        convert.run([str(path), str(tmp_path / "one.weft"), "--undirected"])
    [line] = capsys.readouterr().out.splitlines()
    assert job(convert, str(path), str(tmp_path / "all.weft"), "--undirected", "--memory", "4GB") == [0] * 3
    assert capsys.readouterr().out == line.replace("one.weft", "all.weft") + "\n"
    assert (tmp_path / "all.weft").read_bytes() == (tmp_path / "one.weft").read_bytes()
    assert job(generate, "er", "--nodes", "50", "--stream", "--out", str(tmp_path / "er.weft")) == [0] * 3
    assert capsys.readouterr().out.count("er.weft: 50 vertices") == 1
    path.write_text("0 1\nx 2\n")
    with pytest.raises(UserError, match=r"line 2: id 'x' is not a whole number"):
        job(convert, str(path), str(tmp_path / "bad.weft"))
    assert not list(tmp_path.glob(".*"))


def test_what_one_process_makes_is_refused_on_ranks(tmp_path, job):
    with pytest.raises(UserError, match=r"karate is converted as a whole, by one process. Leave out mpirun"):
        job(convert, "karate", str(tmp_path / "k.weft"))
    with pytest.raises(UserError, match=r"er.txt is written from front to back, by one process"):
        job(generate, "er", "--nodes", "50", "--stream", "--out", str(tmp_path / "er.txt"))
