"""Every model × way to train × task: on 2, 3 and 4 ranks what one rank gives, and the words foretold."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from weft.comm import Communicator, run_ranks
from weft.errors import UserError
from weft.nn import MODELS, GCNLayer, Layer, ModelConfig, SGCLayer, build, register
from weft.nn.layer import in_halves, weight_of
from weft.train import Trainer
from weft.train.verify import relative_difference

from ..examples import FOLDER, example
from .matrix_ranks import FEATURES, check, graph_of, on_real_ranks, reference, settings, train

EXAMPLES = [("shy_attention", "shy"), ("generous_mean", "generous")]
HOWS = ("whole", "pull", "push-pull", "pipeline")
TASKS = ("node", "link")
ATTENTION = ("gat", "gatv2", "transformer", "agnn", "va")
WHOLE_ROWS = ("gatv2", "transformer", "gine", "resgated", "pna")
"""Models whose layers want whole rows: not under push-pull."""
CASES = [(m, how) for m in MODELS for how in HOWS if how in ("whole", "pull") or m not in WHOLE_ROWS]


def on_all_ranks(model: str, how: str, task: str, ranks: tuple[int, ...], **more: Any) -> None:
    made = settings(model, how, task, **more)
    (want,) = run_ranks(train, 1, "threads", graph_of(task), reference(model, how, task, **more))
    assert all(torch.isfinite(torch.tensor(want.losses)))
    assert any(bool(g.abs().max() > 0) for g in want.gradients.values())
    for count in ranks:
        seen = run_ranks(train, count, "threads", graph_of(task), made)
        for rank, ours in enumerate(seen):
            check(ours, want, (model, how, task, count, rank))
        if how in ("push-pull", "pipeline") and count > 1:
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
    few = (3,) if model in WHOLE_ROWS and how == "pull" else (2, 3, 4)
    # The reference is pull on one rank: by columns, one rank is a case of its own.
    on_all_ranks(model, how, task, (1, *few) if how in ("push-pull", "pipeline") else few)


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
    ("agnn", "pull", {"model__form": "besta", "model__normalise": "gcn"}),
    ("va", "push-pull", {"model__normalise": "mean"}),
    ("va", "pipeline", {"model__normalise": "gcn", "model__attention_dropout": 0.25}),
    ("va", "pull", {"model__normalise": "none"}),
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


class Shared(GCNLayer):
    """Its second half mixes the columns of a row, which the one that it takes the place of did not."""

    def apply(self, t: Tensor) -> Tensor:  # type: ignore[override]
        return torch.softmax(super().apply(t), 1)


class Short(Halves):
    """Forgets a row."""

    def partial(self, A: Any, h: Tensor) -> Tensor:
        return super().partial(A, h)[1:]


class Late(Halves):
    """Forgets a row in its second half."""

    def apply(self, t: Tensor) -> Tensor:  # type: ignore[override]
        return t[1:]


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


@pytest.mark.parametrize("kind", [Halves, Synced, Shared])
@pytest.mark.parametrize("how", HOWS)
def test_a_layer_in_halves_runs_everywhere(mine, kind, how):
    on_all_ranks(mine(kind), how, "node", (3,))


PLAIN = [m for m in MODELS if m in ("gcn", "sage", "gin", "sgc", "gat", "agnn", "va")]


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_real_ranks_do_as_virtual_ones(mpi_ranks, ranks):
    """Each model, way and task on one number of real ranks, which goes round among them."""
    ways = [[m, how, task] for task in TASKS for m in [*PLAIN, "shy", "generous"] for how in HOWS]
    cases = [way for place, way in enumerate(ways) if (place + place // 4) % 3 + 2 == ranks]
    assert {how for _, how, _ in cases} == set(HOWS)
    files = [str(FOLDER / f"{file}.py") for file, _ in EXAMPLES]
    assert mpi_ranks(on_real_ranks, ranks, cases, files) == [len(cases)] * ranks


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize(("file", "model"), EXAMPLES)
def test_the_layers_of_the_examples_run_everywhere(monkeypatch, file, model, how):
    example(file, monkeypatch)
    on_all_ranks(model, how, "node", (2, 4))
    on_all_ranks(model, how, "link", (3,))


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("how", HOWS)
def test_layers_of_several_hops_run_everywhere(mine, how, residual):
    """Two layers of two hops each; a residual skips both hops, which the columns cannot."""
    mine(Halves)
    register(
        "mine", lambda c, own, w: ([SGCLayer(w[0], w[1]), SGCLayer(w[1], w[2])], "gcn"),
        widths=lambda c, inputs, outputs: [inputs, c.hidden, outputs],
    )  # fmt: skip
    more = {"model__residual": residual, "model__hidden": FEATURES}
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
@pytest.mark.parametrize("kind", [Short, Late])
def test_a_layer_that_returns_the_wrong_number_of_rows_is_named(mine, kind, how):
    named = rf"layer 1, {kind.__name__}, returned \(\d+, 8\) for \d+ vertices"
    for ranks in (1, 2):
        with pytest.raises(UserError, match=named) as caught:
            run_ranks(train, ranks, "threads", graph_of("node"), settings(mine(kind), how, "node"))
        assert "\n" not in str(caught.value)
