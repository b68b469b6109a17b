"""Opening files: gzip by content, a bound on what comes out, arrays by many ranks at once."""

from __future__ import annotations

import gc
import gzip
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from weft.errors import UserError
from weft.graph.readers import files
from weft.graph.readers.files import map_array


def test_gzip_is_known_by_its_first_bytes_not_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(gzip.compress(b"0 1\n"))
    (tmp_path / "b.txt.gz").write_bytes(b"0 1\n")
    assert files.read_bytes(tmp_path / "a.txt") == files.read_bytes(tmp_path / "b.txt.gz") == b"0 1\n"


def test_a_small_file_that_unpacks_without_end_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(1 << 20)))
    monkeypatch.setattr(files, "allowed_bytes", lambda held: 1 << 19)
    monkeypatch.setattr(files, "_CHUNK", 1 << 12)
    with pytest.raises(UserError, match="unpacks to more than"):
        files.read_bytes(tmp_path / "bomb.gz")


@pytest.fixture
def switching():
    """Lets another thread run in the midst of whatever allocates."""

    def let_others(phase, info):
        time.sleep(0)

    before = gc.get_threshold()
    gc.callbacks.append(let_others)
    gc.set_threshold(10)
    yield
    gc.set_threshold(*before)
    gc.callbacks.remove(let_others)


def test_many_threads_map_one_file(tmp_path, switching):
    np.save(tmp_path / "x.npy", np.arange(6).reshape(2, 3))

    def at_depth(calls):
        return map_array(tmp_path / "x.npy").tolist() if calls == 0 else at_depth(calls - 1)

    def often(calls):
        return [at_depth(calls) for _ in range(20)]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(often, range(4))) == [[[[0, 1, 2], [3, 4, 5]]] * 20] * 4


def test_what_is_assigned_goes_to_the_file(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(3))
    map_array(tmp_path / "x.npy", write=True)[1] = 5
    assert map_array(tmp_path / "x.npy").tolist() == [0, 5, 0]
    with pytest.raises(ValueError, match="read-only"):
        map_array(tmp_path / "x.npy")[1] = 6


def header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()


@pytest.mark.parametrize(
    "content",
    [
        b"", b"no array", b"\x93NUMPY\x01\x00\xff\xff", header("{"), header("-" * 4000 + "1"),
        header("{'descr': '<i8', 'fortran_order': False, 'shape': (True,)}"),
        header("{'descr': '<i8', 'fortran_order': False, 'shape': (9e9,)}"),
        header("{'descr': '<i8', 'fortran_order': False, 'shape': (4611686018427387904,)}"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_array_is_one_line(tmp_path, content):
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"x\.npy is not a \.npy array \(.*\)\. Save one") as caught:
        map_array(path)
    assert "\n" not in str(caught.value)


def test_any_damaged_byte_of_a_header_is_read_or_refused_in_one_line(tmp_path):
    path = tmp_path / "x.npy"
    np.save(path, np.arange(6))
    sound = path.read_bytes()
    refused = []
    for at in range(70):
        for value in (0, 1, 39, 40, 255):
            path.write_bytes(sound[:at] + bytes([value]) + sound[at + 1 :])
            try:
                map_array(path)
            except UserError as error:
                refused.append(str(error))
    assert len(refused) > 200
    assert not any("\n" in message for message in refused)


def test_a_folder_is_named_as_one(tmp_path):
    with pytest.raises(UserError, match="is a folder, not a file"):
        map_array(tmp_path)


def test_objects_are_not_read(tmp_path):
    np.save(tmp_path / "x.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(UserError, match="Python objects"):
        map_array(tmp_path / "x.npy")
