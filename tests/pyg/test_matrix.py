"""A sparse matrix in place of edge_index: `adj_t` on ranks, as in one process or refused."""

from __future__ import annotations

import pytest
import torch
import torch_geometric.nn as g
import torch_geometric.transforms as T
from torch import nn
from torch_geometric.utils import to_edge_index

from weft.comm import Ledger, run_ranks
from weft.errors import UserError
from weft.pyg import Refused, ranks

from .compare import TOLERANCE, worst
from .graphs import CLASSES, WIDTH, N, directed

# What torch says, once a process, when it makes a matrix in torch.sparse_csr.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse")


def adjacent(weighted: bool = True):
    """The directed graph with adj_t in place of edge_index."""
    d = directed()
    d.edge_index, d.edge_weight = d.edge_index[:, :80].unique(dim=1), None
    for key in ("edge_attr", "edge_type", "pseudo", "pos_edge_index", "neg_edge_index", "mesh_index"):
        del d[key]
    del d["sorted_edge_index"], d["edge_weight"]
    if weighted:
        d.edge_weight = torch.linspace(0.1, 2.0, d.edge_index.shape[1], dtype=torch.float64)
    d = T.ToSparseTensor()(d)
    d.adj_t = d.adj_t.double()
    return d


class Deep(nn.Module):
    """As PyG's script for GCN2 has it."""

    def __init__(self):
        super().__init__()
        self.lins = nn.ModuleList([nn.Linear(WIDTH, 5), nn.Linear(5, CLASSES)])
        self.convs = nn.ModuleList(g.GCN2Conv(5, 0.1, 0.5, k + 1, normalize=False) for k in range(3))

    def forward(self, x, adj_t):
        x = x0 = self.lins[0](x).relu()
        for conv in self.convs:
            x = conv(x, x0, adj_t).relu()
        return self.lins[1](x)


MODULES = {
    "gcn2": Deep,
    "gcn, not normalised": lambda: g.GCNConv(WIDTH, CLASSES, normalize=False),
    "sage": lambda: g.SAGEConv(WIDTH, CLASSES),
    "sage, max": lambda: g.SAGEConv(WIDTH, CLASSES, aggr="max"),
    "gin": lambda: g.GINConv(nn.Linear(WIDTH, CLASSES)),
    "graph conv": lambda: g.GraphConv(WIDTH, CLASSES),
    "gated": lambda: g.ResGatedGraphConv(WIDTH, CLASSES),
    "lightgcn, not normalised": lambda: g.LGConv(normalize=False),
}


@pytest.mark.parametrize("count", [2, 5])
@pytest.mark.parametrize("name", MODULES)
def test_a_module_on_a_sparse_matrix_is_that_of_one_process(name, count):
    torch.manual_seed(6)
    assert worst(MODULES[name](), lambda m, d: m(d.x, d.adj_t), adjacent(), count=count) < TOLERANCE


def test_a_matrix_without_weights_and_products_by_hand():
    def call(model, d):
        return model(d.adj_t @ d.x + torch.sparse.mm(d.adj_t, d.x0) + d.adj_t.mm(d.x))

    assert worst(nn.Linear(WIDTH, CLASSES), call, adjacent(weighted=False)) < TOLERANCE


def test_the_entries_of_a_matrix_are_an_edge_index_and_its_values():
    def entries(d):
        index, values = to_edge_index(d.adj_t)
        out = d.x.new_zeros(d.x.size(0), WIDTH)
        return out.index_add(0, index[0], d.x[index[1]] * values.view(-1, 1))

    def work(comm):
        with ranks(comm) as job:
            return job.collect(entries(job.share(adjacent(), "random")))

    for found in run_ranks(work, 3, "threads"):
        torch.testing.assert_close(found, entries(adjacent()), rtol=1e-12, atol=1e-12)


def test_a_product_moves_the_rows_that_its_arcs_read():
    data = adjacent()
    starts = data.adj_t.crow_indices()
    target = torch.arange(N).repeat_interleave(starts.diff())
    read = {(int(t) // 8, int(s)) for s, t in zip(data.adj_t.col_indices(), target, strict=True)}
    away = sum(owner != s // 8 for owner, s in read)  # blocks of 8, 8 and 7 vertices

    def work(comm):
        with ranks(comm) as job:
            mine = job.share(data)
            with Ledger(comm) as ledger:
                torch.sparse.mm(mine.adj_t, mine.x)
            return ledger.words()

    assert sum(run_ranks(work, 3, "threads")) == away * WIDTH


REFUSED = {
    "turned": lambda d: d.adj_t.t() @ d.x,
    "summed": lambda d: d.adj_t.sum(),
    "from the left": lambda d: d.x.t() @ d.adj_t,
    "added to": lambda d: d.adj_t + d.adj_t,
    "made dense": lambda d: d.adj_t.to_dense(),
    "normalised, which makes another": lambda d: g.GCNConv(WIDTH, 2).double()(d.x, d.adj_t),
    "with rows of arcs": lambda d: d.adj_t @ to_edge_index(d.adj_t)[1].view(-1, 1),
    "its starts as numbers": lambda d: d.adj_t.crow_indices().tolist(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_nobody_knows_of_a_matrix_is_refused(name):
    def work(comm):
        with ranks(comm) as job:
            REFUSED[name](job.share(adjacent(), "random"))

    with pytest.raises(Refused):
        run_ranks(work, 2, "threads")


def of(**changes):
    d = adjacent()
    for key, value in changes.items():
        d[key] = value(d)
    return d


WRONG = {
    "of another layout": (lambda: of(adj_t=lambda d: d.adj_t.to_sparse_coo()), "layout torch.sparse_coo"),
    "of other vertices": (
        lambda: of(adj_t=lambda d: torch.eye(5).to_sparse_csr()),
        "has 5 rows, but data has 23",
    ),
    "of features": (lambda: of(x=lambda d: d.x.to_sparse_csr()), "data.x is sparse"),
}


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("name", WRONG)
def test_a_matrix_that_is_not_shared_is_one_line(name, count):
    make, words = WRONG[name]

    def work(comm):
        with ranks(comm) as job:
            job.share(make())

    with pytest.raises(UserError, match=words):
        run_ranks(work, count, "threads")


def test_one_rank_has_the_matrix_itself():
    def work(comm):
        with ranks(comm) as job:
            return job.share(adjacent()).adj_t

    assert torch.equal(run_ranks(work, 1, "threads")[0].to_dense(), adjacent().adj_t.to_dense())
