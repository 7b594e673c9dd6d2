"""Depthwise convolutions: few channels and features a group, the groups in the lanes of vectors (csrc/drivers/depthwise.cc)."""

from __future__ import annotations

from math import ceil, prod

from fastconv.plan import costs
from fastconv.plan.machine import Machine
from fastconv.plan.row import exchanging, refuse_unless_float, timed
from fastconv.problem import Axis, ConvProblem

#: Most phases, outer taps of an output and elements of the smallest block: the library itself refuses above twice these.
MOST_PHASES = 128
MOST_LISTS = 1 << 17
MOST_PANEL = 1 << 21
#: Elements of rhs that are packed whole, and bytes of a block's panels, of outputs or of taps (csrc/drivers/depthwise_plan.cc).
MOST_WEIGHTS = 1 << 22
PANEL_BYTES, SUM_PANEL_BYTES = 64 << 10, 128 << 10
#: Sums of a group that may be cut along the taps.
MOST_SUMS = 1 << 10
PARTS = 16

#: Where rows are read in place (csrc/drivers/planes.cc): taps of a row that no other row shares, and of one that others do.
ROW_TAPS, SHARED_ROW_TAPS = 12, 64

# Cycles, fitted on the rows that benchmarks/models.py times.
PRODUCT = 0.5  # a vector of products
UNALIGNED = 1.0  # one that waits for a load across two cache lines
TRANSPOSED = 0.25  # an element on its way into a panel or out of it
PLANE = 300.0  # starting a plane that is read where it lies
TILE = 2.0  # a vector of outputs, its sums in and out
GATHERED = 1.5  # an element moved alone
DENSE = 3.2  # of all cycles, where a group has several channels in and out: each is loaded anew for every feature


def refuse(problem: ConvProblem, machine: Machine) -> str | None:
    if why := refuse_unless_float(problem):
        return why
    if problem.groups == 1:
        return "there is one group: its lanes would be empty"
    if problem.features > 8:
        return f"{problem.features} features a group are too many"
    if costs.most_phases(problem) > MOST_PHASES:
        return f"{costs.most_phases(problem)} phases of the dilated input are too many to run one by one"
    if not _cut_along_taps(problem):
        if problem.channels > 8:
            return f"{problem.channels} channels a group are too many"
        if problem.channels * prod(a.kernel for a in costs.sorted_axes(problem)[:-1]) > MOST_LISTS:
            return "too many taps"
    if _smallest_panel(problem) > MOST_PANEL:
        return "the working set of a block is too large"
    return None


def _cut_along_taps(problem: ConvProblem) -> bool:
    """Few outputs, each a long sum: a weight gradient."""
    outputs = problem.features * prod(a.out for a in problem.axes)
    taps = problem.channels * prod(a.kernel for a in problem.axes)
    return all(a.lhs_dilation == 1 for a in problem.axes) and outputs <= MOST_SUMS and taps >= 4 * outputs


def _in_place(groups: int, step: int) -> bool:
    return groups == 1 or step == 1


