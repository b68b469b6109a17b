"""Several types of vertices and relations on virtual ranks: what one process gives."""

from __future__ import annotations

import copy

import pytest
import torch
import torch_geometric.nn as g
from torch import nn
from torch_geometric.data import HeteroData

import weft
from weft.comm import run_ranks
from weft.errors import UserError
from weft.pyg import ranks
from weft.pyg.space import here

from .compare import TOLERANCE, difference, objective

RELATIONS = [("user", "likes", "item"), ("item", "of", "user"), ("user", "knows", "user")]


def shop(seed: int = 0) -> HeteroData:
    draw = torch.Generator().manual_seed(seed)
    data = HeteroData()
    for kind, n, width in (("user", 17, 5), ("item", 11, 3)):
        data[kind].x = torch.randn(n, width, generator=draw, dtype=torch.float64)
        data[kind].y = torch.randint(3, (n,), generator=draw)
    for relation, arcs in zip(RELATIONS, (40, 31, 25), strict=True):
        sizes = data[relation[0]].num_nodes - 1, data[relation[2]].num_nodes - 1  # the last ones are alone
        data[relation].edge_index = torch.stack([torch.randint(n, (arcs,), generator=draw) for n in sizes])
    data[RELATIONS[0]].edge_attr = torch.randn(40, 2, generator=draw, dtype=torch.float64)
    return data


class Convs(nn.Module):
    """Two layers of HeteroConv, of several kinds."""

    def __init__(self):
        super().__init__()
        likes, of, knows = RELATIONS
        self.first = g.HeteroConv({
            likes: g.GATConv((5, 3), 4, add_self_loops=False, edge_dim=2), of: g.SAGEConv((3, 5), 4),
            knows: g.GCNConv(5, 4),
        }, aggr="sum")  # fmt: skip
        self.second = g.HeteroConv(
            {likes: g.SAGEConv((4, 4), 3), of: g.GraphConv((4, 4), 3), knows: g.GATConv(4, 3)}, aggr="mean"
        )

    def forward(self, data):
        more = {"edge_attr_dict": {RELATIONS[0]: data[RELATIONS[0]].edge_attr}}
        h = self.first(data.x_dict, data.edge_index_dict, **more)
        return self.second({kind: x.relu() for kind, x in h.items()}, data.edge_index_dict)


class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = g.SAGEConv((-1, -1), 4), g.SAGEConv((-1, -1), 3)

    def forward(self, x, edge_index):
        return self.conv2(self.conv1(x, edge_index).relu(), edge_index)


class Converted(nn.Module):
    """What `to_hetero` makes of a model for one type."""

    def __init__(self, data):
        super().__init__()
        self.inside = g.to_hetero(Plain().double(), data.metadata())
        with torch.no_grad():
            self.inside(data.x_dict, data.edge_index_dict)  # its weights take their shape

    def forward(self, data):
        return self.inside(data.x_dict, data.edge_index_dict)


class Transformers(nn.Module):
    """HGTConv puts the vertices of all types in one row, and the arcs of all relations; twice."""

    def __init__(self):
        super().__init__()
        meta = ["user", "item"], RELATIONS
        self.first = g.HGTConv({"user": 5, "item": 3}, 6, meta, heads=2)
        self.second = g.HGTConv(6, 3, meta)

    def forward(self, data):
        return self.second(self.first(data.x_dict, data.edge_index_dict), data.edge_index_dict)


def results(model, data, collect):
    for kind in data.node_types:
        data[kind].x.requires_grad_()
    out = model(data)
    sum(objective(out[kind]) for kind in sorted(out)).backward()
    rows = [collect(out[kind]) for kind in sorted(out)]
    rows += [collect(data[kind].x.grad) for kind in sorted(data.node_types)]
    return [*rows, *(p.grad for p in model.parameters())]


def on_ranks(comm, models, data):
    with ranks(comm) as job:
        shared = job.share(data, "random")
        return results(job.wrap(models[comm.rank]), shared, job.collect)


MAKE = {
    "HeteroConv": lambda data: Convs().double(),
    "to_hetero": Converted,
    "HGTConv": lambda data: Transformers().double(),
}


