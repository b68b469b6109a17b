from __future__ import annotations

import numpy as np
import pytest

from weft.partition.simple import block, hashed, shuffled


@pytest.mark.parametrize(("n", "parts"), [(7, 3), (8, 8), (13, 5), (1, 1)])
def test_blocks_are_as_even_as_can_be_in_order_and_at_random(n, parts):
    for made in (block(n, parts), shuffled(n, parts, 1)):
        sizes = np.bincount(made, minlength=parts)
        assert sizes.max() - sizes.min() <= 1
    assert (np.diff(block(n, parts)) >= 0).all()


def test_a_hash_spreads_vertices_and_does_not_depend_on_their_number():
    sizes = np.bincount(hashed(40_000, 16, 5), minlength=16)
    assert sizes.min() > 2500 * 0.9
    assert sizes.max() < 2500 * 1.1
    assert (hashed(40_000, 16, 5)[:100] == hashed(100, 16, 5)).all()
