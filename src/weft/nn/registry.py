"""The models by name: each with the options that it alone reads, and how its layers are made of them."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import nn

from ..errors import NoSetting, UserError, unknown, unread
from ..graph.guard import check_fits
from .arcs import (
    GatedLayer,
    GATv2Layer,
    GINELayer,
    PNALayer,
    RGCNLayer,
    TransformerLayer,
    aggregators_of,
)
from .attention import AGNNLayer, BestaAGNNLayer, GATLayer, VALayer
from .layers import GCNLayer, GINLayer, SAGELayer, SGCLayer
from .models import Model


@dataclass(init=False, repr=False, eq=False)
class ModelConfig:
    """What every model reads, and `own`: what is set of the options that single models read.

    Both are attributes. An option may be set before the name; `check_model` refuses one that the chosen
    model does not read.

    >>> config = ModelConfig("gat", heads=2)
    >>> config.hidden, config.heads, config.slope
    (64, 2, 0.2)
    >>> config.hiden = 8
    Traceback (most recent call last):
        ...
    weft.errors.NoSetting: unknown setting 'model.hiden'. Did you mean 'model.hidden'?
    """

    name: str = "gcn"
    """The model: gcn, sage, gin, sgc; with attention gat, gatv2, transformer, agnn, va; over arcs that carry
    data gine, resgated, pna, rgcn."""
    layers: int = 2
    """Layers; for sgc the number of propagations, K."""
    hidden: int = 64
    """Width between the layers."""
    dropout: float = 0.5
    """Share of activations dropped after each hidden layer while training, in [0, 1)."""
    input_dropout: float = 0.0
    """Share of input features dropped while training. Above 0, A·X cannot be kept from epoch to epoch."""
    layer_norm: bool = False
    """Layer norm before each activation."""
    residual: bool = False
    """Add a layer's input to its output where the widths agree."""
    bias: bool = True
    """A bias in every layer."""
    activation: str = "auto"
    """Between the layers: relu, elu, or auto (elu for gat, relu else)."""
    own: dict[str, Any] = field(default_factory=dict)
    """Options of single models that were set, by name."""

    def __init__(self, name: str = "gcn", own: dict[str, Any] | None = None, **settings: Any):
        object.__setattr__(self, "own", dict(own or {}))
        for key, value in {**_COMMON, **settings, "name": name}.items():
            setattr(self, key, value)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _COMMON or name == "own":
            object.__setattr__(self, name, value)
        elif readers(name):
            object.__setattr__(self, "own", {**self.own, name: value})  # a shallow copy keeps its own
        else:
            raise _no_setting(name)

    def __getattr__(self, name: str) -> Any:
        # Called for what is no attribute of the object; while one is copied it has none at all yet.
        if name.startswith("_") or name in _COMMON or name == "own":
            raise AttributeError(name)
        models = readers(name)
        if not models:
            raise _no_setting(name)
        if self.name not in models:
            raise NoSetting(str(unread("model", [self.name], name, models)))
        return self.own.get(name, option_defaults(name)[self.name])

    def settings(self) -> dict[str, Any]:
        """What the model reads, and what is set beside that.

        >>> ModelConfig("sage").settings()["aggregate"]
        'mean'
        """
        common = {name: getattr(self, name) for name in _COMMON}
        entry = MODELS.get(self.name)
        return common | (dataclasses.asdict(entry.defaults()) if entry and entry.options else {}) | self.own

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ModelConfig) and self.settings() == other.settings()

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ModelConfig({', '.join(f'{name}={value!r}' for name, value in self.settings().items())})"


_COMMON = {f.name: f.default for f in dataclasses.fields(ModelConfig) if f.name != "own"}
"""What every model reads, with its default."""

Factory = Callable[[ModelConfig, Any, list[int]], tuple[list[nn.Module], str]]
"""(what all models read, this model's own options, widths) → (layers, normalisation of A)."""

_LAYER_BYTES = 2000
"""The least that a layer takes as a Python object, without its weights."""


def hidden_widths(config: ModelConfig, inputs: int, outputs: int) -> list[int]:
    """The hidden width between any two layers."""
    check_fits(_LAYER_BYTES * config.layers, f"a model of {config.layers} layers with hidden={config.hidden}")
    return [inputs, *[config.hidden] * (config.layers - 1), outputs]


