"""Epochs in sampled batches, foretold: how large blocks are expected to be, what each feed then moves.

    seeds      a rank's share of a batch, b / P: each vertex with probability p_v = b / (P n)
    arcs       m = Σ over v of p_v min(fan-out, d_v)
    sources    those, and whom they pick: 1 − p′_v = (1 − p_v) exp(−m_v), m_v = Σ over u that read v of
               p_u min(1, fan-out / d_u); without the arcs m_v = m c_v / Σ c, c_v how often v is read
    pull       rows of X that others own: s₀ (P − 1) / P of width f; as many numbers of vertices each way
    push-pull  targets of all ranks; sums [t₁, h₁] of all others but what dropout takes; their errors back,
               behind a ReLU half of them

The rest, forward and back through the blocks, is the model's own code on tensors without numbers. These are
expectations, not exact to the word as on the whole graph: arcs that lead back to where a batch came from make
its input smaller, by a sixth on a Kronecker graph of 2,048 vertices.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ..comm import Dry, Ledger
from ..comm.ledger import Message
from ..kernels import CSR
from ..minibatch import fanouts_for, parse_fanouts
from ..minibatch.feeds import check_columns
from ..nn import Noise
from ..parallel import Operator
from ..parallel.volume import Volume
from ..train.metrics import loss_sum
from ..train.placed import cut_names
from ..train.sampled import FEEDS
from .cost import Machine, run
from .cuts import Shape
from .foretell import Rank, Work, held_bytes, optimise
from .record import Draw, Kernel, Pass, Post, Product, Recorder

_SAMPLED = 200_000
"""Vertices whose degrees are looked at, of a graph whose arcs are not."""


@dataclass(frozen=True)
class BlockSize:
    """One hop of a batch: [targets, sources] with so many arcs."""

    targets: int
    sources: int
    arcs: int


def block_sizes(shape: Shape, fanouts: Sequence[int], seeds: int, loops: bool) -> list[BlockSize]:
    """The blocks of a rank's seeds, that of the input first; `fanouts` begin next to the seeds.

    >>> block_sizes(Shape(10**9, 10**10, 1, 1), [3, 2], 100, loops=False)
    [BlockSize(targets=400, sources=1200, arcs=800), BlockSize(targets=100, sources=400, arcs=300)]
    """
    rows, columns = _degrees(shape)
    graph = shape.graph
    each = shape.vertices / len(rows)  # vertices that one of the looked at stands for
    share = columns / max(columns.sum() * each, 1e-12)
    found: list[BlockSize] = []
    here = np.full(len(rows), min(1.0, seeds / shape.vertices))
    for fanout in fanouts:
        taken = rows if fanout < 0 else np.minimum(rows, fanout)
        targets, picks = each * here.sum(), each * float((here * taken).sum())
        if graph is None:
            picked = picks * share
        else:
            weight = here * taken / np.maximum(rows, 1)
            picked = np.bincount(
                graph.indices.numpy(), np.repeat(weight, rows.astype(np.int64)), minlength=len(rows)
            )
        here = 1 - (1 - here) * np.exp(-picked)
        arcs = picks + (targets if loops else 0)
        found.append(BlockSize(round(targets), round(each * here.sum()), round(arcs)))
    return found[::-1]


def _degrees(shape: Shape) -> tuple[np.ndarray, np.ndarray]:
    """(degree, how often it is read) of some vertices, as floats."""
    rows, columns = (np.asarray(side, dtype=np.float64) for side in shape.degrees)
    if shape.graph is None and len(rows) > _SAMPLED:
        some = np.random.default_rng(0).integers(len(rows), size=_SAMPLED)
        rows, columns = rows[some], columns[some]
    return rows, columns


def foretell_feed(work: Work, shape: Shape, feed: str, machine: Machine) -> Rank:
    """A rank's epoch under a feed; all ranks are alike."""
    config, ranks = work.config, machine.ranks
    model = copy.deepcopy(work.model).train()
    fanouts = fanouts_for(model.hops, parse_fanouts(config.batch.fanouts), config.model.layers)
    seeds_of_all = max(1, round(shape.vertices * work.train_share))
    batch = min(config.batch.batch_size, seeds_of_all)
    steps, seeds = -(-seeds_of_all // batch), max(1, round(batch / ranks))
    sizes = block_sizes(shape, fanouts, seeds, loops=bool(shape.loops(model.adjacency)))
    world = Dry.alone(0, ranks, "world")
    recorder = Recorder()
    with recorder:
        features = torch.empty(-(-shape.vertices // ranks), work.features, dtype=work.dtype, device="meta")
        recorder.forget()
        world.state.notes = recorder
        with Ledger(world) as books:
            x = torch.empty(sizes[0].sources, work.features, dtype=work.dtype, device="meta")
            labels = torch.empty(seeds, dtype=torch.int64, device="meta")
            loss = loss_sum(model([_block(size) for size in sizes], x, Noise(0, 1)), labels)
            loss.backward()
            # Weights that are cut with the columns are nobody else's; two words more: who stops, what is odd.
            cut = set(cut_names(model)) if feed == "push-pull" else set()
            flat = sum(p.numel() for name, p in model.named_parameters() if name not in cut) + 2
            world.all_reduce(torch.empty(flat, dtype=work.dtype, device="meta"), phase="grad")
        del features
    messages, words = _messages(feed, sizes, work, ranks)
    each = machine.profile.kernels["sample"]
    drawn = sum(
        size.arcs * each.at(fanout=max(1, size.arcs / max(1, size.targets))) for size in sizes
    ) * machine.slower  # fmt: skip
    notes = [*messages, *recorder.steps, optimise(model)]
    seconds = run(machine, notes, 0, {"world": range(ranks)}).scaled(
        steps, drawn + machine.profile.update_seconds
    )
    whole = Volume.of(books) + Volume(words, {phase: ranks - 1 for phase in words if ranks > 1})
    volume = Volume(
        *({phase: n * steps for phase, n in side.items()} for side in (whole.words, whole.messages))
    )
    arcs = 8 * shape.vertices + shape.arcs * (
        4 if shape.vertices < 2**31 else 8
    )  # all of them, on every rank
    done = steps * sum(isinstance(note, Kernel | Product | Draw | Pass) for note in notes)
    return Rank(0, seconds, volume, held_bytes(machine, recorder, model) + arcs, done)


def _block(size: BlockSize) -> Operator:
    def ids(count: int) -> torch.Tensor:
        return torch.empty(count, dtype=torch.int64, device="meta")

    matrix = CSR.blank((size.targets, size.sources), size.arcs)
    return Operator.local(matrix, ids(size.targets), ids(size.sources))


def _messages(
    feed: str, sizes: Sequence[BlockSize], work: Work, ranks: int
) -> tuple[list[Post], dict[str, int]]:
    """(what a batch posts, words by phase that it receives)."""
    others, float_bytes = ranks - 1, work.dtype.itemsize
    if not others:
        return [], {}
    if feed == "pull":
        rows = sizes[0].sources // ranks  # of each owner
        found = {"ask": (rows, 8), "pull": (rows * work.features, float_bytes)}
    else:
        model = work.model
        kept = 1 - model.dropout if model.entrywise else 1.0
        sums = round(sizes[0].targets * model.widths[1] * kept)
        found = {
            "push": (sizes[0].targets, 8), "pull": (sums, float_bytes),
            "errors": (sums // 2 if model.rectified else sums, float_bytes),
        }  # fmt: skip

    def post(number: int, size: int) -> Post:
        peers = tuple((p, size) for p in range(1, ranks))
        return Post(-1 - number, Message("all_to_all", "world", peers, peers, ranks), blocking=True)

    posts = [post(number, words * each) for number, (words, each) in enumerate(found.values())]
    return posts, {phase: words * others for phase, (words, _) in found.items()}


def feeds(work: Work, asked: str) -> tuple[list[str], list[str]]:
    """(the feeds to compare, notes of those that are left out)."""
    why = check_columns(work.model)
    names = [feed for feed in FEEDS if asked in ("auto", feed)]
    if why and "push-pull" in names:
        return [feed for feed in names if feed != "push-pull"], [f"push-pull: {why}"]
    return names, []
