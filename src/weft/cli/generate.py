"""weft generate: a synthetic graph into a store."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ..errors import UserError
from .options import Parser

_EXAMPLES = """  weft generate kronecker --scale 18 --degree 16 --out g.weft
  weft generate sbm --nodes 20000 --classes 8 --out sbm.weft
  weft generate er --nodes 1000 --degree 8 --directed true --out er.weft"""


def run(arguments: Sequence[str]) -> int:
    from ..graph import generate, write_store
    from ..graph.load import GENERATORS, parse_arguments

    parser = Parser(
        "generate", f"Generate a graph ({', '.join(GENERATORS)}) and store it; --NAME VALUE sets its arguments.", _EXAMPLES
    )
    parser.add_argument("kind", metavar="KIND", help="the generator")
    parser.add_argument("--out", required=True, metavar="FILE.weft", help="where to write; must not exist")
    parsed, rest = parser.parse_known_args(arguments)
    _store_name(parsed)
    words = _pairs(rest)
    graph = generate(parsed.kind, parse_arguments(parsed.kind, ",".join(words)))
    write_store(graph, parsed.out)
    print(f"{parsed.out}: {graph.num_nodes:,} vertices, {graph.num_arcs:,} arcs")
    return 0


def _store_name(parsed: argparse.Namespace) -> None:
    if not parsed.out.endswith(".weft"):
        raise UserError(f"a store's name ends in .weft, {parsed.out!r} does not. Use --out {parsed.out}.weft.")


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
            raise UserError(f"weft generate does not know what to do with {word!r}. Arguments are --NAME VALUE.")
        elif "=" in word:
            pairs.append(word[2:])
        else:
            waiting = word[2:]
    if waiting:
        raise UserError(f"--{waiting} lacks a value. Write --{waiting} VALUE.")
    return [p.replace("-", "_", p.partition("=")[0].count("-")) for p in pairs]
