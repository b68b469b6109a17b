"""Links: an encoder, scores of pairs, true ones against false ones.

    H = rows of the ends of this rank's pairs, whoever owns them
    s(u, v) = decoder(H[u] ∘ H[v])
    loss = mean of bce(s, 1) over true pairs + mean of bce(s, 0) over false pairs

A graph without features gets learnable ones, which lie where the encoder wants them.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn

from ..errors import UserError, unknown
from ..graph import Graph, Store
from ..graph.graph import PAIRS
from ..kernels import Stream
from ..nn import Decoder, Model, Noise, build, build_decoder, model_widths
from ..nn.decoders import DECODERS
from ..parallel import ByBlocks, Fetch, Rows
from ..parallel.blocks import even_sizes, starts
from .config import RunConfig
from .need import Need
from .pairs import NEGATIVES, TrainingPairs
from .ranking import check_hits, rank, spread
from .scoring import among, pair_gradients, pair_loss, pair_scores
from .task import Step, Task

METRICS = ("hits", "mrr", "auc")
_DECODER = (1 << 20) - 4
"""The stream of the decoder's first weights."""


class Links(Task):
    """Which pairs are links: a model and a decoder. A step is a batch of true pairs, with false ones."""

    always_reads = True

    def make_model(self, source: Graph | Store) -> Model:
        config, seed = self.config, self.config.train.seed
        self.learned_width = embedding_width(source, config)
        model = build(config.model, source.num_features + self.learned_width, config.model.hidden, seed)
        link, key = config.link, Stream(seed, 0, _DECODER).key >> 1
        # It goes with the model: one flat sum of gradients, one file of weights.
        model.add_module(
            "decoder",
            build_decoder(link.decoder, link.decoder_layers, config.model.hidden, config.model.dropout, key),
        )
        return model

    def read(self, source: Graph | Store, layout: Rows) -> None:
        link, seed = self.config.link, self.config.train.seed
        self.layout, self.comm, self.owners = layout, layout.comm, ByBlocks(layout.blocks)
        size = self.config.batch.batch_size or link.pair_batch
        self.pairs = TrainingPairs(source, layout, seed, size, link.negatives, link.negatives_per_pair)
        # Pairs to judge by: every rank scores an even share of each list, wherever the ends lie.
        self.judged = {key: read_share(source, key, self.comm.rank, self.comm.size) for key in PAIRS}
        self.judged_of = {key: num_pairs(source, key) for key in PAIRS}
        self.counts = {"val": self.judged_of["val_pairs"], "test": self.judged_of["test_pairs"]}

    @property
    def steps(self) -> int:
        return self.pairs.steps

    def step(self, epoch: int, number: int) -> Step:
        batch, turn = self.pairs.batch(epoch, number), self.pairs.turn(epoch, number)
        seed = self.config.train.seed
        ids, (u, v) = among(self.layout.count, batch.u, batch.v)

        def objective(h: Tensor, model: Model) -> tuple[Tensor, Callable[[], None]]:
            loss, dh = pair_gradients(
                h, u, v, batch.labels, batch.shares, decoder_of(model), batch.names, (seed, turn)
            )
            return loss, lambda: h.backward(dh)

        return Step(ids, objective, Noise(seed, turn), batch.all_true / self.pairs.total)

    @torch.no_grad()
    def evaluate(self, encode: Callable[[], Tensor], model: Model) -> dict[str, float]:
        """Hits@K, MRR and AUC of validation and test pairs, and the validation loss."""
        lists = [self.judged[key] for key in PAIRS]
        found = self.score(torch.cat(lists), encode, model).split([len(x) for x in lists])
        scores = dict(zip(PAIRS, found, strict=True))
        out: dict[str, float] = {}
        for split in ("val", "test"):
            true, false = scores[f"{split}_pairs"], scores[f"{split}_negatives"]
            ranking = rank(true, false, self.config.link.hits, self.comm)
            out |= {f"{split}_{name}": getattr(ranking, name) for name in METRICS}
        out["val_loss"] = self._val_loss(scores["val_pairs"], scores["val_negatives"])
        return out

    @torch.no_grad()
    def details(self, encode: Callable[[], Tensor], model: Model) -> dict[str, Any]:
        """How the test pairs (or those to validate) rank: Hits@K for several K, the curve, the scores."""
        split = "test" if self.counts["test"] else "val"
        lists = [self.judged[f"{split}_{kind}"] for kind in ("pairs", "negatives")]
        true, false = self.score(torch.cat(lists), encode, model).split([len(x) for x in lists])
        return {"kind": "links", "split": split} | spread(true, false, self.comm)

    def _val_loss(self, true: Tensor, false: Tensor) -> float:
        share = torch.zeros(1, dtype=torch.float64, device=true.device)
        for scores, key, label in ((true, "val_pairs", 1.0), (false, "val_negatives", 0.0)):
            labels = torch.full_like(scores, label)
            shares = torch.full_like(scores, 1 / max(1, self.judged_of[key]))
            share += pair_loss(scores, labels, shares).double()
        return float(self.comm.all_reduce(share, phase="metrics")) if self.counts["val"] else float("nan")

    @torch.no_grad()
    def score(self, pairs: Tensor, encode: Callable[[], Tensor], model: Model) -> Tensor:
        """The logits of this rank's pairs [m, 2]; every rank calls it. [m]"""
        ids, (u, v) = among(self.layout.count, pairs[:, 0], pairs[:, 1])
        h = Fetch(self.comm, self.owners, ids, distinct=True).rows(encode())
        return pair_scores(h, u, v, decoder_of(model))

    def merit(self, metrics: dict[str, float]) -> tuple[float, float]:
        """The chosen metric on the validation pairs."""
        return metrics[f"val_{self.config.link.best_by}"], -metrics["val_loss"]

    @property
    def judges(self) -> bool:
        return self.counts["val"] > 0

    @property
    def watched(self) -> str:
        return f"val_{self.config.link.best_by}"

    def clipped(self, model: Model) -> list[list[nn.Parameter]]:
        decoder = list(decoder_of(model).parameters())
        known = {id(p) for p in decoder}
        groups = [[p for p in model.parameters() if id(p) not in known], decoder]
        return [group for group in groups if group]

    def heading(self, source: Graph | Store) -> str:
        kind = "edges" if self.pairs.undirected else "arcs"
        return (
            f"{source.num_features:,} features + {self.learned_width:,} learned; "
            f"{self.counts['val']:,} {kind} to validate, {self.counts['test']:,} to test"
        )

    def batches(self) -> str:
        asked, used = self.config.batch.batch_size, self.pairs.size
        line = f"{self.steps:,} batches of {used:,} pairs"
        if used < asked:
            line += f" (--batch-size {asked:,} is more than the {used:,} training pairs)"
        return line

    def outcome(self, scores: dict[str, float]) -> list[str]:
        lines = []
        for split in ("val", "test"):
            hits, mrr, auc = (scores.get(f"{split}_{m}", float("nan")) for m in METRICS)
            lines.append(
                f"{split:<9} Hits@{self.config.link.hits} {hits:.4f}   MRR {mrr:.4f}   AUC {auc:.4f}"
            )
        return lines

    def facts(self) -> dict[str, Any]:
        sampled = self.config.batch.batch_size > 0
        return {"batch_size": self.pairs.size, "batches": self.steps} if sampled else {}


