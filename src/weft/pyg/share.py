"""A graph, shared: every rank has the rows of its vertices and the arcs that end there."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..comm import Communicator
from ..errors import UserError, unknown
from ..graph import Graph, Store, open_store
from ..parallel import STRATEGIES, Fetch, Shared
from ..parallel.assign import check_partition
from ..parallel.grid import parse
from ..parallel.source import first_arcs, read_arcs
from ..partition import ORDERS
from ..train.config import ParallelConfig
from .matrix import Matrix, arcs_of, cut_rows
from .space import Count, Halo, Names, Root, Tag, here, set_tag, tag_of


def by_default() -> ParallelConfig:
    """How vertices are shared out where a script does not say: in order, and only rows that are read move."""
    return ParallelConfig(partition="block", strategy="halo")


class Shares(Shared):
    """The same with tags: tensors of a shared graph know what their rows are.

    own    this rank's vertices        space   those, as what rows are of
    """

    def __init__(
        self, comm: Communicator, source: Graph | Store, cut: ParallelConfig, seed: int,
        name: str = "vertices",
    ):  # fmt: skip
        super().__init__(source, comm, cut, seed)
        self.own = self.layout.ids
        self.space = Root(comm, self.own, self.blocks.count, name, self.blocks, self.sparse)

    def rows(self, x: Tensor, dim: int = 0) -> Tensor:
        """This rank's rows of what all vertices have."""
        return set_tag(x.index_select(dim, self.own.to(x.device)), Tag(self.space, dim))

    def tag_rows(self, x: Tensor) -> Tensor:
        """What are this rank's rows already."""
        return set_tag(x, Tag(self.space, 0))

    def edge_index(
        self, source: Tensor, target: Tensor, ids: Tensor, count: int, of: Shares | None = None
    ) -> Tensor:
        """The tagged edge_index [2, m] of arcs into own vertices, by vertex numbers. Every rank calls it.

        ids [m]   the arcs' numbers, 0 … count − 1 on all ranks together
        of        whose vertices the sources are, where of another type
        """
        of = self if of is None else of
        begin, end = of.blocks.own(self.comm.rank)
        place = of.blocks.places(source)
        away = (place < begin) | (place >= end)
        others, at = torch.unique(
            place[away], return_inverse=True
        )  # by place: by owner, and as they lie there
        row = place - begin
        row[away] = at + (end - begin)
        halo_ids = of.blocks.numbering.vertices(others)
        plan = Fetch(self.comm, of.owners, halo_ids, distinct=True)
        halo = Halo(of.space, halo_ids, plan) if self.comm.size > 1 else None
        arcs = Root(self.comm, ids, count, "arcs")
        names = (Names(of.space, halo), Names(self.space))
        first = self.blocks.own(self.comm.rank)[0]
        return set_tag(torch.stack([row, self.blocks.places(target) - first]), Tag(arcs, 1, names))


_SHARED = "_weft_shared"
"""The attribute of an edge_index that says of which graph's share it is."""


def shared_of(data: Any) -> Shared:
    """Who has what of the graph that `share` made this of."""
    found = getattr(data, "edge_index", data)
    found = found.__dict__.get(_SHARED) if isinstance(found, Tensor) else None
    if not isinstance(found, Shared):
        raise UserError(
            "A is made of a weft graph or a store, and this is not what job.share made of one. "
            "Share weft.load(data) in place of data."
        )
    return found


def share(data: Any, comm: Communicator, cut: ParallelConfig, seed: int) -> Any:
    """This rank's share of a PyG `Data`, a weft `Graph` or a store, as a PyG `Data`. Every rank calls it."""
    if isinstance(data, (str, Path)):
        data = _opened(data, comm)
    if isinstance(data, (Graph, Store)):
        return _of_graph(data, comm, cut, seed)
    if hasattr(data, "edge_types"):
        return _of_hetero(data, comm, cut, seed)
    if not hasattr(data, "edge_index") or not hasattr(data, "is_node_attr"):
        raise UserError(
            f"a {type(data).__name__} cannot be shared. "
            "Give a PyG Data or HeteroData, a weft Graph or a store."
        )
    return _of_data(data, comm, cut, seed)


