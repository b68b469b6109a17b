"""From what a user types to a graph."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from weft.errors import UserError, unknown
from weft.graph.generators.bter import bter
from weft.graph.generators.common import furnish_arcs
from weft.graph.generators.er import er
from weft.graph.generators.karate import karate
from weft.graph.generators.kronecker import kronecker
from weft.graph.generators.sbm import sbm
from weft.graph.graph import Graph
from weft.graph.known import KNOWN
from weft.graph.readers import from_pyg, read_edge_list, read_matrix_market, read_npz, read_planetoid
from weft.graph.readers.files import stem
from weft.graph.readers.folders import layout_of
from weft.graph.readers.planetoid import is_planetoid
from weft.graph.readers.webgraph import is_webgraph, read_webgraph
from weft.graph.store import open_store

GENERATORS: dict[str, Callable[..., Graph]] = {
    "bter": bter, "er": er, "karate": karate, "kronecker": kronecker, "sbm": sbm,
}  # fmt: skip
ARC_OPTIONS = {"arc_features": 0, "arc_types": 0}
"""What every generator's arcs may carry, with the defaults: a width, and a number of types."""
_LISTS = tuple(f"{ext}{gz}" for ext in (".txt", ".tsv", ".csv") for gz in ("", ".gz"))
FORMATS = (".weft", ".npz", ".mtx", ".mtx.gz", *_LISTS)


def load(
    spec: str | Path | Any, data_dir: str | Path | None = None, arc_columns: Sequence[str] | None = None
) -> Graph:
    """The graph that `spec` names, or that it is.

        sbm:nodes=20000,classes=8     a generator and its arguments; the bare name takes the defaults
        g.weft, soc.txt.gz, a.mtx     a store (checksums are verified) or a file, by its ending
        planetoid/Cora                a folder of Planetoid, OGB, GraphSAINT or DGL's Reddit files
        uk-2002.graph                 WebGraph's BV format, with uk-2002.properties beside it
        cora                          a data set under `data_dir`, else $WEFT_DATA; capitals don't matter
        a PyG `Data`                  as `from_pyg` has it; a `Graph` stays

    `arc_columns` names the columns of an edge list after its two ids (`read_edge_list`).

    >>> load("karate")
    Graph(karate: 34 vertices, 156 arcs, 34 features, 2 classes)
    >>> load("er:nodes=50,degree=4,seed=3").num_nodes
    50
    >>> load("kroneker:scale=4")
    Traceback (most recent call last):
        ...
    weft.errors.UserError: unknown generator 'kroneker'. Did you mean 'kronecker'? Known: bter, er, ...
    """
    if not isinstance(spec, (str, Path)):
        _refuse_columns(type(spec).__name__, arc_columns)
        return _as_graph(spec)
    text = str(spec)
    path = Path(text)
    if text.lower() in GENERATORS:
        _refuse_columns(text, arc_columns)
        return GENERATORS[text.lower()]()
    if path.exists() and (layout_of(path) or not path.is_dir()):
        return read(path, arc_columns)
    name, colon, rest = text.partition(":")
    if colon and os.sep not in name and not _has_format(text):
        _refuse_columns(text, arc_columns)
        return generate(name.lower(), parse_arguments(name.lower(), rest))
    if _has_format(text) or os.sep in text:
        raise UserError(f"no file {text}. Check the path.")
    return _data_set(text, data_dir, arc_columns)


def _as_graph(given: Any) -> Graph:
    """What is a graph already, ours or PyG's."""
    if isinstance(given, Graph):
        return given
    if hasattr(given, "edge_index") and hasattr(given, "num_nodes"):
        return from_pyg(given)
    raise UserError(f"a {type(given).__name__} is no graph. Give a name, a path, a Graph or a PyG Data.")


