"""What an array argument may be, where its data lies, and what an `out=` must be."""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np

from fastconv.normalise import Spec
from fastconv.problem import DTYPE_CODES

Array = np.ndarray[Any, Any]

_OVERLAP_WORK: Any = 100_000  # candidate solutions that NumPy may try before it gives up


def as_array(name: str, value: Any) -> Array:
    """An ndarray of an array-like; masked arrays are refused, since a mask would be lost in silence."""
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(value, masked.MaskedArray):
        raise TypeError(f"{name} must be an array without a mask, got {type(value).__name__}")
    try:
        return np.asarray(value)
    except ValueError as error:  # ragged lists
        raise ValueError(f"{name} must be an array or nested lists of equal lengths, got {value!r}") from error


def is_direct(array: Array) -> bool:
    """Whether the library can read the array where it lies: its own byte order, whole elements apart, aligned."""
    size = array.itemsize
    return array.dtype.isnative and array.flags.aligned and all(stride % size == 0 for stride in array.strides)


def spec(array: Array) -> Spec:
    """An array without its data; that of a C-ordered copy if the library cannot read the array where it lies."""
    name = array.dtype.name
    if name not in DTYPE_CODES or not is_direct(array):
        return Spec.contiguous(array.shape, name)
    size = array.itemsize
    return Spec(array.shape, tuple([stride // size for stride in array.strides]), name)


def native_copy(array: Array) -> Array:
    """An aligned C-ordered copy in the machine's byte order."""
    return np.array(array, dtype=array.dtype.newbyteorder("="), order="C", copy=True)


def element_range(array: Array) -> tuple[int, int]:
    """lo <= index < hi of the elements an array may touch, from its first one."""
    if array.size == 0:
        return 0, 0
    reach = [(extent - 1) * stride // array.itemsize for extent, stride in zip(array.shape, array.strides, strict=True)]
    return sum(r for r in reach if r < 0), 1 + sum(r for r in reach if r > 0)


def _interface_address(array: Array) -> int:
    """Where the first element lies, by NumPy's documented interface (some 1.4 us)."""
    return array.__array_interface__["data"][0]


_DATA = object.__basicsize__  # `char *data` is the first field of NumPy's array object, right behind Python's header
_pointer_at = ctypes.c_void_p.from_address


def _field_address(array: Array) -> int:
    """The same, read from the array object (0.2 us); None of an empty array's null pointer counts as 0."""
    return _pointer_at(id(array) + _DATA).value or 0


def _field_is_where_numpy_says() -> bool:
    """Whether this interpreter and this NumPy lay arrays out as `_field_address` reads them."""
    if sys.implementation.name != "cpython":
        return False
    probes = [np.zeros(3), np.zeros((2, 3))[1:, ::-1], np.zeros((), np.int8)]
    return all(_field_address(probe) == _interface_address(probe) for probe in probes)


#: The address of an array's first element.
address = _field_address if _field_is_where_numpy_says() else _interface_address


def check_out(out: Any, **inputs: Array | None) -> Array:
    """The caller's output array: writeable, each element its own, none of them an input's. Shape and dtype are checked with the problem."""
    if not isinstance(out, np.ndarray):
        raise TypeError(f"out must be a NumPy array, got {type(out).__name__}")
    masked = sys.modules.get("numpy.ma")
    if masked is not None and isinstance(out, masked.MaskedArray):
        raise TypeError(f"out must be an array without a mask, got {type(out).__name__}")
    if not out.flags.writeable:
        raise ValueError(f"out must be writeable, got a read-only array of shape {out.shape}")
    if _overlaps_itself(out):
        raise ValueError(f"out must not overlap itself, got shape {out.shape} with strides {out.strides}")
    for name, array in inputs.items():
        if array is not None and _overlap(out, array):
            raise ValueError(f"out must not overlap {name}, got arrays that share memory")
    return out


def _overlaps_itself(array: Array) -> bool:
    """Whether two elements may share bytes: some axis steps by less than what the axes of smaller steps cover."""
    covered = array.itemsize
    for stride, extent in sorted((abs(stride), extent) for stride, extent in zip(array.strides, array.shape, strict=True) if extent > 1):
        if stride < covered:
            return array.size > 0
        covered += (extent - 1) * stride
    return False


def _overlap(a: Array, b: Array) -> bool:
    """Whether two arrays share bytes; a case too hard to decide counts as yes."""
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=_OVERLAP_WORK)
    except np.exceptions.TooHardError:
        return True
