"""PyG's own example for Cora, a GCN of two layers, on ranks. The lines that share it are marked.

    python examples/pyg_cora.py                        # one process
    weft run --ranks 4 examples/pyg_cora.py            # the same losses, on four ranks

The model is PyG's, the loop is anybody's: no rank, no count and no gradient is mentioned in either.
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from torch_geometric.nn import GCNConv

import weft
from weft.graph import to_pyg


class GCN(torch.nn.Module):
    def __init__(self, in_channels: int, hidden_channels: int, out_channels: int):
        super().__init__()
        self.conv1 = GCNConv(in_channels, hidden_channels, cached=True)
        self.conv2 = GCNConv(hidden_channels, out_channels, cached=True)

    def forward(self, x, edge_index, edge_weight=None):
        x = F.dropout(x, p=0.5, training=self.training)
        x = self.conv1(x, edge_index, edge_weight).relu()
        x = F.dropout(x, p=0.5, training=self.training)
        return self.conv2(x, edge_index, edge_weight)


def main(graph: str = "cora", hidden: int = 16, epochs: int = 200, partition: str = "metis", comm=None):
    """Train; the losses, and the accuracies on the three masks after the last epoch."""
    torch.manual_seed(0)
    data = to_pyg(weft.load(graph))  # or PyG's: Planetoid(root, "Cora", transform=NormalizeFeatures())[0]
    classes = int(data.y.max()) + 1
    with weft.ranks(comm) as job:  # share
        data = job.share(data, partition=partition if job.size > 1 else "block")  # share
        model = job.wrap(GCN(data.num_features, hidden, classes))  # share
        optimizer = torch.optim.Adam([
            {"params": model.conv1.parameters(), "weight_decay": 5e-4},
            {"params": model.conv2.parameters(), "weight_decay": 0},
        ], lr=0.01)  # fmt: skip  # only perform weight decay on the first convolution

        def train():
            model.train()
            optimizer.zero_grad()
            out = model(data.x, data.edge_index, data.edge_weight)
            loss = F.cross_entropy(out[data.train_mask], data.y[data.train_mask])
            loss.backward()
            optimizer.step()
            return loss.item()

        @torch.no_grad()
        def test():
            model.eval()
            pred = model(data.x, data.edge_index, data.edge_weight).argmax(dim=-1)
            accs = []
            for mask in [data.train_mask, data.val_mask, data.test_mask]:
                accs.append(int((pred[mask] == data.y[mask]).sum()) / int(mask.sum()))
            return accs

        losses = []
        for epoch in range(1, epochs + 1):
            losses.append(train())
            if job.rank == 0 and epoch % 50 == 0:
                print(f"Epoch: {epoch:03d}, Loss: {losses[-1]:.4f}")
        accuracies = test()
        if job.rank == 0:
            print("Train: {:.4f}, Val: {:.4f}, Test: {:.4f}".format(*accuracies))
        return losses, accuracies


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--graph", default="cora")
    parser.add_argument("--hidden", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--partition", default="metis")
    main(**vars(parser.parse_args()))
