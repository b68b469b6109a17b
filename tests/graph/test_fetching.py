"""Downloads from a server on loopback that the test starts: whole, broken, resumed, changed, refused."""

from __future__ import annotations

import hashlib
import io
import socket
import threading
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from weft.errors import UserError
from weft.graph import fetching, load
from weft.graph.fetching import download, fetch, unpack
from weft.graph.known import KNOWN, File, Known

BODY = bytes(range(256)) * 40


class Site:
    """Files by name; what was asked for, and how many bytes an answer breaks off after."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.ranges: list[str | None] = []
        self.cut = 0
        self.knows_ranges = True
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = site.files.get(self.path.lstrip("/"))
                asked = self.headers.get("Range")
                site.ranges.append(asked)
                if body is None:
                    self.send_error(404)
                    return
                begin = int(asked[6:-1]) if asked and site.knows_ranges else 0
                if begin and begin >= len(body):
                    self.send_error(416)
                    return
                self.send_response(206 if begin else 200)
                self.send_header("Content-Length", str(len(body) - begin))
                self.end_headers()
                self.wfile.write(body[begin : site.cut or None])

            def log_message(self, *words: object) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def file(self, name: str, body: bytes = BODY, **more: object) -> File:
        self.files[name] = body
        told = {"size": len(body), "sha256": hashlib.sha256(body).hexdigest()} | more
        return File(f"http://127.0.0.1:{self.server.server_port}/{name}", name, **told)  # type: ignore[arg-type]


@pytest.fixture
def site():
    made = Site()
    yield made
    made.server.shutdown()
    made.server.server_close()


def known(*files: File, size: int = 1000) -> Known:
    return Known("toy", "a toy", 3, 4, size, "CC0", "edge list", "toys", "http://example.org", files)


def test_a_file_comes_whole_and_is_not_fetched_twice(site):
    ticks = []
    fetch(known(site.file("a.bin")), "data", lambda *told: ticks.append(told))
    assert Path("data/toys/a.bin").read_bytes() == BODY
    assert ticks[-1] == ("a.bin", len(BODY), len(BODY))
    assert [p.name for p in Path("data/toys").iterdir()] == ["a.bin"]
    fetch(known(site.file("a.bin")), "data")
    assert len(site.ranges) == 1


@pytest.mark.parametrize("size", [len(BODY), 0])
def test_a_broken_transfer_is_told_and_goes_on_where_it_stopped(site, size):
    file = site.file("a.bin", size=size)
    site.cut = 3000
    with pytest.raises(UserError, match=r"a\.bin\.part: 3,000 of 10,240 bytes came|cannot reach .*a\.bin"):
        download(file, Path("a.bin"))
    assert not Path("a.bin").exists()
    assert Path("a.bin.part").stat().st_size == 3000
    site.cut = 0
    download(file, Path("a.bin"))
    assert Path("a.bin").read_bytes() == BODY
    assert site.ranges == [None, "bytes=3000-"]


def test_a_server_without_ranges_sends_it_from_the_beginning(site):
    site.knows_ranges = False
    Path("a.bin.part").write_bytes(b"other bytes")
    download(site.file("a.bin"), Path("a.bin"))
    assert Path("a.bin").read_bytes() == BODY


def test_a_checksum_that_differs_leaves_nothing_behind(site):
    file = replace(site.file("a.bin"), sha256="0" * 64)
    with pytest.raises(UserError, match=r"a\.bin: http://127.*has the checksum .*…, not 000000000000…"):
        download(file, Path("a.bin"))
    assert list(Path().iterdir()) == []


def test_a_file_that_is_there_and_differs_is_not_written_over(site):
    Path("data/toys").mkdir(parents=True)
    Path("data/toys/a.bin").write_text("mine")
    with pytest.raises(UserError, match=r"a\.bin is there and differs"):
        fetch(known(site.file("a.bin")), "data")
    assert Path("data/toys/a.bin").read_text() == "mine"


def test_no_network_and_no_such_file_are_one_line(site):
    with socket.socket() as held:  # a port that nobody listens on
        held.bind(("127.0.0.1", 0))
        file = File(f"http://127.0.0.1:{held.getsockname()[1]}/a", "a")
        with pytest.raises(UserError, match=r"cannot reach http://127.* Check the network"):
            download(file, Path("a"))
    with pytest.raises(UserError, match="answers 404"):
        download(replace(site.file("a"), url=site.file("a").url + "x"), Path("a"))
    with pytest.raises(UserError, match="is no web address"):
        download(File("file:///etc/hostname", "a"), Path("a"))


def test_a_disk_without_room_is_told_before_anything_is_fetched(site):
    with pytest.raises(UserError, match=r"toy needs about 1,000,000,000.0 GB, .* free"):
        fetch(known(site.file("a.bin"), size=10**18), "data")
    assert site.ranges == []
    assert not Path("data").exists()


def zipped(**members: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as made:
        for name, body in members.items():
            made.writestr(name.replace("__", "/"), body)
    return out.getvalue()


def test_an_archive_is_unpacked_without_its_own_folder_and_then_trains(site):
    fetch(known(site.file("toy.zip", zipped(toy__g__txt=b"0 1\n"))), "data")
    assert Path("data/toys/g/txt").read_bytes() == b"0 1\n"
    assert not Path("data/toys/toy.zip").exists()
    fetch(known(site.file("toy.zip", b"")), "data")
    assert len(site.ranges) == 1


def test_archives_that_lead_out_or_claim_too_much_or_are_damaged_are_refused():
    for name, told in [("../out", "leads out of its folder"), ("/abs", "leads out of its folder")]:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as made:
            made.writestr(name, b"x")
        Path("a.zip").write_bytes(out.getvalue())
        with pytest.raises(UserError, match=told):
            unpack(Path("a.zip"), Path("."))
    Path("a.zip").write_bytes(zipped(bomb=bytes(30 << 20)))
    with pytest.raises(UserError, match="says that it unpacks to"):
        unpack(Path("a.zip"), Path("."))
    Path("a.zip").write_bytes(zipped(a=b"x")[:-9])
    with pytest.raises(UserError, match="is not a sound archive"):
        unpack(Path("a.zip"), Path("."))
    assert not Path("../out").exists()


def test_a_fetched_set_of_ogb_is_loaded_by_its_name(site, monkeypatch):
    import gzip

    tables = {"arxiv__raw__edge.csv.gz": b"0,1\n1,2\n", "arxiv__raw__num-node-list.csv.gz": b"3\n"}
    file = site.file("arxiv.zip", zipped(**{name: gzip.compress(text) for name, text in tables.items()}))
    fetch(replace(KNOWN["ogbn-arxiv"], files=(file,), size=1000), "data")
    monkeypatch.setenv("WEFT_DATA", "data")
    assert load("ogbn-arxiv").num_arcs == 2


def test_the_fetched_reddit_of_dgl_is_loaded_by_its_name(site, monkeypatch):
    matrix, about = io.BytesIO(), io.BytesIO()
    np.savez(matrix, row=np.array([0, 1]), col=np.array([1, 2]), data=np.ones(2), shape=np.array([3, 3]),
             format=b"coo")  # fmt: skip
    np.savez(about, feature=np.ones((3, 2)), label=np.arange(3), node_types=np.arange(1, 4))
    parts = {"reddit_graph.npz": matrix.getvalue(), "reddit_data.npz": about.getvalue()}
    file = site.file("reddit.zip", zipped(**parts))
    fetch(replace(KNOWN["reddit-dgl"], files=(file,), size=1000), "data")
    monkeypatch.setenv("WEFT_DATA", "data")
    assert load("reddit-dgl").num_arcs == 2
    assert load("reddit-dgl").num_features == 2


def test_addresses_of_one_house_follow_its_pattern():
    """Written down without a network: a new one must look like those that were tried."""
    snap, law = "https://snap.stanford.edu/data/", "http://data.law.di.unimi.it/webdata/"
    for name in ("amazon0601", "cit-patents", "roadnet-ca"):
        (file,) = KNOWN[name].files
        assert file.url == f"{snap}{file.path}"
        assert file.path.lower() == f"{name}.txt.gz"
        assert KNOWN[name].page == f"{snap}{file.path.removesuffix('.txt.gz')}.html"
    for name in ("com-amazon", "com-youtube", "com-dblp", "com-orkut"):
        (file,) = KNOWN[name].files
        assert file.url == f"{snap}bigdata/communities/{name}.ungraph.txt.gz"
    for name in ("cnr-2000", "uk-2002", "uk-2006-05", "uk-union-2006-06-2007-05"):
        assert [f.url for f in KNOWN[name].files] == [
            f"{law}{name}/{name}.{e}" for e in ("graph", "properties")
        ]


def test_sizes_that_are_known_bound_what_a_server_may_send(site):
    with pytest.raises(UserError, match="sends more than 5 bytes"):
        download(replace(site.file("a"), size=5), Path("a"))
    assert fetching.checksum(Path(__file__)) == hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