@dataclass(frozen=True)
class Entry:
    """A model of the registry."""

    options: type | None
    """A dataclass of the options that it alone reads, each with a default and a text below it; or none."""
    make: Factory
    """(config, its own options, widths) → the layers and the normalisation of A."""
    activation: str = "relu"
    """What `--activation auto` means."""
    widths: Callable[[ModelConfig, int, int], list[int]] = hidden_widths
    """(config, features, classes) → widths before, between and after the layers."""
    check: Callable[[ModelConfig, Any], None] | None = None
    """Refuses values that cannot be, with a UserError."""

    def __post_init__(self) -> None:
        for name, kind in self.kinds().items():
            if name in _COMMON or name == "own" or name.startswith("_"):
                raise UserError(f"every model has a setting {name!r}. Name the option otherwise.")
            if kind not in (int, float, bool, str):
                raise UserError(f"option {name!r} is {kind}. Make it an int, a float, a bool or a str.")
        try:
            self.defaults()
        except TypeError as error:
            raise UserError(f"options need defaults: {error}. Give each one.") from None

    def kinds(self) -> dict[str, type]:
        """The type of each option."""
        if self.options is None:
            return {}
        if not dataclasses.is_dataclass(self.options):
            raise UserError(f"{self.options.__name__} is no dataclass. Put @dataclass above it.")
        hints = typing.get_type_hints(self.options)
        return {f.name: hints[f.name] for f in dataclasses.fields(self.options)}

    def defaults(self) -> Any:
        """The options as they are where nothing is set; None where the model has none."""
        return None if self.options is None else self.options()


@dataclass(frozen=True)
class ProductOptions:
    normalise: str = "auto"
    """A's entries: gcn (D^-½ (A + I) D^-½), mean (D⁻¹ A), none (A), or auto: as the model's paper has it."""


@dataclass(frozen=True)
class SAGEOptions(ProductOptions):
    aggregate: str = "mean"
    """How neighbours are combined: mean or max."""


@dataclass(frozen=True)
class GATOptions:
    heads: int = 1
    """Attention heads of the hidden layers; they share the hidden width, so they must divide it."""
    output_heads: int = 1
    """Attention heads of the last layer; they are averaged."""
    slope: float = 0.2
    """Slope of the LeakyReLU below 0."""
    attention_dropout: float = 0.0
    """Share of arcs dropped from the attention while training, in [0, 1)."""
    arc_features: int = 0
    """Width of the arcs' features; -1: as the graph has them, 0: they are not read."""


@dataclass(frozen=True)
class GATv2Options(GATOptions):
    arc_features: int = -1
    """Width of the arcs' features; -1: as the graph has them, 0: they are not read."""


@dataclass(frozen=True)
class TransformerOptions:
    heads: int = 1
    """Attention heads of the hidden layers; they share the hidden width, so they must divide it."""
    output_heads: int = 1
    """Attention heads of the last layer; they are averaged."""
    attention_dropout: float = 0.0
    """Share of arcs dropped from the attention while training, in [0, 1)."""
    arc_features: int = -1
    """Width of the arcs' features; -1: as the graph has them, 0: they are not read."""


@dataclass(frozen=True)
class ArcOptions:
    arc_features: int = -1
    """Width of the arcs' features; -1: as the graph has them, 0: they are not read."""


@dataclass(frozen=True)
class PNAOptions(ArcOptions):
    log_degree: float = -1.0
    """The mean of log(degree + 1) that degrees are compared with; -1: the graph's."""
    aggregators: str = "mean,min,max,std"
    """What messages are reduced to, beside each other: of sum, mean, min, max, std."""


@dataclass(frozen=True)
class RGCNOptions:
    relations: int = -1
    """Kinds of arcs; -1: as many as the graph has."""
    bases: int = 0
    """Weights that the relations' weights are mixed of; 0: one for each relation."""


@dataclass(frozen=True)
class AttentionOptions:
    attention_dropout: float = 0.0
    """Share of arcs dropped from the attention while training, in [0, 1)."""


@dataclass(frozen=True)
class VAOptions(AttentionOptions, ProductOptions):
    pass


@dataclass(frozen=True)
class AGNNOptions(VAOptions):
    form: str = "thekumparampil"
    """Neighbours' weights: thekumparampil (softmax of β cosines, β learned) or besta (the cosines alone)."""


def _stack(layer: Callable[..., nn.Module], widths: list[int], **options: object) -> list[nn.Module]:
    return [layer(a, b, **options) for a, b in pairwise(widths)]


def _entries(own: ProductOptions, paper: str) -> str:
    return paper if own.normalise == "auto" else own.normalise


