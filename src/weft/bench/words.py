"""Words received per rank, measured with the ledger on virtual ranks, beside the papers' formulas.

The papers' bandwidth terms, in words per process, for n vertices, f features, L layers and P processes:

    algorithm     one A·H                        one epoch                            where
    1d            n·f                            L (2nf + f²)                         CAGNET IV-A.1, IV-A.5
    1.5d          nf/c + nfc/P                   L (2nf/c + 2nfc/P)                   CAGNET IV-B.1, IV-B.5
    2d            (nnz + 2nf)/√P                 L ((2nnz + 8nf)/√P + f²)             CAGNET IV-C.1, IV-C.5
    3d            (nnz + 2nf)/P^⅔                L (2nnz + 12nf)/P^⅔                  CAGNET IV-D.1, IV-D.5
    a-stationary  2nf/√P                         2L (2nf/√P + f²)                     Besta et al. 6.3, 7.1.1

CAGNET is Tripathy, Yelick and Buluç, SC 2020; Besta et al. is SC 2023. CAGNET's 2D product includes its
second phase, T·W; its 3D one does not. nnz is there because CAGNET's 2D and 3D move A too; weft keeps A
still, so the fair comparison is with the dense terms alone, which the table shows beside the whole. Besta et
al. give orders of growth, O(nk/√p + k²) for a layer, forward as backward; the constant here counts what
7.1.1 does: a broadcast along columns and a reduction along rows, nf/√P each, and f² for the weights.

weft's epoch is a steady one: the first layer's A·X is kept, so that L-1 layers propagate, each forward and
back; the sum of the gradients and the loss are in it.

Attention is shown for a-stationary alone, whose paper it is: what the dry run foretells, which tests and
every run hold against the ledger, beside 2L (nk/√P + k²). Where the graph's arcs carry features or kinds, the
models that read them are shown too: what arcs carry never moves, so their words are of the same order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..comm import Ledger, ledger
from ..comm.threads import run_threads
from ..errors import UserError
from ..graph import Graph
from ..graph.arrays import as_read
from ..nn import Model, ModelConfig, Noise, build
from ..parallel import Blocks, Grid, Operator
from ..parallel.foretell import dense_lines, foretell_rank
from ..train import RunConfig, Trainer
from .epoch import model_of
from .pictures import check_drawable, new_figure, save

if TYPE_CHECKING:
    from ..comm import Communicator

Terms = tuple[float, float]
"""(words of H and W, words of A) of a formula."""


@dataclass(frozen=True)
class Case:
    """What a formula is over."""

    n: int
    nnz: int
    f: int
    layers: int
    ranks: int


@dataclass(frozen=True)
class Algorithm:
    """A named point of the grid at the numbers of ranks that its paper's formula is for."""

    name: str
    strategy: str
    grid: Callable[[int], Grid | None]
    """The grid of P ranks; None where the formula is not for P."""
    product: Callable[[Case], Terms]
    epoch: Callable[[Case], Terms]


def _root(ranks: int, power: int) -> int:
    """The whole root, or 0 where there is none.

    >>> _root(27, 3), _root(16, 2), _root(8, 2)
    (3, 4, 0)
    """
    root = round(ranks ** (1 / power))
    return root if root**power == ranks else 0


