"""Losses, accuracies and gradients of plain scripts: those of one process, or refused."""

from __future__ import annotations

import copy

import pytest
import torch
import torch_geometric.nn as g
import torch_geometric.utils as u
from torch.nn import functional

from weft.comm import run_ranks
from weft.errors import UserError
from weft.pyg import Refused, ranks

from .graphs import CLASSES, WIDTH, directed

RANKS = 3
F = functional
CLASS_WEIGHTS = torch.tensor([0.5, 2.0, 1.0, 0.3], dtype=torch.float64)


def target(d):
    return d.x0[:, :CLASSES]


LOSSES = {
    "cross entropy": lambda o, d: F.cross_entropy(o, d.y),
    "of a mask": lambda o, d: F.cross_entropy(o[d.train_mask], d.y[d.train_mask]),
    "of a mask of its own": lambda o, d: F.cross_entropy(o[d.y > 1], d.y[d.y > 1]),
    "of an index of a mask": lambda o, d: F.cross_entropy(
        o[d.train_mask.nonzero().view(-1)], d.y[d.train_mask]
    ),
    "weighted": lambda o, d: F.cross_entropy(o, d.y, weight=CLASS_WEIGHTS),
    "smoothed": lambda o, d: F.cross_entropy(o, d.y, label_smoothing=0.1),
    "ignoring": lambda o, d: F.cross_entropy(o, d.y, ignore_index=1),
    "of distributions": lambda o, d: F.cross_entropy(o, target(d).softmax(-1)),
    "summed": lambda o, d: F.cross_entropy(o, d.y, reduction="sum"),
    "each, and then the mean": lambda o, d: F.cross_entropy(o, d.y, reduction="none").mean(),
    "nll": lambda o, d: F.nll_loss(o.log_softmax(dim=-1)[d.train_mask], d.y[d.train_mask]),
    "a module": lambda o, d: torch.nn.CrossEntropyLoss()(o, d.y),
    "mse": lambda o, d: F.mse_loss(o, target(d)),
    "l1": lambda o, d: F.l1_loss(o[d.train_mask], target(d)[d.train_mask]),
    "smooth l1": lambda o, d: F.smooth_l1_loss(o, target(d)),
    "bce": lambda o, d: F.binary_cross_entropy(o.sigmoid(), target(d).sigmoid()),
    "bce with logits": lambda o, d: F.binary_cross_entropy_with_logits(o, (target(d) > 0).double()),
    "kl, batchmean": lambda o, d: F.kl_div(o.log_softmax(-1), target(d).softmax(-1), reduction="batchmean"),
    "mean over a dim, then the other": lambda o, d: (o**2).mean(dim=1).mean(),
    "sum over the count": lambda o, d: (o**2).sum() / o.size(0),
    "sum over one less": lambda o, d: (o**2).sum() / (o.shape[0] - 1),
    "sum over the numbers": lambda o, d: (o**2).sum() / o.numel(),
    "sum over how many a mask has": lambda o, d: (o[d.train_mask] ** 2).sum() / d.train_mask.sum(),
    "pooled": lambda o, d: F.cross_entropy(o.mean(dim=0, keepdim=True), torch.tensor([2])),
    "pooled by PyG": lambda o, d: (g.global_add_pool(o, None) ** 2).sum(),
    "pooled by batch": lambda o, d: (g.global_mean_pool(o, d.node_type) ** 2).sum(),
    "largest": lambda o, d: o.max() + o.amax(dim=0).sum() - o.min(),
    "spread": lambda o, d: o.std(dim=0).sum() + o.var() + o.norm(),
    "products of rows": lambda o, d: (o.t() @ o).square().sum() + torch.einsum("ni,nj->ij", o, o).sum(),
    "first axis": lambda o, d: (o.t() @ target(d)).softmax(dim=0)[0].sum(),
    "with a penalty": lambda o, d: F.cross_entropy(o, d.y) + 0.1 * sum((p**2).sum() for p in d.weights),
    "arcs": lambda o, d: F.softplus((o[d.edge_index[0]] * o[d.edge_index[1]]).sum(-1)).mean(),
}


