"""Dot products of narrow types: bfloat16 and int8 on the CPU's own units (csrc/drivers/dots.cc)."""

from __future__ import annotations

from math import ceil, prod

from fastconv import rewrite
from fastconv.plan import costs
from fastconv.plan.machine import Machine
from fastconv.plan.row import Algorithm, exchanging
from fastconv.problem import Axis, ConvProblem

#: Phases of a dilated input; the library itself runs more on copies.
MOST_PHASES = 64
#: Taps and channels of one feature; the library itself runs more on copies.
MOST_ROWS = 1 << 20
#: Times the operands that the padded copy of lhs may take; the library itself runs larger ones on copies as reals.
MOST_PADDING = 4

COLUMNS = 16  # of a block of features
STEP = 64  # bytes of the sum that one product takes

# Cycles, fitted on the rows that benchmarks/models.py times.
TILE = {"tiles": 1.2, "vector": 17.0}  # one row, block and step
TILE_LEAST = 12.0  # one segment, block and step, however few rows
SEGMENT = 150.0  # starting one segment and block, and its way out
STORE = 0.3  # an output, features side by side ...
STORE_TURNED = 0.9  # ... or positions ...
STORE_ALONE = 3.0  # ... and apart, as those of a phase are
COPY = 0.25  # an element of lhs, neighbours side by side or transposed
COPY_ALONE = 1.5
LINE = 100.0  # starting a line of lhs, or a sub-row of one
TOGETHER = 16  # images that share one, where they lie side by side
PACK = 1.0  # an element of rhs ...
PACK_IMAGE = 4.0  # ... that is an image (of a weight gradient): its rows are far apart
START = 4.0e-6  # seconds to lay the work out

_NARROW = ("int8", "uint8", "int16", "uint16", "int32", "uint32")


def refuse(problem: ConvProblem, machine: Machine) -> str | None:
    if machine.dot_unit == "none":
        return f"{machine.isa} has no dot products of narrow types here"
    if problem.dtype == "bfloat16":
        if problem.out_dtype not in ("bfloat16", "float32", "float16"):
            return f"sums are float32, not {problem.out_dtype}"
    elif problem.dtype not in ("int8", "uint8"):
        return f"for bfloat16, int8 and uint8, not {problem.dtype}"
    elif problem.out_dtype not in _NARROW or problem.activation is not None:
        return f"sums are integers of 32 bits, not {problem.out_dtype}"
    elif problem.dtype == "uint8" and machine.dot_unit == "vector":
        return "the vector unit multiplies unsigned by signed bytes only"
    if 0 in (*problem.out_extents, *problem.rhs_extents, *problem.lhs_extents):
        return "an extent is 0: there is nothing to sum"
    if costs.most_phases(problem) > MOST_PHASES:
        return f"{costs.most_phases(problem)} phases of the dilated input are too many to run one by one"
    if problem.channels * prod(a.kernel for a in problem.axes) > MOST_ROWS:
        return "the sums are too long to lay out"
    if _padded(problem) > MOST_PADDING * (prod(problem.lhs_extents) + prod(problem.out_extents)) + (1 << 17):
        return "the padded input is too large to copy"
    return None


def _padded(problem: ConvProblem) -> int:
    """Elements of the copy of lhs."""
    return problem.groups * problem.batch * problem.channels * prod(map(_reach, problem.axes))


def _reach(a: Axis) -> int:
    return ((a.out - 1) * a.stride + (a.kernel - 1) * a.rhs_dilation) // a.lhs_dilation + 1 + a.rhs_dilation


def _lines(problem: ConvProblem) -> int:
    """Lines of lhs that are copied, one for each position of all axes but the innermost, or sub-rows of one where its taps are dilated."""
    axes = costs.sorted_axes(problem)
    sub_rows = axes[-1].rhs_dilation if axes and axes[-1].kernel > 1 else 1
    lots = ceil(problem.batch / TOGETHER) if problem.lhs.outer[1] == 1 else problem.batch
    return problem.groups * lots * prod(map(_reach, axes[:-1])) * sub_rows


def seconds(problem: ConvProblem, machine: Machine) -> float:
    parts = [part for part in rewrite.phases(problem) if 0 not in part.rhs_extents]
    cycles = sum(_products(part, machine) for part in parts)
    steps = [abs(s) for s in (problem.lhs.outer[1] if problem.batch > 1 else 0, problem.lhs.outer[2], *problem.lhs.spatial)]
    cycles += _padded(problem) * (COPY if 1 in steps else COPY_ALONE)
    cycles += _lines(problem) * LINE
    blocks = ceil(problem.features / COLUMNS)
    taps = prod(a.kernel for a in problem.axes)
    pack = PACK_IMAGE if taps > prod(a.out for a in problem.axes) else PACK
    cycles += problem.groups * blocks * COLUMNS * problem.channels * taps * pack
    return machine.call_seconds + START + costs.core_seconds(cycles, machine)


def _products(problem: ConvProblem, machine: Machine) -> float:
    step = STEP // costs.ITEM_BYTES[problem.dtype]
    taps = prod(a.kernel for a in problem.axes)
    steps = [ceil(problem.channels / step) * taps]  # the library takes the axis that wastes fewest
    for a in problem.axes:
        others = taps // a.kernel
        steps += [ceil(a.kernel * problem.channels / step) * others, ceil(a.kernel / step) * others * problem.channels]
    most = 16 if machine.dot_unit == "tiles" else 12
    counts = [problem.batch, *(a.out for a in problem.axes)]
    rows = max(ceil(count / ceil(count / most)) for count in counts if count)
    outputs = problem.groups * problem.batch * prod(a.out for a in problem.axes)
    segments = outputs / rows * ceil(problem.features / COLUMNS)
    store = STORE if problem.out.outer[2] == 1 else STORE_TURNED if 1 in problem.out.spatial else STORE_ALONE
    return segments * (min(steps) * max(TILE_LEAST, TILE[machine.dot_unit] * rows) + SEGMENT) + store * outputs * problem.features


def workspace(problem: ConvProblem, machine: Machine) -> int:
    item = costs.ITEM_BYTES[problem.dtype]
    rows = problem.channels * prod(a.kernel for a in problem.axes)
    packed = problem.groups * ceil(problem.features / COLUMNS) * COLUMNS * rows * 2
    return item * (_padded(problem) + packed) + machine.cores * COLUMNS * rows * item


DOTS = exchanging(Algorithm("dots", 9, refuse, seconds, workspace))
