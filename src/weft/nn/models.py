"""Models: layers with activation, dropout, norm and residual between them. No ranks in here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from ..errors import UserError, unknown
from ..kernels import Stream, dropout, relu_dropout_
from .adjacency import Adjacency, Move
from .layers import GCNLayer, GINLayer, SAGELayer, SGCLayer


@dataclass
class ModelConfig:
    name: str = "gcn"
    """The model: gcn, sage, gin or sgc."""
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
        norms = [nn.LayerNorm(w) if config.layer_norm else nn.Identity() for w in widths[1:-1]]
        self.norms = nn.ModuleList(norms)

    def forward(self, A: Adjacency, x: Tensor, noise: Noise | None = None) -> Tensor:
        return self.embed(A, x, noise)[-1]

    def embed(self, A: Adjacency, x: Tensor, noise: Noise | None = None) -> tuple[Tensor, Tensor]:
        """(embedding, logits): the last hidden layer [n, hidden] (x where there is none), and the result."""
        if self.training and noise is None and (self.dropout or self.input_dropout):
            raise ValueError(
                "a training pass with dropout needs its random numbers: model(A, x, Noise(seed, epoch))"
            )
        h = embedding = self._drop_input(A, x, noise)
        last = len(self.layers) - 1
        for depth, layer in enumerate(self.layers):
            z = layer(A, h, fixed=depth == 0 and self._keeps_input())
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
        if not self.training or noise is None:
            return relu_dropout_(z, 0.0, Stream(0, 0, layer))
        return relu_dropout_(z, self.dropout, Stream(noise.seed, noise.epoch, layer), A.rows)

    def moves(self) -> list[Move]:
        """The propagations of one steady training epoch, in the order of the layers.

        >>> build(ModelConfig(layers=3, hidden=16), inputs=10, outputs=4).moves()
        [Move(width=16, backward=True, winners=False), Move(width=4, backward=True, winners=False)]
        """
        found: list[Move] = []
        for depth, layer in enumerate(self.layers):
            fixed = depth == 0 and self._keeps_input()
            found += layer.moves(fixed=fixed, grad=depth > 0 or not self.fixed_input)  # type: ignore[operator]
        return found

    def first_parameters(self) -> list[nn.Parameter]:
        """The first layer's weights: those that Kipf and Welling's weight decay is for."""
        return list(self.layers[0].parameters())


Factory = Callable[[ModelConfig, list[int]], tuple[list[nn.Module], str]]


def _stack(layer: Callable[..., nn.Module], widths: list[int], **options: object) -> list[nn.Module]:
    return [layer(a, b, **options) for a, b in pairwise(widths)]


def _sgc(c: ModelConfig, widths: list[int]) -> tuple[list[nn.Module], str]:
    return [SGCLayer(widths[0], widths[-1], c.bias, c.layers)], "gcn"


MODELS: dict[str, Factory] = {
    "gcn": lambda c, w: (_stack(GCNLayer, w, bias=c.bias), "gcn"),
    "sage": lambda c, w: (
        _stack(SAGELayer, w, bias=c.bias, aggregate=c.aggregate),
        "mean" if c.aggregate == "mean" else "none",
    ),
    "gin": lambda c, w: (_stack(GINLayer, w, bias=c.bias), "none"),
    "sgc": _sgc,
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
    for name in ("layers", "hidden"):
        if getattr(config, name) < 1:
            raise UserError(f"{name} must be at least 1, not {getattr(config, name)}.")
    for name in ("dropout", "input_dropout"):
        if not 0 <= getattr(config, name) < 1:
            raise UserError(f"{name} must lie in [0, 1), not {getattr(config, name)}.")
    if config.aggregate not in ("mean", "max"):
        raise unknown("aggregation", config.aggregate, ["mean", "max"])
