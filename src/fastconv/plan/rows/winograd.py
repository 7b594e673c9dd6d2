"""Winograd's F(2x2,3x3): 16 products in place of 36, approximate within a bound of its own (csrc/drivers/winograd.cc)."""

from __future__ import annotations

from math import ceil, prod

from fastconv.plan import costs
from fastconv.plan.machine import Machine
from fastconv.plan.row import refuse_unless_float, timed
from fastconv.problem import Axis, ConvProblem

#: Tiles of one task, and elements of its transformed input; the library itself refuses above twice the latter.
TILES = 56
MOST_INPUTS = 1 << 24
#: Elements of transformed weights; the library itself refuses above twice this.
MOST_WEIGHTS = 1 << 29
MOST_FEATURES = 1 << 17

# Cycles of one vector of channels of one tile, fitted on the rows that benchmarks/models.py times.
INPUT = 70.0  # copied in and transformed
INPUT_GATHERED = 300.0  # the same where neither channels nor pixels lie side by side
OUTPUT = 85.0  # transformed back and written
WEIGHTS = 10.0  # a kernel of one feature and channel transformed
WEIGHTS_GATHERED = 30.0
SPILLED = ((1 << 20, 20.0), (8 << 20, 15.0))  # and that much more where the transformed weights take more bytes
PRODUCT = 0.5  # of a vector


def transformable(axis: Axis) -> bool:
    return (axis.kernel, axis.stride, axis.lhs_dilation, axis.rhs_dilation) == (3, 1, 1, 1)


def _transformed(problem: ConvProblem) -> list[int]:
    """The two innermost axes that can be transformed, or fewer."""
    order = sorted(range(len(problem.axes)), key=lambda i: -abs(problem.lhs.spatial[i]))
    return [i for i in order if transformable(problem.axes[i])][-2:]


def _outer_taps(problem: ConvProblem) -> int:
    return prod(a.kernel for a in problem.axes) // 9


def refuse(problem: ConvProblem, machine: Machine) -> str | None:
    if why := refuse_unless_float(problem):
        return why
    chosen = _transformed(problem)
    if len(chosen) < 2:
        return "needs two axes with 3 taps, stride 1 and no dilation"
    if any(a.lhs_dilation != 1 for a in problem.axes):
        return "the input is dilated"
    depth = 16 * problem.channels * _outer_taps(problem)
    if depth * 14 > MOST_INPUTS:
        return f"{problem.channels} channels are too many to transform at once"
    if problem.features > MOST_FEATURES:
        return f"{problem.features} features are too many"
    if depth * problem.groups * problem.features > MOST_WEIGHTS:
        return "the transformed weights are too large"
    return None


def _vectors(count: int, problem: ConvProblem, machine: Machine) -> int:
    return ceil(count / costs.lanes_of(problem, machine))


def cycles(problem: ConvProblem, machine: Machine) -> float:
    lanes = costs.lanes_of(problem, machine)
    chosen = _transformed(problem)
    tiles = problem.batch * prod(ceil(a.out / 2) if i in chosen else a.out for i, a in enumerate(problem.axes))
    taps = _outer_taps(problem)
    depth, features = taps * _vectors(problem.channels, problem, machine), _vectors(problem.features, problem, machine)
    steps_in = (problem.lhs.outer[2], problem.lhs.spatial[chosen[-1]])
    copied = INPUT if 1 in steps_in else INPUT_GATHERED
    products = 16 * PRODUCT * tiles * problem.channels * taps * features
    steps_w = (*problem.rhs.outer[1:], *(abs(step) for step in problem.rhs.spatial))
    kernels = problem.features * problem.channels * taps
    each = (WEIGHTS if 1 in steps_w else WEIGHTS_GATHERED) * 16 / lanes
    each += sum(more for size, more in SPILLED if 16 * kernels * costs.ITEM_BYTES[problem.dtype] > size)
    return problem.groups * (products + tiles * (copied * depth + OUTPUT * features) + kernels * each)


def workspace(problem: ConvProblem, machine: Machine) -> int:
    item, width = costs.ITEM_BYTES[problem.dtype], machine.vector_bytes
    depth, features = _outer_taps(problem) * problem.channels, _vectors(problem.features, problem, machine)
    weights = 16 * problem.groups * depth * features * width
    inputs = 16 * TILES * _outer_taps(problem) * _vectors(problem.channels, problem, machine) * width
    return weights + machine.cores * (max(min(inputs, 768 << 10), inputs // 4) + TILES * 64 * width + 8 * item)


WINOGRAD = timed("winograd", 6, 3.0e-6, refuse, cycles, workspace, bound="window")
