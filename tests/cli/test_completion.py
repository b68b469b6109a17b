"""Tab: the scripts, and bash's own answer to them."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from weft.cli import COMMANDS, bench, main
from weft.cli.completion import bash, benches, commands, fish, zsh
from weft.nn import MODELS


@pytest.fixture(scope="module")
def found():
    return commands()


@pytest.fixture(scope="module")
def script(tmp_path_factory, found):
    path = tmp_path_factory.mktemp("bash") / "weft"
    path.write_text(bash(found) + "\n")
    return path


def tab(script, *lines: tuple[str, ...], where=None) -> list[list[str]]:
    """What bash offers after each of these lines, whose last word is being typed."""
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    told = """source "$1"; shift
while read -r line; do
  eval "COMP_WORDS=($line)"; COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) COMPREPLY=()
  _weft
  echo "${COMPREPLY[@]}"
done
"""
    typed = "\n".join(" ".join(["weft", *(f"'{word}'" for word in line)]) for line in lines) + "\n"
    done = subprocess.run(
        ["bash", "--norc", "-c", told, "bash", str(script)],
        input=typed, capture_output=True, text=True, check=True, cwd=where,
    )  # fmt: skip
    assert done.stderr == ""
    return [line.split() for line in done.stdout.splitlines()]


def test_bash_completes_commands_options_and_values(script, tmp_path):
    asked = {
        ("tr",): ["train"],
        ("train", "--hid"): ["--hidden"],
        ("train", "--model", "sag"): ["sage"],
        ("train", "--model", "=", "sag"): ["sage"],
        ("train", "--model", ""): list(MODELS),
        ("train", "kar"): ["karate"],
        ("train", "--epochs", ""): [],
        ("bench", "ker"): ["kernels"],
        ("bench", "kernels", "--wid"): ["--widths"],
        ("completion", "fi"): ["fish"],
        ("nonsense", "--x"): [],
    }
    assert dict(zip(asked, tab(script, *asked, where=tmp_path), strict=True)) == asked
    assert set(COMMANDS) <= set(tab(script, ("",))[0])


def test_bash_completes_paths_where_an_argument_is_one(script, tmp_path):
    (tmp_path / "graph.weft").touch()
    lines = [("train", "gra"), ("train", "--resume", "gra"), ("train", "--strategy", "gra")]
    assert tab(script, *lines, where=tmp_path) == [["graph.weft"], ["graph.weft"], []]


def test_every_command_and_every_benchmark_has_its_options(found, weft):
    by_name = {" ".join(command.words): command for command in found}
    assert set(COMMANDS) - {"bench"} <= set(by_name)
    assert all(command.options for command in by_name.values())
    listed = [line.split()[0] for line in weft("bench").out.splitlines() if line.startswith("  ")]
    assert set(listed) == set(benches())
    assert not any(o.name in ("--store", "--foretold") for command in found for o in command.options)


@pytest.mark.parametrize(("shell", "make"), [("zsh", zsh), ("fish", fish)])
def test_the_other_shells_scripts_name_all_and_parse_where_the_shell_is(shell, make, found, tmp_path):
    text = make(found)
    for command in found:
        assert all(word in text for word in command.words)
        assert all(option.name[2:] in text for option in command.options)
    if shutil.which(shell):
        (tmp_path / "script").write_text(text)
        subprocess.run([shell, "-n", str(tmp_path / "script")], check=True, capture_output=True)


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes_commands_options_and_values(found, tmp_path):
    (tmp_path / "weft.fish").write_text(fish(found))
    asked = {
        "weft tr": ["train"],
        "weft train --hid": ["--hidden"],
        "weft train --model sag": ["sage"],
        "weft bench kernels --wid": ["--widths"],
        "weft train kar": ["karate"],
    }
    lines = "\n".join(f"echo (complete -C '{line}' | string split -f 1 \\t)" for line in asked)
    done = subprocess.run(
        ["fish", "--no-config", "-c", f"source weft.fish\n{lines}"],
        capture_output=True, text=True, check=True, cwd=tmp_path, env=os.environ | {"HOME": str(tmp_path)},
    )  # fmt: skip
    assert dict(zip(asked, map(str.split, done.stdout.splitlines()), strict=True)) == asked


def test_a_text_with_quotes_stays_one_word():
    from weft.cli.completion import Command, Option

    odd = [Command(("nap",), "it's a nap", (Option("--deep", "don't wake; ever", "nothing"),), ())]
    assert "'it\\'s a nap'" in fish(odd)
    assert "-d 'don\\'t wake'" in fish(odd)
    done = subprocess.run(["bash", "-n"], input=zsh(odd), text=True, capture_output=True)  # quoting is alike
    assert "unexpected EOF" not in done.stderr


def test_the_command_prints_the_script_alone_and_an_unknown_shell_is_one_line(weft, found):
    answer = weft("completion", "fish")
    assert (answer.status, answer.err, answer.out) == (0, "", fish(found) + "\n")
    answer = weft("completion", "bsh")
    assert answer.status == 2
    assert answer.err == "weft: unknown shell 'bsh'. Did you mean 'bash'? Known: bash, zsh, fish.\n"


def test_commands_work_as_before_after_their_parsers_were_caught(found, capsys):
    assert main(["info", "karate", "--json"]) == 0
    assert '"vertices": 34' in capsys.readouterr().out
    assert bench.run([]) == 0
