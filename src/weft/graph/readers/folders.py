"""Data sets that are folders: how each is known, and what reads it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from weft.graph.graph import Graph
from weft.graph.readers.ogb_links import TRAIN, is_released, read_ogb_links, read_released
from weft.graph.readers.ogb_nodes import is_ogb_nodes, read_ogb_nodes
from weft.graph.readers.planetoid import is_planetoid, read_planetoid
from weft.graph.readers.reddit import is_reddit, read_reddit
from weft.graph.readers.saint import is_saint, read_saint


class Folder(NamedTuple):
    """A layout of files in a folder."""

    holds: Callable[[Path], bool]
    read: Callable[[str | Path], Graph]


FOLDERS = (
    Folder(is_planetoid, read_planetoid),
    Folder(lambda folder: (folder / TRAIN).is_file(), read_ogb_links),
    Folder(is_released, read_released),
    Folder(is_ogb_nodes, read_ogb_nodes),
    Folder(is_saint, read_saint),
    Folder(is_reddit, read_reddit),
)


def layout_of(folder: Path) -> Folder | None:
    """The layout of a folder's files; None where it is none that is known.

    >>> layout_of(Path("no/such/folder"))
    """
    return next((each for each in FOLDERS if folder.is_dir() and each.holds(folder)), None)
