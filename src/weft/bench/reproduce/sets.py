"""The papers' data sets: for a run at the paper's size they must be here, and be the same graphs."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ...errors import UserError
from ...graph import load, open_store
from ...graph.known import KNOWN
from ...graph.loading import GENERATORS, data_sets, locate
from .item import Item, Paper, Parameters

NEAR = 0.05
"""How far sizes may differ: papers round theirs, and count a vertex without arcs or do not."""
Size = tuple[int, int]
"""(vertices, arcs)"""


def stand_ins(paper: Paper, item: Item, parameters: Parameters) -> list[str]:
    """The graphs of a run with --full that are none of the paper's: generated, or somebody's own.

    A data set that is not here, or has another size than the paper's of that name, is refused.
    """
    names: list[str] = []
    for key in item.data:
        value = parameters[key]
        names += value if isinstance(value, list) else [value]
    others, missing = [], []
    here = data_sets(os.environ["WEFT_DATA"]) if os.environ.get("WEFT_DATA") else {}
    for name in names:
        like = re.search(r"[:,]like=([^,]+)", name)
        wanted = like[1] if like else name
        if not like and name.partition(":")[0].lower() in GENERATORS:
            others.append(name)
        elif wanted.lower() not in here and not Path(wanted).exists():
            missing.append(wanted)
        else:
            said = paper.sets.get(wanted.lower())
            if said is None:
                others.append(wanted)
            else:
                _check_size(paper, wanted, said)
    if missing:
        raise UserError(
            f"{paper.name} {item.name} at the paper's size reads {_and(missing)}, not under $WEFT_DATA: "
            f"{'; '.join(_how(paper, name) for name in missing)}. Or leave out --full."
        )
    return others


def _check_size(paper: Paper, name: str, said: Size) -> None:
    found = size_of(name)
    if not _near(found, said):
        raise UserError(
            f"{name} here has {found[0]:,} vertices and {found[1]:,} arcs, {paper.name}'s has {said[0]:,} "
            f"and {said[1]:,}: another graph of that name; {_how(paper, name)}. Or leave out --full."
        )


def size_of(name: str) -> Size:
    """Vertices and arcs as weft loads it; of a store its header says so.

    >>> size_of("karate")
    (34, 156)
    """
    found = locate(name)
    if found is not None and found[0].suffix == ".weft":
        store = open_store(found[0], verify=False)
        return store.num_nodes, store.num_arcs
    graph = load(name)
    return graph.num_nodes, graph.num_arcs


def _near(found: Size, said: Size) -> bool:
    """
    >>> _near((1_965_206, 5_533_214), (1_971_281, 5_533_214)), _near((10, 100), (10, 106))
    (True, False)
    """
    return all(abs(ours - theirs) <= NEAR * theirs for ours, theirs in zip(found, said, strict=True))


def _how(paper: Paper, name: str) -> str:
    """Where one gets the paper's graph of that name: a set of the same size among those that weft knows."""
    said = paper.sets.get(name.lower())
    alike = [e for e in KNOWN.values() if said is not None and _near((e.vertices, e.arcs), said)]
    if not alike:
        return f"weft knows no public address of {paper.name}'s {name}"
    entry = next((each for each in alike if each.name == name.lower()), alike[0])
    return f"weft fetch {entry.name}" if entry.files else f"{entry.page} has {entry.name}"


def _and(names: list[str]) -> str:
    """
    >>> _and(["a"]), _and(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
