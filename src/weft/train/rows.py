"""Rows by vertex in one .npy file, written and read by ranks that each have some of them."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..errors import UserError
from ..graph.readers.files import map_array
from ..parallel import Rows


def write_rows(path: Path, rows: Tensor, layout: Rows) -> None:
    """Every rank's rows into one .npy file, by vertex; no rank holds the whole. Every rank calls it."""
    own = rows.detach().cpu().numpy()
    comm, mistake = layout.comm, ""
    part = path.with_name(path.name + ".part")
    if comm.rank == 0:
        try:
            _reserve(part, own.dtype, (layout.count, *own.shape[1:]))
        except OSError as error:
            part.unlink(missing_ok=True)
            mistake = f"cannot write {path}: {error.strerror}. Make room, or write elsewhere."
    mistake = comm.all_gather_json(mistake)[0]
    if mistake:
        raise UserError(mistake)
    if own.size:
        map_array(part, write=True)[layout.ids.numpy()] = own
    comm.barrier()
    if comm.rank == 0:
        os.replace(part, path)
    comm.barrier()


def _reserve(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """An empty array on disk, its room taken now: a mapped page for which there is none ends a process."""
    with open(path, "wb") as file:
        np.lib.format.write_array_header_1_0(
            file,
            {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape},
        )
        size = file.tell() + math.prod(shape) * dtype.itemsize
        file.truncate(size)
        file.flush()
        if size and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)


def read_rows(path: Path, layout: Rows, width: int) -> Tensor:
    """This rank's rows of a file that `write_rows` made. [n_own, width]"""
    rows = map_array(path, missing="That run did not end: train again.", damaged="Train again.")
    plain = rows.dtype.kind == "f" and rows.dtype.itemsize in (2, 4, 8)
    if not plain:
        raise UserError(f"{path} holds {rows.dtype}, which torch does not know. Train again.")
    if rows.shape != (layout.count, width):
        raise UserError(
            f"{path} holds {'x'.join(map(str, rows.shape))} numbers, this graph and config need "
            f"{layout.count}x{width}. Use the run's own graph."
        )
    return torch.from_numpy(rows[layout.ids.numpy()].astype(rows.dtype.newbyteorder("=")))
