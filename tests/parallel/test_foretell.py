from __future__ import annotations

import pytest
import torch

from weft.comm import Communicator
from weft.comm.threads import run_threads
from weft.parallel import Blocks, Grid, Operator
from weft.parallel.foretell import foretell
from weft.parallel.volume import Volume

from .cases import directed, factorisations, propagated


def planned(comm: Communicator, graph, blocks: Blocks, exchange: str) -> Volume:
    A = Operator.build(graph, comm, blocks.grid, "gcn", exchange, blocks)
    return A.foretell(lambda dry: propagated(dry, 5))


@pytest.mark.parametrize("exchange", ["dense", "sparse"])
@pytest.mark.parametrize("ranks", [1, 6, 8])
def test_what_is_foretold_from_the_graph_is_what_the_plans_of_all_ranks_predict(ranks, exchange):
    graph = directed(37)
    parts = torch.randint(ranks, (37,), generator=torch.Generator().manual_seed(ranks))
    for shape in factorisations(ranks):
        blocks = Blocks.of_parts(parts, Grid(*shape))
        assert run_threads(planned, ranks, graph, blocks, exchange) == foretell(graph, blocks, 5, exchange)
