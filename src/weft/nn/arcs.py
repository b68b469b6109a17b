"""Layers over arcs that carry data: features f_ij [t], or a kind r_ij (`Graph.arc_data`).

An arc's features are multiplied with a weight where they are used, a tile of arcs at a time: nothing of
arcs × width is stored, and what arcs carry never moves.

A says which arcs there are; its values, a graph's weights, are in none of these equations, as PyG's layers
take no edge_weight: `weighted` is False. Weights that shall count are features of the arcs.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from ..errors import UserError, unknown
from ..graph.arrays import KIND
from ..kernels import Stream, add_bias, add_linear_, add_scaled, linear, linears, relu_
from .adjacency import Adjacency
from .attention import FEATURES, check_heads
from .layer import Layer, add_, bias_of, weight_of

Factor = tuple[Tensor, Tensor | None]
"""A weight and its bias."""


def _dropped(p: float, stream: Stream | None) -> tuple[float, Stream] | None:
    return None if stream is None or not p else (p, stream)


def _averaged(y: Tensor, heads: int, average: bool) -> Tensor:
    return y.unflatten(1, (heads, y.shape[1] // heads)).mean(1) if average and heads > 1 else y


def both_sides(
    A: Adjacency, h: Tensor, far: list[Factor], near: list[Factor]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Products of the columns' rows with every weight of `far`, and of the rows' own with those of `near`.

    Where both are the same rows, as on a whole graph, their gradients meet in one buffer.
    """
    own = A.own(h)
    if own is not h:
        return linears(h, *far), linears(own, *near)
    found = linears(h, *far, *near)
    return found[: len(far)], found[len(far) :]


class GATv2Layer(Layer):
    """h'_i = Σ_j α_ij z_j + b, α = softmax_j(a · leaky(u_i + z_j + f_ij W_e)) (Brody et al.).

        z = h W_l + b_l, u = h W_r + b_r     [n, heads · out]     for the neighbour, and for who attends
        a [heads, out];  W_e [t, heads · out], where arcs have features

    The non-linearity is inside the score, so z and u are whole rows: forward alone.
    A's values are not read.

    >>> from weft.kernels import CSR
    >>> from weft.parallel import Operator
    >>> A = Operator.local(CSR(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), None, (2, 2)))
    >>> GATv2Layer(3, 8, heads=4)(A, torch.ones(2, 3)).shape
    torch.Size([2, 8])
    """

    fresh, weighted = True, False

    def __init__(
        self, inputs: int, outputs: int, bias: bool = True, heads: int = 1, average: bool = False,
        slope: float = 0.2, drop: float = 0.0, arcs: int = 0,
    ):  # fmt: skip
        super().__init__()
        self.width = check_heads(outputs, heads, average)
        self.heads, self.average, self.slope, self.drop = heads, average, slope, drop
        wide = heads * self.width
        self.weight_source, self.bias_source = weight_of(inputs, wide), bias_of(wide, bias)
        self.weight_target, self.bias_target = weight_of(inputs, wide), bias_of(wide, bias)
        self.attend = weight_of(heads, self.width)
        self.weight_edge = weight_of(arcs, wide) if arcs else None
        self.data = (FEATURES,) if arcs else ()
        self.bias = bias_of(outputs, bias)

    def forward(self, A: Adjacency, h: Tensor) -> Tensor:
        (z,), (u,) = both_sides(
            A, h, [(self.weight_source, self.bias_source)], [(self.weight_target, self.bias_target)]
        )
        edge = None if self.weight_edge is None else (FEATURES, self.weight_edge)
        y = A.attend(
            u, z, z, kind="channel", heads=self.heads, slope=self.slope, mix=self.attend.reshape(-1),
            edge=edge, drop=_dropped(self.drop, self.stream),
        )  # fmt: skip
        y = _averaged(y, self.heads, self.average)
        # Backward needs y as it is, and an activation may write into what is returned here.
        return add_bias(y, y.new_zeros(y.shape[1]) if self.bias is None else self.bias)


