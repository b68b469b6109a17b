"""What a paper's algorithm answers: the equations of a GCN's epoch, and who holds what.

In weft's terms A aggregates, so that A is the papers' Aᵀ:

    equation 1   Z = A H W                  product, times      W is on every rank
    equation 2   H = σ(Z)                   complete            log-softmax looks at complete rows
    equation 3   G = (Aᵀ G W ᵀ) ⊙ σ'(Z)     product(back), times
    equation 4   Y = Hᵀ (Aᵀ G)              outer               whole on every rank
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ...comm import Communicator
from ...graph import Graph
from ...graph.normalise import normalise
from ...kernels import CSR


class Baseline(ABC):
    """One rank of a paper's algorithm.

    h, g, t, s, z   this rank's block of a matrix [n, f], as the paper lays it out
    w               [f, f'], whole
    """

    rows: Tensor
    """The vertices of the rows that `complete` gives this rank."""
    first: bool
    """Whether this rank is the one that counts these rows, where several have them."""

    def __init__(self, comm: Communicator):
        self.comm = comm

    @abstractmethod
    def take(self, x: Tensor) -> Tensor:
        """This rank's block of a matrix that it has whole. [n, f] → block"""

    @abstractmethod
    def product(self, h: Tensor, back: bool = False) -> Tensor:
        """The block of A H, or of Aᵀ H where `back`."""

    @abstractmethod
    def outer(self, h: Tensor, s: Tensor, shape: tuple[int, int]) -> Tensor:
        """Hᵀ S, whole on every rank; its shape [f, f'] is not seen in blocks."""

    def times(self, t: Tensor, w: Tensor) -> Tensor:
        """The block of T W."""
        return t @ w

    def complete(self, z: Tensor, width: int) -> Tensor:
        """Complete rows, [rows, width]."""
        return z

    def restrict(self, z: Tensor) -> Tensor:
        """The block of complete rows that stays here: the way back."""
        return z


@dataclass
class Problem:
    """What is trained: the same for every algorithm and for one process."""

    a: CSR
    """Â, [n, n]: Kipf and Welling's average."""
    x: Tensor
    """[n, f]"""
    labels: Tensor
    train: Tensor
    """[n] bool"""
    weights: list[Tensor]

    @classmethod
    def of(
        cls, graph: Graph, hidden: int, layers: int, seed: int = 0, dtype: torch.dtype = torch.float32
    ) -> Problem:
        """A graph with features and labels, and weights drawn from the seed.

        >>> from weft.graph import karate
        >>> [tuple(w.shape) for w in Problem.of(karate(), 5, 2).weights]
        [(34, 5), (5, 2)]
        """
        assert graph.features is not None
        assert graph.labels is not None
        known = normalise(graph, "gcn", dtype)
        made = torch.Generator().manual_seed(seed)
        widths = [graph.num_features, *([hidden] * (layers - 1)), graph.num_classes]
        weights = [
            (torch.rand(f, g, generator=made, dtype=torch.float64) * 2 - 1)
            .mul_((6 / (f + g)) ** 0.5)
            .to(dtype)
            for f, g in itertools.pairwise(widths)
        ]
        everybody = torch.ones(graph.num_nodes, dtype=torch.bool, device="cpu")
        train = everybody if graph.train_mask is None else graph.train_mask
        n = graph.num_nodes
        a = CSR(known.indptr, known.indices, known.weights, (n, n))
        return cls(a, graph.features.to(dtype), graph.labels.long(), train, weights)


@dataclass
class Step:
    """One epoch's results, before the weights move."""

    loss: float
    gradients: list[Tensor]
    rows: Tensor
    """The last layer's complete rows, of `Baseline.rows`."""


def epoch(baseline: Baseline, problem: Problem, x: Tensor, weights: Sequence[Tensor]) -> Step:
    """Forward, loss and backward as the papers have them; x is this rank's block of the features."""
    h = [x]
    for layer, w in enumerate(weights):
        z = baseline.times(baseline.product(h[-1]), w)
        h.append(z.clamp_(min=0) if layer < len(weights) - 1 else z)
    logits = baseline.complete(h.pop(), weights[-1].shape[1])
    loss, g = _loss(baseline, problem, logits)
    g = baseline.restrict(g)
    gradients: list[Tensor] = []
    for w in reversed(weights):
        s = baseline.product(g, back=True)
        gradients.insert(0, baseline.outer(h[-1], s, (w.shape[0], w.shape[1])))
        below = h.pop()
        if h:
            g = baseline.times(s, w.T.contiguous()).mul_(below > 0)  # ReLU's slope, read from its output
    return Step(loss, gradients, logits)


def _loss(baseline: Baseline, problem: Problem, logits: Tensor) -> tuple[float, Tensor]:
    """The mean cross-entropy over all training vertices, and this rank's rows of its gradient."""
    mine = problem.train[baseline.rows]
    labels, count = problem.labels[baseline.rows][mine], max(1, int(problem.train.sum()))
    score = torch.log_softmax(logits[mine], dim=1)
    at = torch.arange(labels.numel(), device=labels.device), labels
    total = -score[at].sum().double().reshape(1) * baseline.first
    chance = score.exp()
    chance[at] -= 1
    g = torch.zeros_like(logits)
    g[mine] = chance / count
    return float(baseline.comm.all_reduce(total, phase="loss")) / count, g


def descend(weights: Sequence[Tensor], gradients: Sequence[Tensor], rate: float) -> list[Tensor]:
    """W − η Y, the same on every rank."""
    return [w - rate * y for w, y in zip(weights, gradients, strict=True)]


def cut(a: CSR, rows: Tensor, columns: Tensor) -> CSR:
    """A[rows, columns], both in the order given.

    >>> a = CSR(torch.tensor([0, 1, 3]), torch.tensor([1, 0, 1]), torch.tensor([5.0, 1.0, 2.0]), (2, 2))
    >>> cut(a, torch.tensor([1, 0]), torch.tensor([1])).dense()
    tensor([[2.],
            [5.]])
    """
    assert a.values is not None
    place = torch.full((a.shape[1],), -1, dtype=torch.int64, device="cpu")
    place[columns] = torch.arange(columns.numel(), device="cpu")
    counts = a.counts[rows]
    within = torch.arange(int(counts.sum()), device="cpu") - torch.repeat_interleave(
        counts.cumsum(0) - counts, counts
    )
    arc = torch.repeat_interleave(a.indptr[rows], counts) + within
    column = place[a.indices[arc].long()]
    keep = column >= 0
    row = torch.repeat_interleave(torch.arange(rows.numel(), device="cpu"), counts)[keep]
    ends = torch.bincount(row, minlength=rows.numel()).cumsum(0)
    return CSR(
        torch.cat([ends.new_zeros(1), ends]), column[keep].to(torch.int32), a.values[arc[keep]],
        (rows.numel(), columns.numel()),
    )  # fmt: skip
