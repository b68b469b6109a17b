"""One candidate's epoch: the trainer's own step on tensors without numbers, of ranks that need not exist."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..comm import Dry, Ledger
from ..kernels import gather_rows
from ..nn import Model, Noise
from ..nn.layer import data_of
from ..parallel import Operator
from ..parallel.foretell import planned
from ..parallel.grid import AXES
from ..parallel.volume import Volume
from ..train.config import RunConfig
from ..train.encoders import Passed
from ..train.gradients import Gradients
from ..train.metrics import loss_sum
from ..train.placed import Placed
from ..train.task import Step as Update
from ..train.tasks import TASKS
from .cost import Machine, Seconds, Timed, clock, timed
from .cuts import Cut, HostLines
from .record import Draw, Kernel, Pass, Post, Product, Recorder, Step

_ADAM = 7
"""Numbers that an update of Adam reads and writes, a weight."""
_OPTIMISER = 2
"""Numbers that it keeps, a weight."""


@dataclass(frozen=True)
class Rank:
    """What one rank does in a steady epoch."""

    rank: int
    seconds: Seconds
    volume: Volume
    bytes: int
    """Memory at its peak, with what a process needs for itself."""
    operations: int
    """Kernels, products and passes of an epoch."""
    crossing: int = 0
    """Words of rows that come from other hosts."""
    steps: Sequence[Timed] = ()
    """What `seconds` comes of; a batch's are left out."""


@dataclass(frozen=True)
class Work:
    """What is the same for all candidates: the model, the share of vertices that it learns from."""

    config: RunConfig
    model: Model
    """Without numbers."""
    features: int
    train_share: float
    arc_data: dict[str, Tensor]
    """Names and shapes of what entries carry, [0, …]."""

    @property
    def dtype(self) -> torch.dtype:
        found: torch.dtype = getattr(torch, self.config.train.dtype)
        return found

    @property
    def holds(self) -> bool:
        """Whether the first product is kept from one epoch to the next."""
        return not self.model.input_dropout and self.config.train.task == "node"


def foretell_rank(
    work: Work, cut: Cut, exchange: str, rank: int, machine: Machine, overlap: bool = True,
    hosts: HostLines | None = None,
) -> Rank:  # fmt: skip
    """A rank's seconds, words and memory, before it exists."""
    blocks = cut.blocks
    grid = blocks.grid
    model = copy.deepcopy(work.model).train()
    arcs = cut.arcs_of(rank)
    recorder = Recorder()
    with recorder:
        data = {name: work.arc_data[name] for name in data_of(model.layers) if name in work.arc_data}
        A, line = planned(blocks, rank, *cut.lines(rank, exchange, hosts), arcs, data)
        world = Dry.alone(rank, grid.size, "world", beside=line)
        for axis in (A.plan.row, A.plan.inner):
            axis.overlap = overlap
            if exchange == "dense":
                axis.give = None  # whole blocks travel as they lie
        own = blocks.sizes[rank]
        x = torch.empty(own, work.features, dtype=work.dtype, device="meta")
        labels = torch.empty(round(own * work.train_share), dtype=torch.int64, device="meta")
        books, gradients = Ledger(world), _gradients(model, world, work.config)
        if work.holds:
            A.hold(x)
            with torch.no_grad():
                model(A, x, Noise(0, 0))
        else:
            x.requires_grad_(work.config.train.task == "link")
        recorder.forget()
        line.state.notes = recorder
        with books:
            _step(model, A, x, labels, gradients, world)
    recorder.steps.append(optimise(model))
    lines: dict[str, Sequence[int]] = {axis: grid.peers(rank, axis) for axis in AXES}
    lines["world"] = range(grid.size)
    values = 0 if model.adjacency == "none" else 2 * sum(arcs) * work.dtype.itemsize  # of A and of Aᵀ
    steps = list(recorder.steps)  # an evaluation's messages are no part of them
    held = held_bytes(machine, recorder, model) + values + evaluation_bytes(model, A, x)
    done = sum(isinstance(step, Kernel | Product | Draw | Pass) for step in steps)
    looked_up = timed(machine, steps, rank, lines)
    looked_up.append(Timed("work", {"call": machine.profile.update_seconds / machine.share}))
    came = crossing_bytes(machine, steps, rank, lines) // work.dtype.itemsize
    return Rank(rank, clock(looked_up, machine.factors), Volume.of(books), held, done, came, looked_up)


def crossing_bytes(
    machine: Machine, steps: Sequence[Step], rank: int, lines: dict[str, Sequence[int]]
) -> int:
    """Bytes that a rank receives from ranks of other hosts, one by one; sums over all ranks are left out."""
    return sum(
        size
        for step in steps
        if isinstance(step, Post) and step.message.call != "all_reduce"
        for p, size in step.message.received
        if machine.host(lines[step.message.line][p]) != machine.host(rank)
    )


def evaluation_bytes(model: Model, A: Operator, x: Tensor) -> int:
    """What an evaluation takes beside a step, whose buffers, of other sizes, the pool keeps for the next.

    The model's rows without gradients, and those of all splits picked from them.
    """
    with Recorder() as seen, torch.no_grad():
        model.eval()
        rows = model(A, x)
        picked = torch.empty_like(rows)
        del rows, picked
    return seen.peak


def _gradients(model: Model, world: Dry, config: RunConfig) -> Gradients:
    """The trainer's sum of gradients, of weights that every rank has."""
    return Gradients(
        model, Placed(world), None, TASKS[config.train.task].make(config), config.train.clip_norm
    )


def optimise(model: Model) -> Pass:
    """The update: a pass over the weights and what the optimiser keeps of them."""
    return Pass("optimiser", _ADAM * sum(p.nbytes for p in model.parameters()))


def held_bytes(machine: Machine, recorder: Recorder, model: Model) -> int:
    """What a rank has at its peak: its process, tensors, weights, gradients, the optimiser's numbers."""
    weights = sum(p.nbytes for p in model.parameters())
    return machine.profile.idle_bytes + recorder.peak + (2 + _OPTIMISER) * weights


def _step(model: Model, A: Operator, x: Tensor, labels: Tensor, gradients: Gradients, world: Dry) -> None:
    """The trainer's step on the whole graph: forward, loss, back, the sums of gradients and loss."""
    model.zero_grad(set_to_none=True)
    h = model(A, x, Noise(0, 1))
    z = gather_rows(h, labels, distinct=True)
    del h
    loss = loss_sum(z, labels)
    del z
    loss.backward()
    step = Update(labels, lambda rows, model: (loss, loss.backward), Noise(0, 1), 1.0, labels)
    gradients.take(Passed(step, model, loss.detach(), None))
    world.all_reduce(torch.empty(1, dtype=torch.float64, device="meta"), phase="loss")
