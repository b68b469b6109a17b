"""P3's runs are the paper's set-up, whatever `weft train` would choose."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.bench.reproduce import p3


@pytest.mark.parametrize("feed", ["pull", "push-pull"])
def test_a_run_names_its_strategy_and_its_partition(monkeypatch, feed):
    asked = {}

    def trained(store, out, options, engine):
        asked.update(zip(options[::2], options[1::2], strict=True), engine=engine)
        return {}

    monkeypatch.setattr(p3, "trained", trained)
    sizes = {"hidden": [16], "fanouts": "10,5", "ranks": [2], "batch_size": 7, "engine": "mpi"}
    p3._fed(sizes, Path("g.weft"), Path("out"), feed, 3)
    assert (asked["--strategy"], asked["--partition"], asked["--feed"]) == ("1d", "hash", feed)
    assert asked["engine"] == "auto"
