"""Models on sampled blocks against dense algebra: forward and every gradient; and what the feeds rely on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from weft.comm import Communicator, Ledger, run_ranks
from weft.errors import UserError
from weft.graph import Graph, normalise
from weft.minibatch import Batch, Features, Flight, Pull, PushPull, Sampler, Topology, fanouts_for, reads_of
from weft.minibatch.feeds import check_columns, probe_columns
from weft.nn import MODELS, GINLayer, Layer, Model, ModelConfig, Noise, build
from weft.parallel import Blocks, ByBlocks, Columns, Grid, Partial, Rows, Volume, counted, redistribute
from weft.train.placed import sliced

N, FEATURES, HIDDEN, CLASSES = 29, 5, 16, 3
SEEDS = torch.tensor([7, 1, 28, 13])

COLUMNS = ("gcn", "sage", "gin", "sgc", "gat", "agnn", "va")
"""Models that a graph without arc data feeds by columns; `tests/train/test_matrix.py` has rgcn."""


def graph() -> Graph:
    g = torch.Generator().manual_seed(3)
    source, target = torch.randint(N, (2, 5 * N), generator=g)
    keep = target % 6 != 1  # some vertices read nobody
    return Graph.from_arcs(source[keep], target[keep], N)


def dense(how: str, loops: bool = False) -> Tensor:
    made = graph().with_self_loops() if loops else normalise(graph(), how, torch.float64)
    a = torch.zeros(N, N, dtype=torch.float64)
    values = 1.0 if made.weights is None else made.weights
    a[made.rows, made.indices.long()] = values
    return a


def gcn(a: Tensor, h: Tensor, layer: Any) -> Tensor:
    return a @ h @ layer.weight + layer.bias


def sage(a: Tensor, h: Tensor, layer: Any) -> Tensor:
    return h @ layer.weight_self + a @ h @ layer.weight_near + layer.bias


def gin(a: Tensor, h: Tensor, layer: Any) -> Tensor:
    u = ((1 + layer.epsilon) * h + a @ h) @ layer.weight1 + layer.bias1
    return F.relu(u) @ layer.weight2 + layer.bias2


def gat(a: Tensor, h: Tensor, layer: Any) -> Tensor:
    heads, out = layer.attend_row.shape
    z = (h @ layer.weight).view(N, heads, out)
    row, column = (z * layer.attend_row).sum(2), (z * layer.attend_column).sum(2)
    scores = F.leaky_relu(row[:, None] + column[None], 0.2).masked_fill((a == 0)[:, :, None], -torch.inf)
    y = torch.einsum("ijh,jho->iho", scores.softmax(1), z)
    y = y.mean(1) if layer.average else y.reshape(N, -1)
    return y + layer.bias


def agnn(a: Tensor, h: Tensor, layer: Any) -> Tensor:
    unit = h / h.norm(dim=1, keepdim=True).clamp(min=1e-12)
    scores = (layer.beta * unit @ unit.T).masked_fill(a == 0, -torch.inf)
    return scores.softmax(1) @ h @ layer.weight + layer.bias


def va(a: Tensor, h: Tensor, layer: Any) -> Tensor:
    return (a * (h @ h.T)) @ h @ layer.weight + layer.bias


LOOPS = dense("none", loops=True)
TRUTH: dict[str, tuple[Callable[..., Tensor], Tensor]] = {
    "gcn": (gcn, dense("gcn")), "sage": (sage, dense("mean")), "gin": (gin, dense("none")),
    "gat": (gat, LOOPS), "agnn": (agnn, LOOPS), "va": (va, LOOPS),
}  # fmt: skip


def model_of(name: str, **more: Any) -> Model:
    config = ModelConfig(
        name, **{"layers": 2, "hidden": HIDDEN, "dropout": 0.0, "activation": "relu", **more}
    )
    if name == "gat":
        config.heads, config.output_heads = 8, 3
    model = build(config, FEATURES, CLASSES, seed=5).double()
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.5 * torch.randn(p.shape, generator=g, dtype=torch.float64))
    return model


def features() -> Tensor:
    return torch.randn(N, FEATURES, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def sampler_of(model: Model, fanouts: list[int]) -> Sampler:
    return Sampler(Topology.read(graph(), reads_of(model), dtype=torch.float64), fanouts, seed=0)


def truth(name: str, model: Model, x: Tensor) -> Tensor:
    layer, a = TRUTH[name]
    return layer(a, F.relu(layer(a, x, model.layers[0])), model.layers[1])


@pytest.mark.parametrize(
    ("name", "compact"),
    [*((name, True) for name in TRUTH), *((name, False) for name in ("gcn", "sage", "gin"))],
)
def test_full_neighbourhoods_give_the_dense_model_and_its_gradients(name, compact):
    """Once with the rows copied out, once reading the features in place, where the layer allows it."""
    model, x = model_of(name), features().requires_grad_()
    assert compact or model.layers[0].direct
    first, second = sampler_of(model, [-1, -1]).blocks(SEEDS, 0)
    A = first.compact() if compact else first.direct(x)
    ours = model([A, second.compact()], x[first.sources.long()] if compact else x)
    dy = torch.randn(4, CLASSES, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    ours.backward(dy)
    got = {key: p.grad.clone() for key, p in model.named_parameters()} | {"x": x.grad.clone()}
    model.zero_grad()
    x.grad = None

    want = truth(name, model, x)[SEEDS]
    assert torch.allclose(ours, want, rtol=1e-10, atol=1e-10)
    want.backward(dy)
    for key, p in [*model.named_parameters(), ("x", x)]:
        assert torch.allclose(got[key], p.grad, rtol=1e-9, atol=1e-9), key


def test_hops_of_one_layer_take_a_block_each():
    """SGC: Â² x W from two blocks."""
    model, x = model_of("sgc"), features()
    blocks = [block.compact() for block in sampler_of(model, [-1, -1]).blocks(SEEDS, 0)]
    first = sampler_of(model, [-1, -1]).blocks(SEEDS, 0)[0]
    a = dense("gcn")
    want = (a @ a @ x @ model.layers[0].weight + model.layers[0].bias)[SEEDS]
    assert torch.allclose(model(blocks, x[first.sources.long()]), want, rtol=1e-10)
    with pytest.raises(ValueError, match="multiplies 2 times with A, 1 blocks were given"):
        model(blocks[:1], x[first.sources.long()])


# The feeds, phase by phase, on a batch of three ranks.


def flight_of(comm: Communicator, feed: Pull | PushPull, model: Model, sampler: Sampler) -> Flight:
    """Rank p has some of the seeds; what is asked of their rows: Σ rows ∘ weights."""
    own = SEEDS[comm.rank :: comm.size]
    g = torch.Generator().manual_seed(9)
    weights = torch.randn(N, CLASSES, generator=g, dtype=torch.float64)[own]

    def objective(rows: Tensor, _: Model) -> tuple[Tensor, Callable[[], None]]:
        loss = (rows * weights.to(rows.device)).sum()
        return loss.detach(), loss.backward

    batch = Batch(3, own, sampler.blocks(own, 3, feed.upto(model)))
    return Flight(batch, model, objective, Noise(0, 3))


def feed_of(comm: Communicator, kind: str, model: Model, learned: int) -> tuple[Any, Model, Rows]:
    """(feed, its weights, who owns what); the last `learned` columns are learned."""
    layout = Rows(comm, Blocks.even(N, Grid(comm.size), seed=1))
    mine, split = layout.take(features()), FEATURES - learned
    sampler = sampler_of(model, [4, 3])
    if kind == "pull":
        held = Features(
            mine[:, :split].contiguous(), nn.Parameter(mine[:, split:].clone()) if learned else None
        )
        return Pull(comm, held, ByBlocks(layout.blocks), comm.size == 1, _place(layout)), model, layout
    columns = Columns(layout, comm, FEATURES)
    x = redistribute(mine, layout, columns)
    at = min(max(split - columns.begin, 0), columns.end - columns.begin)
    held = Features(x[:, :at].contiguous(), nn.Parameter(x[:, at:].clone()) if learned else None)
    return PushPull(columns, held, sampler), sliced(model, columns.begin, columns.end), layout


def _place(layout: Rows) -> Tensor | None:
    return layout.blocks.place_of if layout.comm.size == 1 else None


def fly(comm: Communicator, kind: str, name: str, learned: int, more: dict[str, Any]) -> dict[str, Any]:
    """All phases of one batch: the loss, whole gradients; words foretold are checked."""
    model = model_of(name, **more).train()
    feed, live, layout = feed_of(comm, kind, model, learned)
    phases = ("push", "begin", "forward", "backward", "finish")

    def prepare(wrap: Any) -> Callable[[], object]:
        dry, blank = feed.dry(wrap), sliced(live, 0, FEATURES).to("meta")
        flight = flight_of(comm, dry, blank, sampler_of(model, [4, 3]))
        return lambda: [getattr(dry, phase)(flight) for phase in phases]

    foretold = counted(comm, prepare)
    flight = flight_of(comm, feed, live, sampler_of(model, [4, 3]))
    with Ledger(comm) as books:
        for phase in phases:
            getattr(feed, phase)(flight)
    moved = Volume.of(books)
    if kind == "push-pull" and model.rectified and comm.size > 1:
        assert moved.words.pop("errors") <= foretold.words.pop("errors")
    assert moved.words == foretold.words
    assert flight.state == {}  # nothing is held after it
    out: dict[str, Any] = {"loss": comm.all_reduce(flight.loss.view(1)), "feed": feed}
    for key, p in live.named_parameters():
        grad = torch.zeros_like(p) if p.grad is None else p.grad
        if kind == "push-pull" and key.removeprefix("layers.0.") in live.layers[0].cut:
            out[key] = comm.all_gather(grad.contiguous(), feed.columns.sizes)
        else:
            out[key] = comm.all_reduce(grad.contiguous())
    if learned:
        if kind == "pull":
            out["learned"] = layout.collect(flight.learned)
        else:
            widths = [f.shape[1] for f in (flight.learned,)]
            sizes = comm.all_gather(torch.tensor(widths), [1] * comm.size).tolist()
            flat = comm.all_gather(flight.learned.T.contiguous().view(-1), [N * s for s in sizes])
            out["learned"] = flat.view(-1, N).T
        if kind == "pull" and comm.size == 1:
            out["learned"] = flight.learned[layout.blocks.place_of]
    return out


@pytest.mark.parametrize("learned", [0, 2])
@pytest.mark.parametrize("name", COLUMNS)
def test_both_feeds_give_the_gradients_of_one_rank_phase_by_phase(name, learned):
    more = {"input_dropout": 0.2, "residual": True, "hidden": 8, "dropout": 0.3}
    want = run_ranks(fly, 1, "threads", "pull", name, learned, more)[0]
    for kind in ("pull", "push-pull"):
        for ours in run_ranks(fly, 3, "threads", kind, name, learned, more):
            for key in want.keys() - {"feed"}:
                scale = max(1e-12, float(want[key].abs().max()))
                assert ours[key].shape == want[key].shape, (kind, key)
                assert float((ours[key] - want[key]).abs().max()) <= 1e-9 * scale, (kind, key)


def test_how_much_of_the_input_block_a_feed_asks_for():
    def ask(comm: Communicator, kind: str, name: str, learned: int = 0, drop: float = 0.0) -> str:
        model = model_of(name, input_dropout=drop)
        return feed_of(comm, kind, model, learned)[0].upto(model)

    for ranks, kind, more, want in (
        (1, "pull", ("gcn",), "picks"),  # features are read where they lie
        (1, "pull", ("gat",), "labels"),  # attention reads h itself
        (1, "pull", ("gcn", 2), "labels"),  # learned rows get gradients of their own
        (1, "pull", ("gcn", 0, 0.5), "labels"),
        (2, "pull", ("gcn",), "labels"),  # rows travel once each
        (2, "push-pull", ("gcn",), "targets"),  # everybody picks for all
        (2, "push-pull", ("gat",), "targets"),
    ):
        assert set(run_ranks(ask, ranks, "threads", kind, *more)) == {want}, (ranks, kind, more)


@pytest.mark.parametrize("name", COLUMNS)
def test_parts_of_the_columns_add_up_to_the_whole(name):
    """What the sync relies on: partial results of cut features and weights sum to the result."""
    model, x = model_of(name).eval(), features()
    block = sampler_of(model, [3, 2]).blocks(torch.tensor([3, 4]), 0)[0]

    def share(comm: Communicator, spans: list[tuple[int, int]]) -> Tensor:
        begin, end = spans[comm.rank]
        h = x[block.sources.long(), begin:end].contiguous()
        more = {"given": h, "partial": Partial(comm), "first_column": begin, "width": FEATURES}
        A = block.compact(**(more if comm.size > 1 else {}))
        cut = sliced(model, begin, end)
        with torch.no_grad():
            return cut.start(cut.path([A] * model.hops, partial=True)[0], h)

    (whole,) = run_ranks(share, 1, "threads", [(0, FEATURES)])
    parts = run_ranks(share, 3, "threads", [(0, 2), (2, 2), (2, 5)])  # one has no column
    assert torch.allclose(sum(parts), whole, rtol=1e-10, atol=1e-12)
    assert not torch.allclose(parts[0] + 2 * parts[2], whole)


# What is read, and what is refused.


def test_what_blocks_are_made_of_follows_from_the_layers():
    found = {name: reads_of(model_of(name)) for name in MODELS}
    assert {name: (r.how, r.loops, r.scaled, r.values) for name, r in found.items()} == {
        "gcn": ("gcn", True, True, True), "sgc": ("gcn", True, True, True),
        "sage": ("mean", False, True, True), "gin": ("none", False, True, True),
        "gat": ("loops", True, False, False), "agnn": ("loops", True, False, False),
        "va": ("loops", True, True, True), "gatv2": ("loops", True, False, False),
        **dict.fromkeys(("transformer", "gine", "resgated", "pna", "rgcn"), ("none", False, False, False)),
    }  # fmt: skip
    assert not reads_of(build(ModelConfig("sage", aggregate="max"), 3, 2)).scaled


def test_layers_that_disagree_on_what_a_sampled_row_stands_for_are_refused():
    model = model_of("gin")
    model.layers[1].scaled = False
    with pytest.raises(UserError, match="the layers GINLayer disagree on whether sampled sums are scaled"):
        reads_of(model)


@pytest.mark.parametrize("name", COLUMNS)
def test_every_model_can_be_fed_by_columns(name):
    model = model_of(name)
    assert check_columns(model) == ""
    probe_columns(model)


class Square(Layer):
    """Not linear in h, not synced."""

    cut = ("weight",)

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(inputs, outputs))

    def partial(self, A: Any, h: Tensor) -> Tensor:
        return A @ (h @ self.weight).square()


class Wide(GINLayer):
    """Forgets that weights go with the columns."""

    cut = ()


class Forward(nn.Module):
    def forward(self, A: Any, h: Tensor) -> Tensor:
        return A @ h


def test_a_layer_that_is_not_written_for_columns_is_refused_by_name():
    def with_first(layer: nn.Module) -> Model:
        model = model_of("gin")
        model.layers[0] = layer
        return model

    with pytest.raises(UserError, match="Square gives another result where its input lies in columns"):
        probe_columns(with_first(Square(FEATURES, HIDDEN)))
    assert check_columns(with_first(Wide(FEATURES, HIDDEN))).startswith("Wide names no weights that are cut")
    assert check_columns(with_first(Forward())).startswith("Forward is written as a whole (forward)")


def test_fan_outs_are_one_a_hop():
    assert fanouts_for(3, [5, 4, -1]) == [5, 4, -1]
    with pytest.raises(
        UserError, match=r"--fanouts 5,all gives 2 of the 3 hops .* Use --fanouts 25,10,10, or"
    ):
        fanouts_for(3, [5, -1])
