"""Layers over arcs make nothing of arcs × width: by the bytes of every tensor, the same on any machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from weft.kernels import CSR, use
from weft.nn.arcs import GatedLayer, GATv2Layer, GINELayer, PNALayer, RGCNLayer, TransformerLayer
from weft.nn.attention import GATLayer
from weft.parallel import Operator

T, KINDS = 5, 4


class Made(TorchDispatchMode):
    """How many bytes all results of operations have, and the largest; the pool's tensors are among them."""

    def __init__(self) -> None:
        super().__init__()
        self.all = self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        for t in tree_leaves(found):
            if isinstance(t, Tensor):
                size = t.numel() * t.element_size()
                self.all, self.largest = self.all + size, max(self.largest, size)
        return found


WIDE: dict[str, Callable[[int], nn.Module]] = {
    "gat": lambda w: GATLayer(w, w, heads=2, arcs=T),
    "gatv2": lambda w: GATv2Layer(w, w, heads=2, arcs=T),
    "transformer": lambda w: TransformerLayer(w, w, heads=2, arcs=T),
    "gine": lambda w: GINELayer(w, w, arcs=T),
    "resgated": lambda w: GatedLayer(w, w, arcs=T),
    "pna": lambda w: PNALayer(w, w, arcs=T, aggregators="mean,min,max,std,sum"),
    "rgcn": lambda w: RGCNLayer(w, w, relations=KINDS, bases=2),
}
MANY = 600


def made_by(name: str, degree: int, width: int) -> Made:
    """Forward and back of one layer, every vertex with so many arcs."""
    g = torch.Generator().manual_seed(0)
    arcs = MANY * degree
    data = {"features": torch.rand(arcs, T, generator=g), "type": torch.randint(KINDS, (arcs,), generator=g)}
    columns = torch.rand(MANY, MANY, generator=g).argsort(1)[:, :degree].sort(1).values.int().ravel()
    A = Operator.local(CSR(torch.arange(0, arcs + 1, degree), columns, None, (MANY, MANY), data))
    h, layer = torch.rand(MANY, width, requires_grad=True), WIDE[name](width)
    layer(A, h).sum().backward()  # what is made once: the transpose, degrees, shares
    with Made() as made:
        layer(A, h).sum().backward()
    return made


def growth(name: str) -> float:
    """Bytes made for an arc and a column more: of one array of float32 [arcs, width] 4."""
    (a, b), (c, d) = (
        [made_by(name, degree, width).all for width in (64, 128)] for degree in (50, 100)
    )  # fmt: skip
    return (d - c - b + a) / (50 * MANY * 64)


@pytest.mark.parametrize("kernels", ["native"])
@pytest.mark.parametrize("name", WIDE)
def test_nothing_of_arcs_by_width_is_made_forward_or_backward(name: str, kernels: str) -> None:
    with use(kernels):
        # Signs are a bit an arc and column, some rows of them at a time: 0.125 in all, and padding.
        assert abs(growth(name)) < 0.2
        # The largest is a few times vertices × width, or numbers per arc; arcs × width is 100 times.
        assert made_by(name, 100, 128).largest < 4 * 100 * MANY * 128 / 8


def test_what_makes_messages_is_seen_by_the_count() -> None:
    """The torch kernels make a tile of arcs × width at a time: each is forgotten, and counted here."""
    with use("torch"):
        assert growth("gine") > 4
