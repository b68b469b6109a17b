"""Full-batch training: repeatable, stopped early, interrupted; and the published accuracies."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path

import pytest
import torch

from weft.errors import UserError
from weft.graph import Graph, load, to_pyg
from weft.kernels import use
from weft.nn import MODELS
from weft.train import RunConfig, RunFolder, Trainer
from weft.train.inputs import prepare_features

from .graphs import config, multilabel, small


def trained(graph: Graph, settings: RunConfig) -> tuple[Trainer, list[float]]:
    trainer = Trainer(graph, settings)
    return trainer, trainer.fit().loss


def same_weights(a: Trainer, b: Trainer) -> bool:
    ours, theirs = a.model.state_dict(), b.model.state_dict()
    return ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in ours)


def interrupt_after(epochs: int):
    def on_epoch(record: dict[str, float]) -> None:
        if record["epoch"] == epochs:
            raise KeyboardInterrupt

    return on_epoch


def small_for(name: str) -> Graph:
    """The small graph; with kinds of arcs for the model that cannot be without."""
    graph = small()
    return graph.replace(arc_data={"type": torch.arange(graph.num_arcs) % 2}) if name == "rgcn" else graph


@pytest.mark.parametrize("name", MODELS)
def test_a_seed_repeats_a_run_to_the_bit_and_another_does_not(name):
    settings = {"model_name": name, "model_input_dropout": 0.2, "keep_weights": "last"}
    (a, loss_a), (b, loss_b) = (trained(small_for(name), config(seed=5, **settings)) for _ in range(2))
    c, loss_c = trained(small_for(name), config(seed=6, **settings))
    assert loss_a == loss_b
    assert same_weights(a, b)
    assert loss_a != loss_c
    assert not same_weights(a, c)


def test_a_data_of_pyg_trains_as_its_graph_does():
    pytest.importorskip("torch_geometric")
    losses = [trained(source, config(epochs=2))[1] for source in (small(), to_pyg(small()))]
    assert losses[0] == losses[1]


def test_a_run_does_not_depend_on_what_torch_drew_before():
    _, first = trained(small(), config())
    torch.rand(17)
    _, second = trained(small(), config())
    assert first == second


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_every_model_learns(name, dtype):
    trainer = Trainer(small_for(name), config(model_name=name, epochs=40, dtype=dtype))
    result = trainer.fit()
    assert result.loss[-1] < 0.7 * result.loss[0]
    assert result.accuracy["test"] > 0.4  # chance is 0.25
    assert next(trainer.model.parameters()).dtype == getattr(torch, dtype)


def test_the_torch_kernels_train_to_the_same_losses():
    """Sums are taken in another order, hence float64 and a tolerance."""
    settings = {"dtype": "float64", "model_layer_norm": True, "model_residual": True, "model_layers": 3}
    _, ours = trained(small(), config(**settings))
    with use("torch"):
        _, theirs = trained(small(), config(**settings))
    assert ours == pytest.approx(theirs, rel=1e-9)


def test_the_loss_is_the_mean_over_training_vertices_before_the_step():
    trainer = Trainer(small(), config(dtype="float64", model_dropout=0.0))
    trainer.model.eval()
    with torch.no_grad():
        logits = trainer.model(trainer.A, trainer.x)
    rows = trainer.task.rows["train"]
    wanted = torch.nn.functional.cross_entropy(logits[rows], trainer.task.labels["train"])
    assert trainer.step(1) == pytest.approx(float(wanted), rel=1e-12)


# Many labels a vertex


def test_many_labels_are_learned_and_scored_by_micro_f1():
    graph = multilabel()
    trainer = Trainer(graph, config(epochs=60))
    result = trainer.fit()
    assert result.loss[-1] < 0.7 * result.loss[0]
    trainer.model.eval()
    guess = trainer.model(trainer.A, trainer.x) > 0
    mask, truth = graph.test_mask, graph.labels
    right = (guess & truth)[mask].sum()
    f1 = 2 * right / (guess[mask].sum() + truth[mask].sum())
    assert result.accuracy["test"] == pytest.approx(float(f1))
    assert result.accuracy["test"] > 0.7  # every label guessed at random with probability ½: 0.5


def test_the_loss_of_many_labels_is_binary_cross_entropy():
    trainer = Trainer(multilabel(), config(dtype="float64", model_dropout=0.0))
    trainer.model.eval()
    with torch.no_grad():
        logits = trainer.model(trainer.A, trainer.x)[trainer.task.rows["train"]]
    truth = trainer.task.labels["train"].double()
    wanted = torch.nn.functional.binary_cross_entropy_with_logits(logits, truth)
    assert trainer.step(1) == pytest.approx(float(wanted), rel=1e-12)


# Which weights are kept, and when training ends


def test_best_keeps_the_weights_of_the_best_validation_result():
    records: list[dict[str, float]] = []
    trainer = Trainer(small(), config(epochs=30, lr=0.3))  # a rate at which late epochs are worse
    result = trainer.fit(on_epoch=records.append)
    best = max(records, key=lambda r: (r["val_accuracy"], -r["val_loss"], -r["epoch"]))
    assert result.best_epoch == best["epoch"] < 30
    metrics = trainer.evaluate()
    assert all(metrics[key] == best[key] for key in metrics)
    assert result.accuracy["val"] == best["val_accuracy"]


def test_last_keeps_the_last_weights():
    records: list[dict[str, float]] = []
    trainer = Trainer(small(), config(epochs=30, lr=0.3, keep_weights="last"))
    result = trainer.fit(on_epoch=records.append)
    assert result.best_epoch == 30
    assert result.accuracy["val"] == records[-1]["val_accuracy"]


def test_early_stopping_ends_after_so_many_evaluations_without_progress():
    records: list[dict[str, float]] = []
    trainer = Trainer(small(), config(epochs=500, lr=0.3, patience=4))
    result = trainer.fit(on_epoch=records.append)
    assert len(result.loss) == len(records) == result.best_epoch + 4 < 500
    best = next(r for r in records if r["epoch"] == result.best_epoch)
    later = [r for r in records if r["epoch"] > result.best_epoch]
    assert all(
        (r["val_accuracy"], -r["val_loss"]) <= (best["val_accuracy"], -best["val_loss"]) for r in later
    )


def test_patience_counts_evaluations_and_not_epochs():
    records: list[dict[str, float]] = []
    result = Trainer(small(), config(epochs=500, lr=0.3, patience=2, evaluate_every=5)).fit(
        on_epoch=records.append
    )
    assert len(result.loss) == result.best_epoch + 10
    assert [r["epoch"] for r in records if "val_loss" in r] == list(range(5, len(result.loss) + 1, 5))


def test_evaluating_rarely_changes_no_weights_and_always_covers_the_last_epoch():
    often, _ = trained(small(), config(keep_weights="last"))
    records: list[dict[str, float]] = []
    rarely = Trainer(small(), config(keep_weights="last", evaluate_every=5))
    rarely.fit(on_epoch=records.append)
    assert same_weights(often, rarely)
    assert [r["epoch"] for r in records if "test_accuracy" in r] == [5, 10, 12]


def test_without_validation_vertices_the_last_weights_are_kept():
    graph = small().replace(val_mask=None)
    trainer = Trainer(graph, config(scheduler="plateau", scheduler_options={"patience": 0}))
    result = trainer.fit()
    assert result.best_epoch == 12
    assert math.isnan(result.accuracy["val"])
    assert trainer.optimiser.param_groups[0]["lr"] > 0.005  # plateau watches the loss of training instead


# Ctrl-C


@pytest.mark.parametrize("keep", ["best", "last"])
def test_ctrl_c_keeps_what_was_learned(keep):
    interrupted = Trainer(small(), config(epochs=100, keep_weights=keep))
    result = interrupted.fit(on_epoch=interrupt_after(6))
    whole = Trainer(small(), config(epochs=6, keep_weights=keep))
    whole_result = whole.fit()
    assert result.interrupted
    assert not whole_result.interrupted
    assert result.loss == whole_result.loss
    assert result.accuracy == whole_result.accuracy
    assert result.best_epoch == whole_result.best_epoch
    assert same_weights(interrupted, whole)


def test_ctrl_c_before_any_evaluation_keeps_the_present_weights():
    trainer = Trainer(small(), config(epochs=100, evaluate_every=50))
    result = trainer.fit(on_epoch=interrupt_after(3))
    assert (result.interrupted, result.best_epoch, len(result.loss)) == (True, 3, 3)
    assert result.accuracy["train"] > 0


def test_a_second_ctrl_c_during_the_last_evaluation_loses_no_weights(monkeypatch):
    trainer = Trainer(small(), config(epochs=100, evaluate_every=50, keep_weights="last"))

    def impatient(epoch):
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer, "evaluate", impatient)
    result = trainer.fit(on_epoch=interrupt_after(3))
    assert (result.interrupted, result.accuracy) == (True, {})
    assert math.isnan(result.as_dict()["test_accuracy"])


# What is recorded


def test_metrics_are_one_json_object_an_epoch():
    trainer = Trainer(small(), config(evaluate_every=4))
    with RunFolder.create(config()) as folder:
        result = trainer.fit(folder)
    lines = [json.loads(line) for line in (folder.path / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == list(range(1, 13))
    assert [line["loss"] for line in lines] == result.loss
    evaluated = {"train_accuracy", "val_accuracy", "test_accuracy", "val_loss"}
    for line in lines:
        told = {"epoch", "loss", "seconds", "words", "rss_bytes", "lr", "at"}
        assert line.keys() == told | (evaluated if line["epoch"] % 4 == 0 else set())


def test_a_result_names_what_was_measured():
    result = Trainer(small(), config()).fit().as_dict()
    assert {"loss", "train_accuracy", "val_accuracy", "test_accuracy", "epoch_seconds"} <= result.keys()
    assert len(result["loss"]) == 12
    assert result["epoch_seconds"] > 0


# What cannot be trained


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"features": None}, "small has no features to train on. Add some"),
        ({"features": torch.empty(160, 0)}, "small has no features to train on."),
        ({"labels": None}, "small has no labels to train on. Add some"),
        ({"train_mask": None}, "small has no training vertices."),
        ({"train_mask": torch.zeros(160, dtype=torch.bool)}, "small has no training vertices."),
        (
            {"labels": torch.full((160,), -1), "num_classes": 4},
            "is in train_mask but has no label. Mend one.",
        ),
    ],
)
def test_a_graph_that_cannot_be_trained_on_is_refused(changes, message):
    with pytest.raises(UserError) as caught:
        Trainer(small().replace(**changes), config())
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, not 0."),
        ({"evaluate_every": 0}, "evaluate_every must be at least 1, not 0."),
        ({"patience": -1}, "patience must be at least 0, not -1."),
        ({"seed": -1}, "seed must be at least 0, not -1."),
        ({"seed": 2**63}, "seed must be at most 9223372036854775807, not 9223372036854775808."),
        ({"threads": -2}, "threads must be at least 0, not -2."),
        ({"threads": 10**6}, "threads must be at most 1024, not 1000000."),
        ({"dtype": "float16"}, "unknown dtype 'float16'. Did you mean 'float"),
        ({"keep_weights": "bst"}, "unknown keep_weights 'bst'. Did you mean 'best'?"),
        ({"model_layers": 0}, "layers must be at least 1, not 0."),
        ({"model_hidden": 10**12}, "a model of 2 layers with hidden=1000000000000 on 160 vertices: "),
        ({"model_layers": 10**9}, "a model of 1000000000 layers with hidden=8: "),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings, message):
    with pytest.raises(UserError) as caught:
        Trainer(small(), config(**settings))
    assert str(caught.value).startswith(message)


def test_patience_needs_validation_vertices():
    with pytest.raises(UserError, match=r"^patience=3 needs validation vertices, small has none"):
        Trainer(small().replace(val_mask=None), config(patience=3))


def test_a_loss_that_explodes_is_one_line_with_a_remedy():
    says = (
        r"^an evaluation is not finite in epoch 1, first the result of layer 2, GCNLayer, at vertex 0\. "
        r"Lower --lr, now 1e\+30, or use --clip-norm 1\.$"
    )
    with pytest.raises(UserError, match=says):
        Trainer(small(), config(lr=1e30, optimizer="sgd")).fit()


# Features


def test_features_of_a_row_sum_to_one_where_asked_and_for_bags_of_words():
    words = torch.tensor([[0.0, 2.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [1.0, 0.0, 3.0, 0.0]])
    scaled = torch.tensor([[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.25, 0.0, 0.75, 0.0]])
    assert torch.equal(prepare_features(words, "row"), scaled)
    assert torch.equal(prepare_features(words, "auto"), scaled)
    assert torch.equal(prepare_features(words, "none"), words)
    dense = torch.tensor([[1.0, -3.0], [0.5, 0.5]])
    assert torch.equal(prepare_features(dense, "auto"), dense)
    assert torch.equal(prepare_features(dense, "row"), torch.tensor([[-0.5, 1.5], [0.5, 0.5]]))
    with pytest.raises(UserError, match=r"unknown feature_norm 'rows'\. Did you mean 'row'"):
        prepare_features(dense, "rows")


# Kipf and Welling (ICLR 2017), table 2: 81.5 % on Cora, 79.0 % on PubMed


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("cora", 0.810), ("pubmed", 0.785)])
def test_kipf_and_wellings_gcn_reaches_its_published_accuracy(data: Path, name: str, least: float):
    graph = load(name, data)
    accuracies = []
    for seed in range(3):
        settings = RunConfig()
        settings.model.hidden, settings.model.dropout, settings.model.input_dropout = 16, 0.5, 0.5
        settings.train.weight_decay, settings.train.decay, settings.train.lr = 5e-4, "first", 0.01
        settings.train.epochs, settings.train.evaluate_every = 200, 200
        settings.train.keep_weights, settings.train.seed = "last", seed
        accuracies.append(Trainer(graph, settings).fit().accuracy["test"])
    assert len(set(accuracies)) > 1
    assert statistics.mean(accuracies) >= least, accuracies


# Veličković et al. (ICLR 2018), table 2: 83.0 % on Cora


@pytest.mark.slow
def test_velickovics_gat_reaches_82_percent_on_cora(data: Path):
    """8 heads × 8, then one; dropout 0.6 of inputs, activations and weights; patience 100."""
    graph = load("cora", data)
    accuracies = []
    for seed in range(3):
        settings = RunConfig()
        settings.model.name, settings.model.hidden, settings.model.heads = "gat", 64, 8
        settings.model.dropout = settings.model.input_dropout = settings.model.attention_dropout = 0.6
        settings.train.weight_decay, settings.train.decay, settings.train.lr = 5e-4, "all", 0.005
        settings.train.epochs, settings.train.patience, settings.train.seed = 1000, 100, seed
        accuracies.append(Trainer(graph, settings).fit().accuracy["test"])
    assert len(set(accuracies)) > 1
    assert statistics.mean(accuracies) >= 0.820, accuracies
