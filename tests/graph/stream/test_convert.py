"""Streaming conversion: the store that the readers in memory would give, whatever the sizes of pieces."""

from __future__ import annotations

import gzip
import resource
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import csv

from weft.errors import Note, UserError
from weft.graph import open_store, read_edge_list, read_matrix_market
from weft.graph.store import checksum
from weft.graph.stream import Options, convert, native
from weft.graph.stream import convert as module
from weft.graph.stream.plan import Plan

TINY = Plan(threads=2, run=640, part=1, bits=1 << 20, segment=3_000, free=1 << 26)
"""Many segments, runs and ranges of a small file."""


@pytest.fixture(params=["native", "numpy"])
def kernels(request, monkeypatch):
    if request.param == "numpy":
        monkeypatch.setattr(native, "extension", None)


@pytest.fixture
def tiny(monkeypatch):
    """Pieces so small that a file of 100 kB has dozens of each kind."""
    monkeypatch.setattr(sys.modules["weft.graph.stream.convert"], "plan", lambda *_: TINY)
    monkeypatch.setattr("weft.graph.stream.runs.FENCE", 64)
    monkeypatch.setattr("weft.graph.stream.text.Text.block", 1_000)
    monkeypatch.setattr("weft.graph.stream.named_text.NamedText.block", 1_000)


def arcs(ids: int, m: int = 1_600):
    rng = np.random.default_rng(ids)
    pool = np.unique(rng.integers(ids, size=200))
    return pool[rng.integers(len(pool), size=m)], pool[rng.integers(len(pool), size=m)], rng.random(m), rng


def lines(path: Path, *columns, mark=" ", head="") -> Path:
    text = head + "".join(mark.join(map(str, row)) + "\n" for row in zip(*columns, strict=True))
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def same(path: Path, reader=read_edge_list, both: bool = False, **options) -> None:
    out = path.parent / "out.weft"
    out.unlink(missing_ok=True)
    columns = {"arc_columns": options["arc_columns"]} if "arc_columns" in options else {}
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always", Note)
        convert([path], out, Options(undirected=both or None, **options))
        wanted = reader(path, **columns)
    wanted = wanted.symmetrised() if both else wanted
    store = open_store(out)
    assert (checksum(store), store.name) == (checksum(wanted), wanted.name)
    said = [str(note.message).split(": ", 1)[1] for note in notes]
    assert len(said) in (0, 2)
    assert said[:1] == said[1:]
    assert sorted(p.name for p in path.parent.iterdir()) == sorted([path.name, out.name])


@pytest.mark.parametrize("ids", [300, 10_000, 10**15])
def test_the_store_is_that_of_the_reader_in_memory(tmp_path, tiny, kernels, ids):
    a, b, w, rng = arcs(ids)
    same(lines(tmp_path / "plain.txt", a, b, head="# c\n"))
    for path in tmp_path.iterdir():
        path.unlink()
    weighted = lines(tmp_path / "w.csv", a, b, w, mark=",", head="from,to,w\n")
    same(weighted)
    same(weighted, both=True)
    weighted.unlink()
    (tmp_path / "out.weft").unlink()
    kinds = rng.integers(50, size=len(a))
    kinds = np.where(np.arange(len(a)) == len(a) - 1, -3, kinds) if ids == 300 else kinds
    rich = lines(tmp_path / "d.tsv.gz", a, b, w, kinds, mark="\t", head="# Undirected graph: x\n")
    same(rich, arc_columns=["weight", "kind"])
    same(rich, arc_columns=["x", "_"])