def _gcn(c: ModelConfig, own: ProductOptions, widths: list[int]) -> tuple[list[nn.Module], str]:
    return _stack(GCNLayer, widths, bias=c.bias), _entries(own, "gcn")


def _gin(c: ModelConfig, own: ProductOptions, widths: list[int]) -> tuple[list[nn.Module], str]:
    return _stack(GINLayer, widths, bias=c.bias), _entries(own, "none")


def _sgc(c: ModelConfig, own: ProductOptions, widths: list[int]) -> tuple[list[nn.Module], str]:
    return [SGCLayer(widths[0], widths[-1], c.bias, c.layers)], _entries(own, "gcn")


def _sage(c: ModelConfig, own: SAGEOptions, widths: list[int]) -> tuple[list[nn.Module], str]:
    adjacency = _entries(own, "mean" if own.aggregate == "mean" else "none")
    return _stack(SAGELayer, widths, bias=c.bias, aggregate=own.aggregate), adjacency


def _heads(
    layer: Callable[..., nn.Module], c: ModelConfig, own: Any, widths: list[int], **options: object
) -> list[nn.Module]:
    """Layers with heads side by side, the last with heads that are averaged."""
    options = {"bias": c.bias, "drop": own.attention_dropout, "arcs": max(own.arc_features, 0), **options}
    hidden = _stack(layer, widths[:-1], heads=own.heads, **options)
    return [*hidden, layer(widths[-2], widths[-1], heads=own.output_heads, average=True, **options)]


def _gat(c: ModelConfig, own: GATOptions, widths: list[int]) -> tuple[list[nn.Module], str]:
    return _heads(GATLayer, c, own, widths, slope=own.slope), "loops"


def _gatv2(c: ModelConfig, own: GATv2Options, widths: list[int]) -> tuple[list[nn.Module], str]:
    return _heads(GATv2Layer, c, own, widths, slope=own.slope), "loops"


def _over_arcs(layer: Callable[..., nn.Module]) -> Factory:
    def make(c: ModelConfig, own: ArcOptions, widths: list[int]) -> tuple[list[nn.Module], str]:
        return _stack(layer, widths, bias=c.bias, arcs=max(own.arc_features, 0)), "none"

    return make


def _pna(c: ModelConfig, own: PNAOptions, widths: list[int]) -> tuple[list[nn.Module], str]:
    degree = own.log_degree if own.log_degree > 0 else 1.0
    arcs = max(own.arc_features, 0)
    options = {"log_degree": degree, "aggregators": own.aggregators}
    return _stack(PNALayer, widths, bias=c.bias, arcs=arcs, **options), "none"


def _rgcn(c: ModelConfig, own: RGCNOptions, widths: list[int]) -> tuple[list[nn.Module], str]:
    return _stack(RGCNLayer, widths, bias=c.bias, relations=max(own.relations, 1), bases=own.bases), "none"


def _agnn(c: ModelConfig, own: AGNNOptions, widths: list[int]) -> tuple[list[nn.Module], str]:
    layer = AGNNLayer if own.form == "thekumparampil" else BestaAGNNLayer
    return _stack(layer, widths, bias=c.bias, drop=own.attention_dropout), _entries(own, "loops")


def _va(c: ModelConfig, own: VAOptions, widths: list[int]) -> tuple[list[nn.Module], str]:
    return _stack(VALayer, widths, bias=c.bias, drop=own.attention_dropout), _entries(own, "loops")


def _check_product(c: ModelConfig, own: ProductOptions) -> None:
    if own.normalise not in ("auto", "gcn", "mean", "none"):
        raise unknown("normalisation", own.normalise, ["auto", "gcn", "mean", "none"])


def _check_agnn(c: ModelConfig, own: AGNNOptions) -> None:
    _check_attention(c, own)
    if own.form not in ("thekumparampil", "besta"):
        raise unknown("form of agnn", own.form, ["thekumparampil", "besta"])
    if own.form == "thekumparampil" and own.normalise != "auto":
        raise UserError(
            f"normalise {own.normalise} is for agnn's form besta: the softmax of form thekumparampil makes a "
            "row's entries sum to 1 itself. Add --form besta, or leave out --normalise."
        )


def _check_sage(c: ModelConfig, own: SAGEOptions) -> None:
    _check_product(c, own)
    if own.aggregate not in ("mean", "max"):
        raise unknown("aggregation", own.aggregate, ["mean", "max"])


def _check_arcs(c: ModelConfig, own: Any) -> None:
    if own.arc_features < -1:
        raise UserError(f"arc_features must be at least 0, or -1 for the graph's; not {own.arc_features}.")


