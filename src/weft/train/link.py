"""Link prediction: an encoder on the whole graph, scores of pairs, true ones against false ones.

    H = model(A, X)                       every rank its own rows, as for classes
    s(u, v) = decoder(H[u] ∘ H[v])        rows of ends that lie elsewhere are fetched from their owners
    loss = mean of bce(s, 1) over true pairs + mean of bce(s, 0) over false pairs

A graph without features gets learnable ones: row v belongs to the rank that owns v, which alone has and
updates it.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor, nn

from ..errors import UserError, unknown
from ..graph import Graph, Store
from ..graph.graph import PAIRS
from ..graph.guard import check_fits
from ..kernels import Stream, uniform
from ..nn import Decoder, Model, Noise, build, build_decoder
from ..nn.decoders import DECODERS
from ..parallel import ByBlocks, Fetch, Volume
from ..parallel.blocks import even_sizes, starts
from ..parallel.fetch import fetch_volume
from .config import RunConfig
from .pairs import NEGATIVES, Batch, TrainingPairs
from .ranking import check_hits, rank
from .rows import write_rows
from .scoring import among, pair_gradients, pair_loss, pair_scores
from .trainer import Trainer, check_options

METRICS = ("hits", "mrr", "auc")
_EMBEDDING, _DECODER = (1 << 20) - 3, (1 << 20) - 4
"""Streams of the initial embeddings and of the decoder's weights."""


