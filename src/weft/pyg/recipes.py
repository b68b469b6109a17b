"""PyG's layers through weft's kernels: the same equation, weights and options, another way to compute it.

A recipe has the arguments of its class's `forward`. It raises `Unfit`, before anything was computed or sent,
where it cannot give what PyG gives. Normalisation and loops are PyG's own functions, called once a graph.

    GCNConv, SGConv, TAGConv, APPNP    Â x, Â of `gcn_norm`; the narrower of x and x W travels through Â
    SAGEConv, GINConv                  ⊕_j x_j
    propagate                          of any module: ⊕_j w_ij x_j, ⊕ sum, mean, max or min
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..kernels import CSR, Stream, add_linear_, linear
from ..kernels.function import Function
from ..kernels.spmm import extremum
from .halo import extended
from .space import Halo, Tag, set_tag, tag_of
from .views import BESIDE, Last, Unfit, View, by_rows, check_span, fits_ranks, near_view, view

SUMS = ("sum", "add")
PLAIN = (*SUMS, "mean", "max", "min")
_TILE = 1 << 12
"""Arcs at a time where numbers of arcs × width are looked at."""


@dataclass
class Layer:
    """One module of PyG, and what its recipe keeps between calls.

    chance   where dropout's random numbers come from, on ranks; None: torch's generator
    """

    module: Any
    path: str
    chance: Any = None
    last: Last = field(default_factory=Last)

    def stream(self) -> Stream:
        """The random numbers of this call: `torch.manual_seed` repeats them."""
        if self.chance is not None:
            found: Stream = self.chance.stream()
            return found
        return Stream(int(torch.randint(2**62, (), device="cpu")), 0, 0)

    @property
    def name(self) -> str:
        kind = type(self.module).__name__
        return f"{kind} ({self.path})" if self.path else kind


@dataclass
class Given:
    """The two sides of a call: rows of sources and of targets, the same tensor where there is one graph.

    tag   of a shared graph's rows
    """

    source: Tensor
    target: Tensor
    tag: Tag | None

    @property
    def sizes(self) -> tuple[int, int]:
        with numbers():
            return self.source.shape[0], self.target.shape[0]


@contextlib.contextmanager
def numbers() -> Iterator[None]:
    """Tensors are plain inside, also those of a shared graph."""
    with torch._C.DisableTorchFunction():
        yield


def given(layer: Layer, x: Any, edge_index: Any) -> Given:
    """The rows that a call is about; what weft's kernels do not take is said."""
    pair = tuple(x) if isinstance(x, (tuple, list)) else (x, x)
    if len(pair) != 2 or not all(isinstance(t, Tensor) for t in pair):
        raise Unfit("x of one side is not given")
    if not isinstance(edge_index, Tensor) or edge_index.layout != torch.strided:
        raise Unfit("the graph is a sparse matrix, not an edge_index")
    with numbers():
        for t in pair:
            if t.dim() != 2 or t.dtype not in (torch.float32, torch.float64):
                raise Unfit(f"x is {t.dtype} of {t.dim()} dims; weft's kernels take 2 of float32 or float64")
        if edge_index.dim() != 2 or edge_index.shape[0] != 2 or edge_index.dtype != torch.int64:
            raise Unfit("edge_index is not 2 x arcs of int64")
        if not (pair[0].is_cpu and pair[1].is_cpu and edge_index.is_cpu):
            raise Unfit(f"it is on {pair[0].device}; weft's kernels are for the CPU")
        if type(edge_index) is not Tensor or any(type(t) not in (Tensor, nn.Parameter) for t in pair):
            raise Unfit("a tensor is of a class of its own")
        if torch.is_autocast_enabled("cpu"):
            raise Unfit("types are chosen by autocast")
    of = Given(*pair, _shared(layer, pair, edge_index))
    if of.tag is None:
        check_span(edge_index, of.sizes, _forwards(layer))
    return of


def _shared(layer: Layer, pair: tuple[Tensor, Tensor], edge_index: Tensor) -> Tag | None:
    """The tag of rows of a shared graph, which both sides and edge_index belong to."""
    tags = [tag_of(t) for t in (*pair, edge_index)]
    if all(tag is None for tag in tags):
        return None
    first, second, arcs = tags
    if first is None or second is None or arcs is None or not isinstance(arcs.names, tuple):
        raise Unfit("some of its tensors are shared and some are not")
    source, target = arcs.names if _forwards(layer) else arcs.names[::-1]
    if not fits_ranks(source, target):
        raise Unfit("arcs do not lie with their targets here")
    if any(tag.dim != 0 or tag.space is not target.space for tag in (first, second)):
        raise Unfit("x has other rows than the vertices of its edge_index")
    return first


