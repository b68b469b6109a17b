"""Links from samples: the same on any ranks, and full-graph training where all neighbours are taken."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from weft.comm import Communicator, Ledger, run_ranks
from weft.errors import UserError
from weft.graph import Graph
from weft.train import RunConfig
from weft.train.sampled_link import SampledLinkTrainer
from weft.train.tasks import check_task, make_trainer
from weft.train.verify import Trace, compare

from .test_link import links, settings

WAYS: dict[str, dict[str, object]] = {
    "sage, learned": {"model_name": "sage", "link_embedding_width": 3, "clip_norm": 0.05},
    "gcn, features": {"model_name": "gcn"},
    "sage max, both": {"model_name": "sage", "model_aggregate": "max", "link_embedding_width": 4},
}


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def sampled(parallel: dict[str, object] | None = None, fanouts: str = "4,3", **options: object) -> RunConfig:
    made = settings(parallel, **{"link_pair_batch": 999, **options})
    made.batch.batch_size, made.batch.fanouts, made.batch.feed = 250, fanouts, "pull"
    return made


def observe(comm: Communicator | None, graph: Graph, made: RunConfig) -> dict[str, Any]:
    trainer = make_trainer(graph, made, comm)
    seen, books, foretold = Trace(), [], []
    for epoch in (1, 2):
        with Ledger(comm) as ledger:
            seen.losses.append(trainer.step(epoch))
        lines = {phase: line for phase, line in ledger.as_dict().items() if line["words"]}
        books.append({phase: (int(x["words"]), int(x["messages"])) for phase, x in lines.items()})
        volume = trainer.predict()
        foretold.append({phase: (w, volume.messages[phase]) for phase, w in volume.words.items()})
        seen.gradients[epoch] = trainer.gradients()
    seen.embedding = trainer.A.collect(trainer.embed())
    return {"trace": seen, "metrics": trainer.evaluate(), "books": books, "foretold": foretold}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("ranks", "strategy"), [(3, "halo"), (4, "2d")])
@pytest.mark.parametrize("parts", [False, True], ids=["all arcs", "a part each"])
def test_ranks_sample_links_as_one_process_does(way, ranks, strategy, parts, monkeypatch):
    alone = observe(None, links(), sampled(**WAYS[way]))
    if parts:
        monkeypatch.setattr("weft.train.trainer.machine_bytes", lambda: 0)
    for ours in run_ranks(observe, ranks, "threads", links(), sampled({"strategy": strategy}, **WAYS[way])):
        rows = compare(ours["trace"], alone["trace"])
        assert max(rows.values()) < 1e-9, max(rows, key=rows.__getitem__)
        assert ("gradient of embeddings, epoch 2" in rows) == ("link_embedding_width" in WAYS[way])
        assert ours["books"] == ours["foretold"]
        assert ("frontier" in ours["books"][1] or "sample" in ours["books"][1]) == parts
        for name, value in alone["metrics"].items():
            assert ours["metrics"][name] == pytest.approx(value, rel=1e-9), name


@pytest.mark.parametrize("way", WAYS)
def test_all_neighbours_give_the_full_graph_training(way):
    whole = observe(None, links(), settings(link_pair_batch=250, **WAYS[way]))
    ours = observe(None, links(), sampled(fanouts="all,all", **WAYS[way]))
    rows = compare(ours["trace"], whole["trace"])
    assert max(rows.values()) < 1e-9, max(rows, key=rows.__getitem__)
    fewer = observe(None, links(), sampled(fanouts="1,1", **WAYS[way]))
    assert compare(fewer["trace"], whole["trace"])["loss"] > 1e-6


def test_a_batch_larger_than_the_pairs_says_what_is_used():
    made = sampled()
    made.batch.batch_size = 10**6
    trainer = make_trainer(links(), made)
    assert isinstance(trainer, SampledLinkTrainer)
    assert (
        f"--batch-size 1,000,000 is more than the {trainer.pairs.total:,} training pairs"
        in trainer.notes()[0]
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"feed": "push-pull"}, "links are fed by pull, push-pull is for --task node. Use --feed pull."),
        ({"pipeline": True}, "links have no pipeline. Use --no-pipeline."),
        ({"memory_budget": "1GB"}, "links hold no copies, memory_budget=1GB was given. Leave it out."),
    ],
)
def test_what_links_do_not_have_is_one_line(change, message):
    made = sampled()
    for name, value in change.items():
        setattr(made.batch, name, value)
    with pytest.raises(UserError) as caught:
        check_task(links(), made)
    assert str(caught.value) == message


def test_fan_outs_that_do_not_match_the_layers_are_refused():
    with pytest.raises(UserError, match="gives 3 of the 2 hops"):
        make_trainer(links(), sampled(fanouts="4,3,2"))
