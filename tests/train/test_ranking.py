from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from weft.comm import run_ranks
from weft.errors import UserError
from weft.train.ranking import Ranking, rank

# Few different values, so that ties are the rule.
SCORES = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=30)


def naive(pos: list[float], neg: list[float], k: int) -> Ranking:
    """The definitions, word by word."""
    bar = sorted(neg, reverse=True)[k - 1]
    places = [1 + (sum(n > p for n in neg) + sum(n >= p for n in neg)) / 2 for p in pos]
    won = sum((p > n) + (p == n) / 2 for p in pos for n in neg)
    return Ranking(
        sum(p > bar for p in pos) / len(pos),
        sum(1 / place for place in places) / len(pos),
        won / (len(pos) * len(neg)),
    )


def check(found: Ranking, want: Ranking) -> None:
    assert found.hits == want.hits
    assert found.auc == want.auc
    assert math.isclose(found.mrr, want.mrr, rel_tol=1e-14)


@given(SCORES, SCORES, st.data())
def test_metrics_are_their_definitions(pos, neg, data):
    k = data.draw(st.integers(1, len(neg)))
    check(rank(torch.tensor(pos), torch.tensor(neg), k), naive(pos, neg, k))


@pytest.mark.parametrize("ranks", [2, 5])
def test_metrics_do_not_depend_on_who_scored_what(ranks):
    g = torch.Generator().manual_seed(ranks)
    pos, neg = (torch.randint(-9, 9, (m,), generator=g).double() for m in (31, 43))

    def work(comm):
        # Uneven shares; rank 0 has no false pair, the last rank no true one.
        mine = pos[comm.rank :: ranks - 1] if comm.rank < ranks - 1 else pos[:0]
        theirs = neg[comm.rank - 1 :: ranks - 1] if comm.rank else neg[:0]
        return rank(mine, theirs, 7, comm)

    for found in run_ranks(work, ranks, "threads"):
        check(found, naive(pos.tolist(), neg.tolist(), 7))


def test_a_tie_with_the_bar_is_no_hit():
    assert rank(torch.tensor([2.0, 1.0]), torch.tensor([1.0, 0.0]), 1).hits == 0.5


def test_nothing_has_no_metric():
    for pos, neg in ((torch.ones(0), torch.ones(3)), (torch.ones(3), torch.ones(0))):
        found = rank(pos, neg, 1)
        assert all(math.isnan(x) for x in (found.hits, found.mrr, found.auc))


def test_k_beyond_the_false_pairs_is_refused():
    with pytest.raises(UserError) as caught:
        rank(torch.ones(3), torch.ones(4), 5)
    assert str(caught.value) == "Hits@5 needs at least 5 false pairs, there are 4. Use --hits 4 or less."
