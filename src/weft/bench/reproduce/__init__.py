"""Every figure and table of the five papers: what can be run is run, what cannot says why."""

from __future__ import annotations

from ...errors import unknown
from .besta import BESTA
from .cagnet import CAGNET
from .demirci import DEMIRCI
from .item import Item, Outcome, Paper
from .mggcn import MGGCN
from .p3 import P3

PAPERS = {paper.name: paper for paper in (CAGNET, DEMIRCI, BESTA, P3, MGGCN)}


def find_paper(name: str) -> Paper:
    """The paper of that name.

    >>> find_paper("cagnet").find("Figure 1").name
    'fig1'
    """
    if name.lower() not in PAPERS:
        raise unknown("paper", name, PAPERS)
    return PAPERS[name.lower()]


__all__ = ["PAPERS", "Item", "Outcome", "Paper", "find_paper"]
