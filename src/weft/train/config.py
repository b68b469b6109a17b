"""Everything that describes a run. The command line, `--set` and TOML files all fill these fields."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import threading
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import NoSetting, UserError, unknown, unread
from ..nn import MODELS, Entry, ModelConfig
from ..nn.registry import model_widths, option_defaults
from ..partition.methods import readers as methods_that_read
from .texts import texts_of
from .toml import literal, read_settings, write_tables

if TYPE_CHECKING:
    from .tasks import TaskEntry

    Tasks = tuple[tuple[str, TaskEntry], ...]


class Section:
    """Settings by name: one that is not there is refused, with the close match."""

    if not TYPE_CHECKING:  # a type checker knows the fields better

        def __setattr__(self, name, value):
            if name not in self.__dataclass_fields__:
                name_of = {kind: section for section, kind in task_sections().items()} | {RunConfig: "config"}
                where = name_of.get(type(self)) or type(self).__name__.removesuffix("Config").lower()
                known = [f"{where}.{f.name}" for f in dataclasses.fields(self) if f.init]
                raise NoSetting(str(unknown("setting", f"{where}.{name}", known)))
            object.__setattr__(self, name, value)


@dataclass
class DataConfig(Section):
    """Which graph, and how it is read: `config.data`, [data] in TOML."""

    graph: str = "sbm"
    """The graph: a generator (sbm:nodes=20000,classes=8), a data set (cora), a file or a .weft store."""
    data: str = ""
    """Folder with data sets; by default $WEFT_DATA."""
    arc_columns: str = ""
    """Names of an edge list's columns after the two ids, as weight,features,features,type: arc data; those of
    one name are one array, _ skips a column."""
    feature_norm: str = "auto"
    """Scale each vertex's features to sum 1: row, none, or auto (row for sparse counts: bags of words)."""
    train_share: float = 0.6
    """Where the graph brings no split: share of labelled vertices to train on; from 1: vertices per class."""
    val_share: float = 0.2
    """Where the graph brings no split: share of labelled vertices to validate on; from 1: their number."""


@dataclass
class TrainConfig(Section):
    """How it is trained, and what is kept: `config.train`, [train] in TOML."""

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
    keep_weights: str = "best"
    """Which weights to keep: best (on validation, where there is a validation set) or last."""
    seed: int = 0
    """Seed of weights, dropout and split: the same seed and layout repeat a run to the bit."""
    dtype: str = "float32"
    """float32 or float64."""
    threads: int = 0
    """Threads; 0 takes as many as torch does, the machine's cores."""
    device: str = "cpu"
    """Where tensors lie: cpu, or cuda (written for it and tested on the CPU; never run on a GPU yet)."""
    trace: str = ""
    """Write a Chrome/Perfetto trace of one steady epoch of all ranks into this file (.json)."""
    log_every: str = "10s"
    """Where no terminal shows a bar: a line every so many epochs (10) or seconds (30s), or never."""
    log: str = ""
    """Send every epoch to tensorboard, wandb or both (tensorboard,wandb), where they are installed."""
    rank_logs: bool = False
    """A log of each rank in the run folder, a line an epoch: logs/rank-0.log and so on."""
    out: str = ""
    """Run folder; by default runs/<graph>-<model>-<number>. One of this very run that did not end goes on."""
    checkpoint_every: str = "10min"
    """How often the whole state is kept: 5 (epochs), 500batches, 10min or never; improvements are, too."""
    keep: int = 3
    """How many checkpoints an unfinished run has at most; one that has ended needs none."""
    restarts: int = 0
    """When a rank dies or stalls, start all again from the last checkpoint, so many times; of --hosts those
    that answer."""
    on_nan: str = "stop"
    """Where a loss or a gradient is not finite: stop, or skip (leave that update out)."""