@pytest.mark.parametrize("count", [3, 5])
@pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)
def test_a_model_of_several_types_is_that_of_one_process(make, count):
    torch.manual_seed(1)
    model = make(shop())
    models = [copy.deepcopy(model) for _ in range(count)]
    want = results(model, shop(), lambda x: x.detach())
    for found in run_ranks(on_ranks, count, "threads", models, shop()):
        assert len(found) == len(want)
        assert max(difference(a, b) for a, b in zip(found, want, strict=True)) < TOLERANCE


def test_every_type_is_cut_by_itself_and_mistakes_are_one_line():
    def share(comm, data, partition):
        with weft.ranks(comm) as job:
            mine = job.share(data, partition)
            return [here(mine[kind].x.size(0)) for kind in ("user", "item")], [
                mine[relation].edge_index.shape[1] * 1.0 for relation in RELATIONS
            ]

    assert [rows for rows, _ in run_ranks(share, 3, "threads", shop(), "block")] == [[6, 4], [6, 4], [5, 3]]
    with pytest.raises(UserError, match="partition 'metis' is for one type of vertices"):
        run_ranks(share, 2, "threads", shop(), "metis")
    wrong = shop()
    wrong[RELATIONS[1]].edge_index[0, 0] = 11
    with pytest.raises(UserError, match="names vertex 11, but data has 11 vertices"):
        run_ranks(share, 2, "threads", wrong, "block")


def together(comm, data):
    """Relations of one type put together, read after an offset, and cut again."""
    with weft.ranks(comm) as job:
        mine = job.share(data, "random")
        user, item = mine["user"].x[:, :3], mine["item"].x
        likes, of = mine[RELATIONS[0]].edge_index, mine[RELATIONS[1]].edge_index
        both = torch.cat([user, item])
        edges = torch.cat([torch.stack([likes[0], likes[1] + user.size(0)]), of], 1)
        # `of` begins at items: its sources were not moved, so they name no row of `both`.
        right = torch.cat([likes[0], of[0] + user.size(0)])
        rows = [
            job.collect(both[right]),
            job.collect(both[user.size(0) :]),
            job.collect(both[: user.size(0)]),
        ]
        sums = torch.zeros_like(both).index_add(0, edges[1], both[right])
        rows += [job.collect(sums[: user.size(0)]), job.collect(sums[user.size(0) :])]
        away = torch.zeros_like(both).index_add(0, right, both[edges[1]])  # into rows of other ranks
        rows += [job.collect(away[: user.size(0)]), job.collect(away[user.size(0) :])]
        refused = []
        for wrong in (
            lambda: both[edges[0]],
            lambda: both[1:],
            lambda: edges[:, :][:, both[right][:, 0] > 0],
        ):
            with pytest.raises(UserError) as error:
                wrong()
            refused.append(str(error.value))
        return rows, refused


def test_vertices_of_two_types_in_one_row_are_read_where_an_offset_says_and_nowhere_else():
    data = shop()
    user, item = data["user"].x[:, :3], data["item"].x
    likes, of = data[RELATIONS[0]].edge_index, data[RELATIONS[1]].edge_index
    both, right = torch.cat([user, item]), torch.cat([likes[0], of[0] + 17])
    into = torch.cat([likes[1] + 17, of[1]])
    sums = torch.zeros_like(both).index_add(0, into, both[right])
    away = torch.zeros_like(both).index_add(0, right, both[into])
    want = [both[right], item, user, sums[:17], sums[17:], away[:17], away[17:]]
    for rows, refused in run_ranks(together, 3, "threads", data):
        assert all(difference(a, b) < TOLERANCE for a, b in zip(rows, want, strict=True))
        assert "by numbers, and on ranks these are not row numbers" in refused[0]
        assert "by their place" in refused[1]
        assert "several kinds" in refused[2]


def test_types_in_disorder_are_refused_by_the_module_that_wants_them_sorted():
    torch.manual_seed(0)
    model = g.HGTConv({"user": 5, "item": 3}, 4, (["user", "item"], RELATIONS)).double()

    def run(comm, data):
        with weft.ranks(comm) as job:
            mine = job.share(data)
            arcs = {relation: mine[relation].edge_index for relation in reversed(RELATIONS)}
            job.wrap(copy.deepcopy(model))(mine.x_dict, arcs)

    with pytest.raises(UserError, match=r"HeteroLinear \(k_rel\): is_sorted is set, and types are not"):
        run_ranks(run, 2, "threads", shop())
