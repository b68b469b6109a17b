"""Checkpoints: resumed runs are the uninterrupted run, on the same ranks and on others; damage is found."""

from __future__ import annotations

import json
import random
import shutil
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from weft.comm import Communicator, run_ranks
from weft.errors import UserError
from weft.graph import Graph, hold_out
from weft.graph.store import checksum
from weft.train import RunConfig, RunFolder, Trainer
from weft.train.checkpoint import Checkpoint, Piece, Torn, checkpoints, complete, newest, write_shard
from weft.train.every import Every

from .graphs import config, small

WAYS: dict[str, dict[str, Any]] = {
    "whole": {"model_dropout": 0.3},
    "momentum": {"optimizer": "sgd", "optimizer_options": {"momentum": 0.9}, "scheduler": "plateau"},
    "pull": {"batch_size": 13, "feed": "pull", "scheduler": "cosine", "model_dropout": 0.3},
    "push-pull": {"batch_size": 13, "feed": "push-pull", "clip_norm": 0.5},
    "subgraph": {"batch_size": 40, "batching": "subgraph", "model_dropout": 0.3},
    "pipeline": {"batch_size": 6, "feed": "push-pull", "pipeline": True},
    "pipeline, pull": {"batch_size": 6, "feed": "pull", "pipeline": True},
    "link": {"task": "link", "pair_batch": 90, "embedding_width": 3, "clip_norm": 0.7},
    "link, pull": {"task": "link", "batch_size": 90, "feed": "pull", "embedding_width": 3},
    "link, push-pull": {"task": "link", "batch_size": 90, "feed": "push-pull", "embedding_width": 3},
    "link, pipeline": {"task": "link", "batch_size": 60, "feed": "push-pull", "pipeline": True,
                       "embedding_width": 3},
    "link, pipeline, pull": {"task": "link", "batch_size": 60, "feed": "pull", "pipeline": True,
                             "embedding_width": 3},
}  # fmt: skip


@pytest.fixture(autouse=True)
def _not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """No power fails in here, and a sync takes milliseconds."""
    monkeypatch.setattr("os.fsync", lambda handle: None)


def settings(way: str, **more: Any) -> RunConfig:
    made = config(epochs=4, dtype="float64", keep=99, checkpoint_every="3batches")
    made.model.name = "sage"
    for name, value in (WAYS[way] | more).items():
        section = next(
            s for s in (made.train, made.batch, made.link, made.parallel, made.model)
            if hasattr(s, name.removeprefix("model_"))
        )  # fmt: skip
        setattr(section, name.removeprefix("model_"), value)
    if made.train.task == "link":
        made.link.hits = 5
    if made.batch.batch_size and made.batch.batching == "neighbours":
        made.batch.fanouts = "4,3"
    return made


def graph_of(way: str) -> Graph:
    return hold_out(small(), 0.1, 0.1, 0) if "link" in way else small()


def train(
    comm: Communicator, graph: Graph, made: RunConfig, save: str = "", resume: str = ""
) -> dict[str, Any]:
    """What a run learned, whole, on every rank."""
    trainer = Trainer(graph, made, comm)
    folder = RunFolder.create(made) if save and comm.rank == 0 else None
    result = trainer.fit(folder, resume=Checkpoint(Path(resume)) if resume else None)
    if folder is not None:
        folder.__exit__()
    found = trainer.weights()
    if "embeddings" in found:
        found["embeddings"] = trainer.A.layout.collect(found["embeddings"])
    return {"loss": result.loss, "best": result.best_epoch, "scores": result.scores, "weights": found}


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    alike = all(torch.equal(a["weights"][name], b["weights"][name]) for name in a["weights"])
    return alike and all(a[key] == b[key] for key in ("loss", "best", "scores"))


def far(a: dict[str, Any], b: dict[str, Any]) -> float:
    loss = max(abs(x - y) / abs(x) for x, y in zip(a["loss"], b["loss"], strict=True))
    pairs = [(a["weights"][name], b["weights"][name]) for name in a["weights"]]
    return max(loss, *(float((x - y).abs().max() / x.abs().max()) for x, y in pairs))