@dataclass
class LinkConfig(Section):
    """What `--task link` reads: `config.link`, [link] in TOML."""

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
class ParallelConfig(Section):
    ranks: int = 2
    """Ranks (processes) to start; under mpirun, srun or torchrun the ranks that are there."""
    hosts: str = ""
    """File with a host a line (node1 slots=4) to start ranks on, by mpirun; by default this machine."""
    strategy: str = "1d"
    """How the work lies: 1d, halo, 1.5d, a-stationary, 2d, 3d, feature, grid, or auto (the plan's best);
    weft train on several ranks takes auto unless told, everything else 1d."""
    grid: str = ""
    """Its grid: row x feature (2d), row x inner (1.5d, a-stationary), row x inner x feature (3d, grid)."""
    replication: int = 0
    """Copies of each block of rows in 1.5d; must divide the number of ranks."""
    exchange: str = ""
    """What moves: dense (whole blocks) or sparse (only rows that are read); by default the strategy's own."""
    partition: str = "random"
    """Who owns which vertex: random, block, hash, metis, hypergraph, stochastic, stream, auto, or a file."""
    epsilon: float = 0.03
    """How far the heaviest part may be above the mean, for metis, hypergraph, stochastic and stream."""
    preset: str = "auto"
    """Mt-KaHyPar's preset: default, quality, highest-quality, large-k, deterministic, or auto."""
    order: str = "none"
    """Order of the vertices within a part: none, degree, rcm or cluster."""
    engine: str = "auto"
    """How ranks talk: mpi, torch, threads (virtual ranks in one process), or auto."""
    overlap: bool = True
    """Let the next block travel while the current one is multiplied."""
    by_host: str = "auto"
    """Rows that ranks of one host read cross to it once and are passed on there: on, off or auto."""
    move_adjacency: bool = False
    """Hold A in slices along the feature axis and gather it for every product, where memory is short."""
    stall_seconds: float = 300.0
    """End the run when a rank waits this long for the others."""


@dataclass
class BatchConfig(Section):
    batch_size: int = 0
    """Training vertices (true pairs of --task link) in a step, of all ranks; 0: the whole graph each step."""
    batching: str = "neighbours"
    """What a step is: neighbours (each rank's seeds sample theirs) or subgraph (one, over all ranks)."""
    subgraph: str = "vertices"
    """How it is drawn: vertices or edges (batch_size of all), seeds (with --fanouts), walks (from seeds)."""
    walk_length: int = 4
    """Arcs of a random walk, of subgraphs that are drawn by walks."""
    fanouts: str = "25,10"
    """Neighbours sampled a vertex, one number a layer, the first next to the seeds; all takes every one."""
    replace: bool = False
    """Draw neighbours with replacement."""
    feed: str = "auto"
    """How batches get features: pull (rows from owners), push-pull (P3: columns stay), or auto (counts)."""
    pipeline: bool = False
    """Three batches in flight: messages travel while others compute, gradients are three steps old."""
    prefetch: int = 0
    """Batches whose neighbours a thread draws while others compute; 0: each is drawn when it begins."""
    cache: str = ""
    """Room of a rank for rows of others that coming batches read again: 10% (of all features) or 500MB."""
    memory_budget: str = ""
    """Memory a rank may use, such as 2GB: of the whole graph what does not fit lies in files of TMPDIR; of
    batches it is for arcs and features, and what is left holds others' copies."""


