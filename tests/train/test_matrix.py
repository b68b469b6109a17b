"""Every model × way to train × task: on 2, 3 and 4 ranks what one rank gives, and the words foretold."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from weft.comm import Communicator, Ledger, run_ranks
from weft.errors import UserError
from weft.graph import Graph, hold_out, load, split
from weft.nn import MODELS, Layer, ModelConfig, SGCLayer, build, register
from weft.nn.layer import in_halves, weight_of
from weft.parallel import Volume
from weft.train import RunConfig, Trainer
from weft.train.result import agrees
from weft.train.verify import gradient_differences, relative_difference

HOWS = ("whole", "pull", "push-pull", "pipeline")
TASKS = ("node", "link")
EPOCHS, FEATURES = 3, 13  # which neither 2, 3 nor 4 ranks divide
ATTENTION = ("gat", "gatv2", "transformer", "agnn", "va")
WHOLE_ROWS = ("gatv2", "transformer", "gine", "resgated", "pna")
"""Models whose layers want whole rows: not under push-pull."""
CASES = [(m, how) for m in MODELS for how in HOWS if how in ("whole", "pull") or m not in WHOLE_ROWS]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Virtual ranks are threads: each computes with one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@functools.cache
def graph_of(task: str) -> Graph:
    graph = split(
        load(f"sbm:nodes=301,features={FEATURES},classes=4,degree=6,arc_features=3,arc_types=3"), 0.5, 0.25, 0
    )
    return hold_out(graph) if task == "link" else graph


def settings(model: str, how: str, task: str, **more: Any) -> RunConfig:
    """`more`: `section__name` = value."""
    made = RunConfig()
    made.model.name, made.model.hidden, made.train.dtype, made.train.task = model, 8, "float64", task
    if task == "link":
        made.link.hits = 3
    if how == "whole":
        if task == "link":
            made.link.pair_batch = 400
    else:
        made.batch.batch_size, made.batch.fanouts = 64 if task == "node" else 400, "5,4"
        made.batch.feed, made.batch.pipeline = "pull" if how == "pull" else "push-pull", how == "pipeline"
    for path, value in more.items():
        section, name = path.split("__")
        setattr(getattr(made, section), name, value)
    return made


@dataclass
class Seen:
    losses: list[float] = field(default_factory=list)
    gradients: dict[str, Tensor] = field(default_factory=dict)
    embedding: Tensor = field(default_factory=lambda: torch.empty(0))
    words: list[tuple[Volume, Volume]] = field(default_factory=list)
    """(moved, foretold before) of each epoch but the first, which may make what is kept."""
    bound: bool = False
    """Whether errors that are 0 stay at home, so that what is foretold of them is the most."""
    first: list[int] = field(default_factory=list)
    """The shape of this rank's weights of the first layer."""


def train(comm: Communicator, graph: Graph, made: RunConfig) -> Seen:
    trainer, seen = Trainer(graph, made, comm), Seen()
    for epoch in range(1, EPOCHS + 1):
        foretold = trainer.predict(epoch) if comm.size > 1 and epoch > 1 else None
        with Ledger(comm) as books:
            seen.losses.append(trainer.step(epoch))
        if foretold is not None:
            seen.words.append((Volume.of(books), foretold))
    seen.gradients = trainer.gradients()
    seen.embedding = trainer.A.layout.collect(trainer.embed())
    seen.bound = trainer.model.rectified and trainer.encoder.name == "push-pull"
    seen.first = [p.shape[0] for p in trainer.encoder.live.layers[0].parameters() if p.dim() == 2]
    return seen


def check(ours: Seen, alone: Seen, what: object) -> None:
    assert ours.losses == pytest.approx(alone.losses, rel=1e-9), what
    assert ours.gradients.keys() == alone.gradients.keys(), what
    for name, difference in gradient_differences(ours.gradients, alone.gradients).items():
        assert ours.gradients[name].shape == alone.gradients[name].shape, (what, name)
        assert difference <= 1e-9, (what, name)
    assert relative_difference(ours.embedding, alone.embedding) <= 1e-9, what
    assert len(ours.words) == EPOCHS - 1
    for moved, foretold in ours.words:
        if ours.bound:
            assert agrees(moved.words, foretold.words), (what, moved.words, foretold.words)
            assert moved.words["errors"] < foretold.words["errors"], what  # many are 0
        else:
            assert moved == foretold, (what, moved, foretold)


