"""Dense products that read the input where it lies, point by point (csrc/drivers/points.cc)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import product
from math import ceil, prod

from fastconv import rewrite
from fastconv.plan import costs
from fastconv.plan.machine import Machine
from fastconv.plan.row import refuse_unless_float, timed
from fastconv.problem import Axis, ConvProblem

#: Features x phases, and elements of packed weights and of one copy of the input; the library refuses above at least twice each.
MOST_COLUMNS = 1 << 17
MOST_PACKED = 1 << 26
MOST_SCRATCH = 1 << 20
#: Phases that the model looks at one by one.
MOST_PHASES = 1 << 12
#: Points of a task that shares a copy of the input, about.
BLOCK_POINTS = 128
#: Points of a task's shortest line, at most.
FEWEST_POINTS = 16

# Cycles, fitted on the rows that benchmarks/models.py times.
PACK_ALONG = 0.3  # a weight, columns side by side
PACK_ACROSS = 0.6  # through a transposition in registers
PACK_GATHERED = 2.0
PACK_RUNS = 1.0  # in short runs
PACK_FAR = 1.5  # more for each that is transposed or gathered, where weights are more than a core's second cache
CACHE = 2 << 20  # bytes of that
PACK_STREAMED = 6.0  # more for each weight, where they are so many bytes that they go to memory and come back:
STREAMED = 32 << 20
PACK_FAR_RUNS = 4.5  # the same for runs of phases, one of a feature, features so many elements apart:
FAR_RUNS = 1024
COPY = 0.2  # an element of the input
OUT_IN_PLACE = 0.1  # an output summed where it goes
OUT_LINES = 1.3  # through a transposition in registers
OUT_APART = 2.5  # between those of several other phases
OUT_RUN = 1.5  # a run of outputs
IMAGE = 1.4  # of all cycles, where the kernel is an image and the output small: every depth step is a tap of its own
FAR_TAPS = 2.5  # of all cycles, where every tap reads a cache line of its own (weight gradients of strided convolutions)


@dataclass(frozen=True, slots=True)
class Lattice:
    """Phases that share their points and taps (csrc/drivers/lattice.h): `phases` columns a feature, `points` rows, `taps` a channel."""

    phases: int
    points: int
    taps: int


def refuse(problem: ConvProblem, machine: Machine) -> str | None:
    if why := refuse_unless_float(problem):
        return why
    columns = problem.features * costs.most_phases(problem)
    if columns > MOST_COLUMNS:
        return f"{columns} columns (features x phases) are too many to describe"
    if costs.most_phases(problem) > MOST_PHASES:
        return f"{costs.most_phases(problem)} phases of the dilated input are too many to plan one by one"
    if packed(problem, machine) > MOST_PACKED:
        return "the weights are too large to pack"
    if _scratch(problem) > MOST_SCRATCH:
        return "the input of a tile is too large"
    return None


def packed(problem: ConvProblem, machine: Machine) -> int:
    """Elements of the packed weights."""
    lanes = costs.lanes_of(problem, machine)
    return problem.groups * sum(
        lanes * _vectors(problem, lattice, lanes) * problem.channels * lattice.taps for lattice in _lattices(problem)
    )


def _scratch(problem: ConvProblem) -> int:
    """Elements that a shortest line of points reads."""
    reach = [(a.kernel - 1) * a.rhs_dilation // a.lhs_dilation + 2 for a in problem.axes]
    longest = max((FEWEST_POINTS * a.stride for a in problem.axes), default=0)
    # Where every axis has a single point, lines run over the images.
    images = min(problem.batch, FEWEST_POINTS) if all(a.out <= costs.phases(a) for a in problem.axes) else 1
    return images * problem.channels * max((prod(reach) // r * (r + longest) for r in reach), default=1)


def _vectors(problem: ConvProblem, lattice: Lattice, lanes: int) -> int:
    return ceil(problem.features * lattice.phases / lanes)


def _lattices(problem: ConvProblem) -> list[Lattice]:
    groups = []
    for axis in problem.axes:
        # A phase's taps and the input of its first one; phases that agree in both share a lattice.
        kinds = Counter((a.out, a.kernel, a.lo) for a in rewrite.axis_phases(axis))
        groups.append([Lattice(count, out, taps) for (out, taps, _), count in kinds.items()])
    return [
        Lattice(prod(g.phases for g in chosen), problem.batch * prod(g.points for g in chosen), prod(g.taps for g in chosen))
        for chosen in product(*groups)
    ]


def _merged(problem: ConvProblem) -> list[Lattice]:
    """The lattices that span the taps of several phases."""
    groups = []
    for axis in problem.axes:
        parts: dict[int, list[Axis]] = {}
        for part in rewrite.axis_phases(axis):
            parts.setdefault(part.out, []).append(part)
        groups.append([Lattice(len(phases), out, _span(phases)) for out, phases in parts.items()])
    return [
        Lattice(prod(g.phases for g in chosen), problem.batch * prod(g.points for g in chosen), prod(g.taps for g in chosen))
        for chosen in product(*groups)
    ]


def _span(phases: list[Axis]) -> int:
    met = [a for a in phases if a.kernel]
    if not met:
        return 0
    low, high = min(-a.lo for a in met), max((a.kernel - 1) * a.rhs_dilation - a.lo for a in met)
    return (high - low) // met[0].rhs_dilation + 1


def cycles(problem: ConvProblem, machine: Machine) -> float:
    lanes = costs.lanes_of(problem, machine)
    most = 4 if machine.isa in ("avx512", "neon") else 3
    exact, merged = _lattices(problem), _merged(problem)
    is_merged = _steps(problem, merged, lanes) < 0.9 * _steps(problem, exact, lanes)
    run = _block_points(problem)
    return (
        (FAR_TAPS if _taps_lie_apart(problem) else IMAGE if _is_gradient(problem) else 1.0)
        * problem.groups
        * (
            sum(_product(problem, lattice, lanes, most, run) for lattice in (merged if is_merged else exact))
            + _packing(problem, lanes, merged if is_merged else exact, is_merged)
            + _copying(problem)
            + _storing(problem, exact)
        )
    )


def _is_gradient(problem: ConvProblem) -> bool:
    """Whether the kernel is an image and the output small, as in a weight gradient."""
    outputs = prod(a.out for a in problem.axes)
    return outputs > 1 and prod(a.kernel for a in problem.axes) > 4 * outputs


def _taps_lie_apart(problem: ConvProblem) -> bool:
    """Whether many taps follow each other in steps of more than a few elements, and so do the channels."""
    steps = [abs(step) * a.rhs_dilation for a, step in zip(problem.axes, problem.lhs.spatial, strict=True) if a.kernel > 1]
    channel = abs(problem.lhs.outer[2]) if problem.channels > 1 else steps[0] if steps else 1
    return prod(a.kernel for a in problem.axes) >= 16 and min(channel, *steps) > 4


def _steps(problem: ConvProblem, lattices: list[Lattice], lanes: int) -> int:
    return sum(_vectors(problem, lattice, lanes) * lattice.taps for lattice in lattices)


def _block_points(problem: ConvProblem) -> int:
    """Points along the two innermost axes that have several: what a tile can take its rows from."""
    counts = [problem.batch, *(ceil(a.out / costs.phases(a)) for a in costs.sorted_axes(problem))]
    inner = [count for count in counts if count > 1][-2:]
    return min(prod(inner), BLOCK_POINTS)


def _product(problem: ConvProblem, lattice: Lattice, lanes: int, most: int, block: int) -> float:
    vectors = _vectors(problem, lattice, lanes)
    panels = ceil(vectors / most)
    each = vectors / panels
    rows = min(block, 6 if each > 3 or most == 3 else 8)
    # Multiply-adds, loads, or the latency of four cycles; then what a tile costs to start.
    step = max(4.0, 0.5 * rows * each, 0.5 * (rows + each + 1)) + 0.5
    return lattice.points * panels / rows * (step * problem.channels * lattice.taps + 25.0)


def _packing(problem: ConvProblem, lanes: int, lattices: list[Lattice], merged: bool) -> float:
    large = costs.ITEM_BYTES[problem.dtype] * prod(problem.rhs_extents) > CACHE
    if merged:
        each = 5.0
    elif abs(problem.rhs.outer[1]) == 1:
        each = PACK_ALONG
    elif all(costs.phases(a) == 1 for a in problem.axes):
        each = PACK_ACROSS if 1 in (problem.rhs.outer[2], *problem.rhs.spatial) else PACK_GATHERED
        if large:
            each += PACK_FAR
    else:
        each = PACK_RUNS if max(lattice.phases for lattice in lattices) > 1 else PACK_GATHERED
        if large and problem.features > 1 and abs(problem.rhs.outer[1]) >= FAR_RUNS:
            each += PACK_FAR_RUNS
    if costs.ITEM_BYTES[problem.dtype] * prod(problem.rhs_extents) > STREAMED:
        each += PACK_STREAMED
    width = lanes if merged else 1
    return each * sum(ceil(problem.features * lattice.phases / width) * width * problem.channels * lattice.taps for lattice in lattices)


def _copying(problem: ConvProblem) -> float:
    padded = any(a.lo != 0 or (a.out - 1) * a.stride + (a.kernel - 1) * a.rhs_dilation >= a.size * a.lhs_dilation for a in problem.axes)
    if (problem.lhs.outer[2] == 1 or problem.channels <= 8) and not padded:
        return 0.0
    axes = costs.sorted_axes(problem)
    halo = 1.0
    if len(axes) > 1:
        line, row = (max(1, ceil(a.out / costs.phases(a))) for a in (axes[-1], axes[-2]))
        rows = min(row, max(1, BLOCK_POINTS // line))
        halo = 1.0 + (axes[-2].kernel - 1) * axes[-2].rhs_dilation / (rows * axes[-2].stride * axes[-2].lhs_dilation)
    each = COPY if 1 in (problem.lhs.outer[2], *problem.lhs.spatial) else costs.FAR_ELEMENT
    return each * halo * problem.batch * problem.channels * prod(a.size for a in problem.axes)


def _storing(problem: ConvProblem, lattices: list[Lattice]) -> float:
    outputs = problem.batch * problem.features * prod(a.out for a in problem.axes)
    if abs(problem.out.outer[2]) == 1 and problem.features >= 4:
        return OUT_IN_PLACE * outputs
    phases = [costs.phases(a) for a in costs.sorted_axes(problem)]
    if problem.features >= 4 and 1 in problem.out.spatial:
        return (OUT_LINES if not phases or phases[-1] <= 2 else OUT_APART) * outputs
    return OUT_RUN * outputs / max(1, min(phases[-1] if phases else 1, 8) / 2)


def workspace(problem: ConvProblem, machine: Machine) -> int:
    return costs.ITEM_BYTES[problem.dtype] * packed(problem, machine) + machine.cores * (2 << 20)


POINTS = timed("points", 10, 3.0e-6, refuse, cycles, workspace)
