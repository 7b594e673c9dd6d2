"""What a rewrite is given of a convolution, and the two operations that all of them end in: a product, and a convolution left to XLA."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from jax import lax

from fastconv.jax.rewrites.named import Named, stacked
from fastconv.jax.rewrites.plain import conv
from fastconv.problem import Axis, ConvProblem

#: Spatial axes that the vendors' libraries convolve; with more, some are folded into batch and channels.
MOST_AXES = 3


@dataclass(frozen=True, slots=True)
class Call:
    """One convolution as lax has it.

    Dimensions are named n, c and x0, x1, ... (lhs), o, c and k0, k1, ... (rhs), n, o and p0, p1, ... (out), with g for the groups.
    numbers: lhs_spec, rhs_spec, out_spec. batch_groups: whether g splits lhs's batch, not its features.
    precision: lax's, passed on as it is. result: the result's dtype.
    """

    problem: ConvProblem
    numbers: Any
    batch_groups: bool
    precision: Any
    result: Any

    @property
    def accumulator(self) -> Any:
        """The type in which partial sums are added: half types are rounded once, at the end."""
        return np.dtype(np.float32) if np.dtype(self.result).itemsize == 2 and not self.integer else np.dtype(self.result)

    @property
    def integer(self) -> bool:
        """Whether the result is of integers."""
        return np.dtype(self.result).kind in "iu"

    def opened(self, lhs: Any, rhs: Any) -> tuple[Named, Named]:
        """The operands with names, groups as a dimension of their own."""
        problem, (lhs_spec, rhs_spec, _) = self.problem, tuple(self.numbers)
        first, second = Named(lhs, _names(lhs_spec, "nc", "x")), Named(rhs, _names(rhs_spec, "oc", "k"))
        if problem.groups == 1:
            return first, second
        first = first.split("n", {"g": problem.groups, "n": problem.batch}) if self.batch_groups else first.split(
            "c", {"g": problem.groups, "c": problem.channels}
        )  # fmt: skip
        return first, second.split("o", {"g": problem.groups, "o": problem.features})

    def closed(self, out: Named) -> Any:
        """The result's array from one with the names g, n, o and p0, p1, ..."""
        names = _names(tuple(self.numbers)[2], "no", "p")
        spread = [part for name in names for part in (("g", "o") if name == "o" else (name,))]
        ordered = out.ordered(spread)
        shape = tuple(prod(ordered.extents(("g", "o"))) if name == "o" else ordered.extent(name) for name in names)
        return lax.convert_element_type(lax.reshape(ordered.array, shape), self.result)

    @property
    def features_last(self) -> bool:
        """Whether the result has its features behind the first spatial axis."""
        spec = tuple(self.numbers)[2]
        return len(spec) > 2 and spec[1] > spec[2]


def _names(spec: Sequence[int], outer: str, spatial: str) -> tuple[str, ...]:
    names = [""] * len(spec)
    for name, position in zip([*outer, *(f"{spatial}{i}" for i in range(len(spec) - 2))], spec, strict=True):
        names[position] = name
    return tuple(names)


def product(call: Call, lhs: Named, rhs: Named, batch: Sequence[str], summed: Sequence[str], wide: bool = False) -> Named:
    """The matrix product over `summed`: names are those of the batch, then lhs's others, then rhs's others.

    wide: the result is added to others, and comes in the accumulator's type.
    """
    batch = [name for name in batch if name in lhs.names and name in rhs.names]
    summed = [name for name in summed if name in lhs.names and name in rhs.names]
    where: Any = tuple(tuple(tuple(a.names.index(name) for name in names) for a in (lhs, rhs)) for names in (summed, batch))
    array = lax.dot_general(
        lhs.array,
        rhs.array,
        where,
        precision=call.precision,
        preferred_element_type=call.accumulator if wide else call.result,
    )
    free = [[name for name in a.names if name not in (*batch, *summed)] for a in (lhs, rhs)]
    return Named(array, (*batch, *free[0], *free[1]))


