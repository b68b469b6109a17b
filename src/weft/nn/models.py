"""Models: layers with activation, dropout, norm and residual between them. No ranks in here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from ..errors import UserError, unknown
from ..kernels import Stream, dropout, elu_, relu_dropout_
from .adjacency import Adjacency, Move, Tally
from .attention import AGNNLayer, GATLayer, VALayer
from .layers import GCNLayer, GINLayer, SAGELayer, SGCLayer


@dataclass
class ModelConfig:
    name: str = "gcn"
    """The model: gcn, sage, gin, sgc, or with attention gat, agnn, va."""
    layers: int = 2
    """Layers; for sgc the number of propagations, K."""
    hidden: int = 64
    """Width between the layers."""
    dropout: float = 0.5
    """Share of activations dropped after each hidden layer while training, in [0, 1)."""
    input_dropout: float = 0.0
    """Share of input features dropped while training. Above 0, A·X cannot be kept from epoch to epoch."""
    aggregate: str = "mean"
    """How sage combines neighbours: mean or max."""
    layer_norm: bool = False
    """Layer norm before each activation."""
    residual: bool = False
    """Add a layer's input to its output where the widths agree."""
    bias: bool = True
    """A bias in every layer."""
    activation: str = "auto"
    """Between the layers: relu, elu, or auto (elu for gat, relu else)."""
    heads: int = 1
    """Attention heads of gat's hidden layers; they share the hidden width, so they must divide it."""
    output_heads: int = 1
    """Attention heads of gat's last layer; they are averaged."""
    slope: float = 0.2
    """Slope of gat's LeakyReLU below 0."""
    attention_dropout: float = 0.0
    """Share of arcs dropped from the attention while training, in [0, 1)."""


@dataclass(frozen=True)
class Noise:
    """Which random numbers a training pass uses; see `weft.kernels.Stream`."""

    seed: int
    epoch: int


class Model(nn.Module):
    """h₀ = drop(X);  h_l = drop(relu(norm(layer_l(A, h_{l−1}) [+ h_{l−1}])));  the last gives the logits.

        x       [n, f]   input features of the vertices at hand
        logits  [n, c]

    `adjacency` names the normalisation of A that the layers expect (`weft.graph.normalise`).

    >>> import torch
    >>> from weft.kernels import CSR
    >>> A = CSR(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), None, (2, 2))
    >>> model = build(ModelConfig(name="gcn", hidden=8), inputs=3, outputs=2)
    >>> model(A, torch.ones(2, 3), Noise(seed=0, epoch=1)).shape
    torch.Size([2, 2])
    """

    def __init__(self, layers: list[nn.Module], widths: list[int], adjacency: str, config: ModelConfig):
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.widths = widths
        self.adjacency = adjacency
        self.residual = config.residual
        self.dropout, self.input_dropout = config.dropout, config.input_dropout
        self.fixed_input = True
        """Whether x is the same in every pass; else its aggregation is not kept, and it gets a gradient."""
        self.noise_in_layers = config.attention_dropout > 0
        self.activation = _activation(config)
        norms = [nn.LayerNorm(w) if config.layer_norm else nn.Identity() for w in widths[1:-1]]
        self.norms = nn.ModuleList(norms)

    def forward(self, A: Adjacency, x: Tensor, noise: Noise | None = None) -> Tensor:
        return self.embed(A, x, noise)[-1]

    def embed(self, A: Adjacency, x: Tensor, noise: Noise | None = None) -> tuple[Tensor, Tensor]:
        """(embedding, logits): the last hidden layer [n, hidden] (x where there is none), and the result."""
        if self.training and noise is None and (self.dropout or self.input_dropout or self.noise_in_layers):
            raise ValueError(
                "a training pass with dropout needs its random numbers: model(A, x, Noise(seed, epoch))"
            )
        h = embedding = self._drop_input(A, x, noise)
        last = len(self.layers) - 1
        for depth, layer in enumerate(self.layers):
            fixed = depth == 0 and self._keeps_input()
            if getattr(layer, "noisy", False):
                drawn = None if noise is None or not self.training else Stream(noise.seed, noise.epoch, depth)
                z = layer(A, h, fixed=fixed, stream=drawn)
            else:
                z = layer(A, h, fixed=fixed)
            if depth == last:
                return embedding, z
            if self.residual and z.shape == h.shape:
                z = z + h
            h = embedding = self._activate(A, self.norms[depth](z), depth + 1, noise)
        raise UserError("a model needs at least 1 layer. Use --layers 2.")

    def _keeps_input(self) -> bool:
        return self.fixed_input and not self.input_dropout

    def _drop_input(self, A: Adjacency, x: Tensor, noise: Noise | None) -> Tensor:
        if not self.training or noise is None or self.input_dropout == 0:
            return x
        return dropout(x, self.input_dropout, Stream(noise.seed, noise.epoch, 0), A.rows)

    def _activate(self, A: Adjacency, z: Tensor, layer: int, noise: Noise | None) -> Tensor:
        dropping = self.training and noise is not None
        stream = Stream(noise.seed, noise.epoch, layer) if noise is not None else Stream(0, 0, layer)
        p = self.dropout if dropping else 0.0
        rows = A.rows if dropping else None
        if self.activation == "relu":
            return relu_dropout_(z, p, stream, rows)
        return dropout(elu_(z), p, stream, rows)

    def moves(self, plain: bool = True) -> list[Move]:
        """What one steady training step asks of the graph, layer by layer; `plain`: A is all ones.

        >>> model = build(ModelConfig(layers=3, hidden=16), inputs=10, outputs=4)
        >>> [(move.kind, move.width) for move in model.moves()]
        [('propagate', 16), ('propagate', 4)]
        """
        tally = Tally(plain)
        parameter = next(self.parameters())
        x = torch.empty(0, self.widths[0], dtype=parameter.dtype, device=parameter.device)
        x.requires_grad_(not self.fixed_input)
        training = self.training
        self.train()
        with torch.enable_grad():
            self(tally, x, Noise(0, 0))
        self.train(training)
        return tally.moves

    def first_parameters(self) -> list[nn.Parameter]:
        """The first layer's weights: those that Kipf and Welling's weight decay is for."""
        return list(self.layers[0].parameters())


