"""A model's entry: its options are read by it alone, and reach its layers."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
import torch

from weft.errors import NoSetting, UserError
from weft.nn import MODELS, Entry, GCNLayer, Model, ModelConfig, build, check_model, model_widths, register

OPTIONS = {option for entry in MODELS.values() for option in entry.kinds()}
OTHER = {
    "aggregate": "max", "heads": 2, "output_heads": 3, "slope": 0.45, "attention_dropout": 0.25,
    "arc_features": 3, "log_degree": 2.5, "relations": 4, "bases": 2, "normalise": "none", "form": "besta",
    "aggregators": "sum,std",
}  # fmt: skip
"""For every option a value that is not its default."""
PAIRS = [(name, option) for name in MODELS for option in sorted(OPTIONS)]


@dataclass(frozen=True)
class Mine:
    hops: int = 3
    """How far."""
    mode: str = "soft"
    slope: float = 0.7


@pytest.fixture
def mine(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A model of the user's own, gone after the test; what its factory was given."""
    seen: list[Any] = []
    monkeypatch.setitem(MODELS, "mine", MODELS["gcn"])

    def make(config: ModelConfig, own: Mine, widths: list[int]) -> tuple[list[torch.nn.Module], str]:
        seen.append((config.hidden, own, widths))
        return [GCNLayer(a, b) for a, b in pairwise(widths)], "gcn"

    register("mine", make, Mine, activation="elu")
    return seen


def facts(model: Model) -> list[Any]:
    """What a model is made of, apart from the values of its weights."""
    found: list[Any] = [model.adjacency, model.widths, model.activation, model.noisy]
    for layer in model.layers:
        plain = {k: v for k, v in vars(layer).items() if isinstance(v, (int, float, str, bool))}
        found.append((type(layer), plain, {k: tuple(p.shape) for k, p in layer.named_parameters()}))
    return found


def test_every_option_has_another_value_here():
    assert OTHER.keys() == OPTIONS


@pytest.mark.parametrize(("name", "option"), PAIRS)
def test_an_option_reaches_its_model_and_is_refused_by_every_other(name, option):
    other = "gcn" if (name, option) == ("gin", "normalise") else OTHER[option]  # its own is none
    beside = {"form": "besta"} if (name, option) == ("agnn", "normalise") else {}
    config = ModelConfig(name, hidden=6, **{option: other}, **beside)
    if option in MODELS[name].kinds():
        assert getattr(config, option) == other
        assert facts(build(config, 5, 4)) != facts(build(ModelConfig(name, hidden=6, **beside), 5, 4))
        return
    for value in (other, None):  # whatever it is set to
        setattr(config, option, value)
        with pytest.raises(UserError) as caught:
            build(config, 5, 4)
        readers = [other for other in MODELS if option in MODELS[other].kinds()]
        assert str(caught.value).startswith(f"model {name} does not read {option}, {readers[0]}")
        flag = option.replace("_", "-")
        assert str(caught.value).endswith(f"Leave out --{flag}, or use --model {readers[0]}.")
    with pytest.raises(AttributeError, match=f"model {name} does not read {option}"):
        getattr(config, option)
    assert not hasattr(config, option)


def test_the_refusal_names_both_models_and_the_remedy():
    with pytest.raises(UserError) as caught:
        check_model(ModelConfig("gcn", heads=1))
    assert str(caught.value) == (
        "model gcn does not read heads, gat, gatv2 and transformer do. Leave out --heads, or use --model gat."
    )


def test_an_option_may_be_set_before_the_name_and_is_else_the_default():
    config = ModelConfig()
    config.heads = 8
    config.name = "gat"
    assert (config.heads, config.output_heads, config.slope) == (8, 1, 0.2)
    check_model(config)


def test_a_setting_that_no_model_has_is_refused_with_the_close_match():
    config = ModelConfig()
    for change in (lambda: setattr(config, "hiden", 8), lambda: ModelConfig(hiden=8), lambda: config.hiden):
        with pytest.raises(NoSetting, match=r"^unknown setting 'model.hiden'. Did you mean 'model.hidden'\?"):
            change()
    with pytest.raises(UserError, match=r"Did you mean 'model.heads'\?"):
        config.head = 8


@pytest.mark.parametrize(
    "copied",
    [copy.copy, copy.deepcopy, dataclasses.replace, lambda c: pickle.loads(pickle.dumps(c)),  # noqa: S301  our own
     lambda c: eval(repr(c), {"ModelConfig": ModelConfig})],
    ids=["copy", "deepcopy", "replace", "pickle", "repr"],
)  # fmt: skip
def test_a_copy_is_equal_and_keeps_its_options(copied):
    config = ModelConfig("gat", hidden=16, heads=4)
    other = copied(config)
    assert other == config
    assert (other.name, other.hidden, other.heads, other.slope) == ("gat", 16, 4, 0.2)
    other.hidden = 8
    assert (config.hidden, other == config) == (16, False)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, dataclasses.replace])
def test_a_copy_has_options_of_its_own(copied):
    config = ModelConfig("gat", heads=4)
    copied(config).heads = 2
    assert config.heads == 4
    assert dataclasses.replace(config, heads=2).heads == 2


