"""Training in sampled mini-batches; the evaluation stays exact and full-graph."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..comm import Communicator, Ledger, ledger
from ..errors import UserError, unknown
from ..graph import Graph, Store
from ..kernels import Stream
from ..minibatch import (
    STALENESS,
    Batch,
    Feed,
    Flight,
    Pull,
    PushPull,
    Sampler,
    Stack,
    Topology,
    Upto,
    drive,
    fanouts_for,
    parse_bytes,
    parse_fanouts,
    plan_copies,
)
from ..minibatch.cache import AtHand, held_parts
from ..minibatch.feeds import columns_of
from ..minibatch.topology import index_bytes, part_bytes
from ..parallel import Blocks, ByBlocks, Owners, Volume
from .config import BatchConfig, RunConfig
from .metrics import loss_sum
from .optimise import Schedule, optimiser
from .trainer import Trainer

FEEDS = ("pull", "push-pull")
_TRIED = 3
"""Batches whose bytes `--feed auto` counts."""
_ORDER = 999
"""The stream of the order of seeds; hops are numbered from 1000."""
_INDEX_PHASES = ("frontier", "sample", "push", "ask", "bits")
"""Phases in which vertex numbers travel, not numbers of the model's type."""


def check_batches(config: RunConfig) -> None:
    """Refuse settings of mini-batches that suit no graph.

    >>> config = RunConfig()
    >>> config.batch.batch_size = -1
    >>> check_batches(config)
    Traceback (most recent call last):
        ...
    weft.errors.UserError: batch_size must be at least 0, not -1. Use 0 for the whole graph in every step.
    """
    options = config.batch
    if options.batch_size < 0:
        raise UserError(
            f"batch_size must be at least 0, not {options.batch_size}. "
            "Use 0 for the whole graph in every step."
        )
    if options.feed not in (*FEEDS, "auto"):
        raise unknown("feed", options.feed, [*FEEDS, "auto"])
    if options.batch_size:
        fanouts_for(config.model.layers, parse_fanouts(options.fanouts))
    else:
        given = [f.name for f in fields(BatchConfig) if getattr(options, f.name) != f.default]
        if given:
            raise UserError(
                f"{given[0]} is for mini-batches, the whole graph is in every step here. "
                "Add --batch-size 1000, or leave it out."
            )
    if options.memory_budget:
        parse_bytes(options.memory_budget)
    cuts = options.batch_size and options.feed != "pull" and config.train.task == "node"
    if cuts and config.train.clip_norm:
        raise UserError(
            "clip_norm needs whole gradients, push-pull cuts the first. Use --feed pull, or --clip-norm 0."
        )
    if cuts and config.train.optimizer == "adafactor":
        raise UserError("adafactor needs whole weights, push-pull cuts the first. Use --feed pull, or adam.")


@dataclass
class Lane:
    """A feed and the weights that it trains."""

    feed: Feed
    live: Stack
    """The model itself, or a copy whose first layer has only this rank's rows of its weights."""
    cut: list[str] = field(default_factory=list)
    """The parameters that are cut; `group` holds their parts, `twins` the copies of this rank's."""
    group: Communicator | None = None
    twins: Communicator | None = None


