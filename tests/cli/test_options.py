"""Options, `--set` and TOML: each fills the config, the more explicit one wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.cli.options import Parser, add_config, config_from, whole_number
from weft.errors import UserError
from weft.train import RunConfig
from weft.train.config import fields


def parse(*words: str) -> RunConfig:
    parser = Parser("train", "", "", "")
    add_config(parser)
    return config_from(parser.parse(words))


def test_without_options_the_config_is_the_default():
    assert parse() == RunConfig()


def test_every_field_has_a_flag_of_its_own():
    flags = [field.flag for field in fields().values() if field.type is not dict and field.flag]
    assert len(flags) == len(set(flags))
    for field in fields().values():
        if field.type in (int, float) and field.flag:
            model = dict(field.readers).get("model.name", ("gcn",))[0]
            assert field.of(parse(field.flag, "3", "--model", model)) == 3, field.path


def test_switches_go_both_ways():
    assert parse("--no-bias").model.bias is False
    assert parse("--residual").model.residual is True
    assert parse("--set", "model.bias=false", "--bias").model.bias is True


def test_options_beat_set_and_set_beats_the_file():
    Path("run.toml").write_text('graph = "karate"\n[model]\nhidden = 1\nlayers = 2\n[train]\nepochs = 3\n')
    config = parse("run.toml", "--set", "model.hidden=10", "--set", "model.layers=20", "--hidden", "100")
    assert config.data.graph == "karate"
    assert (config.model.hidden, config.model.layers, config.train.epochs) == (100, 20, 3)


def test_the_last_set_wins_and_reaches_the_graph_and_tables():
    config = parse(
        "--set", "model.hidden=1", "--set", "model.hidden = 2", "--set", "data.graph=er:nodes=5",
        "--set", "train.optimizer_options.betas=[0.8, 0.9]", "--set", "train.scheduler_options.mode=min",
    )  # fmt: skip
    assert config.model.hidden == 2
    assert config.data.graph == "er:nodes=5"
    assert config.train.optimizer_options == {"betas": [0.8, 0.9]}
    assert config.train.scheduler_options == {"mode": "min"}


def test_an_abbreviation_is_not_guessed():
    with pytest.raises(UserError, match=r"'--hid'\. Did you mean '--hidden'"):
        parse("--hid", "8")


def test_many_options_are_listed_only_where_none_is_close():
    with pytest.raises(UserError, match="--hidden") as close:
        parse("--hiddn", "8")
    assert "Known" not in str(close.value)
    some = Parser("nap", "", "Sleep.", "")
    for k in range(12):
        some.add_argument(f"--deep-{k}")
    with pytest.raises(UserError, match="Known: --deep-0, --deep-1, "):
        some.parse(["--zzz"])


def test_of_ninety_options_a_far_off_one_is_told_where_they_stand():
    with pytest.raises(UserError, match=r"^unknown option of weft train: '--zzz'. See weft train --help\.$"):
        parse("--zzz")
    with pytest.raises(UserError, match=r"^unknown setting 'zzz.zzz'. See weft train --help\.$"):
        parse("--set", "zzz.zzz=3")


@pytest.mark.parametrize("text", ["x", "1.5", "", "0"])
def test_whole_numbers_are_whole_and_large_enough(text):
    with pytest.raises(UserError, match=r"^--rounds must be"):
        whole_number(text, "--rounds")
