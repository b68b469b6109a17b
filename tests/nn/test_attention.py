"""VA, AGNN and GAT against dense equations, and against the paper's closed forms."""

from __future__ import annotations

import gc

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from weft.errors import UserError
from weft.graph import Graph
from weft.kernels import CSR, Stream, dropout
from weft.kernels.attention import Drop
from weft.memory import pool
from weft.nn import AGNNLayer, GATLayer, ModelConfig, Noise, VALayer, build
from weft.parallel import Operator

from .graphs import adjacency, directed, matrix_of

N = 13
STREAM = Stream(3, 1, 4)


def dense(how: str = "loops") -> Tensor:
    return adjacency(directed(N, 40), how).dense().double()


def keep(heads: int, p: float, stream: Stream | None, a: CSR | None = None) -> Tensor:
    """Dropout's factors, [heads, n, n]."""
    a = adjacency(directed(N, 40), "loops") if a is None else a
    if stream is None or p == 0:
        return torch.ones(heads, N, N, dtype=torch.float64)
    out = torch.zeros(N, N, heads, dtype=torch.float64)
    out[a.row_of, a.indices.long()] = Drop(p, stream.key).factors(a, heads, torch.float64)
    return out.permute(2, 0, 1)


def masked_softmax(s: Tensor, a: Tensor) -> Tensor:
    return torch.where(a != 0, s, -torch.inf).softmax(-1)


def va(layer: VALayer, h: Tensor, stream: Stream | None = None) -> Tensor:
    psi = dense() * (h @ h.T) * keep(1, layer.drop, stream)[0]
    return psi @ h @ layer.weight + layer.bias


def agnn(layer: AGNNLayer, h: Tensor, stream: Stream | None = None) -> Tensor:
    cosines = F.normalize(h, dim=1) @ F.normalize(h, dim=1).T
    psi = masked_softmax(layer.beta * cosines, dense()) * keep(1, layer.drop, stream)[0]
    return psi @ h @ layer.weight + layer.bias


def gat(layer: GATLayer, h: Tensor, stream: Stream | None = None) -> Tensor:
    """Head by head, with z = h W first and then u = z a₁: the layer takes another way."""
    a, mask, out = dense(), keep(layer.heads, layer.drop, stream), []
    for k in range(layer.heads):
        z = h @ layer.weight[:, k * layer.width : (k + 1) * layer.width]
        u, v = z @ layer.attend_row[k], z @ layer.attend_column[k]
        psi = masked_softmax(F.leaky_relu(u[:, None] + v[None], layer.slope), a) * mask[k]
        out.append(psi @ z)
    return (torch.stack(out).mean(0) if layer.average else torch.cat(out, 1)) + layer.bias


LAYERS = {
    "va": (lambda p: VALayer(5, 7, drop=p), va),
    "agnn": (lambda p: AGNNLayer(5, 7, drop=p), agnn),
    "gat": (lambda p: GATLayer(5, 7, drop=p), gat),
    "gat, 3 heads": (lambda p: GATLayer(5, 9, heads=3, slope=0.05, drop=p), gat),
    "gat, 8 heads": (lambda p: GATLayer(5, 8, heads=8, drop=p), gat),
    "gat, averaged": (lambda p: GATLayer(5, 7, heads=3, average=True, drop=p), gat),
}


