from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from weft.comm import run_ranks
from weft.errors import UserError
from weft.graph import karate, sbm
from weft.train import RunConfig, RunFolder, Trainer
from weft.train.predict import predict, read_run, restore


@pytest.fixture
def run(tmp_path):
    """A short run's folder, as `weft train` leaves it."""
    config = RunConfig()
    config.train.epochs, config.model.hidden, config.train.out = 3, 5, str(tmp_path / "run")
    with RunFolder.create(config) as folder:
        trainer = Trainer(karate(), config)
        result = trainer.fit(folder)
        folder.finish(trainer.model.state_dict(), result.as_dict() | result.gather(trainer))
    return tmp_path / "run"


@pytest.mark.parametrize(("ranks", "strategy"), [(1, "1d"), (3, "halo"), (4, "2d")])
def test_every_grid_writes_the_serial_answer_by_vertex(run, tmp_path, ranks, strategy):
    saved = read_run(run)
    saved.config.parallel.strategy = strategy
    run_ranks(lambda comm: predict(karate(), saved, comm, tmp_path), ranks, "threads")
    trainer = Trainer(karate(), saved.config if ranks == 1 else read_run(run).config)
    trainer.model.load_state_dict(saved.weights)
    trainer.model.eval()
    embedding, logits = trainer.model.embed(trainer.A, trainer.x)
    np.testing.assert_allclose(np.load(tmp_path / "embeddings.npy"), embedding.detach().numpy(), atol=1e-6)
    assert np.array_equal(np.load(tmp_path / "classes.npy"), logits.argmax(1).numpy())


def test_a_graphs_own_vertex_ids_are_written_beside(run, tmp_path):
    named = karate().replace(ids=torch.arange(34) * 7 + 100)
    run_ranks(lambda comm: predict(named, read_run(run), comm, tmp_path), 3, "threads")
    assert np.load(tmp_path / "ids.npy").tolist() == named.ids.tolist()


def test_another_graph_or_model_is_refused_in_one_line(run):
    saved = read_run(run)
    with pytest.raises(UserError, match="trained on 34 features, the graph has 64"):
        restore(saved, sbm(100, features=64).num_features)
    saved.config.model.hidden = 7
    with pytest.raises(UserError, match=r"of another model than its config: layers\.0\.weight"):
        restore(saved, 34)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("config.toml", None, "no config.toml"),
        ("weights.pt", None, "has no weights yet"),
        ("summary.json", "{}", "damaged"),
        ("weights.pt", "not weights", "damaged"),
    ],
)
def test_a_damaged_run_is_refused_in_one_line(run, file, content, words):
    (run / file).unlink()
    if content is not None:
        (run / file).write_text(content)
    with pytest.raises(UserError, match=words):
        read_run(run)


def test_weights_that_are_no_tensors_are_refused(run):
    torch.save(["a list"], run / "weights.pt")
    assert json.loads((run / "summary.json").read_text())["widths"]
    with pytest.raises(UserError, match="dict of tensors"):
        read_run(run)


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("memory", [0, 1 << 26])
def test_another_graphs_features_are_scaled_as_the_runs_own_were(tmp_path, ended, memory):
    """Karate's rows are sparse counts, which `auto` scales; a graph of dense ones must be scaled alike."""
    config = RunConfig()
    config.train.epochs, config.model.hidden, config.train.out = 2, 5, str(tmp_path / "run")
    config.train.checkpoint_every = "1"
    with RunFolder.create(config) as folder:
        trainer = Trainer(karate(), config)
        result = trainer.fit(folder)
        if ended:
            folder.finish(trainer.model.state_dict(), result.as_dict() | result.gather(trainer))
    assert trainer.feature_norm == "row"
    dense = karate().replace(features=torch.arange(34 * 34.0).reshape(34, 34) + 1)
    saved = read_run(tmp_path / "run")
    assert saved.config.data.feature_norm == "row"
    (tmp_path / "out").mkdir()
    run_ranks(lambda comm: predict(dense, saved, comm, tmp_path / "out", memory), 2, "threads")
    trainer = Trainer(dense, saved.config, model=restore(saved, 34))
    scaled = dense.features / dense.features.sum(1, keepdim=True)
    assert torch.allclose(trainer.x, scaled[trainer.A.layout.ids])
    with torch.no_grad():
        embedding, _ = trainer.model.embed(trainer.A, trainer.x)
    np.testing.assert_allclose(np.load(tmp_path / "out" / "embeddings.npy"), embedding.numpy(), atol=1e-6)
