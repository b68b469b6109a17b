"""Moves and swaps after a cut: the cost that they count is `measure`'s, and the slowest part gets faster."""

from __future__ import annotations

import numpy as np
import pytest

from weft.graph import Graph, er, kronecker
from weft.kernels import native
from weft.partition import measure, partition_graph
from weft.partition.best import Aim, Contender, Lane, best
from weft.partition.methods import PartitionOptions
from weft.partition.refine import Nets, Price, plain, refine, work_bound

from .cases import communities


def hubs(parts: int, each: int) -> tuple[Graph, np.ndarray]:
    """`each` hubs that everybody reads, all in part 0; every part has arcs of its own."""
    n = 40 * parts
    owner = np.repeat(np.arange(parts), 40)
    rows = np.arange(n)
    near = (rows + 1) % 40 + 40 * owner
    source = np.concatenate([near, np.tile(np.arange(each), n)])
    target = np.concatenate([rows, np.repeat(rows, each)])
    return Graph.from_arcs(source, target), owner


def bounds(graph: Graph, parts: np.ndarray, count: int, share: float = 0.6, **more: float) -> Price:
    """Bounds that some parts are above of."""
    cost = measure(graph, parts, count)
    send, receive = (int(share * x.max()) for x in (cost.volumes, cost.between.sum(0)))
    return Price(int(0.95 * cost.loads.max()), send, receive, **more)


@pytest.mark.parametrize("excess", [0.0, 1.0, 5.0])
@pytest.mark.parametrize("message", [0.0, 1.0, 30.0])
def test_the_change_that_moves_count_is_that_of_counting_anew(excess, message):
    draw = np.random.default_rng(0)
    for seed, (nodes, count) in enumerate([(60, 5), (90, 2), (120, 9), (300, 70)]):
        # Directed; hubs have more readers than there are places in a short list.
        target, source = draw.integers(0, nodes, 6 * nodes), (draw.random(6 * nodes) ** 3 * nodes).astype(int)
        graph = Graph.from_arcs(source, target, nodes)
        parts = draw.integers(0, count, nodes)
        price = bounds(graph, parts, count, excess=excess, message=message)
        made, change = Nets.of(graph).refine(parts, count, price, seed, passes=3)
        before, after = (price.of(measure(graph, x, count)) for x in (parts, made))
        assert change < 0
        assert after - before == pytest.approx(change, rel=1e-9)


def test_cpp_finds_what_trying_every_move_finds():
    """Neither is the best there is: one looks at swaps, the other at every part."""
    graph = communities(classes=4, nodes=60)
    parts = partition_graph(graph, 4, "random").numpy()
    price = bounds(graph, parts, 4)
    before = price.of(measure(graph, parts, 4))
    ours, slow = (price.of(measure(graph, f(graph, parts, 4, price, 1, 4), 4)) for f in (refine, plain))
    assert slow < 0.6 * before
    assert ours < 1.1 * slow


def test_without_the_extension_plain_serves(monkeypatch):
    monkeypatch.setattr(native, "extension", None)
    graph = communities(classes=3, nodes=30)
    parts = partition_graph(graph, 3, "random").numpy()
    price = bounds(graph, parts, 3)
    made, change = Nets.of(graph).refine(parts, 3, price, passes=1)
    assert change == price.of(measure(graph, made, 3)) - price.of(measure(graph, parts, 3)) < 0


def test_hubs_are_shared_out_at_next_to_no_volume():
    graph, owner = hubs(parts=8, each=8)
    before = measure(graph, owner, 8)
    price = Price(int(1.2 * before.loads.mean()), send=20, receive=10**6, message=0)
    after = measure(graph, refine(graph, owner, 8, price), 8)
    assert before.volume_max == 8 * 7
    assert after.volume_max <= 28  # one net of a hub is seven rows: no bound can be met exactly
    assert after.volume_total <= 1.1 * before.volume_total


