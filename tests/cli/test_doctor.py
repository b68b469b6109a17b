from __future__ import annotations

import json

from weft.cli import main


def test_the_doctor_tests_every_engine_and_names_the_kernels(capfd):
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert set(report["engines"]) == {"threads", "mpi", "torch"}
    assert all(engine["works"] for engine in report["engines"].values())
    assert report["kernels"].startswith("C++")
