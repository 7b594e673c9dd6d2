"""Buffers that notice stray accesses: poisoned cells around the elements, or pages around them that nobody may touch."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable

import numpy as np

from fastconv.reference import Array, numpy_dtype
from fastconv.soak.draws import poison

#: Cells on either side of an array that is not fenced.
GUARD = 64
PLACES = ("guarded", "left", "right")

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
_NO_ACCESS = 0


class Cells:
    """An array of poison in memory of its own, with what lies around it.

    place: "guarded" puts GUARD poisoned cells on either side; "left" lets the first element touch an inaccessible page, "right" the last
    one (an access on the far side shows as a changed cell, on the near side as a fault).
    """

    def __init__(self, dtype: str, elements: int, place: str) -> None:
        if place == "guarded":
            self.memory = poison(dtype, elements + 2 * GUARD)
            self.first = GUARD
        else:
            self.memory = _between_fences(dtype, elements)
            self.memory[...] = poison(dtype, self.memory.size)
            self.first = 0 if place == "left" else self.memory.size - elements
        self.array: Array = self.memory[self.first : self.first + elements]

    def untouched(self, outputs: Callable[[Array], Array]) -> bool:
        """Whether every cell is still poison but for those that `outputs` views in an array laid out as this one."""
        touched = np.zeros(self.memory.size, bool)
        outputs(touched[self.first : self.first + self.array.size])[...] = True
        rest = self.memory[~touched]
        return rest.tobytes() == poison(self.memory.dtype.name, rest.size).tobytes()


def copied(array: Array, place: str) -> Array:
    """A copy in memory of its own (see `Cells`)."""
    cells = Cells(array.dtype.name, array.size, place)
    cells.array[...] = array
    return cells.array


def _between_fences(dtype: str, elements: int) -> Array:
    """Whole pages with an inaccessible one before and after; at least one page."""
    target, page = numpy_dtype(dtype), mmap.PAGESIZE
    size = max(1, -(-elements * target.itemsize // page)) * page
    pages = mmap.mmap(-1, size + 2 * page)
    cells = np.frombuffer(pages, target, size // target.itemsize, page)
    start = cells.__array_interface__["data"][0]
    for fence in (start - page, start + size):
        if _libc.mprotect(fence, page, _NO_ACCESS) != 0:
            raise OSError(ctypes.get_errno(), "mprotect refused to fence a page")
    return cells
