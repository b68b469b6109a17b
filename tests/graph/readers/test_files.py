"""Files are opened by many ranks at once, and some are no arrays."""

from __future__ import annotations

import gc
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from weft.errors import UserError
from weft.graph.readers.files import map_array


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


@pytest.mark.parametrize("content", [b"", b"no array", b"\x93NUMPY\x01\x00\xff\xff"])
def test_a_file_that_is_no_array_is_one_line(tmp_path, content):
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"x\.npy is not a \.npy array \(.*\)\. Save one") as caught:
        map_array(path)
    assert "\n" not in str(caught.value)


def test_objects_are_not_read(tmp_path):
    np.save(tmp_path / "x.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(UserError, match="Python objects"):
        map_array(tmp_path / "x.npy")
