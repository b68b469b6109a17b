"""How well scores part true pairs from false ones: Hits@K, MRR and AUC, exact over ranks.

    pos  [p]  this rank's scores of true pairs        neg  [m]  this rank's scores of false pairs

Every false pair competes with every true one, whichever rank scored it. All are `nan` of nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..comm import Communicator
from ..comm.threads import single
from ..errors import UserError


@dataclass(frozen=True)
class Ranking:
    """The three metrics of one set of pairs."""

    hits: float
    """Hits@K: the share of true pairs that score above (>) the K-th best false pair."""
    mrr: float
    """The mean of 1 / place, a true pair's place among all false ones; ties take the middle place."""
    auc: float
    """The chance that a true pair scores above a false one; a tie counts half."""


def rank(pos: Tensor, neg: Tensor, k: int, comm: Communicator | None = None) -> Ranking:
    """Hits@k, MRR and AUC of everybody's scores; every rank calls it and gets the same.

        place = 1 + (#{neg > pos} + #{neg ≥ pos}) / 2        AUC = (#{neg < pos} + #{neg = pos} / 2) / (p m)

    The false pairs' scores go to every rank; of the true pairs only sums travel.

    >>> rank(torch.tensor([3., 2., 1.]), torch.tensor([2., 0.]), k=1)
    Ranking(hits=0.333..., mrr=0.722..., auc=0.75)
    """
    comm = comm or single()
    sizes = [int(n) for n in comm.all_gather(torch.tensor([neg.numel()], device="cpu"), phase="metrics")]
    everyone = comm.all_gather(neg.double(), sizes, phase="metrics")
    check_hits(k, everyone.numel())
    ordered = everyone.sort().values
    mine = pos.double().contiguous()
    below = torch.searchsorted(ordered, mine)
    upto = torch.searchsorted(ordered, mine, right=True)
    m = ordered.numel()
    place = 1 + (2 * m - below - upto).double() / 2
    bar = ordered[m - k] if m else ordered.new_tensor(float("-inf"))
    twice_rows = (below + upto).sum()
    counts = torch.stack([(mine > bar).sum(), twice_rows, twice_rows.new_tensor(mine.numel())])
    hits, twice, p = comm.all_reduce(counts, phase="metrics").tolist()
    inverse = float(comm.all_reduce((1 / place).sum().view(1), phase="metrics"))
    if not p or not m:
        return Ranking(float("nan"), float("nan"), float("nan"))
    return Ranking(hits / p, inverse / p, twice / (2 * p * m))


def check_hits(k: int, negatives: int) -> None:
    """Refuse a K for which there is no K-th best false pair.

    >>> check_hits(20, 7)
    Traceback (most recent call last):
        ...
    weft.errors.UserError: Hits@20 needs at least 20 false pairs, there are 7. Use --hits 7 or less.
    """
    if k < 1:
        raise UserError(f"hits must be at least 1, not {k}.")
    if 0 < negatives < k:
        raise UserError(
            f"Hits@{k} needs at least {k} false pairs, there are {negatives}. Use --hits {negatives} or less."
        )
