"""One layer per equation. h is [s, in], the result [t, out]; A is the normalised adjacency.

A layer asks A for the order: A (h W) where that is not wider than (A h) W. On equal widths A (h W) is taken:
its backward needs h alone, which the activation keeps anyway, and not A h beside it. Where h is the input and
never changes, A h is computed once: the layer then costs neither SpMM nor messages.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..errors import unknown
from ..kernels import add_linear_, add_scaled, linear, linears, relu_
from .adjacency import Adjacency
from .layer import Layer, add_, bias_of, from_wire, propagate, weight_of


class GCNLayer(Layer):
    """h' = Â h W + b, with Â = D^-½ (A + I) D^-½ (Kipf and Welling).

    >>> from weft.kernels import CSR
    >>> from weft.parallel import Operator
    >>> A = Operator.local(CSR(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), None, (2, 2)))
    >>> GCNLayer(3, 5)(A, torch.ones(2, 3)).shape
    torch.Size([2, 5])
    """

    cut = ("weight",)
    entrywise = direct = fresh = True

    def __init__(self, inputs: int, outputs: int, bias: bool = True):
        super().__init__()
        self.weight, self.bias = weight_of(inputs, outputs), bias_of(outputs, bias)

    def partial(self, A: Adjacency, h: Tensor) -> Tensor:
        return propagate(A, h, self.weight)

    def apply(self, t: Tensor) -> Tensor:  # type: ignore[override]
        return add_(t, self.bias)


class SGCLayer(GCNLayer):
    """h' = Âᴷ h W + b: K propagations and one product (Wu et al.).

    >>> from weft.kernels import CSR
    >>> from weft.parallel import Operator
    >>> from .adjacency import Chain
    >>> A = Operator.local(CSR(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), None, (2, 2)))
    >>> SGCLayer(3, 5, hops=2)(Chain([A, A]), torch.ones(2, 3)).shape
    torch.Size([2, 5])
    """

    def __init__(self, inputs: int, outputs: int, bias: bool = True, hops: int = 2):
        super().__init__(inputs, outputs, bias)
        self.hops = hops


class SAGELayer(Layer):
    """h' = h W_self + (⊕_j h_j) W_near + b, ⊕ the mean or the maximum over in-neighbours (Hamilton et al.).

    For the mean, A holds 1/degree in its rows; for the maximum it has no values.

    >>> from weft.kernels import CSR
    >>> from weft.parallel import Operator
    >>> A = Operator.local(CSR(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), None, (2, 2)))
    >>> SAGELayer(3, 5, aggregate="max")(A, torch.ones(2, 3)).shape
    torch.Size([2, 5])
    """

    cut = ("weight_self", "weight_near")
    entrywise = direct = fresh = True

    def __init__(self, inputs: int, outputs: int, bias: bool = True, aggregate: str = "mean"):
        super().__init__()
        if aggregate not in ("mean", "max"):
            raise unknown("aggregation", aggregate, ["mean", "max"])
        self.reduce = "sum" if aggregate == "mean" else "max"
        self.scaled = aggregate == "mean"
        self.weight_self, self.weight_near = weight_of(inputs, outputs), weight_of(inputs, outputs)
        self.bias = bias_of(outputs, bias)

    def partial(self, A: Adjacency, h: Tensor) -> Tensor:
        if self.reduce == "sum" and not A.gathers_first(h, self.weight_near.shape[1]):
            own, near = linears(h, (self.weight_self, None), (self.weight_near, None))
            return own.add_(A @ near)
        own = linear(A.own(h), self.weight_self)
        return add_linear_(own, A.aggregate(h, self.reduce), self.weight_near)

    def apply(self, t: Tensor) -> Tensor:  # type: ignore[override]
        return add_(t, self.bias)


class GINLayer(Layer):
    """h' = MLP((1 + ε) h + Σ_j h_j), MLP(u) = relu(u W₁ + b₁) W₂ + b₂, ε learned (Xu et al.).

    The sum is linear, so the narrower of h and h W₁ is what is aggregated.

    >>> from weft.kernels import CSR
    >>> from weft.parallel import Operator
    >>> A = Operator.local(CSR(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), None, (2, 2)))
    >>> GINLayer(3, 5)(A, torch.ones(2, 3)).shape
    torch.Size([2, 5])
    """

    cut = ("weight1",)
    direct = fresh = True

    def __init__(self, inputs: int, outputs: int, bias: bool = True):
        super().__init__()
        self.epsilon = nn.Parameter(torch.zeros((), device="cpu"))
        self.weight1, self.bias1 = weight_of(inputs, outputs), bias_of(outputs, bias)
        self.weight2, self.bias2 = weight_of(outputs, outputs), bias_of(outputs, bias)

    def partial(self, A: Adjacency, h: Tensor) -> Tensor:
        if A.gathers_first(h, self.weight1.shape[1]):
            return linear(add_scaled(A @ h, A.own(h), 1 + self.epsilon), self.weight1)
        u = linear(h, self.weight1)
        return add_scaled(A @ u, u, 1 + self.epsilon)

    def apply(self, t: Tensor) -> Tensor:  # type: ignore[override]
        u = add_(t, self.bias1)
        return linear(torch.relu(u) if from_wire(u) else relu_(u), self.weight2, self.bias2)
