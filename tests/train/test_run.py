"""The run folder: what it holds, and that it takes the place of nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch

from weft.errors import UserError
from weft.train import RunConfig, RunFolder
from weft.train.run import finite, standing

from .graphs import config


def test_folders_are_numbered_from_one_and_named_after_graph_and_model():
    made = []
    for _ in range(3):
        with RunFolder.create(config()) as folder:
            made.append(str(folder.path))
    assert made == ["runs/sbm-gcn-1", "runs/sbm-gcn-2", "runs/sbm-gcn-3"]


@pytest.mark.parametrize(
    ("graph", "name"),
    [("sbm:nodes=50,classes=2", "sbm"), ("data/soc.txt.gz", "soc"), ("/tmp/g.weft", "g"), (":", "graph")],
)
def test_a_folder_is_named_after_the_graph_whatever_its_spec(graph, name):
    settings = RunConfig()
    settings.data.graph = graph
    with RunFolder.create(settings) as folder:
        assert folder.path == Path(f"runs/{name}-gcn-1")


@pytest.mark.parametrize("kind", ["folder", "file", "dangling link"])
def test_an_existing_path_is_refused_and_left_alone(kind):
    Path("elsewhere").mkdir()
    if kind == "folder":
        Path("taken").mkdir()
        Path("taken/mine.txt").write_text("mine")
    elif kind == "file":
        Path("taken").write_text("mine")
    else:
        os.symlink("nowhere", "taken")
    for attempt in (standing, RunFolder.create):
        with pytest.raises(UserError, match=r"^taken exists already\. Choose another --out, or remove it\.$"):
            attempt(config(out="taken"))
    assert not list(Path("elsewhere").iterdir())
    assert kind != "folder" or [p.name for p in Path("taken").iterdir()] == ["mine.txt"]


def test_a_folder_that_cannot_be_made_is_one_line():
    Path("file").write_text("")
    with pytest.raises(UserError, match=r"^cannot make the run folder file/run: Not a directory"):
        RunFolder.create(config(out="file/run"))
    with pytest.raises(UserError, match=r"^cannot make the run folder x{300}: File name too long"):
        RunFolder.create(config(out="x" * 300))


def test_metrics_are_on_disk_as_soon_as_they_are_recorded():
    with RunFolder.create(config()) as folder:
        folder.record({"epoch": 1, "loss": 0.5, "val_loss": float("nan")})
        lines = (folder.path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"epoch": 1, "loss": 0.5, "val_loss": None}]


def test_a_finished_run_holds_four_files_and_no_scraps():
    with RunFolder.create(config()) as folder:
        folder.finish({"w": torch.arange(3.0)}, {"loss": [1.0, float("inf")]})
    names = sorted(path.name for path in folder.path.iterdir())
    assert names == ["config.toml", "metrics.jsonl", "summary.json", "weights.pt"]
    weights = torch.load(folder.path / "weights.pt", weights_only=True)
    assert weights["w"].tolist() == [0, 1, 2]
    assert json.loads((folder.path / "summary.json").read_text()) == {"loss": [1.0, None]}


def test_the_saved_config_names_no_folder_so_that_it_can_be_run_again():
    with RunFolder.create(config(out="here", seed=3)) as folder:
        text = (folder.path / "config.toml").read_text()
    assert 'out = ""' in text
    assert "seed = 3" in text


def test_json_has_neither_nan_nor_infinity():
    wild = {"a": (1, float("-inf")), "b": {"c": [float("nan"), "text", None, True]}}
    assert finite(wild) == {"a": [1, None], "b": {"c": [None, "text", None, True]}}
