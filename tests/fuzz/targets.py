"""What is fuzzed: for each, sound files, and what reads them. Damage is harmless, or one line."""

from __future__ import annotations

import dataclasses
import gzip
import json
import pickle
import shutil
import zlib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from pyarrow import parquet

from weft.comm.hosts import read_hosts
from weft.comm.threads import single
from weft.graph import load, open_store, write_store
from weft.graph.generators import karate
from weft.graph.stream import Options, convert
from weft.graph.writer import PREAMBLE
from weft.parallel import Blocks, Grid, Rows
from weft.parallel.assign import read_parts
from weft.planner import Machine, Shape, plan, read_profile
from weft.planner.default import default_profile
from weft.train import RunConfig, RunFolder, Trainer
from weft.train.checkpoint import _sealed, newest
from weft.train.config import load_toml, to_toml
from weft.train.predict import read_pairs, read_run, restore
from weft.train.rows import read_rows
from weft.train.run import standing, state_of


@dataclass(frozen=True)
class Target:
    """`make` writes sound files into the present folder; `read` reads them: all, or the one that is named."""

    make: Callable[[], None]
    read: Callable[[str], object]
    mend: Callable[[dict[str, bytes], str, bytes], dict[str, bytes]] | None = None
    """(the sound files, one of them, what has become of it) → files that differ: checksums that fit it again,
    so that damage gets past them."""
    share: float = 1.0
    """Cases of it, where others get one."""


def _edge_list() -> None:
    lines = "".join(f"{a}\t{b}\t{0.5 + a}\n" for a, b in [(0, 1), (1, 2), (7, 3), (3, 0)])
    Path("a.tsv").write_text("# Undirected graph\n# Nodes: 9\n" + lines)
    Path("b.csv.gz").write_bytes(gzip.compress(b"source,target\n0,1\n1,2\n"))


def _read_edge_list(path: str) -> None:
    _read_each("a.tsv", "b.csv.gz")(path)
    if path != "b.csv.gz":
        load("a.tsv", arc_columns=["weight"])


def _matrix() -> None:
    Path("a.mtx").write_text("%%MatrixMarket matrix coordinate real symmetric\n% x\n4 4 2\n2 1 0.5\n4 3 -1\n")


def _npz() -> None:
    sparse = {
        "attr_indptr": np.array([0, 1, 2, 2]),
        "attr_indices": np.array([0, 3]),
        "attr_data": np.ones(2, np.float32),
        "attr_shape": np.array([3, 5]),
    }
    np.savez("a.npz", indptr=np.array([0, 2, 3, 3]), indices=np.array([0, 1, 2]), labels=np.array([0, 1, 0]),
             shape=np.array([3, 3]), **sparse)  # fmt: skip
    np.savez_compressed("b.npz", indptr=np.array([0, 1, 1]), indices=np.array([1]), features=np.ones((2, 3)))


def _ogb() -> None:
    Path("links").mkdir()
    Path("links/train_edges.csv.gz").write_bytes(gzip.compress(b"0,1\n1,2\n2,3\n"))
    names = ("valid_edge", "valid_edge_neg", "test_edge", "test_edge_neg")
    np.savez("links/valid_test.npz", **{name: np.array([[0, 3], [1, 3]]) for name in names})


def _tables() -> None:
    """OGB's archives of a node set, in tables, in binary, and with types."""
    tables = {
        "ogbn-products/raw/edge": "0,1\n2,1\n", "ogbn-products/raw/num-node-list": "3\n",
        "ogbn-products/raw/num-edge-list": "2\n", "ogbn-products/raw/node-feat": "1,2\n3,4\n5,6\n",
        "ogbn-products/raw/node-label": "0\n1\n0\n", "ogbn-products/split/a/train": "0\n2\n",
        "mag/raw/num-node-dict": "author,paper\n1,2\n", "mag/raw/triplet-type-list": "author,writes,paper\n",
        "mag/raw/relations/author___writes___paper/edge": "0,1\n",
        "mag/raw/node-label/paper/node-label": "0\n1\n",
        "papers/split/time/train": "0\n",
    }  # fmt: skip
    for name, text in tables.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(f"{name}.csv.gz").write_bytes(gzip.compress(text.encode()))
    Path("papers/raw").mkdir(parents=True)
    np.savez("papers/raw/data.npz", edge_index=np.array([[0, 1], [1, 0]]), num_nodes_list=np.array([2]))
    np.savez("papers/raw/node-label.npz", node_label=np.array([[0.0], [np.nan]]))


