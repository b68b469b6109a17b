"""A small directed graph as PyG has it: loops, arcs twice, vertices that nothing enters or leaves."""

from __future__ import annotations

import torch
from torch_geometric.data import Data

N, WIDTH, CLASSES = 23, 6, 4


def directed(seed: int = 0, arcs: int = 90) -> Data:
    g = torch.Generator().manual_seed(seed)
    source, target = torch.randint(N - 1, (2, arcs), generator=g)  # vertex 22 is alone
    target[target == 5] = 6  # nothing enters vertex 5
    source[source == 7] = 8  # nothing leaves vertex 7
    source[:3] = target[:3]  # loops
    source[3:5], target[3:5] = 1, 2  # an arc twice

    def rows(count: int, *width: int) -> torch.Tensor:
        return torch.randn(count, *width, generator=g, dtype=torch.float64)

    def split(least: int) -> torch.Tensor:
        return torch.stack([source[least::2], target[least::2]])

    order = torch.randperm(arcs, generator=g)
    data = Data(
        x=rows(N, WIDTH),
        edge_index=torch.stack([source, target])[:, order],
        y=torch.randint(4, (N,), generator=g),
    )
    data.edge_weight = rows(arcs).abs() + 0.1
    data.edge_attr = rows(arcs, 3)
    data.edge_type = torch.randint(3, (arcs,), generator=g)
    data.pseudo = rows(arcs, 2).sigmoid()
    data.pos, data.normal, data.x0 = rows(N, 3), torch.nn.functional.normalize(rows(N, 3)), rows(N, WIDTH)
    data.history = rows(N, 3, WIDTH)
    data.node_type = torch.randint(2, (N,), generator=g)
    data.train_mask = torch.rand(N, generator=g) < 0.6
    data.pos_edge_index, data.neg_edge_index = split(0), split(1)
    data.mesh_index = torch.stack(
        [torch.arange(N).repeat_interleave(4), torch.randint(N, (4 * N,), generator=g)]
    )
    # Sorted by target, as aggregations over sequences want it.
    ordered = torch.argsort(data.edge_index[1], stable=True)
    data.sorted_edge_index = data.edge_index[:, ordered]
    return data
