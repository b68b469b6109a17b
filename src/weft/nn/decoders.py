"""Decoders: from the embeddings of a pair's two ends to its score. No ranks in here."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

from ..errors import UserError, unknown
from ..kernels import Stream, linear, relu_dropout_

_LAYER = 1 << 20
"""Where the decoder's streams of random numbers begin, far from those of the encoder's layers."""


class Decoder(nn.Module):
    """score(u, v) = f(h_u ∘ h_v): the same for both directions of a pair.

    z       [m, w]  the products h_u ∘ h_v
    names   [m]     a number of each pair, its own within a step; from it comes the dropout mask
    scores  [m]     logits
    """

    def forward(self, z: Tensor, names: Tensor | None = None, turn: tuple[int, int] | None = None) -> Tensor:
        raise NotImplementedError


class Dot(Decoder):
    """score(u, v) = h_u · h_v.

    >>> Dot()(torch.tensor([[1., 2.], [3., 4.]]))
    tensor([3., 7.])
    """

    def forward(self, z: Tensor, names: Tensor | None = None, turn: tuple[int, int] | None = None) -> Tensor:
        return z.sum(1)


class MLP(Decoder):
    """z₀ = h_u ∘ h_v;  z_l = drop(relu(z_{l−1} W_l + b_l));  the last gives one number (as OGB's baseline).

    >>> MLP([8, 8, 1], dropout=0.5).eval()(torch.ones(3, 8)).shape
    torch.Size([3])
    """

    def __init__(self, widths: list[int], dropout: float):
        super().__init__()
        self.dropout = dropout
        self.weights = nn.ParameterList(
            nn.init.xavier_uniform_(torch.empty(a, b, device="cpu")) for a, b in pairwise(widths)
        )
        self.biases = nn.ParameterList(torch.zeros(b, device="cpu") for b in widths[1:])

    def forward(self, z: Tensor, names: Tensor | None = None, turn: tuple[int, int] | None = None) -> Tensor:
        last = len(self.weights) - 1
        drops = self.training and self.dropout > 0
        if drops and (names is None or turn is None):
            raise ValueError("a training pass with dropout needs the pairs' names and the turn")
        seed, number = turn or (0, 0)
        for depth, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            z = linear(z, weight, bias)
            if depth < last:
                stream = Stream(seed, number, _LAYER + depth)
                z = relu_dropout_(z, self.dropout if drops else 0.0, stream, names if drops else None)
        return z.squeeze(1)


DECODERS = ("dot", "mlp")


def build_decoder(name: str, layers: int, width: int, dropout: float, seed: int | None = None) -> Decoder:
    """The decoder of that name for embeddings of `width`; with a seed, its weights are those of that seed.

    >>> sum(p.numel() for p in build_decoder("mlp", 2, 4, 0.0).parameters())  # 4·4 + 4 + 4·1 + 1
    25
    """
    if name not in DECODERS:
        raise unknown("decoder", name, DECODERS)
    if name == "dot":
        return Dot()
    if layers < 1:
        raise UserError(f"decoder_layers must be at least 1, not {layers}.")
    decoder = MLP([*[width] * layers, 1], dropout)
    if seed is not None:
        generator = torch.Generator().manual_seed(seed)
        for weight in decoder.weights:
            nn.init.xavier_uniform_(weight, generator=generator)
    return decoder
