"""Winograd's F(2x2,3x3): 16 products in place of 36, approximate within a bound of its own (csrc/drivers/winograd.cc)."""

from __future__ import annotations

from math import ceil, prod

from fastconv.plan import costs
from fastconv.plan.machine import Machine
from fastconv.plan.row import refuse_unless_float, timed
from fastconv.problem import Axis, ConvProblem

#: Tiles of one task and bytes of its transformed input, as in csrc/drivers/winograd_plan.cc.
TILES, FEW_TILES = 56, 14
INPUT_BYTES = 1 << 20
#: Elements of a few tiles' transformed input; the library itself refuses above twice this.
MOST_INPUTS = 1 << 24
#: Elements of transformed weights; the library itself refuses above twice this.
MOST_WEIGHTS = 1 << 29
MOST_FEATURES = 1 << 17

# Cycles of one vector of channels of one tile, fitted on the rows that benchmarks/models.py times.
INPUT = 70.0  # copied in and transformed
INPUT_GATHERED = 300.0  # the same where neither channels nor pixels lie side by side
OUTPUT = 85.0  # transformed back and written
WEIGHTS = 12.0  # a kernel of one feature and channel transformed
WEIGHTS_GATHERED = 30.0
FAR_BYTES = 1 << 20  # of transformed weights that several tasks share: more are written and read beyond the second cache,
FAR_WEIGHTS = 13.0  # which costs so much more for each kernel
FAR_VECTOR = 1.5  # and for each vector of them and task
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


def most_tiles(problem: ConvProblem, machine: Machine) -> int:
    """Tiles of one task, at most."""
    tile = 16 * _outer_taps(problem) * _vectors(problem.channels, problem, machine) * machine.vector_bytes
    return min(max(INPUT_BYTES // tile, FEW_TILES), TILES)


def cycles(problem: ConvProblem, machine: Machine) -> float:
    lanes = costs.lanes_of(problem, machine)
    chosen = _transformed(problem)
    tiles = problem.batch * prod(ceil(a.out / 2) if i in chosen else a.out for i, a in enumerate(problem.axes))
    tasks = ceil(tiles / most_tiles(problem, machine))
    taps = _outer_taps(problem)
    depth, features = taps * _vectors(problem.channels, problem, machine), _vectors(problem.features, problem, machine)
    steps_in = (problem.lhs.outer[2], problem.lhs.spatial[chosen[-1]])
    copied = INPUT if 1 in steps_in else INPUT_GATHERED
    products = 16 * problem.channels * taps * features
    total = products * PRODUCT * tiles + tiles * (copied * depth + OUTPUT * features)
    steps_w = (*problem.rhs.outer[1:], *(abs(step) for step in problem.rhs.spatial))
    kernels = problem.features * problem.channels * taps
    total += kernels * (WEIGHTS if 1 in steps_w else WEIGHTS_GATHERED) * 16 / lanes
    if tasks > 1 and products * machine.vector_bytes > FAR_BYTES:
        total += kernels * FAR_WEIGHTS * 16 / lanes + products * FAR_VECTOR * tasks
    return problem.groups * total


def workspace(problem: ConvProblem, machine: Machine) -> int:
    width = machine.vector_bytes
    depth, features = _outer_taps(problem) * problem.channels, _vectors(problem.features, problem, machine)
    weights = 16 * problem.groups * (depth + 1) * features * width
    inputs = 16 * most_tiles(problem, machine) * _outer_taps(problem) * _vectors(problem.channels, problem, machine) * width
    return weights + machine.cores * (inputs + 16 * (depth + 1) * 2 * width + (TILES + 4) * 64 * width + 64 * width * width)


WINOGRAD = timed("winograd", 6, 3.0e-6, refuse, cycles, workspace, bound="window")
