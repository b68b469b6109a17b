"""The words of every algorithm: below its paper's, and falling as the paper says."""

from __future__ import annotations

import json
import sys

import pytest

from weft.bench.pictures import check_drawable
from weft.bench.words import ALGORITHMS, attention_words, bench_words, draw_words, slope
from weft.cli import main
from weft.comm import Communicator, Ledger, run_ranks
from weft.errors import UserError
from weft.graph import er, load
from weft.train import RunConfig, Trainer

FEW, MANY = [4, 8, 9, 16, 27], [4, 8, 9, 16, 27, 36, 64]
N, WIDTH = 599, 24  # the width divides into every side, so that only rows are uneven


@pytest.fixture(scope="module", params=[FEW, pytest.param(MANY, marks=pytest.mark.slow)], ids=["27", "64"])
def measured(request):
    return bench_words(er(nodes=N, degree=4, directed=True), request.param, WIDTH)


def rows_of(result, name):
    return [row for row in result["rows"] if row["algorithm"] == name]


def test_every_algorithm_is_measured_where_its_paper_has_a_formula(measured):
    ranks = {a.name: [row["ranks"] for row in rows_of(measured, a.name)] for a in ALGORITHMS}
    assert ranks["1d"] in (FEW, MANY)
    assert ranks == {
        name: [p for p in ranks["1d"] if p in wanted]
        for name, wanted in {
            "1d": MANY, "1.5d, c=2": [4, 8, 16, 36, 64], "1.5d, c=4": [16, 64],
            "a-stationary": [4, 9, 16, 36, 64], "2d": [4, 9, 16, 36, 64], "3d": [8, 27, 64],
        }.items()
    }  # fmt: skip


def test_never_above_the_papers_words_not_even_without_its_moving_of_a(measured):
    for row in measured["rows"]:
        assert row["words_mean"] <= row["words"] <= row["paper_dense"] <= row["paper"], row
        assert row["epoch_words_mean"] <= row["epoch_words"] <= row["epoch_paper_dense"], row
        assert row["epoch_paper_dense"] <= row["epoch_paper"], row


