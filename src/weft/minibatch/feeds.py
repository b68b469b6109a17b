"""Two ways to feed the first layer, on the same samples: pull rows, or push the block and pull what it gives.

A batch goes through phases, each ending where something must travel:

              pull                                    push-pull (P³)
    push                                              ~ the input block travels to all ranks
    begin     ask owners for rows of X                partial sums with own columns: `Model.start`
              ~ rows travel                           ~ partial sums travel to the batch's owner, added up
    forward   the model, the loss                     `Model.finish`, the loss
    backward  all gradients                           gradients down to the first sync
                                                      ~ its error travels to all ranks
    finish    gradients of learned rows go home       gradients of own rows of W₁ and own learned columns

~ is a non-blocking message: between its post and its wait other batches may compute (`pipeline`). What is
waited for at once: how much each rank will send, a hop of sampling over parts, and a sync inside a layer.

The same code foretells what it moves: with features, weights and errors that have no numbers, on a line that
counts (`dry`). Vertex numbers do travel then; features don't. One size follows from numbers and cannot be
foretold: how many errors behind a ReLU are not 0. Foretold is then that none is, the most there can be.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from .. import place
from ..comm import Communicator
from ..comm.threads import run_threads
from ..errors import UserError
from ..kernels import CSR, gather_rows, pack_rows
from ..nn import Adjacency, Chain, Layer, Model, Noise, in_halves
from ..nn.models import hops_of
from ..parallel import Columns, Fetch, Operator, Owners, Partial, Stacked
from ..parallel.layout import largest_of, to_winners
from ..parallel.propagate import Wrap
from .block import Batch, Block
from .sampler import Sampler, Upto, phase_of

Objective = Callable[[Tensor, Model], tuple[Tensor, Callable[[], None]]]
"""From the seeds' rows and the model that made them to (this rank's share of the loss, its backward)."""


@dataclass
class Flight:
    """A batch under way, with the weights that all its phases use.

    model      with those weights         objective  from the seeds' rows to the loss and its backward
    noise      its random numbers         state      what a phase leaves for the next
    loss       once it is scored          back       its backward, once it is scored
    """

    batch: Batch
    model: Model
    objective: Objective
    noise: Noise
    state: dict[str, Any] = field(default_factory=dict)
    loss: Tensor | None = None
    back: Callable[[], None] | None = None
    learned: Tensor | None = None
    """The gradient of this rank's learned features."""

    def score(self, rows: Tensor) -> None:
        self.loss, self.back = self.objective(rows, self.model)


@dataclass
class Features:
    """What the vertices of this rank bring along: given features, and learned ones beside them.

    given     [rows, f]   of the vertices at hand, in rows; or [n, |C_p ∩ f|], in columns
    learned   the same of learned features, as a parameter; None: there are none
    """

    given: Tensor
    learned: nn.Parameter | None = None

    @property
    def width(self) -> int:
        return self.given.shape[1] + (0 if self.learned is None else self.learned.shape[1])

    def now(self) -> Tensor:
        """Both side by side as they are now, without gradients. [rows, width]"""
        if self.learned is None:
            return self.given
        learned = self.learned.detach()
        return torch.cat([self.given, learned], 1) if self.given.shape[1] else learned

    def dry(self) -> Features:
        learned = None if self.learned is None else nn.Parameter(self.learned.detach().to("meta"))
        return Features(self.given.to("meta"), learned)

    def gradient(self, whole: Tensor | None) -> Tensor | None:
        """The learned columns of a gradient of both."""
        return None if whole is None or self.learned is None else whole[:, self.given.shape[1] :]


