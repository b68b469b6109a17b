"""The store: what goes in comes out, by rows too; damage of every kind is one clear line."""

from __future__ import annotations

import contextlib
import json
import os
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.errors import UserError
from weft.graph import Graph, karate, load, open_store, sbm, write_store
from weft.graph import store as module
from weft.graph.writer import PREAMBLE
from weft.kernels import native

FIELDS = ("indptr", "indices", "weights", "features", "labels", "train_mask", "val_mask", "test_mask", "ids")


def full(n: int = 9, seed: int = 0) -> Graph:
    """A directed graph with every tensor a graph may have."""
    rng = np.random.default_rng(seed)
    masks = np.arange(n) % 3
    return Graph.from_arcs(
        *rng.integers(n, size=(2, 3 * n)), n, rng.random(3 * n),
        features=torch.from_numpy(rng.random((n, 5))), labels=torch.from_numpy(rng.integers(4, size=n)),
        ids=torch.arange(n) * 10, name="full", num_classes=4,
        train_mask=masks == 0, val_mask=masks == 1, test_mask=masks == 2,
        arc_data={
            "time": rng.random(3 * n), "kind": rng.integers(5, size=3 * n).astype(np.uint8),
            "features": rng.random((3 * n, 2), dtype=np.float32), "none": np.zeros((3 * n, 0)),
        },
        vertex_data={"age": rng.integers(90, size=(n, 2)).astype(np.int16), "x": rng.random(n)},
    )  # fmt: skip


def same(a: Graph, b: Graph) -> bool:
    pairs = [(getattr(a, key), getattr(b, key)) for key in FIELDS]
    for key in ("arc_data", "vertex_data"):
        mine, other = getattr(a, key), getattr(b, key)
        if list(mine) != list(other):
            return False
        pairs += zip(mine.values(), other.values(), strict=True)
    equal = all((x is None and y is None) or (torch.equal(x, y) and x.dtype == y.dtype) for x, y in pairs)
    return equal and (a.name, a.num_classes) == (b.name, b.num_classes)


@pytest.mark.parametrize(
    "graph",
    [
        full(),
        karate(),
        Graph.from_arcs([], [], 4),
        Graph.from_arcs([], []),
        Graph.from_arcs([0], [1], labels=torch.tensor([[True, False], [True, True]])),
        Graph.from_arcs([0], [1], features=torch.zeros(2, 0)),
    ],
    ids=["full", "karate", "no arcs", "no vertices", "many labels", "no columns"],
)
def test_what_goes_in_comes_out(graph: Graph, tmp_path: Path) -> None:
    path = write_store(graph, tmp_path / "g.weft")
    store = open_store(path)
    assert same(store.graph(), graph)
    sizes = (store.num_nodes, store.num_arcs, store.num_features, store.num_classes)
    assert sizes == (graph.num_nodes, graph.num_arcs, graph.num_features, graph.num_classes)
    assert same(load(path), graph)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> tuple[Graph, Path]:
    graph = full(23)
    return graph, write_store(graph, tmp_path_factory.mktemp("store") / "g.weft")


def check_rows(graph: Graph, rows: module.Rows, wanted: list[int]) -> None:
    assert rows.rows.tolist() == wanted
    assert rows.num_nodes == graph.num_nodes
    for k, i in enumerate(wanted):
        ours, theirs = slice(*rows.indptr[k : k + 2].tolist()), slice(*graph.indptr[i : i + 2].tolist())
        assert torch.equal(rows.indices[ours], graph.indices[theirs])
        assert torch.equal(rows.weights[ours], graph.weights[theirs])
        for name, x in graph.arc_data.items():
            assert torch.equal(rows.arc_data[name][ours], x[theirs])
    for name, x in graph.vertex_data.items():
        assert torch.equal(rows.vertex_data[name], x[torch.tensor(wanted, dtype=torch.int64)])
    for key in FIELDS[3:]:
        assert torch.equal(getattr(rows, key), getattr(graph, key)[torch.tensor(wanted, dtype=torch.int64)])


@given(st.integers(0, 23), st.integers(0, 23))
def test_a_range_of_rows_is_that_part_of_the_graph(shared: tuple[Graph, Path], a: int, b: int) -> None:
    graph, path = shared
    lo, hi = min(a, b), max(a, b)
    check_rows(graph, open_store(path, verify=False).rows(lo, hi), list(range(lo, hi)))


