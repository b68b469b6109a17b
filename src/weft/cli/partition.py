"""weft partition: cut a graph into parts, and say what they will cost."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UserError
from ..signals import tidying
from ..tables import columns
from .options import Parser, number, whole_number

if TYPE_CHECKING:
    from torch import Tensor

    from ..graph import Graph, Store
    from ..partition import Metrics, PartitionOptions

_EXAMPLES = """  weft partition soc.txt.gz --parts 64 --out parts.npy
  weft partition cora --parts 8 --method random,metis,hypergraph
  weft partition g.weft --parts 16 --method hypergraph --epsilon 0.01 --preset quality
  weft partition g.weft --parts 16 --plot volume.png
  weft partition g.weft --grid 4x2x1 --out parts.npy      parts arranged for a grid
  weft partition g.weft --parts 16 --out g.parts.weft     a store in which a rank reads one range
  weft partition big.weft --parts 64 --method stream --out big.parts.weft     of any size
  weft train g.weft --ranks 64 --strategy halo --partition parts.npy"""


def run(arguments: Sequence[str]) -> int:
    parser = Parser(
        "partition", "GRAPH --parts P [OPTIONS]",
        "Cut a graph into parts of equal work, and count the rows that will cross between them. Volumes are "
        "rows that a part sends in one propagation; words are these times the width.", _EXAMPLES,
    )  # fmt: skip
    parser.add_argument("graph", metavar="GRAPH", help="a generator, data set, file or store")
    parser.add_argument("--data", metavar="DIR", help="folder with data sets; by default $WEFT_DATA")
    parser.add_argument("--parts", metavar="N", help="how many parts: one a rank")
    parser.add_argument("--grid", default="", metavar="RxKxF", help="parts for a grid: row x inner x feature")
    parser.add_argument(
        "--method", default="auto", metavar="NAMES",
        help="one or several: block, random, hash, metis, hypergraph, stochastic, best, stream, auto (auto)",
    )  # fmt: skip
    parser.add_argument(
        "--epsilon", default="0.03", metavar="X", help="how far a part may be above the mean (0.03)"
    )
    parser.add_argument("--preset", default="auto", metavar="TEXT", help="of Mt-KaHyPar (auto)")
    parser.add_argument("--threads", default="0", metavar="N", help="for Mt-KaHyPar; 0: all cores (0)")
    parser.add_argument(
        "--theta", default="0.1", metavar="X", help="stochastic: error of the connectivity (0.1)"
    )
    parser.add_argument(
        "--delta", default="0.5", metavar="X", help="stochastic: chance of a larger one (0.5)"
    )
    parser.add_argument(
        "--batch-size", default="0", metavar="N", help="stochastic: vertices of a batch; 0: a sixteenth (0)"
    )
    parser.add_argument(
        "--fanouts",
        default="all",
        metavar="N,N",
        help="stochastic: neighbours that a batch reads, by hop (all)",
    )
    parser.add_argument(
        "--batches", default="0", metavar="N", help="stochastic: batches; 0: until all were in 12 (0)"
    )
    parser.add_argument(
        "--passes", default="4", metavar="N", help="stream: over all arcs, to cluster and to refine (4)"
    )
    parser.add_argument(
        "--buffer", default=str(1 << 20), metavar="N", help="stream: arcs looked at together (1048576)"
    )
    parser.add_argument(
        "--vertex-work", default="auto", metavar="N",
        help="stream: arcs that a vertex weighs beside its own; auto: by the memory of a rank (auto)",
    )  # fmt: skip
    parser.add_argument("--seed", default="0", metavar="N", help="(0)")
    parser.add_argument(
        "--out", default="", metavar="FILE",
        help=".npy: one part id a vertex; .weft: the graph, each part's rows together; must not exist",
    )  # fmt: skip
    parser.add_argument("--plot", default="", metavar="FILE", help="volume between parts: .png, .svg or .pdf")
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    parsed = parser.parse(arguments)
    shape = _shape(parsed.parts, parsed.grid)
    methods = [name.strip() for name in parsed.method.split(",")]
    if parsed.out:
        _check_out(parsed.out, methods)
    if parsed.plot:
        from ..bench.pictures import check_drawable

        check_drawable(parsed.plot)
    from ..graph import Store
    from ..minibatch.sampler import parse_fanouts
    from ..parallel.assign import bare
    from ..partition import PartitionOptions, check_method
    from ..partition.methods import check_read
    from ..partition.stream import vertex_work

    check_read(methods, [f.name for f in fields(PartitionOptions) if f.name in parser.given(arguments)])
    options = PartitionOptions(
        seed=whole_number(parsed.seed, "--seed", least=0), epsilon=number(parsed.epsilon, "--epsilon"),
        preset=parsed.preset, threads=whole_number(parsed.threads, "--threads", least=0),
        theta=number(parsed.theta, "--theta"), delta=number(parsed.delta, "--delta"),
        batch_size=whole_number(parsed.batch_size, "--batch-size", least=0),
        fanouts=parse_fanouts(parsed.fanouts), batches=whole_number(parsed.batches, "--batches", least=0),
        passes=whole_number(parsed.passes, "--passes"), buffer=whole_number(parsed.buffer, "--buffer"),
        say=lambda line: print(line, file=sys.stderr, flush=True),
    )  # fmt: skip
    if parsed.vertex_work != "auto":
        options.vertex_work = whole_number(parsed.vertex_work, "--vertex-work", least=0)
    count = shape[0] * shape[1] * shape[2]
    whole = _opened(parsed.graph, parsed.data, methods)
    if parsed.out:
        _check_room(parsed.out, whole)
    if parsed.vertex_work == "auto":
        options.vertex_work = vertex_work(whole.num_features)
    graph = whole if isinstance(whole, Store) else bare(whole)
    for method in methods:
        check_method(method, count, graph.num_nodes, options)
    rows, made = [], []
    for method in methods:
        answer, parts = _one(graph, shape, method, options)
        rows.append(answer)
        made.append(parts)
    if parsed.out:
        with tidying():
            _save(parsed.out, made[0], whole, count)
    if parsed.plot:
        from ..bench.pictures import draw_volumes

        draw_volumes(
            {m: _measured(graph, p, count).between for m, p in zip(methods, made, strict=True)}, parsed.plot
        )
    head = {"graph": parsed.graph, "vertices": graph.num_nodes, "arcs": graph.num_arcs, "parts": count}
    if parsed.json:
        print(json.dumps(head | (rows[0] if len(rows) == 1 else {"methods": rows})))
        return 0
    _table(head, rows)
    if parsed.out:
        use = f"weft train --ranks {count} --partition {parsed.out}"
        if parsed.out.endswith(".weft"):
            use = f"weft train {parsed.out} --ranks {count} --partition block"
        print(f"{parsed.out}: use it with {use}")
    return 0


def _opened(graph: str, data: str | None, methods: list[str]) -> Graph | Store:
    """The graph; of a store that is cut row by row nothing but the header is read yet."""
    from ..graph import load, open_store
    from ..partition.methods import BY_ROWS

    if graph.endswith(".weft") and Path(graph).is_file() and set(methods) <= BY_ROWS:
        store = open_store(graph, verify=False)
        if not store.checks_itself:
            store.verify()
        return store
    return load(graph, data)


def _measured(graph: Graph | Store, parts: Tensor, count: int) -> Metrics:
    from ..graph import Store
    from ..partition import measure, measure_rows

    return measure_rows(graph, parts, count) if isinstance(graph, Store) else measure(graph, parts, count)


def _one(
    graph: Graph | Store, shape: tuple[int, int, int], method: str, options: PartitionOptions
) -> tuple[dict[str, Any], Tensor]:
    """One method's figures and its parts."""
    from ..graph import Store
    from ..partition import partition_for_grid
    from ..partition.grids import block_imbalance, line_volumes, measure_lines

    started = time.perf_counter()
    parts = partition_for_grid(graph, shape, method, options)
    seconds = time.perf_counter() - started
    answer = {"method": method, **_measured(graph, parts, shape[0] * shape[1] * shape[2]).as_dict()}
    if shape[1:] != (1, 1):
        lines, sides = parts // shape[2], shape[:2]
        if isinstance(graph, Store):
            gather, reduce, imbalance = measure_lines(graph, lines, sides)
        else:
            gather, reduce = line_volumes(graph, lines, sides)
            imbalance = block_imbalance(graph, lines, sides)
        answer |= {
            "grid": "x".join(map(str, shape)), "volume_gather": gather, "volume_reduce": reduce,
            "imbalance": imbalance,
        }  # fmt: skip
    return answer | {"seconds": seconds}, parts