class Feed:
    """What both have in common: the phases, the ranks (comm) and what they hold (features)."""

    name = ""
    comm: Communicator
    features: Features

    def upto(self, model: Model) -> Upto:
        """How much of its input's block a batch must come with."""
        raise NotImplementedError

    def push(self, flight: Flight) -> None:
        """Post what must arrive before `begin`."""

    def begin(self, flight: Flight) -> None:
        raise NotImplementedError

    def forward(self, flight: Flight) -> None:
        raise NotImplementedError

    def backward(self, flight: Flight) -> None:
        assert flight.back is not None
        flight.back()

    def finish(self, flight: Flight) -> None:
        flight.state.clear()

    def dry(self, wrap: Wrap) -> Feed:
        """The same feed with features that have no numbers, on a line that counts."""
        out = copy.copy(self)
        out.comm, out.features = wrap(self.comm), self.features.dry()
        return out


def reads_directly(model: Model) -> bool:
    """Whether the first layer reads the input through A alone, so that it need not be copied out."""
    return not model.input_dropout and bool(getattr(model.layers[0], "direct", False))


class Pull(Feed):
    """Features lie by rows; a batch fetches the rows that its input block reads.

    features  of the rows at hand: the own part first, then copies of others
    owners    who has the rest
    at_home   whether every vertex's row is at hand: then nothing travels
    place_of  [n] the row of each vertex, where `at_home`; None: row v is vertex v
    """

    name = "pull"

    def __init__(
        self, comm: Communicator, features: Features, owners: Owners, at_home: bool,
        place_of: Tensor | None = None,
    ):  # fmt: skip
        self.comm, self.features, self.owners = comm, features, owners
        self.at_home, self.place_of = at_home, place_of

    def _direct(self, model: Model) -> bool:
        return self.at_home and self.features.learned is None and reads_directly(model)

    def upto(self, model: Model) -> Upto:
        return "picks" if self._direct(model) else "labels"

    def begin(self, flight: Flight) -> None:
        if self._direct(flight.model):
            return
        sources, now = flight.batch.blocks[0].sources, self.features.now()
        if self.at_home:
            places = sources.long()
            places = places if self.place_of is None else self.place_of[places]
            places = places.to(now.device)
            flight.state.update(places=places, rows=pack_rows(now, places))
            return
        plan = Fetch(self.comm, self.owners, sources, distinct=True)
        flight.state.update(plan=plan, request=plan.post(now))

    def forward(self, flight: Flight) -> None:
        first, *others = flight.batch.blocks
        state, features = flight.state, self.features
        if self._direct(flight.model):
            A, x = first.direct(features.given, self.place_of), features.given
        else:
            A = first.compact(features.given.device)
            x = state["rows"] if self.at_home else self._take(flight)
            if features.learned is not None:
                state["rows"] = x.requires_grad_()
        path = [A, *(block.compact(x.device) for block in others)]
        flight.score(flight.model(path, x, flight.noise))

    def _take(self, flight: Flight) -> Tensor:
        """The rows that were asked for, once they are here."""
        rows: Tensor = flight.state["plan"].take(flight.state.pop("request"))
        return rows

    def finish(self, flight: Flight) -> None:
        features, state = self.features, flight.state
        if features.learned is not None:
            rows: Tensor = state["rows"]
            dx = torch.zeros_like(rows) if rows.grad is None else rows.grad
            count = features.learned.shape[0]
            if self.at_home:
                whole = dx.new_zeros(count, dx.shape[1]).index_add_(0, state["places"].to(dx.device), dx)
            else:
                whole = state["plan"].back(dx, count)
            flight.learned = features.gradient(whole)
        flight.state.clear()


