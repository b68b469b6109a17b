"""Products of matrices: rows times weights are local, sums over rows go over all ranks."""

from __future__ import annotations

from typing import Any

from .call import Call, positive, put, rule
from .reducing import total
from .space import Tag, tag_of


@rule("linear")
def linear(call: Call) -> Any:
    x, tag = call.x, tag_of(call.x)
    call.no_names()
    if tag is None or tag.dim == x.dim() - 1 or len(call.tagged()) > 1:
        raise call.refuse("multiplies over rows that are spread over ranks. Use x.t() @ y")
    return put(call.run(), Tag(tag.space, tag.dim))


@rule("matmul", "bmm", "mm", "mv", "rmatmul")
def matmul(call: Call) -> Any:
    """(rows of a) b, or Σ over rows: aᵀ b where both have the same rows."""
    call.no_names()
    a, b = call.args[0], call.get(1, "other", call.kwargs.get("mat2"))
    if call.name == "rmatmul":
        a, b = b, a
    at, bt = tag_of(a), tag_of(b)
    out = call.run()
    inner_a = at is not None and at.dim == a.dim() - 1
    inner_b = bt is not None and bt.dim == max(b.dim() - 2, 0)
    if inner_a or inner_b:
        if at is None or bt is None or not (inner_a and inner_b):
            raise call.refuse("multiplies over rows that are spread over ranks with others that are not")
        call.one_space([at.space, bt.space])
        return total(call, out)
    # Dims of the result, from the last one: of a its rows and batches, of b its columns and batches.
    lost = 1 if b.dim() == 1 else 0
    found = []
    if at is not None:
        found.append((a.dim() - at.dim - lost, at.space))
    if bt is not None:
        found.append(
            (1 if bt.dim == b.dim() - 1 else b.dim() - bt.dim - (1 if a.dim() == 1 else 0), bt.space)
        )
    if len({back for back, _ in found}) > 1:
        raise call.refuse("multiplies rows with rows: all pairs of vertices")
    back, space = found[0][0], call.one_space([s for _, s in found])
    return put(out, Tag(space, out.dim() - back))


@rule("addmm")
def addmm(call: Call) -> Any:
    """beta · c + alpha · (rows of a) b"""
    call.no_names()
    c, a, b = call.x, call.get(1, "mat1"), call.get(2, "mat2")
    at, ct = tag_of(a), tag_of(c)
    if at is None or at.dim != 0 or tag_of(b) is not None or (ct is not None and ct.dim != c.dim() - 2):
        raise call.refuse("multiplies rows in a way that is not known. Use a @ b")
    if ct is not None:
        call.one_space([at.space, ct.space])
    elif c.dim() == 2 and c.shape[0] not in (1, at.space.size):
        raise call.refuse(f"adds rows of {at.space} to rows that are not spread")
    return put(call.run(), Tag(at.space, 0))


@rule("einsum")
def einsum(call: Call) -> Any:
    """The letter of the rows is in the result, or is summed over all ranks."""
    call.no_names()
    text, operands = call.args[0], call.args[1:]
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    if not isinstance(text, str) or "." in text or "->" not in text:
        raise call.refuse("is written in a way that is not known. Write it as 'ij,jk->ik'")
    left, result = text.replace(" ", "").split("->")
    terms = left.split(",")
    letters, spaces = set(), []
    for term, x in zip(terms, operands, strict=True):
        if (tag := tag_of(x)) is not None:
            letters.add(term[tag.dim])
            spaces.append(tag.space)
    if len(letters) != 1:
        raise call.refuse("multiplies rows with rows: all pairs of vertices")
    letter, space = letters.pop(), call.one_space(spaces)
    if any(letter in term and tag_of(x) is None for term, x in zip(terms, operands, strict=True)):
        raise call.refuse("multiplies over rows that are spread over ranks with others that are not")
    out = call.run()
    return put(out, Tag(space, result.index(letter))) if letter in result else total(call, out)


@rule("gru_cell", "lstm_cell", "rnn_tanh_cell", "rnn_relu_cell")
def cell(call: Call) -> Any:
    """One step for every row."""
    call.no_names()
    tags = [tag for _, tag in call.tagged()]
    if any(tag.dim for tag in tags):
        raise call.refuse("is given rows in a way that is not known")
    return put(call.run(), Tag(call.one_space([tag.space for tag in tags]), 0))


@rule("lstm", "gru", "rnn_tanh", "rnn_relu")
def sequence(call: Call) -> Any:
    """Sequences of every row: the rows are the batch."""
    x, tag = call.x, tag_of(call.x)
    call.no_names()
    batch_first = call.args[-1]
    if (
        tag is None
        or x.dim() != 3
        or tag.dim != (0 if batch_first else 1)
        or not isinstance(batch_first, bool)
    ):
        raise call.refuse("goes along rows that are spread over ranks")
    if call.args[5] and call.args[6]:  # dropout, training
        raise call.refuse("drops out inside, and the numbers would depend on ranks. Use dropout=0")
    out, *state = call.run()
    put(out, Tag(tag.space, tag.dim))
    for part in state:
        put(part, Tag(tag.space, 1))
    return (out, *state)


@rule("prelu")
def prelu(call: Call) -> Any:
    tag = tag_of(call.x)
    call.no_names()
    weight = call.get(1, "weight")
    if tag is None or (weight.numel() > 1 and tag.dim == 1):
        raise call.refuse("has a weight for every row")
    return put(call.run(), Tag(tag.space, tag.dim))


@rule("layer_norm", "rms_norm", "group_norm")
def within_rows(call: Call) -> Any:
    x, tag = call.x, tag_of(call.x)
    call.no_names()
    shape = call.get(1, "normalized_shape")
    over = range(x.dim() - len(shape), x.dim()) if call.name != "group_norm" else range(1, x.dim())
    if tag is None or tag.dim in over:
        raise call.refuse("normalises over rows that are spread over ranks")
    return put(call.run(), Tag(tag.space, tag.dim))


@rule("bilinear", "pairwise_distance", "cross", "linalg_cross")
def pairs(call: Call) -> Any:
    """Row k of one with row k of the other."""
    call.no_names()
    tags = [tag for _, tag in call.tagged()]
    x = call.x
    dim = call.get(2, "dim", -1) if "cross" in call.name else -1
    if len({tag.dim for tag in tags}) != 1 or dim is None or positive(dim, x.dim()) == tags[0].dim:
        raise call.refuse("is given rows in a way that is not known")
    return put(call.run(), Tag(call.one_space([tag.space for tag in tags]), tags[0].dim))
