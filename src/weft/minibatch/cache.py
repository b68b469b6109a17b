"""Copies of parts of the arcs and of the features on more ranks, as far as a memory budget goes.

Without copies every rank holds one part of P. A rank with c parts of the arcs holds its own and the c − 1
that follow, and samples those without asking; with all P it samples alone. With c copies of the features,
pull finds c parts of the rows at home; push-pull cuts the columns among g = P/c ranks, and blocks travel only
among these.

Greedy, as in P³: arcs first, because every hop reads them, then features.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import UserError
from ..parallel import Owners
from ..units import spell_bytes
from .topology import RowsOf

_UNITS = {"": 1, "B": 1, "K": 1e3, "KB": 1e3, "M": 1e6, "MB": 1e6, "G": 1e9, "GB": 1e9, "T": 1e12, "TB": 1e12,
          "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}  # fmt: skip


def parse_bytes(text: str, flag: str = "--memory-budget") -> int:
    """A size as people write it.

    >>> parse_bytes("2GB"), parse_bytes("1.5 MiB"), parse_bytes("4096")
    (2000000000, 1572864, 4096)
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?)\s*([A-Za-z]*)", text.strip())
    size = float(found[1]) * _UNITS.get(found[2].upper(), 0) if found else 0.0
    if not 0 < size < 2**63:
        what = flag.removeprefix("--").replace("-", " ")
        raise UserError(f"{what} {text[:40]!r} is not a size. Write {flag} 2GB, or 500MB.")
    return int(size)


@dataclass(frozen=True)
class Copies:
    """How many of the P parts every rank holds, of arcs and of features."""

    arcs: int
    features: int
    arcs_bytes: int
    """Of the largest rank."""
    features_bytes: int
    """Of the largest rank."""

    def as_dict(self) -> dict[str, int]:
        return dict(vars(self))


def plan_copies(
    budget: int | None, ranks: int, arcs_part: int, features_part: int, whole_groups: bool, spare: int = 0,
    fixed: bool = True,
) -> Copies:  # fmt: skip
    """How many parts a rank can hold within `budget` bytes; None: all arcs where they fit in `spare`.

        arcs_part, features_part   bytes of the largest part
        whole_groups               push-pull: copies of the features must divide the ranks
        fixed                      whether features never change; else nobody holds copies of them

    >>> plan_copies(100, ranks=4, arcs_part=10, features_part=20, whole_groups=True)
    Copies(arcs=4, features=2, arcs_bytes=40, features_bytes=40)
    >>> plan_copies(50, ranks=4, arcs_part=10, features_part=20, whole_groups=True)
    Copies(arcs=3, features=1, arcs_bytes=30, features_bytes=20)
    """
    if budget is None:
        arcs = ranks if ranks * arcs_part <= spare else 1
        return Copies(arcs, 1, arcs * arcs_part, features_part)
    fitting = [parts for parts in range(1, ranks + 1) if parts * arcs_part + features_part <= budget]
    if not fitting:
        raise UserError(
            f"a memory budget of {spell_bytes(budget)} is too small for one copy: a rank needs "
            f"{spell_bytes(arcs_part)} for arcs and {spell_bytes(features_part)} for features on {ranks}. "
            f"Use --memory-budget {arcs_part + features_part}, or more ranks."
        )
    arcs = fitting[-1]
    features = min(ranks, (budget - arcs * arcs_part) // max(features_part, 1)) if fixed else 1
    if whole_groups:
        features = max(c for c in range(1, features + 1) if ranks % c == 0)
    return Copies(arcs, features, arcs * arcs_part, features * features_part)


def held_parts(rank: int, ranks: int, copies: int) -> list[int]:
    """The parts that a rank holds: its own, then those that follow.

    >>> held_parts(2, 4, 3)
    [2, 3, 0]
    """
    return [(rank + k) % ranks for k in range(copies)]


class AtHand:
    """Owners as a rank sees them that holds copies: what it has is its own.

    >>> from weft.parallel import Cyclic
    >>> row_of = RowsOf(Cyclic(6, 3), [0, 1], [2, 2, 2])
    >>> owner, place = AtHand(Cyclic(6, 3), 0, row_of).find(torch.tensor([4, 5]))
    >>> owner.tolist(), place.tolist()
    ([0, 2], [3, 1])
    """

    def __init__(self, owners: Owners, rank: int, row_of: RowsOf):
        self.owners, self.rank, self.row_of = owners, rank, row_of

    def find(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        owner, place = self.owners.find(ids)
        here = self.row_of.at(owner, place)
        at_hand = here >= 0
        return torch.where(at_hand, self.rank, owner), torch.where(at_hand, here, place)

    def own(self, rank: int) -> Tensor:
        return self.owners.own(rank)