class PushPull(Feed):
    """Features lie by columns; the input blocks travel instead of them (Gandhi and Iyer, OSDI '21).

        columns   how the features are cut among the ranks that share one copy
        features  [n, |C_p|]  this rank's columns, all vertices

    The picks of a vertex follow from the seed, so where everybody has all arcs the targets alone are pushed,
    and each rank picks their neighbours itself. After ReLU and dropout most errors are 0, and which
    activations are dropped everybody knows: neither travels.
    """

    name = "push-pull"

    def __init__(self, columns: Columns, features: Features, sampler: Sampler):
        self.comm, self.columns, self.features, self.sampler = columns.group, columns, features, sampler

    def dry(self, wrap: Wrap) -> PushPull:
        out = cast(PushPull, super().dry(wrap))
        out.sampler = self.sampler.dry(wrap)
        return out

    def upto(self, model: Model) -> Upto:
        # Where every rank has the arcs, `begin` picks, for everybody.
        return "targets" if self.sampler.topology.replicated else "picks"

    # *post the block*

    def push(self, flight: Flight) -> None:
        comm, own = self.comm, flight.batch.blocks[0]
        whole = self.sampler.topology.replicated
        told = own.targets.new_tensor([own.targets.numel()] if whole else [own.targets.numel(), own.arcs])
        facts = comm.all_gather(told, [told.numel()] * comm.size, phase="push").view(comm.size, -1)
        sizes, arcs = facts[:, 0].tolist(), facts[:, -1].tolist()
        lists = [(own.targets, sizes, "push")]
        if not whole:
            lists += [
                (own.indptr.diff().to(own.targets.dtype), sizes, "push"),
                (own.neighbours, arcs, "push"),
            ]
            if own.values is not None:
                lists.append((own.values, arcs, "weights"))
            lists += [(x, arcs, phase_of(x)) for x in own.data.values()]
        flight.state.update(
            sizes=sizes, block=[comm.iall_gather(x.contiguous(), s, phase=phase) for x, s, phase in lists]
        )

    def _blocks_of_all(self, flight: Flight) -> Block:
        """The blocks of all ranks, one below the other."""
        came, sampler = [request.wait() for request in flight.state.pop("block")], self.sampler
        own = flight.batch.blocks[0]
        if sampler.topology.replicated:
            # Each rank picks for all: the last hop of everybody's batch, by the same random numbers.
            return sampler.hop(came[0], flight.batch.step, len(sampler.fanouts) - 1)
        indptr = torch.cat([came[1].new_zeros(1, dtype=torch.int64), came[1].long().cumsum(0)])
        values = None if own.values is None else came[3]
        data = dict(zip(own.data, came[len(came) - len(own.data) :], strict=True))
        return sampler.block(came[0], indptr, came[2], values, data=data)

    # *partial sums, post*

    def begin(self, flight: Flight) -> None:
        model, sizes = flight.model, flight.state["sizes"]
        block, x = self._blocks_of_all(flight), self.features.now()
        if self.features.learned is not None:
            x = flight.state["x"] = x.detach().requires_grad_()
        partial = Partial(self.comm)
        more: dict[str, Any] = {
            "partial": partial, "owners": Stacked(self.comm, sizes), "first_column": self.columns.begin,
            "width": self.columns.width,
        }  # fmt: skip
        if reads_directly(model):
            A = block.direct(x, given=x, **more)
        else:
            x = gather_rows(x, block.sources.long().to(x.device))
            A = block.compact(x.device, given=x, **more)
        # Only the first operator of the path matters here: the others belong to `finish`.
        first = model.path([A] * model.hops, partial=True)[0]
        t = model.start(first, x, flight.noise)
        kept = model.kept(block.targets, t.shape[1], flight.noise)
        rows = t.detach().contiguous().view(-1) if kept is None else _take(t.detach(), kept)
        words = _counts(kept, sizes, t.shape[1])
        if model.sync == "max":
            own = [words[self.comm.rank]] * self.comm.size
            request = self.comm.iall_to_all(rows, words, own, phase="pull")
        else:
            request = self.comm.ireduce_scatter(rows, words, phase="pull")
        flight.state.update(partial=t, kept=kept, words=words, rows=request)

    def forward(self, flight: Flight) -> None:
        state, model, first = flight.state, flight.model, flight.batch.blocks[0]
        t = state["rows"].wait()
        if model.sync == "max":
            t, state["winner"] = largest_of(t, self.comm.size)
        if state["kept"] is None:
            t = t.view(-1, state["partial"].shape[1])
        else:
            t = _put(t, state["kept"].split(state["sizes"])[self.comm.rank])
        state["t"] = t.requires_grad_()
        others = [block.compact(t.device) for block in flight.batch.blocks[1:]]
        landed = cast(Adjacency, _Landed(first.targets.to(t.device)))
        path = model.path([landed, *cast(list[Adjacency], others)], partial=True)
        flight.score(model.finish(path, path[0].complete(state["t"]), flight.noise)[1])

    # *post the errors: where they are not 0, then their values*

    def backward(self, flight: Flight) -> None:
        super().backward(flight)
        state, comm = flight.state, self.comm
        t: Tensor = state.pop("t")
        error = torch.zeros_like(t) if t.grad is None else t.grad
        words: list[int] = state["words"]
        mask = None if state["kept"] is None else state["kept"].split(state["sizes"])[comm.rank]
        error = error.reshape(-1) if mask is None else _take(error, mask)
        if flight.model.sync == "max":  # each rank gets the errors of what it won
            shares, own = to_winners(error, state.pop("winner"), comm.size), [error.numel()] * comm.size
            state["error"] = comm.iall_to_all(shares, own, words, phase="errors")
            return
        if not flight.model.rectified:
            state["error"] = comm.iall_gather(error, words, phase="errors")
            return
        there = None if error.is_meta else error != 0  # dry: nobody knows, at most all
        values = error if there is None else _take(error, there)
        told = torch.tensor([values.numel()], dtype=torch.int32, device=first_device(comm, error))
        counts = comm.all_gather(told, [1] * comm.size, phase="bits").tolist()
        spans = [math.ceil(count / 32) for count in words]
        bits = error.new_empty(spans[comm.rank], dtype=torch.int32) if there is None else _pack(there)
        state["bits"] = comm.iall_gather(bits, spans, phase="bits")
        state["error"] = comm.iall_gather(values, counts, phase="errors")

    def finish(self, flight: Flight) -> None:
        state = flight.state
        partial: Tensor = state["partial"]
        error = state["error"].wait()
        if "bits" in state:
            words, came = state["words"], state["bits"].wait()
            spans = [math.ceil(count / 32) for count in words]
            if error.is_meta:
                error = error.new_empty(sum(words))
            else:
                flags = [_unpack(bits, n) for bits, n in zip(came.split(spans), words, strict=True)]
                error = _put(error, torch.cat(flags))
        grad = error.view(partial.shape) if state["kept"] is None else _put(error, state["kept"])
        if partial.requires_grad:
            partial.backward(grad)
        if self.features.learned is not None:
            x: Tensor = state["x"]
            flight.learned = self.features.gradient(torch.zeros_like(x) if x.grad is None else x.grad)
        flight.state.clear()


