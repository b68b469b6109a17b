"""P-TAGS: a message of one's own per arc, any reduction, sync by sum or maximum; as dense algebra says."""

from __future__ import annotations

import functools
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn

from weft.comm import Communicator, Ledger, run_ranks
from weft.errors import UserError
from weft.graph import Graph, load
from weft.kernels import Reduction
from weft.nn import MODELS, Messages, PTagsLayer, register
from weft.parallel import Blocks, Grid, Operator
from weft.train import RunConfig, Trainer
from weft.train.result import agrees

from .graphs import directed

N, IN, OUT = 23, 6, 4


def weight(inputs: int, outputs: int) -> nn.Parameter:
    return nn.Parameter(nn.init.xavier_uniform_(torch.empty(inputs, outputs)))


class Gated(PTagsLayer):
    """m = σ(⟨f_ij, g⟩) · (h_j − h_i): arcs' features, weights inside the message, the target's row."""

    cut = ("weight",)
    data = ("features",)
    reads_target = True

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.gate, self.weight = nn.Parameter(torch.tensor([0.5, -0.2, 0.3])), weight(inputs, outputs)

    def scatter(self, source, arc, target):
        return torch.sigmoid(arc @ self.gate)[:, None] * (source - target)

    def gather(self, messages: Messages) -> Tensor:
        return messages.mean() + messages.max()

    def transform(self, v: Tensor, a: Tensor) -> Tensor:
        return (v + a) @ self.weight


class Product(PTagsLayer):
    """1 + y = Π (1 + tanh(a_ij h_j) / 4): a reduction of one's own, A's entries, and the vertex in apply."""

    cut = ("weight",)
    reads_vertex = True

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight, self.skip = weight(inputs, outputs), weight(inputs, outputs)

    @property
    def inputs(self) -> int:
        return self.skip.shape[0]

    def scatter(self, source, arc, target):
        return torch.tanh(arc * source) / 4

    def gather(self, messages: Messages) -> Tensor:
        return messages.reduce(Reduction(lambda a, b: a + b + a * b, 0.0))

    def transform(self, v: Tensor, a: Tensor) -> Tensor:
        return a @ self.weight

    def apply(self, v, t):
        return torch.tanh(t) * (v @ self.skip)


class Tropical(PTagsLayer):
    """t_c = max over columns k of a_k + w_kc: the sync is a maximum."""

    cut = ("weight",)
    sync = "max"

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight = weight(inputs, outputs)

    def gather(self, messages: Messages) -> Tensor:
        return messages.sum()

    def transform(self, v: Tensor, a: Tensor) -> Tensor:
        t = a[:, :, None] + self.weight
        return t.amax(1) if a.shape[1] else t.new_full((t.shape[0], t.shape[2]), -torch.inf)


def dense(layer: PTagsLayer, graph: Graph, h: Tensor) -> Tensor:
    n = graph.num_nodes
    there = torch.zeros(n, n, dtype=torch.bool)
    there[graph.rows, graph.indices.long()] = True
    a = torch.zeros(n, n, dtype=h.dtype)
    a[graph.rows, graph.indices.long()] = graph.weights.to(h.dtype)
    count, at = there.sum(1, keepdim=True), there[:, :, None]
    if isinstance(layer, Gated):
        f = torch.zeros(n, n, 3, dtype=h.dtype)
        f[graph.rows, graph.indices.long()] = graph.arc_data["features"].to(h.dtype)
        m = torch.sigmoid(f @ layer.gate)[:, :, None] * (h[None] - h[:, None])
        mean = torch.where(at, m, 0.0).sum(1) / count.clamp(min=1)
        most = torch.where(count > 0, torch.where(at, m, -torch.inf).amax(1), 0.0)
        return (h + mean + most) @ layer.weight
    if isinstance(layer, Product):
        m = torch.tanh(a[:, :, None] * h[None]) / 4
        y = torch.where(at, 1 + m, 1.0).prod(1) - 1
        return torch.tanh(y @ layer.weight) * (h @ layer.skip)
    total = there.to(h.dtype) @ h
    return (total[:, :, None] + layer.weight).amax(1)


@functools.cache
def graph() -> Graph:
    g = torch.Generator().manual_seed(2)
    plain = directed(N)
    return plain.replace(
        weights=torch.rand(plain.num_arcs, generator=g) + 0.2,
        arc_data={"features": torch.randn(plain.num_arcs, 3, generator=g)},
    )


def made(kind: type[PTagsLayer]) -> PTagsLayer:
    torch.manual_seed(4)
    return kind(IN, OUT).double()


@functools.cache
def serial(kind: type[PTagsLayer]) -> tuple[Tensor, list[Tensor]]:
    layer, h = (
        made(kind),
        torch.linspace(-1, 1, N * IN, dtype=torch.float64).view(N, IN).sin().requires_grad_(),
    )
    y = dense(layer, graph(), h)
    return y.detach(), list(torch.autograd.grad(y, [h, *layer.parameters()], torch.ones_like(y)))


