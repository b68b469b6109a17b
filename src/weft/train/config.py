"""Everything that describes a run. The command line, `--set` and TOML files all fill these fields."""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import math
import textwrap
import tomllib
import typing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from ..errors import UserError, unknown
from ..graph.readers.files import PARSING
from ..nn import ModelConfig


@dataclass
class DataConfig:
    graph: str = "sbm"
    """The graph: a generator (sbm:nodes=20000,classes=8), a data set (cora), a file or a .weft store."""
    data: str = ""
    """Folder with data sets; by default $WEFT_DATA."""
    feature_norm: str = "auto"
    """Scale each vertex's features to sum 1: row, none, or auto (row for sparse counts: bags of words)."""
    train_share: float = 0.6
    """Where the graph brings no split: share of labelled vertices to train on; from 1: vertices per class."""
    val_share: float = 0.2
    """Where the graph brings no split: share of labelled vertices to validate on; from 1: their number."""


@dataclass
class TrainConfig:
    task: str = "node"
    """What is learned: node (classes of vertices) or link (which pairs are links)."""
    epochs: int = 200
    """Passes over the graph."""
    lr: float = 0.01
    """Learning rate."""
    weight_decay: float = 5e-4
    """Pull of the weights towards 0."""
    decay: str = "first"
    """Which weights are pulled: first (the first layer's, as Kipf and Welling do) or all."""
    clip_norm: float = 0.0
    """Largest norm of the gradients of the model, the decoder and the embeddings each; 0: as they are."""
    optimizer: str = "adam"
    """One of torch.optim, in lower case: adam, adamw, sgd, rmsprop, ..."""
    optimizer_options: dict[str, Any] = field(default_factory=dict)
    """Further arguments of the optimiser (TOML or --set train.optimizer_options.momentum=0.9)."""
    scheduler: str = "none"
    """Learning-rate schedule: none, cosine, step, exponential, linear or plateau (on validation loss)."""
    scheduler_options: dict[str, Any] = field(default_factory=dict)
    """Further arguments of the schedule, as torch.optim.lr_scheduler names them."""
    patience: int = 0
    """Stop after this many evaluations without a better validation result; 0 never stops."""
    evaluate_every: int = 1
    """Epochs between evaluations."""
    keep: str = "best"
    """Which weights to keep: best (on validation, where there is a validation set) or last."""
    seed: int = 0
    """Seed of weights, dropout and split: the same seed repeats a run to the bit."""
    dtype: str = "float32"
    """float32 or float64."""
    threads: int = 0
    """Threads; 0 takes as many as torch does, the machine's cores."""
    trace: str = ""
    """Write a Chrome/Perfetto trace of one steady epoch of all ranks into this file (.json)."""
    out: str = ""
    """Run folder; by default runs/<graph>-<model>-<number>. It must not exist yet."""


@dataclass
class LinkConfig:
    decoder: str = "mlp"
    """From the ends' embeddings to a pair's score: dot, or mlp (layers over their elementwise product)."""
    decoder_layers: int = 2
    """Layers of the mlp decoder."""
    embedding_width: int = 0
    """Learnable features a vertex, beside its own; 0: none, or the hidden width where it has no others."""
    pair_batch: int = 65536
    """True pairs a step, each step with one encoding of the whole graph; 0: all pairs in one step."""
    negatives: str = "non-edges"
    """False pairs to train on: non-edges (pairs that are no training arc) or random (any pairs)."""
    negatives_per_pair: int = 1
    """False pairs for each true one."""
    hits: int = 20
    """K of Hits@K: true pairs that score above the K-th best false pair count."""
    best_by: str = "hits"
    """Which validation metric chooses the kept weights: hits, mrr or auc."""
    hold_val: float = 0.05
    """Where the graph brings no pairs: share of its edges to validate on."""
    hold_test: float = 0.1
    """Where the graph brings no pairs: share of its edges to test on."""


@dataclass
class ParallelConfig:
    ranks: int = 2
    """Ranks (processes) to start; under mpirun, srun or torchrun the ranks that are there."""
    strategy: str = "1d"
    """How the work lies: 1d, halo, 1.5d, a-stationary, 2d, 3d, feature or grid."""
    grid: str = ""
    """Its grid: row x feature (2d), row x inner (1.5d, a-stationary), row x inner x feature (3d, grid)."""
    replication: int = 0
    """Copies of each block of rows in 1.5d; must divide the number of ranks."""
    exchange: str = ""
    """What moves: dense (whole blocks) or sparse (only rows that are read); by default the strategy's own."""
    partition: str = "random"
    """Who owns which vertex: random, block, hash, metis, hypergraph, stochastic, auto, or a file (.npy)."""
    epsilon: float = 0.03
    """How far the heaviest part may be above the mean, for metis, hypergraph and stochastic."""
    preset: str = "auto"
    """Mt-KaHyPar's preset: default, quality, highest-quality, large-k, deterministic, or auto."""
    order: str = "none"
    """Order of the vertices within a part: none, degree, rcm or cluster."""
    engine: str = "auto"
    """How ranks talk: mpi, torch, threads (virtual ranks in one process), or auto."""
    overlap: bool = True
    """Let the next block travel while the current one is multiplied."""
    move_adjacency: bool = False
    """Hold A in slices along the feature axis and gather it for every product, where memory is short."""
    stall_seconds: float = 300.0
    """End the run when a rank waits this long for the others."""