class SampledTrainer(Trainer):
    """Trains on samples of neighbourhoods: an epoch passes once over the training vertices, batch by batch.

    Batches, samples and dropout follow from the seed alone: the losses do not depend on the number of ranks,
    the feed, the partition, nor on copies.

    >>> from weft.graph import load
    >>> config = RunConfig()
    >>> config.batch.batch_size, config.batch.fanouts = 8, "5,3"
    >>> config.train.epochs, config.model.name, config.model.hidden = 20, "sage", 8
    >>> result = SampledTrainer(load("karate"), config).fit()
    >>> result.loss[-1] < result.loss[0]
    True
    """

    def __init__(self, source: Graph | Store, config: RunConfig, comm: Communicator | None = None):
        check_batches(config)
        super().__init__(source, config, comm)
        options, comm = config.batch, self.comm
        self.seed = config.train.seed
        stack = Stack(self.model)
        fanouts = fanouts_for(len(stack.tags), parse_fanouts(options.fanouts))
        self.blocks: Blocks = self.A.blocks
        self.owners = ByBlocks(self.blocks)
        self._take_seeds()
        self.said: list[str] = []
        self.batch_size = min(options.batch_size, self.train_ids.numel())
        if self.batch_size < options.batch_size:
            self.said.append(
                f"batches   of {self.batch_size:,}: --batch-size {options.batch_size:,} is more than the "
                f"{self.batch_size:,} training vertices"
            )
        # Arcs: all of them here, or some parts.
        budget = parse_bytes(options.memory_budget) if options.memory_budget else None
        numbers = max(self.x.numel(), source.num_nodes * -(-source.num_features // comm.size))
        self.copies = plan_copies(
            budget, comm.size, self._largest(part_bytes(source, self.A.rows, stack.reads, self.x.dtype)),
            self._largest(numbers * self.x.element_size()), whole_groups=options.feed != "pull",
            spare=self._spare() // comm.size, index=index_bytes(source),
        )  # fmt: skip
        whole = self.copies.arcs == comm.size
        parts = None if whole else held_parts(comm.rank, comm.size, self.copies.arcs)
        topology = Topology.read(source, stack.reads, comm, self.blocks, parts, self.x.dtype)
        self.sampler = Sampler(topology, fanouts, self.seed, options.replace, self.owners, comm)

        self._foretold = Volume()
        self._stash: list[Stack] = []
        self.lane = self._choose(options.feed)
        live = self.lane.live
        self.optimiser = optimiser(live.model, config.train)
        self.schedule = Schedule(self.optimiser, config.train)
        if options.pipeline:
            self._stash = [Stack(copy.deepcopy(live.model)) for _ in range(STALENESS + 1)]

    # What lies where.

    def _take_seeds(self) -> None:
        """Everybody knows the training vertices and their order; a seed belongs to its vertex's owner."""
        own = self.A.rows[self.rows["train"]]
        sizes = [0] * self.comm.size
        sizes[self.comm.rank] = own.numel()
        sizes = self.comm.all_reduce(torch.tensor(sizes), phase="plan").tolist()
        self.train_ids = self.comm.all_gather(own, sizes, phase="plan").sort().values
        self._is_own = self.owners.find(self.train_ids)[0] == self.comm.rank
        self._own_ids, order = own.sort()
        self._own_labels = self.labels["train"][order]

    def _lane(self, name: str) -> Lane:
        comm, copies = self.comm, self.copies.features
        if name == "pull":
            owners: Owners = self.owners
            x, place = self.x, self.blocks.place_of
            at_home = copies == comm.size
            if copies > 1:
                x, place = self._with_copies(copies)
                owners = AtHand(owners, comm.rank, place)
            in_order = torch.equal(place, torch.arange(place.numel()))
            pull = Pull(comm, x, owners, at_home, place if at_home and not in_order else None)
            return Lane(pull, Stack(self.model))
        size = comm.size // copies
        group = comm.split(comm.rank // size, comm.rank, "group")
        twins = comm.split(comm.rank % size, comm.rank, "twins")
        assert group is not None
        x, columns = columns_of(self.x, self.blocks.order, self.blocks.sizes, comm, group)
        feed, whole = PushPull(group, x, columns, self.sampler), Stack(self.model)
        begin = feed.first_column
        return Lane(feed, whole.slice(begin, begin + columns[group.rank]), whole.cut, group, twins)

    def _with_copies(self, copies: int) -> tuple[Tensor, Tensor]:
        """(rows of the own part and of those that follow, [n] the row of each vertex or −1)."""
        comm, held = self.comm, held_parts(self.comm.rank, self.comm.size, copies)
        width = self.x.shape[1]
        came = [self.x]
        for k, part in enumerate(held[1:], 1):
            rows = torch.empty(self.blocks.sizes[part], width, dtype=self.x.dtype)
            take = comm.irecv(rows, part, phase="plan")
            comm.isend(self.x.contiguous(), (comm.rank - k) % comm.size, phase="plan").wait()
            came.append(take.wait())
        row_of = torch.full((self.blocks.order.numel(),), -1, dtype=torch.int64)
        vertices = torch.cat([self.owners.own(part) for part in held])
        row_of[vertices] = torch.arange(vertices.numel())
        return torch.cat(came), row_of

    def _choose(self, name: str) -> Lane:
        """The feed asked for; `auto` runs the first batches through both and counts their bytes."""
        if name != "auto":
            return self._lane(name)
        if self.comm.size == 1:
            self.said.append("feed      pull: on one rank nothing travels")
            return self._lane("pull")
        tried = {}
        for candidate in FEEDS:
            lane = self._lane(candidate)
            with Ledger(self.comm) as books:
                drive(self._flights(1, lane, most=_TRIED), lane.feed, partial(self._sum, lane=lane))
            tried[candidate] = lane, self.bytes_of({p: books.words(p) for p in books.phases})
            lane.live.model.zero_grad(set_to_none=True)
        total = {name: int(self.comm.all_reduce(torch.tensor([count]), phase="plan"))
                 for name, (_, count) in tried.items()}  # fmt: skip
        best = min(FEEDS, key=lambda feed: total[feed])
        other = FEEDS[1 - FEEDS.index(best)]
        batches = min(_TRIED, self.num_batches)
        self.said.append(
            f"feed      {best}: {total[best] / batches / 1e6:,.3f} MB a batch, {other} "
            f"{total[other] / batches / 1e6:,.3f} MB, counted in {batches}"
        )
        return tried[best][0]

    def bytes_of(self, words: dict[str, int]) -> int:
        """Bytes of these words: vertex numbers have their size, all else the model's."""
        index = self.sampler.topology.indices.element_size()
        return sum(n * (index if p in _INDEX_PHASES else self.x.element_size()) for p, n in words.items())

    # An epoch.

    @property
    def num_batches(self) -> int:
        return -(-self.train_ids.numel() // self.batch_size)

    def batch(self, epoch: int, number: int, order: Tensor | None = None, upto: Upto = "labels") -> Batch:
        """A batch of an epoch: this rank's share of it, with its blocks."""
        order = self.order(epoch) if order is None else order
        part = order[number * self.batch_size : (number + 1) * self.batch_size]
        seeds = self.train_ids[part[self._is_own[part]]]
        step = (epoch - 1) * self.num_batches + number
        return Batch(step, seeds, part.numel(), self.sampler.blocks(seeds, step, upto))

    def order(self, epoch: int) -> Tensor:
        """The training vertices of an epoch, shuffled; the same on every rank."""
        generator = torch.Generator().manual_seed(Stream(self.seed, epoch, _ORDER).key >> 1)
        return torch.randperm(self.train_ids.numel(), generator=generator)

    def _flights(self, epoch: int, lane: Lane, most: int | None = None) -> Iterator[Flight]:
        feed, live = lane.feed, lane.live
        order = self.order(epoch)
        live.model.train()
        for number in range(min(self.num_batches, most or self.num_batches)):
            batch = self.batch(epoch, number, order, feed.upto)
            stack = live
            if self._stash:
                stack = self._stash[number % len(self._stash)]
                stack.model.train()
                with torch.no_grad():
                    for kept, p in zip(stack.model.parameters(), live.model.parameters(), strict=True):
                        kept.copy_(p)
            stack.model.zero_grad(set_to_none=True)
            labels = self._own_labels[torch.searchsorted(self._own_ids, batch.seeds)]
            share = max(1, batch.size)
            yield Flight(batch, stack, lambda z, y=labels, n=share: loss_sum(z, y) / n, self.seed)  # type: ignore[misc]

    def _update(self, flight: Flight) -> None:
        self._sum(flight, self.lane)
        self._clip([list(self.lane.live.model.parameters())])
        self.optimiser.step()
        assert flight.loss is not None
        self._loss += float(flight.loss.detach()) * flight.batch.size

    def _sum(self, flight: Flight, lane: Lane) -> None:
        """The batch's gradients, summed over the ranks, into the live weights; cut ones over copies alone."""
        flown = dict(flight.stack.model.named_parameters())
        for names, comm in self._shared(lane):
            parameters = [(name, p) for name, p in lane.live.model.named_parameters() if name in names]
            flat = torch.cat([_gradient(flown[name]).reshape(-1) for name, _ in parameters])
            comm.all_reduce(flat, out=flat, phase="grad")
            for (_, p), part in zip(parameters, flat.split([p.numel() for _, p in parameters]), strict=True):
                p.grad = part.view_as(p)

    def _shared(self, lane: Lane) -> list[tuple[set[str], Communicator]]:
        """Which parameters are summed among whom."""
        names = {name for name, _ in lane.live.model.named_parameters()}
        out = [(names - set(lane.cut), self.comm)]
        if lane.cut and lane.twins is not None:
            out.append((set(lane.cut), lane.twins))
        return out

    def step(self, epoch: int) -> float:
        """One epoch; the mean loss of its batches, each before its update."""
        lane = self.lane
        self.forget()
        self.train_batches(epoch)
        self._whole(lane)
        total = self._tell(torch.tensor(self._loss, dtype=torch.float64))
        if epoch <= 2:
            self._foretold = self._foretell_epoch()
        return total / self.train_ids.numel()

    def forget(self) -> None:
        """Begin the formulas' count of what is received anew."""
        self.lane.feed.moved, self.sampler.moved = Volume(), Volume()

    def train_batches(self, epoch: int, most: int | None = None) -> None:
        """The batches of an epoch, or the first of them, with their updates."""
        self._loss = 0.0
        drive(self._flights(epoch, self.lane, most), self.lane.feed, self._update, bool(self._stash))

    @torch.no_grad()
    def _whole(self, lane: Lane) -> None:
        """The model with whole weights again, for the evaluation and the run folder."""
        if lane.group is None:
            return
        mine = dict(lane.live.model.named_parameters())
        for name, p in self.model.named_parameters():
            p.copy_(self._joined(name, mine[name].detach()))

    def _joined(self, name: str, own: Tensor) -> Tensor:
        """A weight or gradient as a whole, from everybody's rows where it is cut."""
        lane = self.lane
        if lane.group is None or name not in lane.cut:
            return own
        assert isinstance(lane.feed, PushPull)
        return lane.group.all_gather(own.contiguous(), lane.feed.columns, phase="collect")

    def gradients(self) -> dict[str, Tensor]:
        """Those of the last batch, whole."""
        named = self.lane.live.model.named_parameters()
        return {name: self._joined(name, _gradient(p)).clone() for name, p in named}

    def foretell(self, batches: int) -> Volume:
        """What this rank receives in the batches run since `forget`, by formulas over their blocks' sizes."""
        volume = self.sampler.moved + self.lane.feed.moved
        sizes = {name: p.numel() for name, p in self.lane.live.model.named_parameters()}
        for names, comm in self._shared(self.lane):
            words = sum(sizes[name] for name in names)
            for _ in range(batches):
                volume.add("grad", ledger.all_reduce(words, comm.rank, comm.size))
        return volume

    def _foretell_epoch(self) -> Volume:
        """The same of the whole epoch, with the weights put together and the loss told at its end."""
        lane, volume = self.lane, self.foretell(self.num_batches)
        if lane.group is not None and isinstance(lane.feed, PushPull):
            for name, p in self.model.named_parameters():
                if name in lane.cut:
                    words_each = [rows * p[0].numel() for rows in lane.feed.columns]
                    volume.add("collect", ledger.all_gather(words_each, lane.group.rank))
        volume.add("loss", ledger.all_reduce(2, self.comm.rank, self.comm.size))
        return volume

    def predict(self) -> Volume:
        """What this rank received in its second epoch (the first, where there was one), by formula."""
        return self._foretold

    def facts(self) -> dict[str, Any]:
        return {
            "feed": self.lane.feed.name, "batch_size": self.batch_size, "batches": self.num_batches,
            "fanouts": self.sampler.fanouts, "pipeline": bool(self._stash), "copies": self.copies.as_dict(),
            "said": self.said,
            "received_bytes": self.comm.all_gather_json(self.bytes_of(self._foretold.words)),
        }  # fmt: skip

    def notes(self) -> list[str]:
        """Lines for people, in the manner of the heading."""
        fanouts = ",".join("all" if f < 0 else str(f) for f in self.sampler.fanouts)
        line = (
            f"sampling  {self.num_batches:,} batches of {self.batch_size:,}, fan-outs {fanouts}, "
            f"{self.lane.feed.name} feed{', pipelined' if self._stash else ''}"
        )
        if self.comm.size > 1:
            held = self.copies
            line += f"; a rank holds {held.arcs} parts of arcs and {held.features} of features"
        return [line, *self.said]


def _gradient(p: Tensor) -> Tensor:
    return torch.zeros_like(p) if p.grad is None else p.grad
