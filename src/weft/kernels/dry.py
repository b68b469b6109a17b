"""Dry runs: a kernel given `meta` tensors answers with one of the right shape and type, and computes nothing.

So a whole model can be run for the sake of what it moves. A kernel takes one of three ways, in this order:

    C++      where `native.served`: CPU tensors; a real run looks no further
    dry      where one operand is meta, be it the matrix, an index or x: the result is meta too
    torch    everything else
"""

from __future__ import annotations

import torch
from torch import Tensor


def is_dry(*tensors: Tensor | None) -> bool:
    """Whether one of them is a meta tensor, which has a shape and no numbers.

    >>> is_dry(torch.ones(2), None), is_dry(torch.ones(2), torch.ones(2, device="meta"))
    (False, True)
    """
    return any(t is not None and t.is_meta for t in tensors)


def blank(*shape: int, dtype: torch.dtype) -> Tensor:
    """A meta tensor: what a kernel returns from a dry run."""
    return torch.empty(shape, dtype=dtype, device="meta")


def written(out: Tensor) -> Tensor:
    """What a kernel that writes into `out` returns from a dry run: `out`, or where that is real, its blank.

    A real `out` is left as it is: nobody may take what stands in it for a result.
    """
    return out.to("meta")