@dataclass
class RunConfig(Section):
    """The whole run, a section per field.

        data      which graph          model  which model, and its options
        train     how long, how fast   link   what `--task link` reads
        parallel  ranks and their grid batch  sampled batches, memory

    >>> config = RunConfig()
    >>> config.model.hidden = 32
    """

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    link: LinkConfig = field(default_factory=LinkConfig)
    parallel: ParallelConfig = field(default_factory=ParallelConfig)
    batch: BatchConfig = field(default_factory=BatchConfig)
    tasks: dict[str, Any] = field(default_factory=dict, repr=False)
    """Sections of tasks that a script added, by the task's name; each is an attribute too: `config.mine`."""
    given: set[str] = field(default_factory=set, init=False, repr=False, compare=False)
    """Settings that the user spelled out, as `section.name`: refused where the run does not read them,
    be they the default or not."""

    def __post_init__(self) -> None:
        for name, options in task_sections().items():
            self.tasks.setdefault(name, options())

    if not TYPE_CHECKING:  # a type checker would believe that every name is there

        def __getattr__(self, name):
            # Called for what is no attribute of the object; while one is copied it has none at all yet.
            if name.startswith("_") or name not in task_sections():
                raise AttributeError(name)
            return self.tasks.setdefault(name, task_sections()[name]())

    def as_dict(self) -> dict[str, dict[str, Any]]:
        """What the run reads, by section, as plain values ready for TOML or JSON."""
        found: dict[str, dict[str, Any]] = {}
        for setting in fields().values():
            if unread_by(self, setting) is None:
                value = setting.of(self)
                table = found.setdefault(setting.section, {})
                table[setting.name] = dict(value) if setting.type is dict else value
        return found


SECTIONS = tuple(f.name for f in dataclasses.fields(RunConfig) if f.name not in ("tasks", "given"))
"""The sections that are always there."""


def task_sections() -> dict[str, type]:
    """The options of tasks beside weft's own, by the task's name, which is their section."""
    from .tasks import TASKS  # which reads this file

    found: dict[str, type] = {}
    for name, entry in TASKS.items():
        if entry.options in (None, LinkConfig):
            continue
        if name in {f.name for f in dataclasses.fields(RunConfig)}:
            raise UserError(f"task {name!r} has options, and the name of a section. Rename it.")
        if not (isinstance(entry.options, type) and issubclass(entry.options, Section)):
            raise UserError(f"the options of task {name!r} are no weft.train.Section. Make them one.")
        found[name] = entry.options
    return found


