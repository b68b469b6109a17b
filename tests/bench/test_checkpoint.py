from __future__ import annotations

import json
from pathlib import Path

from weft.cli import main


def test_every_work_has_a_row_and_sizes_are_those_of_the_state(capsys, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda handle: None)
    words = ["bench", "checkpoint", "sbm:nodes=150,features=5,classes=3", "--epochs", "8", "--threads", "1"]
    assert main([*words, "--json"]) == 0
    rows = {row["work"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert list(rows) == ["whole", "batches", "links"]
    for row in rows.values():
        assert row["checkpoints"] == 3  # of eight epochs, two apart; the last needs none
        state = row["model_bytes"] + row["embedding_bytes"]
        assert 3 * state < row["bytes"] < 4 * state + 20_000  # Adam's two moments, headers
        assert min(row["epoch_seconds"], row["stall_seconds"], row["slower"], row["resume_seconds"]) > 0
    assert rows["links"]["embedding_bytes"] == 150 * 64 * 4
    assert rows["whole"]["embedding_bytes"] == 0
    assert not list(Path().iterdir())
    assert main([*words[:-2], "--every", "1"]) == 2
    assert "--every 1 below 2. Use 4 times --every at least." in capsys.readouterr().err