def _forwards(layer: Layer) -> bool:
    return bool(layer.module.flow == "source_to_target")


def back(y: Tensor, of: Given) -> Tensor:
    """The result, tagged as its rows are."""
    return y if of.tag is None else set_tag(y, Tag(of.tag.space, 0))


def see(
    layer: Layer, of: Given, edge_index: Tensor, weight: Tensor | None = None, attr: Tensor | None = None
) -> View:
    return view(edge_index, of.sizes, of.source.dtype, weight, attr, _forwards(layer), layer.last)


def per_arc(x: Tensor | None, edge_index: Tensor, what: str, fixed: bool = False) -> None:
    """Refuse numbers per arc that are not one row an arc; `fixed`: or that are learned."""
    if x is None:
        return
    with numbers():
        if not isinstance(x, Tensor) or not x.dim() or x.shape[0] != edge_index.shape[1]:
            raise Unfit(f"{what} has not one row an arc")
        if not x.is_floating_point():
            raise Unfit(f"{what} is {x.dtype}")
        if fixed and x.requires_grad and torch.is_grad_enabled():
            raise Unfit(f"{what} is learned")
    if (tag_of(x) is None) != (tag_of(edge_index) is None):
        raise Unfit(f"{what} or edge_index is not shared")


# Sums.


def combine(seen: View, x: Tensor, reduce: str, weight: Tensor | None = None) -> Tensor:
    """y_i = ⊕_j a_ij x_j, or w_e x_j where `weight` [m] is learned. [s, w] → [t, w]."""
    reduce = "sum" if reduce in SUMS else reduce
    if reduce in ("max", "min"):
        values = seen.A.plan.matrix(0).values if weight is None else seen.numbers(weight)
        return _Extremum.apply(values, x, seen.A.plan.matrix(0), reduce == "max")
    if weight is not None:
        return seen.A.entries.weigh(seen.numbers(weight)[:, None], x, reduce)
    return seen.A.aggregate(x, reduce)


class _Extremum(Function):
    """y_ic = max or min over j of w_ij x_jc, its gradient shared among equals, as PyG's scatter does.

    torch's `scatter_reduce` counts the zeros that it starts from among the equals: so do we.
    """

    @staticmethod
    def forward(ctx: Any, values: Tensor | None, x: Tensor, a: CSR, largest: bool) -> Tensor:
        x = x.detach().contiguous()
        values = None if values is None else values.detach().contiguous()
        y, _ = extremum(a, x, values, largest)
        ctx.a = a
        ctx.save_for_backward(values, x, y)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        values, x, y = ctx.saved_tensors
        a, dx = ctx.a, torch.zeros_like(x)
        dvalues = None if values is None else torch.zeros_like(values)
        equals = (y == 0).to(y.dtype)
        tiles = [slice(k, min(k + _TILE, a.arcs)) for k in range(0, a.arcs, _TILE)]

        def messages(tile: slice) -> tuple[Tensor, Tensor, Tensor]:
            row, column = a.row_of[tile], a.indices[tile].long()
            message = x[column] if values is None else x[column] * values[tile, None]
            return row, column, message == y[row]

        for tile in tiles:
            row, _, wins = messages(tile)
            equals.index_add_(0, row, wins.to(y.dtype))
        share = grads[0] / equals.clamp(min=1)
        for tile in tiles:
            row, column, wins = messages(tile)
            d = torch.where(wins, share[row], 0)
            if dvalues is not None:
                dvalues[tile] = (d * x[column]).sum(1)
                d = d * values[tile, None]
            dx.index_add_(0, column, d)
        return dvalues if ctx.needs_input_grad[0] else None, dx, None, None


# Products with weights.


def bare(module: Any) -> bool:
    """Whether a module is a linear layer and nothing more: then its product is weft's."""
    from torch_geometric.nn.dense.linear import Linear

    return type(module) in (Linear, nn.Linear) and not _changed(module)


