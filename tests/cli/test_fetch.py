"""weft fetch: the licence before anything else."""

from __future__ import annotations

from pathlib import Path


def test_the_list_and_a_set_show_licence_and_size_before_anything_is_fetched(weft):
    told = weft("fetch")
    assert told.status == 0
    assert "ogbn-arxiv" in told.out
    told = weft("fetch", "cora", "--data", "data", "--show")
    assert told.status == 0
    assert "licence: " in told.out
    assert "8 with a checksum" in told.out
    assert not Path("data").exists()


def test_without_a_yes_or_a_folder_or_a_known_name_nothing_is_fetched(weft, monkeypatch):
    monkeypatch.delenv("WEFT_DATA", raising=False)
    assert "Set WEFT_DATA, or pass --data" in weft("fetch", "cora").err
    told = weft("fetch", "cora", "--data", "data")
    assert (told.status, "add --yes" in told.err, "licence: " in told.out) == (2, True, True)
    told = weft("fetch", "corra", "--data", "data")
    assert (told.status, "Did you mean 'cora'?" in told.err) == (2, True)
    told = weft("fetch", "flickr", "--data", "data", "--yes")
    assert (told.status, "has no files to fetch by a program" in told.err) == (2, True)
    assert not Path("data").exists()
