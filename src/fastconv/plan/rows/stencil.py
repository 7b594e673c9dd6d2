"""Stencils: few channels, vectors over the innermost axis (csrc/drivers/stencil.cc)."""

from __future__ import annotations

from math import ceil, prod

from fastconv import rewrite
from fastconv.plan import costs
from fastconv.plan.machine import Machine
from fastconv.plan.row import refuse_unless_spatial, timed
from fastconv.problem import Axis, ConvProblem

#: Elements of the scratch; the library itself refuses above twice this.
MOST_ELEMENTS = 1 << 19
#: Most phases, as in csrc/drivers/stencil.cc.
MOST_PHASES = 64

CHANNELS = 1.15  # how much more a product costs where sums go over channels
SHORT_ROW = 1.5  # cycles of an output in a row that fills no tile
SPACED = 0.3  # an element among a few channels that lie side by side, on its way in or out
TRANSPOSED = 0.8  # one among more
ROW = 40.0  # cycles to start the copy of a row
IMAGE = 3.0  # of all cycles, where the kernel is an image (a weight gradient's): sums go in and out for a few taps at a time
PHASES = 1.7  # of all cycles, where a dilated input makes phases: each copies the input anew
FILLED = 2.0  # an output that no tap reaches, between those of other phases


def refuse(problem: ConvProblem, machine: Machine) -> str | None:
    if why := refuse_unless_spatial(problem):
        return why
    if costs.most_phases(problem) > MOST_PHASES:
        return f"{costs.most_phases(problem)} phases of the dilated input are too many to run one by one"
    if scratch(problem) > MOST_ELEMENTS:
        return "the working set of a tile is too large"
    return None


def scratch(problem: ConvProblem) -> int:
    """Elements of the input that one task of a stencil copies, at most (csrc/drivers/stencil_plan.cc with the widest vectors)."""
    return max(_phase_scratch(part) for part in rewrite.phases(problem))


def _phase_scratch(problem: ConvProblem) -> int:
    axes = costs.sorted_axes(problem)
    lane = axes[-1]
    item = costs.ITEM_BYTES[problem.dtype]
    flat = _flat(axes, 16)
    block = min(max(lane.out, 1), (16384 if flat else 2048) // item)
    pitch = lane.stride * (block + (lane.kernel - 1) * lane.rhs_dilation // lane.stride + 1 + 2 * 32)
    rest = list(axes[:-1])
    rows = 1
    if not flat:
        row = rest.pop()
        rows = (min(max(row.out, 1), 32) - 1) * row.stride + (row.kernel - 1) * row.rhs_dilation + 1
    planes = 1
    if rest:
        plane = rest.pop()
        planes = (plane.kernel - 1) * plane.rhs_dilation + 1
    return problem.channels * prod(a.kernel for a in rest) * planes * rows * pitch


def cycles(problem: ConvProblem, machine: Machine) -> float:
    parts = rewrite.phases(problem)
    sums = [part for part in parts if 0 not in part.rhs_extents]
    filled = FILLED * sum(prod(part.out_extents) for part in parts if 0 in part.rhs_extents)
    return sum(_phase_cycles(part, machine) for part in sums) * (PHASES if len(sums) > 1 else 1) + filled


def _phase_cycles(problem: ConvProblem, machine: Machine) -> float:
    axes = costs.sorted_axes(problem)
    lanes = costs.lanes_of(problem, machine)
    lane = axes[-1]
    flat = _flat(axes, lanes)
    shared = (lane.stride == 1 and lane.rhs_dilation == 1 and lane.kernel > lanes) if flat else axes[-2].stride == axes[-2].rhs_dilation
    width = lanes if flat else 2 * lanes
    filled = ceil(lane.out / width) * width
    taps = prod(a.kernel for a in axes)
    images = problem.groups * problem.batch * prod(a.out for a in axes[:-1])
    vectors = images * problem.features * filled / lanes
    few_rows = not flat and axes[-2].out < 4
    # A shared tile is bound by its multiply-adds; else every one waits for a load across two cache lines.
    per_vector = problem.channels * taps * (0.7 if shared and not few_rows else 1.5) + 4.0
    if problem.channels > 1:
        per_vector *= CHANNELS
    kernel_rows = 1 if flat else axes[-2].kernel
    halo = 1 + (kernel_rows - 1) / (32 if len(axes) == 2 and kernel_rows > 3 else 16)
    copied = problem.groups * problem.batch * problem.channels * prod(a.out for a in axes[:-1]) * halo * lane.out * lane.stride
    step = min(abs(s) for s in problem.lhs.spatial) * lane.stride
    if problem.lhs.outer[2] == 1 and problem.channels > 4:
        each = TRANSPOSED
    else:
        each = SPACED if 1 < step <= 4 else costs.element_cycles(step, 0.12)
    weights = problem.groups * problem.features * problem.channels * taps * 1.0
    out_step = min(abs(s) for s in problem.out.spatial)
    woven = problem.out.outer[2] == 1 and 1 < problem.features == out_step <= 16
    scatter = (SPACED if woven else costs.element_cycles(out_step, 0.0)) * images * problem.features * lane.out
    if lane.out < width:  # short rows leave through a buffer
        scatter = max(scatter, SHORT_ROW * images * problem.features * lane.out)
    starts = ROW * copied / min(lane.out * lane.stride, 512)
    image = taps > prod(a.out for a in axes)
    return (vectors * per_vector + copied * each + starts + weights + scatter) * (IMAGE if image else 1)


def _flat(axes: list[Axis], lanes: int) -> bool:
    return len(axes) == 1 or (axes[-2].kernel == 1 and axes[-1].kernel > lanes)


def workspace(problem: ConvProblem, machine: Machine) -> int:
    return machine.cores * scratch(problem) * costs.ITEM_BYTES[problem.dtype]


STENCIL = timed("stencil", 2, 2.0e-6, refuse, cycles, workspace)
