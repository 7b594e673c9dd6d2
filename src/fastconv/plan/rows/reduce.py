"""Reductions: few outputs that are dot products over whole rows (csrc/drivers/reduce.cc)."""

from __future__ import annotations

from math import prod

from fastconv.plan import costs
from fastconv.plan.machine import Machine
from fastconv.plan.row import refuse_unless_spatial, timed
from fastconv.problem import ConvProblem

#: Elements of a row that is copied; the library itself refuses above twice this.
MOST_ROW = 1 << 23
#: Sums kept apart; the library itself refuses above twice this.
MOST_SUMS = 1 << 15

# Cycles, fitted on the rows that benchmarks/models.py times.
DOT_START = 250.0  # one tile of dot products: its sums in and out
DOT_TAIL = 20.0  # cutting one operand of such a tile off at the end of its row


def refuse(problem: ConvProblem, machine: Machine) -> str | None:
    if why := refuse_unless_spatial(problem):
        return why
    if any(a.lhs_dilation != 1 for a in problem.axes):
        return "the input is dilated"
    if sums(problem) > MOST_SUMS:
        return f"{sums(problem)} sums are too many to keep apart"
    if row_length(problem) > MOST_ROW:
        return f"rows of {row_length(problem)} elements are too long to copy"
    return None


def sums(problem: ConvProblem) -> int:
    """Sums that one part of a reduction keeps."""
    return problem.features * prod(a.out for a in problem.axes)


def row_length(problem: ConvProblem) -> int:
    """Elements of lhs that one row of dot products copies, at most."""
    lane = costs.sorted_axes(problem)[-1]
    return (lane.out - 1) * lane.stride + (lane.kernel + 32) * lane.rhs_dilation


def cycles(problem: ConvProblem, machine: Machine) -> float:
    axes = costs.sorted_axes(problem)
    lanes = costs.lanes_of(problem, machine)
    lane = axes[-1]
    row = axes[-2] if len(axes) > 1 else None
    # Tiles of rows x shifts dot products; with one side alone every multiply-add needs a load of its own.
    left = min(row.out, 5) if row is not None and row.stride % row.rhs_dilation == 0 else 1
    right = min(lane.out, 5 if left > 1 else 16)
    each = 0.65 if left * right >= 9 and left > 1 else 1.1
    images = problem.groups * problem.batch * problem.channels
    pairs = problem.features * prod(a.out * a.kernel for a in axes[:-1]) * lane.out
    tile = (lane.kernel // lanes) * left * right * each + DOT_START + (DOT_TAIL * (left + right) if lane.kernel % lanes else 0)
    copies = prod(a.size for a in axes[:-1]) * (lane.kernel * lane.rhs_dilation) * prod(a.out for a in axes[:-2]) * 1.0
    gather = 1.0 * pairs * lane.kernel / max(1, lane.out) if 1 not in problem.rhs.spatial else 0
    ends = problem.groups * problem.batch * sums(problem) * lanes * 2.0
    return images * (pairs / (left * right) * tile + copies + gather) + ends


def workspace(problem: ConvProblem, machine: Machine) -> int:
    return 16 * problem.groups * problem.batch * sums(problem) * machine.vector_bytes


REDUCE = timed("reduce", 3, 1.0e-6, refuse, cycles, workspace)
