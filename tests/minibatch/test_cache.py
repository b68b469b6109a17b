from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.errors import UserError
from weft.minibatch import parse_bytes, plan_copies


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
    assert used <= budget
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


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "0", "3 parsecs", "1e3MB"])
def test_a_wrong_size_is_one_line(text):
    with pytest.raises(UserError, match=r"is not a size. Write --memory-budget 2GB, or 500MB."):
        parse_bytes(text)
