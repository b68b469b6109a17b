"""A layer whose ranks do not agree on their messages: an error, not a hang, and it names the layer."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from weft.comm import Communicator, run_ranks
from weft.graph import Graph, load, open_store, split, write_store
from weft.nn import MODELS, Adjacency, GCNLayer, ModelConfig, build, register
from weft.parallel import Grid, Operator


class OddLayer(GCNLayer):
    """One that multiplies once more on the rank that has vertex 0."""

    def partial(self, A: Adjacency, h: Tensor) -> Tensor:
        t = super().partial(A, h)
        return A @ t if bool((A.rows == 0).any()) else t


@pytest.fixture
def odd():
    yield
    MODELS.pop("odd", None)


def infer(comm: Communicator, graph: Graph | str) -> None:
    torch.set_num_threads(1)
    register("odd", lambda c, own, w: ([GCNLayer(w[0], w[1]), OddLayer(w[1], w[2])], "gcn"))
    source = open_store(graph, verify=False) if isinstance(graph, str) else graph
    A = Operator.build(source, comm, Grid(comm.size), "gcn")
    x = A.layout.read(source, "features")
    assert x is not None
    build(ModelConfig("odd", hidden=4), 5, 4, seed=0).eval()(A, x)
    comm.barrier()  # the others are at what comes next by now


@pytest.mark.parametrize("ranks", [2, 3])
def test_a_collective_that_only_some_ranks_reach_names_its_layer(odd, ranks):
    graph = split(load("sbm:nodes=40,features=5,classes=4"), 0.5, 0.2, 0)
    with pytest.raises(Exception, match="layer 2, OddLayer"):
        run_ranks(infer, ranks, "threads", graph)


@pytest.mark.parametrize("engine", ["mpi", pytest.param("torch", marks=pytest.mark.slow)])
def test_it_does_on_real_ranks_within_the_stall_limit(tmp_path, engine):
    store = write_store(split(load("sbm:nodes=40,features=5,classes=4"), 0.5, 0.2, 0), tmp_path / "g.weft")
    with pytest.raises(Exception, match="layer 2, OddLayer"):
        run_ranks(infer, 2, engine, str(store), stall_seconds=3)
