"""Candidates, their order, what fits, what is sampled or thrown."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from weft.errors import UserError
from weft.graph import Graph, Store, load, open_store, write_store
from weft.graph.renumber import renumbered
from weft.parallel import Blocks, Grid, choose
from weft.partition.grids import line_volumes
from weft.planner import cuts
from weft.planner.cost import Machine
from weft.planner.cuts import Shape, cut
from weft.planner.default import default_profile
from weft.planner.plan import Candidate, candidates, make_work, plan
from weft.planner.profile import Link
from weft.train import RunConfig

from .test_foretell import directed, settings


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6, 8, 12, 27])
def test_candidates_differ_and_are_what_their_options_say(ranks):
    found = list(candidates(ranks, ["random", "metis"]))
    assert len({(c.grid, c.exchange, c.partition) for c in found if c.strategy != "halo"}) == len(
        [c for c in found if c.strategy != "halo"]
    )
    for candidate in found:
        config = RunConfig()
        candidate.apply(config)
        options = config.parallel
        assert choose(options.strategy, ranks, options.grid, options.replication, options.exchange) == (
            candidate.grid, candidate.exchange,
        )  # fmt: skip
        assert options.partition == candidate.partition
        assert options.by_host == "off"


def test_rows_whole_and_sums_that_move_are_a_candidate_and_there_are_never_too_many():
    grids = {str(c.grid) for c in candidates(8, ["random"])}
    assert {"1x8x1", "2x4x1"} < grids
    counts = [len(list(candidates(ranks, ["random"]))) for ranks in (64, 720, 5040)]
    assert max(counts) <= 32


def test_by_host_is_left_to_the_hosts_of_the_run():
    for candidate in candidates(4, ["random"], hosts=[0, 1, 0, 1]):
        config = RunConfig()
        candidate.apply(config)
        assert config.parallel.by_host == ("auto" if candidate.by_host else "off")
    by_host = {c.by_host for c in candidates(4, ["random"], hosts=[0, 0, 0, 1])}
    assert by_host == {False}  # hosts of three and of one share nothing


def test_the_best_on_a_slow_link_moves_fewer_words_and_a_slow_core_does_not_care():
    graph, config = load("sbm:nodes=900,classes=4,features=16"), settings("gcn")
    slow = Machine(default_profile(), 4, hosts=4, between=Link.of_bandwidth(1e-6, 1e6))
    found = plan(Shape.of(graph), config, slow, ["random", "metis"])
    assert found.best.words == min(row.words for row in found.rows)
    assert found.best.messages_seconds > found.best.compute
    assert [row.total(3) for row in found.rows] == sorted(row.total(3) for row in found.rows)
    free = Machine(default_profile(), 4, hosts=4, between=Link.of_bandwidth(1e-9, 1e15))
    plain = plan(Shape.of(graph), config, free, ["random"])
    assert plain.best.messages_seconds < plain.best.compute


def test_a_partition_is_paid_back_or_never_is():
    graph, config = load("sbm:nodes=900,classes=4,features=16"), settings("gcn")
    machine = Machine(default_profile(), 4, hosts=4, between=Link.of_bandwidth(1e-6, 1e6))
    found = plan(Shape.of(graph), config, machine, ["random", "metis"])
    halo = {row.candidate.partition: row for row in found.rows if row.candidate.strategy == "halo"}
    assert halo["metis"].words < halo["random"].words
    assert halo["metis"].partition_seconds > 0 == halo["random"].partition_seconds
    assert found.pays_back(halo["random"]) == 0
    fastest = min(row.seconds for row in found.rows if not row.partition_seconds)
    faster = dataclasses.replace(halo["metis"], seconds=fastest / 2)
    assert found.pays_back(faster) == pytest.approx(halo["metis"].partition_seconds / (fastest / 2))
    assert found.pays_back(dataclasses.replace(halo["metis"], seconds=9.0)) is None


def test_what_does_not_fit_is_not_chosen_though_it_be_faster():
    config = settings("gcn")
    shape = Shape(1_000_000, 30_000_000, 64, 8)
    roomy = plan(shape, config, Machine(default_profile(), 8), ["random"])
    least = min(row.bytes for row in roomy.rows)
    assert roomy.best.bytes > least
    tight = plan(shape, config, Machine(default_profile(), 8, memory_bytes=8 * (least + 1)), ["random"])
    assert [row.candidate for row in tight.rows if row.fits] == [tight.best.candidate]
    assert tight.best.bytes == least
    assert tight.best.seconds > tight.rows[0].seconds


def test_a_graph_by_numbers_of_1e11_arcs_is_planned_without_its_memory():
    config = settings("gcn")
    found = plan(Shape(10**9, 10**11, 100, 50), config, Machine(default_profile(), 64, 8), ["random"])
    one_d = next(row for row in found.rows if row.candidate.strategy == "1d")
    assert one_d.how == "from numbers"
    width = 5  # the hidden one: A·X is kept, and the last layer's product comes before A
    moved = 10**9 // 64 * 63 * min(width, 50)
    assert one_d.words == pytest.approx(2 * moved, rel=1e-3)  # there and back
    assert one_d.bytes > 2 * 10**11 / 64 * 8


def test_expected_crossings_are_those_of_a_random_partition_within_a_few_percent(monkeypatch):
    graph = load("kronecker:scale=10,degree=12,directed=true,features=3,classes=2")
    shape = Shape.of(graph)
    counted = cut(shape, Grid(4, 2), "random", "gcn")
    monkeypatch.setattr(cuts, "COUNTED_ARCS", 10)
    expected = cut(Shape.of(graph.replace(name="again")), Grid(4, 2), "random", "gcn")
    assert (counted.how, expected.how) == ("counted", "from degrees")
    assert expected.wrote.sum() == pytest.approx(counted.wrote.sum(), rel=0.05)  # by the degrees of rows
    assert expected.arcs.sum() == pytest.approx(counted.arcs.sum(), rel=0.05)
    assert expected.read.sum() == pytest.approx(counted.read.sum(), rel=0.35)  # columns are not counted


def test_a_graph_too_large_to_cut_is_sampled_and_says_so(monkeypatch):
    graph = load("sbm:nodes=600,classes=3,features=4")
    whole = cut(Shape.of(graph), Grid(3), "metis", "gcn")
    monkeypatch.setattr(cuts, "COUNTED_ARCS", 10)
    monkeypatch.setattr(cuts, "SAMPLED_ARCS", graph.num_arcs // 2)
    shape = Shape.of(graph)
    sampled = cut(shape, Grid(3), "metis", "gcn")
    assert sampled.how == "sampled: 300 vertices were cut"
    random = cut(shape, Grid(3), "random", "gcn")
    assert sampled.read.sum() < random.read.sum()
    assert whole.read.sum() == line_volumes(graph, whole.blocks.parts, (3, 1))[0]


def test_of_a_large_store_a_plan_reads_stretches_of_the_pointers_and_not_all(tmp_path, monkeypatch):
    graph = load("er:nodes=3001,degree=8,directed=true,features=3,classes=2,seed=3")
    path = write_store(graph, tmp_path / "g.weft")
    monkeypatch.setattr(cuts, "STRETCHES", 7)
    monkeypatch.setattr(cuts, "STRETCH", 13)
    read = []
    look = Store._map

    def spy(self, key, first=0, last=None):
        read.append((key, self.num_nodes + 1 - first if last is None else last - first))
        return look(self, key, first, last)

    monkeypatch.setattr(Store, "_map", spy)
    shape = Shape.of(open_store(path, verify=False), counted_arcs=10)
    found = cut(shape, Grid(4), "random", "gcn")
    assert found.how == "from degrees"
    assert {key for key, _ in read} == {"indptr"}
    assert sum(count for _, count in read) == 7 * 14
    whole = cut(Shape.of(graph, counted_arcs=10), Grid(4), "random", "gcn")
    assert found.read.sum() == pytest.approx(whole.read.sum(), rel=0.1)


@pytest.fixture
def in_parts(tmp_path) -> tuple[Graph, Store]:
    """Four communities, of which the store has each as a part, and parts are not even."""
    graph = load("sbm:nodes=901,classes=4,features=4,degree=5,seed=2")
    label = graph.labels.clone()
    label[:150] = 0
    order = label.argsort(stable=True)
    lying = renumbered(graph, order)
    path = write_store(lying, tmp_path / "p.weft", parts=label.bincount(minlength=4).tolist())
    return lying, open_store(path, verify=False)


@pytest.mark.parametrize("grid", [Grid(4), Grid(2, 2), Grid(2, 1, 2)], ids=str)
def test_the_parts_of_a_store_are_planned_as_they_lie_and_not_as_random(in_parts, grid):
    graph, store = in_parts
    counted = cut(Shape.of(store), grid, "block", "gcn")
    assert counted.how == "counted"
    assert counted.blocks.sizes == store.parts
    assert counted.read.sum() == line_volumes(graph, counted.blocks.parts // grid.feature, grid.shape[:2])[0]
    sampled = cut(Shape.of(store, counted_arcs=10), grid, "block", "gcn")
    random = cut(Shape.of(store, counted_arcs=10), grid, "random", "gcn")
    assert sampled.how == f"sampled: {store.num_arcs:,} arcs were looked at"
    assert sampled.blocks.sizes == store.parts
    assert sampled.read.sum() < 0.9 * random.read.sum()
    assert sampled.read.sum() == pytest.approx(counted.read.sum(), rel=0.2)
    assert sampled.wrote.sum() == pytest.approx(counted.wrote.sum(), rel=0.2)
    slabs = [arcs.sum(axis=(1, 2)) for arcs in (sampled.arcs, counted.arcs)]
    assert slabs[0] == pytest.approx(slabs[1], rel=0.01)


def test_blocks_that_are_no_parts_of_the_store_are_even(in_parts):
    _, store = in_parts
    for shape in (Shape.of(store), Shape.of(store, counted_arcs=10)):
        assert cut(shape, Grid(3), "block", "gcn").blocks.sizes == Blocks.even(901, Grid(3)).sizes


def test_a_row_with_more_arcs_than_are_looked_at_is_passed_over(monkeypatch):
    star = Graph.from_arcs(list(range(1, 60)), [0] * 59, 60)
    monkeypatch.setattr(cuts, "SAMPLED_ARCS", 64)
    monkeypatch.setattr(cuts, "STRETCHES", 2)
    shape = Shape.of(star.replace(features=torch.ones(60, 2)), counted_arcs=10)
    assert [len(ends) for ends in shape.ends] == [0, 0]
    assert cut(shape, Grid(2), "block", "gcn").how == "from degrees"


def test_by_numbers_alone_nothing_is_cut():
    with pytest.raises(UserError, match="partition metis needs the graph's arcs"):
        cut(Shape(100, 500, 3, 2), Grid(2), "metis", "gcn")


def test_mistakes_are_one_line():
    machine = Machine(default_profile(), 4)
    with pytest.raises(UserError, match="4 ranks are more than the graph's 3 vertices"):
        plan(Shape(3, 5, 3, 2), settings(), machine, ["random"])
    with pytest.raises(UserError, match="Give --features and --classes"):
        plan(Shape(9, 5, 0, 2), settings(), machine, ["random"])
    with pytest.raises(UserError, match="no candidate is left"):
        plan(Shape(9, 5, 3, 2), settings(), machine, ["random"], lambda candidate: False)


def test_a_model_of_arc_features_is_planned_with_them():
    graph = directed()
    rich = graph.replace(arc_data={"features": torch.rand(graph.num_arcs, 3)})
    work = make_work(settings("gatv2"), Shape.of(rich))
    assert work.arc_data["features"].shape == (0, 3)
    found = plan(Shape.of(rich), settings("gatv2"), Machine(default_profile(), 2), ["random"])
    bare = plan(Shape.of(graph), settings("gatv2"), Machine(default_profile(), 2), ["random"])
    assert found.best.bytes > bare.best.bytes


def test_why_names_the_words_that_1d_would_receive():
    graph = load("sbm:nodes=900,classes=4,features=16")
    machine = Machine(default_profile(), 4, hosts=4, between=Link.of_bandwidth(1e-6, 1e6))
    found = plan(Shape.of(graph), settings("gcn"), machine, ["random", "metis"])
    assert str(found.best.candidate) in found.why()
    assert "times the words" in found.why()
    assert str(Candidate("2d", Grid(2, 1, 2), "dense", "random")) == "2d 2x2, dense, random"
