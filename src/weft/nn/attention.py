"""Attention layers, written in the algebra of `weft.nn.algebra`. A holds the pattern with self-loops."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..graph.arrays import FEATURES
from ..kernels import add_bias, linear, linears
from .adjacency import Adjacency
from .algebra import Sampled, arcs, dropout, leaky_relu, outer, rep, softmax, tall
from .layer import Layer, add_, bias_of, weight_of


class VALayer(Layer):
    """h' = (A ∘ h hᵀ) h W + b: vanilla attention, scores are dot products, no softmax (Besta et al.).

    A's values multiply the scores: of a normalised A, its factors; of one with weights, these.

    >>> from weft.kernels import CSR
    >>> from weft.parallel import Operator
    >>> A = Operator.local(CSR(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), None, (2, 2)))
    >>> VALayer(3, 5)(A, torch.ones(2, 3)).shape
    torch.Size([2, 5])
    """

    cut = ("weight",)
    entrywise = scaled = fresh = True
    kept = "va"

    def __init__(self, inputs: int, outputs: int, bias: bool = True, drop: float = 0.0):
        super().__init__()
        self.drop = drop
        self.weight, self.bias = weight_of(inputs, outputs), bias_of(outputs, bias)

    def partial(self, A: Adjacency, h: Tensor) -> Tensor:
        def attended() -> Tensor:
            return dropout(self.scores(A, h), self.drop, self.stream) @ tall(h)

        # Nothing is learned in here: of an input that never changes it is made once. Inference keeps nothing.
        once = self.training and (self.stream is None or not self.drop)
        return linear(A.keep(self.kept, h, attended) if once else attended(), self.weight)

    def scores(self, A: Adjacency, h: Tensor) -> Sampled:
        """The sampled matrix that h is multiplied with."""
        H = tall(h)
        return A * (H @ H.T)

    def apply(self, t: Tensor) -> Tensor:  # type: ignore[override]
        return add_(t, self.bias)


class AGNNLayer(Layer):
    """h' = softmax(β cos(h, h) at A) h W + b, β learned (Thekumparampil et al.).

    >>> from weft.kernels import CSR
    >>> from weft.parallel import Operator
    >>> A = Operator.local(CSR(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), None, (2, 2)))
    >>> AGNNLayer(3, 5)(A, torch.ones(2, 3)).shape
    torch.Size([2, 5])
    """

    cut = ("weight",)
    entrywise = fresh = True

    def __init__(self, inputs: int, outputs: int, bias: bool = True, drop: float = 0.0):
        super().__init__()
        self.drop = drop
        self.beta = nn.Parameter(torch.ones((), device="cpu"))
        self.weight, self.bias = weight_of(inputs, outputs), bias_of(outputs, bias)

    def partial(self, A: Adjacency, h: Tensor) -> Tensor:
        H = tall(h)
        norms = A.norms(h).clamp(min=1e-12)  # a row of zeros has cosine 0 with everything
        S = A * (H @ H.T) / outer(norms, norms)
        Psi = dropout(softmax(self.beta * S), self.drop, self.stream)
        return linear(Psi @ H, self.weight)

    def apply(self, t: Tensor) -> Tensor:  # type: ignore[override]
        return add_(t, self.bias)


class BestaAGNNLayer(VALayer):
    """h' = (A ∘ h hᵀ ⊘ n nᵀ) h W + b, n the rows' lengths: AGNN as Besta et al. have it (SC 2023, Figure 1).

    VA over cosines: neither β nor softmax. A's values multiply them. A row of zeros has cosine 0 with all.

    >>> from weft.kernels import CSR
    >>> from weft.parallel import Operator
    >>> A = Operator.local(CSR(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), None, (2, 2)))
    >>> BestaAGNNLayer(3, 5)(A, torch.ones(2, 3)).shape
    torch.Size([2, 5])
    """

    entrywise = scaled = fresh = True
    kept = "agnn"

    def scores(self, A: Adjacency, h: Tensor) -> Sampled:
        norms = A.norms(h).clamp(min=1e-12)
        return super().scores(A, h) / outer(norms, norms)


class GATLayer(Layer):
    """h' = softmax(leaky(u 1ᵀ + 1 vᵀ) at A) z + b, z = h W, u = z a₁, v = z a₂ (Veličković et al.).

        weight          [in, heads · out]   each head's columns beside each other
        attend_row      [heads, out]        a₁, for the vertex that attends
        attend_column   [heads, out]        a₂, for its neighbour
        h'              [n, heads · out], or with `average` the mean of the heads, [n, out]

    Where arcs carry features f_ij [t], a number of theirs is added to the sum: ⟨f_ij W_e, a₃⟩, made as f_ij
    times W_e a₃ [t, heads].

    The scores are not linear in h: their two sides, which are, are synced before the LeakyReLU. That is
    `heads` numbers a vertex; z itself may stay partial until the sum over neighbours.

    >>> from weft.kernels import CSR
    >>> from weft.parallel import Operator
    >>> A = Operator.local(CSR(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), None, (2, 2)))
    >>> GATLayer(3, 8, heads=4)(A, torch.ones(2, 3)).shape
    torch.Size([2, 8])
    """

    cut = ("weight",)
    entrywise = fresh = True

    def __init__(
        self,
        inputs: int,
        outputs: int,
        bias: bool = True,
        heads: int = 1,
        average: bool = False,
        slope: float = 0.2,
        drop: float = 0.0,
        arcs: int = 0,
    ):
        super().__init__()
        self.width = check_heads(outputs, heads, average)
        self.heads, self.average, self.slope, self.drop = heads, average, slope, drop
        self.weight = weight_of(inputs, heads * self.width)
        self.attend_row, self.attend_column = weight_of(heads, self.width), weight_of(heads, self.width)
        self.weight_edge = weight_of(arcs, heads * self.width) if arcs else None
        self.attend_edge = weight_of(heads, self.width) if arcs else None
        self.data = (FEATURES,) if arcs else ()
        self.bias = bias_of(outputs, bias)

    def partial(self, A: Adjacency, h: Tensor) -> Tensor:
        # u = z a₁ in each head is h (W a₁): a thin product with h beside the wide one.
        z, sides = linears(h, (self.weight, None), (self._folded(), None))
        u, v = A.own(sides[:, : self.heads]), sides[:, self.heads : 2 * self.heads]
        s = rep(A.sync(u)) + rep(A.sync(v)).T
        if self.weight_edge is not None and self.attend_edge is not None:
            folded = (self.weight_edge.view(-1, self.heads, self.width) * self.attend_edge).sum(2)
            s = s + arcs(A.entries.project(FEATURES, folded))
        Psi = softmax(A * leaky_relu(s, self.slope))
        out = dropout(Psi, self.drop, self.stream) @ z
        if self.average and self.heads > 1:
            out = out.view(out.shape[0], self.heads, self.width).mean(1)
        return out

    def apply(self, t: Tensor) -> Tensor:  # type: ignore[override]
        # Backward needs t as it is, and an activation may write into what is returned here.
        return add_bias(t, t.new_zeros(t.shape[1]) if self.bias is None else self.bias)

    def _folded(self) -> Tensor:
        """[in, 2 · heads]: W a₁ and W a₂ of every head; with zeros to 16, which BLAS takes faster than 2."""
        weight = self.weight.view(-1, self.heads, self.width)
        both = torch.cat([(weight * a).sum(2) for a in (self.attend_row, self.attend_column)], 1)
        return nn.functional.pad(both, (0, max(0, 16 - 2 * self.heads)))


def check_heads(outputs: int, heads: int, average: bool) -> int:
    """The columns of each head: all of them where heads are averaged, else they share them."""
    if not average and outputs % heads:
        raise UserError(
            f"{heads} heads do not divide a width of {outputs}. Use --heads {_divisor(outputs, heads)}."
        )
    return outputs if average else outputs // heads


def _divisor(width: int, near: int) -> int:
    return max(d for d in range(1, min(width, near) + 1) if width % d == 0)