def step(model, data, loss):
    data.weights = list(model.parameters())
    value = loss(model(data.x, data.edge_index), data)
    value.backward()
    return value.item(), [p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize("name", LOSSES)
def test_a_loss_is_that_of_one_process_and_so_are_its_gradients(name):
    torch.manual_seed(3)
    model = g.GCNConv(WIDTH, CLASSES).double()
    models = [copy.deepcopy(model) for _ in range(RANKS)]
    value, gradients = step(model, directed(), LOSSES[name])

    def work(comm):
        with ranks(comm) as job:
            return step(job.wrap(models[comm.rank]), job.share(directed(), "random"), LOSSES[name])

    for mine, grads in run_ranks(work, RANKS, "threads"):
        assert mine == pytest.approx(value, rel=1e-11)
        for a, b in zip(grads, gradients, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def shared(do):
    def work(comm):
        with ranks(comm) as job:
            return do(job, job.share(directed(), "random"))

    return run_ranks(work, RANKS, "threads")


def test_counts_and_accuracies_are_of_all_rows():
    whole = directed()
    right = int((whole.x[:, :4].argmax(dim=1) == whole.y)[whole.train_mask].sum())

    def ask(job, d):
        pred = d.x[:, :4].argmax(dim=1)
        hits = (pred[d.train_mask] == d.y[d.train_mask]).sum()
        return [
            int(hits), int(d.train_mask.sum()), (pred == d.y).float().mean().item(),
            hits.item() / d.y.size(0), int(d.y.max()) + 1, bool((d.y == 3).any()),
            *d.y.bincount().tolist(), float(job.mean(d.x[:, 0])),
            1 / d.num_nodes,
        ]  # fmt: skip

    for found in shared(ask):
        n = whole.num_nodes
        assert found == pytest.approx([
            right, int(whole.train_mask.sum()), float((whole.x[:, :4].argmax(1) == whole.y).float().mean()),
            right / n, 4, True, *whole.y.bincount().tolist(), float(whole.x[:, 0].mean()), 1 / n,
        ])  # fmt: skip


REFUSALS = {
    "argmax over rows": lambda d: d.x.argmax(dim=0),
    "sorted rows": lambda d: d.x.sort(dim=0),
    "the largest rows": lambda d: d.x[:, 0].topk(3),
    "running sums": lambda d: d.x.cumsum(0),
    "softmax over rows": lambda d: d.x.softmax(dim=0),
    "the first rows": lambda d: d.x[:5],
    "one row": lambda d: d.x[3],
    "rows by numbers of two dims": lambda d: d.x[torch.tensor([[0, 4]])],
    "all pairs": lambda d: d.x @ d.x.t(),
    "distances of all pairs": lambda d: torch.cdist(d.x, d.x),
    "this rank's numbers": lambda d: d.x.tolist(),
    "numpy": lambda d: d.y.numpy(),
    "length": lambda d: len(d.x),
    "rows of two spaces": lambda d: d.x[d.train_mask] + d.x,
    "vertices and arcs": lambda d: d.x[:, 0] + d.edge_weight,
    "arithmetic with numbers": lambda d: d.edge_index[0] * 23 + d.edge_index[1],
    "a table of all vertices": lambda d: torch.zeros(23, 2)[d.edge_index[0]],
    "a loss against what is not shared": lambda d: functional.cross_entropy(
        d.x, torch.zeros(9, dtype=torch.long)
    ),
    "softmax over who knows what": lambda d: functional.softmax(d.history, dim=None, _stacklevel=5),
    "the median of all": lambda d: d.x.median(),
    "columns of bounded norm": lambda d: d.x.renorm(2, 1, 1.0),
    "the spectral norm": lambda d: torch.linalg.norm(d.x, 2),
    "where a mask holds": lambda d: torch.where(d.train_mask),
    "quantiles": lambda d: torch.quantile(d.x, 0.5),
    "a backward of rows": lambda d: (d.x * torch.ones(1, requires_grad=True).double()).backward(),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_would_be_this_ranks_only_is_refused(name):
    with pytest.raises(Refused):
        shared(lambda job, d: REFUSALS[name](d))


WRONG_ANYWHERE = {
    "rows of two spaces", "vertices and arcs", "a backward of rows", "a loss against what is not shared",
    "softmax over who knows what",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(REFUSALS.keys() - WRONG_ANYWHERE))
def test_on_one_rank_it_is_the_plain_program(name):
    def work(comm):
        with ranks(comm) as job:
            REFUSALS[name](job.share(directed()))

    run_ranks(work, 1, "threads")


def weighted(edge_index, weight, x):
    """Σ over arcs of weight · x_source at each target: what an edge_index is for, as one tensor."""
    return u.scatter(weight.view(-1, 1) * x[edge_index[0]], edge_index[1], 0, x.size(0))


UTILITIES = {
    "loops, unnumbered": lambda d: weighted(*u.add_self_loops(d.edge_index, d.edge_weight, 2.0), d.x),
    "loops, of means": lambda d: weighted(*u.add_self_loops(d.edge_index, d.edge_weight, "mean"), d.x),
    "loops that remain": lambda d: weighted(*u.add_remaining_self_loops(d.edge_index, d.edge_weight), d.x),
    "without loops": lambda d: weighted(*u.remove_self_loops(d.edge_index, d.edge_weight), d.x),
    "attributes of loops": lambda d: u.get_self_loop_attr(d.edge_index, d.edge_weight, d.num_nodes),
    "softmax, unnumbered": lambda d: u.softmax(d.edge_weight, d.edge_index[1]),
    "softmax by source": lambda d: u.softmax(d.edge_weight, d.edge_index[0], num_nodes=d.num_nodes),
    "out-degrees": lambda d: u.degree(d.edge_index[0], d.num_nodes, dtype=torch.double),
    "in-degrees, in place": lambda d: u.degree(d.edge_index[1], d.num_nodes).pow_(-0.5).clamp_(max=2),
    "a subgraph": lambda d: weighted(*u.subgraph(d.train_mask, d.edge_index, d.edge_weight), d.x),
    "the laplacian": lambda d: weighted(*u.get_laplacian(d.edge_index, d.edge_weight, "sym"), d.x),
    "upper arcs": lambda d: d.edge_weight * (d.edge_index[0] < d.edge_index[1]),
    "labels of sources": lambda d: d.y[d.edge_index[0]] == d.y[d.edge_index[1]],
    "each number of a row": lambda d: d.x[torch.arange(d.num_nodes), d.y],
    "one-hot labels": lambda d: F.one_hot(d.y) @ torch.arange(4.0).double().diag().long(),
    "rows set by a mask": lambda d: d.x.masked_fill(d.train_mask.view(-1, 1), 0.5),
}
RANDOM_UTILITIES = {
    "arcs": lambda d: u.dropout_edge(d.edge_index),
    "vertices": lambda d: u.dropout_node(d.edge_index),
    "features of arcs": lambda d: u.mask_feature(d.x, mode="row"),
    "negative arcs": lambda d: u.negative_sampling(d.edge_index),
    "undirected": lambda d: u.to_undirected(d.edge_index),
    "coalesced": lambda d: u.coalesce(d.edge_index),
    "positions": lambda d: torch.arange(int(d.edge_index.max()) + 1) / 23.0,
}


@pytest.mark.parametrize("name", UTILITIES)
def test_a_utility_of_pyg_is_that_of_one_process(name):
    data = directed()
    data.edge_index[0, 7] = data.edge_index[1, 8] = data.num_nodes - 1  # the last vertex has arcs

    def work(comm):
        with ranks(comm) as job:
            return job.collect(UTILITIES[name](job.share(data, "random")))

    want = UTILITIES[name](data)
    for found in run_ranks(work, RANKS, "threads"):
        torch.testing.assert_close(found, want, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", RANDOM_UTILITIES)
def test_a_utility_that_draws_or_numbers_is_refused(name):
    with pytest.raises(Refused):
        shared(lambda job, d: RANDOM_UTILITIES[name](d))


def test_vertices_after_the_last_arc_which_one_process_would_leave_out_are_noticed():
    with pytest.raises(Refused, match=r"is 21, and there are 23 vertices.* Give num_nodes"):
        shared(lambda job, d: u.add_self_loops(d.edge_index))


def test_gradients_add_up_over_several_backwards_and_unused_weights_have_none():
    def work(comm):
        with ranks(comm) as job:
            d = job.share(directed(), "random")
            weight = torch.ones(
                WIDTH, dtype=torch.float64, requires_grad=True
            )  # not wrapped: found all the same
            unused = job.wrap(torch.nn.Linear(2, 2))
            for _ in range(2):
                (d.x * weight).sum().backward()
            found = torch.autograd.grad((d.x * weight).mean(), weight)[0]
            return weight.grad, found, unused.weight.grad

    x = directed().x
    for twice, mean, none in run_ranks(work, RANKS, "threads"):
        torch.testing.assert_close(twice, 2 * x.sum(0))
        torch.testing.assert_close(mean, x.sum(0) / x.numel())
        assert none is None


def test_results_are_collected_in_the_order_of_one_process():
    whole = directed()

    def ask(job, d):
        return (
            job.collect(d.x), job.collect(d.x[d.train_mask]), job.collect(d.edge_weight),
            job.collect(d.y[None]), job.collect(d.x.sum()),
        )  # fmt: skip

    for rows, some, arcs, turned, single in shared(ask):
        assert torch.equal(rows, whole.x)
        assert torch.equal(some, whole.x[whole.train_mask])
        assert torch.equal(arcs, whole.edge_weight)
        assert torch.equal(turned, whole.y[None])
        torch.testing.assert_close(single, whole.x.sum())


def test_one_exchange_serves_all_reads_of_a_tensor_and_features_travel_once():
    from weft.comm import Ledger

    model = [g.GATv2Conv(WIDTH, CLASSES).double() for _ in range(RANKS)]

    def work(comm):
        with ranks(comm) as job:
            d, mine = job.share(directed(), "random"), job.wrap(model[comm.rank], fast=False)
            words = []
            for _ in range(3):
                with Ledger(comm) as books, torch.no_grad():
                    d.x[d.edge_index[0]] + d.x.index_select(0, d.edge_index[0])
                    mine(d.x, d.edge_index)
                words.append(books.words("pull"))
            d.x.add_(1)  # other numbers: sent again
            with Ledger(comm) as books:
                d.x[d.edge_index[0]]
            halo = d.edge_index.__dict__["_weft_tag"].names[0].halo
            return words, halo.ids.numel(), books.words("pull")

    for words, halo, again in run_ranks(work, RANKS, "threads"):
        assert words == [halo * (WIDTH + CLASSES), halo * CLASSES, halo * CLASSES]
        assert again == halo * WIDTH


def test_as_many_rows_travel_as_the_partition_says():
    from weft.comm import Ledger
    from weft.graph import Graph
    from weft.parallel import Blocks, Grid
    from weft.partition import measure

    def work(comm):
        with ranks(comm) as job:
            d = job.share(directed(), "random")
            with Ledger(comm) as books:
                d.x[d.edge_index[0]]
            return books.words("pull"), job._seed

    found = run_ranks(work, RANKS, "threads")
    edges = directed().edge_index
    graph = Graph.from_arcs(edges[0], edges[1], 23)
    parts = Blocks.even(23, Grid(RANKS), found[0][1]).parts
    assert sum(words for words, _ in found) == measure(graph, parts, RANKS).volume_total * WIDTH


def test_a_graph_that_differs_from_rank_to_rank_or_does_not_fit_is_refused():
    def differs(comm):
        with ranks(comm) as job:
            job.share(directed(seed=comm.rank))

    with pytest.raises(UserError, match="another graph"):
        run_ranks(differs, 2, "threads")
    data = directed()
    data.edge_index = data.edge_index + 5
    with pytest.raises(UserError, match="another graph"), ranks() as job:
        job.share(data)
    with pytest.raises(UserError, match="cannot be shared"), ranks() as job:
        job.share([1, 2])


def test_a_checkpoint_which_runs_modules_on_the_way_back_is_refused():
    from torch.utils.checkpoint import checkpoint

    def ask(job, d):
        model = job.wrap(g.GCNConv(WIDTH, CLASSES).double())
        checkpoint(model, d.x, d.edge_index, use_reentrant=False).sum().backward()

    with pytest.raises(Refused, match="run again on the way back"):
        shared(ask)


class Secret(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sum(0)

    @staticmethod
    def backward(ctx, grad):
        return grad.expand(5, 4)


class Hidden(torch.nn.Linear):
    def forward(self, x):
        with torch._C.DisableTorchFunction():
            return super().forward(x)


def test_a_module_whose_steps_cannot_be_seen_is_refused():
    with pytest.raises(Refused, match=r"Secret is an autograd\.Function"):
        shared(lambda job, d: Secret.apply(d.x))
    with pytest.raises(UserError, match=r"Hidden: its result of \d rows .* cannot see"):
        shared(lambda job, d: job.wrap(Hidden(WIDTH, CLASSES).double())(d.x))
