"""WebGraph's BV format: an encoder of the test's own writes what the reader reads."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from weft.errors import UserError
from weft.graph import load
from weft.graph.loading import data_sets


def unary(x: int) -> str:
    return "0" * x + "1"


def gamma(x: int) -> str:
    size = (x + 1).bit_length() - 1
    return unary(size) + (f"{x + 1 - (1 << size):0{size}b}" if size else "")


def delta(x: int) -> str:
    size = (x + 1).bit_length() - 1
    return gamma(size) + (f"{x + 1 - (1 << size):0{size}b}" if size else "")


def zeta(x: int, k: int) -> str:
    """ζ_k: h in unary, then x + 1 − 2^(hk) in minimal binary of an interval of 2^((h+1)k) − 2^(hk)."""
    h = ((x + 1).bit_length() - 1) // k
    low = 1 << h * k
    size, value = (low << k) - low, x + 1 - low
    bits = (size - 1).bit_length()
    short = (1 << bits) - size
    code = (f"{value:0{bits - 1}b}" if bits > 1 else "") if value < short else f"{value + short:0{bits}b}"
    return unary(h) + code


def natural(x: int) -> int:
    return 2 * x if x >= 0 else -2 * x - 1


def encode(
    lists: list[list[int]],
    window: int,
    least: int,
    residual: Callable[[int], str],
    degree: Callable[[int], str],
) -> bytes:
    """The lists in BV: each copies from the best earlier one of the window, in blocks, with intervals."""
    out = []
    for x, row in enumerate(lists):
        code = degree(len(row))
        if row:
            refs = [r for r in range(1, min(window, x) + 1) if set(lists[x - r]) & set(row)]
            r = max(refs, key=lambda r: len(set(lists[x - r]) & set(row)), default=0)
            left = list(row)
            if window:
                code += unary(r)
            if r:
                taken = [v in row for v in lists[x - r]]
                left = [v for v in row if v not in lists[x - r]]
                blocks = []
                state, size = True, 0
                for flag in taken:
                    if flag == state:
                        size += 1
                    else:
                        blocks.append(size)
                        state, size = flag, 1
                # The last run is not told: an even number of blocks before it means that it is copied.
                code += gamma(len(blocks)) + "".join(gamma(b - (i > 0)) for i, b in enumerate(blocks))
            if left:
                runs, rest = [], []
                at = 0
                while at < len(left):
                    end = at
                    while end + 1 < len(left) and left[end + 1] == left[end] + 1:
                        end += 1
                    if least and end - at + 1 >= least:
                        runs.append((left[at], end - at + 1))
                    else:
                        rest += left[at : end + 1]
                    at = end + 1
                if least:
                    code += gamma(len(runs))
                    before = 0
                    for i, (first, size) in enumerate(runs):
                        code += gamma(natural(first - x) if i == 0 else first - before - 1) + gamma(
                            size - least
                        )
                        before = first + size
                for i, v in enumerate(rest):
                    code += residual(natural(v - x) if i == 0 else v - rest[i - 1] - 1)
        out.append(code)
    bits = "".join(out)
    bits += "0" * (-len(bits) % 8)
    return int(bits, 2).to_bytes(len(bits) // 8) if bits else b""


def lists_of(seed: int, n: int) -> list[list[int]]:
    """Rows with runs, gaps and much in common, as pages of one site have."""
    chance = random.Random(seed)
    rows: list[list[int]] = []
    for _ in range(n):
        row = set(chance.sample(range(n), chance.randrange(4)))
        if rows and chance.random() < 0.7:
            row |= {v for v in chance.choice(rows[-5:]) if chance.random() < 0.8}
        if chance.random() < 0.4:
            first = chance.randrange(n)
            row |= set(range(first, min(n, first + chance.randrange(2, 9))))
        rows.append(sorted(row) if chance.random() < 0.9 else [])
    return rows


def write(
    name: str, rows: list[list[int]], window: int = 7, least: int = 4, k: int = 3, flags: str = ""
) -> None:
    residual = (lambda x: gamma(x)) if "RESIDUALS_GAMMA" in flags else (lambda x: zeta(x, k))
    degree = delta if "OUTDEGREES_DELTA" in flags else gamma
    Path(f"{name}.graph").write_bytes(encode(rows, window, least, residual, degree))
    Path(f"{name}.properties").write_text(
        "#BVGraph properties\nversion=0\ngraphclass=it.unimi.dsi.webgraph.BVGraph\n"
        f"nodes={len(rows)}\narcs={sum(map(len, rows))}\nwindowsize={window}\nminintervallength={least}\n"
        f"zetak={k}\ncompressionflags={flags}\nmaxrefcount=3\n"
    )


@pytest.mark.parametrize(
    ("window", "least", "k", "flags"),
    [(7, 4, 3, ""), (0, 4, 3, ""), (3, 0, 2, ""), (1, 2, 5, "RESIDUALS_GAMMA | OUTDEGREES_DELTA")],
)
def test_what_is_encoded_is_decoded(window, least, k, flags):
    rows = lists_of(window + least, 97)
    write("web", rows, window, least, k, flags)
    graph = load("web.graph")
    assert graph.name == "web"
    found = sorted(zip(graph.indices.tolist(), graph.rows.tolist(), strict=True))
    assert found == [(x, v) for x, row in enumerate(rows) for v in row]


def test_it_is_found_by_name_and_a_graph_without_arcs_is_one(monkeypatch):
    Path("data").mkdir()
    write("data/tiny", [[], [], []])
    assert list(data_sets("data")) == ["tiny"]
    monkeypatch.setenv("WEFT_DATA", "data")
    assert (load("tiny").num_nodes, load("tiny").num_arcs) == (3, 0)


def test_damage_names_the_file_and_the_place():
    write("web", lists_of(3, 60))
    whole = Path("web.graph").read_bytes()
    Path("web.graph").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UserError, match=r"web\.graph: the stream ends at byte \d+, too early"):
        load("web.graph")
    Path("web.graph").write_bytes(bytes(len(whole)))
    with pytest.raises(UserError, match=r"web\.graph: "):
        load("web.graph")
    told = Path("web.properties").read_text()
    for wrong, line in [
        (told.replace("nodes=60", "nodes=10000000000000"), "web.properties: nodes is"),
        (told.replace("nodes=60", "nodes=99999999"), "bytes cannot hold 99,999,999 vertices"),
        (told.replace("nodes=", "knots="), "nodes is 'missing'"),
        (told.replace("flags=", "flags=RESIDUALS_GOLOMB"), "compression flag RESIDUALS_GOLOMB is not known"),
        (told.replace("BVGraph\n", "ASCIIGraph\n").replace("#ASCIIGraph", "#"), "is not BVGraph"),
    ]:
        Path("web.graph").write_bytes(whole)
        Path("web.properties").write_text(wrong)
        with pytest.raises(UserError) as error:
            load("web.graph")
        assert line in str(error.value)
    arcs = next(line for line in told.splitlines() if line.startswith("arcs="))
    Path("web.properties").write_text(told.replace(arcs, "arcs=3"))
    with pytest.raises(UserError, match="more than the properties allow"):
        load("web.graph")
