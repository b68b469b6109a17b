"""Lines of numbers: any bytes give columns or one clear line, never anything else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from weft.errors import UserError
from weft.graph.readers.columns import leading_comments, read_columns, read_named_columns

WORDS = st.sampled_from(["0", "1", "17", "-2", "2.5", "x", "", "#", "%", "nan", '"', "99999999999999999999"])
SEPARATORS = st.sampled_from([" ", "\t", ",", "  ", "\n", "\r\n", "\r", "\0"])


@given(
    st.lists(st.tuples(WORDS, SEPARATORS), max_size=25).map(lambda pairs: "".join(w + s for w, s in pairs))
)
def test_anything_gives_columns_or_one_line(text: str) -> None:
    try:
        first, second, weights = read_columns(text.encode(), "toy")
    except UserError as error:
        lines = str(error).count("\n")
    else:
        lines = 0
        assert len(first) == len(second)
        assert weights is None or len(weights) == len(first)
        assert min([*first, *second], default=0) >= 0
    assert lines == 0


def test_line_numbers_count_from_the_top_of_the_file() -> None:
    data = b"skipped\nskipped\n0 1\n0 y\n"
    try:
        read_columns(data, "toy", start=16)
    except UserError as error:
        message = str(error)
    assert message.startswith("toy, line 4: id 'y'")


def test_leading_comments_end_at_the_first_arc() -> None:
    assert leading_comments(b"#a\n %b\n0 1\n#c\n") == b"#a\n %b\n"
    assert leading_comments(b"# only") == b"# only"


@given(
    st.lists(st.tuples(WORDS, SEPARATORS), max_size=25).map(lambda pairs: "".join(w + s for w, s in pairs)),
    st.lists(st.sampled_from(["weight", "a", "_"]), max_size=3, unique=True),
)
def test_anything_gives_named_columns_or_one_line(text: str, names: list[str]) -> None:
    try:
        (first, second, weights), more = read_named_columns(text.encode(), "toy", names)
    except UserError as error:
        first, second, weights, more, told = [], [], "weight" in names or None, {}, str(error)
    else:
        told = ""
    assert "\n" not in told
    assert len(first) == len(second)
    assert (weights is None) == ("weight" not in names)
    assert told or list(more) == [name for name in names if name == "a"]
    assert all(len(column) == len(first) for column in more.values())