_FLAG = {"model.name": "--model", "data.graph": ""}
"""Where the flag is not the field's own name; empty: no flag, the graph is a positional argument."""

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
    readers: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(another setting, those of its values with which this one is read); empty: it always is."""
    defaults: tuple[tuple[str, Any], ...] = ()
    """(model, default) for an option that single models have."""

    @property
    def path(self) -> str:
        """`section.name`, as TOML and `--set` spell it."""
        return f"{self.section}.{self.name}"

    @property
    def flag(self) -> str:
        """The option that sets it.

        >>> fields()["train.weight_decay"].flag, fields()["model.name"].flag
        ('--weight-decay', '--model')
        """
        return _FLAG.get(self.path, "--" + self.name.replace("_", "-"))

    def of(self, config: RunConfig) -> Any:
        """Its value in a config."""
        return getattr(getattr(config, self.section), self.name)

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
            if self.path == "train.keep" and value in ("best", "last"):  # its name in older run folders
                raise UserError(
                    f"train.keep is how many checkpoints are kept. Use --keep-weights {value}."
                ) from None
            raise UserError(f"{self.path} must be {_WANTED[self.type]}, not {value!r}.") from None


_MAKING = threading.RLock()
"""Ranks may be threads: one makes the fields, and the others wait for them."""


def fields() -> dict[str, Field]:
    """Every setting by `section.name`: those of all registered models, too.

    >>> fields()["model.hidden"].default
    64
    """
    from .tasks import TASKS

    with _MAKING:
        return _fields(tuple(MODELS.items()), tuple(TASKS.items()))


@functools.lru_cache(maxsize=4)
def _fields(models: tuple[tuple[str, Entry], ...], tasks: Tasks) -> dict[str, Field]:
    found: dict[str, Field] = {}
    defaults = RunConfig()
    for section in (*SECTIONS, *task_sections()):
        found |= {item.path: item for item in _of_section(section, getattr(defaults, section), tasks)}
        if section == "model":
            found |= {item.path: item for item in _of_models(models)}
    flags: dict[str, Field] = {}
    for item in found.values():
        other = flags.setdefault(item.flag, item)
        if other is not item:
            raise UserError(
                f"{item.path} and {other.path} are both {item.flag}. Rename the one that you add."
            )
    return found


def _of_section(section: str, part: Any, tasks: Tasks) -> Iterator[Field]:
    hints, docs = typing.get_type_hints(type(part)), texts_of(type(part))
    for f in dataclasses.fields(part):
        if f.name == "own":  # options of single models are fields of their own
            continue
        kind = typing.get_origin(hints[f.name]) or hints[f.name]
        text = docs.get(f.name, f"An option of {section}.")
        yield Field(section, f.name, kind, getattr(part, f.name), text, _readers(section, f.name, tasks))


def _of_models(models: tuple[tuple[str, Entry], ...]) -> Iterator[Field]:
    """The options of single models; of one that several have, the text of the first."""
    done = set()
    for name, entry in models:
        docs = {} if entry.options is None else texts_of(entry.options)
        for option, kind in entry.kinds().items():
            if option not in done:
                done.add(option)
                defaults = option_defaults(option)
                text = docs.get(option, f"An option of {name}.")
                yield Field(
                    "model", option, kind, defaults[name], text, (("model.name", tuple(defaults)),),
                    tuple(defaults.items()),
                )  # fmt: skip


_NEIGHBOURS = (("batch.batching", ("neighbours",)),)
_BATCHING = {
    "subgraph": (("batch.batching", ("subgraph",)),),
    "walk_length": (("batch.batching", ("subgraph",)), ("batch.subgraph", ("walks",))),
    "cache": (*_NEIGHBOURS, ("batch.feed", ("pull",))),
    **dict.fromkeys(("replace", "feed", "pipeline", "prefetch", "memory_budget"), _NEIGHBOURS),
}


def _readers(section: str, name: str, tasks: Tasks) -> tuple[tuple[str, tuple[str, ...]], ...]:
    if section in ("link", *task_sections()):
        mlp = (("link.decoder", ("mlp",)),) if (section, name) == ("link", "decoder_layers") else ()
        return (("train.task", (section,)), *mlp)
    if section == "data" and name in ("train_share", "val_share"):
        return (("train.task", tuple(task for task, entry in tasks if entry.splits)),)
    if section == "batch":
        return _BATCHING.get(name, ())
    methods = tuple(methods_that_read(name)) if section == "parallel" else ()
    return (("parallel.partition", methods),) if methods else ()


def unread_by(config: RunConfig, setting: Field) -> UserError | None:
    """Why this run does not read a setting, in the words that refuse it; None where it does."""
    spelled = setting.path in config.given
    name = setting.flag if spelled and setting.flag else setting.path
    for path, readers in setting.readers:
        chooser = fields()[path]
        if chooser.of(config) not in readers:
            return unread(chooser.flag[2:], [chooser.of(config)], setting.name, readers, name)
    size = config.batch.batch_size
    both = ("batch_size", "memory_budget")
    if setting.section == "batch" and setting.name not in both and not size:
        return UserError(
            f"{setting.name} is for mini-batches, the whole graph is in every step here. "
            "Add --batch-size 1000, or leave it out."
        )
    kind = config.batch.subgraph if config.batch.batching == "subgraph" else "seeds"
    if setting.path == "batch.fanouts" and kind != "seeds":
        return unread("subgraph", [kind], "fanouts", ["seeds"], name)
    if setting.path == "link.pair_batch" and size:
        return UserError(
            f"pair_batch is for steps over the whole graph, --batch-size {size} samples. "
            f"Leave out {name}, or --batch-size."
        )
    return _of_hidden_layers(config, setting, name)


_HIDDEN = ("hidden", "dropout", "layer_norm", "residual", "activation", "heads")
"""What hidden layers alone read; of rows for links, hidden is the width and dropout the decoder's."""


