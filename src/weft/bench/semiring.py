"""Sums over semirings beside A @ h, and a user's own beside what people write in torch, in turns."""

from __future__ import annotations

import resource
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..graph import Graph
from ..kernels import CSR, Semiring, native
from ..memory import trim
from ..parallel import Operator
from .timing import interleaved

KNOWN = {
    "(+, ×)": Semiring(torch.add, torch.mul, 0.0),
    "(max, +)": Semiring(torch.maximum, torch.add, -torch.inf),
    "(min, +)": Semiring(torch.minimum, torch.add, torch.inf),
    "(max, ×)": Semiring(torch.maximum, torch.mul, -torch.inf),
    "(min, ×)": Semiring(torch.minimum, torch.mul, torch.inf),
    "(logsum, +)": Semiring(torch.logaddexp, torch.add, -torch.inf),
}
"""Those of C++; the first is what the others are compared with."""

OWN: dict[str, tuple[Semiring, str, Callable[[Tensor, Tensor], Tensor]]] = {
    "widest (max, min)": (Semiring(torch.maximum, torch.minimum, -torch.inf), "amax", torch.minimum),
    "product (×, +)": (Semiring(torch.mul, lambda a, h: 1 + 0.01 * (a + h), 1.0), "prod",
                       lambda a, h: 1 + 0.01 * (a + h)),
}  # fmt: skip
"""A user's own: (semiring, the reduction that torch's scatter has for it, the same product)."""


def weighted(graph: Graph) -> CSR:
    """The graph's matrix with weights in (0, 1], drawn where it has none."""
    n = graph.num_nodes
    g = torch.Generator().manual_seed(0)
    drawn = 1 - torch.rand(graph.num_arcs, generator=g, device="cpu")
    values = drawn if graph.weights is None else graph.weights.float()
    return CSR(graph.indptr, graph.indices, values, (n, n))


def both_ways(y: Tensor, h: Tensor) -> Tensor:
    """The gradient of h where y's is 1."""
    return torch.autograd.grad(y, h, torch.ones_like(y))[0]


def by_torch(a: CSR, h: Tensor, product: Callable[[Tensor, Tensor], Tensor], reduce: str) -> Tensor:
    """Gather, multiply, scatter: what people write, and arcs × width in memory."""
    assert a.values is not None
    m = product(a.values[:, None], h[a.indices.long()])
    index = a.row_of[:, None].expand_as(m)
    return h.new_zeros(a.shape[0], h.shape[1]).scatter_reduce(0, index, m, reduce, include_self=False)


def bench_semiring(
    graph: Graph, widths: list[int], threads: int, rounds: int, own_rounds: int, own_widths: list[int]
) -> dict[str, Any]:
    """{"known": rows, "own": rows}: seconds of forward and with backward, and ratios of speeds."""
    a = weighted(graph)
    A = Operator.local(a)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        grown = {(width, name): _grown(A, width, name) for width in sorted(own_widths) for name in OWN}
        known = [row for width in widths for row in _known(A, width, rounds)]
        own = [row for width in own_widths for row in _own(A, a, width, own_rounds, grown)]
    finally:
        torch.set_num_threads(before)
    isa = native.extension.isa() if native.extension else "torch"
    return {"threads": threads, "isa": isa, "known": known, "own": own}


def _known(A: Operator, width: int, rounds: int) -> list[dict[str, Any]]:
    h = torch.rand(A.rows.numel(), width).requires_grad_()
    forward = interleaved({name: partial(A.aggregate, h.detach(), s) for name, s in KNOWN.items()}, rounds)
    both = interleaved({name: partial(_trained, A, h, s) for name, s in KNOWN.items()}, rounds)
    first = next(iter(KNOWN))
    return [
        {
            "semiring": name, "width": width, "forward_seconds": forward[name], "seconds": both[name],
            "forward_ratio": forward[first] / forward[name], "ratio": both[first] / both[name],
        }
        for name in KNOWN
    ]  # fmt: skip


def _trained(A: Operator, h: Tensor, semiring: Semiring) -> Tensor:
    return both_ways(A.aggregate(h, semiring), h)


def _own(
    A: Operator, a: CSR, width: int, rounds: int, grown: dict[tuple[int, str], int]
) -> list[dict[str, Any]]:
    h = torch.rand(A.rows.numel(), width).requires_grad_()
    rows = []
    for name, (semiring, reduce, product) in OWN.items():
        theirs = partial(by_torch, a, product=product, reduce=reduce)
        turns: dict[str, Callable[[], object]] = {
            "weft": partial(A.aggregate, h.detach(), semiring), "torch": partial(theirs, h.detach())
        }  # fmt: skip
        forward = interleaved(turns, rounds, warmup=1)
        turns = {
            "weft": partial(_trained, A, h, semiring), "torch": partial(_by_torch_trained, theirs, h)
        }  # fmt: skip
        both = interleaved(turns, rounds, warmup=1)
        rows.append({
            "semiring": name, "width": width, "forward_seconds": forward["weft"], "seconds": both["weft"],
            "forward_ratio": forward["torch"] / forward["weft"], "ratio": both["torch"] / both["weft"],
            "arcs_times_width_bytes": 4 * a.arcs * width, "peak_grown_bytes": grown[width, name],
        })  # fmt: skip
    return rows


def _by_torch_trained(forward: Callable[[Tensor], Tensor], h: Tensor) -> Tensor:
    return both_ways(forward(h), h)


def _grown(A: Operator, width: int, name: str) -> int:
    """By how much forward and backward raised the process' memory at its peak, h and dh included."""

    def work() -> None:
        h = torch.rand(A.rows.numel(), width).requires_grad_()
        both_ways(A.aggregate(h, OWN[name][0]), h)

    return peak_grown(work)


def peak_grown(work: Callable[[], object]) -> int:
    """Bytes that a call took at its peak beside what the process held, whatever was its peak before."""
    trim()
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
        before = _status("VmRSS")
        work()
        return max(0, _status("VmHWM") - before)
    except OSError:  # not Linux: the peak since the process began
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        work()
        return 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(key)).split()[1])