class TransformerLayer(Layer):
    """h'_i = Σ_j α_ij (v_j + f_ij W_e) + h_i W_s + b, α = softmax_j ⟨q_i, k_j + f_ij W_e⟩/√out (Shi et al.).

    ⟨q_i, f_ij W_e⟩ = ⟨W_e q_i, f_ij⟩ and Σ α f_ij W_e = (Σ α f_ij) W_e: the arcs' features meet rows of their
    own width, so W_e is multiplied once a vertex and never once an arc.
    A's values are not read.

    >>> from weft.kernels import CSR
    >>> from weft.parallel import Operator
    >>> A = Operator.local(CSR(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), None, (2, 2)))
    >>> TransformerLayer(3, 8, heads=4)(A, torch.ones(2, 3)).shape
    torch.Size([2, 8])
    """

    scaled, fresh, weighted = False, True, False

    def __init__(
        self, inputs: int, outputs: int, bias: bool = True, heads: int = 1, average: bool = False,
        drop: float = 0.0, arcs: int = 0,
    ):  # fmt: skip
        super().__init__()
        self.width = check_heads(outputs, heads, average)
        self.heads, self.average, self.drop = heads, average, drop
        wide = heads * self.width
        self.weight_query, self.bias_query = weight_of(inputs, wide), bias_of(wide, bias)
        self.weight_key, self.bias_key = weight_of(inputs, wide), bias_of(wide, bias)
        self.weight_value, self.bias_value = weight_of(inputs, wide), bias_of(wide, bias)
        self.weight_edge = weight_of(arcs, wide) if arcs else None
        self.weight_self, self.bias = weight_of(inputs, outputs), bias_of(outputs, bias)
        self.data = (FEATURES,) if arcs else ()

    def forward(self, A: Adjacency, h: Tensor) -> Tensor:
        scale = 1 / math.sqrt(self.width)  # into the weights, which are small
        bias_query = None if self.bias_query is None else self.bias_query * scale
        (key, value), (query, out) = both_sides(
            A, h, [(self.weight_key, self.bias_key), (self.weight_value, self.bias_value)],
            [(self.weight_query * scale, bias_query), (self.weight_self, self.bias)],
        )  # fmt: skip
        drop = _dropped(self.drop, self.stream)
        if self.weight_edge is None:
            y = A.attend(query, key, value, kind="dot", heads=self.heads, drop=drop)
        else:
            edge = self.weight_edge.view(-1, self.heads, self.width)
            if self.heads == 1:
                asked = linear(query, self.weight_edge.t())
            else:
                asked = torch.einsum("nhc,thc->nht", query.view(-1, self.heads, self.width), edge).flatten(1)
            bias = A.entries.data_dots(asked, FEATURES, self.heads)
            y, sums = A.attend_data(
                query, key, value, kind="dot", heads=self.heads, drop=drop, bias=bias, values=FEATURES
            )
            if self.heads > 1:
                sums = sums.view(y.shape[0], self.heads, edge.shape[0])
                y = y + torch.einsum("nht,thc->nhc", sums, edge).flatten(1)
        out.add_(_averaged(y, self.heads, self.average))
        if self.weight_edge is not None and self.heads == 1:
            out = add_linear_(out, sums, self.weight_edge)
        return out


class GINELayer(Layer):
    """h'_i = MLP((1 + ε) h_i + Σ_j max(h_j + f_ij W_e + b_e, 0)) (Hu et al.); the MLP is GIN's.

    A's values are not read.

    >>> from weft.kernels import CSR
    >>> from weft.parallel import Operator
    >>> A = Operator.local(CSR(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), None, (2, 2)))
    >>> GINELayer(3, 5)(A, torch.ones(2, 3)).shape
    torch.Size([2, 5])
    """

    scaled, fresh, weighted = False, True, False

    def __init__(self, inputs: int, outputs: int, bias: bool = True, arcs: int = 0):
        super().__init__()
        self.epsilon = nn.Parameter(torch.zeros((), device="cpu"))
        self.weight_edge = weight_of(arcs, inputs) if arcs else None
        self.bias_edge = bias_of(inputs, bias and arcs > 0)
        self.weight1, self.bias1 = weight_of(inputs, outputs), bias_of(outputs, bias)
        self.weight2, self.bias2 = weight_of(outputs, outputs), bias_of(outputs, bias)
        self.data = (FEATURES,) if arcs else ()

    def forward(self, A: Adjacency, h: Tensor) -> Tensor:
        edge = None if self.weight_edge is None else (FEATURES, self.weight_edge)
        if self.bias_edge is None or h.requires_grad:
            far = h if self.bias_edge is None else add_bias(h, self.bias_edge)
            near = A.channel_sum("relu", far, edge=edge)
        else:  # the first layer: on the rows' side, b_e costs no walk back to the columns
            near = A.channel_sum("relu", h, self.bias_edge, edge=edge)
        u = linear(add_scaled(near, A.own(h), 1 + self.epsilon), self.weight1, self.bias1)
        return linear(relu_(u), self.weight2, self.bias2)


