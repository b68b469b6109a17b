"""What A does arc by arc for a layer: attention, messages of channels, messages of one's own.

The fused kernels choose themselves by what is asked; `Operator` is these, and the products.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

import torch
from torch import Tensor

from ..errors import UserError, unknown
from ..kernels.fold import Fold
from ..kernels.scoring import Scoring
from .attend import Attend, SelfAttend
from .fold import FoldArcs
from .layout import Partial
from .messages import ChannelStats, ChannelSum
from .operands import Attention, check_attention
from .propagate import Plan

if TYPE_CHECKING:
    from .entries import Entries


class Arcwise:
    """The part of an operator that looks at arcs one by one."""

    plan: Plan
    _partial: Partial | None
    _first_column: int
    _width: int

    if TYPE_CHECKING:  # the operator's

        @property
        def entries(self) -> Entries: ...
        @property
        def _square(self) -> bool: ...
        @property
        def _symmetric(self) -> bool: ...
        def own(self, h: Tensor) -> Tensor: ...
        def check(self, rows: dict[str, Tensor | None], columns: dict[str, Tensor | None]) -> None: ...

    def attend(self, row: Tensor, column: Tensor, x: Tensor, **how: Unpack[Scoring]) -> Tensor:
        """Ψ x, Ψ the (row softmax of the) scores at A's entries, through the fused kernels.

            additive  s_ij = leaky(row_i + column_j + bias_ij)     row  [t, heads], column  [s, heads]
            dot       s_ij = scale_i gain_j ⟨row_i, column_j⟩    row, column  [·, heads · d],
                                                         scale, gain  [·, heads], 1 where not given
            channel   s_ij = Σ_c mix_c leaky(row_ic + column_jc + (f_ij W)_c) over the head's columns,
                      row, column [·, heads · d], mix [heads · d], edge = (name of the arcs' data f, W [t, ·])
            bias      [arcs, heads], numbers per entry: added to scores; to additive ones before leaky
            x         [s, heads · out], each head's columns beside each other; so is the result
            drop      (p, stream): share of the arcs left out in each head

        A's own values are not read: `attend` sees where A has entries. The options are those of `Scoring`.
        """
        return self._attend(row, column, x, "", how)[0]

    def attend_data(
        self, row: Tensor, column: Tensor, x: Tensor, values: str = "features", **how: Unpack[Scoring]
    ) -> tuple[Tensor, Tensor]:
        """`attend`, and beside Ψ x also Σ_j Ψ_ij f_ij, f the arcs' data named `values`. → [t, heads · t_f].

        So values x_j + f_ij U need nothing of arcs × width: their sum is Ψ x + (Σ_j Ψ_ij f_ij) U.
        """
        return self._attend(row, column, x, values, how)

    def _attend(
        self, row: Tensor, column: Tensor, x: Tensor, values: str, how: Scoring
    ) -> tuple[Tensor, Tensor]:
        kind, heads, softmax = how.get("kind", "additive"), how.get("heads", 1), how.get("softmax", True)
        gain, scale, bias = how.get("gain"), how.get("scale"), how.get("bias")
        mix, edge, drop = how.get("mix"), how.get("edge"), how.get("drop")
        if kind not in ("additive", "dot", "channel"):
            raise unknown("attention", kind, ["additive", "dot", "channel"])
        row, scale = self.own(row), None if scale is None else self.own(scale)
        self.check({"row": row, "scale": scale}, {"column": column, "x": x, "gain": gain})
        check_attention(kind, heads, row, column, x, gain, scale, bias, mix, edge, self.arcs_seen)
        for name in (values, "" if edge is None else edge[0]):
            self._check_data(name)
        dropped = None if drop is None or drop[0] == 0 else (drop[0], drop[1].key)
        settled = Attention(
            kind, heads, how.get("slope", 1.0), softmax, dropped, "" if edge is None else edge[0], values
        )
        plain = bias is None and not values
        if kind == "dot" and plain and row is column is x and self._square:
            learns = torch.is_grad_enabled()
            learned = [learns and t is not None and t.requires_grad for t in (x, scale, gain)]
            sloped = learned == [False, True, False]
            if sloped or not any(learned) or self._symmetric:
                ones = x.new_ones(x.shape[0], heads)
                scale, gain = ones if scale is None else scale, ones if gain is None else gain
                names = self.plan.row_names.long(), self.plan.names_of(0)
                y = SelfAttend.apply(x, scale, gain, self.plan.matrix(0), settled, names, sloped)
                return y, y.new_empty(0)
        if scale is not None:
            by_head = row.view(row.shape[0], heads, row.shape[1] // heads)  # a rank may have no rows
            row = (by_head * scale[:, :, None]).view_as(row)
        weight = None if edge is None else edge[1]
        return Attend.apply(row, column, x, gain, bias, mix, weight, self.plan, settled)

    @property
    def arcs_seen(self) -> int:
        """Entries of this rank's matrices, slices of others included: numbers per entry are so many."""
        return sum(self.plan.arcs)

    def _check_data(self, name: str) -> None:
        if name and any(name not in a.data for a in self.plan.matrices):
            known = ", ".join(sorted(self.plan.matrices[0].data)) or "none"
            raise UserError(f"the arcs carry no {name!r} here, but: {known}. Name it in the layer's `data`.")

    def fold(
        self, h: Tensor, fold: Fold, data: str = "", target: bool = False, learned: Sequence[Tensor] = ()
    ) -> Tensor:
        """y_i = ⊕ over j of message(h_j, what the arc carries, h_i), some arcs at a time. [s, w] → [t, w].

        fold     the message and ⊕ (`weft.kernels.fold`); each column of a message follows from that column
        data     name of the arcs' data; data as wide as h goes with it, column by column. "": A's entries
        target   whether the message reads h_i
        learned  weights that it reads
        """
        self.check({}, {"h": h})
        self._check_data(data)
        span = (self._first_column, self._width) if self._partial is not None and self._width else None
        entries = None
        if not data:
            entries = self.entries.values(h.dtype)
        return FoldArcs.apply(
            h, self.own(h) if target else None, entries, self.plan, fold, (data, span), *learned
        )

    def channel_sum(
        self, kind: str, column: Tensor, row: Tensor | None = None, x: Tensor | None = None,
        edge: tuple[str, Tensor] | None = None, value_weight: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """Messages made column by column of z_ij = row_i + column_j + f_ij W, summed up. → [t, w].

            relu   y_i = Σ_j max(z_ij, 0)
            gate   y_i = Σ_j σ(z_ij) ∘ (x_j + f_ij value_weight)
            edge   (name of the arcs' data f, W [t, w]);  column, x [s, w]
            row    [t, w], or [w]: the same for all rows

        >>> from weft.kernels import CSR
        >>> from weft.parallel import Operator
        >>> a = CSR(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), None, (2, 2))
        >>> Operator.local(a).channel_sum("relu", torch.tensor([[1.0], [-2.0]])).ravel()
        tensor([0., 1.])
        """
        if kind not in ("relu", "gate"):
            raise unknown("kind of message", kind, ["relu", "gate"])
        same = row is not None and row.dim() == 1
        row = row if row is None or same else self.own(row)
        self.check({"row": None if same else row}, {"column": column, "x": x})
        if same and row is not None and row.shape != column.shape[1:]:
            raise ValueError(f"row has {row.shape[0]} columns, but column has {column.shape[1]}")
        name, weight = ("", None) if edge is None else edge
        self._check_data(name)
        return ChannelSum.apply(row, column, x, weight, value_weight, self.plan, kind, name)

    def channel_stats(self, column: Tensor, edge: tuple[str, Tensor] | None = None) -> tuple[Tensor, ...]:
        """(Σ_j z, Σ_j z², max_j z, min_j z) of z_ij = column_j + f_ij W, in one walk; 0 without arcs.

        >>> from weft.kernels import CSR
        >>> from weft.parallel import Operator
        >>> a = CSR(torch.tensor([0, 2, 2]), torch.tensor([0, 1]), None, (2, 2))
        >>> [t.ravel().tolist() for t in Operator.local(a).channel_stats(torch.tensor([[1.0], [-2.0]]))]
        [[-1.0, 0.0], [5.0, 0.0], [1.0, 0.0], [-2.0, 0.0]]
        """
        self.check({}, {"column": column})
        name, weight = ("", None) if edge is None else edge
        self._check_data(name)
        return ChannelStats.apply(column, weight, self.plan, name)
