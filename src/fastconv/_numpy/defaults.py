"""Defaults that can be told from the same value given by a caller, and options as keys that tell 1 from 1.0 and True."""

from __future__ import annotations

from typing import Any

import numpy as np


class DefaultInt(int):
    """An int nobody passed."""


class DefaultStr(str):
    """A string nobody passed."""

    __slots__ = ()


class DefaultFlag:
    """False, which nobody passed (bool has no subclasses)."""

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "False"


ONE, ZERO, NC = DefaultInt(1), DefaultInt(0), DefaultStr("NC")
NO: Any = DefaultFlag()

#: Classes whose values stand for themselves in a key. A default may have another key than the same value given.
_AS_IS = frozenset((int, str, type(None), DefaultInt, DefaultStr, DefaultFlag))
_NUMBERS = frozenset((bool, float, complex))


def typed(value: Any) -> Any:
    """A hashable stand-in of an option: equal only for options that mean the same and are right or wrong alike.

    Lists and tuples are alike; numbers that are not ints carry their type; what cannot be told by value equals nothing.
    """
    kind = value.__class__
    if kind in _AS_IS:
        return value
    if kind is tuple or kind is list:
        return tuple([element if element.__class__ in _AS_IS else typed(element) for element in value])
    if kind in _NUMBERS or isinstance(value, np.generic):
        return (kind, value)
    if kind is np.ndarray and value.ndim >= 1:
        return typed(value.tolist())
    return object()


def frozen(value: Any) -> Any:
    """The option with its lists, also nested ones, as tuples; arrays as they are now."""
    if isinstance(value, (list, tuple)):
        return tuple([frozen(element) for element in value])
    return frozen(value.tolist()) if isinstance(value, np.ndarray) and value.ndim >= 1 else value


def given(**options: Any) -> dict[str, Any]:
    """Those of the options that a caller passed."""
    return {name: value for name, value in options.items() if not isinstance(value, (DefaultInt, DefaultStr, DefaultFlag))}


def refuse_geometry(dims_name: str, **options: Any) -> None:
    """TypeError if a caller passed a geometry option together with dims, which hold the geometry already."""
    for name, value in given(**options).items():
        raise TypeError(f"{name} must not be given together with {dims_name}, which holds the geometry, got {name}={value!r}")
