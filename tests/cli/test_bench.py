"""weft bench: rows with ratios, and one line for a bad number. Nothing here looks at a time."""

from __future__ import annotations

import json

import pytest


def test_kernels_are_measured_beside_torch(weft, monkeypatch):
    monkeypatch.setattr("weft.bench.kernels.stream_bandwidth", lambda rounds: 1.0)
    answer = weft(
        "bench", "kernels", "karate", "--widths", "3,4", "--threads", "1", "--rounds", "1", "--json"
    )
    assert (answer.status, answer.err) == (0, "")
    result = json.loads(answer.out)
    assert (result["graph"], result["arcs"]) == ("karate", 156)
    found = [(row["operator"], row["width"], row["threads"]) for row in result["rows"]]
    assert found == [(name, width, 1) for width in (3, 4) for name in ("spmm", "sddmm", "dropout")]
    for row in result["rows"]:
        assert row["ratio"] == pytest.approx(row["torch_seconds"] / row["weft_seconds"])
        assert row["stream_gigabytes_per_second"] == 1.0


def test_kernels_are_shown_as_a_table(weft, monkeypatch):
    monkeypatch.setattr("weft.bench.kernels.stream_bandwidth", lambda rounds: 1.0)
    answer = weft("bench", "kernels", "karate", "--widths", "3", "--threads", "1", "--rounds", "1")
    assert answer.out.startswith("karate: 34 vertices, 156 arcs, float32")
    assert all(word in answer.out for word in ("spmm", "sddmm", "dropout", "ratio", "STREAM"))


def test_epochs_are_measured_beside_pyg(weft):
    pytest.importorskip("torch_geometric")
    words = "karate --model sage --layers 2 --hidden 4 --threads 1 --epochs 1 --rounds 1 --against pyg-csr"
    result = json.loads(weft("bench", "epoch", *words.split(), "--json").out)
    assert [row["contender"] for row in result["rows"]] == ["weft", "pyg-csr"]
    assert result["rows"][0]["ratio"] == 1.0
    assert all(row["peak_rss_bytes"] > row["above_idle_bytes"] >= 0 for row in result["rows"])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("kernel", "unknown benchmark 'kernel'. Did you mean 'kernels'?"),
        ("kernels karate --widths 16,x", "each of --widths 16,x must be a whole number, not 'x'."),
        ("kernels karate --widths 0", "each of --widths 0 must be at least 1, not 0."),
        ("kernels karate --threads two", "each of --threads two must be a whole number, not 'two'."),
        ("kernels karate --rounds 1,2", "--rounds must be a whole number, not '1,2'."),
        ("kernels karate --width 3", "'--width'. Did you mean '--widths'?"),
        ("kernels gone.txt", "no file gone.txt. Check the path."),
        ("epoch karate --dropout x", "--dropout must be a number in [0, 1), not 'x'."),
        ("epoch karate --dropout 1", "--dropout must be a number in [0, 1), not '1'."),
        ("epoch karate --hidden 1.5", "--hidden must be a whole number, not '1.5'."),
        ("epoch karate --layers 0", "--layers must be at least 1, not 0."),
        ("epoch karate --against pgy", "unknown contender 'pgy'. Did you mean 'pyg'?"),
        ("epoch karate --model gin", "unknown model for this benchmark 'gin'. Did you mean 'gine'?"),
        ("epoch er:nodes=20,degree=3", "er:nodes=20,degree=3 lacks features, labels or a train mask."),
    ],
)
def test_a_bad_number_or_name_is_one_line(weft, words, message):
    answer = weft("bench", *words.split())
    assert (answer.status, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert message in answer.err


def test_both_benchmarks_help(weft):
    for name in ("kernels", "epoch"):
        answer = weft("bench", name, "--help")
        assert answer.status == 0
        assert f"weft bench {name}" in answer.out