def test_a_message_that_is_worth_much_is_not_sent():
    graph, owner = hubs(parts=8, each=8)
    before = measure(graph, owner, 8)
    dear, cheap = (
        measure(graph, refine(graph, owner, 8, Price(400, 20, 10**6, message=worth)), 8)
        for worth in (1000, 0)
    )
    assert dear.messages_total <= before.messages_total < cheap.messages_total


@pytest.mark.parametrize("method", ["random", "metis"])
def test_no_column_gets_worse_and_balance_stays(method):
    graph = kronecker(scale=9, degree=8).with_self_loops()
    parts = partition_graph(graph, 8, method, PartitionOptions(epsilon=0.05)).numpy()
    before = measure(graph, parts, 8)
    nets = Nets.of(graph)
    most = max(work_bound(nets.weights, 8, 0.05), int(before.loads.max()))
    price = Price(most, int(0.9 * before.volume_max), int(before.between.sum(0).max()))
    after = measure(graph, nets.refine(parts, 8, price)[0], 8)
    assert after.volume_total < before.volume_total
    assert after.volume_max < before.volume_max
    assert after.messages_total <= before.messages_total
    assert after.loads.max() <= most


def test_a_part_that_is_too_heavy_sheds_work_and_none_becomes_so():
    graph = er(nodes=200, degree=6, directed=True)
    parts = np.where(np.arange(200) < 80, 0, np.arange(200) % 5)
    most = work_bound(Nets.of(graph).weights, 5, 0.05)
    before, after = (
        measure(graph, x, 5).loads.max() for x in (parts, refine(graph, parts, 5, Price(most, 10**6, 10**6)))
    )
    assert after <= most < before


def test_the_same_seed_refines_alike():
    graph = er(nodes=80, degree=6, directed=True)
    parts = partition_graph(graph, 5, "random").numpy()
    price = bounds(graph, parts, 5)
    one, two, other = (refine(graph, parts, 5, price, seed) for seed in (3, 3, 4))
    assert np.array_equal(one, two)
    assert not np.array_equal(one, other)


def test_best_is_in_no_column_worse_than_what_it_began_with():
    pytest.importorskip("mtkahypar")
    graph = kronecker(scale=9, degree=8).with_self_loops()
    said: list[str] = []
    options = PartitionOptions(say=said.append, epsilon=0.05)
    made = measure(graph, partition_graph(graph, 8, "best", options), 8)
    first = [measure(graph, partition_graph(graph, 8, x, options), 8) for x in ("metis", "hypergraph")]
    drawn = measure(graph, partition_graph(graph, 8, "random", options), 8)
    assert made.volume_max <= min(m.volume_max for m in (*first, drawn))
    assert made.volume_total <= min(m.volume_total for m in first)
    assert made.messages_total <= min(m.messages_total for m in first)
    assert any(line.startswith("best: ") for line in said)


def test_balance_comes_before_the_maximum_and_that_before_the_worst_column():
    graph = communities(classes=4, nodes=60)
    names = ("random", "metis")
    cut = {name: partition_graph(graph, 4, name).numpy() for name in names}
    costs = {name: measure(graph, parts, 4) for name, parts in cut.items()}
    found = [Contender(name, cut[name], costs[name]) for name in names]
    aim = Aim.of([costs["metis"]], costs["random"], 10**6, 10**6)
    assert not aim.levels()
    assert min(found, key=aim.rank).name == "metis"
    # The one that is too heavy is not taken, whatever else it reaches.
    heavy = np.where(np.arange(60) < 57, 0, np.arange(60) % 4)
    found.append(Contender("heavy", heavy, measure(graph, heavy, 4)))
    bound = int(costs["random"].loads.max())
    aim = Aim.of([costs["metis"]], costs["random"], bound, bound)
    assert found[-1].cost.volume_total < costs["metis"].volume_total
    assert min(found, key=aim.rank).name != "heavy"


