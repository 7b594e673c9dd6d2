"""The block algorithm: dense convolution whose pixels are read where they lie, or from one copy (csrc/drivers/block.h)."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, prod

from fastconv import rewrite
from fastconv.plan import costs
from fastconv.plan.machine import Machine
from fastconv.plan.row import refuse_unless_float, timed
from fastconv.problem import Axis, ConvProblem, Operand

#: As in csrc/drivers/block.cc.
MOST_PHASES = 64
MOST_TAPS = 4096

# Cycles, fitted on the rows that benchmarks/models.py times.
COPIED = 0.2  # an element copied in vectors
TRANSPOSED = 0.9  # an element through a transposition in registers
ALONE = 2.0  # an element moved alone
WEIGHT = 0.2  # reading a weight for another stretch of pixels
START = 40.0  # calling a tile's kernel and moving its sums ...
SEGMENT = 12.0  # ... and turning to another tap
PIXEL = 20.0  # describing a pixel ...
TAP = 3.0  # ... and each of its taps
ROW = 30.0  # starting a row of a copy
IMAGE_PIXELS = 4000.0  # copying another image's rows, by pixels ...
IMAGE_FEATURES = 1000.0  # ... and by features
GROUP = 6000.0  # starting one of several groups ...
GROUP_WEIGHT = 2.0  # ... and fetching each of its weights, which no group before it used
PHASE = 4000.0  # laying out one phase of a dilated input ...
PHASES = 1.3  # ... and of all cycles: each phase reads the input again, and outputs are moved once more
PHASE_WEIGHT = 4.0  # ... and each of its weights where features lie apart: taps of a phase do too
MERGED = 1.5  # an output of merged phases looked at and moved
FAR_WEIGHT = 40.0  # a weight of an image as kernel whose channels lie far apart (a weight gradient's) ...
FAR_STEP = 64  # ... by as many elements
FEW = 2.0  # of the products, where a tile has fewer than four features: it waits for its vectors
STRIDED = 1.03  # of all cycles, where outputs skip rows and columns of an image
IMAGE = 3.0  # of all cycles, where the kernel is an image and the output small (a weight gradient): every tap turns


def refuse(problem: ConvProblem, machine: Machine) -> str | None:
    if why := refuse_unless_float(problem):
        return why
    if costs.most_phases(problem) > MOST_PHASES:
        return f"{costs.most_phases(problem)} phases of the dilated input are too many to run one by one"
    taps = prod(a.kernel for a in problem.axes)
    return f"{taps} taps are too many to point to" if taps > MOST_TAPS else None


def cycles(problem: ConvProblem, machine: Machine) -> float:
    lanes = costs.lanes_of(problem, machine)
    wide = machine.vector_bytes == 64 or machine.isa == "neon"  # 32 registers
    phases = prod(costs.phases(a) for a in problem.axes)
    group = min(_by_features(problem, lanes, wide), _by_pixels(problem, lanes, wide, _taps(problem)))
    if problem.groups > 1:
        group += GROUP + GROUP_WEIGHT * _weights(problem)
    image = prod(a.kernel for a in problem.axes) >= prod(a.out for a in problem.axes)
    if image and problem.channels > 1 and abs(problem.rhs.outer[2]) >= FAR_STEP:
        group += FAR_WEIGHT * _weights(problem)
    common = problem.groups * group
    if problem.axes and all(a.out > 1 and 4 * a.out < a.kernel for a in problem.axes):
        common *= IMAGE
    if phases == 1:
        return common * (STRIDED if sum(a.stride > 1 and a.out > 1 for a in problem.axes) > 1 else 1.0)
    apart = PHASES * common + PHASE * phases
    if abs(problem.rhs.outer[1]) != 1:
        apart += PHASE_WEIGHT * problem.groups * _weights(problem)
    merged = _merged(problem)
    if merged is None:
        return apart
    outputs = merged.groups * merged.batch * merged.features * prod(a.out for a in merged.axes)
    # Tiles of few features hold several phases, and sum over the taps of all.
    taps = _taps(merged) if problem.features < 8 else problem.products / (outputs * problem.channels)
    weights = problem.groups * problem.features * problem.channels * prod(a.kernel for a in problem.axes)
    return min(apart, merged.groups * _by_pixels(merged, lanes, wide, taps) + MERGED * outputs + (ALONE + PHASE_WEIGHT) * weights)


def _merged(problem: ConvProblem) -> ConvProblem | None:
    """The convolution whose features are those of all phases; its taps span theirs (csrc/drivers/block_merged.h)."""
    axes = []
    for axis in problem.axes:
        parts = rewrite.axis_phases(axis)
        met = [a for a in parts if a.kernel]
        if not met or any((a.lo - met[0].lo) % met[0].rhs_dilation for a in met):
            return None
        lo, last = max(a.lo for a in met), max((a.kernel - 1) * a.rhs_dilation - a.lo for a in met)
        axes.append(replace(parts[0], kernel=(lo + last) // met[0].rhs_dilation + 1, lo=lo, rhs_dilation=met[0].rhs_dilation))
    features = problem.features * prod(costs.phases(a) for a in problem.axes)
    positions = prod(a.out for a in axes)
    steps = tuple(prod(a.out for a in axes[i + 1 :]) for i in range(len(axes)))
    outer = (problem.batch * features * positions, features * positions, positions)
    return replace(problem, axes=tuple(axes), features=features, out=Operand(outer, steps))


def _taps(problem: ConvProblem) -> float:
    """Taps that an output meets: tiles drop taps that none of their pixels does."""
    return problem.products / (problem.groups * problem.batch * problem.features * problem.channels * prod(a.out for a in problem.axes))


def _tile(rows: float, vectors: float) -> float:
    return 0.4 + max(4.0, rows * vectors / 2, (rows + vectors) / 2)


def _weights(problem: ConvProblem) -> int:
    return problem.features * problem.channels * prod(a.kernel for a in problem.axes)


def _by_features(problem: ConvProblem, lanes: int, wide: bool) -> float:
    pixels, taps = problem.batch * prod(a.out for a in problem.axes), _taps(problem)
    vectors = ceil(problem.features / lanes)
    panels = ceil(vectors / (4 if wide else 3))
    rows = {4: 6, 3: 8 if wide else 4, 2: 8 if wide else 6, 1: 8}[ceil(vectors / panels)]
    tile = _tile(rows, vectors / panels) * taps * problem.channels + START + SEGMENT * taps
    product = panels * tile * pixels / rows
    weights = _weights(problem) * (COPIED if problem.rhs.outer[1] == 1 else TRANSPOSED)
    storing = 0.0 if problem.out.outer[2] == 1 else TRANSPOSED if 1 in problem.out.spatial else ALONE
    moved = 0.0
    if problem.lhs.outer[2] != 1 and problem.channels > 1:
        moved = TRANSPOSED * problem.batch * problem.channels * prod(a.size for a in problem.axes)
    images = IMAGE_FEATURES * (problem.batch - 1)
    return product + pixels * (PIXEL + TAP * taps) + weights + storing * pixels * problem.features + moved + images


def _by_pixels(problem: ConvProblem, lanes: int, wide: bool, taps: float) -> float:
    axes = costs.sorted_axes(problem)
    pieces = ceil(problem.features / (8 if wide else 4))
    rows = problem.features / pieces
    most = 4 if wide and rows <= 6 else 3
    plane = [ceil(a.out / costs.phases(a)) for a in axes[-2:]]
    gap = _reach(axes[-1]) / 2 if len(plane) > 1 else 0
    pixels = prod(plane) + (prod(plane[:-1]) - 1) * gap
    # Cut for the cores; each piece ends in a vector of its own.
    vectors = ceil(pixels / lanes) + 0.5 * min(16, pixels / lanes / most)
    stretches = ceil(vectors / most)
    lines = problem.batch * prod(a.out for a in axes) / prod(plane)
    tile = _tile(rows, vectors / stretches) * taps * problem.channels + START + SEGMENT * taps
    product = lines * stretches * (pieces * tile + WEIGHT * taps * problem.features * problem.channels) * (FEW if rows < 4 else 1.0)
    inner = min((abs(step) * a.stride for a, step in zip(problem.axes, problem.lhs.spatial, strict=True)), default=1)
    copied = problem.batch * problem.channels * prod(a.size for a in axes)
    whole = problem.lhs.outer[2] == 1 and problem.channels >= lanes
    each = COPIED if inner == 1 else 2 * COPIED if inner == 2 else TRANSPOSED if whole else ALONE
    phased = any(costs.phases(a) > 1 for a in axes)
    if 1 in problem.out.spatial and not phased:
        storing = 0.0 if len(axes) == 1 or prod(a.kernel * a.stride for a in axes) == 1 else COPIED
    else:
        storing = TRANSPOSED if problem.out.outer[2] == 1 and problem.features >= lanes else ALONE
    outputs = problem.batch * problem.features * prod(a.out for a in axes)
    if any(a.kernel > 1 for a in axes):
        product += IMAGE_PIXELS * (lines - 1)
    return product + copied * each * 1.3 + lines * prod(plane[:-1]) * ROW + storing * outputs


def _reach(axis: Axis) -> int:
    return (axis.kernel - 1) * axis.rhs_dilation // axis.stride


def workspace(problem: ConvProblem, machine: Machine) -> int:
    item = costs.ITEM_BYTES[problem.dtype]
    return item * (prod(problem.rhs_extents) * 2 + min(prod(problem.lhs_extents), 16 << 20)) + machine.cores * (1 << 20)


BLOCK = timed("block", 5, 2.0e-6, refuse, cycles, workspace)