@given(st.lists(st.integers(0, 22)))
def test_any_list_of_rows_comes_in_the_order_asked_for(shared: tuple[Graph, Path], wanted: list[int]) -> None:
    graph, path = shared
    check_rows(graph, open_store(path, verify=False).rows(wanted), wanted)


@pytest.mark.parametrize("window", [4, 40, 1 << 24])
def test_rows_come_through_windows_of_any_size_with_and_without_cpp(shared, monkeypatch, window) -> None:
    graph, path = shared
    monkeypatch.setattr("weft.graph.store._WINDOW", window)
    for wanted in ([0, 2, 3, 6], [6, 3, 0], [2, 2], [1, 2, 3], []):
        check_rows(graph, open_store(path, verify=False).rows(wanted), wanted)
        with monkeypatch.context() as without:
            without.setattr("weft.graph.rows.extension", None)
            check_rows(graph, open_store(path, verify=False).rows(wanted), wanted)


def test_rows_without_weights_or_features_have_none(tmp_path: Path) -> None:
    rows = open_store(write_store(Graph.from_arcs([0], [1]), tmp_path / "g.weft")).rows(torch.tensor([1]))
    assert rows.indices.tolist() == [0]
    assert rows.weights is rows.features is rows.labels is rows.ids is None


@pytest.mark.parametrize("rows", [(3, 9), ([8, 3],)])
def test_only_the_arrays_that_are_named_are_read(shared: tuple[Graph, Path], rows: tuple) -> None:
    store = open_store(shared[1], verify=False)
    assert store.arc_names == ["time", "kind", "features", "none"]
    found = store.rows(*rows, only=("arc_kind", "vertex_age"))
    assert (list(found.arc_data), list(found.vertex_data)) == (["kind"], ["age"])
    assert found.indices.numel() == 0
    assert len(found.arc_data["kind"]) == int(found.indptr[-1])
    assert store.rows(*rows, only=("indices",)).arc_data == {}


def test_a_store_without_named_arrays_is_one_that_earlier_wefts_read(tmp_path: Path) -> None:
    def version(graph: Graph, name: str) -> int:
        return PREAMBLE.unpack(write_store(graph, tmp_path / name).read_bytes()[: PREAMBLE.size])[1]

    assert version(full().replace(arc_data={}, vertex_data={}), "a.weft") == 1
    assert version(full().replace(arc_data={}), "b.weft") == version(full(), "c.weft") == 2


@pytest.mark.parametrize("bad", [(0, 24), (-1, 3), (5, 4), ([23],), ([-1],)])
def test_rows_out_of_range_are_refused(shared: tuple[Graph, Path], bad: tuple) -> None:
    with pytest.raises(UserError, match="out of range for 23 vertices"):
        open_store(shared[1]).rows(*bad)


def test_a_graph_from_a_store_lies_over_the_file_and_never_writes_to_it(shared: tuple[Graph, Path]) -> None:
    _, path = shared
    before = path.read_bytes()
    graph = open_store(path).graph()
    graph.features[:] = 7
    assert path.read_bytes() == before
    assert open_store(path)._map("features").filename == path


def test_an_existing_path_is_kept_unless_told(tmp_path: Path) -> None:
    path = write_store(karate(), tmp_path / "g.weft")
    before = path.read_bytes()
    with pytest.raises(UserError, match="exists already"):
        write_store(full(), path)
    assert path.read_bytes() == before
    write_store(full(), path, overwrite=True)
    assert load(path).name == "full"
    with pytest.raises(UserError, match="exists already"):
        write_store(full(), tmp_path, overwrite=True)


def test_a_path_that_appears_during_the_write_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "g.weft"
    write = module._write

    def slow(graph: Graph, file: object, parts: object) -> None:
        write(graph, file)
        path.write_text("someone else's")

    monkeypatch.setattr(module, "_write", slow)
    with pytest.raises(UserError, match="exists already"):
        write_store(karate(), path)
    assert path.read_text() == "someone else's"
    assert os.listdir(tmp_path) == ["g.weft"]


def test_without_hard_links_a_rename_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError("no hard links here")

    monkeypatch.setattr(os, "link", refuse)
    assert load(write_store(karate(), tmp_path / "g.weft")).num_nodes == 34
    assert os.listdir(tmp_path) == ["g.weft"]


def test_an_interrupted_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_store(karate(), tmp_path / "g.weft")
    assert os.listdir(tmp_path) == []


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no folder .*nowhere"):
        write_store(karate(), tmp_path / "nowhere" / "g.weft")