def crowd(rows: int, columns: int, parts: int) -> tuple[Graph, np.ndarray]:
    """`rows` that read all of `columns` others, each heavier than a part may be; and a ring of vertices."""
    n = rows + columns + 40 * parts
    ring = np.arange(rows + columns, n)
    source = np.concatenate([np.tile(np.arange(rows, rows + columns), rows), np.roll(ring, 1)])
    target = np.concatenate([np.repeat(np.arange(rows), columns), ring])
    dealt = rows + np.arange(columns) % (parts - rows)
    owner = np.concatenate([np.arange(rows), dealt, (ring - ring[0]) // 40])
    return Graph.from_arcs(source, target, n).with_self_loops(), owner.astype(np.int64)


def test_where_epsilon_cannot_be_met_there_is_more_room_step_by_step_and_never_more_than_was():
    graph, owner = crowd(rows=4, columns=300, parts=8)
    weights = Nets.of(graph).weights
    assert weights.max() > 1.03 * weights.sum() / 8  # ε = 0.03 cannot be met
    first, paired = (measure(graph, x, 8) for x in (owner, np.where(owner < 4, owner // 2, owner)))
    aim = Aim.of([first], paired, work_bound(weights, 8, 0.03), int(1.03 * weights.sum() / 8))
    levels = aim.levels()
    assert aim.most < levels[0] < levels[-1] == aim.cap == paired.loads.max()
    drawn = measure(graph, partition_graph(graph, 8, "random"), 8)
    made = measure(graph, best(graph, 8, lambda name: owner, 0.03, 0, lambda line: None), 8)
    assert made.volume_max <= min(first.volume_max, drawn.volume_max)
    assert made.volume_total <= first.volume_total
    assert made.loads.max() <= 1.02 * max(first.loads.max(), drawn.loads.max())


def test_columns_come_before_work_only_where_epsilon_cannot_be_met():
    graph, owner = crowd(rows=4, columns=300, parts=8)
    light, heavy = (
        Contender(str(x), x, measure(graph, x, 8)) for x in (owner, np.where(owner < 4, 0, owner))
    )
    assert heavy.cost.loads.max() > light.cost.loads.max()
    loads = [int(c.cost.loads.max()) for c in (light, heavy)]
    drawn = measure(graph, partition_graph(graph, 8, "random"), 8)
    for can_be_met, taken in ((True, light), (False, heavy)):
        aim = Aim(
            heavy.cost.volume_total, min(heavy.cost.volume_max, drawn.volume_max), heavy.cost.messages_total,
            10**6, loads[0], 0 if can_be_met else loads[1],
        )  # fmt: skip
        assert min((light, heavy), key=aim.rank) is taken


def cliques(many: int, each: int, parts: int) -> tuple[Graph, np.ndarray]:
    """Cliques in pairs; the two of a pair lie in two parts, and no vertex gains by moving alone."""
    inside = [(a, b) for a in range(each) for b in range(each) if a != b]
    arcs = [(c * each + a, c * each + b) for c in range(many) for a, b in inside]
    for c in range(0, many, 2):
        arcs += [(c * each + i, (c + 1) * each + i) for i in range(2)]
        arcs += [((c + 1) * each + i, c * each + i) for i in range(2)]
    source, target = np.array(arcs).T
    return Graph.from_arcs(source, target), np.repeat(np.arange(many) % parts, each)


@pytest.mark.parametrize("message", [0.0, 1.0, 30.0])
def test_the_change_that_clusters_count_is_that_of_counting_anew(message):
    draw = np.random.default_rng(1)
    for seed, (nodes, count) in enumerate([(60, 5), (90, 2), (300, 70), (900, 4)]):
        target, source = draw.integers(0, nodes, 6 * nodes), (draw.random(6 * nodes) ** 3 * nodes).astype(int)
        graph = Graph.from_arcs(source, target, nodes)
        parts = draw.integers(0, count, nodes)
        price = bounds(graph, parts, count, excess=3.0, message=message)
        nets = Nets.of(graph)
        label = nets.labels(parts, 10**6, seed)
        joined, owner = nets.joined(label), np.zeros(label.max() + 1, dtype=np.int64)
        owner[label] = parts
        assert np.array_equal(owner[label], parts)  # clusters are of one part
        assert len(owner) < 0.8 * nodes
        before = price.of(measure(graph, parts, count))
        made, change = joined.refine(owner, count, price, seed, passes=3)
        assert price.of(measure(graph, made[label], count)) - before == pytest.approx(change, rel=1e-9)
        made, change = nets.cycle(parts, count, price, seed, passes=3)
        assert change <= 0
        assert price.of(measure(graph, made, count)) - before == pytest.approx(change, rel=1e-9)


def test_a_cluster_is_no_heavier_than_was_asked_and_the_same_for_the_same_seed():
    graph, owner = cliques(many=16, each=6, parts=4)
    nets = Nets.of(graph)
    label = nets.labels(owner, 60, 3)
    assert np.bincount(label, weights=nets.weights).max() <= 60
    assert sorted(set(label.tolist())) == list(range(label.max() + 1))
    assert np.array_equal(label, nets.labels(owner, 60, 3))
    assert nets.joined(label).weights.sum() == nets.weights.sum()


def test_clusters_move_where_no_vertex_alone_would():
    graph, owner = cliques(many=160, each=6, parts=2)
    price = Price(work_bound(Nets.of(graph).weights, 2, 0.1), 10**6, 10**6)
    nets = Nets.of(graph)
    alone, together = (measure(graph, f(owner, 2, price)[0], 2) for f in (nets.refine, nets.cycle))
    assert alone.volume_total == measure(graph, owner, 2).volume_total
    assert together.volume_total < 0.2 * alone.volume_total
    assert together.loads.max() <= price.most


def test_without_the_extension_a_cycle_is_a_refinement(monkeypatch):
    monkeypatch.setattr(native, "extension", None)
    graph, owner = cliques(many=4, each=3, parts=2)
    price = Price(10**6, 10**6, 10**6)
    nets = Nets.of(graph)
    assert np.array_equal(nets.cycle(owner, 2, price)[0], nets.refine(owner, 2, price)[0])


def test_where_a_column_is_not_reached_clusters_move_with_the_librarys_cycle_in_between():
    graph, owner = cliques(many=160, each=6, parts=2)
    together = np.repeat(np.arange(160) // 2 % 2, 6)  # each pair, but for one
    together[:6] = 1 - together[:6]
    first, wanted = (measure(graph, x, 2) for x in (owner, together))
    aim = Aim(wanted.volume_total, wanted.volume_max, 2, 10**6, int(1.1 * first.loads.mean()))
    lane = Lane(Nets.of(graph), aim, Contender("metis", owner, first), 0)
    assert not any(aim.reached(lane.again()) for _ in range(3))
    seen: list[np.ndarray] = []

    def cycle(parts: np.ndarray) -> np.ndarray:
        seen.append(parts)
        return parts

    tried = lane.breathe(lane.found[0], 1.0, 1.0, cycle)
    assert len(seen) == 1
    assert measure(graph, seen[0], 2).loads.max() <= aim.most
    assert aim.reached(tried[-1])
    assert tried == lane.found[-len(tried) :]


@pytest.mark.parametrize("columns_reached", [True, False])
def test_best_tries_clusters_only_where_a_column_is_not_reached(columns_reached):
    graph, owner = cliques(many=160, each=6, parts=4)
    pair = np.repeat(np.arange(160) // 2 % 4, 6)
    seen: list[np.ndarray] = []

    def cycle(parts: np.ndarray) -> np.ndarray:
        seen.append(parts)
        return parts

    if not columns_reached:  # less volume than the other, and more messages: no vertex alone changes that
        for first, second in enumerate((1, 2, 3, 0)):
            pair[12 * first : 12 * first + 12] = np.repeat([first, second], 6)
    cuts = {"metis": owner, "hypergraph": pair}
    said: list[str] = []
    made = measure(graph, best(graph, 4, cuts.__getitem__, 0.05, 0, said.append, cycle), 4)
    assert bool(seen) != columns_reached
    assert made.volume_total <= min(measure(graph, x, 4).volume_total for x in cuts.values())
    assert any("in clusters" in line for line in said) != columns_reached
