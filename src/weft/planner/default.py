"""The profile that is used where nobody has calibrated: figures of a small machine, written down."""
from __future__ import annotations
import functools
from .profile import Curve, Link, Profile, Table, tabulate

@functools.cache
def default_profile() -> Profile:
    t3 = ("width", "degree", "bytes")
    one = lambda c: tabulate(t3, [[8, 128], [4, 64], [1 << 19, 1 << 25]], lambda w, d, b: c * w / 16 * 1e-9)
    return Profile("default", 2, "avx2", "2026-11-17", "", 16 << 30, 300 << 20, 1e10, 2e-5, Link.of_bandwidth(2e-6, 3e9), None,
        {"spmm": one(5), "attend": one(8), "attend_back": one(16), "channel": one(20), "channel_back": one(40),
         "dense": tabulate(("inputs", "outputs"), [[8, 512], [8, 512]], lambda a, b: 5e-11), "sample": tabulate(("fanout",), [[5, 25]], lambda f: 2e-8)},
        Curve((1.0, 2.0), (1.0, 1.9)), Curve((1.0, 2.0), (1.0, 1.1)), {"metis": 1e-6, "hypergraph": 5e-6})
