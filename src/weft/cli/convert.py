"""weft convert: graph files of any size, with features, labels and splits, into a store."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import UserError
from ..signals import tidying
from .info import carried
from .options import Parser, add_arc_columns, arc_columns, whole_number
from .outputs import new_store

if TYPE_CHECKING:
    from torch import Tensor

    from ..graph.stream import Done, Options

_EXAMPLES = """  weft convert data.mtx g.weft
  weft convert soc.txt.gz soc.weft --undirected
  weft convert part-0.txt part-1.txt part-2.txt g.weft --memory 4GB
  weft convert ratings.csv g.weft --arc-columns weight,time,_
  weft convert trips.csv g.weft --arc-columns features,features,_,type
  weft convert follows.tsv g.weft --text-ids
  weft convert edges.csv g.weft --features x.npy --labels y.npy --split 0.6,0.2
  weft convert cora cora.weft
  mpirun -n 8 weft convert part-*.txt g.weft --memory 4GB"""
_STREAM_ONLY = ("memory", "scratch", "skip_bad", "text_ids", "header")


def run(arguments: Sequence[str]) -> int:
    parser = Parser(
        "convert", "GRAPH [GRAPH ...] FILE.weft [OPTIONS]",
        "Turn a graph into a memory-mapped store that ranks read piece by piece. Edge lists and matrices "
        "may be many times larger than memory; interrupted, the same command goes on. Under mpirun the ranks "
        "share the work.", _EXAMPLES,
    )  # fmt: skip
    parser.add_argument("graph", metavar="GRAPH", help="a file, data set or generator")
    parser.add_argument("more", nargs="*", metavar="GRAPH", help="further files of the same graph")
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
    group = parser.add_argument_group("large files")
    group.add_argument(
        "--memory", metavar="SIZE", help="what a process may use, as 4GB (half of what is free)"
    )
    group.add_argument(
        "--scratch", metavar="DIR", help="folder for sorted arcs, seen by all ranks (that of FILE.weft)"
    )
    group.add_argument(
        "--skip-bad", action="store_true", help="leave out lines that are no arcs, and count them"
    )
    group.add_argument("--text-ids", action="store_true", help="ids are names; vertex data 'name' keeps them")
    group.add_argument(
        "--header", action="store_true", help="with --text-ids: the first line names the columns"
    )
    parsed = parser.parse(arguments)
    from ..graph.loading import locate
    from ..graph.stream import streams

    new_store(parsed.out)
    shares = None if parsed.split is None else _shares(parsed.split)
    seed = whole_number(parsed.seed, "--seed", least=0)
    found = [locate(graph, parsed.data) for graph in (parsed.graph, *parsed.more)]
    if parsed.more or (found[0] is not None and streams(found[0][0]) and not found[0][0].is_dir()):
        for graph, place in zip((parsed.graph, *parsed.more), found, strict=True):
            if place is None or not streams(place[0]):
                raise UserError(f"{graph} cannot be converted together with others. Convert it alone.")
        paths = [str(place[0]) for place in found if place is not None]
        name = found[0][1] if found[0] is not None else None
        done = _stream(paths, parsed.out, _options(parsed, shares, seed, name))
        if done is not None:
            print(_told(parsed.out, done))
        return 0
    for option in _STREAM_ONLY:
        if getattr(parsed, option):
            flag = "--" + option.replace("_", "-")
            raise UserError(f"{flag} is for files that are read piece by piece, not for {parsed.graph}.")
    return _whole(parsed, shares, seed)


def _whole(parsed: argparse.Namespace, shares: tuple[float, float] | None, seed: int) -> int:
    """What has features and labels of its own, or is made here: a graph in memory."""
    from ..comm import in_job
    from ..graph import load, split, write_store
    from ..graph.guard import about

    if in_job():
        raise UserError(f"{parsed.graph} is converted as a whole, by one process. Leave out mpirun.")

    graph = load(parsed.graph, parsed.data, arc_columns(parsed.arc_columns))
    if parsed.undirected:
        graph = graph.symmetrised()
    for name, path in (("features", parsed.features), ("labels", parsed.labels)):
        if path is not None:
            with about(path):
                graph = graph.replace(**{name: _array(path)})
    if shares is not None:
        graph = split(graph, *shares, seed)
    with tidying():
        write_store(graph, parsed.out)
    print(
        f"{parsed.out}: {graph.num_nodes:,} vertices, {graph.num_arcs:,} arcs, "
        f"{graph.num_features:,} features, {graph.num_classes:,} classes{carried(graph)}"
    )
    return 0


def _options(
    parsed: argparse.Namespace, shares: tuple[float, float] | None, seed: int, name: str | None
) -> Options:
    from ..graph.stream import Options, parse_size

    if parsed.header and not parsed.text_ids:
        raise UserError("--header is for --text-ids: where ids are numbers, a header is known by its words.")
    return Options(
        memory=None if parsed.memory is None else parse_size(parsed.memory), name=name,
        undirected=True if parsed.undirected else None, arc_columns=arc_columns(parsed.arc_columns),
        skip_bad=parsed.skip_bad, text_ids=parsed.text_ids, header=parsed.header, features=parsed.features,
        labels=parsed.labels, split=shares, seed=seed, scratch=parsed.scratch,
    )  # fmt: skip


def _stream(paths: Sequence[str], out: str, options: Options) -> Done | None:
    from ..graph.stream import convert
    from .joined import together

    return together(options, lambda own, tick, team: convert(paths, out, own, tick, team))


def _told(out: str, done: Done) -> str:
    wide = {name: f"x{width}" for name, width in done.arc_widths.items()}
    data = ", ".join(
        f"{name} {kind} {done.num_arcs}{wide.get(name, '')}" for name, kind in done.arc_data.items()
    )
    skipped = f"; {done.skipped:,} lines left out, the first: {done.first_skipped}" if done.skipped else ""
    return (
        f"{out}: {done.num_nodes:,} vertices, {done.num_arcs:,} arcs, {done.num_features:,} features, "
        f"{done.num_classes:,} classes{', arc data ' + data if data else ''}{skipped}"
    )


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
    import torch

    from ..graph.stream.mapped import Mapped

    return torch.from_numpy(Mapped(path).whole())
