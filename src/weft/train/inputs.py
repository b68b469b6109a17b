"""The features of this rank's vertices, read some rows at a time: nobody holds them twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor

from ..comm import Communicator
from ..errors import unknown
from ..graph import Graph, Store
from ..graph.normalise import rows_to_one
from ..memory import empty
from ..paged import pieces
from ..parallel import Rows
from ..parallel.source import read_vertices


def read_features(
    source: Graph | Store, layout: Rows, how: str, dtype: torch.dtype, aside: bool = False
) -> tuple[Tensor, str]:
    """This rank's features [n_own, f], normalised as `how` says (`--feature-norm`), and what that came to.

    `row` or `none`: what `auto` chose is part of what was learned. Every rank calls it.
    `aside`: they lie in a file, where there is a memory budget.
    """
    count, width = layout.ids.numel(), source.num_features
    x = torch.empty(count, 0 if aside else width, dtype=dtype, device="cpu")
    x = empty(count, width, like=x, aside=True) if aside else x

    def fill(make: Callable[[Tensor], Tensor]) -> Iterator[Tensor]:
        for piece in pieces(x, always=True):
            raw = read_vertices(source, layout.ids[piece], "features")
            raw = torch.empty(piece.stop - piece.start, 0, device="cpu") if raw is None else raw
            x[piece] = make(raw).to(dtype)
            yield raw

    # As they are, and what `auto` asks is seen on the way: one pass, unless they are to be scaled.
    seen = fill(lambda raw: raw)
    settled = settled_norm(seen, how, layout.comm)
    for _ in fill(rows_to_one) if settled == "row" else seen:
        pass
    return x, settled


def prepare_features(x: Tensor, how: str, comm: Communicator | None = None) -> Tensor:
    """Features scaled to row sum 1 (`row`), as they are (`none`), or `auto`: row for sparse counts.

    `auto` looks at the rows of all ranks of `comm`.

    >>> prepare_features(torch.tensor([[1., 3.], [0., 0.]]), "row").tolist()
    [[0.25, 0.75], [0.0, 0.0]]
    """
    return rows_to_one(x) if settled_norm([x], how, comm) == "row" else x


def settled_norm(pieces: Iterable[Tensor], how: str, comm: Communicator | None = None) -> str:
    """`row` or `none`, from what `--feature-norm` says and, for `auto`, from the features, seen in pieces."""
    if how not in ("auto", "row", "none"):
        raise unknown("feature_norm", how, ["auto", "row", "none"])
    if how != "auto":
        return how
    facts = torch.zeros(3, dtype=torch.int64, device="cpu")
    for x in pieces:
        # Bags of words: nothing negative, most entries 0.
        negatives = int(x.numel() > 0 and float(x.min()) < 0)
        facts += torch.tensor([negatives, x.numel() - int(x.count_nonzero()), x.numel()], device="cpu")
    if comm is not None:
        facts = comm.all_reduce(facts, phase="plan")
    negative, zeros, entries = facts.tolist()
    return "row" if not negative and 2 * zeros > entries else "none"
