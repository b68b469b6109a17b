"""weft convert: any graph file, with its features, labels and splits, into a store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import UserError
from .info import carried
from .options import Parser, add_arc_columns, arc_columns, whole_number
from .outputs import new_store

if TYPE_CHECKING:
    from torch import Tensor

_EXAMPLES = """  weft convert data.mtx g.weft
  weft convert soc.txt.gz soc.weft --undirected
  weft convert ratings.csv g.weft --arc-columns weight,time,_
  weft convert edges.csv g.weft --features x.npy --labels y.npy --split 0.6,0.2
  weft convert cora cora.weft"""


def run(arguments: Sequence[str]) -> int:
    parser = Parser(
        "convert", "GRAPH FILE.weft [OPTIONS]",
        "Turn a graph into a memory-mapped store that ranks read piece by piece.", _EXAMPLES,
    )  # fmt: skip
    parser.add_argument("graph", metavar="GRAPH", help="a file, data set or generator")
    parser.add_argument("out", metavar="FILE.weft", help="where to write; must not exist")
    parser.add_argument("--data", metavar="DIR", help="folder with data sets; by default $WEFT_DATA")
    add_arc_columns(parser)
    parser.add_argument("--undirected", action="store_true", help="add the reverse of every arc")
    parser.add_argument("--features", metavar="X.npy", help="[n, f] numbers, a row per vertex")
    parser.add_argument("--labels", metavar="Y.npy", help="[n] classes, -1 for none; or [n, c] of 0 and 1")
    parser.add_argument(
        "--split", metavar="TRAIN,VAL",
        help="random split: shares such as 0.6,0.2, or 20,500: 20 to train on per class, 500 to validate on",
    )  # fmt: skip
    parser.add_argument("--seed", default="0", metavar="N", help="seed of the split (0)")
    parsed = parser.parse(arguments)
    from ..graph import load, split, write_store
    from ..graph.guard import about

    new_store(parsed.out)
    shares = None if parsed.split is None else _shares(parsed.split)
    seed = whole_number(parsed.seed, "--seed", least=0)
    graph = load(parsed.graph, parsed.data, arc_columns(parsed.arc_columns))
    if parsed.undirected:
        graph = graph.symmetrised()
    for name, path in (("features", parsed.features), ("labels", parsed.labels)):
        if path is not None:
            with about(path):
                graph = graph.replace(**{name: _array(path)})
    if shares is not None:
        graph = split(graph, *shares, seed)
    write_store(graph, parsed.out)
    print(
        f"{parsed.out}: {graph.num_nodes:,} vertices, {graph.num_arcs:,} arcs, "
        f"{graph.num_features:,} features, {graph.num_classes:,} classes{carried(graph)}"
    )
    return 0


def _shares(text: str) -> tuple[float, float]:
    """`0.6,0.2` or `20,500` as numbers: whole ones are counts.

    >>> _shares("20,0.2")
    (20, 0.2)
    """
    try:
        train, val = (int(part) if part.strip().isdigit() else float(part) for part in text.split(","))
    except ValueError:
        raise UserError(f"--split takes two numbers, not {text!r}. Write --split 0.6,0.2.") from None
    return train, val


def _array(path: str) -> Tensor:
    import numpy as np
    import torch

    from ..graph.readers.files import map_array

    array = map_array(path)
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise UserError(f"{path} does not hold plain numbers. Save one array with numpy.save.")
    plain = np.int64 if array.dtype.kind == "u" else array.dtype.newbyteorder("=")
    return torch.from_numpy(np.array(array, dtype=plain, order="C"))
