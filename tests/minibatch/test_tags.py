"""Layers in P-TAGS form against dense algebra: forward and every gradient."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.errors import UserError
from weft.graph import Graph, normalise
from weft.minibatch import Batch, Hop, Sampler, Stack, Topology, tags_of
from weft.nn import GINLayer, ModelConfig, build

N, FEATURES, HIDDEN, CLASSES = 29, 5, 16, 3


def graph() -> Graph:
    g = torch.Generator().manual_seed(3)
    source, target = torch.randint(N, (2, 5 * N), generator=g)
    keep = target % 6 != 1  # some vertices read nobody
    return Graph.from_arcs(source[keep], target[keep], N)


def dense(how: str, loops: bool = False) -> Tensor:
    made = graph().with_self_loops() if loops else normalise(graph(), how, torch.float64)
    a = torch.zeros(N, N, dtype=torch.float64)
    values = 1.0 if made.weights is None else made.weights
    a[made.rows, made.indices.long()] = values
    return a


def gcn(a: Tensor, h: Tensor, layer: nn.Module) -> Tensor:
    return a @ h @ layer.weight + layer.bias


def sage(a: Tensor, h: Tensor, layer: nn.Module) -> Tensor:
    return h @ layer.weight_self + a @ h @ layer.weight_near + layer.bias


def gat(a: Tensor, h: Tensor, layer: nn.Module) -> Tensor:
    heads, out = layer.attend_row.shape
    z = (h @ layer.weight).view(N, heads, out)
    row, column = (z * layer.attend_row).sum(2), (z * layer.attend_column).sum(2)
    scores = F.leaky_relu(row[:, None] + column[None], 0.2).masked_fill((a == 0)[:, :, None], -torch.inf)
    y = torch.einsum("ijh,jho->iho", scores.softmax(1), z)
    y = y.mean(1) if layer.average else y.reshape(N, -1)
    return y + layer.bias


TRUTH = {"gcn": (gcn, dense("gcn")), "sage": (sage, dense("mean")), "gat": (gat, dense("none", loops=True))}


@pytest.mark.parametrize("compact", [True, False])
@pytest.mark.parametrize("name", TRUTH)
def test_full_neighbourhoods_give_the_dense_model_and_its_gradients(name, compact):
    """Once with the rows copied out, once reading the features in place."""
    config = ModelConfig(name, layers=2, hidden=HIDDEN, dropout=0.0, activation="relu")
    config.heads, config.output_heads = (8, 3) if name == "gat" else (1, 1)
    model = build(config, FEATURES, CLASSES, seed=5).double()
    g = torch.Generator().manual_seed(1)
    for p in model.parameters():
        with torch.no_grad():
            p.copy_(torch.randn(p.shape, generator=g, dtype=torch.float64))
    x = torch.randn(N, FEATURES, generator=g, dtype=torch.float64)
    seeds = torch.tensor([7, 1, 28, 13])
    stack = Stack(model)
    topology = Topology.read(graph(), stack.reads, dtype=torch.float64)
    batch = Batch(0, seeds, 4, Sampler(topology, [-1, -1], seed=0).blocks(seeds, 0))
    block = batch.blocks[0]
    hop = Hop.compact(block) if compact else Hop.direct(block, N)
    ours = stack.rest(stack.partial(hop, x[block.sources.long()] if compact else x, 0, lambda t: t), batch, 0)
    dy = torch.randn(4, CLASSES, generator=g, dtype=torch.float64)
    ours.backward(dy)
    got = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()

    layer, a = TRUTH[name]
    want = layer(a, F.relu(layer(a, x, model.layers[0])), model.layers[1])[seeds]
    assert torch.allclose(ours, want, rtol=1e-10, atol=1e-10)
    want.backward(dy)
    for key, p in model.named_parameters():
        assert torch.allclose(got[key], p.grad, rtol=1e-9, atol=1e-9), key


def test_parts_of_the_columns_add_up_to_the_whole():
    """What sync relies on: partial results of cut features and weights sum to the result."""
    model = build(ModelConfig("sage", layers=2, hidden=6), FEATURES, CLASSES, seed=5).double()
    stack = Stack(model)
    sampler = Sampler(Topology.read(graph(), stack.reads, dtype=torch.float64), [3, 2], seed=0)
    block = sampler.blocks(torch.tensor([3, 4]), 0)[0]
    x = torch.randn(N, FEATURES, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    hop = Hop.direct(block, N)
    whole = stack.partial(hop, x, 0, lambda t: t)
    parts = [stack.slice(a, b).partial(hop, x[:, a:b].contiguous(), a, lambda t: t)
             for a, b in ((0, 2), (2, 2), (2, 5))]  # fmt: skip
    assert torch.allclose(sum(parts), whole, rtol=1e-12)
    assert not torch.allclose(parts[0] + parts[2] + parts[2], whole)


def test_a_layer_that_is_not_written_for_batches_is_refused_in_one_line():
    with pytest.raises(UserError) as caught:
        tags_of(GINLayer(3, 2))
    assert str(caught.value) == (
        "GINLayer is not written for mini-batches yet; these are: gat, gcn, sage, sgc. "
        "Use one, or --batch-size 0."
    )
