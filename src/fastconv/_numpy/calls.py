"""Planned calls: built once for each combination of shapes, strides, dtypes and options, then run by the library on new data."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from fastconv import _core
from fastconv._numpy.arrays import Array, address, element_range, is_direct, native_copy, spec
from fastconv.normalise import Call, Spec
from fastconv.plan import FFT, choose
from fastconv.problem import ConvProblem

if TYPE_CHECKING:
    from fastconv._numpy.spectral import Prepared

#: first, second, bias, out as Specs -> the problem.
Build = Callable[[Spec, Spec, Spec | None, Spec | None], Call]

#: What `fastconv tune` hears of every problem that is planned.
posed: Callable[[ConvProblem], None] | None = None

_MOST_ENTRIES = 4096
_entries: dict[Any, Entry] = {}
_lock = Lock()


def _new_lock() -> None:
    """A forked child would wait for ever for a lock that another thread held at the fork."""
    global _lock
    _lock = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_new_lock)


class Entry:
    """A planned call: packed words and element ranges as the library reads them (in `memory`), and the array it returns."""

    __slots__ = ("build", "count", "direct", "dtype", "empty", "fft", "memory", "misaligned", "ranges", "shape", "swapped", "words")

    def __init__(self, build: Build, first: Array, second: Array, bias: Array | None, out: Array | None) -> None:
        bias_spec, out_spec = (None if array is None else spec(array) for array in (bias, out))
        call = build(spec(first), spec(second), bias_spec, out_spec)
        problem = call.problem
        if posed is not None:
            posed(problem)
        words = choose(problem, extra=(FFT,)).words
        self.build = build
        self.memory = (ctypes.c_int64 * (len(words) + 8))(*words)
        self.words = ctypes.c_void_p(ctypes.addressof(self.memory))
        self.count = ctypes.c_int64(len(words))
        self.ranges = ctypes.c_void_p(ctypes.addressof(self.memory) + 8 * len(words))
        self.shape = call.out.shape
        self.dtype = _result_dtype(first, call.out.dtype)
        self.swapped = call.swapped
        self.fft = None if words else _transforms(problem)
        self.direct = bool(words) and all(is_direct(array) for array in (first, second, bias, out) if array is not None)
        self.empty = 0 in self.shape
        # Nothing is read of an empty operand, nor of the other one, so their addresses do not matter (NumPy's may be odd).
        self.misaligned = min(first.dtype.alignment, self.dtype.alignment) - 1 if first.size and second.size else 0
        lhs, rhs = (second, first) if self.swapped else (first, second)
        limits = (*element_range(lhs), *element_range(rhs), *(element_range(bias) if bias is not None else (0, 0)))
        target = (0, int(np.prod(self.shape))) if out is None else element_range(out)
        self.memory[len(words) :] = [*limits, *target]


def _result_dtype(first: Array, name: str) -> np.dtype[Any]:
    """The first array's dtype in the machine's byte order, or another one by name."""
    if first.dtype.name == name:
        return first.dtype.newbyteorder("=")
    from fastconv.reference import numpy_dtype  # a rare case; an import less at start

    return numpy_dtype(name)


def find(key: Any) -> Entry | None:
    """The planned call of a key, if there is one."""
    return _entries.get(key)


def make(key: Any, build: Build, first: Array, second: Array, bias: Array | None = None, out: Array | None = None) -> Entry:
    """Plans a call and remembers it; the oldest entry goes when there are too many."""
    entry = Entry(build, first, second, bias, out)
    with _lock:
        if len(_entries) >= _MOST_ENTRIES:
            del _entries[next(iter(_entries))]
        _entries[key] = entry
    return entry


def run(entry: Entry, first: Array, second: Array, bias: Array | None = None, out: Array | None = None) -> Array:
    """Runs a planned call on arrays of the shapes, strides and dtypes that it was planned for."""
    if not entry.direct:
        return _run_otherwise(entry, first, second, bias, out)
    result = np.empty(entry.shape, entry.dtype) if out is None else out
    if entry.empty:
        return result
    a, b, c = address(first), address(second), address(result)
    d = None if bias is None else address(bias)
    if (a | b | c | (d or 0)) & entry.misaligned:
        return _run_copies(entry, first, second, bias, out)
    if entry.swapped:
        a, b = b, a
    if _core.conv(entry.words, entry.count, a, b, d, c, entry.ranges):
        raise _core.error()
    return result


def _run_otherwise(entry: Entry, first: Array, second: Array, bias: Array | None, out: Array | None) -> Array:
    """By transforms, or on copies."""
    if entry.fft is None or not all(is_direct(array) for array in (first, second, bias, out) if array is not None):
        return _run_copies(entry, first, second, bias, out)
    result = np.empty(entry.shape, entry.dtype) if out is None else out
    lhs, rhs = (second, first) if entry.swapped else (first, second)
    entry.fft.run(lhs, rhs, bias, result)
    return result


def _transforms(problem: ConvProblem) -> Prepared:
    """The problem by transforms instead of the library."""
    from fastconv._numpy.spectral import Prepared  # a rare case, and SciPy takes its time to import

    return Prepared(problem)


def _run_copies(entry: Entry, first: Array, second: Array, bias: Array | None, out: Array | None) -> Array:
    """For arrays the library cannot read where they lie (byte order, alignment, odd strides): on copies, planned anew."""
    first, second = (array if is_direct(array) else native_copy(array) for array in (first, second))
    bias = bias if bias is None or is_direct(bias) else native_copy(bias)
    target = out if out is None or is_direct(out) else np.empty(out.shape, out.dtype.newbyteorder("="))
    result = run(Entry(entry.build, first, second, bias, target), first, second, bias, target)
    if out is None or target is out:
        return result
    out[...] = result
    return out
