"""A model of `weft.nn` over the blocks of a batch."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..kernels import Stream, dropout
from ..nn import Model, Noise
from .block import Batch, Block
from .tags import Hop, Sync, Tags, tags_of
from .topology import Reads


class Stack:
    """The layers of a model in P-TAGS form, one Tags a hop, with what stands between them.

    The first hop is apart: `partial` before its sync, `rest` after it. Dropout is that of (seed, step, layer,
    vertex, column), so a vertex that two ranks compute has one mask.

    >>> from weft.nn import ModelConfig, build
    >>> stack = Stack(build(ModelConfig("sage", layers=2, hidden=8), inputs=3, outputs=2))
    >>> len(stack.tags), stack.reads.how
    (2, 'mean')
    """

    def __init__(self, model: Model):
        if model.input_dropout:
            raise UserError(
                f"mini-batches have no input dropout, {model.input_dropout} was given. "
                "Use --input-dropout 0, or --batch-size 0."
            )
        if any(getattr(layer, "drop", 0.0) for layer in model.layers):
            raise UserError(
                "mini-batches have no dropout of attention. Use --attention-dropout 0, or --batch-size 0."
            )
        self.model = model
        self.tags: list[Tags] = []
        self._depth: list[int | None] = []
        """The layer that ends with each hop, None where it goes on."""
        for depth, layer in enumerate(model.layers):
            made = tags_of(layer)
            self.tags += made
            self._depth += [None] * (len(made) - 1) + [depth]

    @property
    def reads(self) -> Reads:
        """The matrix of the blocks: one for all hops."""
        return self.tags[0].reads(self.model.adjacency)

    @property
    def cut(self) -> list[str]:
        """`partition`: the parameters that are cut with the features, by name."""
        return [f"layers.0.{name}" for name in self.tags[0].cut]

    @property
    def first_width(self) -> int:
        """Columns of what the first sync adds up."""
        weight: Tensor = getattr(self.model.layers[0], self.tags[0].cut[-1])
        layer = self.model.layers[0]
        if getattr(layer, "average", False):  # heads of attention
            attend: Tensor = layer.attend_row  # type: ignore[assignment]
            return attend.shape[1]
        return weight.shape[1]

    @property
    def entrywise(self) -> bool:
        """Whether nothing but activation and dropout, entry by entry, follows the first sync."""
        plain = self._ends_hidden(0) and isinstance(self.model.norms[0], nn.Identity)
        return plain and self.tags[0].entrywise

    @property
    def rectified(self) -> bool:
        """Whether that activation is ReLU, behind which most errors are 0."""
        return self.entrywise and getattr(self.model, "activation", "relu") == "relu"

    def _ends_hidden(self, hop: int) -> bool:
        return self._depth[hop] is not None and self._depth[hop] != len(self.model.layers) - 1

    def slice(self, begin: int, end: int) -> Stack:
        """The same with rows begin … end − 1 of the cut parameters, and copies of the others."""
        model = copy.deepcopy(self.model)
        for name in self.tags[0].cut:
            whole: Tensor = getattr(model.layers[0], name)
            setattr(model.layers[0], name, nn.Parameter(whole.detach()[begin:end].clone()))
        return Stack(model)

    def partial(self, hop: Hop, x: Tensor, first_column: int, sync: Sync) -> Tensor:
        """The first hop before its sync, from columns first_column … of the features. [t, out]."""
        t = self.tags[0].partial(hop, x, sync)
        if self.model.residual and self._ends_hidden(0) and self.model.widths[0] == t.shape[1]:
            v = hop.own(x)
            t = t + nn.functional.pad(v, (first_column, t.shape[1] - first_column - v.shape[1]))
        return t

    def rest(self, t: Tensor, batch: Batch, seed: int) -> Tensor:
        """From the synced result of the first hop to the logits of the seeds. [t, out] → [s, classes]."""
        h = self._between(0, self.tags[0].apply(t), None, batch.blocks[0], batch.step, seed)
        for k in range(1, len(self.tags)):
            hop = Hop.compact(batch.blocks[k])
            z = self.tags[k].run(hop, h)
            h = self._between(k, z, hop.own(h), batch.blocks[k], batch.step, seed)
        return h

    def _between(self, hop: int, z: Tensor, v: Tensor | None, block: Block, step: int, seed: int) -> Tensor:
        depth = self._depth[hop]
        if depth is None or depth == len(self.model.layers) - 1:
            return z
        if v is not None and self.model.residual and v.shape == z.shape:
            z = z + v
        z = self.model.norms[depth](z)
        if z.is_leaf:  # what came from the sync: written over below, but its gradient is asked for
            z = z.clone()
        rows: Any = _Rows(block.targets.long())
        return self.model._activate(rows, z, depth + 1, Noise(seed, step))

    def kept(self, targets: Tensor, step: int, seed: int) -> Tensor | None:
        """Which entries after the first sync dropout leaves, [t, out] bool; None: all, or all are needed."""
        if not (self.entrywise and self.model.training and self.model.dropout):
            return None
        # The mask is a function of vertex and column: everybody can make it.
        ones = torch.ones(targets.numel(), self.first_width)
        return dropout(ones, self.model.dropout, Stream(seed, step, 1), targets.long()) != 0


@dataclass(frozen=True)
class _Rows:
    """All that an activation asks of a graph: whose rows these are."""

    rows: Tensor


def fanouts_for(hops: int, fanouts: Sequence[int]) -> list[int]:
    """Check that there is a fan-out for every hop.

    >>> fanouts_for(2, [25, 10])
    [25, 10]
    """
    if len(fanouts) != hops:
        told = ",".join("all" if f < 0 else str(f) for f in fanouts)
        wanted = ",".join(["25", *["10"] * (hops - 1)])
        raise UserError(
            f"--fanouts {told} gives {len(fanouts)} of the {hops} hops that the model takes. "
            f"Use --fanouts {wanted}, or --layers {len(fanouts)}."
        )
    return list(fanouts)
