"""Damage that files meet: bits, cuts, repeated and moved pieces, and numbers that are not what they were."""

from __future__ import annotations

import random
import re

NUMBERS = [
    b"0", b"-1", b"1", b"2", b"255", b"65536", b"2147483647", b"2147483648", b"4294967296", b"999999999",
    b"9223372036854775807", b"9223372036854775808", b"1e308", b"1e400", b"-1e400", b"nan", b"inf", b"-inf",
    b"1e-320", b"0.5", b"NaN", b"Infinity", b"9" * 30, b"9" * 5000, b"",
]  # fmt: skip
WORDS = [
    b"null", b"true", b"[]", b"{}", b'""', b'"x"', b"[[[[]]]]", b"[" * 3000, b"{" * 3000, b"\x00",
    b"\xff\xfe", b"\n", b"#", b"%", b",", b"\t", b"=", b"\x1b[31m", b"../../x", b"<f8", b">f4", b"<f16",
    b"|O", b"<U4", b"<c16", b"(", b")", b"'",
]  # fmt: skip


def mutate(data: bytes, draw: random.Random) -> bytes:
    """One to four of these."""
    for _ in range(draw.choice((1, 1, 1, 2, 4))):
        data = draw.choice(_WAYS)(data, draw)
    return data


def _place(data: bytes, draw: random.Random) -> int:
    # The head of a file says most about it.
    return draw.randrange(min(len(data), 200) if draw.random() < 0.4 else len(data)) if data else 0


def _flip(data: bytes, draw: random.Random) -> bytes:
    if not data:
        return data
    at = _place(data, draw)
    return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]


def _cut(data: bytes, draw: random.Random) -> bytes:
    return data[: _place(data, draw)]


def _drop(data: bytes, draw: random.Random) -> bytes:
    at = _place(data, draw)
    return data[:at] + data[at + draw.choice((1, 2, 8, 64, 1000)) :]


def _repeat(data: bytes, draw: random.Random) -> bytes:
    at, size = _place(data, draw), draw.choice((1, 4, 16, 256))
    return data[:at] + data[at : at + size] * draw.choice((2, 3, 50)) + data[at + size :]


def _move(data: bytes, draw: random.Random) -> bytes:
    a, b, size = _place(data, draw), _place(data, draw), draw.choice((1, 4, 8, 64))
    return data[:a] + data[b : b + size] + data[a + size :]


def _insert(data: bytes, draw: random.Random) -> bytes:
    at = _place(data, draw)
    return data[:at] + draw.choice(WORDS) + data[at:]


def _number(data: bytes, draw: random.Random) -> bytes:
    """Another number in the place of one that is spelled out."""
    found = list(re.finditer(rb"-?\d+(?:\.\d+)?", data[:4096]))
    if not found:
        return _bytes(data, draw)
    match = draw.choice(found)
    return data[: match.start()] + draw.choice(NUMBERS) + data[match.end() :]


def _word(data: bytes, draw: random.Random) -> bytes:
    found = list(re.finditer(rb"\"[^\"\n]*\"|\b[a-z_]{2,}\b", data[:4096]))
    if not found:
        return _insert(data, draw)
    match = draw.choice(found)
    return data[: match.start()] + draw.choice(WORDS + NUMBERS) + data[match.end() :]


def _bytes(data: bytes, draw: random.Random) -> bytes:
    """A binary number, such as a length, that is large, negative or none."""
    at = _place(data, draw)
    value = draw.choice(
        (b"\xff" * 8, b"\x00" * 8, b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80", b"\x01\x00\x00\x00")
    )
    return data[:at] + value + data[at + len(value) :]


_WAYS = (_flip, _flip, _cut, _drop, _repeat, _move, _insert, _number, _number, _word, _bytes)
