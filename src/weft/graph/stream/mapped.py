"""The array of a .npy file, read some rows at a time."""

from __future__ import annotations

import math

import numpy as np

from weft.errors import UserError
from weft.graph.readers.files import map_array


class Mapped:
    """Plain numbers, in this machine's order of bytes; unsigned ones, which torch does not know, as int64.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/x.npy", np.arange(6, dtype=">u2").reshape(3, 2))
    ...     some = Mapped(f"{folder}/x.npy").rows(1, 3)
    >>> some.tolist(), some.dtype.name
    ([[2, 3], [4, 5]], 'int64')
    """

    def __init__(self, path: str) -> None:
        self._array = map_array(path)
        kind = self._array.dtype
        if kind.kind not in "biuf" or kind.itemsize > 8:
            raise UserError(f"{path} does not hold plain numbers. Save one array with numpy.save.")
        self.shape = self._array.shape
        self.dtype = np.dtype(np.int64) if kind.kind == "u" else kind.newbyteorder("=")

    def rows(self, first: int, last: int) -> np.ndarray:
        """Rows first..last-1, read: pages of a map would count as this process's memory."""
        array = self._array
        if isinstance(array, np.memmap) and array.flags.c_contiguous and array.filename is not None:
            each = math.prod(array.shape[1:])
            at = array.offset + first * each * array.itemsize
            found = np.fromfile(array.filename, array.dtype, (last - first) * each, offset=at)
            if found.size < (last - first) * each:
                raise UserError(f"{array.filename} was cut short while it was read. Save it again.")
            some = found.reshape(last - first, *array.shape[1:])
        else:
            some = np.asarray(array[first:last])
        return some.astype(self.dtype, copy=False)

    def whole(self) -> np.ndarray:
        return self._array.astype(self.dtype, order="C")
