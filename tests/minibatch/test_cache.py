from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from weft.comm import Communicator, run_ranks
from weft.errors import UserError
from weft.graph import load, open_store, write_store
from weft.minibatch import parse_bytes, plan_copies
from weft.minibatch.topology import Reads, Topology, part_bytes
from weft.parallel import Blocks, Grid


@given(
    budget=st.integers(1, 400), ranks=st.integers(1, 12), arcs=st.integers(1, 50),
    features=st.integers(1, 50), groups=st.booleans(),
)  # fmt: skip
def test_copies_fit_the_budget_and_no_more_would(budget, ranks, arcs, features, groups):
    if budget < arcs + features:
        with pytest.raises(UserError, match=f"Use --memory-budget {arcs + features}, or more ranks"):
            plan_copies(budget, ranks, arcs, features, groups)
        return
    made = plan_copies(budget, ranks, arcs, features, groups)
    used = made.arcs * arcs + made.features * features
    assert used == made.arcs_bytes + made.features_bytes <= budget
    assert 1 <= made.arcs <= ranks
    assert 1 <= made.features <= ranks
    assert not groups or ranks % made.features == 0
    # Greedy: arcs first.
    assert made.arcs == ranks or (made.arcs + 1) * arcs + features > budget
    if not groups:
        assert made.features == ranks or used + features > budget


def test_without_a_budget_arcs_are_copied_where_they_fit_and_features_never():
    assert plan_copies(None, 4, 10, 99, True, spare=40).arcs == 4
    assert plan_copies(None, 4, 10, 99, True, spare=39).arcs == 1
    assert plan_copies(None, 4, 10, 99, True, spare=40).features == 1


def held(comm: Communicator, source: object, reads: Reads, parts: int | None) -> tuple[int, int]:
    """(what a rank holds, what was counted beforehand)."""
    graph = open_store(source, verify=False) if isinstance(source, str) else source
    blocks = Blocks.even(graph.num_nodes, Grid(comm.size), seed=1)
    mine = None if parts is None else [(comm.rank + k) % comm.size for k in range(parts)]
    rows = [blocks.order[slice(*blocks.own(p))] for p in mine or range(comm.size)]
    counted = sum(part_bytes(graph, r, reads, torch.float32) for r in rows)
    return Topology.read(graph, reads, comm, blocks, mine).bytes, counted


@pytest.mark.parametrize("parts", [1, 2, None])
@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("how", ["mean", "gcn", "none"])
def test_what_is_counted_is_what_is_held(tmp_path, how, stored, parts):
    graph = load("sbm:nodes=300,classes=3,features=4")
    source = str(write_store(graph, tmp_path / "g.weft")) if stored else graph
    for real, counted in run_ranks(held, 3, "threads", source, Reads(how, loops=how == "gcn"), parts):
        assert real <= counted <= real + 8 * 3  # a pointer a part


@pytest.mark.parametrize("text", ["9" * 400, "", "GB", "-1GB", "0", "3 parsecs", "1e3MB"])
def test_a_wrong_size_is_one_line(text):
    with pytest.raises(UserError, match=r"is not a size. Write --memory-budget 2GB, or 500MB."):
        parse_bytes(text)