def generate(name: str, arguments: dict[str, Any]) -> Graph:
    """The graph of the generator `name`; an argument it does not know is an error with the close match.

    Every generator takes `arc_features` and `arc_types` too: its arcs then carry "features" and "type".

    >>> generate("er", {"nodes": 10, "dgree": 3})
    Traceback (most recent call last):
        ...
    weft.errors.UserError: unknown argument of er 'dgree'. Did you mean 'degree'? Known: nodes, degree, ...
    """
    if name not in GENERATORS:
        raise unknown("generator", name, GENERATORS)
    known = _parameters(name)
    for key in arguments:
        if key not in known:
            if known.keys() == ARC_OPTIONS.keys():
                both = " and ".join(known)
                raise UserError(f"{name} takes no arguments but {both}; {key!r} was given. Use just {name}.")
            raise unknown(f"argument of {name}", key, known)
    own = {key: value for key, value in arguments.items() if key not in ARC_OPTIONS}
    graph = GENERATORS[name](**own)
    features, types = (arguments.get(key, default) for key, default in ARC_OPTIONS.items())
    return furnish_arcs(graph, features, types, own.get("seed", 0)) if features or types else graph


def parse_arguments(name: str, text: str) -> dict[str, Any]:
    """`nodes=20000,noise=0.5` as a dict, each value of the type that the generator's parameter has.

    >>> parse_arguments("sbm", "nodes=20000,noise=0.5")
    {'nodes': 20000, 'noise': 0.5}
    >>> parse_arguments("er", "nodes=many")
    Traceback (most recent call last):
        ...
    weft.errors.UserError: er:nodes=many: 'many' is not a whole number. Give one, as nodes=1000.
    """
    if name not in GENERATORS:
        raise unknown("generator", name, GENERATORS)
    arguments: dict[str, Any] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals or not value:
            raise UserError(f"{name}:{part} lacks a value. Write {name}:{key or 'nodes'}=VALUE.")
        if key in arguments:
            raise UserError(f"{name}: {key} is given twice. Give it once.")
        kind = _parameters(name).get(key)
        arguments[key] = value if kind is None else _convert(name, key, value, kind)
    return arguments


def read(path: str | Path, arc_columns: Sequence[str] | None = None) -> Graph:
    """The graph of a store, a file or a folder of a known layout, by the ending of its name.

    >>> read("graph.xlsx")
    Traceback (most recent call last):
        ...
    weft.errors.UserError: unknown graph format 'graph.xlsx'. ...
    """
    path = Path(path)
    name = path.name.lower()
    if path.is_dir() or not name.endswith(_LISTS):
        _refuse_columns(path.name, arc_columns)
    if path.is_dir():
        layout = layout_of(path)
        return layout.read(path) if layout else read_planetoid(path)
    if is_webgraph(path):
        return read_webgraph(path)
    if name.endswith(".weft"):
        return open_store(path, verify=True).graph()
    if name.endswith(".npz"):
        return read_npz(path)
    if name.endswith((".mtx", ".mtx.gz")):
        return read_matrix_market(path)
    if name.endswith(_LISTS):
        return read_edge_list(path, arc_columns=arc_columns)
    raise unknown("graph format", path.name, FORMATS)


def data_sets(folder: str | Path) -> dict[str, Path]:
    """The data sets under `folder`, by name in small letters: files and folders of a known format.

    >>> data_sets("no/such/folder")
    {}
    """
    found: dict[str, Path] = {}
    for place, folders, files in os.walk(folder):
        folders.sort()
        here = Path(place)
        if len(here.relative_to(folder).parts) > 3:
            folders.clear()
        if any(name.startswith("ind.") and name.endswith(".graph") for name in files):
            base = here.parent if here.name == "raw" else here
            found.setdefault(base.name.lower(), here)
        elif here != Path(folder) and layout_of(here) and not is_planetoid(here):  # found by its raw/
            found.setdefault(here.name.lower().replace("ogbn_", "ogbn-").replace("ogbl_", "ogbl-"), here)
            folders.clear()  # its tables are no data sets of their own
        else:
            for name in sorted(files):
                if _has_format(name) or (name.endswith(".properties") and is_webgraph(here / name)):
                    found.setdefault(stem(name.removesuffix(".properties")).lower(), here / name)
    return found


