"""Models: layers with activation, dropout, norm and residual between them. No ranks in here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from .. import place
from ..errors import NotForetold, UserError
from ..kernels import Stream, dropout, elu_, relu_dropout_
from .adjacency import Adjacency, Chain
from .layer import from_wire, in_halves

if TYPE_CHECKING:
    from .registry import ModelConfig


@dataclass(frozen=True)
class Noise:
    """Which random numbers a training pass uses: those of a seed and an epoch; see `weft.kernels.Stream`."""

    seed: int
    epoch: int


Path = Adjacency | Sequence[Adjacency]
"""One operator for all layers, or one a hop."""


class Model(nn.Module):
    """h₀ = drop(X);  h_l = drop(relu(norm(layer_l(A, h_{l−1}) [+ h_{l−1}])));  the last gives the logits.

        x       [s, f]   input features of the vertices that are read
        logits  [t, c]

    A is one operator for all layers, or a list of them, one a hop: the blocks of a batch. `adjacency` names
    the normalisation of A that the layers expect (`weft.graph.normalise`). `start` is the first layer up to
    its sync, `finish` the rest: push-pull and the pipeline let something travel between the two.

    >>> import torch
    >>> from weft.kernels import CSR
    >>> from weft.nn import ModelConfig, build
    >>> from weft.parallel import Operator
    >>> A = Operator.local(CSR(torch.tensor([0, 1, 2]), torch.tensor([1, 0]), None, (2, 2)))
    >>> model = build(ModelConfig(name="gcn", hidden=8), inputs=3, outputs=2)
    >>> model(A, torch.ones(2, 3), Noise(seed=0, epoch=1)).shape
    torch.Size([2, 2])
    """

    def __init__(
        self,
        layers: list[nn.Module],
        widths: list[int],
        adjacency: str,
        config: ModelConfig,
        activation: str = "relu",
    ):
        super().__init__()
        if not layers:
            raise UserError("a model needs at least 1 layer. Use --layers 2.")
        self.layers = nn.ModuleList(layers)
        self.widths = widths
        self.adjacency = adjacency
        self.residual = config.residual
        self.dropout, self.input_dropout = config.dropout, config.input_dropout
        self.activation = activation
        norms = [nn.LayerNorm(w, device="cpu") if config.layer_norm else nn.Identity() for w in widths[1:-1]]
        self.norms = nn.ModuleList(norms)
        self.seen: Callable[[int, Tensor], None] | None = None
        """Shown each layer's number, from 0, and its result: for whoever looks for a wrong one."""

    @property
    def hops(self) -> int:
        """How often A is multiplied with: so many sampled blocks a batch needs."""
        return sum(hops_of(layer) for layer in self.layers)

    @property
    def weighted(self) -> bool:
        """Whether A's values enter what it computes."""
        return any(getattr(layer, "weighted", True) for layer in self.layers)

    @property
    def noisy(self) -> bool:
        """Whether a training pass draws random numbers."""
        drops = any(getattr(layer, "drop", 0.0) for layer in self.layers)
        return bool(self.dropout or self.input_dropout or drops)

    def apply(self, fn: Callable[[nn.Module], None]) -> Model:
        """torch's `apply`: fn of every module. A layer's own `apply` is the second half of its equation."""
        for module in self.modules():
            fn(module)
        return self

    def forward(self, A: Path, x: Tensor, noise: Noise | None = None) -> Tensor:
        return self.embed(A, x, noise)[-1]

    def embed(self, A: Path, x: Tensor, noise: Noise | None = None) -> tuple[Tensor, Tensor]:
        """(embedding, logits): the last hidden layer [t, hidden] (x where there is none), and the result."""
        path = self.path(A)
        t = path[0].complete(self.start(path[0], x, noise), self.sync)
        embedding, logits = self.finish(path, t, noise)
        return x if embedding is None else embedding, logits

    def path(self, A: Path, partial: bool = False) -> list[Adjacency]:
        """An operator a layer, from one for all or one a hop; `partial`: the first leaves sums partial."""
        needed = [hops_of(layer) for layer in self.layers]
        if not isinstance(A, Sequence):
            return [A if hops == 1 else cast(Adjacency, Chain([A] * hops)) for hops in needed]
        if len(A) != sum(needed):
            raise ValueError(f"the model multiplies {sum(needed)} times with A, {len(A)} blocks were given")
        out: list[Adjacency] = []
        for hops in needed:
            first = sum(needed[: len(out)])
            several = hops > 1
            chain = Chain(list(A[first : first + hops]), partial and not out) if several else None
            out.append(A[first] if chain is None else cast(Adjacency, chain))
        return out

    def start(self, A: Adjacency, x: Tensor, noise: Noise | None = None) -> Tensor:
        """The first layer up to its sync: `A.complete` of it is what `finish` takes. [s, f] → [t, ·].

        Where the residual cannot be added to it (the layer's second half is not a bias), it stands beside it.
        """
        if self.training and noise is None and self.noisy:
            raise ValueError(
                "a training pass with dropout needs its random numbers: model(A, x, Noise(seed, epoch))"
            )
        drops = self.training and noise is not None and self.input_dropout > 0
        if drops and noise is not None:
            x = A.drop_input(x, self.input_dropout, Stream(noise.seed, noise.epoch, 0))
        layer = self.layers[0]
        t = self._call(0, layer.partial if in_halves(layer) else layer, A, x, noise)
        if self.adds_input:
            own = A.widen(A.own(x), self.widths[0])
            t = t + own if self._sums else torch.cat([t, own], 1)
        return t

    def finish(
        self, path: Sequence[Adjacency], t: Tensor, noise: Noise | None = None
    ) -> tuple[Tensor | None, Tensor]:
        """(embedding or None, logits) from the completed result of `start`. [t₀, ·] → [t, ·]."""
        last, first = len(self.layers) - 1, self.layers[0]
        embedding: Tensor | None = None
        z = t
        if in_halves(first):
            beside = not self._sums and self.adds_input
            width = t.shape[1] - self.widths[0]  # a layer may carry more than its result to the sync
            half = t[:, :width].contiguous() if beside else t
            with self._at(0, half):
                z = self._checked(0, first.rest(half), half.shape[0])
            z = z + t[:, width:] if beside else z
        del t  # an activation's memory is free once the next layer has read it
        for depth, A in enumerate(path):
            if depth:
                assert embedding is not None
                z = self._whole(depth, A, embedding, noise)
            if depth < last:
                embedding = self._activate(A, self.norms[depth](z), depth + 1, noise)
        return embedding, z

    def one(self, depth: int, hops: Sequence[Adjacency], h: Tensor) -> Tensor:
        """One layer with what follows it, for inference layer by layer: rows of h_{l−1} → of h_l, or logits.

        hops   the operators of this layer, one a hop
        """
        A = hops[0] if len(hops) == 1 else cast(Adjacency, Chain(list(hops)))
        z = self._whole(depth, A, h, None)
        return (
            z if depth == len(self.layers) - 1 else self._activate(A, self.norms[depth](z), depth + 1, None)
        )

    def _whole(self, depth: int, A: Adjacency, h: Tensor, noise: Noise | None) -> Tensor:
        """A layer and the residual around it."""
        z = self._call(depth, self.layers[depth], A, h, noise)
        if self.residual and depth < len(self.layers) - 1 and z.shape == (own := A.own(h)).shape:
            z = z + own
        return z

    @property
    def sync(self) -> str:
        """How partial results of the first layer become whole: sum, or max."""
        return str(getattr(self.layers[0], "sync", "sum"))

    @property
    def _sums(self) -> bool:
        """Whether the residual of the first layer may be added before its second half."""
        return not in_halves(self.layers[0]) or bool(getattr(self.layers[0], "entrywise", False))

    @property
    def adds_input(self) -> bool:
        """Whether the residual adds the input to the first layer's result."""
        return self.residual and len(self.layers) > 1 and self.widths[0] == self.widths[1]

    def _call(
        self, depth: int, run: Callable[..., Tensor], A: Adjacency, h: Tensor, noise: Noise | None
    ) -> Tensor:
        layer = self.layers[depth]
        drawn = None if noise is None or not self.training else Stream(noise.seed, noise.epoch, depth)
        layer.stream = drawn  # type: ignore[assignment]
        with self._at(depth, h):
            z = self._checked(depth, run(A, h), A.rows.numel())
        if self.seen is not None:
            self.seen(depth, z)
        return z

    @contextmanager
    def _at(self, depth: int, h: Tensor) -> Iterator[None]:
        """What a layer does is done at its place; h [·, ·] is what it reads.

        Where h holds no numbers, because what moves is being foretold, a layer that looks at some is told.
        """
        name = f"layer {depth + 1}, {type(self.layers[depth]).__name__}"
        try:
            with place.at(name):
                yield
        except (RuntimeError, TypeError) as error:
            if not h.is_meta or not (isinstance(error, NotImplementedError) or "meta" in str(error)):
                raise
            call = re.search(r"(?:torch|Tensor)\.\w+", str(error))
            how = f" by {call[0]}" if call else ""
            raise NotForetold(
                f"{name}, looks at numbers{how}, so what it moves cannot be foretold"
            ) from error

    def _checked(self, depth: int, z: Tensor, rows: int) -> Tensor:
        """What a layer gave back, where it is a row for each vertex."""
        if not isinstance(z, Tensor) or z.dim() != 2 or z.shape[0] != rows:
            what = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
            layer = type(self.layers[depth]).__name__
            raise UserError(
                f"layer {depth + 1}, {layer}, returned {what} for {rows} vertices. "
                "Return one row a vertex: [rows of A, width]."
            )
        return z

    def _activate(self, A: Adjacency, z: Tensor, layer: int, noise: Noise | None) -> Tensor:
        normed = not isinstance(self.norms[layer - 1], nn.Identity)
        fresh = normed or getattr(self.layers[layer - 1], "fresh", False)
        if not fresh or from_wire(z):
            z = z.clone()
        dropping = self.training and noise is not None
        stream = Stream(noise.seed, noise.epoch, layer) if noise is not None else Stream(0, 0, layer)
        p = self.dropout if dropping else 0.0
        rows = A.rows if dropping else None
        if self.activation == "relu":
            return relu_dropout_(z, p, stream, rows)
        return dropout(elu_(z), p, stream, rows)

    # What push-pull may leave at home.

    @property
    def entrywise(self) -> bool:
        """Whether nothing but activation and dropout, entry by entry, follows the first layer's sync."""
        plain = len(self.layers) > 1 and isinstance(self.norms[0], nn.Identity)
        # After the first of several hops come the others, and they read entries that are dropped later.
        one = hops_of(self.layers[0]) == 1
        return plain and one and bool(getattr(self.layers[0], "entrywise", False))

    @property
    def rectified(self) -> bool:
        """Whether that activation is ReLU, behind which most errors are 0."""
        return self.entrywise and self.activation == "relu"

    def kept(self, rows: Tensor, width: int, noise: Noise) -> Tensor | None:
        """Which entries after the first sync dropout leaves, [t, width] bool; None: all are needed."""
        if not (self.entrywise and self.training and self.dropout):
            return None
        # The mask is a function of vertex and column: everybody can make it.
        ones = torch.ones(rows.numel(), width, device=rows.device)
        return dropout(ones, self.dropout, Stream(noise.seed, noise.epoch, 1), rows.long()) != 0

    def first_parameters(self) -> list[nn.Parameter]:
        """The first layer's weights: those that Kipf and Welling's weight decay is for."""
        return list(self.layers[0].parameters())


def hops_of(layer: nn.Module) -> int:
    """How often a layer multiplies with A."""
    return int(getattr(layer, "hops", 1))