LAYERS = (Gated, Product, Tropical)


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 1, 1), (1, 2, 1), (2, 1, 2), (2, 2, 2)])
def test_a_layer_in_ptags_is_its_dense_equation_on_every_grid_with_the_words_foretold(shape):
    grid = Grid(*shape)

    def work(comm: Communicator) -> None:
        A = Operator.build(
            graph(), comm, grid, "none", "sparse" if shape[0] == 3 else "dense", Blocks.even(N, grid, seed=3),
            torch.float64, data=("features",),
        )  # fmt: skip
        _ = A.degrees
        for kind in LAYERS:
            with torch.random.fork_rng():
                layer = kind(IN, OUT).double()
            layer.load_state_dict(STATES[kind])
            want, (dh, *rest) = serial(kind)
            h = A.layout.take(H).requires_grad_()
            with Ledger(comm) as books:
                y = layer(A, h)
                found, *weights = torch.autograd.grad(y, [h, *layer.parameters()], torch.ones_like(y))
            torch.testing.assert_close(y.detach(), A.layout.take(want), rtol=1e-11, atol=1e-11)
            torch.testing.assert_close(found, A.layout.take(dh), rtol=1e-10, atol=1e-10)
            for mine, theirs in zip(weights, rest, strict=True):
                torch.testing.assert_close(comm.all_reduce(mine.contiguous()), theirs, rtol=1e-10, atol=1e-10)

            def blank(dry: Operator, layer: PTagsLayer = layer) -> None:
                x = torch.empty(dry.rows.numel(), IN, dtype=torch.float64, device="meta", requires_grad=True)
                meta = layer.to("meta")
                y = meta(dry, x)
                torch.autograd.grad(y, [x, *meta.parameters()], torch.empty_like(y))

            moved = {phase: int(line["words"]) for phase, line in books.as_dict().items() if line["words"]}
            assert moved == A.foretell(blank).words

    STATES.update({kind: made(kind).state_dict() for kind in LAYERS})
    run_ranks(work, grid.size, "threads")


STATES: dict[type, dict[str, Tensor]] = {}
H = torch.linspace(-1, 1, N * IN, dtype=torch.float64).view(N, IN).sin()


def train(comm: Communicator, name: str, feed: str) -> tuple[list[float], bool]:
    config = RunConfig()
    config.model.name, config.model.hidden, config.train.dtype = name, 5, "float64"
    config.batch.batch_size, config.batch.fanouts, config.batch.feed = 30, "4,3", feed
    plain = load("sbm:nodes=97,features=7")
    g = torch.Generator().manual_seed(1)
    data = {"features": torch.randn(plain.num_arcs, 3, generator=g)}
    trainer = Trainer(plain.replace(arc_data=data), config, comm)
    losses = [trainer.step(1)]
    foretold = trainer.predict(2).words
    with Ledger(comm) as books:
        losses.append(trainer.step(2))
    moved = {phase: int(line["words"]) for phase, line in books.as_dict().items() if line["words"]}
    return losses, agrees(moved, foretold)


@pytest.mark.parametrize("kind", LAYERS)
def test_pull_and_push_pull_train_as_one_rank_does(kind, monkeypatch):
    name = kind.__name__.lower()
    monkeypatch.setitem(MODELS, name, None)  # gone again afterwards
    register(name, lambda config, own, w: ([kind(a, b) for a, b in pairwise(w)], "none"))
    alone, _ = run_ranks(train, 1, "threads", name, "pull")[0]
    for feed in ("pull", "push-pull"):
        for losses, foretold in run_ranks(train, 3, "threads", name, feed):
            assert losses == pytest.approx(alone, rel=1e-9)
            assert foretold


def test_a_message_that_mixes_columns_is_refused_where_columns_are_cut(monkeypatch):
    class Mixed(PTagsLayer):
        cut = ("weight",)

        def __init__(self, inputs: int, outputs: int):
            super().__init__()
            self.weight = weight(inputs, outputs)

        def scatter(self, source, arc, target):
            return source * source.sum(1, keepdim=True)

        def transform(self, v, a):
            return a @ self.weight

    monkeypatch.setitem(MODELS, "mixed", None)
    register("mixed", lambda config, own, w: ([Mixed(a, b) for a, b in pairwise(w)], "none"))
    with pytest.raises(UserError, match="gives another result where its input lies in columns"):
        run_ranks(train, 2, "threads", "mixed", "push-pull")


def test_bad_messages_say_so_in_one_line():
    A = run_ranks(lambda c: Operator.build(graph(), c, Grid(1), "none"), 1)[0]

    class Wide(PTagsLayer):
        def scatter(self, source, arc, target):
            return torch.cat([source, source], 1)

    class Order(PTagsLayer):
        def gather(self, messages):
            return messages.reduce(Reduction(torch.sub, 0.0))

    class Absent(PTagsLayer):
        data = ("time",)

        def scatter(self, source, arc, target):
            return source * arc

    for kind, message in (
        (Wide, r"scatter returned \(\d+, 4\) for \(\d+, 2\). Return one number for each"),
        (Order, "add is not commutative"),
        (Absent, "the arcs carry no 'time' here"),
    ):
        with pytest.raises(UserError, match=message):
            kind()(A, torch.ones(N, 2))


def test_a_sync_that_ranks_do_not_know_is_refused_where_the_class_is_written():
    with pytest.raises(UserError, match=r"unknown sync of Mean 'mean'. Known: sum, max"):

        class Mean(PTagsLayer):
            sync = "mean"
