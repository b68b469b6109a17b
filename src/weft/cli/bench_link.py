"""weft bench link: how well links are found, over several seeds."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import UserError
from ..tables import columns
from ..train.config import RunConfig
from .options import Parser, add_config, config_from, whole_number
from .ranks import load_graph

_PUBLIC = "OGB's leaderboard, GraphSAGE on ogbl-ddi: test Hits@20 53.9 ± 4.7"


def run(arguments: Sequence[str]) -> int:
    parser = Parser(
        "bench link", "[GRAPH | RUN.toml] [OPTIONS]",
        "Train to predict links once a seed, in this process; mean and spread of the metrics at the best "
        "validation epoch. The defaults are those of OGB's GraphSAGE baseline on ogbl-ddi.",
        "  weft bench link --threads 2 --records ddi.jsonl\n"
        "  weft bench link cora --epochs 100 --hidden 64 --dropout 0 --best-by auc",
    )  # fmt: skip
    add_config(parser)
    parser.add_argument("--seeds", default="5", metavar="N", help="runs, from --seed on (5)")
    parser.add_argument(
        "--records", metavar="FILE", help="write evaluations and results here, a JSON line each"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object on standard output")
    parsed = parser.parse(arguments)
    seeds = whole_number(parsed.seeds, "--seeds")
    import torch

    from ..bench.link import bench_link, leaderboard, spread
    from ..train.run import finite
    from ..train.tasks import check_task_options

    config = config_from(parsed, leaderboard(RunConfig()))
    if config.train.task != "link":
        raise UserError(f"bench link measures --task link, not {config.train.task}. Leave --task out.")
    if config.parallel.ranks != 1:
        raise UserError("bench link runs in one process. Leave --ranks out; weft train takes them.")
    check_task_options(config)
    if config.train.threads:
        torch.set_num_threads(config.train.threads)
    rows: list[dict[str, Any]] = []
    with _log(parsed.records) as note:
        for row in bench_link(load_graph, config, seeds, note):
            note({"result": True, **row})
            rows.append(row)
            if not parsed.json:
                print(f"seed {row['seed']}: {_line(row, config.link.hits)}", flush=True)
    names = [f"{split}_{metric}" for split in ("val", "test") for metric in ("hits", "mrr", "auc")]
    whole = {name: spread([row[name] for row in rows]) for name in names if all(name in row for row in rows)}
    if parsed.json:
        summary = {name: {"mean": mean, "sd": sd} for name, (mean, sd) in whole.items()}
        print(
            json.dumps(
                finite({"graph": config.data.graph, "hits_k": config.link.hits, "rows": rows, **summary})
            )
        )
        return 0
    print(f"\n{config.data.graph}, {len(rows)} seeds, {config.train.epochs} epochs")
    print(
        columns(
            ["metric", "mean %", "sd"],
            [[n, f"{100 * m:.2f}", f"{100 * s:.2f}"] for n, (m, s) in whole.items()],
        )
    )
    if config.data.graph == "ogbl-ddi":
        print(_PUBLIC)
    return 0


def _line(row: dict[str, Any], k: int) -> str:
    return (
        f"val Hits@{k} {row['val_hits']:.4f}, test Hits@{k} {row['test_hits']:.4f}, "
        f"MRR {row['test_mrr']:.4f}, AUC {row['test_auc']:.4f}; "
        f"epoch {row['best_epoch']} of {row['epochs']}, {row['seconds']:,.0f} s"
    )


@contextmanager
def _log(path: str | None) -> Iterator[Callable[[dict[str, Any]], None]]:
    """A file of JSON lines, written through: what is known stays known when the process dies."""
    from ..train.run import finite

    if path is None:
        yield lambda record: None
        return
    try:
        file = Path(path).open("x", encoding="utf-8")  # noqa: SIM115  closed below
    except FileExistsError:
        raise UserError(f"{path} exists already. Choose another --records, or remove it.") from None
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}. Choose another --records.") from None
    with file:

        def note(record: dict[str, Any]) -> None:
            if "val_hits" in record:
                file.write(json.dumps(finite(record)) + "\n")
                file.flush()

        yield note
