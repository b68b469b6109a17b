"""Gradients over the ranks: who sums what with whom, and the clip of their norms."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ..nn import Model
from ..parallel import sum_together
from .encoders import Passed
from .placed import Placed
from .task import Task


@dataclass(frozen=True)
class Told:
    """What ranks told each other beside gradients: the same on all of them."""

    wish: int
    """The sum of their wishes."""
    finite: bool
    """Whether every rank's loss and gradients are."""


class Gradients:
    """Sums of a step's gradients, into the weights that are trained.

        replicated weights   one flat all-reduce over all ranks
        weights that are cut  all-reduce over the ranks that have the same part
        learned features      nobody else's

    Two words travel with the flat sum: what a rank wishes (to stop, to save), and whether its own numbers
    are finite. So all ranks act on both after the same step. With `clip_norm`, what a rank has alone adds its
    square: one word more.
    """

    def __init__(
        self, live: Model, placed: Placed, learned: nn.Parameter | None, task: Task, clip_norm: float
    ):
        self.live, self.placed, self.learned, self.task, self.clip_norm = (
            live,
            placed,
            learned,
            task,
            clip_norm,
        )
        self._parameters = list(live.named_parameters())  # walking the modules takes longer than a small sum

    def take(self, passed: Passed, wish: int = 0) -> Told:
        """The gradients of a step that went back, summed, clipped, in `grad` of the live weights."""
        cut, twins = set(self.placed.cut), self.placed.twins
        own = passed.model is self.live
        flown = dict(self._parameters if own else passed.model.named_parameters())
        pairs = [(name, p, _gradient(flown[name])) for name, p in self._parameters]
        mine = [(p, g) for name, p, g in pairs if name in cut]
        if mine and twins is not None:
            _put(sum_together([g for _, g in mine], twins)[1], [p for p, _ in mine])
        learned = passed.learned
        if self.learned is not None and learned is not None:
            copies = self.placed.columns is not None and self.placed.copies > 1
            if copies and twins is not None:  # other groups trained the same columns on other batches
                learned = twins.all_reduce(learned.contiguous(), phase="grad")
            self.learned.grad = learned.contiguous()  # torch's fused steps misread any other
        shared = [(p, g) for name, p, g in pairs if name not in cut]
        squares = self._squares([p for p, _ in mine])
        alone = [passed.loss, *(p.grad for p, _ in mine), None if self.learned is None else self.learned.grad]
        words = self._words(wish, alone, squares)
        flat, (*sums, squares, words) = sum_together(
            [*(g for _, g in shared), squares, words], self.placed.comm
        )
        _put(sums, [p for p, _ in shared])
        if self.clip_norm:
            self._clip({id(p) for p, _ in mine}, squares)
        if flat.is_meta:
            return Told(0, True)
        wishes, odd = words.tolist()
        return Told(round(wishes), not odd and finite(flat[: flat.numel() - squares.numel() - 2]))

    def _words(self, wish: int, alone: list[Tensor | None], like: Tensor) -> Tensor:
        """[wish, whether a number is not finite that this rank alone has]."""
        if like.is_meta:
            return like.new_empty(2)
        odd = not all(finite(x) for x in alone if x is not None)
        return like.new_tensor([float(wish), float(odd)])

    def _squares(self, cut: list[nn.Parameter]) -> Tensor:
        """Squared norms of what this rank has alone: of cut weights, then of learned features. [0 … 2]"""
        if not self.clip_norm:
            return next(self.live.parameters()).new_empty(0)
        like = next(self.live.parameters())
        if like.is_meta:
            return like.new_empty(bool(cut) + (self.learned is not None))
        found = []
        if cut:
            total = sum((p.grad.square().sum() for p in cut if p.grad is not None), like.new_zeros(()))
            found.append(total / self.placed.copies)  # every copy adds it
        if self.learned is not None:
            own = like.new_zeros(()) if self.learned.grad is None else self.learned.grad.square().sum()
            found.append(own / (self.placed.copies if self.placed.columns is not None else 1))
        return torch.stack(found) if found else like.new_empty(0)

    def _clip(self, cut: set[int], squares: Tensor) -> None:
        """Each group cut to `clip_norm`, as torch's `clip_grad_norm_` does it; whole norms, on every rank."""
        if squares.is_meta:  # no shape changes
            return
        rest = list(squares)
        has_cut = bool(cut)
        for group in self.task.clipped(self.live):
            own = [p.grad.square().sum() for p in group if p.grad is not None and id(p) not in cut]
            total = sum(own, next(self.live.parameters()).new_zeros(()))
            if has_cut and any(id(p) in cut for p in group):
                total = total + rest[0]
            _scale(group, total.sqrt(), self.clip_norm)
        if self.learned is not None:
            _scale([self.learned], rest[-1].sqrt(), self.clip_norm)


def finite(x: Tensor) -> bool:
    """Whether every number is finite. Their sum mostly settles it: no second tensor is made.

    >>> finite(torch.tensor([1.0, float("nan")])), finite(torch.full((9,), 3e38))
    (False, True)
    """
    return bool(torch.isfinite(x.sum())) or bool(torch.isfinite(x).all())


def _gradient(p: Tensor) -> Tensor:
    return torch.zeros_like(p) if p.grad is None else p.grad


def _put(sums: list[Tensor], parameters: list[nn.Parameter]) -> None:
    for p, g in zip(parameters, sums, strict=True):
        p.grad = g


def _scale(parameters: list[nn.Parameter], norm: Tensor, limit: float) -> None:
    factor = (limit / (norm + 1e-6)).clamp(max=1.0)
    for p in parameters:
        if p.grad is not None:
            p.grad.mul_(factor)
