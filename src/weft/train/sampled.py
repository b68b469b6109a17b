"""Steps on sampled neighbourhoods: each rank samples for its own seeds, features by pull or by push-pull."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UserError
from ..graph import Graph, Store
from ..graph.guard import check_fits, machine_bytes
from ..minibatch import (
    STALENESS,
    Ahead,
    Batch,
    Block,
    Features,
    Feed,
    Flight,
    Pull,
    PullAhead,
    PushPull,
    Sampler,
    Topology,
    drive,
    fanouts_for,
    parse_bytes,
    parse_fanouts,
    parse_room,
    plan_copies,
    reads_of,
)
from ..minibatch.cache import AtHand, held_parts
from ..minibatch.feeds import check_columns, probe_columns
from ..minibatch.topology import RowsOf, part_bytes
from ..nn import Model
from ..parallel import ByBlocks, Columns, Owners, Rows, counted, redistribute
from ..parallel.propagate import Wrap
from .config import RunConfig
from .encoders import Encoder, Passed, Update, blank_model, not_foretold
from .placed import Placed, cut_names, sliced
from .task import Step, Task

FEEDS = ("pull", "push-pull")
_TRIED = 3
"""Batches whose bytes `--feed auto` counts."""
_INDEX_PHASES = ("frontier", "sample", "push", "ask", "bits")
"""Phases in which vertex numbers travel, not numbers of the model's type."""