@pytest.mark.parametrize(("ranks", "keep"), [(1, "last"), (3, "best")])
@pytest.mark.parametrize("way", WAYS)
def test_a_resumed_run_is_the_uninterrupted_one_to_the_bit_and_on_other_ranks_up_to_rounding(
    way, ranks, keep
):
    graph = graph_of(way)
    whole = run_ranks(train, ranks, "threads", graph, settings(way, keep_weights=keep, out="run"), "run")[0]
    kept = checkpoints(Path("run"))[::-1]
    assert kept
    middle = [path for path in kept if not path.name.endswith(".000000")]
    assert middle or "batch_size" not in WAYS[way]
    for path in {kept[0], kept[-1], *middle[:2]}:
        again = run_ranks(train, ranks, "threads", graph, settings(way, keep_weights=keep), "", str(path))[0]
        assert same(again, whole), path.name
    other = {"ranks": 4 - ranks, "partition": "hash"}
    if ranks == 1 and "batch_size" not in WAYS[way]:
        other |= {"strategy": "grid", "grid": "1x3x1", "exchange": "sparse"}
    path = (middle or kept)[0]
    elsewhere = settings(way, keep_weights=keep, **other)
    again = run_ranks(train, other["ranks"], "threads", graph, elsewhere, "", str(path))[0]
    assert far(again, whole) < 1e-12
    assert again["best"] == whole["best"]


def test_the_feed_may_change_too():
    graph = graph_of("link, pull")
    whole = run_ranks(train, 2, "threads", graph, settings("link, pull", out="run"), "run")[0]
    path = next(p for p in checkpoints(Path("run")) if not p.name.endswith(".000000"))
    again = run_ranks(train, 3, "threads", graph, settings("link, push-pull"), "", str(path))[0]
    assert far(again, whole) < 1e-12


def test_early_stopping_ends_where_it_would_have():
    made = settings("whole", epochs=200, patience=3, lr=0.3, checkpoint_every="1", out="run")
    whole = run_ranks(train, 1, "threads", small(), made, "run")[0]
    assert len(whole["loss"]) < 200
    for path in checkpoints(Path("run"))[:3]:
        again = run_ranks(train, 1, "threads", small(), settings("whole", epochs=200, patience=3, lr=0.3),
                          "", str(path))[0]  # fmt: skip
        assert same(again, whole)


def test_only_so_many_are_kept():
    made = settings("whole", epochs=9, checkpoint_every="1", keep=3, out="run")
    run_ranks(train, 1, "threads", small(), made, "run")
    assert [p.name for p in checkpoints(Path("run"))] == ["000009.000000", "000008.000000", "000007.000000"]
    assert {p.name for p in Path("run/checkpoints").iterdir()} == {p.name for p in checkpoints(Path("run"))}


# What is on disk


@pytest.fixture
def kept() -> Path:
    """Two checkpoints of a run with embeddings, written by two ranks."""
    made = settings("link", epochs=3, checkpoint_every="1", keep=2, out="run")
    run_ranks(train, 2, "threads", graph_of("link"), made, "run")
    assert len(checkpoints(Path("run"))) == 2
    return Path("run")


def alone(run: Path) -> tuple[Checkpoint | None, list[str]]:
    return run_ranks(newest, 1, "threads", run)[0]


def test_files_are_plain_arrays_and_the_manifest_is_json(kept):
    path = checkpoints(kept)[0]
    manifest = json.loads((path / "manifest.json").read_text())
    assert manifest["facts"]["epoch"] == 3
    for file, (size, crc) in manifest["files"].items():
        raw = (path / file).read_bytes()
        assert (len(raw), zlib.crc32(raw)) == (size, crc)
        np.load(path / file, allow_pickle=False)
    assert {p.name for p in path.iterdir()} == {"manifest.json", *manifest["files"]}
    found = Checkpoint(path)
    rows = [np.load(path / b.file) for b in found._blocks["weights/embeddings"]]
    assert sum(map(len, rows)) == 160 == found.shape("weights/embeddings")[0]


def test_every_flipped_bit_cut_or_missing_file_is_found_and_the_last_good_one_is_used(kept):
    path, older = checkpoints(kept)
    files = sorted(path.iterdir())
    draw = random.Random(0)
    for number in range(300):
        file = draw.choice(files)
        raw = bytearray(file.read_bytes())
        if number % 3 == 0:
            place = draw.randrange(len(raw))
            damaged: bytes | None = bytes(
                raw[:place] + bytes([raw[place] ^ 1 << draw.randrange(8)]) + raw[place + 1 :]
            )
        elif number % 3 == 1:
            damaged = bytes(raw[: draw.randrange(len(raw))])
        else:
            damaged = None
        file.unlink() if damaged is None else file.write_bytes(damaged)
        found, torn = alone(kept)
        assert found is not None
        assert (found.path, len(torn)) == (older, 1), (file.name, number)
        assert torn[0].startswith(path.name)
        file.write_bytes(bytes(raw))
    assert alone(kept)[0].path == path  # and mended it is good again


