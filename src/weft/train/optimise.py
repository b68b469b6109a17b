"""Optimisers and schedules by name, from torch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..deferred import defer_compiler
from ..errors import UserError, unknown
from ..nn import Model
from .config import TrainConfig

# Adam's sparse cousin and L-BFGS need another kind of step.
_OPTIMISERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
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


def optimiser(model: Model, config: TrainConfig, own: Sequence[nn.Parameter] = ()) -> torch.optim.Optimizer:
    """The optimiser that the config names, with weight decay on the first layer or on all.

    `own` are parameters outside of the model, such as this rank's embeddings.

    >>> from weft.nn import ModelConfig, build
    >>> type(optimiser(build(ModelConfig(), 3, 2), TrainConfig(optimizer="sgd"))).__name__
    'SGD'
    """
    if config.optimizer not in _OPTIMISERS:
        raise unknown("optimizer", config.optimizer, sorted(_OPTIMISERS))
    if config.decay not in ("first", "all"):
        raise unknown("decay", config.decay, ["first", "all"])
    if config.lr <= 0:
        raise UserError(f"lr must be above 0, not {config.lr}. Use --lr 0.01.")
    if config.weight_decay < 0:
        raise UserError(f"weight_decay must not be negative, as {config.weight_decay} is. Use 0 for none.")
    _try(config, next(model.parameters()).dtype)
    decayed = model.first_parameters() if config.decay == "first" else [*model.parameters(), *own]
    chosen = {id(p) for p in decayed}
    rest = [p for p in (*model.parameters(), *own) if id(p) not in chosen]
    groups: list[dict[str, Any]] = [{"params": decayed, "weight_decay": config.weight_decay}]
    if rest:
        groups.append({"params": rest, "weight_decay": 0.0})
    return _make(groups, config)


def _make(groups: list[dict[str, Any]], config: TrainConfig) -> torch.optim.Optimizer:
    defer_compiler()
    kind, options = _OPTIMISERS[config.optimizer], dict(config.optimizer_options)
    others = {"fused", "foreach", "capturable", "differentiable"}
    # torch's fused step reads weights and gradients as they lie: of another order it is silently wrong.
    plain = all(p.is_contiguous() for group in groups for p in group["params"])
    if plain and "fused" in inspect.signature(kind).parameters and not others & set(options):
        options["fused"] = True  # one call for all weights: a third of the time where they are small
    return kind(groups, lr=config.lr, **options)


def _try(config: TrainConfig, dtype: torch.dtype) -> None:
    """Refuse options that torch refuses, be it when they are given or in the first step."""
    p = nn.Parameter(torch.ones(2, 2, dtype=dtype, device="cpu"))
    p.grad = torch.ones_like(p)

    def make() -> torch.optim.Optimizer:
        return _make([{"params": [p], "weight_decay": config.weight_decay}], config)

    # A factor that optimisers multiply with; torch's fused ones do not look.
    if max(config.lr, config.weight_decay) > torch.finfo(dtype).max / 16:
        sizes = f"lr {config.lr:g} or weight_decay {config.weight_decay:g}"
        raise UserError(f"{sizes} is too large for {dtype}. Use --lr 0.01.")
    try:
        make().step()
    except Exception as error:
        raise _refusal("optimizer", config.optimizer, config.optimizer_options, error) from None
    try:
        made = make()
        schedule = Schedule(made, config)
        for _ in range(2):
            made.step()
            schedule.step(1.0)
    except UserError:
        raise
    except Exception as error:
        raise _refusal("scheduler", config.scheduler, config.scheduler_options, error) from None


def check_elementwise(name: str) -> None:
    """Refuse learned embeddings where ranks would each make their own statistics of their rows."""
    if name == "adafactor":
        raise UserError("adafactor needs whole embeddings, each rank has its rows alone. Use adam.")


class Schedule:
    """A learning-rate schedule that is stepped once an epoch; `none` does nothing."""

    def __init__(self, optimizer: torch.optim.Optimizer, config: TrainConfig):
        self._optimizer = optimizer
        self._scheduler: Any = None
        self._watches = config.scheduler == "plateau"
        if config.scheduler == "none":
            if config.scheduler_options:
                raise UserError(
                    f"scheduler none does not read scheduler_options, {config.scheduler_options} were given. "
                    "Leave them out, or use --scheduler step."
                )
            return
        if config.scheduler not in _SCHEDULES:
            raise unknown("scheduler", config.scheduler, ["none", *_SCHEDULES])
        cls, options = _SCHEDULES[config.scheduler]
        spans = {"cosine": {"T_max": config.epochs}, "linear": {"total_iters": config.epochs}}
        options = spans.get(config.scheduler, {}) | options | config.scheduler_options
        try:
            self._scheduler = cls(optimizer, **options)
        except Exception as error:
            raise _refusal("scheduler", config.scheduler, config.scheduler_options, error) from None

    @property
    def lr(self) -> float:
        """The rate of the first group of parameters; the others have the same."""
        return float(self._optimizer.param_groups[0]["lr"])

    def step(self, watched: float | None) -> None:
        """An epoch has passed; `watched` is the loss that `plateau` looks at, None where not measured."""
        if self._scheduler is None:
            return
        if not self._watches:
            self._scheduler.step()
        elif watched is not None:
            self._scheduler.step(watched)

    def state(self) -> dict[str, Any]:
        """Where it is, as plain data: the schedule's own numbers, and the rate of each group."""
        rates = [group["lr"] for group in self._optimizer.param_groups]
        return {"rates": rates, "own": self._scheduler.state_dict() if self._scheduler else {}}

    def load(self, state: dict[str, Any]) -> None:
        """Take back what `state` gave."""
        for group, rate in zip(self._optimizer.param_groups, state["rates"], strict=True):
            group["lr"] = float(rate)
        if self._scheduler is not None:
            known = self._scheduler.state_dict()
            self._scheduler.load_state_dict({k: v for k, v in state["own"].items() if k in known})


def _refusal(kind: str, name: str, options: dict[str, Any], error: Exception) -> UserError:
    reason = " ".join(str(error).split()).rstrip(".")[:200] or type(error).__name__
    return UserError(f"{kind} {name} refuses the options {options}: {reason}. Correct {kind}_options.")


def kept_shapes(optimiser: torch.optim.Optimizer, shape: torch.Size) -> dict[str, tuple[int, ...]]:
    """The tensors that an optimiser keeps of a parameter of this shape, found by one step of a small one.

    >>> adam = torch.optim.Adam([nn.Parameter(torch.zeros(1))])
    >>> kept_shapes(adam, torch.Size([4, 2]))
    {'step': (), 'exp_avg': (4, 2), 'exp_avg_sq': (4, 2)}
    """
    sizes = (2, 3, 5, 7)[: len(shape)]
    small = nn.Parameter(torch.zeros(sizes, dtype=torch.float64, device="cpu"))
    small.grad = torch.ones_like(small)
    known = inspect.signature(type(optimiser)).parameters  # AdamW has a default that it does not take
    other = type(optimiser)([small], **{k: v for k, v in optimiser.defaults.items() if k in known})
    other.step()
    return {
        key: tuple(int(shape[sizes.index(size)]) if size in sizes else size for size in value.shape)
        for key, value in other.state[small].items()
        if isinstance(value, Tensor)
    }