def _shape(parts: str | None, grid: str) -> tuple[int, int, int]:
    """(row, inner, feature) of `--parts` or `--grid`.

    >>> _shape("8", ""), _shape(None, "4x2x1")
    ((8, 1, 1), (4, 2, 1))
    """
    if (parts is None) == (not grid):
        raise UserError("give one of --parts and --grid: --parts 16, or --grid 4x4x1.")
    if parts is not None:
        return whole_number(parts, "--parts"), 1, 1
    from ..parallel.grid import parse

    sides = parse(grid)
    if len(sides) != 3:
        raise UserError(f"--grid {grid} must be row x inner x feature. Write --grid 4x2x1.")
    return sides[0], sides[1], sides[2]


def _check_out(path: str, methods: list[str]) -> None:
    if not path.endswith((".npy", ".weft")):
        raise UserError(f"--out {path} must end in .npy or .weft. Use {path}.npy.")
    if len(methods) > 1:
        raise UserError(f"--out takes one method, {len(methods)} were given. Use --method {methods[-1]}.")
    if Path(path).exists():
        raise UserError(f"{path} exists already. Choose another name, or remove it.")
    if not Path(path).parent.is_dir():
        raise UserError(f"no folder {Path(path).parent} to write {Path(path).name} into. Make it first.")


