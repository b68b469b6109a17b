"""Every operation on every engine and number of ranks, against numpy, with its ledger counts."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

from weft.comm import Communicator, run_ranks
from weft.comm.selftest import CASES
from weft.errors import Note, UserError


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 5, 8, 27, 64])
@pytest.mark.parametrize("case", CASES)
def test_operation_matches_numpy_on_virtual_ranks(case: str, ranks: int) -> None:
    run_ranks(CASES[case], ranks, "threads")


def on_fewer_and_fewer(comm: Communicator) -> list[int]:
    """All cases on all ranks, then on those but the last, down to one; how many each was among."""
    from weft.comm.selftest import run_cases

    done, among = [], comm
    while True:
        assert len(run_cases(among)) > 5
        done.append(among.size)
        if among.size == 1:
            return done
        last = among.rank == among.size - 1
        among = among.split(int(last), among.rank)  # the last goes on alone


# One launch runs all cases: starting ranks takes longer than the cases do.
@pytest.mark.parametrize("engine", ["mpi", "torch"])
def test_operations_match_numpy_on_real_ranks(mpi_ranks: Any, engine: str) -> None:
    start = mpi_ranks if engine == "mpi" else functools.partial(run_ranks, engine=engine)
    assert start(on_fewer_and_fewer, 4) == [[4, 3, 2, 1], [4, 3, 2, 1], [4, 3, 1], [4, 1]]


def in_pieces_and_staged(comm: Communicator) -> tuple[list[str], list[str], bool]:
    from weft.comm import mpi

    most, elsewhere = mpi.MAX_COUNT, mpi._elsewhere
    cut = everything_in_pieces(comm)
    mpi.MAX_COUNT = most
    staged, seen = everything_staged(comm)
    mpi._elsewhere = elsewhere
    return cut, staged, seen


def everything_in_pieces(comm: Communicator) -> list[str]:
    """All cases, with messages longer than 3 words cut as messages of more than 2^30 words are."""
    from weft.comm import mpi, selftest

    mpi.MAX_COUNT = 3
    # Rows longer than that are counted as rows in all_to_all; more rows than that are refused.
    x = torch.arange(4.0)
    sizes = [4 if rank == comm.rank else 0 for rank in range(comm.size)]
    with pytest.raises(UserError, match="more than MPI can count"):
        comm.all_to_all(x, sizes, sizes)
    wide = torch.arange(8.0).view(2, 4) + comm.rank
    got = comm.all_to_all(wide, [1, 1], [1, 1])
    assert torch.equal(got, torch.stack([torch.arange(4.0) + 4 * comm.rank + peer for peer in (0, 1)]))
    names = [name for name in CASES if name != "all_to_all"]
    for name in names:
        selftest.CASES[name](comm)
    return names


def everything_staged(comm: Communicator) -> tuple[list[str], bool]:
    """All cases with every tensor taken for one in a GPU's memory."""
    from weft.comm import mpi, selftest

    seen: list[torch.Tensor] = []
    mpi._elsewhere = lambda x: seen.append(x) or True  # type: ignore[func-returns-value]
    return selftest.run_cases(comm), len(seen) > 0


def test_long_messages_go_in_pieces_and_what_mpi_cannot_read_through_copies(mpi_ranks: Any) -> None:
    for cut, staged, seen in mpi_ranks(in_pieces_and_staged, 2):
        assert {"broadcast", "all_gather"} <= set(cut)
        assert (staged, seen) == (list(CASES), True)


def wrong_sum(comm: Communicator) -> None:
    """A communicator that forgets rank 0's part must not pass."""
    raw = comm._all_reduce

    def forgetful(x: torch.Tensor, out: torch.Tensor, op: str, blocking: bool) -> object:
        return raw(torch.zeros_like(x) if comm.rank == 0 else x, out, op, blocking)

    comm._all_reduce = forgetful  # type: ignore[method-assign,assignment]
    CASES["all_reduce"](comm)