class LinkTrainer(Trainer):
    """Trains a model and a decoder to tell links from other pairs.

    >>> from weft.graph import hold_out, load
    >>> config = RunConfig()
    >>> config.train.task, config.train.epochs, config.link.hits = "link", 20, 3
    >>> result = LinkTrainer(hold_out(load("karate")), config).fit()
    >>> result.loss[-1] < result.loss[0], sorted(result.scores)[:3]
    (True, ['test_auc', 'test_hits', 'test_mrr'])
    """

    decoder: Decoder
    learned: nn.Parameter | None = None
    """[n_own, embedding width]: the learnable features of this rank's vertices."""

    def _make_model(self, source: Graph | Store) -> Model:
        config, seed = self.config, self.config.train.seed
        self.width = embedding_width(source, config)
        model = build(config.model, source.num_features + self.width, config.model.hidden, seed)
        model.fixed_input = not self.width
        link, key = config.link, Stream(seed, 0, _DECODER).key >> 1
        self.decoder = build_decoder(
            link.decoder, link.decoder_layers, config.model.hidden, config.model.dropout, key
        )
        # It goes with the model: one flat sum of gradients, one file of weights.
        model.add_module("decoder", self.decoder)
        return model

    def _read(self, source: Graph | Store) -> None:
        link, seed, dtype = self.config.link, self.config.train.seed, self.x.dtype
        if self.width:
            bound = math.sqrt(6 / (source.num_nodes + self.width))  # Glorot's, for a matrix [n, width]
            first = uniform(self.A.rows, self.width, bound, Stream(seed, 0, _EMBEDDING).key)
            self.learned = nn.Parameter(first.to(dtype))
        self.owners = ByBlocks(self.A.blocks)
        self.pairs = TrainingPairs(
            source, self.A, seed, self._pair_batch(), link.negatives, link.negatives_per_pair
        )
        # Pairs to judge by: every rank scores an even share of each list, wherever the ends lie.
        self.judged = {key: read_share(source, key, self.comm.rank, self.comm.size) for key in PAIRS}
        totals = {key: num_pairs(source, key) for key in PAIRS}
        self.judged_of = totals
        self.counts = {"val": totals["val_pairs"], "test": totals["test_pairs"]}

    def _check(self, graph: Graph, config: RunConfig) -> None:
        check_options(config)
        check_linkable(graph, config)

    def _clipped(self) -> list[list[nn.Parameter]]:
        decoder = list(self.decoder.parameters())
        known = {id(p) for p in decoder}
        groups = [[p for p in self.model.parameters() if id(p) not in known], decoder]
        return [group for group in groups if group]

    def _has_own(self) -> bool:
        return self.width > 0

    def _own_parameters(self) -> list[nn.Parameter]:
        return [] if self.learned is None else [self.learned]

    def _pair_batch(self) -> int:
        return self.config.link.pair_batch

    def inputs(self) -> Tensor:
        """The features of the own vertices, given and learned. [n_own, f]"""
        if self.learned is None:
            return self.x
        return torch.cat([self.x, self.learned], 1) if self.x.shape[1] else self.learned

    def encode(self, noise: Noise | None = None) -> Tensor:
        """H of the own vertices. [n_own, hidden]"""
        return self.model(self.A, self.inputs(), noise)

    def embed_ends(self, ids: Tensor, noise: Noise) -> Tensor:
        """H of these vertices in a training pass, whoever owns them; all ranks call it. [m] → [m, hidden]"""
        h_own = self.encode(noise)
        return Fetch(self.comm, self.owners, ids, distinct=True).rows(h_own)

    def step(self, epoch: int) -> float:
        """One pass over the training pairs, an encoding and an update a batch; the loss on the way."""
        self.model.train()
        total = self.x.new_zeros(())
        for number in range(self.pairs.steps):
            batch = self.pairs.batch(epoch, number)
            turn = self.pairs.turn(epoch, number)
            self.optimiser.zero_grad(set_to_none=True)
            ids, (u, v) = among(self.A.num_nodes, batch.u, batch.v)
            h = self.embed_ends(ids, Noise(self.config.train.seed, turn))
            loss, dh = pair_gradients(
                h, u, v, batch.labels, batch.shares, self.decoder, batch.names,
                (self.config.train.seed, turn),
            )  # fmt: skip
            h.backward(dh)
            self._sum_gradients()
            self.optimiser.step()
            total += loss * (batch.all_true / self.pairs.total)
        return self._tell(total)

    def predict(self, epoch: int | None = None) -> Volume:
        """What this rank receives in one epoch, by default the one that is reported; every rank calls it.

        Which rows are fetched follows from the pairs, which follow from the seed: they are counted here
        without an encoding, and ranks tell each other their counts.
        """
        epoch = min(2, self.config.train.epochs) if epoch is None else epoch
        total, moves = self._summed("loss", 2), self.model.moves(self.A.plain)
        for number in range(self.pairs.steps):
            total = total + self._predict_fetch(self.pairs.batch(epoch, number))
            total = total + self.A.predict_moves(moves)
            total = total + self._summed("grad", self._gradient_words())
        return total

    def _predict_fetch(self, batch: Batch) -> Volume:
        size, one = self.comm.size, [1] * self.comm.size
        ids, _ = among(self.A.num_nodes, batch.u, batch.v)
        need = torch.bincount(self.owners.find(ids)[0], minlength=size)
        give = self.comm.all_to_all(need, one, one, phase="plan").tolist()
        return fetch_volume(need.tolist(), give, self.comm.rank, self.model.widths[-1], backward=True)

    @torch.no_grad()
    def evaluate(self) -> dict[str, float]:
        """Hits@K, MRR and AUC of validation and test pairs, and the validation loss."""
        self.model.eval()
        lists = [self.judged[key] for key in PAIRS]
        scores = dict(zip(PAIRS, self.score(torch.cat(lists)).split([len(x) for x in lists]), strict=True))
        out: dict[str, float] = {}
        for split in ("val", "test"):
            true, false = scores[f"{split}_pairs"], scores[f"{split}_negatives"]
            found = rank(true, false, self.config.link.hits, self.comm)
            out |= {f"{split}_{name}": getattr(found, name) for name in METRICS}
        out["val_loss"] = self._val_loss(scores["val_pairs"], scores["val_negatives"])
        return out

    def _val_loss(self, true: Tensor, false: Tensor) -> float:
        share = torch.zeros(1, dtype=torch.float64)
        for scores, key, label in ((true, "val_pairs", 1.0), (false, "val_negatives", 0.0)):
            labels = torch.full_like(scores, label)
            shares = torch.full_like(scores, 1 / max(1, self.judged_of[key]))
            share += pair_loss(scores, labels, shares).double()
        return float(self.comm.all_reduce(share, phase="metrics")) if self.counts["val"] else float("nan")

    @torch.no_grad()
    def score(self, pairs: Tensor) -> Tensor:
        """The logits of this rank's pairs [m, 2], with the weights as they are; every rank calls it. [m]"""
        self.model.eval()
        ids, (u, v) = among(self.A.num_nodes, pairs[:, 0], pairs[:, 1])
        h = Fetch(self.comm, self.owners, ids, distinct=True).rows(self.encode())
        return pair_scores(h, u, v, self.decoder)

    def embed(self) -> Tensor:
        self.model.eval()
        with torch.no_grad():
            return self.encode()

    def gradients(self) -> dict[str, Tensor]:
        found = super().gradients()
        if self.learned is not None and self.learned.grad is not None:
            found["embeddings"] = self.A.collect(self.learned.grad)
        return found

    def merit(self, metrics: dict[str, float]) -> tuple[float, float]:
        """What the best epoch has most of: the chosen metric on the validation pairs."""
        return metrics[f"val_{self.config.link.best_by}"], -metrics["val_loss"]

    def weights(self) -> dict[str, Tensor]:
        own = {} if self.learned is None else {"embeddings": self.learned.detach().clone()}
        return super().weights() | own

    def save(self, folder: Path) -> None:
        if self.learned is not None:
            write_rows(folder / "embeddings.npy", self.learned, self.A, self.comm)

    def restore(self, weights: dict[str, Tensor]) -> None:
        rest = dict(weights)
        if self.learned is not None:
            with torch.no_grad():
                self.learned.copy_(rest.pop("embeddings"))
        super().restore(rest)


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
            return torch.empty(0, 2, dtype=torch.int64)
        return source.pairs(key, first, first + sizes[part])
    found = getattr(source, key)
    return torch.empty(0, 2, dtype=torch.int64) if found is None else found[first : first + sizes[part]]


def check_linkable(graph: Graph, config: RunConfig) -> None:
    """Refuse what links cannot be learned from, before anything is computed or written."""
    check_link_options(config)
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
    _check_memory(graph, config)


def _check_memory(graph: Graph, config: RunConfig) -> None:
    """A lower bound of what training holds: embeddings, an activation a layer, weights and gradients."""
    model, link = config.model, config.link
    width = embedding_width(graph, config)
    layers = 1 if model.name == "sgc" else model.layers
    decoder = (link.decoder_layers - 1) * model.hidden if link.decoder == "mlp" else 0
    weights = model.hidden * (graph.num_features + width + (layers - 1) * model.hidden + decoder)
    rows = graph.num_nodes * (model.hidden * layers + 2 * width)
    check_fits(
        (4 if config.train.dtype == "float32" else 8) * (rows + 2 * weights),
        f"a model of {layers} layers with hidden={model.hidden} and {width} learned features on "
        f"{graph.num_nodes} vertices",
    )


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