Factory = Callable[[ModelConfig, list[int]], tuple[list[nn.Module], str]]


def _stack(layer: Callable[..., nn.Module], widths: list[int], **options: object) -> list[nn.Module]:
    return [layer(a, b, **options) for a, b in pairwise(widths)]


def _sgc(c: ModelConfig, widths: list[int]) -> tuple[list[nn.Module], str]:
    return [SGCLayer(widths[0], widths[-1], c.bias, c.layers)], "gcn"


def _gat(c: ModelConfig, widths: list[int]) -> tuple[list[nn.Module], str]:
    options = {"bias": c.bias, "slope": c.slope, "drop": c.attention_dropout}
    layers = _stack(GATLayer, widths[:-1], heads=c.heads, **options)
    layers.append(GATLayer(widths[-2], widths[-1], heads=c.output_heads, average=True, **options))  # type: ignore[arg-type]
    return layers, "loops"


def _activation(config: ModelConfig) -> str:
    return config.activation if config.activation != "auto" else "elu" if config.name == "gat" else "relu"


MODELS: dict[str, Factory] = {
    "gcn": lambda c, w: (_stack(GCNLayer, w, bias=c.bias), "gcn"),
    "sage": lambda c, w: (
        _stack(SAGELayer, w, bias=c.bias, aggregate=c.aggregate),
        "mean" if c.aggregate == "mean" else "none",
    ),
    "gin": lambda c, w: (_stack(GINLayer, w, bias=c.bias), "none"),
    "sgc": _sgc,
    "gat": _gat,
    "agnn": lambda c, w: (_stack(AGNNLayer, w, bias=c.bias, drop=c.attention_dropout), "loops"),
    "va": lambda c, w: (_stack(VALayer, w, bias=c.bias, drop=c.attention_dropout), "loops"),
}
"""Name → (layers, normalisation of A). A new model is a line here."""


def build(config: ModelConfig, inputs: int, outputs: int, seed: int | None = None) -> Model:
    """The model that the config describes, from `inputs` features to `outputs` classes.

    With a seed, its weights are those of that seed, whatever other threads draw from torch's generator.

    >>> build(ModelConfig(name="sage", layers=3, hidden=16), inputs=10, outputs=4).widths
    [10, 16, 16, 4]
    """
    check_model(config)
    widths = [inputs, *[config.hidden] * (config.layers - 1), outputs]
    layers, adjacency = MODELS[config.name](config, widths)
    model = Model(layers, [inputs, outputs] if config.name == "sgc" else widths, adjacency, config)
    if seed is not None:
        generator = torch.Generator().manual_seed(seed)
        for p in model.parameters():
            if p.dim() == 2:  # vectors and scalars start at a constant
                nn.init.xavier_uniform_(p, generator=generator)
    return model


def check_model(config: ModelConfig) -> None:
    """Refuse a model that cannot be.

    >>> check_model(ModelConfig(dropout=1.5))
    Traceback (most recent call last):
        ...
    weft.errors.UserError: dropout must lie in [0, 1), not 1.5.
    """
    if config.name not in MODELS:
        raise unknown("model", config.name, MODELS)
    for name in ("layers", "hidden", "heads", "output_heads"):
        if getattr(config, name) < 1:
            raise UserError(f"{name} must be at least 1, not {getattr(config, name)}.")
    if config.activation not in ("auto", "relu", "elu"):
        raise unknown("activation", config.activation, ["auto", "relu", "elu"])
    if config.name == "gat" and config.layers > 1 and config.hidden % config.heads:
        raise UserError(
            f"{config.heads} heads do not divide a hidden width of {config.hidden}. "
            f"Use --hidden {config.heads * max(config.hidden // config.heads, 1)}."
        )
    if config.slope < 0:
        raise UserError(f"slope must be at least 0, not {config.slope}.")
    for name in ("dropout", "input_dropout", "attention_dropout"):
        if not 0 <= getattr(config, name) < 1:
            raise UserError(f"{name} must lie in [0, 1), not {getattr(config, name)}.")
    if config.aggregate not in ("mean", "max"):
        raise unknown("aggregation", config.aggregate, ["mean", "max"])
