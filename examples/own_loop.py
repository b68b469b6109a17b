"""weft's own GAT in a loop of one's own, on any grid: what `weft train` does, written out.

    python examples/own_loop.py                                              # one process
    weft run --ranks 4 examples/own_loop.py --strategy 2d --grid 2x2         # the same losses on four ranks

The optimiser, the loss and the loop are torch's. `A` is the operator that weft's trainer has: the same words
move.
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F

import weft
from weft.nn import ModelConfig, Noise, build


def main(graph="sbm:nodes=2000,classes=4", strategy="halo", grid="", epochs=30, hidden=16, comm=None):
    """Train; the losses, and the accuracy on the test mask after the last epoch."""
    torch.manual_seed(0)
    with weft.ranks(comm, seed=0) as job:
        data = job.share(weft.load(graph), strategy=strategy, grid=grid if job.size > 1 else "")
        labels = int(data.y.max()) + 1
        model = job.wrap(build(ModelConfig(name="gat", hidden=hidden), data.num_features, labels))
        A = job.operator(data, model.adjacency)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        losses = []
        for epoch in range(1, epochs + 1):
            model.train()
            optimizer.zero_grad()
            out = model(A, data.x, Noise(seed=0, epoch=epoch))  # dropout by vertex: the same on any grid
            loss = F.cross_entropy(out[data.train_mask], data.y[data.train_mask], label_smoothing=0.1)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        model.eval()
        with torch.no_grad():
            pred = model(A, data.x).argmax(dim=-1)
        mask = data.test_mask
        accuracy = int((pred[mask] == data.y[mask]).sum()) / int(mask.sum())
        if job.rank == 0:
            print(f"loss {losses[0]:.4f} to {losses[-1]:.4f}, test accuracy {accuracy:.3f}")
        return losses, accuracy


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--graph", default="sbm:nodes=2000,classes=4")
    parser.add_argument("--strategy", default="halo")
    parser.add_argument("--grid", default="")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--hidden", type=int, default=16)
    main(**vars(parser.parse_args()))