@pytest.mark.parametrize(
    "columns", [["weight", "f", "f", "_", "f", "type"], ["f", "f", "time", "_", "time", "kind"]]
)
def test_columns_of_one_name_are_one_array_with_the_readers_bits(tmp_path, tiny, kernels, columns):
    """Whole numbers, with one below 0 in a late line, with a fraction in a late line: each kind of stack."""
    a, b, w, rng = arcs(300)
    whole, late = rng.integers(50, size=(2, len(a)))
    late = np.where(np.arange(len(a)) == len(a) - 1, -3, late)
    part = [2**53 + 1, *(f"{k}.5" if k == len(a) - 1 else k for k in range(1, len(a)))]
    path = lines(tmp_path / "d.csv", a, b, w, whole, late, whole, part, whole, mark=",")
    for both in (False, True):
        same(path, arc_columns=columns, both=both)
        found = open_store(tmp_path / "out.weft").graph().arc_data
        wide = {"f": 3} if "weight" in columns else {"f": 2, "time": 2}
        assert {name: x.shape[1] for name, x in found.items() if x.dim() == 2} == wide
        assert found["f"].dtype == torch.float64
        assert found[columns[-1]].dtype == torch.int64
    # What a scratch file holds by the row: names, and ids that need more than 32 bits.
    data = (w, whole, late, part)
    names = lines(tmp_path / "n.tsv", [f"v{x:06d}" for x in a], [f"v{x:06d}" for x in b], *data, mark="\t")
    wide_ids = lines(tmp_path / "w.txt", a + 10**15, b + 10**15, *data)
    stores = []
    for given, text in ((names, True), (wide_ids, False)):
        out, options = tmp_path / f"{given.name}.weft", Options(None, None, ["f", "f", "time", "f"])
        with pytest.warns(Note, match="of f, time the first is kept"):
            convert([given], out, replace(options, text_ids=text))
        stores.append(open_store(out).graph().arc_data)
    assert torch.equal(stores[0]["f"], stores[1]["f"])
    assert stores[0]["f"].shape[1] == 3


@pytest.mark.parametrize("symmetry", ["general", "symmetric", "skew-symmetric"])
def test_matrices_keep_their_symmetry(tmp_path, tiny, symmetry):
    rng = np.random.default_rng(3)
    i, j, x = rng.integers(1, 41, size=900), rng.integers(1, 41, size=900), rng.normal(size=900)
    head = f"%%MatrixMarket matrix coordinate real {symmetry}\n% c\n41 41 900\n"
    same(lines(tmp_path / "m.mtx", i, j, x, head=head), read_matrix_market)


def test_the_graphs_at_hand(tmp_path, monkeypatch):
    (tmp_path / "empty.txt").write_text("")
    same(tmp_path / "empty.txt")
    (tmp_path / "empty.txt").unlink()
    (tmp_path / "out.weft").unlink()
    odd = "# Nodes: 20 Edges: 4\n0 5\n 7\t9 \n\r\n# x\n1 1\r\n+0003 4"
    (tmp_path / "odd.txt").write_text(odd.replace("+", ""))
    same(tmp_path / "odd.txt")


def test_several_files_are_one_graph(tmp_path, tiny):
    a, b, w, _ = arcs(500)
    parts = [lines(tmp_path / f"{k}.txt", a[k::3], b[k::3], w[k::3]) for k in range(3)]
    order = np.concatenate([np.arange(len(a))[k::3] for k in range(3)])
    whole = lines(tmp_path / "0.csv", a[order], b[order], w[order], mark=",")
    done = convert(parts, tmp_path / "out.weft")
    assert done.given == len(a)
    assert checksum(open_store(tmp_path / "out.weft")) == checksum(read_edge_list(whole))
    for part in parts:
        lines(part, a, b, w, w)
    options = Options(arc_columns=["f", "f"])
    with pytest.warns(Note, match="of f the first is kept"):
        convert(parts, tmp_path / "wide.weft", options)
    assert open_store(tmp_path / "wide.weft").graph().arc_data["f"].shape[1] == 2
    for part in parts:
        lines(part, a, b, w)
    lines(parts[1], a, b)
    with pytest.raises(UserError, match=r"has arcs alone, .* has weights. Convert files together"):
        convert(parts, tmp_path / "other.weft")


def test_progress_rises_to_the_whole_of_each_stage(tmp_path, tiny):
    """What a bar shows, and so the time that it says is left, never goes back nor beyond the end."""
    a, b, *_ = arcs(500)
    told: dict[str, list[tuple[int, int]]] = {}
    path = lines(tmp_path / "g.txt", a, b)
    convert([path], tmp_path / "g.weft", None, lambda *said: told.setdefault(said[0], []).append(said[1:]))
    assert {"read", "write"} <= set(told)
    for stage, steps in told.items():
        assert len({total for _, total in steps}) == 1, stage
        assert [done for done, _ in steps] == sorted(done for done, _ in steps), stage
        assert steps[-1][0] == steps[-1][1], stage
    assert told["read"][-1][1] == path.stat().st_size


