"""Words on every grid × {dense, sparse} × partition: which point of the grid moves least?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from ..graph import Graph
from ..parallel import STRATEGIES, Blocks, Grid
from ..parallel.foretell import foretell
from ..partition import PartitionOptions, arrange
from ..partition.grids import block_imbalance, cut_for, nets_for, spread_features


def shapes(ranks: int) -> list[tuple[int, int, int]]:
    """Every row × inner × feature of so many ranks.

    >>> shapes(2)
    [(1, 1, 2), (1, 2, 1), (2, 1, 1)]
    """
    sides = [d for d in range(1, ranks + 1) if ranks % d == 0]
    return [(r, k, ranks // (r * k)) for r in sides for k in sides if ranks % (r * k) == 0]


def bench_grids(
    graph: Graph,
    ranks: int,
    methods: Sequence[str],
    width: int,
    options: PartitionOptions,
    say: Callable[[str], None],
    cuts: dict[tuple[str, int, str], Tensor] | None = None,
) -> list[dict[str, Any]]:
    """A row per grid, exchange and method, least first: words that ranks receive for one propagation of
    `width` columns, forward and back; the mean and the most of a rank. Exact: `foretell` is tested against
    the ledger. `cuts` keeps partitions for another number of ranks."""
    cuts = {} if cuts is None else cuts
    for method in methods:
        for r, k, _ in shapes(ranks):
            key = method, r * k, nets_for((r, k))
            if key not in cuts:
                cuts[key] = cut_for(graph, (r, k), method, options)
    rows: list[dict[str, Any]] = []
    for shape in shapes(ranks):
        grid = Grid(*shape)
        for method in methods:
            parts = cuts[method, grid.row * grid.inner, nets_for(shape[:2])]
            if min(shape[:2]) > 1 and method not in ("block", "random", "hash"):
                parts = arrange(graph, parts, shape[:2], options.seed)
            uneven = block_imbalance(graph, parts, shape[:2])
            blocks = Blocks.of_parts(spread_features(parts, grid.row * grid.inner, grid.feature), grid)
            for exchange in ("dense", "sparse"):
                volumes = foretell(graph, blocks, width, exchange)
                words = [sum(volume.words.values()) for volume in volumes]
                rows.append(
                    {
                        "grid": str(grid), "name": _name(grid, exchange), "exchange": exchange,
                        "method": method, "ranks": ranks, "words_mean": sum(words) / ranks,
                        "words_max": max(words), "imbalance": uneven,
                        "messages_max": max(sum(volume.messages.values()) for volume in volumes),
                    }
                )  # fmt: skip
        say(f"grid {grid}")
    base = next(r for r in rows if (r["name"], r["method"]) == ("1d", methods[0]))["words_mean"]
    for row in rows:
        row["ratio"] = row["words_mean"] / base
    return sorted(rows, key=lambda row: row["words_mean"])


def _name(grid: Grid, exchange: str) -> str:
    """What the papers call this point; empty where nobody has it.

    >>> _name(Grid(4), "sparse"), _name(Grid(2, 1, 2), "dense"), _name(Grid(2, 1, 2), "sparse")
    ('halo', '2d', '')
    """
    if grid.row == grid.inner == 1:
        return "feature"
    if grid.inner == grid.feature == 1:
        return "1d" if exchange == "dense" else "halo"
    if exchange == "sparse" or grid.row == 1:
        return ""
    names = {(True, False): "1.5d", (False, True): "2d", (True, True): "3d"}
    found = names[grid.inner > 1, grid.feature > 1]
    assert found in STRATEGIES
    return found