def _check_pna(c: ModelConfig, own: PNAOptions) -> None:
    _check_arcs(c, own)
    aggregators_of(own.aggregators)


def _check_rgcn(c: ModelConfig, own: RGCNOptions) -> None:
    if own.relations < -1 or own.relations == 0:
        raise UserError(f"relations must be at least 1, or -1 for the graph's; not {own.relations}.")
    if own.bases < 0:
        raise UserError(f"bases must be at least 0, not {own.bases}.")


def _check_gat(c: ModelConfig, own: GATOptions) -> None:
    if own.slope < 0:
        raise UserError(f"slope must be at least 0, not {own.slope}.")
    _check_heads(c, own)


def _check_heads(c: ModelConfig, own: Any) -> None:
    _check_arcs(c, own)
    _at_least_one(own, "heads", "output_heads")
    if c.layers > 1 and c.hidden % own.heads:
        raise UserError(
            f"{own.heads} heads do not divide a hidden width of {c.hidden}. "
            f"Use --hidden {own.heads * max(c.hidden // own.heads, 1)}."
        )
    _shares(own, "attention_dropout")


def _check_attention(c: ModelConfig, own: VAOptions) -> None:
    _check_product(c, own)
    _shares(own, "attention_dropout")


def _at_least_one(settings: Any, *names: str) -> None:
    for name in names:
        if getattr(settings, name) < 1:
            raise UserError(f"{name} must be at least 1, not {getattr(settings, name)}.")


def _shares(settings: Any, *names: str) -> None:
    for name in names:
        if not 0 <= getattr(settings, name) < 1:
            raise UserError(f"{name} must lie in [0, 1), not {getattr(settings, name)}.")


MODELS: dict[str, Entry] = {
    "gcn": Entry(ProductOptions, _gcn, check=_check_product),
    "sage": Entry(SAGEOptions, _sage, check=_check_sage),
    "gin": Entry(ProductOptions, _gin, check=_check_product),
    "sgc": Entry(
        ProductOptions, _sgc, check=_check_product, widths=lambda c, inputs, outputs: [inputs, outputs]
    ),
    "gat": Entry(GATOptions, _gat, activation="elu", check=_check_gat),
    "gatv2": Entry(GATv2Options, _gatv2, activation="elu", check=_check_gat),
    "transformer": Entry(
        TransformerOptions, lambda c, own, w: (_heads(TransformerLayer, c, own, w), "none"),
        check=_check_heads,
    ),
    "gine": Entry(ArcOptions, _over_arcs(GINELayer), check=_check_arcs),
    "resgated": Entry(ArcOptions, _over_arcs(GatedLayer), check=_check_arcs),
    "pna": Entry(PNAOptions, _pna, check=_check_pna),
    "rgcn": Entry(RGCNOptions, _rgcn, check=_check_rgcn),
    "agnn": Entry(AGNNOptions, _agnn, check=_check_agnn),
    "va": Entry(VAOptions, _va, check=_check_attention),
}  # fmt: skip
"""A new model is an entry here, or a call of `register`."""


def register(name: str, make: Factory, options: type | None = None, **more: Any) -> Entry:
    """Add a model; `more` are further fields of its `Entry`. Its options become `--options` of the commands.

    >>> from weft.nn import GCNLayer
    >>> entry = register("one", lambda config, own, w: ([GCNLayer(w[0], w[-1])], "gcn"))
    >>> build(ModelConfig("one", layers=1), inputs=3, outputs=2).widths
    [3, 2]
    >>> del MODELS["one"]
    """
    entry = Entry(options, make, **more)
    for other, known in MODELS.items():
        for option, kind in known.kinds().items() if other != name else ():
            if entry.kinds().get(option, kind) is not kind:
                raise UserError(
                    f"option {option!r} of {other} is of type {kind.__name__}, {name}'s is not. Rename it."
                )
    MODELS[name] = entry
    return entry


FROM_GRAPH = ("arc_features", "relations", "log_degree")
"""Options that are -1 where they shall be the graph's own number."""


def open_options(config: ModelConfig) -> list[str]:
    """Those of `FROM_GRAPH` that the model reads and nobody has set.

    >>> open_options(ModelConfig("pna")), open_options(ModelConfig("gcn"))
    (['arc_features', 'log_degree'], [])
    """
    reading = [name for name in FROM_GRAPH if config.name in readers(name)]
    return [name for name in reading if getattr(config, name) == -1]


