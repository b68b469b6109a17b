"""Optimisers and schedules by name, from torch."""

from __future__ import annotations

import inspect

import torch
from torch import nn

from ..errors import UserError, unknown
from ..nn import Model
from .config import TrainConfig

# Adam's sparse cousin and L-BFGS need another kind of step.
_OPTIMISERS = {
    name.lower(): cls
    for name, cls in vars(torch.optim).items()
    if inspect.isclass(cls)
    and issubclass(cls, torch.optim.Optimizer)
    and name not in ("Optimizer", "LBFGS", "SparseAdam", "Muon")
}
_SCHEDULES: dict[str, tuple[type, dict[str, object]]] = {
    "cosine": (torch.optim.lr_scheduler.CosineAnnealingLR, {}),
    "step": (torch.optim.lr_scheduler.StepLR, {"step_size": 50, "gamma": 0.5}),
    "exponential": (torch.optim.lr_scheduler.ExponentialLR, {"gamma": 0.99}),
    "linear": (torch.optim.lr_scheduler.LinearLR, {"start_factor": 1.0, "end_factor": 0.01}),
    "plateau": (torch.optim.lr_scheduler.ReduceLROnPlateau, {"patience": 10}),
}


def optimiser(model: Model, config: TrainConfig) -> torch.optim.Optimizer:
    """The optimiser that the config names, with weight decay on the first layer or on all.

    >>> from weft.nn import ModelConfig, build
    >>> type(optimiser(build(ModelConfig(), 3, 2), TrainConfig(optimizer="sgd"))).__name__
    'SGD'
    """
    if config.optimizer not in _OPTIMISERS:
        raise unknown("optimizer", config.optimizer, sorted(_OPTIMISERS))
    if config.decay not in ("first", "all"):
        raise unknown("decay", config.decay, ["first", "all"])
    if config.lr <= 0 or config.weight_decay < 0:
        raise UserError(f"lr must be above 0 and weight_decay not below: {config.lr} and {config.weight_decay} given.")
    decayed = model.first_parameters() if config.decay == "first" else list(model.parameters())
    chosen = {id(p) for p in decayed}
    rest = [p for p in model.parameters() if id(p) not in chosen]
    groups: list[dict[str, list[nn.Parameter] | float]] = [{"params": decayed, "weight_decay": config.weight_decay}]
    if rest:
        groups.append({"params": rest, "weight_decay": 0.0})
    try:
        return _OPTIMISERS[config.optimizer](groups, lr=config.lr, **config.optimizer_options)
    except (TypeError, ValueError) as error:
        raise UserError(f"optimizer {config.optimizer} refuses {config.optimizer_options}: {error}.") from None


class Schedule:
    """A learning-rate schedule that is stepped once an epoch; `none` does nothing."""

    def __init__(self, optimizer: torch.optim.Optimizer, config: TrainConfig):
        self._scheduler: object = None
        self.on_validation = config.scheduler == "plateau"
        if config.scheduler == "none":
            return
        if config.scheduler not in _SCHEDULES:
            raise unknown("scheduler", config.scheduler, ["none", *_SCHEDULES])
        cls, options = _SCHEDULES[config.scheduler]
        spans = {"cosine": {"T_max": config.epochs}, "linear": {"total_iters": config.epochs}}
        try:
            self._scheduler = cls(optimizer, **spans.get(config.scheduler, {}) | options | config.scheduler_options)
        except (TypeError, ValueError) as error:
            raise UserError(f"scheduler {config.scheduler} refuses {config.scheduler_options}: {error}.") from None

    def step(self, validation_loss: float) -> None:
        if self._scheduler is not None:
            arguments = (validation_loss,) if self.on_validation else ()
            self._scheduler.step(*arguments)  # type: ignore[attr-defined]