def _released() -> None:
    """OGB's archive of a link set; its .pt files in both forms."""
    for part in ("raw", "split/a"):
        Path("ogbl", part).mkdir(parents=True)
    Path("ogbl/raw/edge.csv.gz").write_bytes(gzip.compress(b"0,1\n1,2\n2,3\n"))
    pairs = {"edge": np.array([[0, 3]]), "edge_neg": np.array([[1, 3]])}
    torch.save(pairs, "ogbl/split/a/valid.pt", _use_new_zipfile_serialization=False)
    torch.save({name: torch.from_numpy(each) for name, each in pairs.items()}, "ogbl/split/a/test.pt")


def _saint() -> None:
    for name in ("saint", "reddit"):
        Path(name).mkdir()
    np.savez(
        "saint/adj_full.npz", indptr=np.array([0, 1, 2]), indices=np.array([1, 0]), shape=np.array([2, 2])
    )
    np.save("saint/feats.npy", np.ones((2, 3)))
    Path("saint/class_map.json").write_text('{"0": [0, 1], "1": [1, 1]}')
    Path("saint/role.json").write_text('{"tr": [0], "va": [1], "te": []}')
    np.savez("reddit/reddit_graph.npz", row=np.array([0, 1]), col=np.array([1, 0]), shape=np.array([2, 2]))
    np.savez(
        "reddit/reddit_data.npz", feature=np.ones((2, 3)), label=np.array([0, 1]), node_types=np.array([1, 3])
    )


