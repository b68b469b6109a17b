"""Rows by an index that every rank has: those of one process, wherever they lie."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch_geometric.nn as g
import torch_geometric.utils as u
from torch.nn import functional as F

from weft.comm import run_ranks
from weft.pyg import Refused, ranks

from .compare import TOLERANCE, worst
from .graphs import CLASSES, WIDTH, N, directed

IDX = torch.tensor([22, 0, 7, 7, -1, 13, 2])


def written(d, value):
    out = d.x.clone()
    out[IDX] = value
    return out


READS = {
    "rows": lambda d: d.x[IDX],
    "some columns of rows": lambda d: d.x[IDX, 2:4],
    "by numpy": lambda d: d.x[np.array([3, 21, 3])] + d.x0[np.array([3, 21, 3])],
    "by a list": lambda d: d.x[[4, 1]] * 2,
    "by another tensor with the same numbers": lambda d: d.x[IDX] * d.x0[IDX.clone()],
    "of some rows": lambda d: d.x[d.train_mask][torch.tensor([0, 3, 3])],
    "index_select": lambda d: d.history.index_select(0, IDX.abs()).sum(1),
    "arcs": lambda d: d.edge_weight[torch.tensor([5, 88, 0])],
    "no rows": lambda d: d.x[torch.tensor([], dtype=torch.long)],
    "a mask of an index": lambda d: u.index_to_mask(IDX, size=d.num_nodes),
    "one number written": lambda d: written(d, 0.5),
    "rows written": lambda d: written(d, torch.full((7, WIDTH), 3.0).double()),
    "a row of everybody's written": lambda d: written(d, torch.ones(1, WIDTH).double()),
}


@pytest.mark.parametrize("name", READS)
def test_an_index_of_places_reads_and_writes_what_one_process_does(name):
    def work(comm):
        with ranks(comm) as job:
            return job.collect(READS[name](job.share(directed(), "random")))

    for found in run_ranks(work, 3, "threads"):
        assert torch.equal(found, READS[name](directed()))


def test_rows_that_are_written_by_places_are_each_its_own():
    value, places = torch.arange(4.0 * WIDTH).double().view(4, WIDTH), torch.tensor([20, 3, 11, 0])

    def write(x):
        out = x.clone()
        out[places] = value
        return out

    def work(comm):
        with ranks(comm) as job:
            return job.collect(write(job.share(directed(), "random").x))

    for found in run_ranks(work, 4, "threads"):
        assert torch.equal(found, write(directed().x))


@pytest.mark.parametrize("count", [2, 4])
def test_a_split_given_by_indices_has_the_gradients_of_one_process(count):
    torch.manual_seed(5)

    def call(model, d):
        out = model(d.x, d.edge_index)
        return out[IDX] * F.cross_entropy(out[IDX], d.y[IDX])

    assert worst(g.GCNConv(WIDTH, CLASSES), call, count=count) < TOLERANCE


def test_an_index_that_is_written_to_is_looked_at_again():
    def work(comm):
        with ranks(comm) as job:
            d, idx = job.share(directed()), torch.tensor([1, 2])
            first = job.collect(d.y[idx])
            idx[0] = 20
            return first, job.collect(d.y[idx])

    y = directed().y
    for first, second in run_ranks(work, 3, "threads"):
        assert torch.equal(first, y[[1, 2]])
        assert torch.equal(second, y[[20, 2]])


REFUSED = {
    "that differs": (lambda job, d: d.x[torch.tensor([job.rank])], Refused, "differ from rank to rank"),
    "of two dims": (lambda job, d: d.x[torch.zeros(2, 2, dtype=torch.long)], Refused, "not one list"),
    "of two lists, put together": (lambda job, d: d.x[IDX] + d.x[IDX.flip(0)], Refused, "mixes rows"),
    "of a link's ends": (
        lambda job, d: (d.x[torch.tensor([1, 2])] * d.x[torch.tensor([3, 4])]).sum(-1), Refused, "mixes rows",
    ),
    "beyond the rows": (lambda job, d: d.x[torch.tensor([N])], IndexError, "23 is out of bounds for 23 rows"),
    "below the rows": (lambda job, d: d.x[torch.tensor([-N - 1])], IndexError, "out of bounds"),
    "of too few values": (lambda job, d: written(d, torch.ones(3, WIDTH).double()), Refused, "writes 3 rows"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_an_index_that_is_none_is_refused(name):
    what, kind, words = REFUSED[name]

    def work(comm):
        with ranks(comm) as job:
            what(job, job.share(directed(), "random"))

    with pytest.raises(kind, match=words):
        run_ranks(work, 2, "threads")
