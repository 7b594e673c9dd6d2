"""Convolutions in which an input meets at most one tap: a kernel that fits its stride, and the weight gradient of such a layer.

The input is then a matrix of patches as it lies: a reshape, and one matrix product.
"""

from __future__ import annotations

from math import prod

from fastconv.jax.rewrites.call import Call, product
from fastconv.jax.rewrites.named import Named
from fastconv.jax.rewrites.steps import Pass, Product, Rewrite, Step, size
from fastconv.problem import Axis, ConvProblem


def _once(a: Axis) -> bool:
    """Whether i = p * stride + k * rhs_dilation - lo has one solution for each i."""
    if a.lhs_dilation > 1 and a.size > 1:
        return False
    return a.kernel == 1 or a.out == 1 or (a.rhs_dilation == 1 and a.kernel <= a.stride) or (a.stride == 1 and a.out <= a.rhs_dilation)


def _refuse(problem: ConvProblem) -> str | None:
    for i, a in enumerate(problem.axes):
        if a.lhs_dilation > 1 and a.size > 1:
            return "lhs dilation"
        if not _once(a):
            return f"an input meets several taps on spatial axis {i}"
    return None


def _steps(problem: ConvProblem) -> list[Step]:
    positions, taps = prod(a.out for a in problem.axes), prod(a.kernel for a in problem.axes)
    depth = problem.channels * taps
    found: list[Step] = [Product(problem.groups, problem.batch * positions, problem.features, depth)]
    if taps > 1:  # patches are laid out side by side for the product
        found.append(Pass(size(problem.lhs_extents) + problem.groups * problem.batch * positions * depth))
    return found


def _apply(call: Call, lhs: Named, rhs: Named) -> Named:
    for i, a in enumerate(call.problem.axes):
        lhs = _patches(lhs, i, a)
    taps = [f"k{i}" for i in range(len(call.problem.axes))]
    return product(call, lhs, rhs, ("g",), ("c", *taps))


def _patches(lhs: Named, i: int, a: Axis) -> Named:
    """x becomes positions p and taps k."""
    x, k, p = f"x{i}", f"k{i}", f"p{i}"
    if a.lhs_dilation > 1:  # of one element: it is met where p * stride + k * rhs_dilation = lo
        lhs, a = lhs.padded(x, 0, 0), Axis(1, a.kernel, a.out, a.stride, a.lo, 1, a.rhs_dilation)
    if a.kernel == 1:
        return lhs.window(x, -a.lo, a.out, a.stride).split(x, {p: a.out, k: 1})
    if a.out == 1:
        return lhs.window(x, -a.lo, a.kernel, a.rhs_dilation).split(x, {p: 1, k: a.kernel})
    if a.rhs_dilation == 1 and a.kernel <= a.stride:
        whole = lhs.window(x, -a.lo, a.out * a.stride).split(x, {p: a.out, k: a.stride})
        return whole if a.kernel == a.stride else whole.window(k, 0, a.kernel)
    whole = lhs.window(x, -a.lo, a.kernel * a.rhs_dilation).split(x, {k: a.kernel, p: a.rhs_dilation})
    return whole if a.out == a.rhs_dilation else whole.window(p, 0, a.out)


PATCHES = Rewrite("patches", _refuse, _steps, _apply)
