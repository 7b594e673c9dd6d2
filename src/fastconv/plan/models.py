"""Cost models of the library's algorithms: modelled seconds from counts of register-tile cycles, packing, and bytes.

The models rank algorithms; they do not predict a clock. Cycles are counted per core and turned into seconds by
`Machine.gflops`, the attainable multiply-add rate of all cores: one cycle of one core is two vector multiply-adds.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, gcd, prod

from fastconv import rewrite
from fastconv.plan.machine import Machine
from fastconv.problem import Axis, ConvProblem

#: Bytes of one element.
ITEM_BYTES = {
    "float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "complex64": 8, "complex128": 16,
    "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8,
}  # fmt: skip

# Cycles, fitted on the rows that benchmarks/models.py times (docs/performance.md).
PACK_CONTIGUOUS = 0.12  # an element copied in vectors
PACK_TRANSPOSED = 0.35  # an element through an in-register transposition
PACK_GATHERED = 2.0  # an element fetched alone
PACK_RUN = 40.0  # starting the copy of one run of lanes
PACK_PIECE = 12.0  # starting one lane's walk along the depth
DOT_START = 60.0  # one tile of dot products: its sums in and out
DOT_TAIL = 20.0  # cutting one operand of such a tile off at the end of its row
FAR_ELEMENT = 5.0  # an element moved alone, no other of its cache line near in time
STORE = 0.3  # an output written, neighbours side by side
STORE_SCATTERED = 2.0
GENERAL_PRODUCT = 0.35  # a product of the general algorithm in a long row of f32
GENERAL_ROW = 12.0  # starting such a row


@dataclass(frozen=True, slots=True)
class Lattice:
    """What the direct algorithm sees: `count` matrix products of rows x columns (csrc/drivers/lattice.h)."""

    rows: int
    columns: int
    count: int


def phases(axis: Axis) -> int:
    """Phases of the output axis: residues with taps of their own."""
    return min(max(axis.out, 1), axis.lhs_dilation // gcd(axis.stride, axis.lhs_dilation))


def lattice_of(problem: ConvProblem) -> Lattice:
    """Sizes of a typical lattice of the problem. Phases that share their taps are columns of one lattice; they do wherever the
    kernel is a multiple of the dilation, and else fall into at most two lattices an axis."""
    rows = problem.batch * prod(ceil(a.out / phases(a)) for a in problem.axes)
    groups = prod(
        1 if phases(a) == 1 or (a.kernel % a.lhs_dilation == 0 and a.lo % a.lhs_dilation in (a.lhs_dilation - 1, 0)) else 2
        for a in problem.axes
    )
    columns = problem.features * prod(phases(a) for a in problem.axes)
    return Lattice(rows, ceil(columns / groups), groups)


def seconds(cycles: float, problem: ConvProblem, machine: Machine) -> float:
    """Cycles of one core, spread over the cores, or the time that the bytes take, whichever is longer; plus the call."""
    lanes = machine.vector_bytes / 4
    clock = machine.gflops * 1e9 / (machine.cores * 4 * lanes)
    moved = operand_bytes(problem)
    return machine.call_seconds + max(cycles / clock / machine.cores, moved / machine.bandwidth)


def operand_bytes(problem: ConvProblem) -> int:
    item = ITEM_BYTES[problem.dtype]
    return item * (prod(problem.lhs_extents) + prod(problem.rhs_extents)) + ITEM_BYTES[problem.out_dtype] * prod(problem.out_extents)


def lanes_of(problem: ConvProblem, machine: Machine) -> int:
    return max(1, machine.vector_bytes // ITEM_BYTES[problem.dtype])


def tile_cycles(in_vectors: int, broadcast: int, lanes: int) -> float:
    """Cycles of one depth step of a rows x columns product: whole vectors one way, register tiles of up to 8 the other way."""
    vectors = ceil(in_vectors / lanes)
    full, rest = divmod(broadcast, 8)
    # A tile is 3 vectors wide: 12 cycles for 8 broadcasts, and no less than 4 (latency) or the loads for a few.
    per_tile = full * 12.5 + (max(4.5, 1.5 * rest + 0.5) if rest else 0)
    return per_tile * vectors / 3


def direct_cycles(problem: ConvProblem, machine: Machine) -> float:
    lattice = lattice_of(problem)
    lanes = lanes_of(problem, machine)
    if not lattice.rows or not lattice.columns:
        return 0.0
    # All lattices together: their depths differ (a phase may have no tap at all), their rows and columns hardly.
    depth = problem.products / (problem.groups * lattice.rows * lattice.columns)
    product = min(tile_cycles(lattice.rows, lattice.columns, lanes), tile_cycles(lattice.columns, lattice.rows, lanes)) * depth
    packing = _lhs_packing(problem, lattice.rows, depth, lanes) + PACK_GATHERED * lattice.columns * depth
    adjoin = 1 in (problem.out.outer[2], *problem.out.spatial) and all(phases(a) == 1 for a in problem.axes)
    storing = (STORE if adjoin else STORE_SCATTERED) * lattice.rows * lattice.columns * lattice.count
    return problem.groups * (product + packing + storing)


def _lhs_packing(problem: ConvProblem, rows: int, depth: float, lanes: int) -> float:
    """Cycles to lay lhs out for all rows and depth: by runs of lanes, or lane by lane along the depth."""
    elements = rows * depth
    if not problem.axes:
        return elements * (PACK_CONTIGUOUS if problem.lhs.outer[2] == 1 else PACK_GATHERED)
    steps = [(abs(step), a) for a, step in zip(problem.axes, problem.lhs.spatial, strict=True)]
    step, inner = min(steps, key=lambda pair: pair[0])
    row_run = ceil(inner.out / phases(inner)) if step == 1 else 1
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
        length, each = inner.kernel, PACK_TRANSPOSED
    else:
        length, each = max(problem.channels, row_run), PACK_GATHERED
    return elements * each + PACK_PIECE * elements / length


def most_phases(problem: ConvProblem) -> int:
    """Problems without lhs dilation that this one splits into, at most."""
    return prod(min(a.lhs_dilation, a.out) for a in problem.axes)


def stencil_scratch(problem: ConvProblem) -> int:
    """Elements of the input that one task of a stencil copies, at most (csrc/drivers/stencil_plan.cc with the widest vectors)."""
    return max(_phase_scratch(part) for part in rewrite.phases(problem))


def _phase_scratch(problem: ConvProblem) -> int:
    axes = _sorted_axes(problem)
    lane = axes[-1]
    item = ITEM_BYTES[problem.dtype]
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
        planes = (min(max(plane.out, 1), 4) - 1) * plane.stride + (plane.kernel - 1) * plane.rhs_dilation + 1
    return problem.channels * prod(a.kernel for a in rest) * planes * rows * pitch


def stencil_cycles(problem: ConvProblem, machine: Machine) -> float:
    return sum(_phase_cycles(part, machine) for part in rewrite.phases(problem) if 0 not in part.rhs_extents)


def _phase_cycles(problem: ConvProblem, machine: Machine) -> float:
    axes = _sorted_axes(problem)
    lanes = lanes_of(problem, machine)
    lane = axes[-1]
    flat = _flat(axes, lanes)
    shared = (lane.stride == 1 and lane.rhs_dilation == 1 and lane.kernel > lanes) if flat else axes[-2].stride == axes[-2].rhs_dilation
    width = lanes if flat else 2 * lanes
    filled = ceil(lane.out / width) * width if lane.out < width else lane.out
    taps = prod(a.kernel for a in axes)
    images = problem.groups * problem.batch * prod(a.out for a in axes[:-1])
    vectors = images * problem.features * filled / lanes
    few_rows = not flat and axes[-2].out < 4
    # A shared tile is bound by its multiply-adds; else every one waits for a load across two cache lines.
    per_vector = problem.channels * taps * (0.6 if shared and not few_rows else 1.2) + 4.0
    kernel_rows = 1 if flat else axes[-2].kernel
    halo = 1 + (kernel_rows - 1) / 32 + sum((a.kernel - 1) / 4 for a in axes[:-2][-1:])
    copied = problem.groups * problem.batch * problem.channels * prod(a.out for a in axes[:-1]) * halo * lane.out * lane.stride
    each = _element(min(abs(s) for s in problem.lhs.spatial) * lane.stride, 0.12)
    weights = problem.groups * problem.features * problem.channels * taps * 1.0
    scatter = _element(min(abs(s) for s in problem.out.spatial), 0.0) * images * problem.features * lane.out
    return vectors * per_vector + copied * each + weights + scatter


def _element(step: int, contiguous: float) -> float:
    """Cycles to move an element alone: each has a cache line of its own when steps are long."""
    return contiguous if step == 1 else 1.2 if step <= 8 else FAR_ELEMENT


def reduce_outputs(problem: ConvProblem) -> int:
    """Sums that one part of a reduction keeps."""
    return problem.features * prod(a.out for a in problem.axes)


def reduce_row(problem: ConvProblem) -> int:
    """Elements of lhs that one row of dot products copies, at most."""
    lane = _sorted_axes(problem)[-1]
    return (lane.out - 1) * lane.stride + (lane.kernel + 32) * lane.rhs_dilation


def reduce_cycles(problem: ConvProblem, machine: Machine) -> float:
    axes = _sorted_axes(problem)
    lanes = lanes_of(problem, machine)
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
    ends = problem.groups * problem.batch * reduce_outputs(problem) * lanes * 2.0
    return images * (pairs / (left * right) * tile + copies + gather) + ends


def general_cycles(problem: ConvProblem, machine: Machine) -> float:
    # Rows run along the best of the output axes; what a row costs to start is shared by its length.
    lengths = [problem.features, problem.batch, problem.groups, *(ceil(a.out / phases(a)) for a in problem.axes)]
    length = max(1, min(2048, max(lengths)))
    slow = {"float32": 1.0, "float64": 2.0, "complex64": 3.0, "complex128": 5.0}.get(problem.dtype, 1.5)
    return problem.products * (GENERAL_PRODUCT * slow + GENERAL_ROW / length) + STORE_SCATTERED * prod(problem.out_extents)


def _sorted_axes(problem: ConvProblem) -> list[Axis]:
    """Axes in order of falling lhs stride, as the library sorts them."""
    pairs = sorted(zip(problem.axes, problem.lhs.spatial, strict=True), key=lambda pair: -abs(pair[1]))
    return [axis for axis, _ in pairs]


def _flat(axes: list[Axis], lanes: int) -> bool:
    return len(axes) == 1 or (axes[-2].kernel == 1 and axes[-1].kernel > lanes)
