"""How well scores part true pairs from false ones: Hits@K, MRR and AUC, exact over ranks.

    pos  [p]  this rank's scores of true pairs        neg  [m]  this rank's scores of false pairs

Every false pair competes with every true one, whichever rank scored it. All are `nan` of nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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


KS = (1, 3, 10, 20, 50, 100)
"""The K of Hits@K that a report tells, as far as there are so many false pairs."""
_BINS = 40
_POINTS = 100


def spread(pos: Tensor, neg: Tensor, comm: Communicator | None = None) -> dict[str, Any]:
    """How true and false pairs spread, over all ranks; every rank calls it and gets the same.

        hits        {K: Hits@K}
        roc         [false pairs above a bar, true pairs above it], as shares, from the highest bar down
        histogram   edges [41], and how many true and false pairs score between two of them [40]

    >>> found = spread(torch.tensor([3., 2., 1.]), torch.tensor([2., 0.]))
    >>> found["hits"], found["roc"][0], found["roc"][-1]
    ({1: 0.333...}, [0.0, 0.333...], [1.0, 1.0])
    """
    comm = comm or single()
    sizes = [int(n) for n in comm.all_gather(torch.tensor([neg.numel()], device="cpu"), phase="metrics")]
    ordered = comm.all_gather(neg.double(), sizes, phase="metrics").sort().values.cpu()
    mine, m = pos.double().cpu(), ordered.numel()
    p = int(comm.all_reduce(torch.tensor([mine.numel()], device="cpu"), phase="metrics"))
    if not p or not m:
        return {}
    ks = [k for k in KS if k <= m]
    # A bar at the false pair of place j from the top leaves j of them above it, ties aside.
    places = torch.linspace(0, m - 1, min(m, _POINTS), dtype=torch.float64, device="cpu").round().long()
    bars = torch.cat([ordered[[m - k for k in ks]], ordered.flip(0)[places]])
    above = torch.stack([(mine > bar).sum() for bar in bars])
    shares = (comm.all_reduce(above, phase="metrics").double() / p).tolist()
    roc = [[int((ordered > b).sum()) / m, share] for b, share in zip(bars, shares, strict=True)][len(ks) :]
    both = torch.cat([mine, ordered])
    ends = torch.stack([-both.min(), both.max()])
    low, high = comm.all_reduce(ends, "max", phase="metrics").tolist()
    low, high = -low, high if high > -low else 1 - low
    true = comm.all_reduce(torch.histc(mine, _BINS, low, high), phase="metrics")
    return {
        "hits": dict(zip(ks, shares, strict=False)), "roc": [*roc, [1.0, 1.0]],
        "histogram": {
            "edges": torch.linspace(low, high, _BINS + 1, dtype=torch.float64, device="cpu").tolist(),
            "true": [int(n) for n in true.tolist()],
            "false": [int(n) for n in torch.histc(ordered, _BINS, low, high).tolist()],
        },
    }  # fmt: skip


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
