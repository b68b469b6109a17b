"""Parquet and npz as inputs of the converter."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from weft.errors import UserError
from weft.graph import Graph, open_store
from weft.graph.store import checksum
from weft.graph.stream import Options, convert, streams, tables


@pytest.fixture
def columns(monkeypatch):
    monkeypatch.setattr(tables, "ROWS", 100)
    rng = np.random.default_rng(1)
    ids = np.sort(rng.integers(2**40, size=60))
    return {
        "source": ids[rng.integers(60, size=1_000)], "target": ids[rng.integers(60, size=1_000)],
        "weight": rng.random(1_000).astype(np.float32), "kind": rng.integers(9, size=1_000),
    }  # fmt: skip


def write(path, columns, **more):
    if path.suffix == ".npz":
        (np.savez_compressed if path.stem.endswith("packed") else np.savez)(path, **columns, **more)
    else:
        pq.write_table(pa.table(columns), path, row_group_size=170)
    return path


@pytest.mark.parametrize("name", ["a.parquet", "a.npz", "a-packed.npz"])
def test_columns_become_the_same_graph(tmp_path, columns, name):
    path = write(tmp_path / name, columns)
    assert streams(path)
    ids, place = np.unique([columns["source"], columns["target"]], return_inverse=True)
    place = place.reshape(2, -1)
    own = {"weights": columns["weight"], "ids": ids}
    plain = Graph.from_arcs(place[0], place[1], **own)
    convert([path], tmp_path / "plain.weft")
    assert checksum(open_store(tmp_path / "plain.weft")) == checksum(plain)
    rich = Graph.from_arcs(place[0], place[1], arc_data={"kind": columns["kind"]}, ids=ids)
    with pytest.warns(match="arcs were given again and merged: of kind the first is kept"):
        convert([path], tmp_path / "rich.weft", Options(arc_columns=["kind"]))
    assert checksum(open_store(tmp_path / "rich.weft")) == checksum(rich)


@pytest.mark.parametrize("kind", [pa.float32(), pa.int16()])
def test_a_column_of_parquet_may_hold_a_row_of_numbers(tmp_path, columns, kind):
    rows = np.random.default_rng(2).integers(100, size=(1_000, 3))
    lists = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()).cast(kind), 3)
    path = write(tmp_path / "a.parquet", columns | {"features": lists})
    with pytest.warns(match="of features, kind the first is kept"):
        convert([path], tmp_path / "wide.weft", Options(arc_columns=["features", "kind"]))
    ids, place = np.unique([columns["source"], columns["target"]], return_inverse=True)
    place, carried = place.reshape(2, -1), {"features": rows, "kind": columns["kind"]}
    carried |= {"features": rows.astype(np.float64)} if kind == pa.float32() else {}
    wanted = Graph.from_arcs(place[0], place[1], arc_data=carried, ids=ids)
    assert checksum(open_store(tmp_path / "wide.weft")) == checksum(wanted)
    for given, words in (("kind", "one column 'kind', which is named twice"), ("weight", "named twice")):
        with pytest.raises(UserError, match=words):
            convert([path], tmp_path / "no.weft", Options(arc_columns=[given, given]))
    wide = write(tmp_path / "w.parquet", columns | {"weight": lists})
    with pytest.raises(UserError, match="column weight holds more than one number an arc"):
        convert([wide], tmp_path / "no.weft", Options())
    holes = pa.FixedSizeListArray.from_arrays(pa.array([None, *rows.ravel()[1:]], kind), 3)
    holed = write(tmp_path / "h.parquet", columns | {"features": holes})
    with pytest.raises(UserError, match="a row has no value in a column"):
        convert([holed], tmp_path / "no.weft", Options(arc_columns=["features"]))


def test_an_archive_that_names_what_arcs_carry_is_read_as_a_whole(tmp_path, columns):
    plain = {"row": columns["kind"], "col": columns["kind"]}
    assert streams(write(tmp_path / "a.npz", plain))
    assert not streams(write(tmp_path / "b.npz", plain, arc_features=np.ones((1_000, 2))))


@pytest.mark.parametrize("suffix", [".parquet", ".npz"])
def test_what_is_wrong_is_one_line(tmp_path, columns, suffix):
    wrong = {
        "has columns": {"a": columns["source"], "target": columns["target"]},
        "id -1 of column source is not in": columns | {"source": columns["source"] * 0 - 1},
        "weight is nan": columns | {"weight": columns["weight"] * np.nan},
        "column target does not hold numbers": columns | {"target": columns["weight"]},
    }
    for number, (words, given) in enumerate(wrong.items()):
        path = write(tmp_path / f"{number}{suffix}", given)
        with pytest.raises(UserError, match=words) as found:
            convert([path], tmp_path / "g.weft")
        assert "\n" not in str(found.value)
    path = write(tmp_path / f"x{suffix}", columns)
    with pytest.raises(UserError, match="no column 'time', only source, target, weight, kind"):
        convert([path], tmp_path / "g.weft", Options(arc_columns=["time"]))
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(UserError, match="is not a sound"):
        convert([path], tmp_path / "g.weft")
    assert not list(tmp_path.glob("*.weft*"))


@pytest.mark.parametrize("kind", [pa.string(), pa.large_binary(), pa.dictionary(pa.int32(), pa.string())])
def test_a_table_may_name_its_vertices(tmp_path, columns, kind):
    word = np.array([f"v{k % 60:x}{'é' * (k % 3)}" for k in range(1_000)])
    named = {"source": word, "target": word[::-1], "weight": columns["weight"]}
    listed = tmp_path / "g.tsv"
    rows = zip(*named.values(), strict=True)
    listed.write_text("".join(f"{a}\t{b}\t{float(w)!r}\n" for a, b, w in rows))
    convert([listed], tmp_path / "text.weft", Options(text_ids=True))
    typed = named | {side: pa.array(named[side].tolist()).cast(kind) for side in ("source", "target")}
    path = write(tmp_path / "g.parquet", typed)
    convert([path], tmp_path / "table.weft", Options(text_ids=True))
    text, table = (open_store(tmp_path / f"{name}.weft") for name in ("text", "table"))
    assert checksum(text) == checksum(table)
    with pytest.raises(UserError, match=r"column source holds names. Add --text-ids"):
        convert([path], tmp_path / "no.weft")
    with pytest.raises(UserError, match=r"column source does not hold names. Leave out --text-ids"):
        convert([write(tmp_path / "n.parquet", columns)], tmp_path / "no.weft", Options(text_ids=True))


def test_of_a_row_group_of_any_length_some_rows_are_held(tmp_path, monkeypatch):
    ids = np.random.default_rng(2).integers(2**40, size=(2, 600_000))
    path, bare = tmp_path / "g.parquet", {"source": ids[0], "target": ids[1]}
    pq.write_table(pa.table(bare), path, row_group_size=600_000, use_dictionary=False, compression="none")
    monkeypatch.setattr(tables, "ROWS", 1 << 14)
    [segment] = tables.Parquet(path, None).segments(1 << 20, set())
    before, given, held = pa.total_allocated_bytes(), 0, []
    for arcs in segment.arcs():
        given += len(arcs.source)
        held.append(pa.total_allocated_bytes() - before)
    assert given == 600_000
    assert 0 < max(held) < ids.nbytes // 2  # two buffers and a page of each, not two columns
