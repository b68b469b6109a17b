"""Rows by host: what several ranks of a host read crosses to it once, and every result stays what it was."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from weft.comm import Communicator, Ledger, run_ranks
from weft.errors import UserError
from weft.parallel import Exchange
from weft.parallel.by_host import ByHost, check_by_host, exchange_along, groups_of
from weft.parallel.exchange import add_up

from .cases import cases_of, check, numbers, trained

HOSTS = {
    "2x2": [0, 0, 1, 1], "2x2, dealt in turn": [0, 1, 0, 1], "3x2": [0, 0, 1, 1, 2, 2],
    "2x3": [0, 0, 0, 1, 1, 1], "4x2": [0, 0, 1, 1, 2, 2, 3, 3],
}  # fmt: skip


def sizes_of(ranks: int) -> list[int]:
    return [3 * (p % 3) + p % 2 for p in range(ranks)]


def needs(ranks: int, me: int, share: float = 0.5) -> list[Tensor]:
    g = torch.Generator().manual_seed(10 * ranks + me)
    rows = [(torch.rand(size, generator=g) < share).nonzero().ravel() for size in sizes_of(ranks)]
    rows[me] = torch.arange(sizes_of(ranks)[me])
    return rows


def lines(
    comm: Communicator, hosts: Sequence[int], kind: str, overlap: bool = True
) -> tuple[ByHost, Exchange]:
    comm.hosts = hosts
    need = needs(comm.size, comm.rank) if kind == "sparse" else None
    by_host = exchange_along(comm, sizes_of(comm.size), need, overlap, True)
    assert isinstance(by_host, ByHost)
    return by_host, Exchange(comm, sizes_of(comm.size), need, overlap)


CASES = [(name, kind, overlap) for name in HOSTS for kind in ("dense", "sparse") for overlap in (True, False)]


@pytest.mark.parametrize(("name", "kind", "overlap"), CASES)
def test_blocks_are_those_of_the_direct_way_own_first_in_the_order_of_merge(name, kind, overlap):
    def work(comm: Communicator) -> None:
        line, direct = lines(comm, HOSTS[name], kind, overlap)
        x = numbers(sizes_of(comm.size)[comm.rank], 3, seed=comm.rank)
        want = {p: rows.clone() for p, rows in direct.gather(x)}
        for mirror in (False, True):
            seen = []
            for p, rows in line.gather(x, mirror=mirror):
                assert torch.equal(rows, want[p])
                seen.append(p)
            assert seen[0] == comm.rank
            assert sorted(seen) == list(range(comm.size))
        asked = []

        def part(p: int) -> tuple[Tensor]:
            asked.append(p)
            return (numbers(line.need_sizes[p], 2),)

        line.merge(part, add_up)
        assert [p for p in asked if p != comm.rank] == seen[1:]

    run_ranks(work, len(HOSTS[name]), "threads")


@pytest.mark.parametrize(("name", "kind", "overlap"), CASES)
def test_sums_are_those_of_the_direct_way(name, kind, overlap):
    def work(comm: Communicator) -> None:
        line, direct = lines(comm, HOSTS[name], kind, overlap)
        made = {p: numbers(line.need_sizes[p], 2, seed=9 * comm.rank + p) for p in range(comm.size)}
        more = {p: numbers(line.need_sizes[p], 3, seed=9 * comm.rank + p + 1000) for p in made}

        def own(out: Tensor | None) -> Tensor:
            return made[comm.rank].clone() if out is None else out.add_(made[comm.rank])

        def close(got: Tensor, want: Tensor) -> None:
            assert torch.allclose(got, want, rtol=0, atol=1e-13)

        want = direct.reduce(lambda p: made[p].clone())
        close(line.reduce(lambda p: made[p].clone()), want)
        close(line.sum_up(lambda p, begin, end: made[p][begin:end], own, made[comm.rank]), want)
        both = line.merge(lambda p: (made[p].clone(), more[p].clone()), add_up)
        close(both[0], want)
        close(both[1], direct.reduce(lambda p: more[p].clone()))
        largest = [each.merge(lambda p: (made[p].clone(),), _larger)[0] for each in (line, direct)]
        assert torch.equal(*largest)
        dealt = [
            {
                p: rows.clone()
                for p, rows in each.deal(lambda p: numbers(line.give_sizes[p], 2, seed=comm.rank))
            }
            for each in (line, direct)
        ]
        assert all(torch.equal(dealt[0][p], rows) for p, rows in dealt[1].items())

    run_ranks(work, len(HOSTS[name]), "threads")


def _larger(own: tuple[Tensor, ...], at: Tensor | None, incoming: tuple[Tensor, ...]) -> None:
    if at is None:
        torch.maximum(own[0], incoming[0], out=own[0])
    else:
        own[0][at] = torch.maximum(own[0][at], incoming[0])


@pytest.mark.parametrize("name", HOSTS)
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_a_row_crosses_to_a_host_once_forward_and_back(name, kind):
    """Words between hosts = Σ over ranks p and other hosts of |∪ need_q[p]| · w, and as many back."""
    hosts, ranks, width = HOSTS[name], len(HOSTS[name]), 3

    def work(comm: Communicator) -> list[int]:
        line, _ = lines(comm, hosts, kind)
        x = numbers(sizes_of(ranks)[comm.rank], width)
        with Ledger(comm, keep_events=True) as there:
            for _ in line.gather(x):
                pass
        with Ledger(comm, keep_events=True) as back:
            line.reduce(lambda p: numbers(line.need_sizes[p], width))
        return [across(books, comm) for books in (there, back)] + [there.words("host"), back.words("host")]

    def across(books: Ledger, comm: Communicator) -> int:
        return sum(
            words
            for event in books.events or []
            if event.moved is not None
            for peer, words, _ in event.moved.received
            if hosts[peer] != hosts[comm.rank]
        )

    found = run_ranks(work, ranks, "threads")
    rows = 0
    groups = groups_of(hosts)
    assert groups is not None
    for p in range(ranks):
        for group in groups:
            if p not in group:
                read = [
                    needs(ranks, q)[p] if kind == "sparse" else torch.arange(sizes_of(ranks)[p])
                    for q in group
                ]
                rows += torch.unique(torch.cat(read)).numel()
    assert sum(each[0] for each in found) == sum(each[1] for each in found) == rows * width
    assert sum(each[2] for each in found) == sum(each[3] for each in found) > 0


@pytest.mark.parametrize(
    ("shape", "hosts"),
    [
        ((4, 1, 1), [0, 0, 1, 1]), ((1, 4, 1), [0, 0, 1, 1]), ((2, 2, 1), [0, 1, 0, 1]),
        ((6, 1, 1), [0, 0, 1, 1, 2, 2]), ((2, 4, 1), [0, 0, 1, 1] * 2),
        ((4, 2, 1), [0, 0, 0, 0, 1, 1, 1, 1]), ((4, 1, 2), [0, 0, 0, 0, 1, 1, 1, 1]),
    ],
)  # fmt: skip
def test_every_grid_over_hosts_is_the_serial_product_with_the_words_foretold(shape, hosts):
    ranks = shape[0] * shape[1] * shape[2]

    def work(comm: Communicator) -> int:
        cases = cases_of(shape)
        for case in cases:
            padded = (*case, *[False] * (10 - len(case)))
            check(comm, *padded, hosts=hosts)
        return len(cases)

    assert min(run_ranks(work, ranks, "threads")) >= 8


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 3), st.integers(2, 3), st.floats(0, 1), st.booleans(), st.data())
def test_gather_and_reduce_are_transposes_whatever_is_read(count, ranks, share, overlap, data):
    """⟨gather(x), y⟩ = ⟨x, reduce(y)⟩, summed over the ranks."""
    hosts = data.draw(st.permutations([host for host in range(count) for _ in range(ranks)]))

    def work(comm: Communicator) -> tuple[float, float]:
        comm.hosts = hosts
        line = ByHost(comm, sizes_of(comm.size), needs(comm.size, comm.rank, share), overlap)
        x = numbers(sizes_of(comm.size)[comm.rank], 2, seed=comm.rank)
        y = {p: numbers(line.need_sizes[p], 2, seed=7 * comm.rank + p) for p in range(comm.size)}
        left = sum(float((rows * y[p]).sum()) for p, rows in line.gather(x))
        return left, float((x * line.reduce(lambda p: y[p].clone())).sum())

    left, right = map(sum, zip(*run_ranks(work, len(hosts), "threads"), strict=True))
    assert left == pytest.approx(right, rel=1e-11, abs=1e-11)


def test_a_union_that_misses_a_row_is_caught():
    def work(comm: Communicator) -> None:
        line, direct = lines(comm, [0, 0, 1, 1], "sparse")
        x = numbers(sizes_of(4)[comm.rank], 3, seed=comm.rank)
        line._crossings = {
            host: crossing._replace(rows=None if crossing.rows is None else crossing.rows.flip(0))
            for host, crossing in line._crossings.items()
        }
        want = {p: rows.clone() for p, rows in direct.gather(x)}
        for p, rows in line.gather(x):
            assert torch.equal(rows, want[p]), "other rows"

    with pytest.raises(AssertionError, match="other rows"):
        run_ranks(work, 4, "threads")


def test_where_nothing_can_be_shared_the_direct_way_stays_and_on_is_refused():
    def work(comm: Communicator) -> str:
        comm.hosts = [0, 0, 1]
        return type(exchange_along(comm, [1, 1, 1], None, True, True)).__name__

    assert run_ranks(work, 3, "threads") == ["Exchange"] * 3
    with pytest.raises(UserError, match=r"--by-host on needs two hosts .* these have 2, 1"):
        check_by_host("on", [0, 0, 1])
    with pytest.raises(UserError, match="yes"):
        check_by_host("yes", [0, 0, 1, 1])


@pytest.mark.parametrize(
    "options",
    [{"strategy": "halo"}, {"strategy": "1d"}, {"strategy": "grid", "grid": "1x4x1", "exchange": "sparse"}],
    ids=lambda options: options["strategy"],
)
def test_real_ranks_train_by_host_as_directly(mpi_ranks, options):
    found = {
        way: mpi_ranks(trained, 4, options | {"by_host": way}, HOSTS["2x2"]) for way in ("on", "off", "auto")
    }
    assert found["auto"] == found["on"]
    for (ours, words), (theirs, direct) in zip(found["on"], found["off"], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-9)
        assert ("host" in words, "host" in direct) == (True, False)