class Sampled(Encoder):
    """Sampled neighbourhoods of a step's vertices; features by rows or by columns.

    Batches, samples and dropout follow from the seed alone: losses do not depend on the number of ranks, the
    feed, the partition, nor on copies.
    """

    def __init__(
        self, model: Model, features: Features, layout: Rows, source: Graph | Store, config: RunConfig,
        task: Task,
    ):  # fmt: skip
        super().__init__(model, layout)
        options, comm = config.batch, layout.comm
        self.config, self.seed, self.rows_of_features, self.task = config, config.train.seed, features, task
        if options.cache and features.learned is not None:
            raise UserError("learned features change with every step, nobody keeps them. Leave out --cache.")
        self.owners = ByBlocks(layout.blocks)
        self.said: list[str] = []
        reads, dtype = reads_of(model), features.given.dtype
        fanouts = fanouts_for(model.hops, parse_fanouts(options.fanouts), config.model.layers)
        # Arcs: all of them here, or some parts. Learned features change, so nobody holds copies of them.
        budget = parse_bytes(options.memory_budget) if options.memory_budget else None
        numbers = max(features.now().numel(), source.num_nodes * -(-features.width // comm.size))
        self.copies = plan_copies(
            budget, comm.size, self._largest(part_bytes(source, layout.ids, reads, dtype)),
            self._largest(numbers * features.given.element_size()), whole_groups=options.feed != "pull",
            spare=self._spare() // comm.size,
            fixed=features.learned is None,
        )  # fmt: skip
        whole = self.copies.arcs == comm.size
        parts = None if whole else held_parts(comm.rank, comm.size, self.copies.arcs)
        topology = Topology.read(source, reads, comm, layout.blocks, parts, dtype)
        self.sampler = Sampler(topology, fanouts, self.seed, options.replace, self.owners, comm)
        if options.prefetch and not whole:
            raise UserError(
                f"--prefetch {options.prefetch} draws without messages, but --memory-budget "
                f"{options.memory_budget} leaves arcs on other ranks. Raise it, or leave out --prefetch."
            )
        drawing = self.sampler.beside() if options.prefetch else self.sampler
        self.ahead: Ahead[Step, list[Block]] = Ahead(
            lambda step: self._blocks(drawing, step), options.prefetch, metered=whole
        )
        self._take_lane(self._choose(options.feed, task))
        self._stash: list[Model] = []
        self._begun = self._read = self._ended = 0
        self._resumed: list[dict[str, Tensor]] = []
        self._resumed_rows: list[Tensor] = []
        self._records = False
        self._rows: dict[int, Tensor] = {}
        if options.pipeline:
            self._stash = [copy.deepcopy(self.live) for _ in range(STALENESS + 1)]

    def _largest(self, number: int) -> int:
        told = torch.tensor([number], device="cpu")
        return int(self.layout.comm.all_reduce(told, "max", phase="plan"))

    def _spare(self) -> int:
        """A quarter of the smallest machine's memory: all ranks must decide alike what they hold."""
        return -self._largest(-machine_bytes()) // 4

    # Where features and weights lie.

    def _take_lane(self, lane: tuple[Feed, Model, Placed]) -> None:
        self.feed, self.live, self.placed = lane
        self.features, self.name = self.feed.features, self.feed.name

    def _lane(self, name: str, dry: bool = False) -> tuple[Feed, Model, Placed]:
        """(feed, the weights that it trains, where they lie); `dry`: without moving a feature."""
        comm, copies, given = self.layout.comm, self.copies.features, self.rows_of_features
        if name == "pull":
            owners: Owners = self.owners
            held = held_parts(comm.rank, comm.size, copies)
            row_of = RowsOf(owners, held, self.layout.blocks.sizes)
            features = given
            if copies > 1:
                features, owners = self._with_copies(held, dry), AtHand(owners, comm.rank, row_of)
            at_home, place = copies == comm.size, None
            if self.config.batch.cache and not at_home:
                return PullAhead(comm, features, owners, self._room(features)), self.model, Placed(comm)
            if at_home:  # n rows of features are here, and n places are little beside them
                place = row_of.find(torch.arange(self.layout.count, device="cpu"))
                in_order = torch.equal(place, torch.arange(place.numel(), device=place.device))
                place = None if in_order else place
            return Pull(comm, features, owners, at_home, place), self.model, Placed(comm)
        size = comm.size // copies
        group = comm.split(comm.rank // size, comm.rank, "group")
        twins = comm.split(comm.rank % size, comm.rank, "twins")
        assert group is not None
        columns = Columns(self.layout, group, given.width)
        placed = Placed(comm, columns, cut_names(self.model), group, twins)
        live = sliced(self.model, columns.begin, columns.end)
        return PushPull(columns, self._in_columns(columns, dry), self.sampler), live, placed

    def _room(self, features: Features) -> int:
        """Rows of others that this rank may keep."""
        given, text = features.given, self.config.batch.cache
        row = max(1, given.shape[1] * given.element_size())
        room = parse_room(text, self.layout.count, row)
        if room < 1:
            raise UserError(
                f"--cache {text} has no room for one row of {row} bytes. Use --cache {row} or more."
            )
        check_fits(room * row, f"{room:,} rows of others, kept between batches")
        return room

    def _in_columns(self, columns: Columns, dry: bool) -> Features:
        """The features in columns: [n, |C_p|], those that are learned as a parameter of this rank."""
        both = self.rows_of_features
        split = min(max(both.given.shape[1] - columns.begin, 0), columns.end - columns.begin)
        if dry:
            x = both.given.new_empty(self.layout.count, columns.end - columns.begin, device="meta")
        else:
            x = redistribute(both.now(), self.layout, columns)
        learned = None if both.learned is None else nn.Parameter(x[:, split:].clone())
        return Features(x[:, :split].contiguous(), learned)

    def _with_copies(self, held: list[int], dry: bool) -> Features:
        """The rows of these parts, the own one first."""
        comm, blocks = self.layout.comm, self.layout.blocks
        x = self.rows_of_features.given
        came = [x]
        for k, part in enumerate(held[1:], 1):
            rows = x.new_empty(blocks.sizes[part], x.shape[1])
            if not dry:
                target = (comm.rank - k) % comm.size
                (rows,) = comm.iswap([x.contiguous()], target, [rows], part, phase="plan").wait()
            came.append(rows)
        return Features(torch.cat(came))

    def _choose(self, name: str, task: Task) -> tuple[Feed, Model, Placed]:
        """The feed asked for; `auto` replays the first batches of both and counts bytes: no feature moves."""
        why = check_columns(self.model)
        if name == "push-pull":
            if why:
                raise UserError(f"push-pull cuts the input by columns, and {why}. Use --feed pull.")
            probe_columns(self.model, self.sampler.topology.data)
        if name != "auto":
            return self._lane(name)
        if self.layout.comm.size == 1:
            self.said.append("feed      pull: on one rank nothing travels")
            return self._lane("pull")
        if why:
            self.said.append(f"feed      pull: {why}")
            return self._lane("pull")
        with not_foretold(self.layout.comm) as unknown:
            total = {feed: self._bytes_of_feed(feed, task) for feed in FEEDS}
        if unknown:
            self.said.append(f"feed      pull: {unknown[0]}")
            return self._lane("pull")
        best = min(FEEDS, key=lambda feed: total[feed])
        other = FEEDS[1 - FEEDS.index(best)]
        batches = min(_TRIED, task.steps)
        self.said.append(
            f"feed      {best}: {total[best] / batches / 1e6:,.3f} MB a batch, {other} "
            f"{total[other] / batches / 1e6:,.3f} MB, counted in {batches}"
        )
        if best == "push-pull":
            probe_columns(self.model, self.sampler.topology.data)
        return self._lane(best)

    def _bytes_of_feed(self, name: str, task: Task) -> int:
        """Bytes of the first batches of all ranks; errors behind a ReLU, of which half are 0, count half."""
        lane = self._lane(name, dry=True)
        trial = copy.copy(self)
        trial._stash = []
        trial._take_lane(lane)

        def prepare(wrap: Wrap) -> Callable[[], object]:
            dry = trial.dry(wrap)
            return lambda: dry.run(task.epoch(1, _TRIED), lambda passed: None)

        words = counted(self.layout.comm, prepare).words
        if self.model.rectified and "errors" in words:
            words["errors"] //= 2
        told = torch.tensor([self.bytes_of(words)], device="cpu")
        return int(self.layout.comm.all_reduce(told, phase="plan"))

    def bytes_of(self, words: dict[str, int]) -> int:
        """Bytes of these words: vertex numbers and arcs' types have their size, all else the model's."""
        index = self.sampler.topology.indices.element_size()
        sizes = {**dict.fromkeys(_INDEX_PHASES, index), "arc types": torch.int64.itemsize}
        own = self.rows_of_features.given.element_size()
        return sum(n * sizes.get(p, own) for p, n in words.items())

    # Steps.

    def run(self, steps: Iterable[Step], update: Update) -> None:
        taken: dict[int, Step] = {}
        self._begun = self._read = self._ended = 0
        self._rows.clear()
        self._records = False

        def done(flight: Flight) -> None:
            assert flight.loss is not None
            self._rows.pop(self._ended, None)
            self._ended += 1
            update(Passed(taken.pop(id(flight)), flight.model, flight.loss, flight.learned))

        drive(self._flights(steps, taken), self.feed, done, bool(self._stash), self._begin)

    def _begin(self, flight: Flight) -> None:
        """The phase in which a batch reads learned features: the present ones, or those it read before."""
        learned = self.features.learned
        number, self._read = self._read, self._read + 1
        if learned is None or not (self._resumed_rows or self._records):
            self.feed.begin(flight)
            return
        now = learned.data
        rows = self._resumed_rows.pop(0) if self._resumed_rows else now.clone()
        if self._records:
            self._rows[number] = rows
        learned.data = rows
        try:
            self.feed.begin(flight)
        finally:
            learned.data = now

    def recorded(self) -> bool:
        wanted = range(self._ended, self._read) if self._stash else range(0)
        ready = all(number in self._rows for number in wanted)
        self._records = not ready
        return ready

    def rows_read(self) -> list[Tensor]:
        return [self._rows[number] for number in sorted(self._rows)]

    def under_way(self) -> list[Model]:
        if not self._stash:
            return []
        return [self._stash[number % len(self._stash)] for number in range(self._ended, self._begun)]

    def resume(self, weights: list[dict[str, Tensor]], rows: list[Tensor]) -> None:
        self._resumed, self._resumed_rows = weights, rows

    def _flights(self, steps: Iterable[Step], taken: dict[int, Step]) -> Iterator[Flight]:
        live = self.live
        live.train()
        for number, (step, blocks) in enumerate(self.ahead.over(steps)):
            turn = step.noise.epoch
            if number == 0 and isinstance(self.feed, PullAhead):
                self.feed.plan((s.noise.epoch, self._sources(s)) for s in self.task.coming(step))
            model = live
            if self._stash:
                model = self._stash[number % len(self._stash)]
                model.train()
                took = self._resumed.pop(0) if self._resumed else dict(live.named_parameters())
                with torch.no_grad():
                    for name, kept in model.named_parameters():
                        kept.copy_(took[name])
                self._begun = number + 1
            model.zero_grad(set_to_none=True)
            flight = Flight(Batch(turn, step.ids, blocks), model, step.objective, step.noise)
            taken[id(flight)] = step
            yield flight

    def _blocks(self, sampler: Sampler, step: Step) -> list[Block]:
        return sampler.blocks(step.ids, step.noise.epoch, self.feed.upto(self.live))

    def _sources(self, step: Step) -> Tensor:
        """The vertices whose features a step will read: its sample is drawn, and drawn again when it runs."""
        return self.sampler.blocks(step.ids, step.noise.epoch)[0].sources

    def dry(self, wrap: Wrap) -> Sampled:
        out = copy.copy(self)
        out.sampler, out.feed = self.sampler.dry(wrap), self.feed.dry(wrap)
        out.ahead = Ahead(lambda step: out._blocks(out.sampler, step), 0, metered=False)
        out.live, out.features, out.placed = blank_model(self.live), out.feed.features, self.placed.dry(wrap)
        out.model = blank_model(self.model)
        out._stash = [blank_model(model) for model in self._stash]
        out._resumed, out._resumed_rows, out._records, out._rows = [], [], False, {}
        return out

    @torch.no_grad()
    def settle(self) -> None:
        if self.live is self.model:
            return
        mine = dict(self.live.named_parameters())
        for name, p in self.model.named_parameters():
            p.copy_(self.placed.whole(name, mine[name].detach()))

    @torch.no_grad()
    def learned_rows(self) -> Tensor | None:
        columns = self.placed.columns
        if columns is None or self.features.learned is None:
            return super().learned_rows()
        return self._to_rows(self.features.learned.detach(), columns)

    def _to_rows(self, learned: Tensor, columns: Columns) -> Tensor:
        whole = torch.cat([torch.zeros_like(self.features.given), learned], 1)
        given = columns.width - self._learned_width
        return redistribute(whole, columns, columns.rows, phase="collect")[:, given:]

    @property
    def _learned_width(self) -> int:
        learned = self.rows_of_features.learned
        return 0 if learned is None else learned.shape[1]

    @torch.no_grad()
    def load(self, model: Model, learned: Tensor | None) -> None:
        columns = self.placed.columns
        if columns is None:
            super().load(model, learned)
            return
        for name, p in self.live.named_parameters():
            whole = dict(model.named_parameters())[name]
            p.copy_(whole[columns.begin : columns.end] if name in self.placed.cut else whole)
        if learned is not None and self.features.learned is not None:
            both = torch.cat([self.rows_of_features.given, learned], 1)
            mine = redistribute(both, columns.rows, columns)
            self.features.learned.copy_(mine[:, self.features.given.shape[1] :])

    @torch.no_grad()
    def learned_gradient(self) -> Tensor | None:
        columns, own = self.placed.columns, super().learned_gradient()
        return own if columns is None or own is None else self._to_rows(own, columns)

    def facts(self) -> dict[str, Any]:
        return {
            "feed": self.feed.name, "fanouts": self.sampler.fanouts, "pipeline": bool(self._stash),
            "copies": self.copies.as_dict(), "said": self.said,
            "prefetch": self.ahead.ahead,
            **({"cache": self.feed.room} if isinstance(self.feed, PullAhead) else {}),
        }  # fmt: skip

    def notes(self, batches: str) -> list[str]:
        fanouts = ",".join("all" if f < 0 else str(f) for f in self.sampler.fanouts)
        line = (
            f"sampling  {batches}, fan-outs {fanouts}, "
            f"{self.feed.name} feed{', pipelined' if self._stash else ''}"
            f"{f', {self.ahead.ahead} drawn ahead' if self.ahead.ahead else ''}"
        )
        if self.layout.comm.size > 1:
            held = self.copies
            line += f"; a rank holds {held.arcs} parts of arcs and {held.features} of features"
        if isinstance(self.feed, PullAhead):
            line += f"; it keeps up to {self.feed.room:,} rows of others for coming batches"
        return [line, *self.said]