def _opened(path: str | Path, comm: Communicator) -> Store:
    """A store of which each rank has read the header. Chunks are compared as they are read; where they have
    no checksums, in stores of old, rank 0 reads the file once for all."""
    store, mistake = None, ""
    try:
        store = open_store(path, verify=False)
        if comm.rank == 0 and not store.checks_itself:
            store.verify()
    except UserError as error:
        mistake = str(error)
    mistakes = comm.all_gather_json(mistake)
    if any(mistakes) or store is None:
        raise UserError(next(filter(None, mistakes)))
    return store


def whole(data: Any, comm: Communicator, cut: ParallelConfig) -> Any:
    """What one rank has: all of it, in its own order, as tensors of torch's."""
    if cut.strategy not in STRATEGIES:
        raise unknown("strategy", cut.strategy, STRATEGIES)
    if cut.grid:
        parse(cut.grid)  # one rank is no grid, but a script names the one that it has on ranks
    check_partition(cut.partition)
    if cut.order not in ORDERS:
        raise unknown("order", cut.order, ORDERS)
    out = share(data, comm, by_default(), 0)
    for store in out.stores:
        for key, value in list(store.items()):
            if isinstance(value, Tensor):
                set_tag(value, None)
            elif isinstance(value, Count):
                store[key] = here(value)
    return out


def _of_data(data: Any, comm: Communicator, cut: ParallelConfig, seed: int) -> Any:
    kinds = {key: _kind(data, key) for key in data.keys()}  # noqa: SIM118  not a dict
    matrices = {key: arcs_of(data[key].cpu(), key) for key, kind in kinds.items() if kind == "matrix"}
    edges, n = _check(data, matrices, comm).cpu(), int(data.num_nodes)
    graph = Graph.from_arcs(edges[0], edges[1], n)
    shares = Shares(comm, graph, cut, seed)
    arcs = {key: _arcs(shares, data[key]) for key, kind in kinds.items() if kind == "arcs"}
    for key, entries in matrices.items():
        arcs[key] = cut_rows(data[key], *_arcs(shares, entries))
    out = data.__class__()
    for key, kind in kinds.items():
        value = data[key]
        if kind in ("arcs", "matrix"):
            out[key] = arcs[key][0]
        elif kind == "vertex":
            out[key] = shares.rows(value, data.__cat_dim__(key, value))
        elif kind in arcs:
            index, mine = arcs[kind]
            tag = tag_of(index)
            assert tag is not None
            space = tag.arcs if isinstance(tag, Matrix) else tag.space
            out[key] = set_tag(value[mine.to(value.device)], Tag(space, 0))
        elif key != "num_nodes":
            out[key] = value
    out.num_nodes = Count(shares.space)
    return out


def _of_hetero(data: Any, comm: Communicator, cut: ParallelConfig, seed: int) -> Any:
    """A `HeteroData`: the vertices of each type are cut by themselves, the arcs lie with their targets."""
    if cut.partition not in ("block", "random") or cut.order != "none":
        raise UserError(
            f"partition {cut.partition!r} is for one type of vertices, and this is a HeteroData. "
            'Use "block" or "random".'
        )
    counts = {kind: int(data[kind].num_nodes) for kind in data.node_types}
    for relation in data.edge_types:
        ends = counts[relation[0]], counts[relation[2]]
        _check_edges(data[relation].edge_index, ends, f"data[{relation}].edge_index", comm)
    shares = {}
    for kind, n in counts.items():
        bare = Graph.from_arcs([], [], n)
        shares[kind] = Shares(comm, bare, cut, seed, f"vertices of {kind}")
    out = data.__class__()
    for kind in data.node_types:
        for key, value in data[kind].items():
            if isinstance(value, Tensor) and data[kind].is_node_attr(key):
                out[kind][key] = shares[kind].rows(value, data[kind]._parent().__cat_dim__(key, value))
            elif key != "num_nodes":
                out[kind][key] = value
        out[kind].num_nodes = Count(shares[kind].space)
    for relation in data.edge_types:
        index, mine = _arcs(shares[relation[2]], data[relation].edge_index, shares[relation[0]])
        out[relation].edge_index = index
        space = index.__dict__["_weft_tag"].space
        for key, value in data[relation].items():
            if key == "edge_index":
                continue
            cuts = isinstance(value, Tensor) and data[relation].is_edge_attr(key)
            out[relation][key] = set_tag(value[mine.to(value.device)], Tag(space, 0)) if cuts else value
    return out


