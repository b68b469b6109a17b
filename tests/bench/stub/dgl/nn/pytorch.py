"""The three layers, with the shapes that DGL's have."""

from __future__ import annotations

import torch

from .. import Graph


class GraphConv(torch.nn.Module):
    """D_in^-½ A D_out^-½ H W + b."""

    def __init__(self, inputs: int, outputs: int, norm: str) -> None:
        super().__init__()
        assert norm == "both"
        self.weight = torch.nn.Parameter(torch.nn.init.xavier_uniform_(torch.empty(inputs, outputs)))
        self.bias = torch.nn.Parameter(torch.zeros(outputs))

    def forward(self, graph: Graph, h: torch.Tensor) -> torch.Tensor:
        a = graph.dense()
        assert a.sum(1).min() > 0, "DGL refuses vertices that nothing reaches"
        scaled = a.sum(1).clamp(min=1).rsqrt()[:, None] * a * a.sum(0).clamp(min=1).rsqrt()
        return scaled @ h @ self.weight + self.bias


class SAGEConv(torch.nn.Module):
    def __init__(self, inputs: int, outputs: int, aggregator: str) -> None:
        super().__init__()
        assert aggregator == "mean"
        self.own, self.near = torch.nn.Linear(inputs, outputs), torch.nn.Linear(inputs, outputs, bias=False)

    def forward(self, graph: Graph, h: torch.Tensor) -> torch.Tensor:
        a = graph.dense()
        return self.own(h) + self.near(a @ h / a.sum(1, keepdim=True).clamp(min=1))


class GATConv(torch.nn.Module):
    """[n, heads, outputs]."""

    def __init__(self, inputs: int, outputs: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.weight = torch.nn.Linear(inputs, heads * outputs, bias=False)
        self.left, self.right = (torch.nn.Parameter(0.1 * torch.randn(heads, outputs)) for _ in range(2))

    def forward(self, graph: Graph, h: torch.Tensor) -> torch.Tensor:
        z = self.weight(h).view(len(h), self.heads, -1)
        scores = (z * self.right).sum(-1)[:, None] + (z * self.left).sum(-1)[None]  # [target, source, heads]
        none = graph.dense() == 0
        alpha = (
            torch.nn.functional.leaky_relu(scores, 0.2).masked_fill(none[..., None], -torch.inf).softmax(1)
        )
        return torch.einsum("tsh,shf->thf", alpha, z)
