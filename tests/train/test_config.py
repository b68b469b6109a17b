"""The config: types, TOML and `section.name` paths."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import NoSetting, UserError
from weft.nn import MODELS
from weft.train import RunConfig
from weft.train.config import (
    SECTIONS,
    fields,
    forget_unread,
    load_toml,
    read_toml,
    refuse_unread,
    to_toml,
    update,
)


def read_back(text: str) -> RunConfig:
    path = Path("config.toml")
    path.write_text(text, encoding="utf-8")
    config = RunConfig()
    for name, value in read_toml(path).items():
        update(config, name, value)
    return config


def test_every_field_explains_itself_and_has_a_type_that_converts_its_default():
    assert len(fields()) > 20
    for field in fields().values():
        assert field.help.endswith("."), field.path
        assert field.convert(field.default) == field.default


def test_a_config_survives_toml():
    config = RunConfig()
    update(config, "data.graph", 'a "quoted" \\ path\twith é and 🧶.weft')
    update(config, "train.lr", 1e-05)
    update(config, "train.weight_decay", "0")
    update(config, "model.bias", "false")
    update(config, "train.optimizer_options.betas", "[0.8, 0.95]")
    update(config, "train.optimizer_options.amsgrad", "true")
    update(config, "train.scheduler_options.mode", "min")
    assert read_back(to_toml(config)) == config
    assert read_back(to_toml(RunConfig())) == RunConfig()


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_any_text_survives_toml(text):
    config = RunConfig()
    config.data.graph = text
    assert tomllib.loads(to_toml(config))["data"]["graph"] == text


def test_a_table_in_toml_fills_options():
    config = read_back('graph = "karate"\n[train]\nepochs = 3\n[train.optimizer_options]\nmomentum = 0.9\n')
    assert (config.data.graph, config.train.epochs) == ("karate", 3)
    assert config.train.optimizer_options == {"momentum": 0.9}
    assert RunConfig().train.optimizer_options == {}


def test_a_list_of_models_in_toml_is_a_text_that_is_refused_later_and_no_traceback():
    config = read_back('[model]\nheads = 3\nname = ["gat"]\n')  # found by fuzzing
    assert config.model.name == "['gat']"
    assert read_back('[model]\nheads = 3\nname = "gat"\n').model.own["heads"] == 3


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("train.epochs", "many", "train.epochs must be a whole number, not 'many'."),
        ("train.epochs", 2.5, "train.epochs must be a whole number, not 2.5."),
        ("train.epochs", True, "train.epochs must be a whole number, not True."),
        ("train.lr", "fast", "train.lr must be a finite number, not 'fast'."),
        ("train.lr", "nan", "train.lr must be a finite number, not 'nan'."),
        ("train.lr", float("inf"), "train.lr must be a finite number, not inf."),
        ("model.bias", 1, "model.bias must be true or false, not 1."),
        ("model.bias", "yes", "model.bias must be true or false, not 'yes'."),
        ("train.optimizer_options", "momentum", "train.optimizer_options must be a table"),
        ("model.hiden", 5, "unknown setting 'model.hiden'. Did you mean 'model.hidden'?"),
        ("model.hidden.more", 5, "unknown setting 'model.hidden.more'. Did you mean 'model.hidden'?"),
        ("hidden", 5, "unknown setting 'hidden'."),
    ],
)
def test_a_wrong_value_is_named(path, value, message):
    with pytest.raises(UserError) as caught:
        update(RunConfig(), path, value)
    assert str(caught.value).startswith(message)


def test_whole_numbers_may_be_written_as_floats_or_text():
    config = RunConfig()
    update(config, "train.epochs", 5.0)
    update(config, "model.hidden", "16")
    update(config, "train.lr", 1)
    assert (config.train.epochs, config.model.hidden, config.train.lr) == (5, 16, 1.0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("epochs = 3", "'epochs' stands outside a section. Put it under one of [data], [model], [train]"),
        ("[trian]\nepochs = 3", "unknown section in run.toml: 'trian'. Did you mean 'train'?"),
        ("[trian]", "Did you mean 'train'?"),
        ("[train\nepochs = 3", "run.toml is not TOML: "),
        ("graph = 3", "stands outside a section"),
    ],
)
def test_a_bad_file_is_named(text, message):
    Path("run.toml").write_text(text)
    with pytest.raises(UserError) as caught:
        read_toml(Path("run.toml"))
    assert message in str(caught.value)
    assert "run.toml" in str(caught.value)


def test_a_missing_file_and_one_that_is_not_text_are_named():
    with pytest.raises(UserError, match=r"^no file gone\.toml\. Check the path\.$"):
        read_toml(Path("gone.toml"))
    Path("raw.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match=r"^raw\.toml is not TOML"):
        read_toml(Path("raw.toml"))
    Path("folder.toml").mkdir()
    with pytest.raises(UserError, match=r"^folder\.toml is no plain file"):
        read_toml(Path("folder.toml"))


# What a run does not read

FOREIGN = [
    ({}, "link.hits", "task node does not read hits, link does. Leave out --hits, or use --task link."),
    (
        {"train.task": "link"}, "data.val_share",
        "task link does not read val_share, node does. Leave out --val-share, or use --task node.",
    ),
    (
        {}, "parallel.epsilon",
        "partition random does not read epsilon, metis, hypergraph, stochastic, best, stream and auto do. "
        "Leave out --epsilon, or use --partition metis.",
    ),
    (
        {"parallel.partition": "metis"}, "parallel.preset",
        "partition metis does not read preset, hypergraph, stochastic, best and auto do. "
        "Leave out --preset, or use --partition hypergraph.",
    ),
    (
        {"train.task": "link", "link.decoder": "dot"}, "link.decoder_layers",
        "decoder dot does not read decoder_layers, mlp does. "
        "Leave out --decoder-layers, or use --decoder mlp.",
    ),
    (
        {"train.task": "link", "batch.batch_size": 30}, "link.pair_batch",
        "pair_batch is for steps over the whole graph, --batch-size 30 samples. "
        "Leave out --pair-batch, or --batch-size.",
    ),
    (
        {}, "batch.fanouts",
        "fanouts is for mini-batches, the whole graph is in every step here. "
        "Add --batch-size 1000, or leave it out.",
    ),
    (
        {"model.name": "sage"}, "model.heads",
        "model sage does not read heads, gat, gatv2 and transformer do. "
        "Leave out --heads, or use --model gat.",
    ),
]  # fmt: skip
OTHERS = {int: 7, float: 0.01, str: "other", bool: True}


def config_with(settings: dict[str, object]) -> RunConfig:
    config = RunConfig()
    for path, value in settings.items():
        update(config, path, value)
    return config


@pytest.mark.parametrize(("settings", "path", "message"), FOREIGN)
def test_a_setting_that_was_spelled_out_is_refused_at_its_default_too(settings, path, message):
    for value in (fields()[path].default, OTHERS[fields()[path].type]):
        config = config_with(settings)
        refuse_unread(config)
        update(config, path, value)
        with pytest.raises(UserError) as caught:
            refuse_unread(config)
        assert str(caught.value) == message


@pytest.mark.parametrize(("settings", "path", "message"), FOREIGN)
def test_a_file_may_hold_it_at_its_default_alone(settings, path, message):
    section, name = path.split(".")
    for value, fine in ((fields()[path].default, True), (OTHERS[fields()[path].type], False)):
        config = config_with(settings)
        Path("run.toml").write_text(
            f"[{section}]\n{name} = {str(value).lower() if value is True else repr(value)}\n"
        )
        load_toml(config, Path("run.toml"))
        if fine:
            refuse_unread(config)
            continue
        with pytest.raises(UserError) as caught:
            refuse_unread(config)
        assert str(caught.value) == message.replace(f"out {fields()[path].flag}", f"out {path}")


def test_a_file_that_holds_every_setting_at_its_default_is_a_default_run():
    """As weft wrote them at first, whatever the model."""
    lines = []
    for section in SECTIONS:
        lines.append(f"[{section}]")
        for f in fields().values():
            if f.section == section and f.type is not dict:
                lines.append(f"{f.name} = {str(f.default).lower() if f.type is bool else repr(f.default)}")
    Path("old.toml").write_text("\n".join(lines))
    for model in MODELS:
        config = RunConfig()
        load_toml(config, Path("old.toml"))
        update(config, "model.name", model)
        refuse_unread(config)
        assert config == config_with({"model.name": model})


def test_a_default_in_a_file_beats_what_was_there_before():
    config = config_with({"model.name": "gat", "model.heads": 8})
    Path("run.toml").write_text("[model]\nheads = 1\n")
    load_toml(config, Path("run.toml"))
    assert config.model.heads == 1


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    "more",
    [{}, {"batch.batch_size": 9}, {"train.task": "link"}, {"train.task": "link", "batch.batch_size": 9},
     {"parallel.partition": "hypergraph"}],
)  # fmt: skip
def test_toml_holds_what_the_run_reads_and_repeats_it(model, more):
    config = config_with({"model.name": model, **more})
    for f in list(fields().values()):  # everything that is read gets another value
        free = f.path not in (
            "model.name",
            "train.task",
            "link.decoder",
            "parallel.partition",
            "batch.batch_size",
        )
        if free and f.type is not dict and f.path in read_paths(config):
            update(config, f.path, f.default + 1 if f.type is int else OTHERS[f.type])
    refuse_unread(config)
    assert read_back(to_toml(config)) == config
    tables = tomllib.loads(to_toml(config))
    assert ("link" in tables) == (config.train.task == "link")
    assert ("train_share" in tables["data"]) == (config.train.task == "node")
    assert ("fanouts" in tables["batch"]) == bool(config.batch.batch_size)
    assert ("epsilon" in tables["parallel"]) == ("parallel.partition" in more)
    assert tables["model"].keys() >= MODELS[model].kinds().keys()
    foreign = {option for entry in MODELS.values() for option in entry.kinds()} - MODELS[model].kinds().keys()
    assert not tables["model"].keys() & foreign


def read_paths(config: RunConfig) -> set[str]:
    return {f"{section}.{name}" for section, table in config.as_dict().items() for name in table}


def test_what_a_saved_run_read_is_forgotten_where_this_use_does_not():
    settings = {"parallel.partition": "metis", "parallel.epsilon": 0.2, "model.name": "gat", "model.heads": 4}
    config = read_back(to_toml(config_with(settings)))
    config.given = set()
    update(config, "parallel.partition", "random")
    update(config, "model.name", "gcn")
    forget_unread(config)
    refuse_unread(config)
    assert config.parallel.epsilon == 0.03
    update(config, "parallel.epsilon", 0.2)
    forget_unread(config)
    with pytest.raises(UserError, match="partition random does not read epsilon"):
        refuse_unread(config)


@pytest.mark.parametrize("section", SECTIONS)
def test_a_section_refuses_what_it_does_not_have(section):
    name = next(f.name for f in fields().values() if f.section == section and len(f.name) > 4)
    with pytest.raises(NoSetting) as caught:
        setattr(getattr(RunConfig(), section), name[:-1], 1)
    assert str(caught.value).startswith(
        f"unknown setting '{section}.{name[:-1]}'. Did you mean '{section}.{name}'?"
    )
    with pytest.raises(NoSetting, match=r"'config.modle'. Did you mean 'config.model'"):
        RunConfig().modle = 1


def test_a_copy_remembers_what_was_spelled_out_and_is_equal_without():
    config = config_with({"model.name": "gat", "model.heads": 2})
    for other in (copy.deepcopy(config), pickle.loads(pickle.dumps(config))):  # noqa: S301  our own
        assert other == config
        assert other.given == {"model.name", "model.heads"}
    assert dataclasses.replace(config) == config
    config.given.clear()
    assert copy.deepcopy(config) == config


def test_help_tells_which_models_read_an_option():
    assert dict(fields()["model.attention_dropout"].readers) == {
        "model.name": ("gat", "gatv2", "transformer", "agnn", "va")
    }
    assert fields()["model.hidden"].readers == ()


@dataclasses.dataclass
class Collides:
    epochs: int = 3


def test_an_option_with_the_flag_of_another_setting_is_refused(monkeypatch):
    monkeypatch.setitem(MODELS, "mine", dataclasses.replace(MODELS["gcn"], options=Collides))
    with pytest.raises(UserError, match=r"train.epochs and model.epochs are both --epochs\. Rename"):
        fields()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"model.name": "sgc", "model.hidden": 999},
            "model sgc has no hidden layer and does not read hidden",
        ),
        ({"model.name": "sgc", "model.residual": True}, "Leave out --residual, or use --model gcn"),
        ({"model.layers": 1, "model.layer_norm": True}, "model gcn of 1 layer has no hidden layer"),
        (
            {"model.name": "gat", "model.layers": 1, "model.heads": 4},
            "does not read heads.*or use --layers 2",
        ),
    ],
)
def test_what_hidden_layers_read_is_refused_where_there_are_none(settings, message):
    config = RunConfig()
    for path, value in settings.items():
        update(config, path, value)
    with pytest.raises(UserError, match=message):
        refuse_unread(config)
    update(config, "train.task", "link")  # there the model's rows have that width
    if "model.hidden" in settings:
        refuse_unread(config)
    unsaid = RunConfig()
    unsaid.model.name, unsaid.model.hidden = "sgc", 999  # a default of somebody's, not of this user
    refuse_unread(unsaid)
