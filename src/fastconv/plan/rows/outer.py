"""Weight gradients as sums of outer products over pixels (csrc/drivers/outer.cc)."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from fastconv.plan import costs
from fastconv.plan.machine import Machine
from fastconv.plan.row import refuse_unless_float, timed
from fastconv.problem import ConvProblem

#: Taps, each of which is described in memory; the library itself refuses above twice this.
MOST_TAPS = 1 << 15
#: Scratch of one thread, at most, and elements of all partial sums.
LOCAL_BYTES = 6 << 20
MOST_PARTS = 1 << 22

#: Pixels of a block.
BLOCK = 192

# Cycles, fitted on the rows that benchmarks/models.py times.
PACK_CONTIGUOUS = 0.15  # an element laid out in vectors
PACK_TRANSPOSED = 0.35  # an element through an in-register transposition
PACK_GATHERED = 2.0  # an element fetched alone
COPY = 0.5  # an element of the shifted operand, copied with zeros around it
TILE_START = 40.0  # a tile and a block of pixels ...
SUM = 1.5  # ... and each vector of its sums, in and out
LOOP = 0.25  # a pixel in a tile, beside its products
OUTPUT = 0.3  # an output, through its parts
PHASES = 1.6  # of all cycles, where phases of one position each, of several features, are its taps
ROW_START = 12.0  # a row of pixels in a tile


@dataclass(frozen=True, slots=True)
class Side:
    """One operand: channels and their step, steps of an innermost pixel or position; `reach`: positions that a pixel costs."""

    channels: int
    step: int
    pixel: int
    reach: float


def refuse(problem: ConvProblem, machine: Machine) -> str | None:
    if why := refuse_unless_float(problem):
        return why
    if problem.bias_stride is not None or problem.activation is not None:
        return "for sums alone, without bias and activation"
    if any(a.lhs_dilation > 1 for a in problem.axes) and any(a.rhs_dilation > 1 for a in problem.axes):
        return "both operands are dilated"
    if (taps := prod(a.out for a in problem.axes)) > MOST_TAPS:
        return f"{taps} taps are too many to describe"
    # Short sums for many outputs (a forward pass) start tiles more than they fill them. Plain products stay in reach.
    plain = all(a.kernel == a.stride == a.lhs_dilation == 1 for a in problem.axes)
    reduced = problem.channels * prod(max(1, a.kernel // a.lhs_dilation) for a in problem.axes)
    if taps > (8 if plain else 1) * reduced:
        return f"{taps} taps of {reduced} pixels: no weight gradient"
    return None


def cycles(problem: ConvProblem, machine: Machine) -> float:
    ways = []
    if all(a.lhs_dilation == 1 for a in problem.axes):
        ways.append(_way(problem, machine, exchange=False))
    if all(a.rhs_dilation == 1 for a in problem.axes):
        ways.append(_way(problem, machine, exchange=True))
    outputs = prod(problem.out_extents)
    each = PHASES if costs.phases_of_one(problem) else 1
    return each * (problem.groups * min(ways) + OUTPUT * outputs)


def _way(problem: ConvProblem, machine: Machine, exchange: bool) -> float:
    """Cycles of a group with one of the two operands as the one that taps shift, whichever side the vectors run over."""
    lanes = costs.lanes_of(problem, machine)
    moving, fixed = (problem.rhs, problem.lhs) if exchange else (problem.lhs, problem.rhs)
    channels = (problem.features, problem.batch) if exchange else (problem.batch, problem.features)
    taps = prod(a.out for a in problem.axes)
    pixels = problem.channels * prod(a.size if exchange else a.kernel for a in problem.axes)
    positions = problem.channels * prod(a.kernel if exchange else a.size for a in problem.axes)
    shifted = Side(channels[0], moving.outer[1], min(map(abs, moving.spatial), default=1), positions / max(1, pixels))
    still = Side(channels[1], fixed.outer[1], min(map(abs, fixed.spatial), default=1), 1.0)
    # Products that touch data, spread over the taps: padding is no work.
    met = problem.products / (problem.groups * problem.batch * problem.features * max(1, taps))
    extents = _extents(problem, exchange)
    mixed = _tiles(shifted.channels * taps, 1, still.channels, lanes, machine, *extents, pixels, pixels)
    apart = _tiles(shifted.channels, taps, still.channels, lanes, machine, *extents, met, pixels)
    turned = _tiles(still.channels, taps, shifted.channels, lanes, machine, *extents, met, pixels)
    pack_still = still.channels * _element(still) * pixels
    return min(
        mixed + pack_still + COPY * shifted.channels * positions,
        apart + pack_still,
        turned + shifted.channels * _element(shifted) * pixels * shifted.reach * 1.3,
    )


def _extents(problem: ConvProblem, exchange: bool) -> tuple[int, int]:
    """Pixels of a row and of a block: few make many starts."""
    extents = [problem.channels, *(a.size if exchange else a.kernel for a in problem.axes)]
    if all(a.out == 1 for a in problem.axes):
        extents = [prod(extents)]  # they are joined
    rows, row = [1, 1, *(extent for extent in extents if extent > 1)][-2:]
    return min(row, BLOCK), min(row * rows, BLOCK)


def _element(side: Side) -> float:
    return PACK_CONTIGUOUS if side.step == 1 else PACK_TRANSPOSED if side.pixel <= 2 else PACK_GATHERED


def _tiles(rows: int, taps: int, in_vectors: int, lanes: int, machine: Machine, row: int, block: int, met: float, pixels: float) -> float:
    """Cycles of all tiles, of up to 8 rows and 4 vectors, evenly filled: products of the pixels met, starts for every block."""
    vectors = ceil(in_vectors / lanes)
    shapes = ((1, 8), (2, 8), (3, 8), (4, 6)) if machine.isa in ("avx512", "neon") else ((1, 8), (2, 6), (3, 4))
    best = []
    for wide, high in shapes:
        panels, tiles = ceil(vectors / wide), ceil(rows / high)
        width, height = vectors / panels, rows / tiles
        each = LOOP + max(4.0, width * height / 2, (width + height) / 2)
        starts = ROW_START / row + (TILE_START + SUM * width * height) / block
        best.append(panels * tiles * taps * (each * met + starts * pixels))
    return min(best)


def workspace(problem: ConvProblem, machine: Machine) -> int:
    return machine.cores * LOCAL_BYTES + min(16 * prod(problem.out_extents), MOST_PARTS) * costs.ITEM_BYTES[problem.dtype]


OUTER = timed("outer", 8, 3.0e-6, refuse, cycles, workspace)
