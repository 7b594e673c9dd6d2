"""The direct algorithm: packed matrix products over lattices (csrc/drivers/direct.cc)."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod

from fastconv.plan import costs
from fastconv.plan.machine import Machine
from fastconv.plan.row import refuse_unless_float, timed
from fastconv.problem import ConvProblem

#: Scratch of one thread for the packed panels and sums of the direct algorithm, at most.
LOCAL_BYTES = 2 << 20
#: Bytes of packed weights that all tasks share, at most.
SHARED_BYTES = 8 << 20
#: Features x phases; the library itself refuses above twice this.
MOST_COLUMNS = 1 << 17

# Cycles, fitted on the rows that benchmarks/models.py times.
PACK_CONTIGUOUS = 0.3  # an element copied in vectors, and read from the second cache
PACK_TRANSPOSED = 0.35  # an element through an in-register transposition
PACK_GATHERED = 2.0  # an element fetched alone
PACK_PHASES = 1.0  # a weight of phases of one position each, taps side by side
PACK_RUN = 40.0  # starting the copy of one run of lanes
PACK_PIECE = 12.0  # starting one lane's walk along the channels ...
PACK_TAPS = 80.0  # ... or along the taps, some of which fall on padding
TILE_START = 40.0  # describing a tile's rows, calling its kernel, writing its outputs
GROUP = 20000.0  # starting one group
PHASES = 1.7  # of all cycles, where a dilated input splits the outputs: every stretch of rows is shorter ...
PHASE_RUN = 16  # ... unless so many outputs of the phases of the one feature lie side by side
FEW_REGISTERS = 1.3  # of all cycles, with 16 vector registers: tiles are smaller, and every operand is read more often


@dataclass(frozen=True, slots=True)
class Lattice:
    """What the direct algorithm sees: `count` matrix products of rows x columns (csrc/drivers/lattice.h)."""

    rows: int
    columns: int
    count: int


def lattice_of(problem: ConvProblem) -> Lattice:
    """Sizes of a typical lattice of the problem. Phases that share their taps are columns of one lattice; they do wherever the
    kernel is a multiple of the dilation, and else fall into at most two lattices an axis."""
    rows = problem.batch * prod(ceil(a.out / costs.phases(a)) for a in problem.axes)
    groups = prod(
        1 if costs.phases(a) == 1 or (a.kernel % a.lhs_dilation == 0 and a.lo % a.lhs_dilation in (a.lhs_dilation - 1, 0)) else 2
        for a in problem.axes
    )
    columns = problem.features * prod(costs.phases(a) for a in problem.axes)
    return Lattice(rows, ceil(columns / groups), groups)


def refuse(problem: ConvProblem, machine: Machine) -> str | None:
    if why := refuse_unless_float(problem):
        return why
    columns = problem.features * costs.most_phases(problem)
    return f"{columns} columns (features x phases) are too many to describe" if columns > MOST_COLUMNS else None


def cycles(problem: ConvProblem, machine: Machine) -> float:
    lattice = lattice_of(problem)
    lanes = costs.lanes_of(problem, machine)
    if not lattice.rows or not lattice.columns:
        return 0.0
    # All lattices together: their depths differ (a phase may have no tap at all), their rows and columns hardly.
    depth = problem.products / (problem.groups * lattice.rows * lattice.columns)
    product = min(tile_cycles(lattice.rows, lattice.columns, lanes), tile_cycles(lattice.columns, lattice.rows, lanes)) * depth
    # Panels hold the taps that fall on padding too.
    whole = problem.channels * prod(ceil(a.kernel / costs.phases(a)) for a in problem.axes)
    single = costs.phases_of_one(problem)
    weight = PACK_PHASES if single else PACK_GATHERED
    packing = _lhs_packing(problem, lattice.rows, whole, lanes) + weight * lattice.columns * whole
    adjoin = 1 in (problem.out.outer[2], *problem.out.spatial) and all(costs.phases(a) == 1 for a in problem.axes)
    if problem.lhs.outer[1] == 1 and problem.batch > 1:  # vectors run over the images
        adjoin = problem.out.outer[1] == 1
    store = costs.STORE if adjoin else costs.STORE_SCATTERED
    if problem.groups > 1 and any(costs.phases(a) > 1 for a in problem.axes):
        store *= 2  # few features: every stretch of outputs is short
    storing = store * lattice.rows * lattice.columns * lattice.count
    tiles = TILE_START * min(_tiles(lattice.rows, lattice.columns, lanes), _tiles(lattice.columns, lattice.rows, lanes))
    group = product + packing + storing + tiles + (GROUP if problem.groups > 1 else 0)
    if any(costs.phases(a) > 1 for a in problem.axes) and not single and not _phases_adjoin(problem):
        group *= PHASES
    return problem.groups * group * (FEW_REGISTERS if machine.isa == "avx2" else 1)


def _phases_adjoin(problem: ConvProblem) -> bool:
    along = [costs.phases(a) for a, step in zip(problem.axes, problem.out.spatial, strict=True) if step == 1]
    return problem.features == 1 and max(along, default=1) >= PHASE_RUN


def _tiles(in_vectors: int, broadcast: int, lanes: int) -> int:
    return ceil(in_vectors / lanes / 3) * ceil(broadcast / 8)


def tile_cycles(in_vectors: int, broadcast: int, lanes: int) -> float:
    """Cycles of one depth step of a rows x columns product: whole vectors one way, register tiles of up to 8 the other way."""
    vectors = ceil(in_vectors / lanes)
    full, rest = divmod(broadcast, 8)
    # A tile is 3 vectors wide: 12 cycles for 8 broadcasts, and no less than 4 (latency) or the loads for a few.
    per_tile = full * 12.5 + (max(4.5, 1.5 * rest + 0.5) if rest else 0)
    return per_tile * vectors / 3


def _lhs_packing(problem: ConvProblem, rows: int, depth: float, lanes: int) -> float:
    """Cycles to lay lhs out for all rows and depth: by runs of lanes, or lane by lane along the depth."""
    elements = rows * depth
    if not problem.axes:
        return elements * (PACK_CONTIGUOUS if problem.lhs.outer[2] == 1 else PACK_GATHERED)
    steps = [(abs(step), a) for a, step in zip(problem.axes, problem.lhs.spatial, strict=True)]
    step, inner = min(steps, key=lambda pair: pair[0])
    row_run = ceil(inner.out / costs.phases(inner)) if step == 1 else 1
    spaced = step == 1 and inner.stride <= 2 * inner.lhs_dilation
    if problem.lhs.outer[1] == 1 and problem.batch > 1:  # images side by side: the channels of a weight gradient
        row_run, spaced = problem.batch, True
    if spaced and row_run >= 16:
        # A copy for each run of a panel and tap; it serves all channels.
        runs = elements / problem.channels / min(row_run, 2 * lanes)
        return elements * PACK_CONTIGUOUS * (inner.stride if step == 1 else 1) + PACK_RUN * runs
    if problem.lhs.outer[2] == 1 and problem.channels > 1:
        length, each = problem.channels, PACK_TRANSPOSED
    elif step == 1 and inner.rhs_dilation == 1 and inner.kernel > 1:
        return elements * PACK_TRANSPOSED + (PACK_TAPS if inner.kernel < 16 else PACK_PIECE) * elements / inner.kernel
    else:
        length, each = max(problem.channels, row_run), PACK_GATHERED
    return elements * each + PACK_PIECE * elements / length


def workspace(problem: ConvProblem, machine: Machine) -> int:
    packed = min(prod(problem.rhs_extents) * costs.ITEM_BYTES[problem.dtype] * 2, SHARED_BYTES)
    return packed + machine.cores * LOCAL_BYTES


DIRECT = timed("direct", 1, 2.0e-6, refuse, cycles, workspace)