def test_one_d_receives_n_f_whatever_the_ranks(measured):
    for row in rows_of(measured, "1d"):
        p = row["ranks"]
        assert row["words"] == (N - N // p) * WIDTH
        assert row["words"] >= (1 - 1 / p) * N * WIDTH


def test_one_and_a_half_d_falls_by_c(measured):
    """n·f/c, and n·f·c/P beside it."""
    for c in (2, 4):
        for row in rows_of(measured, f"1.5d, c={c}"):
            p = row["ranks"]
            want = N * WIDTH * ((1 - c / p) / c + c / p * (1 - 1 / c))
            assert row["words"] == pytest.approx(want, rel=0.05)
    few, many = (rows_of(measured, name)[-1] for name in ("1.5d, c=2", "1.5d, c=4"))
    alone = next(row for row in rows_of(measured, "1d") if row["ranks"] == few["ranks"])
    assert alone["words"] / few["words"] == pytest.approx(2 * (1 - 1 / few["ranks"]), rel=0.05)
    assert few["words"] > many["words"]


@pytest.mark.parametrize(
    ("name", "constant"),
    [
        ("a-stationary", lambda s: 2 * (1 - 1 / s)),
        ("2d", lambda s: (1 - 1 / s) * (1 + 2 / s)),
    ],
)
def test_square_grids_fall_by_the_root_of_the_ranks(measured, name, constant):
    for row in rows_of(measured, name):
        side = row["ranks"] ** 0.5
        # Blocks are whole rows and whole columns: a little more than the even share on the fullest rank.
        assert row["words"] == pytest.approx(N * WIDTH / side * constant(side), rel=0.12)


def test_cubes_fall_by_the_ranks_to_two_thirds(measured):
    for row in rows_of(measured, "3d"):
        share = row["ranks"] ** (2 / 3)
        assert row["words"] == pytest.approx(2 * N * WIDTH / share * (1 - 1 / share), rel=0.12)


def test_the_order_of_the_algorithms_is_the_papers(measured):
    most = rows_of(measured, "2d")[-1]["ranks"]
    words = [row["words"] for row in measured["rows"] if row["ranks"] == most]
    assert words == sorted(words, reverse=True)
    assert len(words) == (6 if most == 64 else 5)


def test_slopes_tell_the_algorithms_apart(measured):
    """Of the last two sizes, where the factors (1 − 1/side) that the formulas above have are nearly 1."""
    steep = {a.name: slope(rows_of(measured, a.name)[-2:]) for a in ALGORITHMS if a.name != "1.5d, c=4"}
    assert abs(steep["1d"]) < 0.06
    assert abs(steep["1.5d, c=2"]) < 0.05
    assert -0.55 < steep["a-stationary"] < -0.2
    assert -0.75 < steep["2d"] < -0.4
    assert -0.75 < steep["3d"] < -0.4


def test_an_epoch_is_foretold_from_one_propagation(measured):
    """Two of three layers propagate, forward and back; gradients and loss are summed besides."""
    weights = 3 * WIDTH**2
    for row in rows_of(measured, "1d"):
        p = row["ranks"]
        sums = 2 * weights * (p - 1) / p
        assert row["epoch_words"] == pytest.approx(4 * row["words"] + sums, rel=0.05)


@pytest.mark.parametrize(
    ("model", "columns", "weights"),
    [
        # Columns of slabs of n/√P rows, forward and back; the first layer's input gets no gradient.
        ("va", lambda k, layers: (layers - 1) * 8 * k, lambda k: k * k),  # its first layer is kept
        ("agnn", lambda k, layers: 7 * k + 6 + (layers - 1) * (8 * k + 7), lambda k: k * k + 1),
        ("gat", lambda k, layers: layers * (5 * k + 10), lambda k: k * k + 2 * k),
    ],
)
def test_attention_on_a_stationary_is_of_the_papers_order(model, columns, weights):
    """O(nk/√p + k²) for a layer, forward as backward: the constants, exactly, where everything divides."""
    n, k, layers = 20_480, 16, 3
    squares = [4, 16, 64, 256, 1024]
    rows = [row for row in attention_words(n, [2, *squares, 27], k, layers) if row["model"] == model]
    assert [row["ranks"] for row in rows] == squares
    for row in rows:
        p, side = row["ranks"], row["ranks"] ** 0.5
        sums = 2 * (layers * weights(k) + 3) * (p - 1) / p  # two words of the ranks, and the loss
        assert row["words_mean"] == n / side * (1 - 1 / side) * columns(k, layers) + sums
        assert row["words_mean"] <= row["words"] < 1.02 * row["words_mean"]
        assert row["ratio"] < columns(k, layers) / (2 * layers * k)
    assert -0.55 < slope(rows[-2:]) < -0.4


def test_attentions_words_are_the_ledgers():
    """Of the three of Besta et al. and of the models that read what arcs carry."""
    graph = load("er:nodes=101,degree=4,directed=true,features=6,classes=6,arc_features=3,arc_types=2")

    def epoch(comm: Communicator, model: str, grid: str) -> int:
        config = RunConfig()
        config.model.name, config.model.hidden = model.removesuffix("+arcs"), 6
        config.model.layers, config.model.bias = 3, False
        if model == "gat+arcs":
            config.model.arc_features = -1
        config.parallel.strategy, config.parallel.grid = "a-stationary", grid
        trainer = Trainer(graph, config, comm)
        trainer.step(1)  # in which VA's first layer is made
        with Ledger(comm) as books:
            trainer.step(2)
        return books.words()

    rows = attention_words(101, [4, 9], 6, 3, graph.arc_data)
    assert len({row["model"] for row in rows}) == 10
    for row in rows:
        side = round(row["ranks"] ** 0.5)
        words = run_ranks(epoch, row["ranks"], "threads", row["model"], f"{side}x{side}")
        assert (max(words), sum(words) / len(words)) == (row["words"], row["words_mean"]), row


def test_the_command_prints_a_table_or_json_and_draws(capsys, tmp_path):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "words.png"
    line = ["bench", "words", "er:nodes=67,degree=3", "--ranks", "4,8", "--width", "4", "--layers", "2"]
    assert main([*line, "--json", "--plot", str(picture)]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["graph"] == "er:nodes=67,degree=3"
    assert [row["ranks"] for row in result["rows"]] == [4, 8, 4, 8, 4, 4, 8]
    assert [(row["model"], row["ranks"]) for row in result["attention"]] == [
        ("va", 4),
        ("agnn", 4),
        ("gat", 4),
    ]
    assert picture.read_bytes()[:4] == b"\x89PNG"
    assert main(line) == 0
    out = capsys.readouterr().out
    assert "a-stationary" in out
    assert "O(nk/√P + k²)" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--ranks", "4,x"], "each of --ranks 4,x must be a whole number, not 'x'."),
        (["--ranks", "40"], "40 ranks are more than the graph's 34 vertices. Use a larger graph."),
        (["--layers", "1"], "--layers must be at least 2, not 1: of a single one A·X is kept."),
        (["--plot", "words.doc"], "--plot words.doc is no picture's name. Use a name that ends in .png,"),
        (["--plot", "nowhere/words.png"], "no folder nowhere to draw words.png into. Make it first."),
    ],
)
def test_a_mistake_is_one_line_and_status_2(capsys, options, message):
    assert main(["bench", "words", "karate", *options]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert len(captured.err.strip().splitlines()) == 1
    assert not captured.out


def test_without_matplotlib_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UserError) as caught:
        check_drawable("words.png")
    assert str(caught.value) == "--plot needs matplotlib. Use: pip install 'weft[plot]'."
    with pytest.raises(UserError):
        draw_words({}, "words.png")


def test_words_above_the_papers_would_be_caught(measured):
    """The bound is no loose one: sending every block twice would be noticed in every row."""
    for row in measured["rows"]:
        assert 2.2 * row["words"] > row["paper_dense"]