def _changed(module: nn.Module) -> bool:
    """Whether somebody listens to a module, or has put a forward of its own into it."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks)
    foreign = any(not hasattr(hook, "weft") for some in hooks for hook in some.values())
    return foreign or "forward" in module.__dict__


def product(module: Any, x: Tensor, bias: bool = True) -> Tensor:
    """x Wᵀ + b; `bias`: with b."""
    return linear(x, module.weight.t(), module.bias if bias else None)


def width_of(module: Any) -> int:
    """Columns of a linear layer's result."""
    return int(module.weight.shape[0])


def check_weights(layer: Layer, *modules: Any) -> None:
    """Only bare linear layers whose weights are there."""
    for module in modules:
        if module is None:
            continue
        if not bare(module):
            raise Unfit(f"its {type(module).__name__} is not a plain linear layer")
        if isinstance(module.weight, nn.parameter.UninitializedParameter):
            raise Unfit("its weights have no shape yet")


def check_types(layer: Layer, *rows: Tensor) -> None:
    """One line for a model that was moved to another type or device than its input."""
    weight = next(layer.module.parameters(recurse=True), None)
    for x in rows:
        if weight is not None and (weight.dtype, weight.device) != (x.dtype, x.device):
            raise UserError(
                f"{layer.name}: x is {x.dtype} on {x.device}, its weights are {weight.dtype} on "
                f"{weight.device}. Move both with .to()."
            )


def added(y: Tensor, bias: Tensor | None) -> Tensor:
    """y + b, in y's memory: nothing keeps what a product gave."""
    return y if bias is None else y.add_(bias)


# Layers over Â.


def _normalised(
    layer: Layer, of: Given, edge_index: Tensor, weight: Tensor | None, loops: bool, improved: bool = False
) -> tuple[Tensor, Tensor | None]:
    """`gcn_norm`, once for an edge_index and its weights; learned ones every time."""
    from torch_geometric.nn.conv.gcn_conv import gcn_norm

    flow, dtype = layer.module.flow, of.source.dtype

    def make() -> tuple[Tensor, Tensor | None]:
        # The number of rows is asked outside of `numbers`: on ranks it is everybody's.
        found: tuple[Tensor, Tensor | None] = gcn_norm(
            edge_index, weight, of.source.size(0), improved, loops, flow, dtype
        )
        return found

    if weight is not None and weight.requires_grad and torch.is_grad_enabled():
        return make()
    return BESIDE.get(("gcn_norm", loops, improved, flow, dtype, of.sizes), (edge_index, weight), make)


def _kept(
    layer: Layer, of: Given, edge_index: Tensor, weight: Tensor | None, loops: bool, improved: bool = False
) -> tuple[Tensor, Tensor | None]:
    """The same for a module with `cached`: what PyG remembers is remembered where PyG does."""
    m = layer.module
    if not m.cached:
        return _normalised(layer, of, edge_index, weight, loops, improved)
    if m._cached_edge_index is None:
        m._cached_edge_index = _normalised(layer, of, edge_index, weight, loops, improved)
    found: tuple[Tensor, Tensor | None] = m._cached_edge_index
    return found


class Hop:
    """h → ⊕_j w_ij h_j, for one call of a layer."""

    def __init__(self, layer: Layer, of: Given, edge_index: Tensor, weight: Tensor | None, reduce: str):
        self._learned = weight is not None and weight.requires_grad and torch.is_grad_enabled()
        fixed = None if self._learned else weight
        self._halo: Halo | None = None
        if reduce in ("max", "min") and of.tag is not None:
            # The gradient is shared among equals: they must be seen together.
            self._seen, self._halo = near_view(edge_index, of.source.dtype, fixed, _forwards(layer))
        elif self._learned and of.tag is not None and not by_rows(of.tag.space):
            raise Unfit("weights of arcs are learned, and on this grid several ranks hold an arc")
        else:
            self._seen = see(layer, of, edge_index, fixed)
        self._of, self._reduce = (edge_index, weight), reduce
        self._kind = reduce, layer.module.flow

    def __call__(self, h: Tensor) -> Tensor:
        h = h if self._halo is None else extended(h, 0, self._halo)
        return combine(self._seen, h, self._reduce, self._of[1] if self._learned else None)

    def kept(self, x: Tensor) -> Tensor | None:
        """⊕_j w_ij x_j of an x that was here before and is no result of anything: made once; only to be read.

        Input features are so, epoch after epoch: their layer then costs no product with A, nor messages.
        """
        if self._learned or x.requires_grad or x.grad_fn is not None or x.is_inference():
            return None
        # One place a reduction: arcs that change from call to call push each other out and nothing piles up.
        met = BESIDE.get(("met", *self._kind), (x, *self._of), lambda: [0])
        met[0] += 1
        if met[0] < 2:
            return None
        found: Tensor = BESIDE.get(("kept", *self._kind), (x, *self._of), lambda: self(x).detach())
        return found