def first_device(comm: Communicator, like: Tensor) -> torch.device:
    """Where bookkeeping beside `like` is made: real also where `like` has no numbers."""
    return torch.device("cpu") if like.is_meta else like.device


@dataclass(frozen=True)
class _Landed:
    """The first operator of a batch after its sync: what it gave has come."""

    rows: Tensor

    def complete(self, t: Tensor, sync: str = "sum") -> Tensor:
        return t


def _take(x: Tensor, mask: Tensor) -> Tensor:
    """x where the mask is true, row by row. On a CPU numpy does it several times faster than torch."""
    if x.is_meta:
        return x.new_empty(int(mask.sum()))
    return torch.from_numpy(x.numpy()[mask.numpy()]) if x.device.type == "cpu" else x[mask]


def _put(values: Tensor, mask: Tensor) -> Tensor:
    """The dual: `values` where the mask is true, 0 elsewhere.

    >>> mask = torch.tensor([[True, False], [True, True]])
    >>> _put(_take(torch.tensor([[1., 2.], [3., 4.]]), mask), mask).tolist()
    [[1.0, 0.0], [3.0, 4.0]]
    """
    out = values.new_zeros(mask.shape)
    if values.device.type == "cpu":
        out.numpy()[mask.numpy()] = values.numpy()
    elif not values.is_meta:
        out[mask] = values
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
    padded = np.concatenate([flags.cpu().numpy(), np.zeros(spare, dtype=bool)])
    return torch.from_numpy(np.packbits(padded).view(np.int32)).to(flags.device)