def on_all_ranks(model: str, how: str, task: str, ranks: tuple[int, ...], **more: Any) -> None:
    """The reference of push-pull is pull on one rank; of the pipeline, the pipeline with pull on one rank."""
    made = settings(model, how, task, **more)
    alone = settings(model, how, task, **more)
    if how != "whole":
        alone.batch.feed = "pull"
    (want,) = run_ranks(train, 1, "threads", graph_of(task), alone)
    assert all(torch.isfinite(torch.tensor(want.losses)))
    assert any(bool(g.abs().max() > 0) for g in want.gradients.values())
    for count in ranks:
        seen = run_ranks(train, count, "threads", graph_of(task), made)
        for rank, ours in enumerate(seen):
            check(ours, want, (model, how, task, count, rank))
        if how in ("push-pull", "pipeline"):
            # The first weights are cut: nobody has all rows, all together have each once.
            assert max(ours.first[0] for ours in seen) < want.first[0]
            assert sum(ours.first[0] for ours in seen) == want.first[0]


def whole_rows_once(model: str, task: str) -> bool:
    """What wants whole rows trains links as one of its kind does."""
    return task == "node" or model not in WHOLE_ROWS or model == "gatv2"


@pytest.mark.parametrize(
    ("model", "how", "task"),
    [(m, how, task) for m, how in CASES for task in TASKS if whole_rows_once(m, task)],
)
def test_ranks_train_as_one_does_and_move_what_was_foretold(model, how, task):
    on_all_ranks(model, how, task, (3,) if model in WHOLE_ROWS and how == "pull" else (2, 3, 4))


def extras(model: str) -> dict[str, Any]:
    """All that stands between layers and draws random numbers; hidden == features: residuals apply."""
    out: dict[str, Any] = {
        "model__input_dropout": 0.3, "model__layer_norm": True, "model__residual": True,
        "model__hidden": FEATURES, "train__clip_norm": 0.1, "model__dropout": 0.2,
    }  # fmt: skip
    if model in ATTENTION:
        out["model__attention_dropout"] = 0.25
    return out


def test_the_models_that_want_whole_rows_are_those():
    made = {
        name: build(ModelConfig(name, **({"relations": 2} if name == "rgcn" else {})), 4, 3)
        for name in MODELS
    }
    assert tuple(name for name, model in made.items() if not in_halves(model.layers[0])) == WHOLE_ROWS


@pytest.mark.parametrize(("model", "how"), CASES)
def test_dropouts_norms_residuals_and_the_clip_are_those_of_one_rank(model, how):
    on_all_ranks(model, how, "node", (3,), **extras(model))


@pytest.mark.parametrize("how", ["pull", "push-pull"])
@pytest.mark.parametrize("model", ["gin", "gat"])
def test_the_same_for_links_with_learned_features(model, how):
    more = {**extras(model), "model__hidden": FEATURES + 3, "link__embedding_width": 3}
    on_all_ranks(model, how, "link", (3,), **more)


@pytest.mark.parametrize("how", ["push-pull", "pipeline"])
@pytest.mark.parametrize("model", ["gcn", "sage", "agnn", "va"])
def test_a_residual_without_a_norm_is_added_before_the_sync(model, how):
    """Then zeros stay at home behind it as well."""
    on_all_ranks(model, how, "node", (3,), model__residual=True, model__hidden=FEATURES)


VARIANTS = [
    ("gcn", "push-pull", {"model__normalise": "none"}),
    ("gcn", "whole", {"model__normalise": "mean"}),
    ("gin", "pull", {"model__normalise": "gcn"}),
    ("sgc", "push-pull", {"model__normalise": "mean"}),
    ("sage", "push-pull", {"model__normalise": "gcn"}),
    ("sage", "pull", {"model__normalise": "mean", "model__aggregate": "max"}),
    ("agnn", "whole", {"model__form": "besta"}),
    ("agnn", "push-pull", {"model__form": "besta"}),
]


@pytest.mark.parametrize(("model", "how", "more"), VARIANTS)
def test_other_entries_of_a_and_bestas_agnn_train_alike(model, how, more):
    on_all_ranks(model, how, "node", (3,), **more)


def test_a_clip_that_is_another_would_be_seen():
    (a,) = run_ranks(train, 1, "threads", graph_of("node"), settings("gcn", "pull", "node"))
    made = settings("gcn", "pull", "node", train__clip_norm=0.1)
    (b,) = run_ranks(train, 1, "threads", graph_of("node"), made)
    assert max(relative_difference(b.gradients[k], g) for k, g in a.gradients.items()) > 1e-3


# A user's layers.