def test_names_are_vertex_data(tmp_path, tiny, kernels):
    a, b, w, _ = arcs(50, 600)
    names = np.array([f"vertex {v:x} é" for v in range(50)])
    path = lines(tmp_path / "n.tsv", names[a], names[b], w, mark="\t", head="who\twhom\tw\n")
    convert([path], tmp_path / "n.weft", Options(text_ids=True, header=True))
    graph = open_store(tmp_path / "n.weft").graph()
    told = [bytes(row.tolist()).rstrip(b"\0").decode() for row in graph.vertex_data["name"]]
    assert told == sorted(set(names[a]) | set(names[b]), key=str.encode)
    place = {name: k for k, name in enumerate(told)}
    numbers = np.array([place[name] for name in names])
    wanted = read_edge_list(lines(tmp_path / "w.txt", numbers[a], numbers[b], w))
    assert graph.indices.tolist() == wanted.indices.tolist()
    assert graph.indptr.tolist() == wanted.indptr.tolist()
    assert graph.weights.tolist() == wanted.weights.tolist()


def test_lines_among_names_that_are_not_utf_8_and_have_other_columns_are_named_or_left_out(tmp_path, tiny):
    """Pyarrow's own handler of such rows prints a traceback."""
    path = tmp_path / "n.tsv"
    path.write_bytes(b"# who\ta\nann\tbob\n# x\n\xff\xfe\n\x80\tann\nbob\teve\t\xff\n")
    with pytest.raises(UserError, match=r"n\.tsv, line 4: 1 columns, not 2\. Correct it\. .*--skip-bad"):
        convert([path], tmp_path / "n.weft", Options(text_ids=True))
    done = convert([path], tmp_path / "n.weft", Options(text_ids=True, skip_bad=True))
    assert (done.given, open_store(tmp_path / "n.weft").num_nodes) == (2, 3)


def test_a_kind_below_0_is_refused_and_leaves_nothing(tmp_path, tiny, kernels):
    a, b, _, rng = arcs(300)
    kinds = rng.integers(5, size=len(a))
    kinds[-7] = -2
    path = lines(tmp_path / "k.csv", a, b, kinds, mark=",")
    with pytest.raises(UserError, match=r"arc data 'type' hold -2\. Kinds are whole numbers, from 0 on"):
        convert([path], tmp_path / "bad.weft", Options(None, None, ["type"]))
    assert not (tmp_path / "bad.weft").exists()


def test_a_bad_line_is_named_wherever_it_stands_and_may_be_left_out(tmp_path, tiny, kernels):
    a, b, _, _ = arcs(300)
    good = [f"{x} {y}" for x, y in zip(a, b, strict=True)]
    for packed in (False, True):
        for text, wrong in (
            ("3 x", "id 'x' is not a whole number"),
            ("3 -4", "id '-4' is negative"),
            ("9223372036854775808 1", "does not fit into 63 bits"),
            ("1 2 3", "3 columns in '1 2 3'"),
        ):
            bad = "\n".join([*good[:1_000], text, *good[1_000:1_200], "zz", *good[1_200:]]) + "\n"
            path = tmp_path / ("b.txt.gz" if packed else "b.txt")
            path.write_bytes(gzip.compress(bad.encode()) if packed else bad.encode())
            with pytest.raises(UserError, match=rf"line 1001: .*{wrong}.* --skip-bad") as found:
                convert([path], tmp_path / "bad.weft")
            assert "\n" not in str(found.value)
            assert not (tmp_path / "bad.weft").exists()
        done = convert([path], tmp_path / "left.weft", Options(skip_bad=True))
        assert (done.skipped, done.given) == (2, len(good))
        assert "line 1001" in done.first_skipped
        wanted = read_edge_list(lines(tmp_path / "good.txt", a, b))
        assert checksum(open_store(tmp_path / "left.weft")) == checksum(wanted)
        for file in tmp_path.iterdir():
            file.unlink()
    assert not list(tmp_path.iterdir())


