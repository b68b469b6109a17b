"""Steps on subgraphs: the losses and gradients of one process, and Σ (λ − 1) · w words."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from weft.cli import main
from weft.comm import Communicator, Ledger, run_ranks
from weft.errors import UserError
from weft.graph import Graph, write_store
from weft.minibatch import KINDS
from weft.parallel import Grid
from weft.parallel.assign import assign
from weft.partition import batch_volume
from weft.train import RunConfig, Trainer
from weft.train.config import BatchConfig
from weft.train.subgraph import own_batches
from weft.train.verify import compare as differences
from weft.train.verify import serial, trace

from .graphs import multilabel, small
from .sampled_ranks import WAYS, compare, in_subgraph, observe, subgraphs

TURNS = [(way, KINDS[k % len(KINDS)]) for k, way in enumerate(WAYS)]


@pytest.mark.parametrize(("way", "kind"), [*TURNS, ("gcn", "vertices"), ("gcn", "edges")])
def test_subgraphs_give_what_one_process_gives(way, kind):
    """`observe` checks the foretold words before each epoch is run."""
    graph, made = small(features=13), in_subgraph(way, kind)
    alone = observe(None, graph, made, 1)
    assert alone["facts"]["subgraph"] == kind
    for ranks in (2, 5):
        for ours in run_ranks(observe, ranks, "threads", graph, made, 1):
            compare(ours, alone, (way, kind, ranks))


@pytest.mark.parametrize(
    ("kind", "ranks", "strategy"), [("vertices", 8, "3d"), ("seeds", 4, "2d"), ("walks", 3, "halo")]
)
def test_more_ranks_and_any_grid_for_evaluation(kind, ranks, strategy):
    made = in_subgraph("sage", kind)
    alone = observe(None, multilabel(), made, 1)
    made.parallel.strategy = strategy
    for ours in run_ranks(observe, ranks, "threads", multilabel(), made, 1):
        compare(ours, alone, (kind, ranks))


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_real_ranks_give_what_one_process_gives(mpi_ranks, tmp_path, ranks):
    """Every kind, with four of the nine models each."""
    store = str(write_store(small(features=13), tmp_path / "g.weft"))
    first = len(KINDS) * (ranks - 2)
    turns = [([*WAYS][(first + k) % len(WAYS)], kind) for k, kind in enumerate(KINDS)]
    assert mpi_ranks(subgraphs, ranks, store, [list(turn) for turn in turns]) == list(range(ranks))


@pytest.mark.parametrize("kind", KINDS)
def test_a_propagation_moves_a_row_once_a_rank_that_reads_it(kind):
    """Two layers of 8-6-4 without dropout: 6 and 4 columns travel, and their errors back."""
    ranks, epochs = 4, 3
    made = in_subgraph("gcn", kind, model__layers=2, model__dropout=0.0, batch__fanouts="4,3")
    made.batch.batch_size = 90 if kind == "edges" else 12
    if kind != "seeds":
        made.batch.fanouts = BatchConfig().fanouts
    whole = Trainer(small(), made)

    def work(comm: Communicator) -> tuple[dict[str, int], torch.Tensor]:
        trainer = Trainer(small(), made, comm)
        with Ledger(comm) as books:
            for epoch in range(1, epochs + 1):
                trainer.step(epoch)
        return {p: books.words(p) for p in books.phases}, trainer.A.layout.blocks.parts

    found = run_ranks(work, ranks, "threads")
    parts, volume, steps = np.asarray(found[0][1]), 0, epochs * whole.task.steps
    for epoch in range(1, epochs + 1):
        for step in whole.task.epoch(epoch):
            arcs = whole.encoder.draws.arcs(step.drawn, step.noise.epoch)
            volume += batch_volume(*arcs, parts, ranks)
    total = {phase: sum(words.get(phase, 0) for words, _ in found) for phase in ("gather", "reduce", "plan")}
    assert volume > 100
    assert total["gather"] == total["reduce"] == volume * (6 + 4)
    assert total["plan"] == volume + steps * ranks * (ranks - 1)


@pytest.mark.filterwarnings("ignore:.* does not read weights:weft.errors.Note")
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("kind", "fanouts"),
    [("vertices", BatchConfig().fanouts), ("seeds", "all,all,all"), ("edges", BatchConfig().fanouts)],
)
def test_all_of_the_graph_in_one_subgraph_is_full_batch_training(kind, fanouts, weighted):
    """The truth: what the whole graph gives."""
    graph = small()
    if weighted:
        g = torch.Generator().manual_seed(0)
        graph = graph.replace(weights=0.5 + torch.rand(graph.num_arcs, generator=g, dtype=torch.float64))
    for way in ("gcn", "sage", "sage max", "gin", "gat"):
        made = in_subgraph(way, kind, batch__fanouts=fanouts, model__dropout=0.0)
        made.batch.batch_size, made.batch.fanouts = 10**6, fanouts
        ours = Trainer(graph, made)
        made.batch = BatchConfig()
        full = Trainer(graph, made)
        assert (ours.encoder.name, full.encoder.name) == ("subgraph", "whole")
        for epoch in (1, 2, 3):
            assert ours.step(epoch) == pytest.approx(full.step(epoch), rel=1e-9), way


def test_an_epoch_passes_once_over_all_vertices_and_counts_those_that_train():
    made = in_subgraph("sage", "vertices")
    made.batch.batch_size = 7
    trainer = Trainer(small(), made)
    for epoch in (1, 2):
        steps = list(trainer.task.epoch(epoch))
        assert len(steps) == -(-160 // 7)
        assert torch.equal(torch.cat([step.drawn for step in steps]).sort().values, torch.arange(160))
        assert torch.equal(torch.cat([step.ids for step in steps]).sort().values, trainer.task.train_ids)
        assert sum(step.share for step in steps) == pytest.approx(1.0)
    again = list(trainer.task.epoch(1))
    assert not torch.equal(again[0].drawn, steps[0].drawn)  # epochs differ


def test_an_epoch_of_edges_passes_once_over_all_arcs_and_its_steps_count_by_them():
    graph = small()
    made = in_subgraph("sage", "edges")
    made.batch.batch_size = 77
    trainer = Trainer(graph, made)
    steps = list(trainer.task.epoch(1))
    assert torch.equal(torch.cat([s.drawn for s in steps]).sort().values, torch.arange(graph.num_arcs))
    assert sum(step.share for step in steps) == pytest.approx(1.0)
    rows, train = graph.rows, set(trainer.task.train_ids.tolist())
    for step in steps:
        assert set(step.ids.tolist()) == set(rows[step.drawn].tolist()) & train


def test_a_graph_whose_training_vertices_read_nobody_is_refused():
    graph = small()
    mask = graph.train_mask
    keep = ~mask[graph.rows]
    bare = Graph.from_arcs(graph.indices[keep], graph.rows[keep], graph.num_nodes)
    alone = bare.replace(features=graph.features, labels=graph.labels, train_mask=mask)
    with pytest.raises(UserError, match=r"goes into a training vertex\. Use --subgraph seeds"):
        Trainer(alone, in_subgraph("sage", "edges"))


def test_ranks_without_a_row_and_steps_without_a_training_vertex_take_part(tmp_path):
    graph = small(nodes=40)
    np.save(tmp_path / "parts.npy", np.arange(40) % 2 * 2)  # rank 1 of 3 owns nothing
    made = in_subgraph("sage", "vertices", parallel__partition=str(tmp_path / "parts.npy"))
    made.batch.batch_size = 3
    alone = observe(None, graph, _alone(made), epochs=1)
    assert any(not step.ids.numel() for step in Trainer(graph, _alone(made)).task.epoch(1))
    for ours in run_ranks(observe, 3, "threads", graph, made, 1):
        compare(ours, alone, "empty")


def test_verify_compares_with_one_process():
    made = in_subgraph("sage", "walks")
    made.train.epochs = 2

    def work(comm: Communicator) -> float:
        rows = differences(trace(small(), made, comm), serial(small(), made))
        return max(rows.values())

    assert max(run_ranks(work, 3, "threads")) < 1e-9


def _alone(made: RunConfig) -> RunConfig:
    """The same on one rank, whose partition is that of no file."""
    out = copy.deepcopy(made)
    out.parallel.partition = "block"
    return out


# The partition for such batches


def test_stochastic_parts_are_made_of_batches_like_the_runs():
    for kind in KINDS:
        made = in_subgraph("sage", kind)
        trainer = Trainer(small(), made)
        sample = own_batches(small(), made, trainer.model)()
        rows, columns = sample(11)
        assert rows.size
        order = torch.randperm(
            {"vertices": 160, "edges": small().num_arcs}.get(kind, trainer.task.train_ids.numel()),
            generator=torch.Generator().manual_seed(11),
        )
        known = trainer.task.train_ids if kind in ("seeds", "walks") else torch.arange(order.numel())
        wanted = trainer.encoder.draws.arcs(known[order[: made.batch.batch_size]], 11)
        assert np.array_equal(rows, wanted[0])
        assert np.array_equal(columns, wanted[1])
    made.batch = BatchConfig(batch_size=19, fanouts="2,1")
    seeds, _ = own_batches(small(), made, trainer.model)()(3)
    assert np.unique(seeds).size == 19
    assert 19 < seeds.size <= 19 * (1 + 2) * (1 + 1)  # pairs of a seed and a row that it reads
    made.batch = BatchConfig()
    assert own_batches(small(), made, trainer.model) is None


def test_rank_0_alone_samples_for_the_partition():
    asked: list[int] = []

    def work(comm: Communicator) -> list[int]:
        options = RunConfig().parallel
        options.partition = "stochastic"

        def batches() -> Any:
            asked.append(comm.rank)
            # Vertices 0…79 read each other, and so do the others: that is where the cut belongs.
            pairs = np.array([(v, u) for side in (0, 80) for v in range(side, side + 80)
                              for u in range(side, side + 80) if v != u])  # fmt: skip
            return lambda seed: (pairs[:, 0], pairs[:, 1])

        return assign(small(), Grid(2), options, 0, comm, batches).parts.tolist()

    for parts in run_ranks(work, 2, "threads"):
        assert len(set(parts[:80])) == len(set(parts[80:])) == 1
        assert parts[0] != parts[80]
    assert asked == [0]


# Mistakes


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--batching subgraf --batch-size 9", "unknown batching 'subgraf'. Did you mean 'subgraph'?"),
        (
            "--batching subgraph --subgraph seed --batch-size 9",
            "unknown subgraph 'seed'. Did you mean 'seeds'?",
        ),
        ("--batching subgraph", "batching is for mini-batches, the whole graph is in every step here."),
        ("--batch-size 9 --subgraph seeds", "batching neighbours does not read subgraph, subgraph does."),
        (
            "--batch-size 9 --batching subgraph --feed pull",
            "batching subgraph does not read feed, neighbours",
        ),
        ("--batch-size 9 --batching subgraph --pipeline", "batching subgraph does not read pipeline, neighb"),
        (
            "--batch-size 9 --batching subgraph --fanouts 3",
            "subgraph vertices does not read fanouts, seeds does.",
        ),
        (
            "--batch-size 9 --batching subgraph --walk-length 3",
            "subgraph vertices does not read walk_length, w",
        ),
        (
            "--batch-size 9 --batching subgraph --subgraph walks --walk-length 0",
            "walk_length must be at least 1",
        ),
        (
            "--batch-size 9 --batching subgraph --subgraph seeds --fanouts 0",
            "fan-out '0' in '0' is not a num",
        ),
        (
            "--batch-size 9 --batching subgraph --task link",
            "task link draws no subgraphs. Use --batching neig",
        ),
    ],
)
def test_a_mistake_is_one_line(words, message, capsys):
    assert main(["train", "sbm:nodes=300,classes=3", "--ranks", "1", *words.split()]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--batching subgraph", "plans foretell batches of neighbours, not subgraphs. Leave out --batching"),
        (
            "--feed pull --cache 10%",
            "plans know nothing of rows that are kept between batches. Leave out --ca",
        ),
    ],
)
def test_plans_say_what_they_do_not_know(words, message, capsys):
    graph = "sbm:nodes=300,classes=3"
    assert main(["plan", graph, "--ranks", "2", "--batch-size", "9", *words.split()]) == 2
    assert message in capsys.readouterr().err


def test_a_run_on_the_command_line_says_what_it_draws(capsys):
    words = (
        "--batch-size 100 --batching subgraph --ranks 2 --engine threads --epochs 2 --partition metis --out r"
    )
    assert main(["train", "sbm:nodes=300,classes=3,features=10", *words.split()]) == 0
    out = capsys.readouterr().out
    assert "subgraphs: 3 batches of 100, vertices and the arcs between them; each row is its owner's" in out
    assert ", as predicted" in out
