"""Rows by vertex in one .npy file, written and read by ranks that each have some of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..errors import UserError
from ..graph.readers.files import map_array
from ..parallel import Rows


def write_rows(path: Path, rows: Tensor, layout: Rows) -> None:
    """Every rank's rows into one .npy file, by vertex; no rank holds the whole. Every rank calls it."""
    own = rows.detach().cpu().numpy()
    comm = layout.comm
    shape = (layout.count, *own.shape[1:])
    if comm.rank == 0:
        np.lib.format.open_memmap(path, "w+", own.dtype, shape).flush()
    comm.barrier()
    if own.size:
        map_array(path, write=True)[layout.ids.numpy()] = own
    comm.barrier()


def read_rows(path: Path, layout: Rows, width: int) -> Tensor:
    """This rank's rows of a file that `write_rows` made. [n_own, width]"""
    rows = map_array(path, missing="That run did not end: train again.", damaged="Train again.")
    if rows.shape != (layout.count, width) or rows.dtype.kind != "f":
        raise UserError(
            f"{path} holds {'x'.join(map(str, rows.shape))} numbers, this graph and config need "
            f"{layout.count}x{width}. Use the run's own graph."
        )
    return torch.from_numpy(np.array(rows[layout.ids.numpy()]))
