"""Optimisers and schedules by name."""

from __future__ import annotations

import copy
from itertools import pairwise

import pytest
import torch

from weft.errors import UserError
from weft.nn import ModelConfig, build
from weft.train import TrainConfig, Trainer
from weft.train.optimise import _OPTIMISERS, _SCHEDULES, Schedule, kept_shapes, optimiser

from .graphs import config, small


def model(**settings: object) -> torch.nn.Module:
    return build(ModelConfig(hidden=4, **settings), inputs=3, outputs=2)


@pytest.mark.parametrize("name", sorted(_OPTIMISERS))
def test_every_optimiser_of_torch_takes_a_step(name):
    trainer = Trainer(small(), config(optimizer=name, model_dropout=0.0))
    before = [p.clone() for p in trainer.model.parameters()]
    assert trainer.step(1) > 0
    assert any(not torch.equal(a, b) for a, b in zip(before, trainer.model.parameters(), strict=True))
    for p, kept in trainer.optimiser.state.items():  # what a checkpoint must have of it
        tensors = {key: tuple(x.shape) for key, x in kept.items() if isinstance(x, torch.Tensor)}
        assert kept_shapes(trainer.optimiser, p.shape) == tensors


def test_the_usual_names_are_known():
    assert {"adam", "adamw", "sgd", "rmsprop", "adagrad"} <= _OPTIMISERS.keys()


def test_decay_pulls_the_first_layer_alone_or_all():
    made = model(layers=3)
    first, rest = optimiser(made, TrainConfig(weight_decay=0.1)).param_groups
    assert [id(p) for p in first["params"]] == [id(p) for p in made.layers[0].parameters()]
    assert (first["weight_decay"], rest["weight_decay"]) == (0.1, 0.0)
    assert len(first["params"]) + len(rest["params"]) == len(list(made.parameters()))
    (everything,) = optimiser(made, TrainConfig(weight_decay=0.1, decay="all")).param_groups
    assert len(everything["params"]) == len(list(made.parameters()))


def test_a_model_of_one_layer_has_one_group():
    assert len(optimiser(model(layers=1), TrainConfig()).param_groups) == 1


def test_options_reach_the_optimiser():
    made = optimiser(model(), TrainConfig(optimizer="sgd", optimizer_options={"momentum": 0.9}))
    assert made.param_groups[0]["momentum"] == 0.9


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"optimizer": "adm"}, "unknown optimizer 'adm'. Did you mean 'adam'?"),
        ({"optimizer": "lbfgs"}, "unknown optimizer 'lbfgs'."),
        ({"decay": "last"}, "unknown decay 'last'. Known: first, all."),
        ({"lr": 0.0}, "lr must be above 0, not 0.0."),
        ({"weight_decay": -1.0}, "weight_decay must not be negative, as -1.0 is."),
        ({"optimizer_options": {"momentum": 0.9}}, "optimizer adam refuses the options {'momentum': 0.9}: "),
        ({"optimizer_options": {"betas": "x"}}, "optimizer adam refuses the options {'betas': 'x'}: "),
    ],
)
def test_what_an_optimiser_refuses_is_named(settings, message):
    with pytest.raises(UserError) as caught:
        optimiser(model(), TrainConfig(**settings))
    assert str(caught.value).startswith(message)


def rates(epochs: int, watched: list[float | None] | None = None, **settings: object) -> list[float]:
    """The learning rate of each epoch."""
    options = TrainConfig(lr=1.0, epochs=epochs, **settings)
    made = optimiser(model(), options)
    schedule, seen = Schedule(made, options), []
    for epoch in range(epochs):
        seen.append(made.param_groups[0]["lr"])
        made.step()
        schedule.step(watched[epoch] if watched else 1.0)
    return seen


def test_without_a_schedule_the_rate_stays():
    assert rates(5) == [1.0] * 5


@pytest.mark.parametrize("name", sorted(_SCHEDULES))
def test_every_schedule_lowers_the_rate(name):
    seen = rates(120, scheduler=name)
    assert seen[0] == 1.0
    assert seen[-1] < 0.6
    assert all(late <= early for early, late in pairwise(seen))


def test_cosine_and_linear_span_the_epochs():
    assert rates(10, scheduler="cosine")[5] == pytest.approx(0.5)
    assert rates(10, scheduler="linear")[5] == pytest.approx(0.505)


def test_options_reach_the_schedule():
    seen = rates(5, scheduler="step", scheduler_options={"step_size": 2, "gamma": 0.1})
    assert seen == pytest.approx([1, 1, 0.1, 0.1, 0.01])


def test_plateau_waits_for_measured_losses_only():
    """An epoch that is not evaluated says nothing: it must not count as one without progress."""
    options = {"scheduler": "plateau", "scheduler_options": {"patience": 1, "factor": 0.5}}
    assert rates(6, [1.0, None, None, None, None, None], **options) == [1.0] * 6
    assert rates(6, [1.0, 1.0, 1.0, 0.5, 0.4, 0.3], **options) == [1, 1, 1, 0.5, 0.5, 0.5]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scheduler": "cosin"}, "unknown scheduler 'cosin'. Did you mean 'cosine'?"),
        (
            {"scheduler": "step", "scheduler_options": {"gama": 1}},
            "scheduler step refuses the options {'gama': 1}: ",
        ),
    ],
)
def test_what_a_schedule_refuses_is_named(settings, message):
    options = TrainConfig(**settings)
    with pytest.raises(UserError) as caught:
        Schedule(optimiser(model(), options), options)
    assert str(caught.value).startswith(message)


def test_weights_that_lie_in_another_order_take_the_same_step():
    """torch's fused step reads memory as it lies: a transposed weight must not go through it."""
    plain = model()
    turned = copy.deepcopy(plain)
    layer = turned.layers[0]
    layer.weight = torch.nn.Parameter(layer.weight.detach().t().contiguous().t())
    assert not layer.weight.is_contiguous()
    for made in (plain, turned):
        step = optimiser(made, TrainConfig())
        assert bool(step.defaults["fused"]) == (made is plain)
        for p in made.parameters():
            p.grad = torch.arange(p.numel(), dtype=p.dtype).view(p.shape)
        step.step()
    torch.testing.assert_close(layer.weight, plain.layers[0].weight)
