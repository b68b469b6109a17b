"""Layer by layer, some vertices at a time, on ranks: what the whole graph gives at once."""

from __future__ import annotations

import pytest
import torch

from weft.comm import run_ranks
from weft.errors import UserError
from weft.graph import load
from weft.kernels.sampling import ALL
from weft.minibatch import Sampler, Topology, reads_of
from weft.minibatch.layerwise import Pages, Scroll, fill, infer
from weft.nn import ModelConfig, build
from weft.nn.layer import data_of
from weft.parallel import Blocks, ByBlocks, Grid, Operator

from ..train.graphs import small

MODELS = {
    "gcn": ModelConfig("gcn", hidden=8, layers=3, residual=True, layer_norm=True, dropout=0.5),
    "sgc": ModelConfig("sgc", hidden=8),
    "sage": ModelConfig("sage", hidden=6),
    "gat": ModelConfig("gat", hidden=6),
}


def by_layers(comm, graph, model, memory):
    parts = torch.arange(graph.num_nodes) * 7 % 5 % comm.size
    blocks = Blocks.of_parts(parts, Grid(comm.size))
    owners = ByBlocks(blocks)
    arcs = Topology.read(
        graph, reads_of(model), comm, blocks, [comm.rank] if comm.size > 1 else None, torch.float64
    )
    mine = owners.own(comm.rank)
    x = fill(mine.numel(), graph.num_features, torch.float64, lambda piece: graph.features[mine[piece]])
    make = lambda hops: Sampler(arcs, [ALL] * hops, 0, owners=owners, comm=comm)  # noqa: E731
    pages = Pages(make(1), owners, comm, memory)
    steps = len(pages._pieces(x, x, 8))
    embedding, out = infer(model, x, make, owners, comm, memory)
    return mine, embedding.rows, out.rows, steps


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("ranks", [1, 3])
def test_rows_are_those_of_the_whole_graph(name, ranks):
    graph = small(nodes=61)
    torch.manual_seed(1)
    model = build(MODELS[name], graph.num_features, 4).double().eval()
    whole = Operator.build(
        graph, *_alone(), model.adjacency, "dense", None, torch.float64, data=data_of(model.layers)
    )
    embedding, logits = model.embed(whole, graph.features.double())
    models = [build(MODELS[name], graph.num_features, 4).double() for _ in range(ranks)]
    for each in models:
        each.load_state_dict(model.state_dict())
    memory = 15_000 if ranks == 1 else 7_500
    found = run_ranks(lambda comm: by_layers(comm, graph, models[comm.rank], memory), ranks, "threads")
    for mine, hidden, out, steps in found:
        assert steps > 1  # else the memory was never short
        torch.testing.assert_close(hidden, embedding.detach()[mine], rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(out, logits.detach()[mine], rtol=1e-12, atol=1e-12)


def _alone():
    from weft.comm.threads import single

    return single(), Grid(1)


def test_a_step_stays_within_its_memory_or_is_refused():
    graph = load("karate")
    owners = ByBlocks(Blocks.even(34, Grid(1)))
    model = build(ModelConfig("sage", hidden=4), 34, 2)
    arcs = Topology.read(graph, reads_of(model))
    sampler = Sampler(arcs, [ALL], 0)
    h, out = Scroll(34, 34, torch.float32), Scroll(34, 4, torch.float32)
    comm = _alone()[0]
    pages = Pages(sampler, owners, comm, 4000)
    pieces = pages._pieces(h, out, 8)
    assert [begin for begin, _ in pieces][1:] == [end for _, end in pieces][:-1]
    assert pieces[-1][1] == 34
    for begin, end in pieces:
        read = sampler.blocks(torch.arange(begin, end, dtype=torch.int32), 0)[0].sources.numel()
        assert read * 34 * 4 <= 4000
    with pytest.raises(UserError, match=r"vertex 0 reads 17 rows, which take .* bytes; 3,000 may be used"):
        Pages(sampler, owners, comm, 3000)._pieces(h, out, 8)
