"""One layer per equation. h is [n, in], the result [n, out]; A is the normalised adjacency.

A layer chooses its order: A (h W) where that is not wider than (A h) W. On equal widths A (h W) is taken:
its backward needs h alone, which the activation keeps anyway, and not A h beside it. Where h is the input
(`fixed`), A h never changes and is computed once: the layer then costs neither SpMM nor messages.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..errors import unknown
from ..kernels import add_linear_, linear, linear_pair
from .adjacency import Adjacency


def _weight(inputs: int, outputs: int) -> nn.Parameter:
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(inputs, outputs)))


def _bias(outputs: int, wanted: bool) -> nn.Parameter | None:
    return nn.Parameter(torch.zeros(outputs)) if wanted else None


class GCNLayer(nn.Module):
    """h' = Â h W + b, with Â = D^-½ (A + I) D^-½ (Kipf and Welling).

    >>> from weft.kernels import CSR
    >>> A = CSR(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), None, (2, 2))
    >>> GCNLayer(3, 5)(A, torch.ones(2, 3)).shape
    torch.Size([2, 5])
    """

    def __init__(self, inputs: int, outputs: int, bias: bool = True):
        super().__init__()
        self.weight = _weight(inputs, outputs)
        self.bias = _bias(outputs, bias)

    def forward(self, A: Adjacency, h: Tensor, fixed: bool = False) -> Tensor:
        inputs, outputs = self.weight.shape
        if fixed:
            return linear(A.once(h), self.weight, self.bias)
        if inputs < outputs:
            return linear(A @ h, self.weight, self.bias)
        z = A @ linear(h, self.weight)
        return z if self.bias is None else z.add_(self.bias)


class SAGELayer(nn.Module):
    """h' = h W_self + (⊕_j h_j) W_near + b, ⊕ the mean or the maximum over in-neighbours (Hamilton et al.).

    For the mean, A holds 1/degree in its rows; for the maximum it has no values.

    >>> from weft.kernels import CSR
    >>> A = CSR(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), None, (2, 2))
    >>> SAGELayer(3, 5, aggregate="max")(A, torch.ones(2, 3)).shape
    torch.Size([2, 5])
    """

    def __init__(self, inputs: int, outputs: int, bias: bool = True, aggregate: str = "mean"):
        super().__init__()
        if aggregate not in ("mean", "max"):
            raise unknown("aggregation", aggregate, ["mean", "max"])
        self.reduce = "sum" if aggregate == "mean" else "max"
        self.weight_self = _weight(inputs, outputs)
        self.weight_near = _weight(inputs, outputs)
        self.bias = _bias(outputs, bias)

    def forward(self, A: Adjacency, h: Tensor, fixed: bool = False) -> Tensor:
        inputs, outputs = self.weight_near.shape
        if not fixed and self.reduce == "sum" and inputs >= outputs:
            own, near = linear_pair(h, self.weight_self, self.bias, self.weight_near)
            return own.add_(A @ near)
        own = linear(h, self.weight_self, self.bias)
        if fixed:
            return add_linear_(own, A.once(h, self.reduce), self.weight_near)
        return add_linear_(own, A.aggregate(h, self.reduce), self.weight_near)


class GINLayer(nn.Module):
    """h' = MLP((1 + ε) h + Σ_j h_j), MLP(u) = relu(u W₁ + b₁) W₂ + b₂, ε learned (Xu et al.).

    The sum is linear, so the narrower of h and h W₁ is what is aggregated.

    >>> from weft.kernels import CSR
    >>> A = CSR(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), None, (2, 2))
    >>> GINLayer(3, 5)(A, torch.ones(2, 3)).shape
    torch.Size([2, 5])
    """

    def __init__(self, inputs: int, outputs: int, bias: bool = True):
        super().__init__()
        self.epsilon = nn.Parameter(torch.zeros(()))
        self.weight1, self.bias1 = _weight(inputs, outputs), _bias(outputs, bias)
        self.weight2, self.bias2 = _weight(outputs, outputs), _bias(outputs, bias)

    def forward(self, A: Adjacency, h: Tensor, fixed: bool = False) -> Tensor:
        inputs, outputs = self.weight1.shape
        if fixed or inputs < outputs:
            near = A.once(h) if fixed else A @ h
            u = linear((1 + self.epsilon) * h + near, self.weight1, self.bias1)
        else:
            u = linear(h, self.weight1)
            u = (1 + self.epsilon) * u + A @ u
            u = u if self.bias1 is None else u.add_(self.bias1)
        return linear(torch.relu_(u), self.weight2, self.bias2)


class SGCLayer(nn.Module):
    """h' = Âᴷ h W + b: K propagations and one product (Wu et al.).

    >>> from weft.kernels import CSR
    >>> A = CSR(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), None, (2, 2))
    >>> SGCLayer(3, 5, hops=2)(A, torch.ones(2, 3)).shape
    torch.Size([2, 5])
    """

    def __init__(self, inputs: int, outputs: int, bias: bool = True, hops: int = 2):
        super().__init__()
        self.hops = hops
        self.weight = _weight(inputs, outputs)
        self.bias = _bias(outputs, bias)

    def forward(self, A: Adjacency, h: Tensor, fixed: bool = False) -> Tensor:
        inputs, outputs = self.weight.shape
        if fixed:
            return linear(A.once(h, hops=self.hops), self.weight, self.bias)
        if inputs < outputs:
            return linear(self._propagate(A, h), self.weight, self.bias)
        z = self._propagate(A, linear(h, self.weight))
        return z if self.bias is None else z.add_(self.bias)

    def _propagate(self, A: Adjacency, h: Tensor) -> Tensor:
        for _ in range(self.hops):
            h = A @ h
        return h
