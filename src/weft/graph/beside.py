"""A split that lies in a small file beside its store, which is not read or copied for it.

    0       JSON: the store's path and the graph's name, how many vertices, a checksum for each mask; padded
    4096    train_mask, val_mask, test_mask: n bytes each, 0 or 1

Who starts ranks draws it from the labels alone; ranks open it in place of the store and find the masks there.
Weft writes the file for its own ranks and takes it away with them: it is no format to keep.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from weft.errors import UserError
from weft.graph.graph import Graph
from weft.graph.guard import about, check_fits
from weft.graph.split import PARTS, SOME, draw
from weft.graph.store import Store
from weft.graph.writer import Section, raw_bytes

SUFFIX = ".split"
_HEAD = 4096


def draw_split(store: Store, train: float | int, val: float | int, seed: int) -> np.ndarray:
    """The part of each vertex as `weft.graph.split` draws it of the whole graph; only labels are read.

    >>> import tempfile
    >>> from weft.graph import karate, open_store, split, write_store
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = open_store(write_store(karate(), Path(folder) / "club.weft"))
    ...     part = draw_split(store, 0.6, 0.2, seed=3)
    >>> ((part == PARTS["val_mask"]) == split(karate(), 0.6, 0.2, 3).val_mask.numpy()).all()
    np.True_
    """
    n = store.num_nodes
    check_fits(
        (7 if n < 2**31 else 11) * n, f"a split of the {n:,} vertices of {store.path}",
        remedy="Bring one: weft convert --split 0.6,0.2.",
    )  # fmt: skip

    def labels() -> Iterator[np.ndarray]:
        for lo in range(0, n, SOME):
            yield store.labels(lo, min(n, lo + SOME)).numpy()

    return draw(labels(), n, train, val, seed)


def part_of(graph: Graph) -> np.ndarray:
    """The part that a graph's masks put each vertex into, as `draw` says it. [n] uint8"""
    part = np.zeros(graph.num_nodes, dtype=np.uint8)
    for key, number in PARTS.items():
        if (mask := getattr(graph, key)) is not None:
            part[mask.numpy()] = number
    return part


def write_beside(store: Store, part: np.ndarray, name: str, path: Path) -> Store:
    """Write the masks to `path`; the store with them."""
    crcs = {key: zlib.crc32(raw_bytes(mask)) for key, mask in _masks(part)}
    facts = {"store": str(store.path.resolve()), "name": name, "vertices": len(part), "crc32": crcs}
    head = json.dumps(facts).encode()
    if len(head) > _HEAD:
        raise UserError(f"{store.path}: the path is too long. Give a shorter one.")
    try:
        with open(path, "wb") as file:
            file.write(head.ljust(_HEAD))
            for _, mask in _masks(part):
                file.write(raw_bytes(mask))
    except OSError as error:
        raise UserError(
            f"cannot write the split to {path}: {error.strerror or error}. Set TMPDIR to a folder with more "
            "room, or bring a split: weft convert --split 0.6,0.2."
        ) from None
    return open_beside(path)


def _masks(part: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
    for key, number in PARTS.items():
        yield key, part == number


def open_beside(path: Path) -> Store:
    """The store that a file of masks belongs to, with them; headers alone are read."""
    with about(path):
        try:
            with open(path, "rb") as file:
                facts = json.loads(file.read(_HEAD))
            store, n = Store(facts["store"]), int(facts["vertices"])
            masks = {
                key: Section(key, "|b1", (n,), _HEAD + at * n, int(facts["crc32"][key]))
                for at, key in enumerate(PARTS)
            }
            name = str(facts["name"])
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise UserError(f"no split can be read ({error}). Start again.") from None
        if n != store.num_nodes or path.stat().st_size != _HEAD + len(PARTS) * n:
            raise UserError(f"this split is not of {store.path} as it is now. Start again.")
    store._put_beside(path, masks)
    store.name = name
    return store
