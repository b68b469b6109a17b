"""A dry communicator counts what the real one counts, and moves nothing that has no numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from weft.comm import Communicator, Dry, Ledger, PeerLost, run_ranks
from weft.errors import UserError

RANKS = 3
ROWS = [4, 0, 3]
TABLE = [[1, 0, 2], [0, 0, 0], [3, 1, 0]]
"""TABLE[r][s]: rows that rank r sends to rank s; one rank sends none."""
Fill = Callable[..., Tensor]


def real(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.ones(shape, dtype=dtype)


def fake(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def all_to_all(comm: Communicator, fill: Fill, later: bool) -> object:
    send, receive = TABLE[comm.rank], [row[comm.rank] for row in TABLE]
    x = fill(sum(send), 2)
    if later:
        return comm.iall_to_all(x, send, receive, fill(sum(receive), 2), phase="p").wait()
    return comm.all_to_all(x, send, receive, phase="p")


def swap(comm: Communicator, fill: Fill) -> object:
    """Several tensors; one rank gives none, another takes none; then nothing at all."""
    right, left = (comm.rank + 1) % RANKS, (comm.rank - 1) % RANKS
    give, take = [fill(ROWS[comm.rank], 2), fill(1)], [fill(ROWS[left], 2), fill(1)]
    comm.iswap([fill(0, 2)], left, [fill(0, 2)], right, phase="empty").wait()
    comm.iswap(give[:1], right, take[:1], left, phase="p").wait()
    return comm.iswap(give, right, take, left, phase="p").wait()[0]


OPERATIONS: dict[str, Callable[[Communicator, Fill], object]] = {
    "broadcast": lambda comm, fill: comm.broadcast(fill(3, 2), 1, phase="p"),
    "broadcast of nothing": lambda comm, fill: comm.broadcast(fill(0, 2), 1, phase="p"),
    "ibroadcast": lambda comm, fill: comm.ibroadcast(fill(3, dtype=torch.bool), 2, phase="p").wait(),
    "all_reduce": lambda comm, fill: comm.all_reduce(fill(5, 2), phase="p"),
    "all_reduce of one word": lambda comm, fill: comm.all_reduce(fill(1), "max", fill(1), phase="p"),
    "ireduce_scatter": lambda comm, fill: comm.ireduce_scatter(fill(7, 2), ROWS, phase="p").wait(),
    "all_gather": lambda comm, fill: comm.all_gather(fill(ROWS[comm.rank], 2), ROWS, fill(7, 2), phase="p"),
    "iall_gather": lambda comm, fill: comm.iall_gather(fill(ROWS[comm.rank]), ROWS, phase="p").wait(),
    "all_to_all": lambda comm, fill: all_to_all(comm, fill, False),
    "iall_to_all": lambda comm, fill: all_to_all(comm, fill, True),
    "iswap": swap,
}


def counted(comm: Communicator, operation: Callable[[Communicator, Fill], object], fill: Fill) -> object:
    """(what the ledger holds but for times, shape of the result, its device)."""
    with Ledger(comm) as books:
        result = operation(comm, fill)
    lines = {
        phase: {field: value for field, value in line.items() if field not in ("seconds", "waited")}
        for phase, line in books.as_dict().items()
    }
    if not isinstance(result, Tensor):
        return lines, None, None
    return lines, tuple(result.shape), result.device.type


@pytest.mark.parametrize("name", OPERATIONS)
def test_dry_counts_are_the_real_counts(name: str) -> None:
    def work(comm: Communicator) -> None:
        lines, shape, _ = counted(comm, OPERATIONS[name], real)  # type: ignore[misc]
        with Ledger(comm) as unseen:
            dry = Dry(comm)
            kind = None if shape is None else "meta"
            assert counted(dry, OPERATIONS[name], fake) == (lines, shape, kind)
            # Alone there is nobody to move anything to.
            lone = Dry.alone(comm.rank, comm.size)
            assert counted(lone, OPERATIONS[name], fake) == (lines, shape, kind)
            assert counted(dry, OPERATIONS[name], real)[0] == lines  # type: ignore[index]
        assert unseen.phases == []

    run_ranks(work, RANKS, "threads")


def test_a_real_tensor_travels_and_is_counted_in_the_dry_books_only() -> None:
    def work(comm: Communicator) -> tuple[float, int, int]:
        dry = Dry(comm)
        with Ledger(comm) as books, Ledger(dry) as planned:
            total = dry.all_reduce(torch.tensor([float(comm.rank)]), phase="plan")
        return float(total), books.words(), planned.words("plan")

    assert run_ranks(work, RANKS, "threads") == [(3.0, 0, 2), (3.0, 0, 1), (3.0, 0, 1)]


def test_without_sizes_the_true_row_counts_travel() -> None:
    def work(comm: Communicator) -> tuple[int, int]:
        dry = Dry(comm)
        with Ledger(dry) as books:
            rows = dry.all_gather(fake(ROWS[comm.rank], 2), phase="p").shape[0]
        assert dry.all_gather_json(comm.rank) == [0, 1, 2]
        dry.barrier()
        return rows, books.words("p")

    assert run_ranks(work, RANKS, "threads") == [(7, 6), (7, 14), (7, 8)]


def test_the_parts_of_a_dry_communicator_write_in_its_books() -> None:
    def work(comm: Communicator) -> tuple[int, int]:
        counts = []
        for whole, fill in ((comm, real), (Dry(comm), fake)):
            with Ledger(whole) as books:
                line = whole.split(comm.rank % 2, name="line")
                assert line is not None
                assert (line.name, line.size) == ("line", 2)
                part = line.split(0, key=-comm.rank)
                assert part is not None
                assert part.all_gather_json(comm.rank) == sorted(
                    part.all_gather_json(comm.rank), reverse=True
                )
                assert (whole.split(None if comm.rank else 0) is None) == (comm.rank > 0)
                part.broadcast(fill(5), 0, phase="p")
                whole.all_reduce(fill(8), phase="p")
            counts.append(books.words("p"))
        return tuple(counts)  # type: ignore[return-value]

    assert run_ranks(work, 4, "threads") == [(17, 17), (17, 17), (12, 12), (12, 12)]


MISTAKES: dict[str, Callable[[], object]] = {
    "is planned alone: nothing real": lambda: Dry.alone(1, 3).all_reduce(torch.ones(2)),
    "and give all sizes": lambda: Dry.alone(1, 3).all_gather(fake(2)),
    "cannot know the colours of the others": lambda: Dry.alone(1, 3, "row").split(0),
    "rank 3 of 3 does not exist": lambda: Dry.alone(3, 3),
    "out is on cpu, x on meta": lambda: Dry.alone(0, 1).all_reduce(fake(2), out=torch.ones(2)),
}


@pytest.mark.parametrize("message", MISTAKES)
def test_what_needs_others_is_refused_where_there_are_none(message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        MISTAKES[message]()
    assert str(caught.value).endswith(".")


def test_a_rank_of_one_needs_nobody() -> None:
    alone = Dry.alone(0, 1)
    assert alone.all_reduce(torch.ones(2)).tolist() == [1.0, 1.0]
    assert alone.split(0, name="line") is not None


def test_a_real_communicator_refuses_what_has_no_numbers() -> None:
    with pytest.raises(UserError, match=r"Use Dry\(comm\)"):
        run_ranks(lambda comm: comm.all_reduce(fake(2)), 2, "threads")


def test_a_real_tensor_that_nobody_meets_is_still_a_deadlock() -> None:
    """Mixed up tensors are found: one rank plans, the other sends."""

    def work(comm: Communicator) -> None:
        Dry(comm).all_reduce((fake if comm.rank else real)(2))

    with pytest.raises(PeerLost, match="deadlock"):
        run_ranks(work, 2, "threads")