def convolve(call: Call, lhs: Named, rhs: Named, axes: Sequence[Axis], features_last: bool, wide: bool = False) -> Named:
    """The convolution of named operands, left to XLA: names n, o, p0, ... and g where there are groups.

    Axes have no lhs dilation, and say by `out` how much padding follows. Padding is never negative: what would be cropped is sliced off
    (XLA:CPU reads outside its input there, openxla/xla#48713).
    """
    assert all(axis.lhs_dilation == 1 for axis in axes)
    lhs, axes = _cropped(lhs, axes)
    if len(axes) > MOST_AXES:
        return _folded(call, lhs, rhs, axes, features_last, wide)
    count = len(axes)
    groups = lhs.extent("g")
    first = lhs.merged(("g", "c"), "c") if "g" in lhs.names else lhs
    second = rhs.merged(("g", "o"), "o") if "g" in rhs.names else rhs
    first_spec = tuple(first.names.index(name) for name in ("n", "c", *(f"x{i}" for i in range(count))))
    second_spec = tuple(second.names.index(name) for name in ("o", "c", *(f"k{i}" for i in range(count))))
    positions = tuple(f"p{i}" for i in range(count))
    names = ("n", *positions, "o") if features_last else ("n", "o", *positions)
    spec = tuple(names.index(name) for name in ("n", "o", *positions))
    array = conv(
        first.array,
        second.array,
        window_strides=tuple(a.stride for a in axes),
        padding=[(a.lo, _high(a)) for a in axes],
        rhs_dilation=tuple(a.rhs_dilation for a in axes),
        dimension_numbers=lax.ConvDimensionNumbers(first_spec, second_spec, spec),
        feature_group_count=groups,
        precision=call.precision,
        preferred_element_type=call.accumulator if wide else call.result,
    )
    out = Named(array, names)
    return out.split("o", {"g": groups, "o": out.extent("o") // groups}) if groups > 1 else out


def _high(a: Axis) -> int:
    """The padding behind the data that yields `out` positions."""
    return (a.out - 1) * a.stride + (a.kernel - 1) * a.rhs_dilation + 1 - a.size - a.lo


def _cropped(lhs: Named, axes: Sequence[Axis]) -> tuple[Named, list[Axis]]:
    found = []
    for i, a in enumerate(axes):
        first, last = max(0, -a.lo), a.size + min(0, _high(a))
        if (first, last) == (0, a.size):
            found.append(a)
        elif last <= first:  # padding alone: zeros stand in for it
            reach = (a.out - 1) * a.stride + (a.kernel - 1) * a.rhs_dilation + 1
            lhs = lhs.window(f"x{i}", a.size, reach)
            found.append(replace(a, size=reach, lo=0))
        else:
            lhs = lhs.window(f"x{i}", first, last - first)
            found.append(replace(a, size=last - first, lo=a.lo + first))
    return lhs, found


def _folded(call: Call, lhs: Named, rhs: Named, axes: Sequence[Axis], features_last: bool, wide: bool) -> Named:
    """One axis fewer: its taps side by side as channels, its positions as batch. The one with the fewest taps goes."""
    at = min(range(len(axes)), key=lambda i: axes[i].kernel)
    a = axes[at]
    x, k = f"x{at}", f"k{at}"
    lhs = stacked([lhs.window(x, tap * a.rhs_dilation - a.lo, a.out, a.stride) for tap in range(a.kernel)], k, before="c")
    lhs = lhs.merged((k, "c"), "c").merged(("n", x), "n")
    rhs = rhs.merged((k, "c"), "c")
    down = {f"{letter}{i}": f"{letter}{i - 1}" for letter in "xk" for i in range(at + 1, len(axes))}
    out = convolve(call, lhs.renamed(down), rhs.renamed(down), [*axes[:at], *axes[at + 1 :]], features_last, wide)
    up = {f"p{i}": f"p{i + 1}" for i in range(at, len(axes) - 1)}
    return out.renamed(up).split("n", {"n": out.extent("n") // a.out, f"p{at}": a.out})