def test_the_cases_notice_a_wrong_sum() -> None:
    with pytest.raises(AssertionError, match="all_reduce"):
        run_ranks(wrong_sum, 2, "threads")


def test_sums_on_virtual_ranks_are_in_the_order_of_ranks() -> None:
    def work(comm: Communicator) -> float:
        # 1e8 swallows 1 in float32 unless it comes last.
        x = torch.tensor([[1.0, 1.0, 1e8, -1e8][comm.rank]])
        return float(comm.all_reduce(x))

    want = float(torch.tensor(1.0) + 1.0 + 1e8 - 1e8)
    assert run_ranks(work, 4, "threads") == [want] * 4


MISTAKES = {
    "root 5 is not a rank": lambda comm: comm.broadcast(torch.ones(2), root=5),
    "unknown op 'mean'": lambda comm: comm.all_reduce(torch.ones(2), "mean"),
    "cannot move torch.float16": lambda comm: comm.all_reduce(torch.ones(2, dtype=torch.float16)),
    "a tensor is needed, got list": lambda comm: comm.all_reduce([1.0]),
    "sizes has 1 entries for 2 ranks": lambda comm: comm.ireduce_scatter(torch.ones(2), [2]),
    "sizes sums to 3, x has 2 rows": lambda comm: comm.ireduce_scatter(torch.ones(2), [2, 1]),
    "negative entry -1": lambda comm: comm.all_gather(torch.ones(2), [-1, 3]),
    "its entry of sizes says": lambda comm: comm.all_gather(torch.ones(2), [3, 3]),
    "is a scalar": lambda comm: comm.all_gather(torch.tensor(1.0)),
    "sends itself": lambda comm: comm.all_to_all(torch.ones(2), [1, 1], [0, 0]),
    "x is written in place and not contiguous": lambda comm: comm.broadcast(torch.ones(2, 3).t(), 0),
    "out is written in place": lambda comm: comm.all_reduce(torch.ones(3, 2), out=torch.ones(2, 3).t()),
    "the result is torch.float32": lambda comm: comm.all_reduce(torch.ones(3), out=torch.ones(2)),
    "source -1 is not another rank": lambda comm: comm.iswap(
        [torch.ones(1)], 1 - comm.rank, [torch.ones(1)], -1
    ),
    "which is this one": lambda comm: comm.iswap([torch.ones(1)], comm.rank, [], comm.rank),
    "on 0 devices": lambda comm: comm.iswap([], 1 - comm.rank, [], 1 - comm.rank),
    "take is written in place": lambda comm: comm.iswap(
        [], 1 - comm.rank, [torch.ones(2, 3).t()], 1 - comm.rank
    ),
    "1 tensors arrive from rank": lambda comm: comm.iswap(
        [torch.ones(1)], 1 - comm.rank, [torch.ones(1), torch.ones(1)], 1 - comm.rank
    ).wait(),
    "color -3 is negative": lambda comm: comm.split(-3),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_a_mistake_is_one_line_with_the_remedy(message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        run_ranks(MISTAKES[message], 2, "threads")
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith(".")


def test_out_may_not_be_the_input_of_a_gather() -> None:
    def work(comm: Communicator) -> None:
        x = torch.ones(2)
        comm.all_gather(x, [2], out=x)

    with pytest.raises(UserError, match="share their memory"):
        run_ranks(work, 1, "threads")


def test_a_gradient_that_ends_at_a_message_is_told_and_detached_it_is_not() -> None:
    x = torch.ones(2, requires_grad=True)
    with pytest.warns(Note, match="all_reduce: x wants a gradient"):
        run_ranks(lambda comm: comm.all_reduce(x * 2), 1, "threads")
    run_ranks(lambda comm: comm.all_reduce((x * 2).detach()), 1, "threads")  # a warning would be an error
