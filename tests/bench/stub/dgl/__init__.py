"""As much of DGL's interface as weft's adapter calls, in dense algebra: DGL itself is no longer built."""

from __future__ import annotations

import torch


class Graph:
    def __init__(self, source: torch.Tensor, target: torch.Tensor, vertices: int) -> None:
        self.source, self.target, self.vertices = source, target, vertices
        self.formats = False

    def create_formats_(self) -> None:
        self.formats = True

    def dense(self) -> torch.Tensor:
        """[n, n], row v lists who sends to v."""
        assert self.formats
        found = torch.zeros(self.vertices, self.vertices)
        return found.index_put((self.target, self.source), torch.tensor(1.0), accumulate=True)


def graph(data: tuple[torch.Tensor, torch.Tensor], *, num_nodes: int) -> Graph:
    return Graph(*data, num_nodes)


def remove_self_loop(g: Graph) -> Graph:
    keep = g.source != g.target
    return Graph(g.source[keep], g.target[keep], g.vertices)


def add_self_loop(g: Graph) -> Graph:
    own = torch.arange(g.vertices)
    return Graph(torch.cat([g.source, own]), torch.cat([g.target, own]), g.vertices)