def randomise(module: torch.nn.Module, seed: int = 0) -> None:
    """Every parameter, also biases that start at 0."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(torch.randn(p.shape, generator=g, dtype=torch.float64) * 0.7)


def agree(ours: Tensor, theirs: Tensor, leaves: dict[str, Tensor]) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)
    dy = torch.linspace(-1, 1, ours.numel(), dtype=torch.float64).view_as(ours)
    got, want = (torch.autograd.grad(y, list(leaves.values()), dy) for y in (ours, theirs))
    for name, g, w in zip(leaves, got, want, strict=True):
        torch.testing.assert_close(g, w, rtol=1e-10, atol=1e-10, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize("p", [0.0, 0.4])
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_is_its_equation_forward_and_in_every_gradient(name, p):
    make, equation = LAYERS[name]
    layer = make(p).double()
    randomise(layer)
    h = torch.randn(N, 5, dtype=torch.float64, requires_grad=True)
    leaves = {"h": h, **dict(layer.named_parameters())}
    A = matrix_of(directed(N, 40), "loops")
    layer.stream = STREAM
    loud = layer(A, h)
    agree(loud, equation(layer, h, STREAM), leaves)
    if p:
        layer.stream = None
        quiet = layer(A, h)
        assert not torch.equal(quiet, loud)
        agree(quiet, equation(layer, h), leaves)


def uneven() -> Graph:
    """Directed, with weights of both signs, self-loops, and vertex 5 isolated."""
    graph, g = directed(N, 40), torch.Generator().manual_seed(8)
    far = graph.indices != 5
    source, target = torch.cat([graph.indices[far], torch.tensor([2, 7])]), graph.rows[far]
    weights = torch.randn(source.numel(), generator=g, dtype=torch.float64)
    return Graph.from_arcs(source, torch.cat([target, torch.tensor([2, 7])]), N, weights)


def entries(graph: Graph, how: str) -> Tensor:
    """What A holds, written out: [n, n]."""
    a = torch.zeros(N, N, dtype=torch.float64)
    a[graph.rows, graph.indices.long()] = graph.weights
    if how == "loops":
        return ((a != 0) | torch.eye(N, dtype=torch.bool)).double()
    if how == "gcn":
        a = a + torch.diag((a.diag() == 0).double())
        root = torch.where(a.sum(1) > 0, a.sum(1).clamp(min=0).rsqrt(), 0.0)
        return root[:, None] * a * root
    return a / a.sum(1, keepdim=True).where(a.sum(1, keepdim=True) != 0, 1.0) if how == "mean" else a


@pytest.mark.parametrize("p", [0.0, 0.4])
@pytest.mark.parametrize("how", ["loops", "gcn", "mean", "none"])
@pytest.mark.parametrize(("name", "more"), [("va", {}), ("agnn", {"form": "besta"})])
def test_as_entries_multiply_the_scores_of_va_and_of_bestas_agnn(name, more, how, p):
    """Ψ = A ∘ scores, A normalised as --normalise has it; auto is A + I without weights."""
    normalise = "auto" if how == "loops" else how
    model = build(ModelConfig(name, layers=1, attention_dropout=p, normalise=normalise, **more), 5, 7)
    (layer,), h = model.double().layers, torch.randn(N, 5, dtype=torch.float64, requires_grad=True)
    randomise(layer)
    assert model.adjacency == how
    A = matrix_of(uneven(), model.adjacency)
    layer.stream = STREAM
    normed = h if name == "va" else F.normalize(h, dim=1)
    mask = keep(1, p, STREAM, A.plan.matrix(0))[0]
    psi = entries(uneven(), how) * (normed @ normed.T) * mask
    agree(layer(A, h), psi @ h @ layer.weight + layer.bias, {"h": h, **dict(layer.named_parameters())})


def test_a_softmax_is_normalised_by_itself():
    with pytest.raises(
        UserError, match=r"normalise gcn is for agnn's form besta: .* Add --form besta"
    ) as said:
        build(ModelConfig("agnn", normalise="gcn"), 5, 7)
    assert "\n" not in str(said.value)
    for name, more in (("va", {}), ("agnn", {"form": "besta"})):
        with pytest.raises(UserError, match=r"unknown normalisation 'men'. Did you mean 'mean'"):
            build(ModelConfig(name, normalise="men", **more), 5, 7)


def test_vas_backward_is_the_papers_closed_form():
    """Besta et al., equations 11 to 13: Γ = N₊ H + (Aᵀ ∘ H×) M, Y = Hᵀ (Aᵀ ∘ H×) G."""
    layer = VALayer(5, 7, bias=False).double()
    randomise(layer)
    z = torch.randn(N, 5, dtype=torch.float64, requires_grad=True)
    h = torch.tanh(z)
    g = torch.randn(N, 7, dtype=torch.float64)
    layer(matrix_of(directed(N, 40), "loops"), h).backward(g)
    a, H, W = dense(), h.detach(), layer.weight.detach()
    m = g @ W.T
    n = a * (m @ H.T)
    gamma = (n + n.T) @ H + (a.T * (H @ H.T)) @ m
    torch.testing.assert_close(z.grad, (1 - H**2) * gamma, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(layer.weight.grad, H.T @ (a.T * (H @ H.T)) @ g, rtol=1e-12, atol=1e-12)


def test_the_closed_forms_of_softmax_attention():
    """AGNN and GAT: with M = G Wᵀ and D = Ψ ∘ (M Xᵀ − rows' Σ), what the fused backward adds up."""
    a, A = dense(), matrix_of(directed(N, 40), "loops")
    h = torch.randn(N, 5, dtype=torch.float64, requires_grad=True)
    g = torch.randn(N, 7, dtype=torch.float64)
    layer = AGNNLayer(5, 7, bias=False).double()
    randomise(layer)
    layer(A, h).backward(g)
    H, W, beta = h.detach(), layer.weight.detach(), layer.beta.detach()
    norms = H.norm(dim=1, keepdim=True)
    cosines = (H @ H.T) / (norms @ norms.T)
    psi = masked_softmax(beta * cosines, a)
    m = g @ W.T
    d = psi * (m @ H.T - (m * (psi @ H)).sum(1, keepdim=True))
    torch.testing.assert_close(layer.beta.grad, (d * cosines).sum(), rtol=1e-11, atol=1e-12)
    unit, both = H / norms, beta * (d + d.T)
    along = both @ unit
    along = (along - (along * unit).sum(1, keepdim=True) * unit) / norms
    torch.testing.assert_close(h.grad, along + psi.T @ m, rtol=1e-11, atol=1e-11)

    gatting = GATLayer(5, 7, bias=False).double()
    randomise(gatting)
    h.grad = None
    gatting(A, h).backward(g)
    W, (a1,), (a2,) = (t.detach() for t in (gatting.weight, gatting.attend_row, gatting.attend_column))
    z = H @ W
    t = (z @ a1)[:, None] + (z @ a2)[None]
    psi = masked_softmax(F.leaky_relu(t, 0.2), a)
    d = psi * (g @ z.T - (g * (psi @ z)).sum(1, keepdim=True))
    d = torch.where(t > 0, d, 0.2 * d)
    dz = psi.T @ g + d.sum(1)[:, None] * a1 + d.sum(0)[:, None] * a2
    torch.testing.assert_close(gatting.weight.grad, H.T @ dz, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(gatting.attend_row.grad[0], z.T @ d.sum(1), rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(gatting.attend_column.grad[0], z.T @ d.sum(0), rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(h.grad, dz @ W.T, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("layers", [1, 2, 4])
@pytest.mark.parametrize("name", ["gat", "agnn", "va"])
def test_models_of_any_depth_are_their_layers_with_dropout_by_counter(name, layers):
    config = ModelConfig(
        name, layers=layers, hidden=6, dropout=0.3, attention_dropout=0.2, input_dropout=0.1,
        **({"heads": 2, "output_heads": 3} if name == "gat" else {}),
    )  # fmt: skip
    model = build(config, inputs=5, outputs=4).double()
    randomise(model)
    x = torch.randn(N, 5, dtype=torch.float64)
    ours = model(matrix_of(directed(N, 40), "loops"), x, Noise(7, 3))
    equation = {"gat": gat, "agnn": agnn, "va": va}[name]
    activation = F.elu if name == "gat" else torch.relu
    h = dropout(x, 0.1, Stream(7, 3, 0))
    for depth, layer in enumerate(model.layers):
        h = equation(layer, h, Stream(7, 3, depth))
        if depth < layers - 1:
            h = dropout(activation(h), 0.3, Stream(7, 3, depth + 1))
    agree(ours, h, dict(model.named_parameters()))
    assert ours.shape == (N, 4)


def test_inference_keeps_nothing_for_backward():
    """With no_grad a deep model saves no tensor, and training saves more the deeper it is."""
    A = matrix_of(directed(N, 40), "loops")
    x = torch.randn(N, 5, dtype=torch.float64)
    A.hold(x)

    def saved(model: torch.nn.Module, noise: Noise | None) -> int:
        kept: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
            model(A, x, noise)
        return sum(kept)

    for name in ("gat", "agnn", "va"):
        with torch.no_grad():
            build(ModelConfig(name, hidden=6), inputs=5, outputs=4).double().eval()(A, x)
        assert not A._made, name
    counts = []
    for depth in (2, 5):
        model = build(ModelConfig("gat", layers=depth, hidden=6, dropout=0.0), inputs=5, outputs=4).double()
        counts.append(saved(model, Noise(0, 1)))
        with torch.no_grad():
            assert saved(model.eval(), None) == 0
    assert counts[1] > counts[0] > 0


def test_inference_of_any_depth_needs_the_same_buffers():
    """The pool holds buffers of 1 MB and more: 33,000 vertices × 8 float32 are such a one."""
    n = 33_000
    step = torch.arange(n)
    a = CSR(
        torch.arange(0, 2 * n + 1, 2), torch.stack([step, (step * 7 + 1) % n], 1).ravel().int(), None, (n, n)
    )
    A, x = Operator.local(a), torch.randn(n, 8)

    def asked(depth: int, training: bool) -> int:
        model = build(ModelConfig("gat", layers=depth, hidden=8, heads=2, dropout=0.0), inputs=8, outputs=8)
        gc.collect()
        pool.trim()
        before = pool.bytes
        with torch.set_grad_enabled(training):
            y = model.train(training)(A, x, Noise(0, 1))
        assert y.shape == (n, 8)
        return pool.bytes - before

    assert asked(2, training=False) == asked(6, training=False) > 0
    assert asked(6, training=True) > asked(2, training=True)


def test_a_vertex_without_neighbours_gives_the_bias_and_no_gradient():
    """Without self-loops vertex 5 has no arc: softmax over nothing is nothing."""
    A = Operator.local(adjacency(directed(N, 40), "none"))
    for make, _ in LAYERS.values():
        layer = make(0.0).double()
        randomise(layer)
        h = torch.randn(N, 5, dtype=torch.float64, requires_grad=True)
        y = layer(A, h)
        assert bool(torch.isfinite(y).all())
        assert torch.equal(y[5], layer.bias)
        torch.autograd.backward(y[5].sum(), inputs=[h])
        assert not h.grad.any()


def test_a_row_of_zeros_has_cosine_zero_with_everything():
    layer = AGNNLayer(5, 7).double()
    h = torch.randn(N, 5, dtype=torch.float64)
    h[4] = 0
    h.requires_grad_()
    y = layer(matrix_of(directed(N, 40), "loops"), h)
    torch.testing.assert_close(y, agnn(layer, h), rtol=1e-11, atol=1e-11)
    y.sum().backward()
    assert bool(torch.isfinite(h.grad).all())


def test_heads_that_do_not_divide_the_width_are_named():
    with pytest.raises(UserError, match=r"3 heads do not divide a width of 7. Use --heads 1."):
        GATLayer(5, 7, heads=3)
    with pytest.raises(UserError, match=r"4 heads do not divide a hidden width of 6. Use --hidden 4."):
        build(ModelConfig("gat", hidden=6, heads=4), 5, 4)
