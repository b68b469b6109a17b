"""The one exception that a user's mistake raises, anywhere in weft; and the one warning."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_MANY = 10
"""More names than this are listed only where none is close."""
_TOO_MANY = 30
"""More than this are never listed where a command tells them."""


class UserError(ValueError):
    """A mistake that the user can mend: one line that names the value and the remedy.

    The command line prints it on standard error and exits with status 2; never a traceback.

    >>> raise UserError("grid 4x2 needs 8 ranks, 6 were given. Use --ranks 8, or --grid 3x2.")
    Traceback (most recent call last):
        ...
    weft.errors.UserError: grid 4x2 needs 8 ranks, 6 were given. Use --ranks 8, or --grid 3x2.

    What it quotes may come from a hostile file: it is made printable.
    """

    def __init__(self, text: object = "") -> None:
        super().__init__(printable(str(text)))


def printable(text: str) -> str:
    r"""The text with what a terminal would obey, or cannot show, spelled out.

    >>> printable("a\x1b[31mb\nc")
    'a\\x1b[31mb c'
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else " " if c == "\n" else c.encode("unicode_escape", "replace").decode()
        for c in text
    )


class Note(UserWarning):
    """What a user should know though nothing failed: one line. The command line prints it on standard error.

    >>> issubclass(Note, UserWarning)
    True
    """


class NotForetold(UserError):
    """A layer that looks at numbers: where there are none, nothing tells what it would move."""


class NoSetting(UserError, AttributeError):
    """A setting that is not there; `hasattr` understands it too."""


def unknown(kind: str, value: object, choices: Iterable[str], see: str = "") -> UserError:
    """The error for a name that is not among `choices`, with the closest match.

    `see` is the command that tells all of them: it stands in place of a list that would fill the screen.

    >>> print(unknown("model", "gnc", ["gcn", "sage"]))
    unknown model 'gnc'. Did you mean 'gcn'? Known: gcn, sage.
    >>> print(unknown("setting", "zzz", [f"model.{k}" for k in range(99)], see="weft train --help"))
    unknown setting 'zzz'. See weft train --help.
    """
    names = list(choices)
    close = _closest(str(value), names)
    hint = f" Did you mean {close!r}?" if close else ""
    # Thirty names would bury the one that was meant.
    known = "" if close and len(names) > _MANY else f" Known: {', '.join(names)}."
    if known and see and len(names) > _TOO_MANY:
        known = f" See {see}."
    return UserError(f"unknown {kind} {str(value)!r}.{hint}{known}")


def unread(
    kind: str, chosen: Sequence[str], name: str, readers: Sequence[str], option: str | None = None
) -> UserError:
    """The error for a setting that no chosen model, task, ... reads while others do.

    `option` is how the user spelled it; by default as on the command line.

    >>> print(unread("model", ["gcn", "gin"], "slope", ["gat", "mine"]))
    models gcn and gin do not read slope, gat and mine do. Leave out --slope, or use --model gat.
    """
    option = option or "--" + name.replace("_", "-")
    do, others = ("does", "do")[len(chosen) > 1], ("does", "do")[len(readers) > 1]
    return UserError(
        f"{kind}{'s' if len(chosen) > 1 else ''} {_listed(chosen)} {do} not read {name}, {_listed(readers)} "
        f"{others}. Leave out {option}, or use --{kind} {readers[0]}."
    )


def _listed(names: Sequence[str]) -> str:
    """
    >>> _listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _closest(value: str, names: list[str]) -> str | None:
    """The name that was probably meant: few slips away, or of which a part was given. None where all are far.

    >>> _closest("gnc", ["gcn", "sgc"]), _closest("GCN", ["gcn", "sgc"]), _closest("transformer", ["gcn"])
    ('gcn', 'gcn', None)
    >>> _closest("batch.size", ["batch.feed", "batch.batch_size"]), _closest("--rank", ["--ranks"])
    ('batch.batch_size', '--ranks')
    >>> _closest("karate", ["accelerate"]), _closest("--resume", ["--preset"])
    (None, None)
    """
    near = [(found, name) for name in names if (found := _distance(value.lower(), name.lower())) is not None]
    return min(near, key=lambda pair: pair[0])[1] if near else None


def _distance(value: str, name: str) -> tuple[int, int] | None:
    """How far apart the two are, what they begin with alike left aside; None: too far for a slip."""
    head, dot, _ = name.rpartition(".")
    if dot and value.startswith(head + dot):
        value, name = value[len(head) + 1 :], name[len(head) + 1 :]
    value, name = value.lstrip("-").replace("_", "-"), name.lstrip("-").replace("_", "-")
    if not value:
        return None
    slips = _slips(value, name)
    alike = next((at for at, (a, b) in enumerate(zip(value, name, strict=False)) if a != b), len(value))
    if slips <= max(1, len(value) // 3) and slips < len(value):
        return slips, -alike
    part = name.startswith(value) or value in name.split("-") or value.startswith(name)
    return (max(len(value), len(name)), -alike) if part and min(len(value), len(name)) >= 3 else None


def _slips(a: str, b: str) -> int:
    """Letters to add, leave out, change or swap with the next one until a is b.

    >>> _slips("gnc", "gcn"), _slips("kroneker", "kronecker"), _slips("resume", "preset")
    (1, 1, 4)
    """
    before: list[int] = []
    last = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        row = [i]
        for j, y in enumerate(b, 1):
            best = min(last[j] + 1, row[-1] + 1, last[j - 1] + (x != y))
            if i > 1 and j > 1 and x == b[j - 2] and a[i - 2] == y:
                best = min(best, before[j - 2] + 1)
            row.append(best)
        before, last = last, row
    return last[-1]