class GatedLayer(Layer):
    """h'_i = h_i W_s + Σ_j σ(k_i + q_j + f_ij W_e) ∘ (v_j + f_ij U_e) + b (Bresson and Laurent).

        k = h W_k + b_k, q = h W_q + b_q, v = h W_v + b_v     [n, out];  W_e, U_e [t, out]

    A's values are not read.

    >>> from weft.kernels import CSR
    >>> from weft.parallel import Operator
    >>> A = Operator.local(CSR(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), None, (2, 2)))
    >>> GatedLayer(3, 5)(A, torch.ones(2, 3)).shape
    torch.Size([2, 5])
    """

    scaled, fresh, weighted = False, True, False

    def __init__(self, inputs: int, outputs: int, bias: bool = True, arcs: int = 0):
        super().__init__()
        self.weight_key, self.bias_key = weight_of(inputs, outputs), bias_of(outputs, bias)
        self.weight_query, self.bias_query = weight_of(inputs, outputs), bias_of(outputs, bias)
        self.weight_value, self.bias_value = weight_of(inputs, outputs), bias_of(outputs, bias)
        self.gate_edge = weight_of(arcs, outputs) if arcs else None
        self.value_edge = weight_of(arcs, outputs) if arcs else None
        self.weight_self, self.bias = weight_of(inputs, outputs), bias_of(outputs, bias)
        self.data = (FEATURES,) if arcs else ()

    def forward(self, A: Adjacency, h: Tensor) -> Tensor:
        (query, value), (key, out) = both_sides(
            A, h, [(self.weight_query, self.bias_query), (self.weight_value, self.bias_value)],
            [(self.weight_key, self.bias_key), (self.weight_self, self.bias)],
        )  # fmt: skip
        edge = None if self.gate_edge is None else (FEATURES, self.gate_edge)
        near = A.channel_sum("gate", query, key, value, edge, self.value_edge)
        return out.add_(near)


AGGREGATORS = ("sum", "mean", "min", "max", "std")
"""What PNA knows, all of one walk."""


def aggregators_of(names: str) -> list[str]:
    """PNA's, from their names.

    >>> aggregators_of("mean, max")
    ['mean', 'max']
    """
    found = [name.strip() for name in names.split(",")]
    for name in found:
        if name not in AGGREGATORS:
            raise unknown("aggregator", name, AGGREGATORS)
        if found.count(name) > 1:
            raise UserError(f"aggregators '{names}' have {name} twice. Name each once.")
    return found


