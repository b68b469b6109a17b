"""Checksums of chunks: damage is noticed by whoever reads it, and only then."""

from __future__ import annotations

import json
import zlib

import numpy as np
import pytest
import torch

from weft.errors import UserError
from weft.graph import Graph, er, open_store, write_store
from weft.graph.writer import CHUNK, PREAMBLE, Checks


@pytest.fixture
def path(tmp_path):
    graph = er(nodes=3_000, degree=4, directed=True)
    wide = torch.arange(3_000 * 700, dtype=torch.float32).view(3_000, 700)  # 8 chunks
    return write_store(graph.replace(features=wide), tmp_path / "g.weft")


def header(path):
    with open(path, "rb") as file:
        _, _, _, offset, length = PREAMBLE.unpack(file.read(PREAMBLE.size))
        file.seek(offset)
        return json.loads(file.read(length)), offset


def flip(path, at):
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))


def test_a_damaged_chunk_is_noticed_by_who_reads_it(path):
    facts, _ = header(path)
    start = next(s["offset"] for s in facts["sections"] if s["name"] == "features")
    flip(path, start + 5 * CHUNK + 17)  # the lowest bit of a number: it stays finite
    store = open_store(path, verify=False)
    assert store.checks_itself
    store.rows(0, 1_000)
    store.rows([2_990, 5])
    hit = (5 * CHUNK + 17) // 2_800
    for which in ((hit, hit + 1), ([hit],)):
        with pytest.raises(UserError, match="wrong checksum in section 'features'"):
            open_store(path, verify=False).rows(*which)
    with pytest.raises(UserError, match="wrong checksum in section 'features'"):
        open_store(path)


def test_every_chunk_of_a_long_row_is_compared_though_other_rows_are_asked_for_too(tmp_path):
    n = CHUNK  # 4 chunks of columns in row 1
    indptr = torch.full((n + 1,), n, dtype=torch.int64)
    indptr[:2] = 0
    path = write_store(Graph(indptr, torch.arange(n, dtype=torch.int32)), tmp_path / "hub.weft")
    start = next(s["offset"] for s in header(path)[0]["sections"] if s["name"] == "indices")
    assert open_store(path, verify=False).rows([1, 7]).indices.tolist() == list(range(n))
    for chunk in range(4):
        flip(path, start + chunk * CHUNK + 40)
        with pytest.raises(UserError, match="wrong checksum in section 'indices'"):
            open_store(path, verify=False).rows([1, 7])
        flip(path, start + chunk * CHUNK + 40)


def test_the_table_of_checksums_is_checked_and_old_stores_have_none(path):
    facts, offset = header(path)
    flip(path, facts["checks"]["offset"] + 3)
    with pytest.raises(UserError, match="wrong checksum in the table"):
        open_store(path, verify=False).rows(0, 1)
    flip(path, facts["checks"]["offset"] + 3)
    for wrong in ({"count": 3}, {"bytes": 1}, {"offset": offset}, {"crc32": -1}):
        rewrite(path, facts | {"checks": facts["checks"] | wrong}, offset)
        with pytest.raises(UserError, match="the header makes no sense"):
            open_store(path, verify=False)
    del facts["checks"]
    rewrite(path, facts, offset)
    old = open_store(path)
    assert not old.checks_itself
    assert old.rows(7, 9).features[0, 0] == 4_900


def rewrite(path, facts, offset):
    raw = json.dumps(facts).encode()
    with open(path, "r+b") as file:
        magic, version, *_ = PREAMBLE.unpack(file.read(PREAMBLE.size))
        file.seek(offset)
        file.write(raw)
        file.truncate()
        file.seek(0)
        file.write(PREAMBLE.pack(magic, version, zlib.crc32(raw), offset, len(raw)))


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, 2 * CHUNK + 5])
def test_the_checksum_of_all_follows_from_those_of_chunks(size):
    data = np.random.default_rng(size).integers(256, size=size, dtype=np.uint8).tobytes()
    checks = Checks()
    for at in range(0, size, 700_001):
        checks.add(memoryview(data)[at : at + 700_001])
    assert checks.whole() == zlib.crc32(data)
    assert checks.each() == [zlib.crc32(data[at : at + CHUNK]) for at in range(0, size, CHUNK)]
