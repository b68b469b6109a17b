"""The `weft` command as a whole: overview, exit statuses, and one clear line for every kind of bad input."""

from __future__ import annotations

import gzip
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import weft.cli
from weft import __version__
from weft.graph import Graph, karate, write_store

# Overview


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",), ("help",)])
def test_the_overview_names_every_command(weft, words):
    answer = weft(*words)
    assert (answer.status, answer.err) == (0, "")
    assert all(f"weft {command}" in answer.out for command in weft_commands())


def weft_commands() -> list[str]:
    return list(weft.cli.COMMANDS)


@pytest.mark.parametrize("command", weft_commands())
def test_every_command_helps_on_lines_that_fit(weft, command):
    answer = weft(command, "--help")
    assert (answer.status, answer.err) == (0, "")
    assert answer.out.startswith(f"usage: weft {command} ")
    assert max(map(len, answer.out.splitlines())) <= 100


def test_help_of_a_command_may_be_asked_for_by_its_name(weft):
    assert weft("help", "info").out == weft("info", "--help").out


def test_what_is_missing_is_named_once(weft):
    assert weft("convert").err == (
        "weft: the following arguments are required: GRAPH, FILE.weft. See weft convert --help.\n"
    )


def test_an_option_that_is_far_from_all_is_not_guessed(weft):
    answer = weft("verify", "karate", "--resume", "x")
    assert answer.status == 2
    assert "Did you mean" not in answer.err


def test_the_version(weft):
    assert weft("--version").out == f"weft {__version__}\n"


