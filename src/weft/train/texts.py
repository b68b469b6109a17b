"""The texts that stand under the fields of a dataclass: the command line's help, and the reference."""

from __future__ import annotations

import ast
import functools
import inspect
import sys
from itertools import pairwise
from types import ModuleType

from ..graph.readers.files import PARSING


def texts_of(cls: type) -> dict[str, str]:
    """The text under each field of a dataclass; none where its source is not at hand.

    >>> from .config import TrainConfig
    >>> texts_of(TrainConfig)["epochs"]
    'Passes over the graph.'
    """
    module = sys.modules.get(cls.__module__)
    return {} if module is None else _texts(module).get(cls.__qualname__, {})


@functools.cache
def _texts(module: ModuleType) -> dict[str, dict[str, str]]:
    """Class → field → the text under it, of a module's classes: parsed once for all of them."""
    with PARSING:  # ranks may be threads
        try:
            body = ast.parse(inspect.getsource(module)).body
        except (OSError, TypeError):
            return {}
    found: dict[str, dict[str, str]] = {}
    for made in (statement for statement in body if isinstance(statement, ast.ClassDef)):
        texts = found[made.name] = {}
        for statement, below in pairwise(made.body):
            match statement, below:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=text)):
                    texts[name] = str(text)
    return found
