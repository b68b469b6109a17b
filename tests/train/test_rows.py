from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from weft.comm import run_ranks
from weft.comm.threads import single
from weft.errors import UserError
from weft.parallel import Blocks, Grid, Rows
from weft.train.rows import read_rows, write_rows


def test_rows_are_written_and_read_by_vertex_on_any_ranks(tmp_path):
    path = tmp_path / "x.npy"

    def write(comm):
        layout = Rows(comm, Blocks.even(34, Grid(3), seed=1))
        write_rows(path, layout.ids[:, None] * torch.tensor([1.0, 10.0]), layout)

    run_ranks(write, 3, "threads")
    want = torch.arange(34)[:, None] * torch.tensor([1.0, 10.0])
    assert np.array_equal(np.load(path), want.numpy())
    alone = Rows(single(), Blocks.even(34, Grid(1)))
    assert torch.equal(read_rows(path, alone, 2), want)
    with pytest.raises(UserError, match=r"x.npy holds 34x2 numbers, this graph and config need 34x3"):
        read_rows(path, alone, 3)


@pytest.mark.parametrize(
    ("content", "message"), [(None, "no file x.npy"), (b"no array", "x.npy is not a .npy array")]
)
def test_a_file_that_is_none_is_one_line(content, message):
    path = Path("x.npy")
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=message):
        read_rows(path, Rows(single(), Blocks.even(34, Grid(1))), 3)
