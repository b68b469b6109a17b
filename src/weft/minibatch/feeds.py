"""Two ways to feed the first layer, on the same samples: pull rows, or push the block and pull what it gives.

A batch goes through phases, each ending where something must travel:

              pull                                    push-pull (P³)
    push                                              ~ the input block travels to all ranks
    begin     ask owners for rows of X                partial sums with own columns
              ~ rows travel                           ~ partial sums travel to the batch's owner, added up
    forward   first layer, the rest, the loss         apply, the rest, the loss
    backward  all gradients                           gradients down to the first sync
                                                      ~ its error travels to all ranks
    finish                                            gradients of own rows of W₁

~ is a non-blocking message: between its post and its wait other batches may compute (`pipeline`). What is
waited for at once: how much each rank will send, a hop of sampling over parts, and GAT's sync.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..comm import Communicator, ledger
from ..kernels.function import Function
from ..parallel import Fetch, Owners, Volume
from ..parallel.blocks import even_sizes, starts
from .block import Batch, Block
from .sampler import Sampler, Upto
from .stack import Stack
from .tags import Hop


@dataclass
class Flight:
    """A batch under way, with the weights that all its phases use."""

    batch: Batch
    stack: Stack
    objective: Callable[[Tensor], Tensor]
    """From the seeds' logits to this rank's share of the batch's loss."""
    seed: int
    state: dict[str, Any] = field(default_factory=dict)
    loss: Tensor | None = None


class Feed:
    """What both have in common: the phases, and what they receive by formula."""

    name = ""

    @property
    def upto(self) -> Upto:
        """How much of its input's block a batch must come with."""
        raise NotImplementedError

    def __init__(self) -> None:
        self.moved = Volume()
        """What this rank received so far, by closed formulas over the sizes of the batches' blocks."""

    def push(self, flight: Flight) -> None:
        """Post what must arrive before `begin`."""

    def begin(self, flight: Flight) -> None:
        raise NotImplementedError

    def forward(self, flight: Flight) -> None:
        raise NotImplementedError

    def backward(self, flight: Flight) -> None:
        raise NotImplementedError

    def finish(self, flight: Flight) -> None:
        raise NotImplementedError

    def _loss(self, flight: Flight, t: Tensor) -> None:
        flight.loss = flight.objective(flight.stack.rest(t, flight.batch, flight.seed))


class Pull(Feed):
    """Features lie by rows; a batch fetches the rows that its input block reads.

    x_own    [rows, f]   the rows at hand: the own part first, then copies of others
    owners   who has the rest
    at_home  whether every vertex's row is at hand: then nothing is copied, nothing travels
    place_of [n] the row of each vertex, where `at_home`; None: row v is vertex v
    """

    name = "pull"

    def __init__(
        self, comm: Communicator, x_own: Tensor, owners: Owners, at_home: bool, place_of: Tensor | None = None
    ):
        super().__init__()
        self.comm, self.x_own, self.owners = comm, x_own, owners
        self.at_home, self.place_of = at_home, place_of

    @property
    def upto(self) -> Upto:
        return "picks" if self.at_home else "labels"

    def begin(self, flight: Flight) -> None:
        if self.at_home:
            return
        plan = Fetch(self.comm, self.owners, flight.batch.blocks[0].sources, distinct=True)
        self.moved = self.moved + plan.predict(self.x_own.shape[1])
        flight.state.update(plan=plan, rows=plan.post(self.x_own))

    def forward(self, flight: Flight) -> None:
        block = flight.batch.blocks[0]
        if self.at_home:
            hop, x = Hop.direct(block, self.x_own.shape[0], self.place_of), self.x_own
        else:
            hop, x = Hop.compact(block), flight.state["plan"].take(flight.state["rows"])
        self._loss(flight, flight.stack.partial(hop, x, 0, lambda t: t))

    def backward(self, flight: Flight) -> None:
        assert flight.loss is not None
        flight.loss.backward()

    def finish(self, flight: Flight) -> None:
        flight.state.clear()