def _check_room(path: str, graph: Graph | Store) -> None:
    """Refuse an output that the disk has no room for: a cut takes minutes, and would be lost."""
    from ..graph import Store
    from ..graph.stream.plan import check_disk

    needed, why = 4 * graph.num_nodes, f"the parts of {graph.num_nodes:,} vertices"
    if path.endswith(".weft"):  # a graph as large as this one, whose vertices keep their names
        named = graph.has("ids") if isinstance(graph, Store) else graph.ids is not None
        needed = _bytes(graph) + (0 if named else 8 * graph.num_nodes)
        why = "the graph, each part's rows together"
    check_disk(needed, Path(path).parent, why, "--out")


def _bytes(graph: Graph | Store) -> int:
    """What a store of the graph takes, but for its header."""
    from ..graph import Store

    if isinstance(graph, Store):
        return graph.num_bytes
    arrays = [getattr(graph, f.name) for f in fields(graph)]
    named = [x for array in arrays if isinstance(array, dict) for x in array.values()]
    return sum(x.nbytes for x in (*arrays, *named) if hasattr(x, "nbytes"))


def _save(path: str, parts: Tensor, graph: Graph | Store, count: int) -> None:
    """A part id a vertex, or the graph itself with the vertices of each part beside each other."""
    import numpy as np
    import torch

    if path.endswith(".weft"):
        from ..graph import Store, write_store
        from ..graph.renumber import renumber_store, renumbered

        order = torch.argsort(parts, stable=True)
        sizes = torch.bincount(parts, minlength=count).tolist()
        if isinstance(graph, Store):
            renumber_store(graph, order, path, sizes)
        else:
            write_store(renumbered(graph, order), path, parts=sizes)
        return
    try:
        with open(path, "xb") as file:
            np.save(file, parts.numpy().astype(np.int32), allow_pickle=False)
    except FileExistsError:
        raise UserError(f"{path} exists already. Choose another name, or remove it.") from None
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}. Check the folder.") from None


def _table(head: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    print(f"{head['graph']}: {head['vertices']:,} vertices, {head['arcs']:,} arcs, {head['parts']} parts")
    figures = {
        "volume": "volume_total", "average": "volume_average", "max": "volume_max",
        "messages": "messages_total", "most": "messages_max",
    }  # fmt: skip
    if "grid" in rows[0]:  # what P × 1 × 1 would move is beside the point
        figures = {"gather": "volume_gather", "reduce": "volume_reduce"}
    print(
        columns(
            ["method", *figures, "imbalance", "edge cut", "seconds"],
            [
                [r["method"], *(f"{r[key]:,.0f}" for key in figures.values()), f"{r['imbalance']:.3f}",
                 f"{r['edge_cut']:,}", f"{r['seconds']:.1f}"]
                for r in rows
            ],
        )
    )  # fmt: skip