def _arcs(shares: Shares, edges: Tensor, of: Shares | None = None) -> tuple[Tensor, Tensor]:
    """(edge_index, which arcs these are)."""
    edges = edges.cpu()
    owner, _ = shares.owners.find(edges[1])
    mine = (owner == shares.comm.rank).nonzero().ravel()
    return shares.edge_index(edges[0, mine], edges[1, mine], mine, edges.shape[1], of), mine


def _kind(data: Any, key: str) -> str:
    """`arcs`, `matrix`, `vertex`, the edge_index or matrix that a value goes with, or `other`."""
    value = data[key]
    if not isinstance(value, Tensor):
        if key.startswith("adj"):
            raise UserError(
                f"data.{key} is a {type(value).__name__}, which is not shared. "
                "Use edge_index in its place, or a tensor in torch.sparse_csr."
            )
        return "other"
    if value.layout != torch.strided:
        if not key.startswith("adj"):
            raise UserError(f"data.{key} is sparse, and only adj_t is shared so. Use data.{key}.to_dense().")
        return "matrix"
    if key.endswith("index") and value.dim() == 2 and value.shape[0] == 2 and not value.is_floating_point():
        return "arcs"
    beside = next((k for k in (f"{key}_index",) if k in data), None)
    if beside is not None:
        return beside
    if data.is_edge_attr(key):
        return "edge_index" if "edge_index" in data else "adj_t"
    return "vertex" if data.is_node_attr(key) else "other"


def _check(data: Any, matrices: dict[str, Tensor], comm: Communicator) -> Tensor:
    """The arcs; refuse what is damaged, or is not the same graph on every rank."""
    edges = data.edge_index if "edge_index" in data else matrices.get("adj_t")
    if edges is None or edges.dim() != 2 or edges.shape[0] != 2:
        raise UserError("data.edge_index must have the shape 2 x arcs. Give a Data with edge_index or adj_t.")
    n = int(data.num_nodes)
    _check_edges(edges, (n, n), "data.edge_index", comm)
    for key, entries in matrices.items():
        if data[key].shape[0] != n:
            raise UserError(f"data.{key} has {data[key].shape[0]} rows, but data has {n} vertices.")
        _check_edges(entries, (n, n), f"data.{key}", comm)
    return edges


def _check_edges(edges: Tensor, counts: tuple[int, int], name: str, comm: Communicator) -> None:
    for side, n in zip(edges, counts, strict=True):
        if side.numel() and not (int(side.min()) >= 0 and int(side.max()) < n):
            raise UserError(
                f"{name} names vertex {int(side.max())}, but data has {n} vertices. Is it of another graph?"
            )
    mark = [*counts, int(edges.shape[1]), zlib.crc32(edges.cpu().contiguous().numpy().tobytes())]
    marks = comm.all_gather_json(mark)
    wrong = next((rank for rank, other in enumerate(marks) if other != marks[0]), None)
    if wrong is not None:
        raise UserError(
            f"rank {wrong} was given another graph than rank 0 (vertices and arcs {marks[wrong][1:3]}, there "
            f"{marks[0][1:3]}). Load the same data on every rank."
        )


def _of_graph(source: Graph | Store, comm: Communicator, cut: ParallelConfig, seed: int) -> Any:
    """Rows and arcs are read as they are needed: no rank holds the whole."""
    from torch_geometric.data import Data

    shares = Shares(comm, source, cut, seed)
    arcs = read_arcs(source, shares.own)
    target = shares.own[arcs.row]
    # Arcs are numbered as they stand in the whole: by target, then by source.
    degrees = torch.bincount(arcs.row, minlength=shares.own.numel())
    first = first_arcs(source, shares.own) - (degrees.cumsum(0) - degrees)
    numbers = first[arcs.row] + torch.arange(arcs.row.numel(), device="cpu")
    index = shares.edge_index(arcs.vertex, target, numbers, source.num_arcs)
    index.__dict__[_SHARED] = shares
    out = Data(edge_index=index, num_nodes=Count(shares.space))
    if arcs.value is not None:
        out.edge_weight = set_tag(arcs.value, Tag(index.__dict__["_weft_tag"].space, 0))
    for key, name in (("features", "x"), ("labels", "y")):
        if (found := shares.read(key)) is not None:
            out[name] = shares.tag_rows(found)
    for key in ("train_mask", "val_mask", "test_mask"):
        if (found := shares.read(key)) is not None:
            out[key] = shares.tag_rows(found)
    return out
