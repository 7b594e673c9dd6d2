"""Arrays whose dimensions have names, so that a rewrite says what it moves and not where; the moves are lax's cheap ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from jax import lax


@dataclass(frozen=True, slots=True)
class Named:
    """An array and one name for each of its dimensions.

    Everything here is a reshape, pad, slice, reversal or transposition. A transposition is made only where dimensions of more than
    one element change their order.
    """

    array: Any
    names: tuple[str, ...]

    def extent(self, name: str) -> int:
        """The extent of a dimension; of one that is not there, 1."""
        return self.array.shape[self.names.index(name)] if name in self.names else 1

    def extents(self, names: Sequence[str]) -> tuple[int, ...]:
        """The extents of several dimensions."""
        return tuple(self.extent(name) for name in names)

    def renamed(self, names: Mapping[str, str]) -> Named:
        """The same array under other names."""
        return Named(self.array, tuple(names.get(name, name) for name in self.names))

    def astype(self, dtype: Any) -> Named:
        """Converted elements."""
        return Named(lax.convert_element_type(self.array, dtype), self.names)

    def split(self, name: str, parts: Mapping[str, int]) -> Named:
        """One dimension becomes several, the first the outermost."""
        at = self.names.index(name)
        shape = (*self.array.shape[:at], *parts.values(), *self.array.shape[at + 1 :])
        return Named(_reshape(self.array, shape), (*self.names[:at], *parts, *self.names[at + 1 :]))

    def ordered(self, names: Sequence[str]) -> Named:
        """Dimensions in this order; those that are not there come in with one element."""
        missing = [name for name in names if name not in self.names]
        held = [name for name in self.names if self.extent(name) != 1]
        wanted = [name for name in names if name in held]
        array = self.array
        if held != wanted:
            array = _reshape(array, self.extents(held))
            array = lax.transpose(array, [held.index(name) for name in wanted])
        assert set(held) <= set(names), (self.names, names, missing)
        return Named(_reshape(array, self.extents(names)), tuple(names))

    def merged(self, names: Sequence[str], into: str) -> Named:
        """Several dimensions become one, the first the outermost; it stands where the last of them with elements stood."""
        held = [name for name in names if self.extent(name) != 1]
        last = held[-1] if held else next((name for name in names if name in self.names), None)
        rest = [name for name in self.names if name not in names or name == last]
        at = rest.index(last) if last is not None else len(rest)
        order = [*rest[:at], *names, *rest[at + 1 :]]
        found = self.ordered(order)
        shape = (*found.extents(rest[:at]), prod(found.extents(names)), *found.extents(rest[at + 1 :]))
        return Named(_reshape(found.array, shape), (*rest[:at], into, *rest[at + 1 :]))

    def window(self, name: str, start: int, count: int, step: int = 1) -> Named:
        """Elements start, start + step, ... of one dimension as if zeros went on for ever on both of its sides."""
        at, size = self.names.index(name), self.extent(name)
        first = max(0, -(start // step)) if start < 0 else 0
        end = min(count, -(-(size - start) // step))
        if end <= first:
            shape = (*self.array.shape[:at], count, *self.array.shape[at + 1 :])
            return Named(lax.full(shape, 0, self.array.dtype), self.names)
        array = self.array
        low, high = start + first * step, start + (end - 1) * step + 1
        if (low, high, step) != (0, size, 1):
            array = lax.slice_in_dim(array, low, high, step, at)
        return Named(_pad(array, at, first, count - end), self.names)

    def spread(self, name: str, step: int) -> Named:
        """step - 1 zeros between neighbours of one dimension."""
        if step == 1 or self.extent(name) <= 1:
            return self
        return Named(_pad(self.array, self.names.index(name), 0, 0, step - 1), self.names)

    def padded(self, name: str, low: int, high: int) -> Named:
        """Zeros around one dimension."""
        return Named(_pad(self.array, self.names.index(name), low, high), self.names)

    def reversed(self, names: Sequence[str]) -> Named:
        """Dimensions back to front."""
        places = [self.names.index(name) for name in names if self.extent(name) > 1]
        return Named(lax.rev(self.array, places), self.names) if places else self


def stacked(parts: Sequence[Named], name: str, before: str | None = None, after: str | None = None) -> Named:
    """Arrays of the same names side by side along a new dimension; it stands before or after another one, or first."""
    names = parts[0].names
    at = 0 if before is None and after is None else names.index(before) if before is not None else names.index(str(after)) + 1
    placed = (*names[:at], name, *names[at:])
    arrays = [lax.expand_dims(part.ordered(names).array, [at]) for part in parts]
    return Named(arrays[0] if len(arrays) == 1 else lax.concatenate(arrays, at), placed)


def _reshape(array: Any, shape: tuple[int, ...]) -> Any:
    return array if tuple(array.shape) == tuple(shape) else lax.reshape(array, shape)


def _pad(array: Any, at: int, low: int, high: int, between: int = 0) -> Any:
    if not (low or high or between):
        return array
    return lax.pad(array, lax.full((), 0, array.dtype), [(low, high, between) if i == at else (0, 0, 0) for i in range(array.ndim)])
