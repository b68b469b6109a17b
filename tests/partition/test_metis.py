from __future__ import annotations

import numpy as np

from weft.graph import Graph
from weft.partition.metis import metis

from .cases import communities


def test_arcs_in_one_direction_hold_vertices_together_as_much_as_those_in_both():
    graph = communities()
    parts = metis(graph, 8, 0.03, 0)
    assert np.array_equal(parts, metis(graph.transposed(), 8, 0.03, 0, _weights(graph)))
    cut = (parts[graph.rows.numpy()] != parts[graph.indices.numpy()]).mean()
    assert cut < 0.5


def _weights(graph: Graph) -> np.ndarray:
    from weft.partition.arcs import row_weights

    return row_weights(graph)


def test_weights_are_what_is_balanced():
    graph = Graph.from_arcs(range(40), [(v + 1) % 40 for v in range(40)])
    weights = np.where(np.arange(40) < 10, 3, 1)
    parts = metis(graph, 2, 0.05, 0, weights)
    loads = np.bincount(parts, weights=weights)
    assert loads.max() <= 1.05 * loads.mean() + 1


def test_nothing_that_metis_says_comes_out_on_standard_output(capfd):
    star = Graph.from_arcs(range(1, 40), [0] * 39)
    metis(star, 20, 0.01, 0)  # it complains of too many parts
    assert capfd.readouterr().out == ""
