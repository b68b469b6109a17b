"""run_ranks never passes because a child died quietly."""

from __future__ import annotations

import os
import sys

import pytest
import torch

from weft.comm import Communicator, run_ranks
from weft.comm.run import RankFailed
from weft.errors import UserError


def double(comm: Communicator, x: torch.Tensor, plain: dict[str, list[int]]) -> tuple[torch.Tensor, object]:
    return 2 * x + comm.rank, plain


def fail_one(comm: Communicator, how: str) -> None:
    if comm.rank == 1:
        if how == "raise":
            raise ZeroDivisionError("on one")
        if how == "user":
            raise UserError("no such graph. Use cora.")
        if how == "quiet":
            os._exit(0)
        if how == "polite":
            sys.exit(0)
    elif how in ("quiet", "polite"):
        return
    comm.barrier()


def test_arguments_and_results_travel_to_real_ranks_and_back() -> None:
    for rank, (x, plain) in enumerate(run_ranks(double, 2, "torch", torch.arange(3), {"a": [1, 2]})):
        assert torch.equal(x, 2 * torch.arange(3) + rank)
        assert plain == {"a": [1, 2]}


@pytest.mark.parametrize(
    ("how", "kind", "text"),
    [
        ("raise", ZeroDivisionError, "on one"),
        ("user", UserError, "no such graph"),
        ("quiet", RankFailed, "rank 1 of 2 .* without a result"),
        ("polite", RankFailed, "rank 1 of 2 .* without a result"),
    ],
)
def test_the_first_failure_of_real_ranks_is_raised_here(how: str, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text) as caught:
        run_ranks(fail_one, 2, "torch", how)
    if how in ("raise", "user"):
        assert caught.value.rank == 1  # type: ignore[attr-defined]


def test_a_function_inside_another_cannot_go_to_real_ranks() -> None:
    with pytest.raises(UserError, match="Move it to the top"):
        run_ranks(lambda comm: None, 2, "torch")


def test_an_unknown_engine_is_named() -> None:
    with pytest.raises(UserError, match="unknown engine 'mp'"):
        run_ranks(double, 2, "mp")