def decoder_of(model: Model) -> Decoder:
    return cast(Decoder, model.decoder)


def embedding_width(source: Graph | Store, config: RunConfig) -> int:
    """Learnable features a vertex: as many as asked for, or the hidden width where there are no others."""
    return config.link.embedding_width or (0 if source.num_features else config.model.hidden)


def num_pairs(source: Graph | Store, key: str) -> int:
    """How many pairs a list has; 0 where there is none."""
    if isinstance(source, Store):
        return source.num_pairs(key)
    found = getattr(source, key)
    return 0 if found is None else len(found)


def read_share(source: Graph | Store, key: str, part: int, parts: int) -> Tensor:
    """One of `parts` even shares of a list of pairs. [m, 2] int64."""
    sizes = even_sizes(num_pairs(source, key), parts)
    first = starts(sizes)[part]
    if isinstance(source, Store):
        if not source.has(key):
            return torch.empty(0, 2, dtype=torch.int64, device="cpu")
        return source.pairs(key, first, first + sizes[part])
    found = getattr(source, key)
    return (
        torch.empty(0, 2, dtype=torch.int64, device="cpu")
        if found is None
        else found[first : first + sizes[part]]
    )


def check_linkable(graph: Graph, config: RunConfig) -> None:
    """Refuse what links cannot be learned from, before anything is computed or written."""
    if not graph.num_arcs:
        raise UserError(f"{graph.name} has no arcs to learn links from. Use a graph with arcs.")
    for split in ("val", "test"):
        for kind in ("pairs", "negatives"):
            if not num_pairs(graph, f"{split}_{kind}"):
                raise UserError(
                    f"{graph.name} has no {split}_{kind} to judge by. Use a graph without pairs of its own: "
                    "weft then holds some out."
                )
        check_hits(config.link.hits, num_pairs(graph, f"{split}_negatives"))


def need_of_links(graph: Graph | Store, config: RunConfig) -> Need:
    """Embeddings and their gradients, an activation a layer, weights and gradients."""
    model, link = config.model, config.link
    width = embedding_width(graph, config)
    widths = model_widths(model, graph.num_features + width, model.hidden)
    decoder = (link.decoder_layers - 1) * model.hidden**2 if link.decoder == "mlp" else 0
    weights = sum(a * b for a, b in pairwise(widths)) + decoder
    rows = graph.num_nodes * (sum(widths[1:]) + 2 * width)
    bytes_each = 4 if config.train.dtype == "float32" else 8
    what = (
        f"a model of {len(widths) - 1} layers with hidden={model.hidden} and {width} learned features on "
        f"{graph.num_nodes} vertices"
    )
    return Need(bytes_each * rows, bytes_each * 2 * weights, what)


def check_link_options(config: RunConfig) -> None:
    """Refuse settings of [link] that suit no graph."""
    link = config.link
    for name, known in (("decoder", DECODERS), ("negatives", NEGATIVES), ("best_by", METRICS)):
        if getattr(link, name) not in known:
            raise unknown(name, getattr(link, name), known)
    for name, least in (
        ("decoder_layers", 1), ("embedding_width", 0), ("pair_batch", 0), ("negatives_per_pair", 1),
        ("hits", 1),
    ):  # fmt: skip
        if getattr(link, name) < least:
            raise UserError(f"{name} must be at least {least}, not {getattr(link, name)}.")
