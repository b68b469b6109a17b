"""A layer whose ranks do not agree on their messages: an error, not a hang, and it names the layer."""

from __future__ import annotations

import threading

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


class LateLayer(GCNLayer):
    """One that asks all ranks in its second half, on one of them alone."""

    def apply(self, t: Tensor) -> Tensor:
        comm, first = _COMM[threading.get_ident()]
        return super().apply(t) + (comm.all_reduce(t.new_ones(1)) if first else 0)


_COMM: dict[int, tuple[Communicator, bool]] = {}


@pytest.fixture
def odd():
    yield
    for name in ("odd", "late"):
        MODELS.pop(name, None)
    _COMM.clear()


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


def infer_late(comm: Communicator, graph: Graph | str, differ: bool) -> None:
    """The first layer's second half calls something on rank 0; `differ`: others are in a collective too."""
    torch.set_num_threads(1)
    _COMM[threading.get_ident()] = comm, comm.rank == 0
    register("late", lambda c, own, w: ([LateLayer(w[0], w[1]), GCNLayer(w[1], w[2])], "gcn"))
    source = open_store(graph, verify=False) if isinstance(graph, str) else graph
    A = Operator.build(source, comm, Grid(comm.size), "gcn")
    x = A.layout.read(source, "features")
    assert x is not None
    model = build(ModelConfig("late", hidden=4), 5, 4, seed=0).eval()
    if differ and comm.rank:
        model.start(A, x)
        comm.all_reduce(torch.ones(46))
    model(A, x)
    comm.barrier()


@pytest.mark.parametrize("differ", [False, True])
def test_the_first_layer_s_second_half_is_named_too(odd, differ):
    graph = split(load("sbm:nodes=40,features=5,classes=4"), 0.5, 0.2, 0)
    with pytest.raises(Exception, match="layer 1, LateLayer"):
        run_ranks(infer_late, 2, "threads", graph, differ)


@pytest.mark.parametrize("differ", [False, True])
def test_it_is_on_real_ranks(tmp_path, differ):
    store = write_store(split(load("sbm:nodes=40,features=5,classes=4"), 0.5, 0.2, 0), tmp_path / "g.weft")
    with pytest.raises(Exception, match="layer 1, LateLayer"):
        run_ranks(infer_late, 2, "mpi", str(store), differ, stall_seconds=3)
