"""Generated graphs made on the ranks: each draws a share of the pieces and ends with its own rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ..comm import Communicator
from ..errors import UserError
from ..graph.rows import index_dtype
from ..graph.stream import Drawn


def draw_rows(comm: Communicator, drawn: Drawn, sizes: Sequence[int] | None = None) -> tuple[Tensor, Tensor]:
    """(indptr [own+1], in-neighbours [arcs]) of this rank's rows: rank 0 the first sizes[0], and so on.

    Piece k is drawn by rank k mod P from (seed, k), and each arc goes to the owner of its row; arcs drawn
    twice are merged. So the graph does not depend on P. A rank holds its own rows and one piece; what travels
    is 1 − 1/P of the draws, two words each.

    >>> from weft.comm import run_ranks
    >>> some = Drawn("er", {"nodes": 50, "degree": 4.0})
    >>> whole = run_ranks(draw_rows, 1, "threads", some)[0][1]
    >>> parts = run_ranks(draw_rows, 3, "threads", some)
    >>> bool((torch.cat([columns for _, columns in parts]) == whole).all())
    True
    """
    n = drawn.num_nodes
    if sizes is None:
        sizes = [n * (r + 1) // comm.size - n * r // comm.size for r in range(comm.size)]
    if len(sizes) != comm.size or sum(sizes) != n or min(sizes) < 0:
        raise UserError(
            f"sizes {list(sizes)[:8]} are not those of {n} rows on {comm.size} ranks. Correct them."
        )
    bounds = np.concatenate([[0], np.cumsum(sizes)])
    own = int(bounds[comm.rank])
    keys = np.empty(0, np.int64)  # row · n + column, of the rows of this rank
    for first in range(0, len(drawn.sizes), comm.size):
        row, column = np.empty(0, np.int64), np.empty(0, np.int64)
        number = first + comm.rank
        if number < len(drawn.sizes):
            arcs = drawn.draw(number, drawn.sizes[number])
            row, column = arcs.target, arcs.source
            if drawn.undirected:
                row, column = np.concatenate([row, column]), np.concatenate([column, row])
        came = _to_owners(comm, row, column, bounds)
        keys = np.union1d(keys, (came[:, 0] - own) * n + came[:, 1])
    rows, columns = np.divmod(keys, max(n, 1))
    counts = np.bincount(rows, minlength=sizes[comm.rank])
    indptr = torch.from_numpy(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))
    return indptr, torch.from_numpy(columns).to(index_dtype(n))


def _to_owners(comm: Communicator, row: np.ndarray, column: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """The arcs [m, 2] that belong here, of those of all ranks."""
    owner = np.searchsorted(bounds, row, side="right") - 1
    order = np.argsort(owner, kind="stable")
    give = np.bincount(owner, minlength=comm.size)
    one = [1] * comm.size
    take = comm.all_to_all(torch.from_numpy(give.astype(np.int64)), one, one, phase="draw")
    pairs = torch.from_numpy(np.stack([row[order], column[order]], axis=1))
    return comm.all_to_all(pairs, give.tolist(), take.tolist(), phase="draw").numpy()