def damaged(path: Path, tmp_path: Path, at: int, value: bytes) -> Path:
    data = bytearray(path.read_bytes())
    data[at : at + len(value)] = value
    out = tmp_path / "damaged.weft"
    out.write_bytes(data)
    return out


@settings(max_examples=60)
@given(data=st.data())
def test_every_flipped_bit_that_matters_is_noticed(shared: tuple[Graph, Path], data: st.DataObject) -> None:
    graph, path = shared
    raw = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= 1 << data.draw(st.integers(0, 7))
    flipped = path.with_name("flipped.weft")
    flipped.write_bytes(raw)
    with contextlib.suppress(UserError):
        assert same(open_store(flipped).graph(), graph)  # only padding may change unseen


@given(data=st.data())
def test_every_truncation_is_noticed(shared: tuple[Graph, Path], data: st.DataObject) -> None:
    _, path = shared
    raw = path.read_bytes()
    short = path.with_name("short.weft")
    short.write_bytes(raw[: data.draw(st.integers(0, len(raw) - 1))])
    with pytest.raises(UserError, match=r"truncated|not a weft store"):
        open_store(short)


def test_a_wrong_checksum_names_its_section(shared: tuple[Graph, Path], tmp_path: Path) -> None:
    _, path = shared
    place = open_store(path)._sections["features"].offset
    broken = damaged(path, tmp_path, place, b"\x01\x02\x03")
    with pytest.raises(UserError, match="wrong checksum in section 'features'"):
        open_store(broken)
    assert open_store(broken, verify=False).num_nodes == 23
    with pytest.raises(UserError, match="wrong checksum in section 'arc_time'"):
        open_store(damaged(path, tmp_path, open_store(path)._sections["arc_time"].offset, b"\x01\x02\x03"))


def test_a_newer_version_says_upgrade(shared: tuple[Graph, Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="store version 3; this weft reads up to 2"):
        open_store(damaged(shared[1], tmp_path, 8, struct.pack("<I", 3)))


def test_a_file_that_is_no_store_is_named(tmp_path: Path) -> None:
    (tmp_path / "x.weft").write_text("0 1\n1 2\n")
    with pytest.raises(UserError, match=r"x\.weft is not a weft store"):
        open_store(tmp_path / "x.weft")
    with pytest.raises(UserError, match="no file"):
        open_store(tmp_path / "y.weft")


def forged(path: Path, tmp_path: Path, change) -> Path:
    """A store whose header was changed and given a right checksum: what an attacker would write."""
    raw = path.read_bytes()
    magic, version, _, offset, length = PREAMBLE.unpack(raw[: PREAMBLE.size])
    header = json.loads(raw[offset : offset + length])
    header = change(header) or header
    text = json.dumps(header).encode()
    start = PREAMBLE.pack(magic, version, zlib.crc32(text), offset, len(text))
    out = tmp_path / "forged.weft"
    out.write_bytes(start + raw[len(start) : offset] + text)
    return out


def section(header: dict, name: str) -> dict:
    return next(entry for entry in header["sections"] if entry["name"] == name)


@pytest.mark.parametrize(
    "change",
    [
        lambda h: h["sections"][0].update(offset=1 << 60),
        lambda h: h["sections"][0].update(offset=-64),
        lambda h: h["sections"][0].update(offset=8),
        lambda h: h["sections"][1].update(shape=[1 << 50]),
        lambda h: h["sections"][1].update(shape=[-5]),
        lambda h: h["sections"][1].update(shape=[2.0]),
        lambda h: h["sections"][1].update(dtype="|O8"),
        lambda h: h["sections"][1].update(dtype="<i8"),
        lambda h: h["sections"][1].update(name="surprise"),
        lambda h: h["sections"].pop(0),
        lambda h: section(h, "arc_time").update(shape=[7]),
        lambda h: section(h, "arc_time").update(shape=[]),
        lambda h: section(h, "arc_time").update(shape=[61, 2, 2]),
        lambda h: section(h, "arc_features").update(shape=[61, -2]),
        lambda h: section(h, "arc_features").update(shape=[61, 1 << 50]),
        lambda h: section(h, "arc_kind").update(dtype="|b1"),
        lambda h: section(h, "arc_kind").update(dtype="|O1"),
        lambda h: section(h, "arc_kind").update(dtype=[["f", "<i4"]]),
        lambda h: section(h, "arc_kind").update(name="arc_my kind"),
        lambda h: section(h, "arc_kind").update(name="arc_weights"),
        lambda h: section(h, "arc_kind").update(name="arc_"),
        lambda h: section(h, "vertex_x").update(name="vertex_labels"),
        lambda h: section(h, "vertex_x").update(shape=[61]),
        lambda h: h.update(num_classes=-3),
        lambda h: h.update(num_classes="x"),
        lambda h: h.pop("name"),
        lambda h: [1, 2],
    ],
)
def test_a_forged_header_is_refused(shared: tuple[Graph, Path], tmp_path: Path, change) -> None:
    with pytest.raises(UserError, match="the header makes no sense"):
        open_store(forged(shared[1], tmp_path, change), verify=False)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("indptr", struct.pack("<q", 10**12)),
        ("indptr", struct.pack("<q", -(10**12))),
        ("indices", struct.pack("<i", 999)),
        ("indices", struct.pack("<i", -1)),
        ("features", struct.pack("<d", float("nan"))),
        ("train_mask", b"\x07"),
        ("arc_time", struct.pack("<d", float("inf"))),
        ("arc_features", struct.pack("<f", float("nan"))),
        ("vertex_age", struct.pack("<h", -4)),
    ],
)
def test_unverified_rows_are_still_checked_for_form(shared, tmp_path: Path, key: str, value: bytes) -> None:
    _, path = shared
    broken = damaged(path, tmp_path, open_store(path)._sections[key].offset, value)
    store = open_store(broken, verify=False)
    for read in (lambda: store.rows(0, 23), lambda: store.rows(range(23)), store.graph):
        with pytest.raises(UserError, match=r"damaged\.weft"):
            read()