def _webgraph() -> None:
    """Rows {1, 2, 3, 4}, {}, {1, 2, 3, 4} by reference, {0}, {}: the bits are written out here."""
    bits = (
        "00101" + "1" + "010" + "011" + "1"  # d=4, no reference, 1 interval, from 1 on (natural 2), of 4 + 0
        "1"  # d=0
        "00101" + "001" + "1"  # d=4, the row two before, no blocks: all of it
        "010" + "1" + "1" + "1110"  # d=1, no reference, no interval, ζ₃(5): vertex 3 − 3
        "1"  # d=0
    )
    bits += "0" * (-len(bits) % 8)
    Path("w.graph").write_bytes(int(bits, 2).to_bytes(len(bits) // 8))
    Path("w.properties").write_text(
        "graphclass=it.unimi.dsi.webgraph.BVGraph\nnodes=5\narcs=9\nwindowsize=7\nminintervallength=4\n"
        "zetak=3\ncompressionflags=\n"
    )


def _planetoid() -> None:
    Path("p").mkdir()
    rows = {"x": 2, "y": 2, "tx": 2, "ty": 2, "allx": 4, "ally": 4}
    for name, count in rows.items():
        Path(f"p/ind.p.{name}").write_bytes(pickle.dumps(np.eye(count, 3, dtype=np.float32), 2))
    adjacency = defaultdict(list, {v: [(v + 1) % 6] for v in range(6)})
    Path("p/ind.p.graph").write_bytes(pickle.dumps(adjacency, 2))
    Path("p/ind.p.test.index").write_text("4\n5\n")


def _toml() -> None:
    config = _config()
    config.train.optimizer_options = {"betas": [0.9, 0.99], "eps": 1e-8}
    config.train.scheduler, config.train.scheduler_options = "step", {"step_size": 3}
    Path("run.toml").write_text(to_toml(config))


def _config() -> RunConfig:
    config = RunConfig()
    config.data.graph, config.model.hidden, config.train.epochs, config.parallel.ranks = "karate", 4, 2, 1
    config.train.checkpoint_every = "1"
    return config


def _read_toml(path: str) -> None:
    config = RunConfig()
    load_toml(config, Path("run.toml"))
    config.data.graph, config.model.hidden = "karate", min(config.model.hidden, 64)
    config.model.layers, config.train.trace, config.train.device = min(config.model.layers, 4), "", "cpu"
    Trainer(karate(), config).step(1)
    to_toml(config)


def _store() -> None:
    graph = karate()
    rich = graph.replace(
        arc_data={"time": torch.arange(2 * graph.num_arcs).view(-1, 2).float()},
        vertex_data={"age": torch.arange(graph.num_nodes)},
        val_pairs=torch.tensor([[0, 5], [3, 9]]),
    )
    write_store(graph, "g.weft")
    write_store(rich, "rich.weft")


def _read_parts_of_store(path: str) -> None:
    """As a rank reads its share: no checksum of what it reads."""
    for name in ("g.weft", "rich.weft") if not path else (path,):
        store = open_store(name, verify=False)
        half = store.num_nodes // 2
        store.rows(half, store.num_nodes)
        store.rows(torch.arange(0, store.num_nodes, 3))
        if store.num_pairs("val_pairs"):
            store.pairs("val_pairs")
        store.graph()


def _mend_store(files: dict[str, bytes], path: str, data: bytes) -> dict[str, bytes]:
    if len(data) < PREAMBLE.size:
        return {path: data}
    magic, version, _, offset, length = PREAMBLE.unpack(data[: PREAMBLE.size])
    crc = zlib.crc32(data[offset : offset + length])
    return {path: PREAMBLE.pack(magic, version, crc, offset, length) + data[PREAMBLE.size :]}


def _mend_checkpoint(files: dict[str, bytes], path: str, data: bytes) -> dict[str, bytes]:
    folder, _, name = path.rpartition("/")
    manifest = f"{folder}/manifest.json"
    if manifest not in files:
        return {path: data}
    try:
        body = json.loads(data if path == manifest else files[manifest])
        body.pop("checksum", None)
        if path != manifest:
            body["files"][name] = [len(data), zlib.crc32(data)]
        return {path: data, manifest: _sealed(body).encode()}
    except (ValueError, AttributeError, TypeError, RecursionError):
        return {path: data}  # no JSON any more


def _run() -> None:
    config = _config()
    config.train.out = "run"
    trainer = Trainer(karate(), config)
    with RunFolder.create(config) as folder:
        result = trainer.fit(folder)
        summary = json.loads(
            json.dumps(result.as_dict() | {"widths": trainer.model.widths, "interrupted": True})
        )
        folder.finish(trainer.model.state_dict(), summary)


def _ended() -> None:
    _run()
    shutil.rmtree("run/checkpoints")


def _read_run(path: str) -> None:
    state_of(Path("run")).line()
    found = read_run(Path("run"))
    found.config.model.hidden = min(found.config.model.hidden, 64)
    restore(found, 34)


def _read_checkpoint(path: str) -> None:
    """As a resuming run does it."""
    config = _config()
    config.train.out = "run"
    standing(config)
    found, _ = newest(single(), Path("run"))
    if found is not None:
        config.train.epochs = 3
        Trainer(karate(), config).fit(resume=found)


def _arrays() -> None:
    np.save("parts.npy", np.arange(34) % 3)
    np.save("rows.npy", np.ones((34, 2), np.float32))
    np.save("pairs.npy", np.array([[0, 1], [2, 3]]))
    Path("pairs.csv").write_text("0,1\n2,3\n")


def _read_arrays(path: str) -> None:
    layout = Rows(single(), Blocks.even(34, Grid(1)))
    readers: dict[str, Callable[[str], object]] = {
        "parts.npy": lambda name: read_parts(name, 34),
        "rows.npy": lambda name: read_rows(Path(name), layout, 2),
        "pairs.npy": lambda name: read_pairs(Path(name), 34),
        "pairs.csv": lambda name: read_pairs(Path(name), 34),
    }
    for name in readers if not path else (path,):
        readers[name](name)


def _read_each(*names: str) -> Callable[[str], None]:
    """Files that are read one by one."""

    def read(path: str) -> None:
        for name in names if not path else (path,):
            load(name)

    return read


def _read_folders(*names: str) -> Callable[[str], None]:
    """Folders, of which the one is read that the damaged file is in."""

    def read(path: str) -> None:
        for name in names:
            if not path or path.startswith(f"{name}/"):
                load(name)

    return read


def _stream() -> None:
    _edge_list()
    _matrix()
    Path("names.txt").write_text("ann bob 0.5\nbob eve 1\n9223372036854775807 ann 2\n")
    np.savez("csr.npz", indptr=np.array([0, 2, 3, 3]), indices=np.array([0, 1, 2]), data=np.ones(3))
    np.savez("coo.npz", row=np.array([0, 1, 2]), col=np.array([1, 2, 0]), weight=np.ones(3, np.float32))
    parquet.write_table(
        pa.table({"source": [0, 1, 5], "target": [1, 2, 0], "weight": [0.5, 1, 2]}), "a.parquet"
    )


def _read_stream(path: str) -> None:
    for name in (
        ("a.tsv", "b.csv.gz", "a.mtx", "names.txt", "coo.npz", "csr.npz", "a.parquet")
        if not path
        else (path,)
    ):
        convert([name], "out.weft", Options(text_ids=name == "names.txt"))
        load("out.weft")
        Path("out.weft").unlink()


def _hosts() -> None:
    Path("hosts").write_text("# two\nnode1 slots=2\nnode2:4\n")


def _profile() -> None:
    profile = default_profile()
    Path("p.json").write_text(json.dumps(dataclasses.replace(profile, between=profile.inside).as_dict()))


def _read_profile(path: str) -> None:
    """As `weft plan --profile` does it: what passes is planned with."""
    profile = read_profile(Path("p.json"))
    profile.doubts()
    plan(
        Shape(90, 400, 3, 2),
        RunConfig(),
        Machine(profile, 2, hosts=2),
        ["random"],
        lambda c: c.strategy == "1d",
    )


def _read_folder(name: str) -> Callable[[str], None]:
    """Files that are read together."""
    return lambda path: load(name) and None


TARGETS = {
    "edge-list": Target(_edge_list, _read_edge_list),
    "matrix-market": Target(_matrix, _read_each("a.mtx"), share=2),
    "npz": Target(_npz, _read_each("a.npz", "b.npz")),
    "ogb": Target(_ogb, _read_folder("links")),
    "tables": Target(_tables, _read_folders("ogbn-products", "mag", "papers"), share=0.7),
    "released": Target(_released, _read_folders("ogbl"), share=0.7),
    "saint": Target(_saint, _read_folders("saint", "reddit"), share=0.7),
    "webgraph": Target(_webgraph, lambda path: load("w.graph")),
    "planetoid": Target(_planetoid, _read_folder("p")),
    "store": Target(_store, _read_each("g.weft", "rich.weft"), share=2),
    "parts-of-store": Target(_store, _read_parts_of_store, _mend_store, share=1.5),
    "stream": Target(_stream, _read_stream, share=0.3),
    "hosts": Target(_hosts, lambda path: read_hosts(Path("hosts")), share=0.5),
    "profile": Target(_profile, _read_profile, share=0.05),
    "arrays": Target(_arrays, _read_arrays),
    "config": Target(_toml, _read_toml, share=0.5),
    "run": Target(_ended, _read_run, share=0.4),
    "checkpoint": Target(_run, _read_checkpoint, share=0.15),
    "sealed-checkpoint": Target(_run, _read_checkpoint, _mend_checkpoint, share=0.15),
}

torch.set_num_threads(1)
