"""Which files can be converted piece by piece, and how each format is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from weft.errors import UserError
from weft.graph.stream.compressed import Compressed, holds_rows
from weft.graph.stream.matrix_market import Matrix
from weft.graph.stream.named_text import NamedText
from weft.graph.stream.pieces import Input
from weft.graph.stream.tables import Coordinates, Parquet, holds_arcs
from weft.graph.stream.text import Text

if TYPE_CHECKING:
    from weft.graph.stream.convert import Options

LISTS = tuple(f"{ext}{gz}" for ext in (".txt", ".tsv", ".csv") for gz in ("", ".gz"))
MATRICES = (".mtx", ".mtx.gz")
TABLES = (".parquet",)


def streams(path: str | Path) -> bool:
    """Whether a file of this name can be read piece by piece.

    >>> streams("soc.txt.gz"), streams("g.weft")
    (True, False)
    """
    name = str(path).lower()
    if name.endswith(".npz"):
        return holds_arcs(Path(path)) or holds_rows(Path(path))
    return name.endswith((*LISTS, *MATRICES, *TABLES))


def inputs_of(paths: Sequence[Path], options: Options) -> list[Input]:
    """The files, opened: of each the beginning was read."""
    if not paths:
        raise UserError("no file to convert. Name at least one.")
    return list(_opened(paths, options))


def _opened(paths: Sequence[Path], options: Options) -> Iterator[Input]:
    for path in paths:
        name = path.name.lower()
        matrix = name.endswith(MATRICES) or (name.endswith(".npz") and holds_rows(path))
        if options.arc_columns is not None and matrix:
            raise UserError(
                f"--arc-columns names the columns of an edge list, {path.name} is none. Leave it out."
            )
        if options.skip_bad and not name.endswith((*LISTS, *MATRICES)):
            raise UserError(f"--skip-bad is about lines, {path.name} has none. Leave it out.")
        if options.text_ids and not name.endswith((*LISTS, *TABLES)):
            raise UserError(
                f"--text-ids is for edge lists and parquet, {path.name} is neither. Leave it out."
            )
        if options.header and not name.endswith(LISTS):
            raise UserError(f"--header is for edge lists, {path.name} names its columns. Leave it out.")
        if options.text_ids and name.endswith(LISTS):
            yield NamedText(path, options.arc_columns, options.skip_bad, options.header)
        elif name.endswith(LISTS):
            yield Text(path, options.arc_columns, options.skip_bad)
        elif name.endswith(MATRICES):
            yield Matrix(path, None, options.skip_bad)
        elif name.endswith(TABLES):
            yield Parquet(path, options.arc_columns, options.text_ids)
        elif name.endswith(".npz") and holds_rows(path):
            yield Compressed(path)
        elif name.endswith(".npz"):
            yield Coordinates(path, options.arc_columns)
        else:
            known = ", ".join((*LISTS, *MATRICES, *TABLES, ".npz"))
            raise UserError(f"{path} cannot be converted piece by piece. Use {known}.")