class PNALayer(Layer):
    """h'_i = (h_i W_0 + Σ_s s(d_i) [mean, min, max, std]_j m_ij W_s + b) W + c (Corso et al.).

        aggregators  which of sum, mean, min, max and std, in this order beside each other
        m_ij = h_i W_i + h_j W_j + f_ij W_e + b_m          s(d) = 1,  log(d + 1) / δ,  δ / log(d + 1)

    δ is the mean of log(d + 1) over the graph's vertices. Row i's own part is the same in all its messages,
    so all five are those of h_j W_j + f_ij W_e, found in one walk, shifted: the sum by d_i times it.
    A's values are not read.

    >>> from weft.kernels import CSR
    >>> from weft.parallel import Operator
    >>> A = Operator.local(CSR(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), None, (2, 2)))
    >>> PNALayer(3, 5)(A, torch.ones(2, 3)).shape
    torch.Size([2, 5])
    """

    scaled, fresh, weighted = False, True, False
    _LEAST = 1e-5
    """A variance below this counts as 0: its root has no slope there."""

    def __init__(
        self, inputs: int, outputs: int, bias: bool = True, arcs: int = 0, log_degree: float = 1.0,
        aggregators: str = "mean,min,max,std",
    ):  # fmt: skip
        super().__init__()
        self.log_degree, self.aggregators = log_degree, aggregators
        parts = len(aggregators_of(aggregators))
        self.weight_target, self.weight_source = weight_of(inputs, inputs), weight_of(inputs, inputs)
        self.weight_edge = weight_of(arcs, inputs) if arcs else None
        self.bias_message = bias_of(inputs, bias)
        self.weight_self, self.bias_post = weight_of(inputs, outputs), bias_of(outputs, bias)
        self.weight_near = weight_of(parts * inputs, 3 * outputs)
        self.weight_out, self.bias = weight_of(outputs, outputs), bias_of(outputs, bias)
        self.data = (FEATURES,) if arcs else ()

    def forward(self, A: Adjacency, h: Tensor) -> Tensor:
        own = A.own(h)
        edge = None if self.weight_edge is None else (FEATURES, self.weight_edge)
        total, squares, most, least = A.channel_stats(linear(h, self.weight_source), edge)
        degree = A.degrees.to(h.dtype)
        has, count = degree > 0, degree.clamp(min=1)
        mean = total / count
        variance = (squares / count - mean * mean).clamp(min=self._LEAST)
        deviation = torch.where(variance <= self._LEAST, 0.0, variance.sqrt())
        shift = torch.where(has, linear(own, self.weight_target, self.bias_message), 0.0)
        made = {
            "sum": lambda: total + degree * shift, "mean": lambda: mean + shift, "min": lambda: least + shift,
            "max": lambda: most + shift, "std": lambda: torch.where(has, deviation, 0.0),
        }  # fmt: skip
        near = torch.cat([made[name]() for name in aggregators_of(self.aggregators)], 1)
        plain, grown, shrunk = linear(near, self.weight_near).chunk(3, 1)
        grow, shrink = torch.log(degree + 1) / self.log_degree, self.log_degree / torch.log(count + 1)
        u = linear(own, self.weight_self, self.bias_post) + plain + grow * grown + shrink * shrunk
        return linear(u, self.weight_out, self.bias)


class RGCNLayer(Layer):
    """h'_i = h_i W_0 + Σ_r Σ_{j ∈ N_r(i)} h_j W_r / |N_r(i)| + b, W_r = Σ_b c_rb V_b (Schlichtkrull et al.).

        V [in, bases · out], each basis' columns beside each other;  c [relations, bases]
        bases 0: one for every relation, c the identity and not learned

    Of A its pattern alone is read: every arc of a kind counts alike.

    >>> from weft.kernels import CSR
    >>> from weft.parallel import Operator
    >>> kinds = {"type": torch.tensor([0, 1])}
    >>> A = Operator.local(CSR(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), None, (2, 2), kinds))
    >>> RGCNLayer(3, 5, relations=2)(A, torch.ones(2, 3)).shape
    torch.Size([2, 5])
    """

    cut = ("weight", "weight_self")
    data = (KIND,)
    entrywise = fresh = True
    scaled = weighted = False

    def __init__(self, inputs: int, outputs: int, bias: bool = True, relations: int = 1, bases: int = 0):
        super().__init__()
        if relations < 1:
            raise UserError("rgcn needs kinds of arcs. Give the graph arc data named type, or --relations N.")
        self.relations, self.bases = relations, bases or relations
        self.weight = weight_of(inputs, self.bases * outputs)
        self.mix = weight_of(relations, bases) if bases else None
        self.weight_self, self.bias = weight_of(inputs, outputs), bias_of(outputs, bias)

    def partial(self, A: Adjacency, h: Tensor) -> Tensor:
        table = torch.eye(self.relations, dtype=h.dtype, device=h.device) if self.mix is None else self.mix
        shares = A.entries.lookup(table, KIND) * A.entries.share_of_kind(KIND, self.relations).to(h.dtype)
        near = A.entries.weigh(shares, linear(h, self.weight))
        near = near.unflatten(1, (self.bases, near.shape[1] // self.bases)).sum(1)
        return add_linear_(near, A.own(h), self.weight_self)

    def apply(self, t: Tensor) -> Tensor:  # type: ignore[override]
        return add_(t, self.bias)
