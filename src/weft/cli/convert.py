"""weft convert: any graph file, with its features, labels and splits, into a store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..errors import UserError
from .options import Parser

_EXAMPLES = """  weft convert data.mtx g.weft
  weft convert soc.txt.gz soc.weft --undirected
  weft convert edges.csv g.weft --features x.npy --labels y.npy --split 0.6,0.2
  weft convert cora cora.weft"""


def run(arguments: Sequence[str]) -> int:
    parser = Parser("convert", "Turn a graph into a memory-mapped store that ranks read piece by piece.", _EXAMPLES)
    parser.add_argument("graph", metavar="GRAPH", help="a file, data set or generator")
    parser.add_argument("out", metavar="FILE.weft", help="where to write; must not exist")
    parser.add_argument("--data", default=None, metavar="DIR", help="folder with data sets; by default $WEFT_DATA")
    parser.add_argument("--undirected", action="store_true", help="add the reverse of every arc")
    parser.add_argument("--features", metavar="X.npy", help="[n, f] numbers, a row per vertex")
    parser.add_argument("--labels", metavar="Y.npy", help="[n] classes, -1 for none; or [n, c] of 0 and 1")
    parser.add_argument("--split", metavar="TRAIN,VAL", help="random split: shares such as 0.6,0.2 or counts 20,500")
    parser.add_argument("--seed", default="0", help="seed of the split (0)")
    parsed = parser.parse(arguments)
    from ..graph import load, split, write_store

    if not parsed.out.endswith(".weft"):
        raise UserError(f"a store's name ends in .weft, {parsed.out!r} does not. Use {parsed.out}.weft.")
    if Path(parsed.out).exists():
        raise UserError(f"{parsed.out} exists already. Choose another name, or remove it.")
    graph = load(parsed.graph, parsed.data)
    if parsed.undirected:
        graph = graph.symmetrised()
    if parsed.features:
        graph = graph.replace(features=_array(parsed.features))
    if parsed.labels:
        labels = _array(parsed.labels)
        graph = graph.replace(labels=labels.bool() if labels.dim() == 2 else labels.long(), num_classes=0)
    if parsed.split:
        shares = [_number(part) for part in parsed.split.split(",")]
        if len(shares) != 2:
            raise UserError(f"--split takes two numbers, {parsed.split!r} was given. Write --split 0.6,0.2.")
        graph = split(graph, *shares, seed=int(_number(parsed.seed)))
    write_store(graph, parsed.out)
    print(f"{parsed.out}: {graph.num_nodes:,} vertices, {graph.num_arcs:,} arcs, {graph.num_features:,} features")
    return 0


def _number(text: str) -> float:
    try:
        return int(text) if text.strip().isdigit() else float(text)
    except ValueError:
        raise UserError(f"{text!r} is not a number.") from None


def _array(path: str) -> object:
    import numpy as np
    import torch

    try:
        array = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise UserError(f"no file {path}. Check the path.") from None
    except (ValueError, OSError, EOFError) as error:
        raise UserError(f"cannot read {path} as a .npy array: {error}.") from None
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
        raise UserError(f"{path} does not hold numbers. Save a plain array with numpy.save.")
    return torch.from_numpy(np.ascontiguousarray(array))