def _reach(a: Axis, outputs: int, taps: int) -> int:
    return min(a.size, ((outputs - 1) * a.stride + (taps - 1) * a.rhs_dilation) // a.lhs_dilation + 1)


def _smallest_panel(problem: ConvProblem) -> int:
    """Elements of the panels of the smallest block, with the widest vectors there are."""
    lanes = 64 // costs.ITEM_BYTES[problem.dtype]
    if _cut_along_taps(problem):
        size = lanes * problem.features
        if not _in_place(problem.groups, problem.lhs.outer[0]):
            size += lanes * prod(_reach(a, a.out, 1) for a in problem.axes)
        return size
    size = lanes * problem.features
    if not _in_place(problem.groups, problem.lhs.outer[0]):
        size += lanes * problem.channels * prod(_reach(a, 1, a.kernel) for a in problem.axes)
    weights = prod(problem.rhs_extents[1:])
    if weights * (problem.groups + lanes) > MOST_WEIGHTS and not _in_place(problem.groups, problem.rhs.outer[0]):
        size += lanes * weights
    return size


def _in_planes(problem: ConvProblem, lanes: int) -> bool:
    """Channels first: rows are read where they lie, vectors along them."""
    axes = costs.sorted_axes(problem)
    if _in_place(problem.groups, problem.lhs.outer[0]) or _cut_along_taps(problem) or not axes:
        return False
    column, steps = axes[-1], sorted(zip(map(abs, problem.lhs.spatial), problem.lhs.spatial, problem.out.spatial, strict=True))
    period = costs.phases(column)
    if steps[0][1:] != (1, 1) or period > 2 or period * column.stride // column.lhs_dilation > 2 or 2 * column.out < lanes * period:
        return False
    return column.kernel <= (SHARED_ROW_TAPS if len(axes) > 1 and axes[-2].kernel > 2 else ROW_TAPS)


def cycles(problem: ConvProblem, machine: Machine) -> float:
    inputs = problem.batch if _cut_along_taps(problem) else problem.channels
    return _cycles(problem, machine) * (DENSE if inputs > 1 and problem.features > 1 else 1.0)


def _cycles(problem: ConvProblem, machine: Machine) -> float:
    lanes = costs.lanes_of(problem, machine)
    each = problem.batch * problem.features * prod(a.out for a in problem.axes)
    if _in_planes(problem, lanes):
        *outer, column = costs.sorted_axes(problem)
        period = costs.phases(column)
        filled = period * ceil(ceil(column.out / period) / lanes) * lanes / column.out
        product = PRODUCT if outer and outer[-1].kernel > 1 and outer[-1].out > 2 else UNALIGNED
        spread = column.stride / column.lhs_dilation * period if period == 1 else 1.0
        vectors = problem.groups * filled / lanes * (problem.products / problem.groups * product * max(1.0, spread) + each * TILE * period)
        planes = PLANE * problem.groups * problem.batch * problem.features
        return vectors + planes + prod(problem.rhs_extents[:2]) * problem.batch * prod(problem.rhs_extents[2:]) * GATHERED
    vectors = ceil(problem.groups / lanes)
    product = vectors * problem.products / problem.groups * PRODUCT + vectors * each * TILE
    moved = _moving(problem, problem.lhs.outer[0], problem.lhs.spatial, problem.lhs_extents, lanes) * _overlap(problem, lanes)
    if _cut_along_taps(problem):
        moved += _moving(problem, problem.rhs.outer[0], problem.rhs.spatial, problem.rhs_extents, lanes)
        moved += PARTS * prod(problem.out_extents) * 0.5
    else:
        moved += prod(problem.rhs_extents) * GATHERED
        moved += _moving(problem, problem.out.outer[0], problem.out.spatial, problem.out_extents, lanes)
    return product + moved


def _moving(problem: ConvProblem, group_step: int, steps: tuple[int, ...], extents: tuple[int, ...], lanes: int) -> float:
    """Cycles to lay out an operand in panels, if it is not used in place."""
    if _in_place(problem.groups, group_step):
        return 0.0
    filled = ceil(problem.groups / lanes) * lanes / problem.groups
    each = TRANSPOSED if steps and min(abs(step) for step in steps) == 1 else GATHERED
    return prod(extents) * filled * each


def _overlap(problem: ConvProblem, lanes: int) -> float:
    """How often an element of lhs is copied into panels: neighbouring blocks of outputs (or of taps) share the edges of their windows."""
    cut = _cut_along_taps(problem)

    def window(a: Axis, turns: int) -> int:
        return _reach(a, a.out, turns) if cut else _reach(a, turns, a.kernel)

    axes = costs.sorted_axes(problem)
    room = (SUM_PANEL_BYTES if cut else PANEL_BYTES) // (lanes * costs.ITEM_BYTES[problem.dtype] * (1 if cut else problem.channels))
    spans, copied = [window(a, 1) for a in axes], 1.0
    for i in reversed(range(len(axes))):  # a block grows along the innermost axis first
        a, others = axes[i], prod(spans[:i] + spans[i + 1 :])
        length = turns = a.kernel if cut else a.out
        while turns > 1 and others * window(a, turns) > room:
            turns = ceil(turns / 2)
        spans[i] = window(a, turns)
        copied *= ceil(length / turns) * spans[i] / max(1, a.size)
    return max(1.0, copied)


def workspace(problem: ConvProblem, machine: Machine) -> int:
    item = costs.ITEM_BYTES[problem.dtype]
    packed = min(prod(problem.rhs_extents) * item * 2, MOST_WEIGHTS * item)
    sums = 2 * PARTS * prod(problem.out_extents) * item if _cut_along_taps(problem) else 0
    return packed + sums + machine.cores * (2 * SUM_PANEL_BYTES + _smallest_panel(problem) * item)


DEPTHWISE = exchanging(timed("depthwise", 4, 1.5e-6, refuse, cycles, workspace))