def test_python_m_weft_is_weft_and_its_exit_status_reaches_the_shell():
    done = subprocess.run([sys.executable, "-m", "weft", "inof"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "weft: unknown command 'inof'. Did you mean 'info'?\n"


def test_a_reader_who_has_gone_is_no_traceback():
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "weft", "info", "karate"], stdout=writer, stderr=subprocess.PIPE, text=True
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (1, "")


def test_ctrl_c_outside_of_training_is_one_line_and_130(weft, monkeypatch):
    def interrupted(words: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(weft_module(), "_dispatch", interrupted)
    answer = weft("info", "karate")
    assert (answer.status, answer.out, answer.err) == (130, "", "weft: stopped.\n")


def weft_module():
    return sys.modules["weft.cli"]


# Bad input


def write(name: str, text: str | bytes) -> str:
    Path(name).write_bytes(text.encode() if isinstance(text, str) else text)
    return name


def npz(**arrays: object) -> str:
    """Three vertices in a ring, and what else is given."""
    np.savez("g.npz", indptr=[0, 1, 2, 3], indices=[1, 2, 0], **arrays)
    return "g.npz"


def spoiled(spoil: Callable[[Graph], object]) -> str:
    """A store of a graph that was spoiled after its checks, with right checksums: only a look finds it."""
    graph = karate()
    spoil(graph)
    write_store(graph, "g.weft")
    return "g.weft"


def patched(at: int, new: bytes) -> str:
    raw = bytearray(write_store(karate(), "whole.weft").read_bytes())
    raw[at : at + len(new)] = new
    Path("whole.weft").unlink()
    return write("g.weft", bytes(raw))


def planetoid(graph: bytes) -> str:
    Path("club/raw").mkdir(parents=True)
    for part in ("x", "y", "tx", "ty", "allx", "ally"):
        write(f"club/raw/ind.club.{part}", pickle.dumps([]))
    write("club/raw/ind.club.graph", graph)
    write("club/raw/ind.club.test.index", "")
    return "club"


MATRIX = "%%MatrixMarket matrix coordinate pattern general\n"
BAD_GRAPHS: dict[str, tuple[Callable[[], str], str]] = {
    "missing edge list": (lambda: "gone.txt.gz", "no file gone.txt.gz. Check the path."),
    "missing store": (lambda: "gone.weft", "no file gone.weft. Check the path."),
    "missing folder": (lambda: "some/where", "no file some/where. Check the path."),
    "unknown name": (lambda: "karat", "unknown graph 'karat'. Did you mean 'karate'?"),
    "unknown format": (lambda: write("g.doc", "0 1\n"), "unknown graph format 'g.doc'."),
    "unknown generator": (lambda: "smb:nodes=9", "unknown generator 'smb'. Did you mean 'sbm'?"),
    "unknown argument": (lambda: "sbm:ndes=9", "unknown argument of sbm 'ndes'. Did you mean 'nodes'?"),
    "bad argument": (lambda: "sbm:nodes=many", "'many' is not a whole number"),
    "no power of two": (lambda: "kronecker:nodes=1000", "Use nodes=512 or nodes=1024"),
    "truncated gzip": (
        lambda: write("g.txt.gz", gzip.compress(os.urandom(999))[:200]), "g.txt.gz is a truncated gzip file",
    ),
    "damaged gzip": (lambda: write("g.txt.gz", b"\x1f\x8b" + bytes(50)), "g.txt.gz is a damaged gzip file"),
    "non-numeric id": (lambda: write("g.txt", "0 1\n1 two\n"), "g.txt, line 2: id 'two' is not a"),
    "negative id": (lambda: write("g.csv", "0,1\n-3,1\n"), "g.csv, line 2: id '-3' is negative"),
    "id that is no integer": (lambda: write("g.tsv", "0\t1.5\n"), "g.tsv, line 1: id '1.5' is not a"),
    "id out of range": (lambda: write("g.mtx", f"{MATRIX}3 3 1\n1 4\n"), "g.mtx: index 4 is out of range"),
    "id out of range in npz": (
        lambda: (np.savez("g.npz", indptr=[0, 1], indices=[7]), "g.npz")[1],
        "g.npz: vertex id 7 is out of range",
    ),
    "id out of range in a store": (
        lambda: spoiled(lambda g: g.indices.__setitem__(-1, 99)), "g.weft: vertex id 99 is out of range",
    ),
    "non-square matrix": (lambda: write("g.mtx", f"{MATRIX}3 4 1\n1 2\n"), "g.mtx is 3x4, not square"),
    "non-square npz": (lambda: npz(shape=[3, 5]), "g.npz is 3x5, not square"),
    "NaN feature": (lambda: npz(features=[[1.0], [np.nan], [2.0]]), "feature 0 of vertex 1 is nan"),
    "infinite feature": (lambda: npz(features=[[1.0], [2.0], [-np.inf]]), "feature 0 of vertex 2 is -inf"),
    "NaN feature in a store": (
        lambda: spoiled(lambda g: g.features.__setitem__((5, 2), float("nan"))),
        "g.weft: feature 2 of vertex 5 is nan",
    ),
    "wrong feature length": (lambda: npz(features=[[1.0], [2.0]]), "features have shape 2x1; 3 vertices"),
    "ragged feature rows": (
        lambda: npz(attr_indptr=[0, 1, 1, 2], attr_indices=[0, 9], attr_data=[1, 1], attr_shape=[3, 4]),
        "feature column 9 is out of range for width 4",
    ),
    "label outside the classes": (lambda: npz(labels=[0, 1, -5]), "label -5 of vertex 2 is outside"),
    "label outside the classes of a store": (
        lambda: spoiled(lambda g: g.labels.__setitem__(3, 7)),
        "label 7 of vertex 3 is outside the classes 0 to 1",
    ),
    "masks that overlap": (
        lambda: npz(labels=[0, 1, 1], train_mask=[1, 0, 1], val_mask=[0, 0, 1]),
        "vertex 2 is in train_mask and in val_mask",
    ),
    "masks that overlap in a store": (
        lambda: spoiled(lambda g: g.test_mask.__setitem__(0, True)),
        "vertex 0 is in train_mask and in test_mask",
    ),
    "wrong checksum": (lambda: patched(80, b"\x01\x02"), "g.weft: wrong checksum in section 'indptr'"),
    "newer store": (lambda: patched(8, struct.pack("<I", 9)), "g.weft has store version 9; this weft reads"),
    "no store": (lambda: write("g.weft", "0 1\n" * 20), "g.weft is not a weft store"),
    "truncated store": (
        lambda: write("g.weft", Path(spoiled(lambda g: None)).read_bytes()[:-9]), "g.weft is truncated",
    ),
    "no npz": (lambda: write("g.npz", "PK but no zip"), "g.npz is not a sound npz file"),
    "pickle in npz": (
        lambda: (np.savez("g.npz", indptr=np.array([{}], dtype=object), indices=[0]), "g.npz")[1],
        "indptr.npy holds Python objects (a pickle)",
    ),
    "forbidden class": (
        lambda: planetoid(b"cos\nsystem\n(S'touch owned'\ntR."), "asks for the forbidden class os.system",
    ),
}  # fmt: skip


def tree() -> dict[str, bytes]:
    """Every file here and what is in it; folders too."""
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in Path().rglob("*")}


def assert_one_line(answer, status: int = 2) -> None:
    assert answer.status == status, answer
    assert answer.out == ""
    assert answer.err.startswith("weft: "), answer.err
    assert answer.err.count("\n") == 1, answer.err
    assert "Traceback" not in answer.err


@pytest.mark.parametrize("command", ["info", "convert", "train"])
@pytest.mark.parametrize("case", BAD_GRAPHS)
def test_a_bad_graph_is_one_line_that_names_it_and_nothing_is_written(weft, monkeypatch, case, command):
    monkeypatch.delenv("WEFT_DATA", raising=False)
    make, message = BAD_GRAPHS[case]
    graph = make()
    before = tree()
    rest = {"info": [], "convert": ["out.weft"], "train": ["--out", "run"]}[command]
    answer = weft(command, graph, *rest)
    assert_one_line(answer)
    assert message in answer.err
    assert tree() == before


BAD_COMMANDS = {
    "train": [
        ("--model gnc", "unknown model 'gnc'. Did you mean 'gcn'?"),
        ("--optimizer adm", "unknown optimizer 'adm'. Did you mean 'adam'?"),
        ("--scheduler cosin", "unknown scheduler 'cosin'. Did you mean 'cosine'?"),
        ("--model sage --aggregate men", "unknown aggregation 'men'. Did you mean 'mean'?"),
        ("--dtype float23", "unknown dtype 'float23'. Did you mean 'float32'?"),
        ("--keep-weights bset", "unknown keep_weights 'bset'. Did you mean 'best'?"),
        ("--decay frist", "unknown decay 'frist'. Did you mean 'first'?"),
        ("--feature-norm roe", "unknown feature_norm 'roe'. Did you mean 'row'?"),
        ("--hiden 8", "unknown option of weft train: '--hiden'. Did you mean '--hidden'?\n"),
        ("--hiden=8", "'--hiden'. Did you mean '--hidden'?\n"),
        ("--hidden eight", "model.hidden must be a whole number, not 'eight'."),
        ("--hidden 0", "hidden must be at least 1, not 0."),
        ("--hidden", "--hidden: expected one argument. See weft train --help."),
        ("--hidden 999999999999", "hidden=999999999999 on 34 vertices: "),
        ("--dropout 1", "dropout must lie in [0, 1), not 1.0."),
        ("--input-dropout -0.1", "input_dropout must lie in [0, 1), not -0.1."),
        ("--lr nan", "train.lr must be a finite number, not 'nan'."),
        ("--lr -1", "lr must be above 0, not -1.0."),
        ("--epochs 0", "epochs must be at least 1, not 0."),
        ("--seed -1", "seed must be at least 0, not -1."),
        ("--threads -1", "threads must be at least 0, not -1."),
        ("--set model.hiden=8", "unknown setting 'model.hiden'. Did you mean 'model.hidden'?\n"),
        ("--set hidden", "--set hidden has no '='. Write --set model.hidden=256."),
        ("--set train.optimizer_options.momentm=1", "optimizer adam refuses the options {'momentm': 1}: "),
        ("extra", "weft train does not know what to do with 'extra'. See weft train --help."),
    ],
    "info": [
        ("--jsn", "unknown option of weft info: '--jsn'. Did you mean '--json'?"),
        ("--data gone cora", "weft info does not know what to do with 'cora'."),
    ],
    "convert": [
        ("g.txt", "a store's name ends in .weft, 'g.txt' does not. Use g.txt.weft."),
        ("gone/g.weft", "no folder gone to write g.weft into. Make it first."),
        ("", "the following arguments are required: FILE.weft. See weft convert --help."),
        ("g.weft --split 0.6", "--split takes two numbers, not '0.6'. Write --split 0.6,0.2."),
        ("g.weft --split a,b", "--split takes two numbers, not 'a,b'."),
        ("g.weft --split 0.9,0.9", "Lower them."),
        ("g.weft --seed -1", "--seed must be at least 0, not -1."),
        ("g.weft --features gone.npy", "no file gone.npy. Check the path."),
    ],
    "bench": [
        ("", "unknown benchmark 'karate'. Known: kernels, epoch"),
    ],
}  # fmt: skip
LINES = [(command, words, message) for command, lines in BAD_COMMANDS.items() for words, message in lines]


@pytest.mark.parametrize(("command", "words", "message"), LINES)
def test_a_bad_option_is_one_line_that_names_it(weft, command, words, message):
    answer = weft(command, "karate", *words.split())
    assert_one_line(answer)
    assert message in answer.err
    assert tree() == {}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "the following arguments are required: KIND, --out. See weft generate --help."),
        ("sbm --nodes 50 --out g.txt", "a store's name ends in .weft, 'g.txt' does not."),
        ("smb --out g.weft", "unknown generator 'smb'. Did you mean 'sbm'?"),
        ("sbm --ndes 50 --out g.weft", "unknown argument of sbm 'ndes'. Did you mean 'nodes'?"),
        ("sbm --nodes fifty --out g.weft", "'fifty' is not a whole number"),
        ("sbm --nodes --out g.weft", "--nodes lacks a value. Write --nodes VALUE."),
        ("sbm 50 --out g.weft", "weft generate does not know what to do with '50'. Write --NAME VALUE."),
        ("sbm --nodes 999999999999999 --out g.weft", "GB needed, more than the"),
        ("sbm --seed -1 --out g.weft", "seed=-1 is negative. Use 0 or more."),
        (
            "karate --nodes 5 --out g.weft",
            "karate takes no arguments but arc_features and arc_types; 'nodes' was",
        ),
        ("sbm --nodes 50 --out gone/g.weft", "no folder gone to write g.weft into. Make it first."),
    ],
)
def test_a_bad_generator_is_one_line_that_names_it(weft, words, message):
    answer = weft("generate", *words.split())
    assert_one_line(answer)
    assert message in answer.err
    assert tree() == {}


