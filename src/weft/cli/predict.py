"""weft predict: embeddings and classes of a trained run, by vertex; scores of pairs."""

from __future__ import annotations

import argparse
import copy
import functools
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import UserError
from ..train.config import RunConfig, fields, forget_unread
from .options import Parser, add_config, config_from, refuse
from .ranks import on_ranks

if TYPE_CHECKING:
    from ..comm import Communicator
    from ..graph import Graph, Store

_EXAMPLES = """  weft predict runs/sbm-gcn-1
  weft predict runs/mine other.weft --ranks 4 --strategy halo --into predictions
  weft predict runs/mine huge.weft --memory-budget 500MB    rows in files
  weft predict runs/mine --json
  weft predict runs/ogbl-ddi-sage-1 --pairs maybe.csv    scores of pairs, by a run of --task link"""


def run(arguments: Sequence[str]) -> int:
    parser = Parser(
        "predict", "RUN [GRAPH] [OPTIONS]",
        "Full-graph inference with a run's weights, on its graph or another: embeddings.npy and classes.npy, "
        "row v for vertex v. Of a run of --task link: embeddings.npy, and scores.npy of --pairs.", _EXAMPLES,
    )  # fmt: skip
    parser.add_argument("run", metavar="RUN", help="a run folder that weft train made")
    add_config(parser)
    parser.add_argument(
        "--into", metavar="DIR", help="where to write; by default RUN/predictions; must not exist"
    )
    parser.add_argument(
        "--pairs",
        metavar="FILE",
        help="pairs to score: two vertices a line, or .npy [m, 2]; --task link only",
    )
    parser.add_argument(
        "--memory", metavar="SIZE",
        help="layer by layer, any model, within rounding: a step holds at most so much beside the arcs. "
        "--memory-budget goes the way of training for gcn, sage (mean) and sgc, to the bit; else this one",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    parser.add_argument("--store", help=argparse.SUPPRESS)
    parsed = parser.parse(arguments)
    if parsed.store is None:
        read = ("task", "seed", "dtype", "threads", "device")
        refuse(parsed, "predict", [p for p in fields() if _trains(p, read)], "--into DIR")
    from ..train.predict import read_run

    saved = read_run(Path(parsed.run))
    if parsed.store is None and saved.note():
        print(f"weft: {saved.note()}.", file=sys.stderr)
    trained = copy.deepcopy(saved.config)
    if parsed.graph and parsed.graph != trained.data.graph:
        saved.config.data.arc_columns = ""  # those of the file that the run trained on
    config = config_from(parsed, saved.config)
    forget_unread(config)  # such as the run's --epsilon, where the parts are to be random ones
    if config.train.task == "link" and parsed.store is None:
        _keep_arcs(config, trained)
    out = Path(parsed.into) if parsed.into else saved.path / "predictions"
    if parsed.store is None and out.exists():
        raise UserError(f"{out} exists already. Name another with --into, or remove it.")
    pairs = Path(parsed.pairs).resolve() if parsed.pairs else None
    if pairs is not None and config.train.task != "link":
        raise UserError(
            f"--pairs needs a run of --task link, {saved.path} is one of --task {config.train.task}."
        )
    if pairs is not None and not pairs.is_file():
        raise UserError(f"no file {parsed.pairs}. Check the path.")
    flags = ["--into", str(out), *(["--json"] if parsed.json else [])]
    flags += ["--pairs", str(pairs)] if pairs else []
    asked = parsed.memory
    if "batch.memory_budget" in config.given and (asked or not _walks(config)):
        asked, config.batch.memory_budget = asked or config.batch.memory_budget, ""
    flags += ["--memory", asked] if asked else []
    flag = "--memory" if parsed.memory else "--memory-budget"
    memory = _memory(asked, flag, config, parser.given(arguments)) if asked else 0
    work = functools.partial(
        predict, run=str(saved.path), config=config, out=out, as_json=parsed.json, pairs=pairs, memory=memory
    )
    command = ["predict", str(saved.path)]
    return on_ranks(command, config, work, flags, parsed.store, trains=False, kept=True)


def _trains(path: str, read: Sequence[str]) -> bool:
    """Whether only training reads a setting.

    >>> [_trains(path, ["seed"]) for path in ("train.lr", "train.seed", "batch.feed", "model.name")]
    [True, False, True, False]
    """
    section, _, name = path.partition(".")
    return name not in {"train": read, "batch": ("memory_budget",)}.get(section, (name,))


def _walks(config: RunConfig) -> bool:
    """Whether the whole graph goes through the files of training, and gives the bits of a run in memory.

    What the run trained on is then put aside where it was batches: a budget of theirs is for arcs.
    """
    from ..minibatch.cache import parse_bytes
    from ..train.budget import check_budget

    parse_bytes(config.batch.memory_budget)
    if config.batch.batch_size and config.parallel.partition == "stochastic":
        return False  # the parts follow from the batches
    whole = copy.deepcopy(config)
    whole.batch = type(config.batch)(memory_budget=config.batch.memory_budget)
    try:
        check_budget(whole)
    except UserError:
        return False
    config.batch = whole.batch
    return True


def _memory(text: str, flag: str, config: RunConfig, given: set[str]) -> int:
    """The bytes of `--memory-budget`; what layer by layer does not do is refused."""
    from ..minibatch.cache import parse_bytes

    if config.train.task == "link":
        raise UserError(f"{flag} is for runs that tell classes, not for --task link. Leave it out.")
    for name in ("strategy", "grid", "replication", "exchange"):
        if f"parallel.{name}" in given:
            raise UserError(f"layer by layer, rows are cut by --partition alone. Leave out --{name}.")
    return parse_bytes(text, flag)


def _keep_arcs(config: RunConfig, trained: RunConfig) -> None:
    """Messages run over the arcs that the run trained on, or over all arcs of another graph."""
    for section, name in (("train", "seed"), ("link", "hold_val"), ("link", "hold_test")):
        was = getattr(getattr(trained, section), name)
        if getattr(getattr(config, section), name) != was:
            raise UserError(
                f"{name} chose the edges that the run was judged by; it is {was} for good. Leave it out."
            )
    if config.data.graph != trained.data.graph:
        config.link.hold_val = config.link.hold_test = 0.0


def predict(
    comm: Communicator,
    source: Graph | Store,
    run: str,
    config: RunConfig,
    out: Path,
    as_json: bool,
    pairs: Path | None = None,
    memory: int = 0,
) -> int:
    """What every rank does."""
    import dataclasses

    from ..train import predict as inference

    saved = dataclasses.replace(inference.read_run(Path(run)), config=config)
    inference.check_fit(saved, source)  # a misfit is found before the folder is made
    trainer = inference.restore_links(source, saved, comm) if config.train.task == "link" else None
    wanted = None if trainer is None or pairs is None else inference.wanted_pairs(trainer, source, pairs)
    if comm.rank == 0:
        try:
            out.mkdir(parents=True)
        except OSError as error:
            raise UserError(f"cannot make {out}: {error.strerror}. Name another with --into.") from None
    comm.barrier()
    try:
        if trainer is not None:
            files = inference.predict_links(trainer, source, wanted, out)
        else:
            files = inference.predict(source, saved, comm, out, memory)
    except BaseException:
        if comm.rank == 0:  # made just now: the same command works once there is room
            shutil.rmtree(out, ignore_errors=True)
        raise
    if comm.rank == 0:
        if as_json:
            print(
                json.dumps(
                    {"files": [str(f) for f in files], "vertices": source.num_nodes, "ranks": comm.size}
                )
            )
        else:
            for file in files:
                print(file)
    return 0