def _weighted(layer: Layer, x: Any, edge_index: Any, weight: Tensor | None) -> Given:
    """The checks that layers over Â have in common."""
    if isinstance(x, (tuple, list)):
        raise Unfit("x is a pair")
    of = given(layer, x, edge_index)
    per_arc(weight, edge_index, "edge_weight")
    if weight is not None and (weight.dim() != 1 or weight.dtype != of.source.dtype):
        raise Unfit(f"edge_weight is {weight.dtype} of {weight.dim()} dims")
    if layer.module.aggr not in SUMS:
        raise Unfit(f"its aggregation is {layer.module.aggr}")
    return of


def gcn(layer: Layer, x: Any, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
    """y = Â x W + b: Â (x W), or (Â x) W where that is narrower."""
    m = layer.module
    of = _weighted(layer, x, edge_index, edge_weight)
    check_weights(layer, m.lin)
    check_types(layer, of.source)
    if m.normalize:
        edge_index, edge_weight = _kept(layer, of, edge_index, edge_weight, m.add_self_loops, m.improved)
    hop = Hop(layer, of, edge_index, edge_weight, "sum")
    with numbers():
        near = hop.kept(x)
        if near is None and x.shape[1] < width_of(m.lin):
            near = hop(x)
        y = hop(product(m.lin, x)) if near is None else product(m.lin, near)
        return back(added(y, m.bias), of)


def sgc(layer: Layer, x: Any, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
    """y = Âᴷ x W + b."""
    m = layer.module
    of = _weighted(layer, x, edge_index, edge_weight)
    check_weights(layer, m.lin)
    check_types(layer, of.source)
    if m._cached_x is not None:
        with numbers():
            return back(product(m.lin, m._cached_x.detach()), of)
    edge_index, edge_weight = _normalised(layer, of, edge_index, edge_weight, m.add_self_loops)
    hop = Hop(layer, of, edge_index, edge_weight, "sum")
    with numbers():
        if m.cached or x.shape[1] <= width_of(m.lin):
            for _ in range(m.K):
                x = hop(x)
            if m.cached:
                m._cached_x = back(x, of)
            return back(product(m.lin, x), of)
        y = product(m.lin, x, bias=False)
        for _ in range(m.K):
            y = hop(y)
        return back(added(y, m.lin.bias), of)


def tag(layer: Layer, x: Any, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
    """y = Σ_k Âᵏ x W_k + b; where W narrows, as x W_0 + Â (x W_1 + Â (…))."""
    m = layer.module
    of = _weighted(layer, x, edge_index, edge_weight)
    check_weights(layer, *m.lins)
    check_types(layer, of.source)
    if m.normalize:
        edge_index, edge_weight = _normalised(layer, of, edge_index, edge_weight, False)
    hop = Hop(layer, of, edge_index, edge_weight, "sum")
    with numbers():
        if width_of(m.lins[0]) < x.shape[1]:
            y = product(m.lins[-1], x)
            for lin in reversed(m.lins[:-1]):
                y = add_linear_(hop(y), x, lin.weight.t())
        else:
            y = product(m.lins[0], x)
            for lin in m.lins[1:]:
                x = hop(x)
                y = add_linear_(y, x, lin.weight.t())
        return back(added(y, m.bias), of)


def appnp(layer: Layer, x: Any, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
    """K times y = (1 − α) Â y + α x, from y = x."""
    m = layer.module
    of = _weighted(layer, x, edge_index, edge_weight)
    if m.dropout > 0 and m.training:
        raise Unfit("it drops arcs, again in every hop")
    if m.normalize:
        edge_index, edge_weight = _kept(layer, of, edge_index, edge_weight, m.add_self_loops)
    hop = Hop(layer, of, edge_index, edge_weight, "sum")
    with numbers():
        y = x
        for _ in range(m.K):
            y = hop(y).mul_(1 - m.alpha).add_(x, alpha=m.alpha)
        return back(y if m.K else x, of)


# Layers over the neighbours themselves.


def _near(layer: Layer, x: Any, edge_index: Any, size: Any) -> tuple[Given, str]:
    of = given(layer, x, edge_index)
    if size is not None and tuple(size) != of.sizes:
        raise Unfit("the size that is given is not that of x")
    reduce = layer.module.aggr
    if reduce not in PLAIN:
        raise Unfit(f"its aggregation is {reduce}")
    return of, reduce


def sage(layer: Layer, x: Any, edge_index: Any, size: Any = None) -> Tensor:
    """y = (⊕_j x_j) W + x_i W' + b; of a sum or mean, ⊕_j (x_j W) where that is narrower."""
    m = layer.module
    of, reduce = _near(layer, x, edge_index, size)
    check_weights(layer, m.lin_l, m.lin_r if m.root_weight else None, m.lin if m.project else None)
    check_types(layer, of.source, of.target)
    hop = Hop(layer, of, edge_index, None, reduce)
    with numbers():
        h = product(m.lin, of.source).relu_() if m.project else of.source
        near = None if m.project else hop.kept(h)
        narrows = reduce not in ("max", "min") and width_of(m.lin_l) <= h.shape[1]
        if near is None and narrows:
            y = hop(product(m.lin_l, h, bias=False))
        else:
            y = product(m.lin_l, hop(h) if near is None else near, bias=False)
        y = add_linear_(y, of.target, m.lin_r.weight.t()) if m.root_weight else y
        y = added(y, m.lin_l.bias)
        return back(nn.functional.normalize(y, p=2.0, dim=-1) if m.normalize else y, of)


def gin(layer: Layer, x: Any, edge_index: Any, size: Any = None) -> Any:
    """y = nn((1 + ε) x_i + ⊕_j x_j)."""
    m = layer.module
    of, reduce = _near(layer, x, edge_index, size)
    check_types(layer, of.source, of.target)
    hop = Hop(layer, of, edge_index, None, reduce)
    with numbers():
        near = hop.kept(of.source)
        y = back((hop(of.source) if near is None else near) + (1 + m.eps) * of.target, of)
    return m.nn(y) if of.tag is not None or not _plain(m.nn) else _chained(m.nn, y)


def _plain(module: Any) -> bool:
    """Whether it is a chain of linear layers and relu that nobody listens to."""
    if type(module) is not nn.Sequential or _changed(module):
        return False
    unmade = nn.parameter.UninitializedParameter
    return all(
        (type(part) is nn.ReLU and not _changed(part)) or (bare(part) and not isinstance(part.weight, unmade))
        for part in module
    )


def _chained(module: nn.Sequential, y: Tensor) -> Tensor:
    """The same, a product into memory that is there already, relu into that of the product."""
    own = False
    for part in module:
        if isinstance(part, nn.ReLU):
            y = y.relu_() if own else y.relu()
        else:
            y, own = product(part, y), True
    return y


def propagate(layer: Layer, reads: str, weighs: str, edge_index: Any, size: Any, given_by: Any) -> Tensor:
    """⊕_j w_ij x_j in place of a module's `propagate`; `reads` and `weighs` name x and w."""
    x = given_by.get(reads)
    weight = given_by.get(weighs) if weighs else None
    if isinstance(x, (tuple, list)) and not _forwards(layer):
        x = tuple(x)[::-1]
    if size is not None and not _forwards(layer):
        size = tuple(size)[::-1]
    if size is not None and None in tuple(size):
        size = None
    of, reduce = _near(layer, x, edge_index, size)
    if layer.module.node_dim not in (-2, 0):
        raise Unfit("vertices are not its first dim")
    per_arc(weight, edge_index, weighs)
    if weight is not None:
        with numbers():
            if weight.numel() != edge_index.shape[1] or weight.dtype != of.source.dtype:
                raise Unfit(f"{weighs} is not one number of x's type an arc")
            weight = weight if weight.dim() == 1 else _flat(weight)
    hop = Hop(layer, of, edge_index, weight, reduce)
    with numbers():
        return back(hop(of.source), of)


def _flat(weight: Tensor) -> Tensor:
    """[m, 1] as [m]; the same tensor for the same one, so that what is built of it is found again."""
    if weight.requires_grad:
        return weight.reshape(-1)
    found: Tensor = BESIDE.get("flat", (weight,), lambda: weight.reshape(-1))
    tagged = tag_of(weight)
    return found if tagged is None else set_tag(found, tagged)
