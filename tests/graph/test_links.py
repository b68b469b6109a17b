from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import UserError
from weft.graph import Graph, NonArcs, er, hold_out, karate


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    n = draw(st.integers(1, 9))
    vertex = st.integers(0, n - 1)
    arcs = draw(st.lists(st.tuples(vertex, vertex), max_size=40))
    return Graph.from_arcs([a for a, _ in arcs], [b for _, b in arcs], n)


@given(graphs())
def test_every_pair_that_is_no_arc_has_a_number(graph):
    n = graph.num_nodes
    lacking = NonArcs(graph.indptr, graph.indices, n)
    have = set(zip(graph.rows.tolist(), graph.indices.tolist(), strict=True))
    for row in range(n):
        free = int(lacking.free[row])
        numbers = torch.arange(free)
        found = lacking.column(torch.full((free,), row), numbers).tolist()
        assert found == [u for u in range(n) if (row, u) not in have]


def arcs(graph: Graph) -> set[tuple[int, int]]:
    return set(zip(graph.indices.tolist(), graph.rows.tolist(), strict=True))


def pairs(graph: Graph, key: str) -> set[tuple[int, int]]:
    return {(u, v) for u, v in getattr(graph, key).tolist()}


def directed() -> Graph:
    g = er(nodes=41, degree=5, seed=3)
    keep = torch.arange(g.num_arcs) % 3 > 0
    loops = torch.tensor([1, 7])
    weights = torch.arange(int(keep.sum()) + 2).float()
    return Graph.from_arcs(
        torch.cat([g.indices[keep], loops]), torch.cat([g.rows[keep], loops]), 41, weights=weights
    )


@pytest.mark.parametrize("make", [karate, directed])
def test_held_out_arcs_are_gone_and_false_pairs_are_no_arcs(make):
    whole = make()
    graph = hold_out(whole, 0.1, 0.2, seed=5)
    both = whole.replace(weights=None).is_symmetric
    before, after = arcs(whole), arcs(graph)
    true = pairs(graph, "val_pairs") | pairs(graph, "test_pairs")
    gone = true | {(v, u) for u, v in true} if both else true
    assert before - after == gone
    assert after <= before
    false = [*graph.val_negatives.tolist(), *graph.test_negatives.tolist()]
    assert len(false) == len(true) == len({(min(p), max(p)) if both else tuple(p) for p in false})
    assert all(u != v and (u, v) not in before for u, v in false)
    edges = sum(u < v if both else u != v for u, v in before)
    assert len(graph.val_pairs) == round(0.1 * edges)
    assert len(graph.test_pairs) == round(0.2 * edges)
    assert not pairs(graph, "val_pairs") & pairs(graph, "test_pairs")
    # Loops and weights stay with their arcs.
    assert {a for a in before if a[0] == a[1]} == {a for a in after if a[0] == a[1]}
    if whole.weights is not None:
        of = dict(
            zip(
                zip(whole.indices.tolist(), whole.rows.tolist(), strict=True),
                whole.weights.tolist(),
                strict=True,
            )
        )
        for u, v, w in zip(graph.indices.tolist(), graph.rows.tolist(), graph.weights.tolist(), strict=True):
            assert of[u, v] == w


def test_a_seed_repeats_what_is_held_out_and_another_does_not():
    a, b, c = (hold_out(karate(), seed=seed) for seed in (1, 1, 2))
    assert torch.equal(a.test_pairs, b.test_pairs)
    assert torch.equal(a.test_negatives, b.test_negatives)
    assert not torch.equal(a.test_pairs, c.test_pairs)


def test_nearly_complete_graphs_give_all_their_false_pairs():
    whole = torch.ones(8, 8).triu(1).nonzero()
    graph = Graph.from_arcs(whole[4:, 0], whole[4:, 1], 8).symmetrised()  # 24 edges, 4 pairs without
    held = hold_out(graph, 0.08, 0.08)
    assert len(held.val_negatives) + len(held.test_negatives) == 4
    with pytest.raises(UserError, match="too few pairs without an arc for 10 false pairs"):
        hold_out(graph, 0.2, 0.2)


@pytest.mark.parametrize(
    ("val", "test", "message"),
    [
        (0.0, 0.1, "hold_val must lie between 0 and 1, not 0. Use 0.1."),
        (0.5, 0.5, "hold_val=0.5 and hold_test=0.5 leave no arcs to train on. Lower them."),
        (0.001, 0.1, "karate has 78 edges; hold_val=0.001 and hold_test=0.1 of them leave a part empty."),
    ],
)
def test_a_mistake_is_one_line(val, test, message):
    with pytest.raises(UserError) as caught:
        hold_out(karate(), val, test)
    assert str(caught.value).startswith(message)


def test_a_graph_without_edges_has_none_to_hold_out():
    with pytest.raises(UserError, match="has 0 edges"):
        hold_out(Graph.from_arcs([], [], 5))


@pytest.mark.parametrize("undirected", [True, False])
def test_arcs_that_stay_keep_their_data(undirected):
    graph = er(nodes=40, degree=6, seed=2, directed=not undirected)
    key = graph.rows * 40 + graph.indices
    left = hold_out(graph.replace(arc_data={"key": key, "x": key[:, None].double()}), val=0.1, test=0.2)
    assert left.num_arcs < graph.num_arcs
    assert torch.equal(left.arc_data["key"], left.rows * 40 + left.indices)
    assert torch.equal(left.arc_data["x"].ravel().long(), left.arc_data["key"])