def test_a_folder_that_was_never_completed_is_no_checkpoint(kept):
    shutil.copytree(checkpoints(kept)[0], kept / "checkpoints" / ".000009.000000.part")
    assert alone(kept)[0].path == checkpoints(kept)[0]
    RunFolder.reopen(kept, 3, []).__exit__()
    assert not (kept / "checkpoints" / ".000009.000000.part").exists()


def test_a_manifest_that_points_elsewhere_or_lies_is_refused(kept):
    path = checkpoints(kept)[0]
    text = (path / "manifest.json").read_text()
    body = json.loads(text)
    body.pop("checksum")
    for change in (
        {"files": {"../../config.toml": [1, 2]}},
        {"blocks": [{**body["blocks"][0], "shape": [-1]}]},
        {"blocks": [{**body["blocks"][0], "file": "other.npy"}]},
        {"blocks": [{**body["blocks"][0], "dtype": "|O"}]},
        {"blocks": 7},
        {"facts": [1]},
    ):
        from weft.train.checkpoint import _sealed

        (path / "manifest.json").write_text(_sealed(body | change))
        with pytest.raises(Torn):
            Checkpoint(path)
    (path / "manifest.json").write_text(_sealed(body | {"format": 2}))
    with pytest.raises(UserError, match=r"has format 2; this weft reads up to 1\. Upgrade weft\.$"):
        Checkpoint(path)


def test_blocks_of_any_shape_are_read_by_global_index():
    x = np.arange(60.0).reshape(10, 6)
    ids = [np.array([7, 2, 9]), np.array([0, 1, 3, 4, 5, 6, 8])]
    folder = Path("c/000001.000000")
    for rank in (0, 1):
        write_shard(folder, rank, [
            Piece("rows", x[ids[rank]], x.shape, ids[rank]),
            Piece("columns", x[:, 4 * rank : 4 + 2 * rank], x.shape, None, (4 * rank, 4 + 2 * rank)),
            Piece("ranges", x[6 * rank : 6 + 4 * rank], x.shape, (6 * rank, 6 + 4 * rank)),
        ])  # fmt: skip
    complete(folder, 2, {})
    found = Checkpoint(folder)
    wanted = np.array([9, 0, 8, 2])
    for name in ("rows", "columns", "ranges"):
        assert np.array_equal(found.read(name), x)
        assert np.array_equal(found.read(name, wanted), x[wanted])
        assert np.array_equal(found.read(name, None, (3, 5)), x[:, 3:5])
        assert np.array_equal(found.read(name, wanted, (1, 6)), x[wanted, 1:6])


def test_a_block_that_nobody_wrote_is_missed():
    write_shard(Path("c/000001.000000"), 0, [Piece("x", np.zeros((2, 3)), (5, 3), np.array([1, 4]))])
    complete(Path("c/000001.000000"), 1, {})
    with pytest.raises(Torn, match="does not hold all of x"):
        Checkpoint(Path("c/000001.000000")).read("x", np.array([1, 2]))


def test_another_model_is_refused(kept):
    made = settings("link", epochs=3, model_hidden=9)
    with pytest.raises(
        UserError, match=r"is 11x8 in run/checkpoints/.*, 11x9 here\. Resume with the run's own"
    ):
        run_ranks(train, 1, "threads", graph_of("link"), made, "", str(checkpoints(kept)[0]))


def test_a_disk_that_is_full_costs_the_checkpoint_and_not_the_run(capsys, monkeypatch):
    import weft.train.saving as saving

    real, tried = saving.write_shard, []

    def full(folder: Path, rank: int, pieces: Any) -> None:
        tried.append(folder.name)
        if len(tried) > 1:
            raise OSError(28, "No space left on device")
        real(folder, rank, pieces)

    monkeypatch.setattr(saving, "write_shard", full)
    made = settings("whole", epochs=4, checkpoint_every="1", out="run")
    whole = run_ranks(train, 1, "threads", small(), made, "run")[0]
    assert len(whole["loss"]) == 4
    assert len(tried) == 3
    assert [path.name for path in Path("run/checkpoints").iterdir()] == ["000002.000000"]
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    assert "no checkpoint was written: No space left on device; training goes on" in err


def test_the_graphs_checksum_is_that_of_its_contents():
    a, b = small(), small().replace(name="other")
    assert checksum(a) == checksum(b)
    moved = a.features.clone()
    moved[0, 0] += 1e-6
    assert checksum(a) != checksum(a.replace(features=moved))
    assert checksum(a) != checksum(a.replace(test_mask=None))


@pytest.mark.parametrize("text", ["", "often", "1.5", "-3", "0min", "3 weeks", "nan", "1e3"])
def test_what_says_nothing_about_time_is_refused(text):
    with pytest.raises(UserError, match="is no number of epochs, batches or minutes"):
        Every.parse(text)