def _unpack(words: Tensor, count: int) -> Tensor:
    bits = np.unpackbits(words.cpu().numpy().view(np.uint8), count=count)
    return torch.from_numpy(bits).bool().to(words.device)


def check_columns(model: Model) -> str:
    """Why a model cannot be fed by columns; empty where it can."""
    layer = model.layers[0]
    if not in_halves(layer):
        return f"{type(layer).__name__} is written as a whole (forward), not as partial and apply"
    if not layer.cut:
        return f"{type(layer).__name__} names no weights that are cut with the columns of its input"
    if hops_of(layer) > 1 and model.adds_input:
        return f"the residual of {type(layer).__name__} skips {hops_of(layer)} hops, the sync comes after one"
    if layer.sync == "max" and model.adds_input:
        return f"{type(layer).__name__} is synced by maximum, to which no residual can be added"
    return ""


def _few(x: Tensor, count: int) -> Tensor:
    """`count` rows of x, over and over again where there are fewer; floating point as float64."""
    if x.shape[0]:
        some = x[torch.arange(count, device=x.device) % x.shape[0]]
    else:
        some = x.new_zeros(count, *x.shape[1:])
    return some.double() if x.is_floating_point() else some


def probe_columns(model: Model, like: Mapping[str, Tensor] | None = None) -> None:
    """Refuse a first layer whose shares don't add up where its input lies in columns: tried on a few rows.

    Two virtual ranks take half of the columns each; the sum of their partial results must be the whole's.
    `like` is what arcs carry here, where the layer reads it: a few of it serve.
    """
    layer = model.layers[0]
    generator = torch.Generator().manual_seed(1)
    small = copy.deepcopy(layer).double().eval()
    small.stream = None  # type: ignore[assignment]
    width, t, s = model.widths[0], 5, 9
    degrees = torch.tensor([3, 0, 4, 1, 2], device="cpu")
    read = torch.randint(s, (10,), generator=generator, device="cpu")
    data = {name: _few(x, read.numel()) for name, x in (like or {}).items()}
    matrix = CSR(torch.cat([degrees.new_zeros(1), degrees.cumsum(0)]), read, None, (t, s), data)
    x = torch.randn(s, width, generator=generator, dtype=torch.float64, device="cpu")
    ids = torch.arange(s, device="cpu")

    def run(comm: Communicator, halves: bool) -> Tensor:
        mine, begin, end = copy.deepcopy(small), 0, width
        more: dict[str, Any] = {}
        if halves:
            begin, end = (0, width // 2) if comm.rank == 0 else (width // 2, width)
            for name in cast(Layer, mine).cut:
                whole: Tensor = getattr(mine, name)
                setattr(mine, name, nn.Parameter(whole.detach()[begin:end].clone()))
            more = {"partial": Partial(comm), "first_column": begin, "width": width}
        h = x[:, begin:end].contiguous()
        A: Any = Operator.local(matrix, ids[:t], ids, given=h if halves else None, **more)
        first: Any = A if hops_of(small) == 1 else Chain([A] * hops_of(small), partial=True)
        with torch.no_grad(), place.at(f"layer 1, {type(layer).__name__}"):
            return comm.all_reduce(cast(Layer, mine).partial(first, h), cast(Layer, mine).sync)

    want, got = run_threads(run, 1, False)[0], run_threads(run, 2, True)[0]
    if want.shape != got.shape or not torch.allclose(
        got, want, rtol=1e-8, atol=1e-8 * float(want.abs().max())
    ):
        raise UserError(
            f"{type(layer).__name__} gives another result where its input lies in columns. What is not "
            "linear in h must be made of A.sync(…), and weights of its rows must stand in `cut`. "
            "Or use --feed pull."
        )
