"""Our kernels against torch's on one graph, as ratios measured in one run."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ..graph import Graph, normalise
from ..kernels import CSR, Stream, dropout, native, sddmm, spmm
from .timing import interleaved


def bench_kernels(graph: Graph, widths: list[int], threads: list[int], rounds: int) -> list[dict[str, Any]]:
    """One row per (operator, threads, width): seconds of ours and torch's, their ratio, GB/s beside STREAM's.

    GB/s counts what a SpMM must touch: indices, values and a row of x per arc, and the result once.
    """
    normalised = normalise(graph, "gcn")
    n = graph.num_nodes
    a = CSR(normalised.indptr, normalised.indices, normalised.weights, (n, n))
    assert a.values is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that its CSR is beta
        theirs = torch.sparse_csr_tensor(a.indptr.int(), a.indices, a.values, (n, n), check_invariants=False)
    before, rows = torch.get_num_threads(), []
    try:
        for count in threads:
            torch.set_num_threads(count)
            stream = stream_bandwidth(rounds)
            for width in widths:
                for operator, (moved, contenders) in _contenders(a, theirs, torch.rand(n, width)).items():
                    # Without an SDDMM of its own torch is slow: fewer rounds tell enough.
                    turns = max(rounds // 2, 1) if operator == "sddmm" else rounds
                    rows.append(_row(operator, count, width, stream, moved, interleaved(contenders, turns)))
    finally:
        torch.set_num_threads(before)
    return rows


Contenders = dict[str, Callable[[], Tensor]]


def _contenders(a: CSR, theirs: Tensor, x: Tensor) -> dict[str, tuple[int, Contenders]]:
    """Operator → (bytes it must touch, ours and torch's)."""
    key, touched = Stream(0, 0, 0), _spmm_bytes(a, x.shape[1])
    return {
        "spmm": (touched, {"weft": lambda: spmm(a, x), "torch": lambda: theirs @ x}),
        "sddmm": (touched, {"weft": lambda: sddmm(a, x, x), "torch": lambda: _gather_and_sum(a, x)}),
        "dropout": (
            8 * x.numel(), {"weft": lambda: dropout(x, 0.5, key), "torch": lambda: F.dropout(x, 0.5)},
        ),
    }  # fmt: skip


def stream_bandwidth(rounds: int = 5, words: int = 1 << 25) -> float:
    """GB/s of a + b → c on arrays far larger than the caches, with torch's present number of threads."""
    a, b, c = (torch.ones(words) for _ in range(3))
    return 12 * words / interleaved({"add": lambda: torch.add(a, b, out=c)}, rounds)["add"] / 1e9


def _gather_and_sum(a: CSR, x: Tensor) -> Tensor:
    """What people write without an SDDMM."""
    return (x[a.row_of] * x[a.indices.long()]).sum(1)


def _spmm_bytes(a: CSR, width: int) -> int:
    return a.arcs * (a.indices.element_size() + 4 + 4 * width) + 4 * a.shape[0] * width


def _row(
    operator: str, threads: int, width: int, stream: float, moved: int, seconds: dict[str, float]
) -> dict[str, Any]:
    return {
        "operator": operator, "threads": threads, "width": width,
        "weft_seconds": seconds["weft"], "torch_seconds": seconds["torch"],
        "ratio": seconds["torch"] / seconds["weft"],
        "gigabytes_per_second": moved / seconds["weft"] / 1e9, "stream_gigabytes_per_second": stream,
        "isa": native.extension.isa() if native.extension else "torch",
    }  # fmt: skip
