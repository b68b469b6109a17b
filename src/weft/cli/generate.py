"""weft generate: a synthetic graph into a store."""

from __future__ import annotations

import inspect
import os
import textwrap
from collections.abc import Sequence

from ..errors import UserError, unknown
from ..signals import tidying
from .info import carried
from .options import Parser
from .outputs import new_store

_EXAMPLES = """  weft generate kronecker --scale 18 --degree 16 --out g.weft
  weft generate sbm --nodes 20000 --classes 8 --out sbm.weft
  weft generate er --nodes 1000 --degree 8 --directed true --out er.weft
  weft generate bter --like cora --times 8 --out cora8.weft
  weft generate kronecker --scale 26 --degree 24 --stream --memory 4GB --out big.weft
  weft generate kronecker --scale 23 --degree 24 --directed true --stream --out big.txt"""


def run(arguments: Sequence[str]) -> int:
    from ..graph import generate, write_store
    from ..graph.loading import GENERATORS, parse_arguments

    parser = Parser(
        "generate", "KIND --out FILE.weft [--NAME VALUE ...]",
        "Generate a graph and store it. --NAME VALUE sets an argument of the generator:\n\n" + _signatures(),
        _EXAMPLES,
    )  # fmt: skip
    parser.add_argument("kind", metavar="KIND", help=f"the generator: {', '.join(GENERATORS)}")
    parser.add_argument("--out", required=True, metavar="FILE.weft", help="where to write; must not exist")
    parser.add_argument(
        "--stream", action="store_true",
        help="er, kronecker, bter piece by piece, of any size, into a store or an edge list (.txt, …)",
    )  # fmt: skip
    parser.add_argument("--memory", metavar="SIZE", help="with --stream: what to use at most, as 4GB")
    parsed, rest = parser.parse_known_args(arguments)
    kind, _, given = parsed.kind.partition(":")  # er:nodes=50, as commands that read a graph take it
    pairs = [*filter(None, given.split(",")), *_pairs(rest)]
    if parsed.stream:
        return _stream(kind, parsed.out, parsed.memory, pairs)
    if parsed.memory:
        raise UserError("--memory is for --stream. Leave it out, or add --stream.")
    new_store(parsed.out)
    graph = generate(kind, parse_arguments(kind, ",".join(pairs)))
    with tidying():
        write_store(graph, parsed.out)
    print(f"{parsed.out}: {graph.num_nodes:,} vertices, {graph.num_arcs:,} arcs{carried(graph)}")
    return 0


def _stream(kind: str, out: str, memory: str | None, pairs: Sequence[str]) -> int:
    """Arcs drawn and written piece by piece."""
    from ..comm import in_job
    from ..graph.loading import parse_arguments
    from ..graph.stream import KINDS, Drawn, Options, convert_inputs, parse_size, write_arcs
    from .joined import together
    from .progress import progress

    if kind not in KINDS:
        raise unknown("generator that streams", kind, KINDS)
    drawn = Drawn(kind, parse_arguments(kind, ",".join(pairs)))
    if out.endswith((".txt", ".tsv", ".csv")):
        if memory:
            raise UserError(f"{out} is written as arcs are drawn, which needs no --memory. Leave it out.")
        if in_job():
            raise UserError(f"{out} is written from front to back, by one process. Leave out mpirun.")
        with tidying(), progress() as tick:
            count = write_arcs(drawn, out, len(os.sched_getaffinity(0)), tick)
        print(f"{out}: {drawn.num_nodes:,} vertices, {count:,} lines")
        return 0
    new_store(out)
    options = Options(memory=parse_size(memory) if memory else None)
    done = together(options, lambda own, tick, team: convert_inputs([drawn], out, own, tick, team))
    if done is not None:
        print(f"{out}: {done.num_nodes:,} vertices, {done.num_arcs:,} arcs")
    return 0


def _signatures() -> str:
    """Each generator with its arguments and their defaults, as the help shows them."""
    from ..graph.loading import ARC_OPTIONS, GENERATORS

    lines = []
    for name, function in GENERATORS.items():
        known = inspect.signature(function).parameters.values()
        shown = " ".join(
            f"--{p.name.replace('_', '-')} {'N' if p.default is None else str(p.default).lower() or 'GRAPH'}"
            for p in known
            if p.name != "degrees"
        )
        lines += textwrap.wrap(
            f"{name:<10} {shown}".rstrip(), 96, initial_indent="  ", subsequent_indent=" " * 13,
            break_on_hyphens=False,
        )  # fmt: skip
    for_all = " ".join(f"--{key.replace('_', '-')} {default}" for key, default in ARC_OPTIONS.items())
    return "\n".join([*lines, f"  {'every one':<10} {for_all}"])


def _pairs(words: Sequence[str]) -> list[str]:
    """`--nodes 10 --degree=3` as `nodes=10`, `degree=3`.

    >>> _pairs(["--nodes", "10", "--degree=3"])
    ['nodes=10', 'degree=3']
    """
    pairs, waiting = [], ""
    for word in words:
        if waiting:
            pairs.append(f"{waiting}={word}")
            waiting = ""
        elif not word.startswith("--"):
            raise UserError(f"weft generate does not know what to do with {word!r}. Write --NAME VALUE.")
        elif "=" in word:
            pairs.append(word[2:])
        else:
            waiting = word[2:]
    if waiting:
        raise UserError(f"--{waiting} lacks a value. Write --{waiting} VALUE.")
    return [p.replace("-", "_", p.partition("=")[0].count("-")) for p in pairs]
