"""Few taps: one multiply-add over the whole output for each, which XLA fuses into one pass over memory. For depthwise layers, and for
dense ones that the vendor's library refuses; dilated inputs run phase by phase."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product as combinations
from math import gcd, prod
from typing import NamedTuple

from jax import lax

from fastconv.jax.rewrites.call import Call, product
from fastconv.jax.rewrites.named import Named, stacked
from fastconv.jax.rewrites.steps import Pass, Product, Rewrite, Step, size
from fastconv.problem import Axis, ConvProblem

#: Taps, and phases, that are written out.
MOST_TAPS, MOST_PHASES = 64, 64


class Tap(NamedTuple):
    """One tap of one phase: the kernel's index, and the input's first position and step."""

    tap: int
    start: int
    step: int


def phases_of(a: Axis) -> list[list[Tap]]:
    """For each phase of an axis the taps that meet data in it."""
    count = a.lhs_dilation // gcd(a.lhs_dilation, a.stride)
    step = count * a.stride // a.lhs_dilation
    found = []
    for r in range(count):
        shifts = [(k, r * a.stride + k * a.rhs_dilation - a.lo) for k in range(a.kernel)]
        found.append([Tap(k, shift // a.lhs_dilation, step) for k, shift in shifts if shift % a.lhs_dilation == 0])
    return found


def is_depthwise(problem: ConvProblem) -> bool:
    """Whether every output is a sum over taps alone."""
    return problem.channels == 1


def _taps(problem: ConvProblem) -> int:
    return prod(a.kernel for a in problem.axes)


def _refuse(problem: ConvProblem) -> str | None:
    if (taps := _taps(problem)) > MOST_TAPS:
        return f"{taps} taps are more than {MOST_TAPS}"
    count = prod(a.lhs_dilation // gcd(a.lhs_dilation, a.stride) for a in problem.axes)
    return f"{count} phases are more than {MOST_PHASES}" if count > MOST_PHASES else None


def _steps(problem: ConvProblem) -> list[Step]:
    outputs = size(problem.out_extents)
    if is_depthwise(problem):
        return [Pass(size(problem.lhs_extents) + outputs, problem.products)]
    positions = prod(-(-a.out // (a.lhs_dilation // gcd(a.lhs_dilation, a.stride))) for a in problem.axes)
    each = Product(problem.groups, problem.batch * positions, problem.features, problem.channels)
    moved = size((problem.groups, problem.batch, positions)) * (2 * problem.channels + 2 * problem.features)
    return [each, Pass(moved)] * _taps(problem) + [Pass(2 * outputs)]


def _apply(call: Call, lhs: Named, rhs: Named) -> Named:
    axes = call.problem.axes
    found = [phases_of(a) for a in axes]
    positions = [-(-a.out // len(phases)) for a, phases in zip(axes, found, strict=True)]
    if is_depthwise(call.problem):
        lhs, rhs = lhs.astype(call.accumulator), rhs.astype(call.accumulator)

    def summed(phases: tuple[list[Tap], ...]) -> Named:
        terms = list(_terms(call, lhs, rhs, phases, positions))
        names = _result_names(call, len(axes))
        if not terms:
            shape = [call.problem.batch, call.problem.groups, call.problem.features, *positions]
            zero = lax.full(shape, 0, call.accumulator)
            return Named(zero, ("n", "g", "o", *(f"p{i}" for i in range(len(axes))))).ordered(names)
        total = terms[0]
        for term in terms[1:]:
            total = Named(lax.add(total.array, term.ordered(total.names).array), total.names)
        return total.ordered(names)

    return _side_by_side(summed, found, call)


def _terms(call: Call, lhs: Named, rhs: Named, phases: tuple[list[Tap], ...], positions: list[int]) -> Iterator[Named]:
    count = len(positions)
    for taps in combinations(*phases):
        x, w = lhs, rhs
        for i, tap in enumerate(taps):
            x, w = x.window(f"x{i}", tap.start, positions[i], tap.step), w.window(f"k{i}", tap.tap, 1)
        x = x.renamed({f"x{i}": f"p{i}" for i in range(count)})
        w = w.ordered([name for name in w.names if not name.startswith("k")])
        yield _multiplied(call, x, w, count) if is_depthwise(call.problem) else product(call, x, w, ("g",), ("c",), wide=True)


def _multiplied(call: Call, x: Named, w: Named, count: int) -> Named:
    """x over n, g and positions, w over g and features: their outer product."""
    names = _result_names(call, count)
    shape = [call.problem.batch if n == "n" else x.extent(n) if n.startswith("p") else _extent(call, n) for n in names]
    wide = [a.ordered([name for name in names if name in a.names or a.extent(name) != 1]) for a in (_without(x, "c"), _without(w, "c"))]
    arrays = [lax.broadcast_in_dim(a.array, shape, [names.index(name) for name in a.names]) for a in wide]
    return Named(lax.mul(*arrays), names)


def _extent(call: Call, name: str) -> int:
    return call.problem.groups if name == "g" else call.problem.features


def _without(a: Named, name: str) -> Named:
    return a.ordered([other for other in a.names if other != name])


def _result_names(call: Call, count: int) -> tuple[str, ...]:
    """The order of the result, so that nothing is transposed at its end."""
    spec = tuple(call.numbers)[2]
    placed: list[tuple[str, ...]] = [()] * len(spec)
    for name, position in zip(("n", "o", *(f"p{i}" for i in range(count))), spec, strict=True):
        placed[position] = ("g", "o") if name == "o" else (name,)
    return tuple(name for names in placed for name in names)


def _side_by_side(summed, found: list[list[list[Tap]]], call: Call) -> Named:
    """Phases beside each other, the last axis first: each p of q positions becomes p = q * phases + r."""

    def level(i: int, chosen: tuple[list[Tap], ...]) -> Named:
        if i == len(found):
            return summed(chosen)
        parts = [level(i + 1, (*chosen, phase)) for phase in found[i]]
        if len(parts) == 1:
            return parts[0]
        whole = stacked(parts, f"r{i}", after=f"p{i}").merged((f"p{i}", f"r{i}"), f"p{i}")
        extent = call.problem.axes[i].out
        return whole if whole.extent(f"p{i}") == extent else whole.window(f"p{i}", 0, extent)

    return level(0, ())


PER_TAP = Rewrite("per_tap", _refuse, _steps, _apply)