def _replicated(c: int) -> Algorithm:
    """1.5D with c copies; CAGNET's Algorithm 2 has c² divide P."""
    return Algorithm(
        f"1.5d, c={c}",
        "1.5d",
        lambda p: Grid(p // c, c) if p % c**2 == 0 else None,
        lambda x: (x.n * x.f * (1 / c + c / x.ranks), 0),
        lambda x: (2 * x.layers * x.n * x.f * (1 / c + c / x.ranks), 0),
    )


def _square(p: int, flat: bool) -> Grid | None:
    side = _root(p, 2)
    return (Grid(side, side) if flat else Grid(side, 1, side)) if side else None


def _cube(p: int) -> Grid | None:
    side = _root(p, 3)
    return Grid(side, side, side) if side else None


ALGORITHMS = (
    Algorithm(
        "1d", "1d", lambda p: Grid(p),
        lambda x: (x.n * x.f, 0),
        lambda x: (x.layers * (2 * x.n * x.f + x.f**2), 0),
    ),
    _replicated(2),
    _replicated(4),
    Algorithm(
        "a-stationary", "a-stationary", lambda p: _square(p, flat=True),
        lambda x: (2 * x.n * x.f / x.ranks**0.5, 0),
        lambda x: (2 * x.layers * (2 * x.n * x.f / x.ranks**0.5 + x.f**2), 0),
    ),
    Algorithm(
        "2d", "2d", lambda p: _square(p, flat=False),
        lambda x: (2 * x.n * x.f / x.ranks**0.5, x.nnz / x.ranks**0.5),
        lambda x: (
            x.layers * (8 * x.n * x.f / x.ranks**0.5 + x.f**2),
            2 * x.layers * x.nnz / x.ranks**0.5,
        ),
    ),
    Algorithm(
        "3d", "3d", _cube,
        lambda x: (2 * x.n * x.f / x.ranks ** (2 / 3), x.nnz / x.ranks ** (2 / 3)),
        lambda x: (
            12 * x.layers * x.n * x.f / x.ranks ** (2 / 3),
            2 * x.layers * x.nnz / x.ranks ** (2 / 3),
        ),
    ),
)  # fmt: skip


def bench_words(graph: Graph, ranks: Sequence[int], width: int = 16, layers: int = 3) -> dict[str, Any]:
    """A row for every algorithm and number of ranks: measured words, the paper's, and their ratio.

    >>> from weft.graph import karate
    >>> rows = bench_words(karate(), [4], width=4)["rows"]
    >>> [(row["algorithm"], row["grid"], row["words"]) for row in rows]
    [('1d', '4x1x1', 104), ('1.5d, c=2', '2x2x1', 68), ('a-stationary', '2x2x1', 68), ('2d', '2x1x2', 68)]
    """
    if layers < 2:
        raise UserError(f"--layers must be at least 2, not {layers}: of a single one A·X is kept.")
    for p in ranks:
        if p > graph.num_nodes:
            raise UserError(
                f"{p} ranks are more than the graph's {graph.num_nodes} vertices. Use a larger graph."
            )
    graph = with_features(graph, width)
    loops = graph.rows == graph.indices
    nnz = graph.num_arcs + graph.num_nodes - int(loops.sum())
    rows = []
    for algorithm in ALGORITHMS:
        for p in ranks:
            grid = algorithm.grid(p)
            if grid is None:
                continue
            case = Case(graph.num_nodes, nnz, width, layers, p)
            measured = run_threads(received, p, graph, _config(algorithm.strategy, grid, width, layers))
            row: dict[str, Any] = {"algorithm": algorithm.name, "ranks": p, "grid": str(grid)}
            for prefix, place, formula in (("", 0, algorithm.product), ("epoch_", 1, algorithm.epoch)):
                dense, sparse = formula(case)
                words = [each[place] for each in measured]
                row |= {
                    f"{prefix}words": max(words), f"{prefix}words_mean": sum(words) / p,
                    f"{prefix}paper": dense + sparse, f"{prefix}paper_dense": dense,
                    f"{prefix}ratio": max(words) / dense,
                }  # fmt: skip
            rows.append(row)
    if not rows:
        named = ", ".join(map(str, ranks))
        raise UserError(f"no algorithm has a formula for {named} ranks. Use --ranks 4,16,64.")
    return {
        "vertices": graph.num_nodes, "nnz": nnz, "width": width, "layers": layers, "rows": rows,
        "attention": attention_words(graph.num_nodes, ranks, width, layers, graph.arc_data),
    }  # fmt: skip


def attention_words(
    n: int, ranks: Sequence[int], width: int, layers: int = 3, data: Mapping[str, Tensor] | None = None
) -> list[dict[str, Any]]:
    """A row for every attention model and square number of ranks: words of an epoch, bound and their ratio.

    A ratio that does not grow with P is what O(nk/√p + k²) says. `data` is what arcs carry: with "features"
    or "type", the models that read them have rows too.

    >>> rows = attention_words(10_000, [4, 64, 1024], width=16)
    >>> [round(row["ratio"], 1) for row in rows if row["model"] == "gat"]
    [1.4, 2.5, 2.7]
    """
    rows = []
    data = {key: as_read(key, x, torch.float32) for key, x in (data or {}).items()}
    for name, options in _over_arcs(data):
        plain = ModelConfig(name=model_of(name), layers=layers, hidden=width, bias=False)
        for option, value in options.items():
            setattr(plain, option, value)
        model = build(plain, width, width)
        weights = sum(p.numel() for p in model.parameters())
        model.to("meta").train()
        for p in (p for p in ranks if _square(p, flat=True)):
            blocks = Blocks.even(n, Grid(_root(p, 2), _root(p, 2)))
            words, known = [], {}
            for rank in range(p):
                row, inner = dense_lines(blocks, rank)
                # Ranks whose lines have the same sizes move the same words: one of them is asked.
                alike = (blocks.sizes[rank], *(tuple(sorted(side)) for line in (row, inner)
                                               for side in (line.need, line.give)))  # fmt: skip
                if alike not in known:
                    volume = foretell_rank(
                        blocks, rank, width, row, inner, work=partial(_steady, model), data=data
                    )
                    known[alike] = sum(volume.words.values())
                # Two words more than weights: whether somebody stops, and whether numbers are finite.
                sums = sum(ledger.all_reduce(numbers, rank, p).words for numbers in (weights + 2, 1))
                words.append(known[alike] + sums)
            bound = 2 * layers * (n * width / p**0.5 + width**2)
            rows.append(
                {
                    "model": name, "ranks": p, "grid": str(blocks.grid), "words": max(words),
                    "words_mean": sum(words) / p, "bound": bound, "ratio": max(words) / bound,
                }
            )  # fmt: skip
    return rows


def _over_arcs(data: Mapping[str, Tensor]) -> list[tuple[str, dict[str, Any]]]:
    """(model, options) of the models whose words are shown, by what arcs carry."""
    found: list[tuple[str, dict[str, Any]]] = [("va", {}), ("agnn", {}), ("gat", {})]
    if "features" in data:
        wide = {"arc_features": data["features"].shape[1]}
        found += [(name, wide) for name in ("gat+arcs", "gatv2", "transformer", "gine", "resgated")]
        found.append(("pna", wide | {"log_degree": 1.0}))  # of which words know nothing
    if "type" in data:
        found.append(("rgcn", {"relations": int(data["type"].max()) + 1 if data["type"].numel() else 1}))
    return found


def _steady(model: Model, A: Operator, x: Tensor, books: Ledger) -> None:
    """A training step whose input has been seen before: what is made of it alone is kept."""
    x = x.detach()
    A.hold(x)
    with torch.no_grad():
        model(A, x, Noise(0, 0))
    with books:
        logits = model(A, x, Noise(0, 0))
        logits.backward(torch.empty_like(logits))


def with_features(graph: Graph, width: int) -> Graph:
    """Every layer as wide as the next, as the formulas have it; words don't depend on the numbers."""
    n = graph.num_nodes
    return graph.replace(
        features=torch.ones(n, width), labels=torch.arange(n) % width, num_classes=width,
        train_mask=torch.ones(n, dtype=torch.bool), val_mask=None, test_mask=None,
    )  # fmt: skip


def _config(strategy: str, grid: Grid, width: int, layers: int) -> RunConfig:
    config = RunConfig()
    config.model.name, config.model.hidden, config.model.layers = "gcn", width, layers
    config.model.bias = False  # the papers' models have none
    config.parallel.strategy = strategy
    if strategy != "1d":
        sides = {"2d": (grid.row, grid.feature), "3d": grid.shape}.get(strategy, (grid.row, grid.inner))
        config.parallel.grid = "x".join(map(str, sides))
    return config


def received(comm: Communicator, graph: Graph, config: RunConfig) -> tuple[int, int]:
    """(words of one propagation, words of one steady epoch) that this rank receives."""
    trainer = Trainer(graph, config, comm)
    with Ledger(comm) as product:
        trainer.A @ trainer.x
    trainer.step(1)
    with Ledger(comm) as epoch:
        trainer.step(2)
    return product.words(), epoch.words()


def draw_words(result: dict[str, Any], path: str) -> None:
    """Words against ranks, both axes logarithmic: measured as marks, the papers' dense terms as lines."""
    check_drawable(path)
    from matplotlib.lines import Line2D

    figure = new_figure(9, 4.2)
    titles = {"": "one propagation A·H", "epoch_": f"one epoch of a {result['layers']}-layer GCN"}
    names = list(dict.fromkeys(row["algorithm"] for row in result["rows"]))
    marks = dict(zip(names, "osD^vPX", strict=False))
    ranks = sorted({row["ranks"] for row in result["rows"]})
    for panel, (prefix, title) in zip(figure.subplots(1, 2), titles.items(), strict=True):
        seen: list[float] = []
        for number, name in enumerate(names):
            rows = sorted((r for r in result["rows"] if r["algorithm"] == name), key=lambda r: r["ranks"])
            x, colour = [r["ranks"] for r in rows], f"C{number}"
            ours, paper = ([r[prefix + key] for r in rows] for key in ("words", "paper_dense"))
            panel.plot(x, ours, color=colour, marker=marks[name], linewidth=1.2)
            panel.plot(x, paper, color=colour, marker="_", linewidth=1, linestyle="--", alpha=0.7)
            seen += [*ours, *paper]
        panel.set(xscale="log", yscale="log", xlabel="ranks P", title=title)
        panel.set_xticks(ranks, map(str, ranks))
        lowest, highest = math.ceil(math.log2(min(seen))), math.floor(math.log2(max(seen)))
        panel.set_yticks(ticks := [2**e for e in range(lowest, highest + 1)], [f"{t:,}" for t in ticks])
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    figure.axes[0].set_ylabel("words received, largest of the ranks")
    keys = [Line2D([], [], color=f"C{i}", marker=marks[name], label=name) for i, name in enumerate(names)]
    keys.append(Line2D([], [], color="grey", label="weft, measured"))
    keys.append(Line2D([], [], color="grey", linestyle="--", label="paper, dense terms"))
    figure.legend(handles=keys, loc="outside lower center", ncols=(len(keys) + 1) // 2, frameon=False)
    save(figure, path)


def slope(rows: Sequence[dict[str, Any]], key: str = "words") -> float:
    """The exponent e of words ~ P^e between the first and the last row.

    >>> slope([{"ranks": 4, "words": 100}, {"ranks": 64, "words": 25}])
    -0.5
    """
    first, last = rows[0], rows[-1]
    return math.log(last[key] / first[key]) / math.log(last["ranks"] / first["ranks"])
