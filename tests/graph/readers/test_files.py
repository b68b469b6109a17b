"""Opening files: gzip by content, a bound on what comes out."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from weft.errors import UserError
from weft.graph.readers import files


def test_gzip_is_known_by_its_first_bytes_not_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(gzip.compress(b"0 1\n"))
    (tmp_path / "b.txt.gz").write_bytes(b"0 1\n")
    assert files.read_bytes(tmp_path / "a.txt") == files.read_bytes(tmp_path / "b.txt.gz") == b"0 1\n"


def test_a_small_file_that_unpacks_without_end_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(bytes(1 << 20)))
    monkeypatch.setattr(files, "machine_bytes", lambda: 1 << 20)
    monkeypatch.setattr(files, "_CHUNK", 1 << 12)
    with pytest.raises(UserError, match="unpacks to more than"):
        files.read_bytes(tmp_path / "bomb.gz")