def test_an_option_at_its_default_is_equal_to_one_that_is_not_set():
    assert ModelConfig("gat", heads=1) == ModelConfig("gat")
    assert ModelConfig("gat", heads=2) != ModelConfig("gat")
    assert ModelConfig("gcn", heads=1) != ModelConfig("gcn")
    assert ModelConfig() != "gcn"


def test_a_registered_model_gets_its_options_and_others_refuse_them(mine):
    model = build(ModelConfig("mine", hidden=6, hops=5, slope=0.1), 5, 4)
    assert mine == [(6, Mine(hops=5, slope=0.1), [5, 6, 4])]
    assert model.activation == "elu"
    with pytest.raises(UserError, match=r"^model gcn does not read hops, mine does\."):
        check_model(ModelConfig("gcn", hops=5))
    # An option of two models has the default of the chosen one.
    assert (ModelConfig("mine").slope, ModelConfig("gat").slope) == (0.7, 0.2)


@dataclass
class Common:
    hidden: int = 3


@dataclass
class Bare:
    hops: int


@dataclass
class Odd:
    hops: list[int] = dataclasses.field(default_factory=list)


@dataclass
class Clash:
    heads: float = 1.0


class Plain:
    hops: int = 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Common, "every model has a setting 'hidden'. Name the option otherwise."),
        (Bare, "options need defaults: "),
        (Odd, "option 'hops' is list"),
        (Clash, "option 'heads' of gat is of type int, bad's is not. Rename it."),
        (Plain, "Plain is no dataclass. Put @dataclass above it."),
    ],
)
def test_options_that_cannot_be_are_refused_at_once(options, message):
    with pytest.raises(UserError) as caught:
        register("bad", MODELS["gcn"].make, options)
    assert str(caught.value).startswith(message)
    assert "bad" not in MODELS


def test_an_entry_may_be_put_into_the_registry_by_hand(monkeypatch):
    make = lambda config, own, w: ([GCNLayer(a, b) for a, b in pairwise(w)], "gcn")  # noqa: E731
    monkeypatch.setitem(MODELS, "hand", Entry(None, make))
    assert build(ModelConfig("hand"), 5, 4).widths == [5, 64, 4]


def test_widths_are_known_without_a_model():
    for name in MODELS:
        config = ModelConfig(name, layers=3, hidden=6)
        assert model_widths(config, 5, 4) == build(config, 5, 4).widths
    with pytest.raises(UserError, match=r"^a model of 1000000000 layers with hidden=64: "):
        model_widths(ModelConfig(layers=10**9), 5, 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": 0}, "heads must be at least 1, not 0."),
        ({"output_heads": 0}, "output_heads must be at least 1, not 0."),
        ({"heads": 5}, "5 heads do not divide a hidden width of 64. Use --hidden 60."),
        ({"slope": -0.1}, "slope must be at least 0, not -0.1."),
        ({"attention_dropout": 1.0}, r"attention_dropout must lie in [0, 1), not 1.0."),
    ],
)
def test_values_of_own_options_are_checked(options, message):
    with pytest.raises(UserError) as caught:
        check_model(ModelConfig("gat", **options))
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("name", "more", "how"),
    [
        ("gcn", {}, "gcn"), ("sage", {}, "mean"), ("sage", {"aggregate": "max"}, "none"), ("gin", {}, "none"),
        ("sgc", {}, "gcn"), ("gcn", {"normalise": "none"}, "none"), ("gin", {"normalise": "gcn"}, "gcn"),
        ("sage", {"aggregate": "max", "normalise": "mean"}, "mean"), ("sgc", {"normalise": "mean"}, "mean"),
        ("va", {}, "loops"), ("va", {"normalise": "none"}, "none"), ("agnn", {"form": "besta"}, "loops"),
        ("agnn", {"form": "besta", "normalise": "gcn"}, "gcn"), ("va", {"normalise": "mean"}, "mean"),
    ],
)  # fmt: skip
def test_a_is_normalised_as_the_paper_has_it_or_as_one_says(name, more, how):
    assert build(ModelConfig(name, **more), 3, 2).adjacency == how


def test_an_unknown_normalisation_or_form_is_told_with_the_known_ones():
    with pytest.raises(UserError, match=r"unknown normalisation 'men'. Did you mean 'mean'"):
        check_model(ModelConfig("gin", normalise="men"))
    with pytest.raises(UserError, match=r"unknown form of agnn 'beste'. Did you mean 'besta'"):
        check_model(ModelConfig("agnn", form="beste"))


def test_pnas_aggregators_are_named_once_each_among_those_it_knows():
    with pytest.raises(UserError, match=r"unknown aggregator 'men'. Did you mean 'mean'"):
        check_model(ModelConfig("pna", aggregators="men,max"))
    with pytest.raises(UserError, match=r"aggregators 'max, min,max' have max twice. Name each once."):
        check_model(ModelConfig("pna", aggregators="max, min,max"))
    with pytest.raises(UserError, match=r"unknown aggregator ''"):
        check_model(ModelConfig("pna", aggregators=""))
