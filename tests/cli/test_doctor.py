from __future__ import annotations

import json

from weft.cli import doctor, main


def test_the_doctor_tests_every_engine_and_names_the_kernels(capfd):
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert set(report["engines"]) == {"threads", "mpi", "torch"}
    assert all(engine["works"] for engine in report["engines"].values())
    assert report["kernels"].startswith("C++")


def test_an_engine_that_fails_is_reported_with_its_remedy(monkeypatch):
    monkeypatch.setattr("weft.comm.launch._has_mpi4py", lambda: False)
    report = doctor.diagnose(engines=("mpi",))["engines"]["mpi"]
    assert not report["works"]
    assert "needs mpi4py" in report["error"]
    assert "weft[mpi]" in report["remedy"]