def test_rows_read_only_their_part_of_a_larger_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = sbm(nodes=2000, classes=4, features=16)
    store = open_store(write_store(graph, tmp_path / "g.weft"), verify=False)
    store._checks = None  # whole chunks of 1 MB are compared with their checksums: here that is all of it
    for key, section in list(store._sections.items()):
        # Spoil all but rows 100..199 in the file: what is read must not notice.
        lo, hi = (100, 200) if key != "indices" else graph.indptr[[100, 200]].tolist()
        array = np.memmap(store.path, section.dtype, "r+", section.offset, section.shape)
        array[:lo] = 77
        array[hi + (key == "indptr") :] = 77
        array.flush()
    rows = store.rows(100, 200)
    assert torch.equal(rows.features, graph.features[100:200])
    assert torch.equal(rows.indices, graph.indices[slice(*graph.indptr[[100, 200]].tolist())])


@pytest.mark.skipif(native.extension is None, reason="needs the C++ part of weft")
@pytest.mark.parametrize("left", [64, 4096 * 3])
def test_a_store_that_is_cut_short_while_it_is_mapped_is_one_line_and_no_crash(left):
    """In a process of its own, which ends."""
    write_store(sbm(nodes=2000, features=16), "g.weft")
    program = (
        "import os, sys; from weft.graph import open_store; graph = open_store('g.weft').graph();"
        f"os.truncate('g.weft', {left}); print(float(graph.features.sum()))"
    )
    answer = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", program], capture_output=True, text=True, check=False
    )
    assert (answer.returncode, answer.stdout) == (2, "")
    path = Path("g.weft").resolve()
    assert answer.stderr == (
        f"weft: {path} was cut short while it was read, or its disk is full. Write it again, or make room.\n"
    )


def test_a_store_that_was_cut_short_after_it_was_opened_is_truncated():
    store = open_store(write_store(sbm(nodes=200, features=16), "g.weft"))
    os.truncate("g.weft", 128)
    with pytest.raises(UserError, match=r"^g\.weft is truncated\. Write or copy the store again\.$"):
        store.graph()


def test_labels_and_the_first_arcs_of_rows_are_read_alone(tmp_path, monkeypatch):
    graph = karate()
    store = open_store(write_store(graph, tmp_path / "g.weft"), verify=False)
    read, look = [], module.Store._map
    monkeypatch.setattr(module.Store, "_map", lambda self, key, *a: read.append(key) or look(self, key, *a))
    some = torch.tensor([33, 0, 7, 7])
    assert torch.equal(store.first_arcs(some), graph.indptr[some])
    assert torch.equal(store.labels(3, 9), graph.labels[3:9])
    assert set(read) == {"indptr", "labels"}
    with pytest.raises(UserError, match="rows 3 to 35 are out of range for 34 vertices"):
        store.labels(3, 35)
    with pytest.raises(UserError, match="row 34 is out of range"):
        store.first_arcs(torch.tensor([34]))
