"""The config: types, TOML and `section.name` paths."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import UserError
from weft.train import RunConfig
from weft.train.config import fields, read_toml, to_toml, update


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
    with pytest.raises(UserError, match=r"^cannot read folder\.toml: Is a directory"):
        read_toml(Path("folder.toml"))