class _Sum(Function):
    """S = Σ_p s_p on every rank; backward: the sum of everybody's gradients, as everybody used S."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, comm: Communicator) -> Tensor:
        ctx.comm = comm
        return comm.all_reduce(x.detach().contiguous(), phase="scores")

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.comm.all_reduce(grads[0].contiguous(), phase="scores"), None


class PushPull(Feed):
    """Features lie by columns; the input blocks travel instead of them (Gandhi and Iyer, OSDI '21).

        comm     the ranks that share one copy of the features
        x_cols   [n, |C_p|]  this rank's columns, all vertices
        columns  sizes of the blocks of columns; some are empty where features are fewer than ranks

    The picks of a vertex follow from the seed, so where everybody has all arcs the targets alone are pushed,
    and each rank picks their neighbours itself. After ReLU and dropout most errors are 0, and which
    activations are dropped everybody knows: neither travels.
    """

    name = "push-pull"

    def __init__(self, comm: Communicator, x_cols: Tensor, columns: Sequence[int], sampler: Sampler):
        super().__init__()
        self.comm, self.x_cols, self.columns, self.sampler = comm, x_cols, list(columns), sampler
        self.first_column = starts(self.columns)[comm.rank]

    @property
    def upto(self) -> Upto:
        # Where every rank has the arcs, `begin` picks, for everybody.
        return "targets" if self.sampler.topology.replicated else "picks"

    # *post the block*

    def push(self, flight: Flight) -> None:
        comm, me, own = self.comm, self.comm.rank, flight.batch.blocks[0]
        whole = self.sampler.topology.replicated
        told = own.targets.new_tensor([own.targets.numel()] if whole else [own.targets.numel(), own.arcs])
        facts = comm.all_gather(told, [told.numel()] * comm.size, phase="push").view(comm.size, -1)
        self.moved.add("push", ledger.all_gather([told.numel()] * comm.size, me))
        sizes, arcs = facts[:, 0].tolist(), facts[:, -1].tolist()
        lists = [(own.targets, sizes, "push")]
        if not whole:
            lists += [
                (own.indptr.diff().to(own.targets.dtype), sizes, "push"),
                (own.neighbours, arcs, "push"),
            ]
            if own.values is not None:
                lists.append((own.values, arcs, "weights"))
        flight.state.update(
            sizes=sizes, block=[comm.iall_gather(x.contiguous(), s, phase=phase) for x, s, phase in lists]
        )
        for _, s, phase in lists:
            self.moved.add(phase, ledger.all_gather(s, me))

    def _blocks_of_all(self, flight: Flight) -> Block:
        """The blocks of all ranks, one below the other."""
        came, sampler = [request.wait() for request in flight.state.pop("block")], self.sampler
        if sampler.topology.replicated:
            # Each rank picks for all: the last hop of everybody's batch, by the same random numbers.
            return sampler.hop(came[0], flight.batch.step, len(sampler.fanouts) - 1)
        indptr = torch.cat([came[1].new_zeros(1, dtype=torch.int64), came[1].long().cumsum(0)])
        return sampler.block(came[0], indptr, came[2], came[3] if len(came) > 3 else None)

    # *partial sums, post*

    def begin(self, flight: Flight) -> None:
        stack, step, sizes = flight.stack, flight.batch.step, flight.state["sizes"]
        block = self._blocks_of_all(flight)
        hop = Hop.direct(block, self.x_cols.shape[0])
        partial = stack.partial(hop, self.x_cols, self.first_column, self._sync)
        kept = stack.kept(block.targets, step, flight.seed)
        width = partial.shape[1]
        rows = partial.detach().contiguous().view(-1) if kept is None else _take(partial.detach(), kept)
        words = _counts(kept, sizes, width)
        request = self.comm.ireduce_scatter(rows, words, phase="pull")
        flight.state.update(partial=partial, kept=kept, words=words, rows=request)
        self.moved.add("pull", ledger.reduce_scatter(words, self.comm.rank))

    def _sync(self, t: Tensor) -> Tensor:
        """Partial numbers that must be whole on every rank: a sync inside the first layer."""
        traffic = ledger.all_reduce(t.numel(), self.comm.rank, self.comm.size)
        for _ in range(2):  # its gradients take the same way
            self.moved.add("scores", traffic)
        return _Sum.apply(t, self.comm)

    def forward(self, flight: Flight) -> None:
        state, me = flight.state, self.comm.rank
        width = state["partial"].shape[1]
        t = state["rows"].wait()
        if state["kept"] is None:
            t = t.view(-1, width)
        else:
            mask = state["kept"].split(state["sizes"])[me]
            t = _put(t, mask)
        state["t"] = t.requires_grad_()
        self._loss(flight, state["t"])

    # *post the errors: where they are not 0, then their values*

    def backward(self, flight: Flight) -> None:
        assert flight.loss is not None
        flight.loss.backward()
        state, comm = flight.state, self.comm
        error: Tensor = state.pop("t").grad
        words: list[int] = state["words"]
        mask = None if state["kept"] is None else state["kept"].split(state["sizes"])[comm.rank]
        error = error.reshape(-1) if mask is None else _take(error, mask)
        if not flight.stack.rectified:
            state["error"] = comm.iall_gather(error, words, phase="errors")
            self.moved.add("errors", ledger.all_gather(words, comm.rank))
            return
        there = error != 0
        values = _take(error, there)
        one = [1] * comm.size
        counts = comm.all_gather(
            torch.tensor([values.numel()], dtype=torch.int32), one, phase="bits"
        ).tolist()
        spans = [math.ceil(count / 32) for count in words]
        state["bits"] = comm.iall_gather(_pack(there), spans, phase="bits")
        state["error"] = comm.iall_gather(values, counts, phase="errors")
        self.moved.add("bits", ledger.all_gather(one, comm.rank))
        self.moved.add("bits", ledger.all_gather(spans, comm.rank))
        self.moved.add("errors", ledger.all_gather(counts, comm.rank))

    def finish(self, flight: Flight) -> None:
        state = flight.state
        partial: Tensor = state["partial"]
        error = state["error"].wait()
        if "bits" in state:
            words = state["words"]
            spans = [math.ceil(count / 32) for count in words]
            there = [
                _unpack(bits, n) for bits, n in zip(state["bits"].wait().split(spans), words, strict=True)
            ]
            mask = torch.cat(there)
            error = _put(error, mask)
        if state["kept"] is None:
            grad = error.view(partial.shape)
        else:
            grad = _put(error, state["kept"])
        if partial.requires_grad:
            partial.backward(grad)
        flight.state.clear()


def _take(x: Tensor, mask: Tensor) -> Tensor:
    """x where the mask is true, row by row. numpy does it several times faster than torch."""
    return torch.from_numpy(x.numpy()[mask.numpy()])


def _put(values: Tensor, mask: Tensor) -> Tensor:
    """The dual: `values` where the mask is true, 0 elsewhere.

    >>> mask = torch.tensor([[True, False], [True, True]])
    >>> _put(_take(torch.tensor([[1., 2.], [3., 4.]]), mask), mask).tolist()
    [[1.0, 0.0], [3.0, 4.0]]
    """
    out = values.new_zeros(mask.shape)
    out.numpy()[mask.numpy()] = values.numpy()
    return out


def _counts(kept: Tensor | None, sizes: Sequence[int], width: int) -> list[int]:
    """Words of each rank's targets that travel."""
    if kept is None:
        return [size * width for size in sizes]
    return [int(part.sum()) for part in kept.split(list(sizes))]


def _pack(flags: Tensor) -> Tensor:
    """32 flags a word. [m] bool → [⌈m/32⌉] int32.

    >>> _unpack(_pack(torch.tensor([True, False, True])), 3).tolist()
    [True, False, True]
    """
    spare = -flags.numel() % 32
    padded = np.concatenate([flags.numpy(), np.zeros(spare, dtype=bool)])
    return torch.from_numpy(np.packbits(padded).view(np.int32))


def _unpack(words: Tensor, count: int) -> Tensor:
    return torch.from_numpy(np.unpackbits(words.numpy().view(np.uint8), count=count)).bool()


def columns_of(
    x_own: Tensor, order: Tensor, sizes: Sequence[int], comm: Communicator, group: Communicator
) -> tuple[Tensor, list[int]]:
    """([n, |C_p|], sizes of the blocks C): rows of all ranks become columns of all vertices, once.

    x_own  [n_own, f]  this rank's rows;   order  [n] the vertices, rank by rank;   sizes  rows of each rank
    group  the ranks among which the columns are cut; the other groups have copies

    """
    n, width = order.numel(), x_own.shape[1]
    columns = even_sizes(width, group.size)
    first = starts(columns)
    # Rank q of the job is place q mod g of its group: everybody sends each its columns.
    parts = [x_own[:, first[q % group.size] : first[q % group.size] + columns[q % group.size]]
             for q in range(comm.size)]  # fmt: skip
    send = [part.numel() for part in parts]
    mine = columns[group.rank]
    flat = torch.cat([part.reshape(-1) for part in parts])
    came = comm.all_to_all(flat, send, [rows * mine for rows in sizes], phase="plan")
    out = torch.empty(n, mine, dtype=x_own.dtype)
    out[order] = came.view(n, mine)
    return out, columns