class Whole(nn.Module):
    """Only forward, as one would write it first: relu before the sum."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight = weight_of(inputs, outputs)

    def forward(self, A: Any, h: Tensor) -> Tensor:
        return A @ torch.relu(h @ self.weight) + A.own(h) @ self.weight


class Halves(Layer):
    """The same in halves, sum first: linear."""

    cut = ("weight",)

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.weight = weight_of(inputs, outputs)

    def partial(self, A: Any, h: Tensor) -> Tensor:
        z = h @ self.weight
        return A @ z + A.own(z)

    def apply(self, t: Tensor) -> Tensor:  # type: ignore[override]
        return torch.tanh(t)


class Crooked(Halves):
    """Its first half is not linear in h, and nothing is synced."""

    def partial(self, A: Any, h: Tensor) -> Tensor:
        return A @ torch.relu(h @ self.weight)


class Uncut(Halves):
    """It does not say which weights go with the columns of its input."""

    cut = ()


class Synced(Crooked):
    """What is not linear goes through A.sync: then it is right again."""

    def partial(self, A: Any, h: Tensor) -> Tensor:
        z = h @ self.weight
        gate = torch.sigmoid(A.sync(z.sum(1, keepdim=True)))
        return A @ (gate * z)


class Short(Halves):
    """Forgets a row."""

    def partial(self, A: Any, h: Tensor) -> Tensor:
        return super().partial(A, h)[1:]


@pytest.fixture
def mine() -> Any:
    """Registers a model of two such layers, for one test."""

    def make(kind: type[nn.Module]) -> str:
        register("mine", lambda c, own, w: ([kind(w[0], w[1]), kind(w[1], w[2])], "mean"))
        return "mine"

    yield make
    MODELS.pop("mine", None)


@pytest.mark.parametrize("how", ["whole", "pull"])
def test_a_layer_that_has_only_forward_runs_on_the_whole_graph_and_on_samples(mine, how):
    on_all_ranks(mine(Whole), how, "node", (2, 3))


@pytest.mark.parametrize("kind", [Halves, Synced])
@pytest.mark.parametrize("how", HOWS)
def test_a_layer_in_halves_runs_everywhere(mine, kind, how):
    on_all_ranks(mine(kind), how, "node", (3,))


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("how", HOWS)
def test_layers_of_several_hops_run_everywhere(mine, how, residual):
    """Two layers of two hops each; a residual skips both hops, which the columns cannot."""
    mine(Halves)
    register(
        "mine", lambda c, own, w: ([SGCLayer(w[0], w[1]), SGCLayer(w[1], w[2])], "gcn"),
        widths=lambda c, inputs, outputs: [inputs, c.hidden, outputs],
    )  # fmt: skip
    more = {"model__layers": 4, "model__residual": residual, "model__hidden": FEATURES}
    if how != "whole":
        more["batch__fanouts"] = "3,3,2,2"
    if residual and how in ("push-pull", "pipeline"):
        with pytest.raises(UserError, match="the residual of SGCLayer skips 2 hops"):
            run_ranks(train, 2, "threads", graph_of("node"), settings("mine", how, "node", **more))
        return
    on_all_ranks("mine", how, "node", (3,), **more)


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (
            Whole,
            "push-pull cuts the input by columns, and Whole is written as a whole (forward), not as partial "
            "and apply. Use --feed pull.",
        ),
        (
            Uncut,
            "push-pull cuts the input by columns, and Uncut names no weights that are cut with the columns "
            "of its input. Use --feed pull.",
        ),
        (Crooked, "Crooked gives another result where its input lies in columns."),
    ],
)
def test_a_layer_that_cannot_be_fed_by_columns_is_refused_by_name(mine, kind, message, size):
    made = settings(mine(kind), "push-pull", "node")
    with pytest.raises(UserError) as caught:
        run_ranks(train, size, "threads", graph_of("node"), made)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_auto_feeds_by_pull_what_has_only_forward_and_says_why(mine):
    made = settings(mine(Whole), "pull", "node", batch__feed="auto")

    def work(comm: Communicator) -> tuple[str, list[str]]:
        trainer = Trainer(graph_of("node"), made, comm)
        return trainer.encoder.name, trainer.notes()

    for name, notes in run_ranks(work, 2, "threads"):
        assert name == "pull"
        assert any(note.startswith("feed      pull: Whole is written as a whole") for note in notes)


@pytest.mark.parametrize("how", HOWS)
def test_a_layer_that_returns_the_wrong_number_of_rows_is_named(mine, how):
    with pytest.raises(UserError, match=r"layer 1, Short, returned \(\d+, 8\) for \d+ vertices") as caught:
        run_ranks(train, 1, "threads", graph_of("node"), settings(mine(Short), how, "node"))
    assert "\n" not in str(caught.value)
