"""A layer's two halves, on the whole graph and on blocks: one equation, whatever A is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from weft.comm.threads import single
from weft.kernels import CSR
from weft.nn import (
    AGNNLayer,
    BestaAGNNLayer,
    Chain,
    GATLayer,
    GCNLayer,
    GINLayer,
    Layer,
    SAGELayer,
    SGCLayer,
    VALayer,
    in_halves,
)
from weft.nn.algebra import rep, softmax, tall
from weft.parallel import Grid, Operator

from .graphs import adjacency, directed, matrix_of

T, S = 6, 11  # rows and columns of a block


def masked(s: Tensor, there: Tensor) -> Tensor:
    """Softmax over the entries of each row; of a row without any, nothing."""
    return torch.where(there, torch.where(there, s, -1e300).softmax(-1), 0.0)


def gcn(layer: GCNLayer, a: Tensor, h: Tensor, own: Tensor) -> Tensor:
    return a @ h @ layer.weight + layer.bias


def sage(layer: SAGELayer, a: Tensor, h: Tensor, own: Tensor) -> Tensor:
    near = a @ h
    if layer.reduce == "max":
        most = torch.where((a != 0)[:, :, None], h[None], -torch.inf).amax(1)
        near = torch.where((a != 0).any(1)[:, None], most, 0.0)
    return own @ layer.weight_self + near @ layer.weight_near + layer.bias


def gin(layer: GINLayer, a: Tensor, h: Tensor, own: Tensor) -> Tensor:
    u = ((1 + layer.epsilon) * own + a @ h) @ layer.weight1 + layer.bias1
    return u.relu() @ layer.weight2 + layer.bias2


def va(layer: VALayer, a: Tensor, h: Tensor, own: Tensor) -> Tensor:
    return (a * (own @ h.T)) @ h @ layer.weight + layer.bias


def agnn(layer: AGNNLayer, a: Tensor, h: Tensor, own: Tensor) -> Tensor:
    cosines = torch.nn.functional.normalize(own, dim=1) @ torch.nn.functional.normalize(h, dim=1).T
    return masked(layer.beta * cosines, a != 0) @ h @ layer.weight + layer.bias


def besta(layer: BestaAGNNLayer, a: Tensor, h: Tensor, own: Tensor) -> Tensor:
    cosines = torch.nn.functional.normalize(own, dim=1) @ torch.nn.functional.normalize(h, dim=1).T
    return (a * cosines) @ h @ layer.weight + layer.bias


def gat(layer: GATLayer, a: Tensor, h: Tensor, own: Tensor) -> Tensor:
    out = []
    for k in range(layer.heads):
        columns = slice(k * layer.width, (k + 1) * layer.width)
        u = own @ layer.weight[:, columns] @ layer.attend_row[k]
        z = h @ layer.weight[:, columns]
        scores = torch.nn.functional.leaky_relu(u[:, None] + z @ layer.attend_column[k], layer.slope)
        out.append(masked(scores, a != 0) @ z)
    return (torch.stack(out).mean(0) if layer.average else torch.cat(out, 1)) + layer.bias


Equation = Callable[..., Tensor]
LAYERS: dict[str, tuple[Callable[[], Layer], Equation, bool]] = {
    # how it is made; its dense equation; whether it reads A's values
    "gcn": (lambda: GCNLayer(5, 3), gcn, True),
    "gcn, wider": (lambda: GCNLayer(3, 5), gcn, True),
    "sgc": (lambda: SGCLayer(5, 3, hops=1), gcn, True),
    "sage": (lambda: SAGELayer(5, 3), sage, True),
    "sage, max": (lambda: SAGELayer(5, 3, aggregate="max"), sage, False),
    "gin": (lambda: GINLayer(5, 3), gin, True),
    "va": (lambda: VALayer(5, 3), va, False),
    "va, weighted": (lambda: VALayer(5, 3), va, True),
    "agnn": (lambda: AGNNLayer(5, 3), agnn, False),
    "agnn of besta": (lambda: BestaAGNNLayer(5, 3), besta, False),
    "agnn of besta, weighted": (lambda: BestaAGNNLayer(5, 3), besta, True),
    "gat": (lambda: GATLayer(5, 3), gat, False),
    "gat, 3 heads": (lambda: GATLayer(5, 6, heads=3, slope=0.05), gat, False),
    "gat, averaged": (lambda: GATLayer(5, 4, heads=3, average=True), gat, False),
}


def shaken(layer: Layer) -> Layer:
    """Biases and ε start at 0, where a wrong use of them would not show."""
    layer = layer.double()
    for p in layer.parameters():
        p.data += 0.3 * torch.randn_like(p)
    return layer


def block(valued: bool) -> CSR:
    """t × s, with a row that is empty (2) and one that reads everything (4)."""
    g = torch.Generator().manual_seed(7)
    there = torch.rand(T, S, generator=g) < 0.4
    there[2], there[4] = False, True
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), there.sum(1).cumsum(0)])
    arcs = int(there.sum())
    values = torch.rand(arcs, generator=g, dtype=torch.float64) + 0.5 if valued else None
    return CSR(indptr, there.nonzero()[:, 1], values, (T, S))


def agree(ours: Tensor, theirs: Tensor, leaves: dict[str, Tensor]) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
    dy = torch.randn_like(ours)
    found, wanted = (torch.autograd.grad(y, list(leaves.values()), dy) for y in (ours, theirs))
    for name, got, want in zip(leaves, found, wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("name", LAYERS)
def test_forward_is_apply_of_partial(name):
    make, _, valued = LAYERS[name]
    layer, A = shaken(make()), matrix_of(directed(), "gcn" if valued else "loops")
    h = torch.randn(23, next(layer.parameters()).shape[0] if name == "gcn, wider" else 5).double()
    assert in_halves(layer)
    with torch.no_grad():
        whole, halves = layer(A, h), layer.apply(layer.partial(A, h))
    assert torch.equal(whole, halves)


@pytest.mark.parametrize("first", [True, False], ids=["targets first", "targets anywhere"])
@pytest.mark.parametrize("name", LAYERS)
def test_on_a_block_a_layer_is_its_equation_on_the_blocks_rows(name, first):
    make, equation, valued = LAYERS[name]
    layer, a = shaken(make()), block(valued)
    h = torch.randn(S, 3 if name == "gcn, wider" else 5, dtype=torch.float64, requires_grad=True)
    targets = None if first else torch.tensor([7, 3, 0, 10, 5, 1])
    A = Operator.local(a, rows=torch.arange(T) + 100, columns=torch.arange(S) + 100, targets=targets)
    own = h[:T] if targets is None else h[targets]
    agree(
        layer(A, h), equation(layer, a.dense().double(), h, own), {"h": h, **dict(layer.named_parameters())}
    )


def test_on_a_block_the_own_row_of_another_vertex_would_be_caught():
    layer, a = shaken(SAGELayer(5, 3)), block(True)
    h = torch.randn(S, 5, dtype=torch.float64)
    wrong = sage(layer, a.dense().double(), h, h[1 : T + 1])
    with pytest.raises(AssertionError):
        torch.testing.assert_close(layer(Operator.local(a), h), wrong)


def test_two_hops_go_through_two_blocks_of_different_sizes():
    layer = shaken(SGCLayer(5, 3, hops=2))
    outer = block(True)  # [6, 11]
    g = torch.Generator().manual_seed(8)
    there = torch.rand(S, 17, generator=g) < 0.3
    indptr = torch.cat([torch.zeros(1, dtype=torch.int64), there.sum(1).cumsum(0)])
    inner = CSR(indptr, there.nonzero()[:, 1], None, (S, 17))
    h = torch.randn(17, 5, dtype=torch.float64, requires_grad=True)
    y = layer(Chain([Operator.local(inner), Operator.local(outer)]), h)
    want = outer.dense().double() @ inner.dense().double() @ h @ layer.weight + layer.bias
    agree(y, want, {"h": h, **dict(layer.named_parameters())})


@pytest.mark.parametrize("name", ["va", "agnn", "agnn of besta", "gat", "gat, 3 heads", "gat, averaged"])
def test_our_attention_is_fused_on_the_whole_graph(name):
    layer = shaken(LAYERS[name][0]())
    A = Operator.build(directed(), single(), Grid(1), "loops", dtype=torch.float64)
    assert A.explain() == {}
    layer(A, torch.randn(23, 5, dtype=torch.float64, requires_grad=True))
    (said,) = A.explain().values()
    assert said.startswith("fused: ")


def test_what_is_not_fused_says_why():
    h = torch.randn(23, 5, dtype=torch.float64)
    A = Operator.local(adjacency(directed(), "gcn"))
    shaken(VALayer(5, 3))(A, h)
    assert list(A.explain().values()) == ["numbers per arc, not fused: A has values of its own"]
    A = matrix_of(directed(), "loops")
    _ = softmax(A * torch.tanh(tall(h) @ tall(h).T)) @ h
    _ = softmax(A * (rep(h[:, 0]) * rep(h[:, 1]))) @ h
    tanh, product = A.explain().values()
    for said in (tanh, product):
        assert said.startswith("numbers per arc, not fused: no kernel has this shape; known are X @ Y.T")
    _ = (A * rep(h[:, 0])).aggregate(h, "max")
    assert "fused kernels know the sum alone" in list(A.explain().values())[-1]


def test_a_layer_that_is_written_as_a_whole_is_no_halves():
    class Plain(Layer):
        def forward(self, A, h):
            return A @ h

    class Both(GCNLayer):
        def forward(self, A, h):
            return super().forward(A, h) * 2

    assert not in_halves(Plain())
    assert not in_halves(Both(3, 4))  # its halves are not what it computes
    assert not in_halves(torch.nn.Linear(3, 4))
    with pytest.raises(NotImplementedError, match="Plain has no partial"):
        Plain().partial(matrix_of(directed(), "none"), torch.ones(23, 2))


def test_a_half_written_anew_does_not_inherit_what_was_said_of_the_old_one():
    class Sharp(GCNLayer):
        def apply(self, t):
            return torch.sigmoid(super().apply(t))

    class Near(GCNLayer):
        def partial(self, A, h):
            return super().partial(A, h)

    class Said(Near):
        direct = True

        def apply(self, t):
            return t + 1

    class Same(GCNLayer):
        pass

    claims = {kind: (kind.entrywise, kind.direct, kind.fresh) for kind in (Sharp, Near, Said, Same)}
    yes, no = True, False
    assert claims == {Sharp: (no, yes, no), Near: (yes, no, no), Said: (no, yes, no), Same: (yes, yes, yes)}


def test_a_second_half_written_anew_gets_its_gradients_behind_an_activation():
    """Backward of a sigmoid reads its result: the ReLU behind it must not write there."""

    class Sharp(GCNLayer):
        def apply(self, t):
            return torch.sigmoid(super().apply(t)) - 0.5

    class Bare(GCNLayer):
        def apply(self, t):
            return torch.sigmoid(super().apply(t))

    from weft.nn import Model, ModelConfig

    A, h = matrix_of(directed(), "gcn"), torch.randn(23, 5, dtype=torch.float64)
    for kind in (Sharp, Bare):
        model = Model([kind(5, 4), GCNLayer(4, 3)], [5, 4, 3], "gcn", ModelConfig(dropout=0.0)).double()
        ours = torch.autograd.grad(model(A, h).square().sum(), list(model.parameters()))
        a, (first, second) = adjacency(directed(), "gcn").dense().double(), model.layers
        z = torch.sigmoid(a @ h @ first.weight + first.bias) - (0.5 if kind is Sharp else 0.0)
        want = (a @ torch.relu(z) @ second.weight + second.bias).square().sum()
        for mine, dense in zip(ours, torch.autograd.grad(want, list(model.parameters())), strict=True):
            torch.testing.assert_close(mine, dense, rtol=1e-10, atol=1e-12)


def test_models_take_torchs_apply_though_layers_have_their_own():
    from weft.nn import ModelConfig, build

    seen: list[str] = []
    model = build(ModelConfig("gcn"), 3, 2)
    assert model.apply(lambda module: seen.append(type(module).__name__)) is model
    assert seen.count("GCNLayer") == 2


@pytest.mark.parametrize("make", [GCNLayer, SAGELayer, GINLayer, VALayer, AGNNLayer])
def test_a_bias_is_added_in_place_but_to_what_is_kept_for_its_gradient(make: Callable[..., Layer]) -> None:
    layer, t = make(3, 3), torch.ones(2, 3)
    with torch.no_grad():
        for bias in (p for name, p in layer.named_parameters() if name in ("bias", "bias1")):
            bias.fill_(2.0)
        layer.apply(t)
    assert t.tolist() == [[3.0] * 3] * 2
    came = torch.ones(2, 3, requires_grad=True)  # from the wire
    layer.apply(came).sum().backward()
    assert came.tolist() == [[1.0] * 3] * 2
    assert came.grad is not None