def test_an_interrupted_conversion_goes_on(tmp_path, tiny, monkeypatch):
    a, b, w, _ = arcs(300)
    path, out = lines(tmp_path / "g.txt", a, b, w), tmp_path / "g.weft"
    read = []
    quick = module.__globals__["Heap"].close

    def close(heap):
        read.append(heap.order)
        if len(read) == 9:
            raise KeyboardInterrupt
        return quick(heap)

    monkeypatch.setattr(module.__globals__["Heap"], "close", close)
    with pytest.raises(KeyboardInterrupt):
        convert([path], out)
    assert not out.exists()
    assert (tmp_path / ".g.weft.convert").is_dir()
    before, read[:] = set(read[:5]), [()] * 9
    convert([path], out)
    assert not before & set(read)  # what was done was not done again
    assert checksum(open_store(out)) == checksum(read_edge_list(path))
    assert not (tmp_path / ".g.weft.convert").exists()


KILLED = """import os, sys
from weft.graph.stream import assemble, convert
assemble.Pointers = lambda *_, **__: os._exit(9)
convert(sys.argv[1:2], sys.argv[2])"""


@pytest.mark.parametrize("again", ["g.txt", "other.txt"])
def test_what_a_killed_start_left_half_written_goes_with_the_next_one(tmp_path, again):
    out = tmp_path / "g.weft"
    paths = [lines(tmp_path / name, *arcs(ids)[:2]) for name, ids in (("g.txt", 300), ("other.txt", 90))]
    mine = tmp_path / ".g.weft.mine.tmp"
    mine.touch()  # nobody wrote down that it may go
    assert subprocess.run([sys.executable, "-c", KILLED, str(paths[0]), str(out)]).returncode == 9
    assert len(list(tmp_path.glob(".g.weft.*.tmp"))) == 2
    convert([tmp_path / again], out)
    assert sorted(path.name for path in tmp_path.iterdir()) == [mine.name, "g.txt", "g.weft", "other.txt"]


def test_a_full_disk_is_said_before_where_it_can_be_and_leaves_nothing(tmp_path, tiny, monkeypatch):
    a, b, _, _ = arcs(300)
    path = lines(tmp_path / "g.txt", a, b)
    with monkeypatch.context() as patch:
        patch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1_000})())
        with pytest.raises(UserError, match=r"about .*B are needed in .* 1 kB are free. Make room"):
            convert([path], tmp_path / "g.weft")
    with monkeypatch.context() as patch:  # few lines, many vertices: known once all are read
        patch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 200_000})())
        head = "# Nodes: 50001 Edges: 1000\n"
        far = lines(tmp_path / "far.txt", range(1000), range(1, 1001), head=head)
        with pytest.raises(UserError, match=r"400 kB are needed .* of 50,001 vertices; 200 kB are free"):
            convert([far], tmp_path / "far.weft")
        far.unlink()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, limits[1]))  # runs fit, the store does not
    try:
        with pytest.raises(UserError, match=r"cannot write .*g.weft: File too large. Check the folder"):
            convert([path], tmp_path / "g.weft")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [p.name for p in tmp_path.iterdir()] == ["g.txt"]


def test_memory_too_small_is_refused_with_what_would_do(tmp_path):
    path = lines(tmp_path / "g.txt", [0], [1])
    with pytest.raises(
        UserError, match=r"1 MB are too little: weft itself takes .* Use --memory \d+0MB or more"
    ):
        convert([path], tmp_path / "g.weft", Options(memory=10**6))


_BOUNDED = """
import resource, sys
from pathlib import Path
from weft.graph.stream import Options, convert
from weft.graph.stream.plan import resident_bytes
held = [int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmData")][0]
room = {room}
resource.setrlimit(resource.RLIMIT_DATA, (held + room, held + room))
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
done = convert([sys.argv[1]], sys.argv[2], Options(memory=resident_bytes() + room))
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(done.num_arcs, peak - before)
"""


@pytest.mark.slow
def test_a_limit_on_the_process_is_kept(tmp_path):
    rng = np.random.default_rng(0)
    m, room = 12_000_000, 192 << 20  # 12 million arcs: in memory some 600 MB
    pairs = rng.integers(1 << 20, size=(2, m))
    how = csv.WriteOptions(include_header=False, delimiter=" ")
    csv.write_csv(pa.table({"from": pairs[0], "to": pairs[1]}), tmp_path / "big.txt", how)
    script = _BOUNDED.format(room=room)
    found = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "big.txt"), str(tmp_path / "big.weft")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    stored, used = map(int, found.stdout.split())
    assert 0.99 * m < stored <= m
    assert used < room
