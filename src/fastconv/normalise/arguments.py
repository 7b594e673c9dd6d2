"""Reads one argument at a time. Every error names the argument, the rule and the value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from typing import Any

import numpy as np

from fastconv.problem import ACTIVATIONS, DTYPE_CODES

MAX_SPATIAL = 16  # kMaxDims of the library (csrc/problem.h)
LARGEST = 2**31  # kMaxStep of the library: strides, dilations and paddings beyond it would not fit its index arithmetic


@dataclass(frozen=True, slots=True)
class Spec:
    """An array without its data: shape, strides in elements, dtype name."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    @classmethod
    def contiguous(cls, shape: tuple[int, ...], dtype: str) -> Spec:
        """The C-ordered array of a shape."""
        strides, step = [], 1
        for extent in reversed(shape):
            strides.append(step)
            step *= max(extent, 1)
        return cls(shape, tuple(reversed(strides)), dtype)


def count(number: int, noun: str) -> str:
    """`1 pair`, `2 pairs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def spatial(number: int) -> str:
    """`1 spatial axis`, `2 spatial axes`."""
    return "1 spatial axis" if number == 1 else f"{number} spatial axes"


def _integer(value: Any) -> int | None:
    """The int that a value is, or None: floats and bools are not ints, NumPy's integers are."""
    if isinstance(value, bool):
        return None
    try:
        return index(value)
    except TypeError:
        return None


def _elements(value: Any) -> tuple[Any, ...] | None:
    """The elements of a sequence (list, tuple, array), or None."""
    if isinstance(value, (str, bytes)):
        return None
    if isinstance(value, Sequence):
        return tuple(value)
    if hasattr(value, "tolist") and getattr(value, "ndim", 0) >= 1:
        return tuple(value.tolist())
    return None


def _bounded(name: str, numbers: tuple[int, ...], value: Any) -> None:
    if any(abs(number) > LARGEST for number in numbers):
        raise ValueError(f"{name} must lie between -2**31 and 2**31, got {value!r}")


def integer(name: str, value: Any, least: int | None = None) -> int:
    """One int, at least `least`."""
    number = _integer(value)
    if number is None:
        raise TypeError(f"{name} must be an int, got {value!r}")
    if least is not None and number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    _bounded(name, (number,), value)
    return number


def per_axis(name: str, value: Any, axes: int, least: int, single: bool = True) -> tuple[int, ...]:
    """One int per spatial axis; a single int stands for all of them where `single` allows it."""
    number = _integer(value) if single else None
    if number is not None:
        numbers = (number,) * axes
    else:
        elements = _elements(value)
        if elements is None:
            raise TypeError(f"{name} must be {'an int or ' if single else ''}{count(axes, 'int')} for {spatial(axes)}, got {value!r}")
        if len(elements) != axes:
            raise ValueError(f"{name} must hold {count(axes, 'int')} for {spatial(axes)}, got {value!r}")
        found = [_integer(element) for element in elements]
        if None in found:
            raise TypeError(f"{name} must hold ints, got {value!r}")
        numbers = tuple(number for number in found if number is not None)
    if any(number < least for number in numbers) or (number is not None and number < least):
        raise ValueError(f"{name} must be at least {least} on every axis, got {value!r}")
    _bounded(name, numbers, value)
    return numbers


def pairs(name: str, value: Any, axes: int, symmetric: bool = True) -> tuple[tuple[int, int], ...]:
    """One (lo, hi) pair per axis; where `symmetric` allows it also an int for all or one int per axis."""
    result = _pairs(name, value, axes, symmetric)
    _bounded(name, tuple(number for pair in result for number in pair), value)
    return result


def _pairs(name: str, value: Any, axes: int, symmetric: bool) -> tuple[tuple[int, int], ...]:
    number = _integer(value) if symmetric else None
    if number is not None:
        return ((number, number),) * axes
    forms = f"an int, {count(axes, 'int')} or {count(axes, '(lo, hi) pair')}" if symmetric else count(axes, "(lo, hi) pair")
    elements = _elements(value)
    if elements is None:
        raise TypeError(f"{name} must be {forms} for {spatial(axes)}, got {value!r}")
    inner = [_elements(element) for element in elements]
    nested = any(pair is not None for pair in inner)
    if nested or not symmetric:
        if len(elements) != axes:
            raise ValueError(f"{name} must hold {count(axes, 'pair')} for {spatial(axes)}, got {value!r}")
        result = []
        for pair in inner:
            if pair is None or len(pair) != 2:
                raise ValueError(f"{name} must hold (lo, hi) pairs, got {value!r}")
            lo, hi = _integer(pair[0]), _integer(pair[1])
            if lo is None or hi is None:
                raise TypeError(f"{name} must hold pairs of ints, got {value!r}")
            result.append((lo, hi))
        return tuple(result)
    if len(elements) != axes:
        raise ValueError(f"{name} must hold {count(axes, 'int')} or {count(axes, '(lo, hi) pair')} for {spatial(axes)}, got {value!r}")
    numbers = [_integer(element) for element in elements]
    if None in numbers:
        raise TypeError(f"{name} must hold ints or (lo, hi) pairs of ints, got {value!r}")
    return tuple((number, number) for number in numbers if number is not None)


def shape(name: str, value: Any) -> tuple[int, ...]:
    """The shape of an array: ints of at least 0."""
    elements = _elements(value)
    if elements is None:
        raise TypeError(f"{name} must be a shape (a tuple of ints), got {value!r}")
    extents = [_integer(element) for element in elements]
    if None in extents:
        raise TypeError(f"{name} must hold ints, got {value!r}")
    result = tuple(extent for extent in extents if extent is not None)
    if any(extent < 0 for extent in result):
        raise ValueError(f"{name} must hold extents of at least 0, got {value!r}")
    return result


def flag(name: str, value: Any) -> bool:
    """True or False and nothing that only looks like it. (NumPy's own bool is taken too.)"""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise TypeError(f"{name} must be True or False, got {value!r}")


def one_of(name: str, value: Any, choices: tuple[str | None, ...]) -> Any:
    """One of a few names."""
    if not isinstance(value, str) and not (value is None and None in choices):
        raise TypeError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return value


def dtype(name: str, value: str) -> str:
    """An element type that the library has."""
    if value not in DTYPE_CODES:
        raise TypeError(f"{name} must have one of the dtypes {', '.join(DTYPE_CODES)}, got {value}")
    return value


def same_dtype(first_name: str, first: str, name: str, value: str) -> None:
    """Nothing is promoted in silence."""
    if first != value:
        raise TypeError(f"{name} must have {first_name}'s dtype {first}, got {value}")


def activation(value: Any, dtype_name: str) -> str | None:
    """An activation by name; it needs real floating-point numbers."""
    name = one_of("activation", value, ACTIVATIONS)
    if name is not None and dtype_name not in ("float16", "bfloat16", "float32", "float64"):
        raise TypeError(f"activation must be None for dtype {dtype_name} (it needs a real floating-point dtype), got {name!r}")
    return name