@dataclass
class BatchConfig:
    batch_size: int = 0
    """Training vertices (true pairs of --task link) in a step, of all ranks; 0: the whole graph each step."""
    fanouts: str = "25,10"
    """Neighbours sampled a vertex, one number a layer, the first next to the seeds; all takes every one."""
    replace: bool = False
    """Draw neighbours with replacement."""
    feed: str = "auto"
    """How batches get features: pull (rows from owners), push-pull (P3: columns stay), or auto (counts)."""
    pipeline: bool = False
    """Three batches in flight: messages travel while others compute, gradients are three steps old."""
    memory_budget: str = ""
    """Memory a rank may use for arcs and features of batches, such as 2GB: the rest holds others' copies."""


@dataclass
class RunConfig:
    """The whole run, a section per field."""

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    link: LinkConfig = field(default_factory=LinkConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    batch: BatchConfig = field(default_factory=BatchConfig)

    def as_dict(self) -> dict[str, dict[str, Any]]:
        """The sections as plain values, ready for TOML or JSON."""
        return dataclasses.asdict(self)


_WANTED = {
    int: "a whole number", float: "a finite number", bool: "true or false", str: "a text",
    dict: "a table such as [train.optimizer_options] in TOML",
}  # fmt: skip


@dataclass(frozen=True)
class Field:
    """One setting: its section, name, type, default and explanation."""

    section: str
    name: str
    type: type
    default: Any
    help: str

    @property
    def path(self) -> str:
        """`section.name`, as TOML and `--set` spell it."""
        return f"{self.section}.{self.name}"

    def convert(self, value: object) -> object:
        """The value in this field's type; a UserError that names it where it does not fit.

        >>> Field("train", "epochs", int, 200, "").convert("12")
        12
        """
        try:
            if self.type is bool and isinstance(value, str):
                return {"true": True, "false": False}[value.lower()]
            if any(isinstance(value, kind) != (self.type is kind) for kind in (bool, dict)):
                raise ValueError
            if self.type is int and isinstance(value, float) and value != int(value):
                raise ValueError
            converted = self.type(value)
            if self.type is float and not math.isfinite(converted):
                raise ValueError
            return converted
        except (KeyError, ValueError, TypeError, OverflowError):
            raise UserError(f"{self.path} must be {_WANTED[self.type]}, not {value!r}.") from None


def _docs(cls: type) -> dict[str, str]:
    """The text under each field of a dataclass."""
    with PARSING:
        body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0].body  # type: ignore[attr-defined]
    docs = {}
    for statement, below in pairwise(body):
        match statement, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=text)):
                docs[name] = str(text)
    return docs


@functools.cache
def fields() -> dict[str, Field]:
    """Every setting by `section.name`.

    >>> fields()["model.hidden"].default
    64
    """
    found = {}
    defaults = RunConfig()
    for section in dataclasses.fields(RunConfig):
        part = getattr(defaults, section.name)
        hints, docs = typing.get_type_hints(type(part)), _docs(type(part))
        for f in dataclasses.fields(part):
            kind = typing.get_origin(hints[f.name]) or hints[f.name]
            item = Field(section.name, f.name, kind, getattr(part, f.name), docs[f.name])
            found[item.path] = item
    return found


def update(config: RunConfig, path: str, value: object) -> None:
    """Set `section.name` (or `section.table.key`) in place.

    >>> config = RunConfig()
    >>> update(config, "model.hidden", "256")
    >>> config.model.hidden
    256
    """
    section, _, rest = path.partition(".")
    name, _, key = rest.partition(".")
    known = fields()
    found = known.get(f"{section}.{name}")
    if found is None or (key and found.type is not dict):
        raise unknown("setting", path, known)
    part = getattr(config, section)
    if key:
        getattr(part, name)[key] = _literal(value)
    else:
        setattr(part, name, found.convert(value))


def _literal(value: object) -> object:
    """A text read as TOML would read it: 0.9, true, [1, 2]; else the text itself."""
    if not isinstance(value, str):
        return value
    try:
        return tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return value


def read_toml(path: Path) -> dict[str, Any]:
    """The settings in a TOML file as `{section.name: value}`, with `graph = ...` allowed at the top."""
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"no file {path}. Check the path.") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}. Check the file.") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UserError(f"{path} is not TOML: {str(error).rstrip('.')}. Correct it.") from None
    sections = [f.name for f in dataclasses.fields(RunConfig)]
    settings: dict[str, Any] = {}
    for section, table in tables.items():
        if section == "graph" and isinstance(table, str):
            settings["data.graph"] = table
        elif not isinstance(table, dict):
            where = ", ".join(f"[{name}]" for name in sections)
            raise UserError(f"{path}: {section!r} stands outside a section. Put it under one of {where}.")
        elif section not in sections:
            raise unknown(f"section in {path}:", section, sections)
        else:
            settings.update({f"{section}.{name}": value for name, value in table.items()})
    return settings


def to_toml(config: RunConfig) -> str:
    """The config as a TOML text that `weft train` reads back.

    >>> print(to_toml(RunConfig()).splitlines()[1])
    graph = "sbm"
    """
    lines: list[str] = []
    for section, table in config.as_dict().items():
        tables = {k: v for k, v in table.items() if isinstance(v, dict)}
        lines.append(f"[{section}]")
        lines += [f"{k} = {_toml(v)}" for k, v in table.items() if k not in tables]
        for name, inner in tables.items():
            if inner:
                lines.append(f"[{section}.{name}]")
                lines += [f"{k} = {_toml(v)}" for k, v in inner.items()]
        lines.append("")
    return "\n".join(lines)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace('"', '\\"')
        return '"' + "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in escaped) + '"'
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return repr(value)