def _of_hidden_layers(config: RunConfig, setting: Field, name: str) -> UserError | None:
    """Why a model without hidden layers does not read what is for them."""
    if setting.section != "model" or setting.name not in _HIDDEN or config.train.task != "node":
        return None
    model = config.model
    if model.name not in MODELS or model.layers < 1 or len(model_widths(model, 1, 1)) > 2:
        return None
    deep = copy.copy(model)
    deep.layers = 2
    several = len(model_widths(deep, 1, 1)) > 2
    which = f"model {model.name}{' of 1 layer' if several else ''}"
    instead = "--layers 2" if several else "--model gcn"
    return UserError(
        f"{which} has no hidden layer and does not read {setting.name}. Leave out {name}, or use {instead}."
    )


def _foreign(config: RunConfig) -> Iterator[tuple[Field, UserError]]:
    """Settings that say something although the run does not read them."""
    for setting in fields().values():
        error = unread_by(config, setting)
        if error is None:
            continue
        own = setting.section == "model"  # all others are there always
        if setting.path in config.given or (
            setting.name in config.model.own if own else setting.of(config) != setting.default
        ):
            yield setting, error


def refuse_unread(config: RunConfig) -> None:
    """Refuse an option of another model, task, partitioner, ... than the chosen ones.

    >>> config = RunConfig()
    >>> update(config, "link.hits", 20)
    >>> refuse_unread(config)
    Traceback (most recent call last):
        ...
    weft.errors.UserError: task node does not read hits, link does. Leave out --hits, or use --task link.
    """
    for _, error in _foreign(config):
        raise error


def forget_unread(config: RunConfig) -> None:
    """Set back what a saved run read and this use of it does not, unless the user spelled it out now."""
    for setting, _ in list(_foreign(config)):
        if setting.path not in config.given:
            _set_back(config, setting)


def _set_back(config: RunConfig, setting: Field) -> None:
    if setting.defaults:
        config.model.own = {name: v for name, v in config.model.own.items() if name != setting.name}
    else:
        setattr(getattr(config, setting.section), setting.name, setting.default)


def update(config: RunConfig, path: str, value: object) -> None:
    """Set `section.name` (or `section.table.key`) in place, as the user spelled it out.

    >>> config = RunConfig()
    >>> update(config, "model.hidden", "256")
    >>> config.model.hidden, config.given
    (256, {'model.hidden'})
    """
    config.given.add(_set(config, path, value).path)


def _set(config: RunConfig, path: str, value: object) -> Field:
    section, _, rest = path.partition(".")
    name, _, key = rest.partition(".")
    known = fields()
    found = known.get(f"{section}.{name}")
    if found is None or (key and found.type is not dict):
        raise unknown("setting", path, known, see="weft train --help")
    part = getattr(config, section)
    if key:
        getattr(part, name)[key] = literal(value)
    else:
        setattr(part, name, found.convert(value))
    return found


def load_toml(config: RunConfig, path: Path) -> None:
    """Set what a TOML file holds. A default in it is as good as left out: files of old runs hold them all."""
    settings = read_toml(path)
    if "model.name" in settings:  # first: what a default is follows from the model
        _set(config, "model.name", settings["model.name"])
    for name, value in settings.items():
        found = _set(config, name, value)
        default = dict(found.defaults).get(config.model.name, found.default)
        if found.defaults and config.model.own[found.name] == default:
            _set_back(config, found)


def read_toml(path: Path) -> dict[str, Any]:
    """The settings in a TOML file as `{section.name: value}`."""
    return read_settings(path, (*SECTIONS, *task_sections()))


def to_toml(config: RunConfig) -> str:
    """What the run reads as a TOML text, which repeats it: `weft train` reads it back.

    >>> print(to_toml(RunConfig()).splitlines()[1])
    graph = "sbm"
    """
    return write_tables(config.as_dict())
