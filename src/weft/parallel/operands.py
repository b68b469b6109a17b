"""What attention on a grid is made of: the kind of its scores, its operands, what backward keeps."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..kernels.channels import Signs
from .propagate import Plan


@dataclass(frozen=True)
class Attention:
    """What kind of attention: see `weft.kernels.attention.Scores`."""

    kind: str
    heads: int = 1
    slope: float = 1.0
    softmax: bool = True
    drop: tuple[float, int] | None = None
    """Share of arcs dropped in each head, and the generator's key."""
    features: str = ""
    """The arcs' data that channel scores read, by name; "": none."""
    values: str = ""
    """The arcs' data that are summed up beside x."""

    @property
    def wide(self) -> bool:
        """Whether scores are sums over columns, which feature may cut."""
        return self.kind != "additive"


@dataclass
class Learned:
    """What scores are made of beside the two sides: this rank's entries and columns of it."""

    bias: list[Tensor] | None = None
    """Per block [arcs, heads]."""
    mix: Tensor | None = None
    weight: Tensor | None = None

    def bias_of(self, j: int) -> Tensor | None:
        return None if self.bias is None else self.bias[j]


@dataclass
class Kept:
    """What backward needs of a block's channel scores: s [arcs, heads], and signs of z as far as they fit."""

    scores: Tensor
    signs: Signs | None


@dataclass
class Operands:
    """The two sides and the values, cut as the grid needs them; `column` is `x` where they are one tensor."""

    row: Tensor
    column: Tensor
    x: Tensor
    gain: Tensor | None = None

    @property
    def together(self) -> bool:
        return self.column is self.x

    @property
    def moving(self) -> list[Tensor]:
        """What is gathered along row."""
        column = [] if self.together else [self.column]
        return [self.x, *column, *([] if self.gain is None else [self.gain])]

    def at(self, block: list[Tensor]) -> Operands:
        """The same with the blocks of one rank of the row line."""
        gain = None if self.gain is None else block[-1]
        return Operands(self.row, block[0] if self.together else block[1], block[0], gain)


def cut(plan: Plan, how: Attention, row: Tensor, column: Tensor, x: Tensor, gain: Tensor | None) -> Operands:
    """Complete rows to what travels: wide operands and x by columns, additive's as they are."""
    columns = plan.feature
    x_cut = columns.split(x)
    if not how.wide:
        return Operands(columns.share(row), columns.share(column), x_cut)
    gain = None if gain is None else columns.share(gain)
    return Operands(columns.split(row), x_cut if column is x else columns.split(column), x_cut, gain)


def check_attention(
    kind: str, heads: int, row: Tensor, column: Tensor, x: Tensor, gain: Tensor | None, scale: Tensor | None,
    bias: Tensor | None, mix: Tensor | None, edge: tuple[str, Tensor] | None, arcs: int,
) -> None:  # fmt: skip
    """Refuse operands that kernels would misread."""
    for name, t in (("row", row), ("column", column), ("x", x)):
        if t.shape[1] % heads:
            raise ValueError(f"{name} is {tuple(t.shape)}, which {heads} heads do not divide")
    if kind == "additive" and not row.shape[1] == column.shape[1] == heads:
        raise ValueError(f"additive scores have {heads} columns, not {row.shape[1]} and {column.shape[1]}")
    for name, factor in (("gain", gain), ("scale", scale)):
        if factor is not None and (kind != "dot" or factor.shape[1] != heads):
            raise ValueError(
                f"a {name} is [n, {heads}], of dot products; not {tuple(factor.shape)} of {kind}"
            )
    if row.shape[1] != column.shape[1]:
        raise ValueError(f"the two sides have {row.shape[1]} and {column.shape[1]} columns")
    if bias is not None and (bias.shape != (arcs, heads) or gain is not None):
        raise ValueError(f"a bias is [{arcs}, {heads}], without a gain; not {tuple(bias.shape)}")
    if (mix is not None) != (kind == "channel") or (edge is not None and kind != "channel"):
        raise ValueError("channel scores, and no others, have a mix and may read what arcs carry")
    if mix is not None and mix.shape != (row.shape[1],):
        raise ValueError(f"mix is [{row.shape[1]}], not {tuple(mix.shape)}")
    if edge is not None and (edge[1].dim() != 2 or edge[1].shape[1] != row.shape[1]):
        raise ValueError(f"the arcs' weight is [t, {row.shape[1]}], not {tuple(edge[1].shape)}")