def _refuse_columns(name: str, arc_columns: Sequence[str] | None) -> None:
    if arc_columns is not None:
        raise UserError(f"--arc-columns names the columns of an edge list, {name} is none. Leave it out.")


def locate(spec: str | Path, data_dir: str | Path | None = None) -> tuple[Path, str | None] | None:
    """The file that `load` would read, and the name of the data set that it is; None for a generator.

    >>> locate("karate"), locate("sbm:nodes=10")
    (None, None)
    """
    text, path = str(spec), Path(spec)
    if text.lower() in GENERATORS or (":" in text and not path.exists() and not _has_format(text)):
        return None
    if path.exists() or _has_format(text) or os.sep in text:
        return path, None
    return _find(text, data_dir), text.lower()


def _data_set(name: str, data_dir: str | Path | None, arc_columns: Sequence[str] | None) -> Graph:
    return read(_find(name, data_dir), arc_columns).replace(name=name.lower())


def _find(name: str, data_dir: str | Path | None) -> Path:
    folder = data_dir or os.environ.get("WEFT_DATA")
    if not folder and name.lower() in KNOWN:
        raise UserError(
            f"{name} is a data set: set WEFT_DATA or pass --data; weft data {name.lower()} tells how to "
            "get it."
        )
    if not folder and Path(name).is_dir():
        raise _unknown(name, {})
    if not folder:
        raise UserError(
            f"{_unknown(name, {})} Data sets: set WEFT_DATA or pass --data (weft data lists them); files end "
            f"in {', '.join(FORMATS[:4])} and so on."
        )
    if not Path(folder).is_dir():
        raise UserError(f"the data folder {folder} does not exist. Correct WEFT_DATA or --data.")
    sets = data_sets(folder)
    if name.lower() in KNOWN and name.lower() not in sets:
        raise UserError(f"{name} is not under {folder}. weft data {name.lower()} tells how to get it.")
    if name.lower() not in sets:
        raise _unknown(name, sets)
    return sets[name.lower()]


def _unknown(name: str, sets: dict[str, Path]) -> UserError:
    """The error for a graph that is not there: the close match among all names, or the names at hand."""
    if Path(name).is_dir():
        return UserError(f"{name} is a folder, and no graph of a kind that weft reads. Name a file in it.")
    error = unknown("graph", name, dict.fromkeys([*GENERATORS, *sets, *KNOWN]))
    return error if "Did you mean" in str(error) else unknown("graph", name, [*GENERATORS, *sets])


def _parameters(name: str) -> dict[str, type]:
    """The arguments that a spec may set, with their types: numbers, switches and names."""
    kinds: dict[str, type] = {}
    for key, parameter in inspect.signature(GENERATORS[name]).parameters.items():
        words = str(parameter.annotation).split(" | ")
        if key != "degrees":
            kinds[key] = next(kind for kind in (bool, float, int, str) if kind.__name__ in words)
    return kinds | dict.fromkeys(ARC_OPTIONS, int)


def _convert(name: str, key: str, value: str, kind: type) -> Any:
    if kind is bool:
        switches = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        if value.lower() not in switches:
            raise UserError(f"{name}:{key}={value}: {value!r} is neither true nor false. Give one of them.")
        return switches[value.lower()]
    if kind is str:
        return value
    for convert in (int, float) if kind is float else (int,):
        try:
            return convert(value)
        except ValueError:
            continue
    sort, example = ("number", "0.5") if kind is float else ("whole number", "1000")
    raise UserError(f"{name}:{key}={value}: {value!r} is not a {sort}. Give one, as {key}={example}.")


def _has_format(text: str) -> bool:
    return text.lower().endswith(FORMATS)