def option_defaults(option: str) -> dict[str, Any]:
    """Each model that reads the option, with its default.

    >>> option_defaults("attention_dropout")
    {'gat': 0.0, 'gatv2': 0.0, 'transformer': 0.0, 'agnn': 0.0, 'va': 0.0}
    """
    return {
        name: getattr(entry.defaults(), option)
        for name, entry in MODELS.items()
        if entry.options is not None and option in {f.name for f in dataclasses.fields(entry.options)}
    }


def readers(option: str) -> list[str]:
    """The models that read an option; none for what is not an option of a model.

    >>> readers("heads"), readers("hidden")
    (['gat', 'gatv2', 'transformer'], [])
    """
    return list(option_defaults(option))


def _no_setting(name: str) -> NoSetting:
    known = [*_COMMON, *(option for entry in MODELS.values() for option in entry.kinds())]
    return NoSetting(str(unknown("setting", f"model.{name}", [f"model.{k}" for k in dict.fromkeys(known)])))


def check_read(models: Sequence[str], options: Iterable[str]) -> None:
    """Refuse options that none of the models reads.

    >>> check_read(["gcn"], ["bases"])
    Traceback (most recent call last):
        ...
    weft.errors.UserError: model gcn does not read bases, rgcn does. Leave out --bases, or use --model rgcn.
    """
    for option in options:
        reading = readers(option)
        if not set(models) & set(reading):
            raise unread("model", models, option, reading)


def check_model(config: ModelConfig) -> None:
    """Refuse a model that cannot be, and options that it does not read.

    >>> check_model(ModelConfig(dropout=1.5))
    Traceback (most recent call last):
        ...
    weft.errors.UserError: dropout must lie in [0, 1), not 1.5.
    """
    if config.name not in MODELS:
        raise unknown("model", config.name, MODELS)
    check_read([config.name], config.own)
    _at_least_one(config, "layers", "hidden")
    if config.activation not in ("auto", "relu", "elu"):
        raise unknown("activation", config.activation, ["auto", "relu", "elu"])
    _shares(config, "dropout", "input_dropout")
    entry = MODELS[config.name]
    if entry.check is not None:
        entry.check(config, own_options(config))


def own_options(config: ModelConfig) -> Any:
    """The chosen model's own options, of the type that its entry names.

    >>> own_options(ModelConfig("sage", aggregate="max"))
    SAGEOptions(normalise='auto', aggregate='max')
    """
    options = MODELS[config.name].options
    return None if options is None else options(**config.own)


def model_widths(config: ModelConfig, inputs: int, outputs: int) -> list[int]:
    """Widths before, between and after the layers, without making them.

    >>> model_widths(ModelConfig("sgc", layers=3), 10, 4)
    [10, 4]
    """
    return MODELS[config.name].widths(config, inputs, outputs)


def build(config: ModelConfig, inputs: int, outputs: int, seed: int | None = None) -> Model:
    """The model that the config describes, from `inputs` features to `outputs` classes.

    With a seed, its weights are those of that seed, whatever other threads draw from torch's generator.

    >>> build(ModelConfig(name="sage", layers=3, hidden=16), inputs=10, outputs=4).widths
    [10, 16, 16, 4]
    """
    check_model(config)
    entry, widths = MODELS[config.name], model_widths(config, inputs, outputs)
    layers, adjacency = entry.make(config, own_options(config), widths)
    activation = entry.activation if config.activation == "auto" else config.activation
    model = Model(layers, widths, adjacency, config, activation)
    if seed is not None:
        generator = torch.Generator().manual_seed(seed)
        for p in model.parameters():
            if p.dim() == 2:  # vectors and scalars start at a constant
                nn.init.xavier_uniform_(p, generator=generator)
    return model


def model_hops(config: ModelConfig) -> int | None:
    """How often the model multiplies with A, found without the graph: so many fan-outs a batch takes.

    None where the layers refuse the narrowest of widths: the graph's own will tell.

    >>> model_hops(ModelConfig("sgc", layers=3)), model_hops(ModelConfig("pna"))
    (3, 2)
    """
    check_model(config)
    weights = sum(a * b for a, b in pairwise(model_widths(config, 1, 1)))
    check_fits(
        torch.float32.itemsize * weights, f"a model of {config.layers} layers with hidden={config.hidden}"
    )
    narrow = ModelConfig(**(config.settings() | dict.fromkeys(open_options(config), 1)))
    with torch.random.fork_rng(devices=[]):  # somebody's random numbers stay as they were
        try:
            return build(narrow, inputs=1, outputs=1).hops
        except UserError:
            return None
