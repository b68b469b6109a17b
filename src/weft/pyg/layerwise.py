"""A PyG model layer by layer over a shared graph: rows on disk, some vertices at a time.

A layer is called with the vertices of a step and everybody around them within some hops, as a small graph of
its own, and the step's rows of what it gives are kept. How many hops make them exact is found out beforehand
on a sample: GCNConv needs two, since it reads the degrees of neighbours. A layer that never gets them right
this way, as one that looks at all vertices, is refused.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..kernels.sampling import ALL
from ..minibatch import Block, Reads, Sampler, Topology
from ..minibatch.layerwise import Pages, Scroll, fill, widest
from ..minibatch.topology import RowsOf
from ..parallel import ByBlocks
from .space import Names, Root, Tag, set_tag, tag_of
from .views import fits_ranks

_HOPS = 6
"""The most hops that are tried around a vertex."""
_N, _ARCS = 40, 60


class Local:
    """The arcs into this rank's vertices, as a sampler wants them; `data` [m, …] is carried along."""

    def __init__(self, edge_index: Tensor, data: dict[str, Tensor]):
        tag = tag_of(edge_index)
        names = None if tag is None else tag.names
        if not isinstance(names, tuple) or not fits_ranks(*names):
            raise UserError("arcs do not lie with their targets here. Give data of job.share.")
        source, target = names
        assert isinstance(target.space, Root)
        assert target.space.blocks is not None
        self.space, self.comm = target.space, target.space.comm
        self.owners = ByBlocks(target.space.blocks)
        with torch._C.DisableTorchFunction():
            self.topology = self._read(edge_index, source, data)

    def _read(self, edge_index: Tensor, source: Names, data: dict[str, Tensor]) -> Topology:
        n, own = self.space.total, self.space.ids
        order = torch.argsort(edge_index[1], stable=True)
        counts = torch.bincount(edge_index[1], minlength=own.numel())
        index = torch.int32 if n < 2**31 else torch.int64
        row_of = RowsOf(self.owners, [self.comm.rank], self.owners.blocks.sizes)
        read = source.numbers(edge_index[0])[order].to(index)
        return _topology(counts, read, row_of, n, {name: x[order].contiguous() for name, x in data.items()})

    def sampler(self, hops: int) -> Sampler:
        return Sampler(self.topology, [ALL] * hops, 0, owners=self.owners, comm=self.comm)


def _topology(
    counts: Tensor, read: Tensor, row_of: RowsOf | None, n: int, data: dict[str, Tensor]
) -> Topology:
    """Rows of arcs without values: layers weigh them by themselves."""
    reads = Reads("none", scaled=False, values=False, data=tuple(data))
    indptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    return Topology(reads, indptr, read, None, None, row_of, n, torch.float32, data)


def layerwise(layers: Sequence[Callable[..., Tensor]], data: Any, memory: int) -> Tensor:
    """The last layer's rows of this rank's vertices, [n_own, w], tagged; every rank calls it.

    layers   functions or modules (x, edge_index, …) → rows; what else they ask for is data's, per arc
    memory   bytes that a step may take, beside the arcs and the weights
    """
    if not layers:
        raise UserError("layer by layer needs layers. Give a list of functions of x and edge_index.")
    x = data.x
    tag = tag_of(x)
    if tag_of(data.edge_index) is None or tag is None:
        raise UserError("layer by layer needs a shared graph. Give data of job.share.")
    extra = [_extra(layer, data) for layer in layers]
    carried = {name: getattr(data, name) for names in extra for name in names}
    local = Local(data.edge_index, {name: v.detach() for name, v in carried.items()})
    if tag.space is not local.space:
        raise UserError("data.x and data.edge_index are not of one shared graph. Give what job.share made.")
    for k, layer in enumerate(layers):
        for part in layer.modules() if isinstance(layer, nn.Module) else ():
            if part.training and isinstance(part, nn.Module):
                raise UserError(f"layer {k + 1} is training, so it may drop rows. Call model.eval() first.")
    with torch._C.DisableTorchFunction(), torch.no_grad():
        h = fill(x.shape[0], x.shape[1], x.dtype, lambda piece: x[piece])
        for k, (layer, names) in enumerate(zip(layers, extra, strict=True)):
            like = {name: carried[name] for name in names}
            hops, width = _reach(layer, k, h.width, h.rows.dtype, like)
            out = Scroll(x.shape[0], width, h.rows.dtype)
            wide = widest(layer) if isinstance(layer, nn.Module) else 4 * max(width, h.width)

            def apply(
                blocks: list[Block], rows: Tensor, layer: Any = layer, names: Sequence[str] = names
            ) -> Tensor:
                return _run(layer, blocks[0], rows, names)[: blocks[-1].targets.numel()]

            Pages(local.sampler(hops), local.owners, local.comm, memory).run(h, out, apply, wide)
            h = out
        return set_tag(h.rows, Tag(local.space, 0))


