"""The profile that stands in where nobody has calibrated: rounded figures of one small machine.

A virtual machine of two cores (AVX2), November 2026: kernels the quickest of several on one thread, messages
through shared memory by Open MPI (docs/log.md). They rank strategies where messages and arcs decide; of
seconds they tell the order of magnitude.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping

from .profile import Curve, Link, Profile, Table, tabulate

_AXES = ("width", "degree", "bytes")
_SMALL, _LARGE = float(1 << 19), float(1 << 25)
"""Bytes of x: it stays in a core's cache, or does not."""

_SPMM = {  # nanoseconds an arc: width, degree → (small, large)
    (8, 4): (3.2, 10), (8, 16): (1.6, 8), (8, 64): (1.3, 6), (32, 4): (4.6, 20), (32, 16): (3.2, 14),
    (32, 64): (1.8, 9), (128, 4): (19, 70), (128, 16): (9.3, 45), (128, 64): (7.1, 33),
}  # fmt: skip
_ATTEND = {(16, 8): (14, 20), (16, 32): (10, 14), (128, 8): (25, 42), (128, 32): (18, 30)}
_BACK = 2.2
"""The walk back, over the walk forward."""
_CHANNEL = 2.7
"""Attention that looks at every channel of an arc, over attention that does not."""


def _walk(points: Mapping[tuple[int, int], tuple[float, float]], factor: float = 1.0) -> Table:
    widths, degrees = (sorted({key[side] for key in points}) for side in (0, 1))

    def seconds(width: float, degree: float, size: float) -> float:
        return points[int(width), int(degree)][size == _LARGE] * 1e-9 * factor

    return tabulate(_AXES, (widths, degrees, (_SMALL, _LARGE)), seconds)


@functools.cache
def default_profile() -> Profile:
    """Where no profile is.

    >>> default_profile().host
    'default'
    """
    sides = (8.0, 32.0, 128.0, 512.0)
    # Few outputs are slow: BLAS has little to keep in registers.
    dense = tabulate(("inputs", "outputs"), (sides, sides), lambda a, b: 3e-10 if b < 32 else 3.5e-11)
    kernels = {
        "spmm": _walk(_SPMM), "attend": _walk(_ATTEND), "attend_back": _walk(_ATTEND, _BACK),
        "channel": _walk(_ATTEND, _CHANNEL), "channel_back": _walk(_ATTEND, _CHANNEL * _BACK), "dense": dense,
        "outer": dense,
        "dropout": tabulate(("width",), ((8.0, 64.0),), lambda width: 4e-9 if width < 64 else 2e-9),
        "sample": tabulate(("fanout",), ((5.0, 25.0),), lambda fanout: 1.2e-8 if fanout < 25 else 6.4e-9),
    }  # fmt: skip
    return Profile(
        host="default", cores=2, isa="avx2", date="2026-11-17", version="0.1.0", memory_bytes=24 << 30,
        idle_bytes=330 << 20, bandwidth=1.7e10, call_seconds=3e-5, inside=Link.of_bandwidth(5e-6, 3e9),
        between=None, kernels=kernels, speedup=Curve((1.0, 2.0), (1.0, 1.9)),
        slowdown=Curve((1.0, 2.0), (1.0, 1.15)), partition={"metis": 1.2e-6, "hypergraph": 3e-5},
    )  # fmt: skip
