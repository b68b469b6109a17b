"""weft bench: rows with ratios, and one line for a bad number. Nothing here looks at a time."""

from __future__ import annotations

import json

import pytest

from weft.graph import open_store


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


SMALL = "er:nodes=20,degree=3,features=4,classes=2"


def test_several_models_take_turns(weft, monkeypatch):
    turns = []

    def answer(task):
        turns.append((task["model"], task["name"]))
        seconds = {"gat": 1.0, "gat+arcs": 2.0, "gatv2": 3.0}[task["model"]]
        return {"seconds": [seconds], "peak_rss_bytes": 9, "idle_rss_bytes": 4}

    monkeypatch.setattr("weft.bench.epoch.in_a_process", answer)
    line = ("bench", "epoch", f"{SMALL},arc_features=2", "--model", "gat,gat+arcs,gatv2", "--rounds", "2")
    result = json.loads(weft(*line, "--against", "none", "--json").out)
    assert turns == 2 * [("gat", "weft"), ("gat+arcs", "weft"), ("gatv2", "weft")]
    assert [row["to_first"] for row in result["rows"]] == [1, 2, 3]
    assert "gat+arcs" in weft(*line, "--against", "pyg-edges").out


def test_peaks_over_width_are_drawn_and_their_growth_found(weft, monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")

    def answer(task):
        arcs, width = open_store(task["store"], verify=False).num_arcs, task["hidden"]
        peak = 10**6 + 7 * arcs + 90 * width + (8 * arcs * width if task["name"] != "weft" else 0)
        return {"seconds": [1.0], "peak_rss_bytes": peak, "idle_rss_bytes": 0}

    monkeypatch.setattr("weft.bench.width.in_a_process", answer)
    picture = tmp_path / "width.png"
    line = (
        "bench",
        "width",
        "--model",
        "gatv2,gine",
        "--scale",
        "5",
        "--degrees",
        "2,6",
        "--widths",
        "4,8,16",
    )
    found = json.loads(weft(*line, "--against", "pyg-edges", "--plot", str(picture), "--json").out)
    assert len(found["rows"]) == 2 * 2 * 2 * 3
    growth = [(r["contender"], round(r["bytes_per_arc_and_column"], 6)) for r in found["growth"]]
    assert growth == 2 * [("weft", 0.0), ("pyg-edges", 8.0)]
    assert picture.read_bytes()[:4] == b"\x89PNG"
    assert "an arc and a column more" in weft(*line).out


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
        (f"epoch {SMALL} --model gat+arcs --against none", "has no arc features for gat+arcs."),
        ("width --widths 8,x", "each of --widths must be a whole number, not 'x'."),
        ("width --layers 1", "--layers must be at least 2, not 1: a single one has no hidden width."),
        ("width --plot w.doc", "--plot w.doc is no picture's name."),
        ("epoch er:nodes=20,degree=3", "er:nodes=20,degree=3 lacks features, labels or a train mask."),
    ],
)
def test_a_bad_number_or_name_is_one_line(weft, words, message):
    answer = weft("bench", *words.split())
    assert (answer.status, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert message in answer.err


def test_benchmarks_help(weft):
    for name in ("kernels", "epoch", "width"):
        answer = weft("bench", name, "--help")
        assert answer.status == 0
        assert f"weft bench {name}" in answer.out


def test_ranks_takes_the_papers_own_algorithms(weft, monkeypatch):
    """Their ranks are processes elsewhere; here threads, so that nothing is started."""
    from weft.comm import run_ranks

    def here(fn, ranks, engine, *args, threads, stall_seconds):
        assert (engine, threads) == ("mpi", 1) or engine == "torch"
        return run_ranks(fn, ranks, "threads", *args)

    monkeypatch.setattr("weft.bench.ranks.run_ranks", here)
    line = ("bench", "ranks", SMALL, "--layouts", "4x1:cagnet-1d,4x1:cagnet-2d,2x1:pgcn:metis",
            "--rounds", "1", "--epochs", "2",
            "--hidden", "4", "--layers", "2", "--blocking", "2")  # fmt: skip
    rows = json.loads(weft(*line, "--json").out)["rows"]
    assert [(r["strategy"], r["ranks"], r["partition"]) for r in rows] == [
        ("cagnet-1d", 4, "random"), ("cagnet-2d", 4, "random"), ("pgcn", 2, "metis"),
    ]  # fmt: skip
    assert all(r["words"] > 0 and r["above_idle_bytes"] is None for r in rows)
    assert "cagnet-2d" in weft(*line).out


@pytest.mark.parametrize(
    ("layouts", "more", "said"),
    [
        ("4x1:cagnet-4d", (), "unknown strategy 'cagnet-4d'. Did you mean"),
        ("4x1:1d", ("--blocking", "8"), "--blocking is for cagnet-2d and cagnet-3d"),
        ("4x1:pgcn:metsi", (), "unknown partition method 'metsi'"),
    ],
)
def test_ranks_refuses_what_it_cannot_run(weft, layouts, more, said):
    answer = weft("bench", "ranks", SMALL, "--layouts", layouts, *more)
    assert answer.status == 2
    assert said in answer.err
    assert answer.err.count("\n") == 1


def test_words_shows_the_papers_own_algorithms(weft):
    line = ("bench", "words", SMALL, "--baselines", "--ranks", "2", "--width", "4", "--layers", "2")
    answer = weft(*line, "--partition", "metis")
    assert answer.status == 0
    assert "pgcn" in answer.out
    assert "metis parts" in answer.out
    assert len(json.loads(weft(*line, "--json").out)["rows"]) == 5
    assert "with --baselines alone" in weft("bench", "words", SMALL, "--partition", "metis").err
    assert "Leave one" in weft(*line, "--plot", "x.png").err