def _run(layer: Callable[..., Tensor], block: Block, rows: Tensor, names: Sequence[str]) -> Tensor:
    """The layer on a block: its sources are the vertices of a small graph, the targets first."""
    target = torch.repeat_interleave(
        torch.arange(block.targets.numel(), device=rows.device), block.indptr.diff()
    )
    edges = torch.stack([block.local.long(), target])
    return layer(rows, edges, **{name: block.data[name] for name in names})


def _extra(layer: Callable[..., Tensor], data: Any) -> list[str]:
    """Names beyond x and edge_index that a layer asks for and data has per arc."""
    known = inspect.signature(layer.forward if isinstance(layer, nn.Module) else layer).parameters
    arcs = tag_of(data.edge_index)
    found = []
    for name, parameter in list(known.items())[2:]:
        value = getattr(data, name, None)
        tag = tag_of(value)
        if tag is not None and arcs is not None and tag.space is arcs.space and tag.names is None:
            found.append(name)
        elif parameter.default is parameter.empty and parameter.kind is parameter.POSITIONAL_OR_KEYWORD:
            raise UserError(
                f"a layer asks for {name}, which is no data of arcs. Give layers of x, edge_index and such."
            )
    return found


def _reach(
    layer: Callable[..., Tensor], k: int, width: int, dtype: torch.dtype, like: dict[str, Tensor]
) -> tuple[int, int]:
    """(hops around a vertex that make its row exact, columns of the result), from a small graph of chains."""
    draw = torch.Generator(device="cpu").manual_seed(k)
    x = torch.randn(_N, width, generator=draw, dtype=dtype, device="cpu")
    # Long chains, so that few hops are not everything, and some arcs across.
    chain = torch.stack([torch.arange(_N - 1, device="cpu"), torch.arange(1, _N, device="cpu")])
    across = torch.randint(_N, (2, _ARCS - _N), generator=draw, device="cpu")
    across[1] = (across[0] + 1 + across[1] % 3) % _N
    edges = torch.cat([chain, across], 1)
    edges = edges[:, torch.argsort(edges[1], stable=True)]
    data = {
        name: torch.rand(edges.shape[1], *v.shape[1:], generator=draw, dtype=torch.float64, device="cpu").to(
            v
        )
        for name, v in like.items()
    }
    name = type(layer).__name__ if isinstance(layer, nn.Module) else getattr(layer, "__name__", "function")
    try:
        whole = layer(x, edges, **data)
    except (RuntimeError, TypeError, ValueError) as error:
        raise UserError(f"layer {k + 1} ({name}) does not run on a sample: {error}.") from None
    if not isinstance(whole, Tensor) or whole.dim() != 2 or whole.shape[0] != _N:
        raise UserError(f"layer {k + 1} ({name}) does not give a row a vertex. Return [vertices, width].")
    arcs = _topology(torch.bincount(edges[1], minlength=_N), edges[0].to(torch.int32), None, _N, data)
    close = 1e-9 if dtype == torch.float64 else 1e-4
    for hops in range(1, _HOPS + 1):
        sampler = Sampler(arcs, [ALL] * hops, 0)
        gap = 0.0
        for piece in torch.arange(_N, dtype=torch.int32, device="cpu").split(3):
            block = sampler.blocks(piece, step=0)[0]
            found = _run(layer, block, x[block.sources.long()], list(like))[: piece.numel()]
            gap = max(gap, float((found - whole[piece.long()]).abs().max()))
        if gap <= close * max(float(whole.abs().max()), 1e-30):
            return hops, whole.shape[1]
    raise UserError(
        f"layer {k + 1} ({name}) reads more than {_HOPS} hops around a vertex, so it cannot run layer by "
        "layer. Run the model on the whole graph."
    )
