"""weft completion: a script for the shell's Tab, made from the commands' own parsers."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..errors import UserError, unknown
from .options import Parser, captured

SHELLS = ("bash", "zsh", "fish")
_EXAMPLES = """  source <(weft completion bash)                    bash, this shell
  weft completion bash > ~/.local/share/bash-completion/completions/weft
  weft completion zsh > ~/.zfunc/_weft              zsh, with fpath=(~/.zfunc $fpath)
  weft completion fish > ~/.config/fish/completions/weft.fish"""
_FILES = ("FILE", "DIR", "RUN", "PATH")
"""A metavar that begins so is a path."""


@dataclass(frozen=True)
class Option:
    """An option of a command."""

    name: str
    help: str
    takes: str
    """nothing, path, or a value."""
    values: tuple[str, ...] = ()
    """What the value may be, where that is known."""


@dataclass(frozen=True)
class Command:
    """A command: `train`, or `bench epoch`."""

    words: tuple[str, ...]
    help: str
    options: tuple[Option, ...]
    arguments: tuple[str, ...]
    """Words that may stand alone, beside paths."""


def run(arguments: Sequence[str]) -> int:
    parser = Parser(
        "completion", "SHELL", "Print a script that completes commands, options and names on Tab.", _EXAMPLES
    )
    parser.add_argument("shell", metavar="SHELL", help=f"one of {', '.join(SHELLS)}")
    parsed = parser.parse(arguments)
    if parsed.shell not in SHELLS:
        raise unknown("shell", parsed.shell, SHELLS)
    made: dict[str, Callable[[list[Command]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}
    print(made[parsed.shell](commands()))
    return 0


def commands() -> list[Command]:
    """Every command, as its own parser describes it."""
    from . import COMMANDS

    values, found = _values(), []
    for name, text in COMMANDS.items():
        if name != "bench":
            found.append(_described((name,), text, _parser_of(name, []), values))
    for name in benches():
        parser = _parser_of("bench", [name])
        text = "" if parser is None else (parser.description or "").splitlines()[0]
        found.append(_described(("bench", name), text, parser, values))
    return found


def benches() -> list[str]:
    """What `weft bench` measures: a file each, but for the kernels.

    >>> "epoch" in benches(), "kernels" in benches()
    (True, True)
    """
    package = importlib.import_module("weft.cli")
    names = [module.name for module in pkgutil.iter_modules(package.__path__)]
    return sorted(["kernels", *(name.removeprefix("bench_") for name in names if name.startswith("bench_"))])


def _parser_of(command: str, words: list[str]) -> Parser | None:
    """The parser that a command makes, caught before it parses; None of one that has none."""
    run_command = importlib.import_module(f"weft.cli.{command}").run
    try:
        with captured() as caught:
            run_command(words)
    except UserError:  # it looks at its words before it makes a parser
        return None
    return caught.parser


def _described(words: tuple[str, ...], text: str, parser: Parser | None, values: dict[str, Iterable[str]]
               ) -> Command:  # fmt: skip
    options: list[Option] = []
    arguments: list[str] = []
    for action in [] if parser is None else parser._actions:
        if not action.option_strings:
            arguments += values.get(str(action.metavar or action.dest).upper(), ())
        elif action.help != argparse.SUPPRESS:
            options += _options(action, values)
    return Command(words, text, tuple(options), tuple(arguments))


def _options(action: argparse.Action, values: dict[str, Iterable[str]]) -> list[Option]:
    names = [name for name in action.option_strings if name.startswith("--")]
    text = (action.help or "").replace("%%", "%")
    if action.nargs == 0:
        return [Option(name, text, "nothing") for name in names]
    takes = "path" if str(action.metavar or "").startswith(_FILES) or names[0] == "--data" else "value"
    return [Option(name, text, takes, tuple(values.get(name, ()))) for name in names]


def _values() -> dict[str, Iterable[str]]:
    """Option or metavar → the names that it takes."""
    from ..comm.launch import ENGINES
    from ..graph.known import KNOWN
    from ..graph.loading import GENERATORS
    from ..nn import MODELS
    from ..nn.decoders import DECODERS
    from ..parallel.by_host import BY_HOST
    from ..parallel.grid import STRATEGIES
    from ..partition.methods import METHODS
    from ..partition.order import ORDERS
    from ..train.optimise import _OPTIMISERS, _SCHEDULES
    from ..train.pairs import NEGATIVES
    from ..train.sampled import FEEDS
    from ..train.tasks import BATCHINGS, DEVICES, TASKS

    return {
        "GRAPH": [*GENERATORS, *KNOWN], "KIND": GENERATORS, "SHELL": SHELLS, "NAME": KNOWN,
        "--model": MODELS, "--strategy": [*STRATEGIES, "auto"], "--exchange": ("dense", "sparse"),
        "--by-host": BY_HOST,
        "--partition": METHODS, "--method": METHODS, "--order": ORDERS, "--engine": [*ENGINES, "threads"],
        "--task": TASKS, "--optimizer": _OPTIMISERS, "--scheduler": _SCHEDULES, "--device": DEVICES,
        "--dtype": ("float32", "float64"), "--feed": [*FEEDS, "auto"], "--batching": BATCHINGS,
        "--negatives": NEGATIVES, "--decoder": DECODERS, "--feature-norm": ("auto", "row", "none"),
        "--decay": ("first", "all"), "--keep-weights": ("best", "last"), "--on-nan": ("stop", "skip"),
    }  # fmt: skip


# Scripts. Words are names of ours; texts are quoted for the shell that reads them.


def _summary(text: str) -> str:
    """The first sentence of a help text, short enough for a menu."""
    short = re.split(r"[:;.(] ", text + " ")[0].strip(" .:;(")
    return short if len(short) <= 60 else short[:59].rstrip() + "…"


def _first_words(found: list[Command]) -> list[str]:
    return list(dict.fromkeys(command.words[0] for command in found))


def bash(found: list[Command]) -> str:
    """The script for bash, in plain bash: it needs no package beside."""
    lines = [
        "# weft's Tab for bash, made by: weft completion bash",
        "_weft() {",
        "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]}",
        "  local at=2 options='' words='' paths=yes",
        '  [ "$cur" = "=" ] && cur=""',
        '  [ "$prev" = "=" ] && prev=${COMP_WORDS[COMP_CWORD-2]}',
        '  if [ "$command" = bench ]; then command="bench ${COMP_WORDS[2]}"; at=3; fi',
        '  if [ "$COMP_CWORD" -eq 1 ]; then',
        f'    COMPREPLY=($(compgen -W "{" ".join(_first_words(found))} --help --version" -- "$cur")); return',
        "  fi",
        '  if [ "$COMP_CWORD" -lt "$at" ]; then',
        f'    COMPREPLY=($(compgen -W "{" ".join(c.words[1] for c in found if len(c.words) > 1)} --help" '
        '-- "$cur")); return',
        "  fi",
        '  case "$command:$prev" in',
    ]
    for command in found:
        name = " ".join(command.words)
        for option in command.options:
            if option.takes == "nothing":
                continue
            words = " ".join(option.values)
            paths = "yes" if option.takes == "path" else "no"
            lines.append(f"    {shlex.quote(f'{name}:{option.name}')}) words='{words}' paths={paths} ;;")
    lines += ["    *)", '      case "$command" in']
    for command in found:
        options = " ".join([*(option.name for option in command.options), "--help"])
        words = " ".join(command.arguments)
        lines.append(
            f"        {shlex.quote(' '.join(command.words))}) options='{options}' words='{words}' ;;"
        )
    return "\n".join([
        *lines,
        "      esac ;;",
        "  esac",
        '  case "$cur" in',
        '    -*) COMPREPLY=($(compgen -W "$options" -- "$cur")) ;;',
        '    *) COMPREPLY=($(compgen -W "$words" -- "$cur"))',
        '       [ "$paths" = yes ] && COMPREPLY+=($(compgen -f -- "$cur")) ;;',
        "  esac",
        "}",
        "complete -o filenames -o bashdefault -F _weft weft",
    ])  # fmt: skip


def zsh(found: list[Command]) -> str:
    """The script for zsh."""
    first = _first_words(found)
    texts = {command.words[0]: command.help for command in found} | {"bench": "measure"}
    lines = [
        "#compdef weft",
        "# weft's Tab for zsh, made by: weft completion zsh",
        "_weft() {",
        '  local command=$words[2] at=3 prev=$words[CURRENT-1]',
        "  local -a commands",
        f"  commands=({' '.join(shlex.quote(f'{name}:{_summary(texts[name])}') for name in first)})",
        "  if (( CURRENT == 2 )); then _describe command commands; return; fi",
        '  if [[ $command == bench ]]; then',
        "    if (( CURRENT == 3 )); then compadd -- "
        + " ".join(c.words[1] for c in found if len(c.words) > 1)
        + "; return; fi",
        '    command="bench $words[3]"',
        "  fi",
        '  case "$command:$prev" in',
    ]  # fmt: skip
    for command in found:
        name = " ".join(command.words)
        for option in command.options:
            if option.takes == "nothing":
                continue
            act = f"compadd -- {' '.join(option.values)}" if option.values else "return"
            act = "_files" if option.takes == "path" else act
            lines.append(f"    {shlex.quote(f'{name}:{option.name}')}) {act}; return ;;")
    lines += ["  esac", '  case "$command" in']
    for command in found:
        menu = [f"{o.name}:{_summary(o.help)}" for o in command.options] + ["--help:what it does"]
        alone = f"compadd -- {' '.join(command.arguments)}; " if command.arguments else ""
        lines += [
            f"    {shlex.quote(' '.join(command.words))})",
            f"      commands=({' '.join(map(shlex.quote, menu))})",
            f"      if [[ $PREFIX == -* ]]; then _describe option commands; else {alone}_files; fi ;;",
        ]
    return "\n".join([*lines, "  esac", "}", 'if [[ $funcstack[1] == _weft ]]; then _weft "$@"; else '
                      "compdef _weft weft; fi"])  # fmt: skip


def fish(found: list[Command]) -> str:
    """The script for fish."""

    def quoted(text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    lines = ["# weft's Tab for fish, made by: weft completion fish"]
    texts = {command.words[0]: command.help for command in found} | {"bench": "measure"}
    for name in _first_words(found):
        lines.append(
            f"complete -c weft -n __fish_use_subcommand -f -a {name} -d {quoted(_summary(texts[name]))}"
        )
    whats = [command.words[1] for command in found if len(command.words) > 1]
    lines.append(
        f"complete -c weft -n '__fish_seen_subcommand_from bench; and not __fish_seen_subcommand_from "
        f"{' '.join(whats)}' -f -a '{' '.join(whats)}'"
    )
    for command in found:
        seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in command.words)
        begin = f"complete -c weft -n '{seen}'"
        if command.arguments:
            lines.append(f"{begin} -a '{' '.join(command.arguments)}'")
        for option in command.options:
            takes = {"nothing": "", "path": " -r -F", "value": " -x"}[option.takes]
            some = f" -a '{' '.join(option.values)}'" if option.values else ""
            lines.append(f"{begin} -l {option.name[2:]}{takes}{some} -d {quoted(_summary(option.help))}")
    return "\n".join(lines)
