"""weft generate: what is written is what the generator makes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from weft.cli.generate import _pairs
from weft.graph import Graph, load

TENSORS = ("indptr", "indices", "weights", "features", "labels", "train_mask", "val_mask", "test_mask", "ids")


def same(a: Graph, b: Graph) -> bool:
    pairs = [(getattr(a, key), getattr(b, key)) for key in TENSORS]
    for key in ("arc_data", "vertex_data"):
        ours, theirs = getattr(a, key), getattr(b, key)
        if ours.keys() != theirs.keys():
            return False
        pairs += [(ours[name], theirs[name]) for name in ours]
    return all(torch.equal(x, y) if x is not None and y is not None else x is y for x, y in pairs)


@pytest.mark.parametrize(
    ("words", "spec"),
    [
        ("sbm --nodes 200 --classes 4 --noise=0.5", "sbm:nodes=200,classes=4,noise=0.5"),
        ("kronecker --scale 6 --degree 4", "kronecker:scale=6,degree=4"),
        ("er --nodes 100 --directed true --seed 3", "er:nodes=100,directed=true,seed=3"),
        ("bter --nodes 300 --degree 5 --max-degree 20", "bter:nodes=300,degree=5,max_degree=20"),
        ("karate", "karate"),
        ("er:nodes=50,degree=3 --seed 2", "er:nodes=50,degree=3,seed=2"),
    ],
)
def test_a_generated_store_holds_the_graph_of_the_spec(weft, words, spec):
    answer = weft("generate", *words.split(), "--out", "g.weft")
    wanted = load(spec)
    assert (answer.status, answer.err) == (0, "")
    assert answer.out == f"g.weft: {wanted.num_nodes:,} vertices, {wanted.num_arcs:,} arcs\n"
    assert same(load("g.weft"), wanted)
    assert [path.name for path in Path().iterdir()] == ["g.weft"]


def test_the_help_shows_each_generator_with_its_arguments(weft):
    text = weft("generate", "--help").out
    assert "sbm        --nodes 10000 --classes 8" in text
    assert "--max-degree N" in text


def test_names_lose_their_hyphens_and_values_keep_them():
    assert _pairs(["--max-degree=-3", "--a", "b-c"]) == ["max_degree=-3", "a=b-c"]


def test_arcs_that_carry_data_are_stored_with_it_and_the_last_line_tells(weft):
    words = "er --nodes 50 --degree 4 --arc-features 3 --arc-types=2 --out g.weft"
    answer = weft("generate", *words.split())
    wanted = load("er:nodes=50,degree=4,arc_features=3,arc_types=2")
    arcs = wanted.num_arcs
    assert answer.out == (
        f"g.weft: 50 vertices, {arcs} arcs, arc data features float32 {arcs}x3, type int64 {arcs}\n"
    )
    assert same(load("g.weft"), wanted)
    assert "every one  --arc-features 0 --arc-types 0" in weft("generate", "--help").out


def test_arcs_drawn_piece_by_piece_go_to_a_store_or_to_a_file(weft, tmp_path):
    words = ["generate", "er", "--nodes", "300", "--degree", "6", "--seed", "2", "--stream"]
    answer = weft(*words, "--out", "g.weft", "--memory", "4GB")
    assert (answer.status, answer.err) == (0, "")
    assert answer.out.startswith("g.weft: 300 vertices, 1,")
    assert weft(*words, "--out", "g.csv").out.startswith("g.csv: 300 vertices, ")
    assert weft("convert", "g.csv", "c.weft").status == 0
    assert same(load("g.weft").replace(name="g"), load("c.weft"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("sbm --stream --out g.weft", "unknown generator that streams 'sbm'. Known: er, kronecker, bter."),
        ("er --stream --features 3 --out g.weft", "unknown argument of er --stream 'features'."),
        ("er --memory 4GB --out g.weft", "--memory is for --stream."),
        ("er --stream --memory lots --out g.weft", "--memory takes a size such as 4GB, not 'lots'."),
        ("er --stream --memory 4GB --out g.txt", "needs no --memory. Leave it out."),
        ("kronecker --scale 40 --stream --out g.weft", "scale=40 is no such scale. Use 0 to 31."),
    ],
)
def test_what_does_not_stream_is_said(weft, tmp_path, words, message):
    answer = weft("generate", *words.split())
    assert (answer.status, answer.err.count("\n")) == (2, 1)
    assert message in answer.err
    assert not list(tmp_path.glob("g.*"))