@pytest.mark.parametrize(
    "words",
    ["generate karate --out taken.weft", "convert karate taken.weft", "train karate --out taken.weft"],
)
@pytest.mark.parametrize("kind", ["file", "folder"])
def test_an_output_path_that_exists_is_left_alone(weft, words, kind):
    if kind == "file":
        write("taken.weft", "mine")
    else:
        Path("taken.weft").mkdir()
        write("taken.weft/mine", "mine")
    before = tree()
    answer = weft(*words.split())
    assert_one_line(answer)
    assert "taken.weft exists already." in answer.err
    assert tree() == before


@pytest.mark.parametrize(
    ("option", "array", "message"),
    [
        ("--features", np.ones((3, 2)), "x.npy: features have shape 3x2; 34 vertices need 34xF"),
        ("--features", np.full((34, 2), np.inf), "x.npy: feature 0 of vertex 0 is inf"),
        ("--features", np.array(["a"] * 34), "x.npy does not hold plain numbers"),
        ("--features", np.array([{}] * 34, dtype=object), "x.npy is not a .npy array"),
        ("--features", np.ones((34, 2), dtype=complex), "x.npy does not hold plain numbers"),
        ("--labels", np.full(34, -2), "x.npy: label -2 of vertex 0 is outside the classes"),
        ("--labels", np.full(34, 1.5), "x.npy: labels are float64. Give whole numbers"),
        ("--labels", np.full((34, 2), 2), "x.npy: labels of shape 34x2 are int64; many labels"),
        ("--labels", np.zeros(7, dtype=int), "x.npy: labels have shape 7; 34 vertices need 34"),
    ],
)  # fmt: skip
def test_arrays_that_do_not_fit_are_named(weft, option, array, message):
    np.save("x.npy", array, allow_pickle=True)
    before = tree()
    answer = weft("convert", "karate", "g.weft", option, "x.npy")
    assert_one_line(answer)
    assert message in answer.err
    assert tree() == before


def test_an_array_that_announces_more_than_it_holds_is_not_allocated(weft):
    np.save("x.npy", np.ones((34, 2)))
    raw = Path("x.npy").read_bytes()
    write("x.npy", raw.replace(b"(34, 2), }" + b" " * 12, b"(34, 2000000000000), }"))
    assert b"2000000000000" in Path("x.npy").read_bytes()
    answer = weft("convert", "karate", "g.weft", "--features", "x.npy")
    assert_one_line(answer)
    assert "x.npy is not a .npy array" in answer.err


def test_a_name_with_markup_is_shown_as_it_is(weft):
    torch.manual_seed(0)
    write_store(karate().replace(name="[/bold] :tada:"), "g.weft")
    answer = weft("train", "g.weft", "--epochs", "1", "--out", "[red]run")
    assert answer.status == 0
    assert "[/bold] :tada:" in answer.out
    assert "[red]run" in answer.out
