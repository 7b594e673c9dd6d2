"""Groups of few channels, and their weight gradients: lanes are channels of several groups or pixels (csrc/drivers/grouped.cc)."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, gcd, prod

from fastconv import rewrite
from fastconv.plan import costs
from fastconv.plan.machine import Machine
from fastconv.plan.row import exchanging, refuse_unless_float, timed
from fastconv.problem import ConvProblem

#: Most phases, as in csrc/drivers/grouped.cc.
MOST_PHASES = 64
#: Elements of packed weights or of sums; the library itself refuses above four times this.
MOST_WEIGHTS = 1 << 22
#: Elements of a task's scratch; the library itself refuses above eight times this.
MOST_SCRATCH = 1 << 21
#: Elements that a stride, a kernel's reach or a ring of rows may span, as kMaxElements in csrc/drivers/grouped_*.cc.
MOST_REACH = 1 << 24
#: Tasks of one call, as in csrc/drivers/grouped_lanes.cc.
TASKS = 16

# Cycles, fitted on measurements.
PRODUCT = 0.56  # a vector multiply-add in a full tile of pixels
PRODUCT_LANES = 0.65  # and in one of channels: each waits for a load
DOT = 0.9  # a vector multiply-add in a tile of dot products
PRODUCT_SAME = 0.53  # where all lanes take the same element of the input: a broadcast each
SAME_TILE = 40.0  # starting a tile of those
SPREAD = 3.5  # a vector of spread input by permutations, the load from far included
SPREAD_ALONE = 24.0  # and lane by lane
ROW = 20.0  # starting a row: its copy, or its way out
COPY = 0.15  # an element of a row copied
UNIT = 300.0  # starting a task
SEVERAL = 0.7  # of all cycles, with several groups: what one loads is still in the first cache for the next


@dataclass(frozen=True, slots=True)
class _Axis:
    """As in csrc/drivers/grouped.h: position p and tap k meet input p * stride + k * dilation - lo."""

    taps: int
    positions: int
    stride: int
    dilation: int
    step: int  # through the input, in elements

    @property
    def reach(self) -> int:
        return (self.taps - 1) * self.dilation // self.stride


@dataclass(frozen=True, slots=True)
class _Sweep:
    """A problem without dilated input as a forward convolution, whichever of its three roles is the sum."""

    gradient: bool
    groups: int
    channels: int
    features: int
    images: int
    far: tuple[_Axis, ...]
    y: _Axis
    x: _Axis
    pixels: bool  # lanes are pixels
    spreads: bool  # lanes are channels that permutations can spread
    apart: int  # elements between neighbours in the output (or dy)


def _sweep(p: ConvProblem, lanes: int) -> _Sweep:
    gradient = prod(a.out for a in p.axes) * p.batch < prod(a.kernel for a in p.axes) * p.channels
    channels, images = (p.batch, p.channels) if gradient else (p.channels, p.batch)
    in_image, in_channel = (p.lhs.outer[2], p.lhs.outer[1]) if gradient else (p.lhs.outer[1], p.lhs.outer[2])
    axes = [
        _Axis(a.out, a.kernel, a.rhs_dilation, a.stride, s) if gradient else _Axis(a.kernel, a.out, a.stride, a.rhs_dilation, s)
        for a, s in zip(p.axes, p.lhs.spatial, strict=True)
    ]
    axes.sort(key=lambda a: -abs(a.step))
    if not axes:
        axes, images = [_Axis(1, images, 1, 1, in_image)], 1
    one = _Axis(1, 1, 1, 1, 0)
    *far, y, x = axes if len(axes) > 1 else (one, axes[0])
    reached = ceil((lanes - 1) / p.features) + 1
    spreads = (p.lhs.outer[0] == channels or p.groups == 1) and min(reached, p.groups) * channels <= 4 * lanes
    out = p.rhs if gradient else p.out
    pixels = abs(x.step) == 1 or in_channel != 1
    apart = min(map(abs, out.spatial), default=1) if pixels else out.outer[1 if gradient else 2]
    return _Sweep(gradient, p.groups, channels, p.features, images, tuple(far), y, x, pixels, spreads, abs(apart))


def refuse(problem: ConvProblem, machine: Machine) -> str | None:
    if why := refuse_unless_float(problem):
        return why
    if problem.groups == 1 and any(a.lhs_dilation > 1 for a in problem.axes):
        return "one group of dilated input: its phases would be run one by one for nothing"
    if costs.most_phases(problem) > MOST_PHASES:
        return f"{costs.most_phases(problem)} phases of the dilated input are too many to run one by one"
    for part in rewrite.phases(problem):
        if 0 in part.rhs_extents:
            continue
        s = _sweep(part, costs.lanes_of(problem, machine))
        if (reach := _reach(s)) > MOST_REACH:
            return f"steps through the input that span {reach} elements are too long"
        if (kept := _kept(s, 16)) > MOST_WEIGHTS:
            return f"{kept} weights or sums are too many to keep apart"
        if (elements := scratch(s)) > MOST_SCRATCH:
            return f"a working set of {elements} elements is too large"
    return None


def _taps(s: _Sweep) -> int:
    return prod(a.taps for a in (*s.far, s.y, s.x))


def _reach(s: _Sweep) -> int:
    """What the library's own limits on the kernel's extent are about."""
    if s.pixels:
        return max(s.x.stride, s.y.stride, s.x.taps * s.x.dilation + s.y.taps * s.y.dilation)
    return s.y.taps * (s.x.taps + 512 * s.x.stride) * 16


def _kept(s: _Sweep, lanes: int) -> int:
    """Elements of packed weights, or of a gradient's sums in all tasks."""
    if s.pixels:
        return s.groups * s.features * s.channels * _taps(s) * (lanes * max(1, TASKS // s.groups) if s.gradient else 1)
    vectors = ceil(s.groups * s.features / 4)
    return (max(vectors, TASKS) if s.gradient else vectors) * lanes * s.channels * _taps(s)


def scratch(s: _Sweep) -> int:
    """Elements that one task copies, at most."""
    if not s.pixels:
        row = s.y.taps * (min(s.x.positions, 256) * s.x.stride + s.x.taps) * 16
        return max(row, 4096 * 16, s.y.taps**2 * s.x.taps * s.channels)
    planes = s.channels * prod(a.taps for a in s.far) * min(s.x.taps, s.x.stride) * min(s.y.taps, s.y.stride) + s.features
    least = (min(s.y.positions, 4) + s.y.reach + 1) * (min(s.x.positions, 2 * s.x.reach + 16) + s.x.reach)
    return max(planes * least, 10240)


def cycles(problem: ConvProblem, machine: Machine) -> float:
    lanes = costs.lanes_of(problem, machine)
    sweeps = (_sweep(part, lanes) for part in rewrite.phases(problem) if 0 not in part.rhs_extents)
    several = SEVERAL if problem.groups > 1 and problem.channels * problem.features > 1 else 1.0
    return sum(several * _pixel_cycles(s, lanes) if s.pixels else _lane_cycles(s, lanes, several) for s in sweeps)


def _lane_cycles(s: _Sweep, lanes: int, several: float) -> float:
    vectors = ceil(s.groups * s.features / lanes)
    far = s.images * prod(a.positions * a.taps for a in s.far)
    products = far * s.channels * s.y.positions * s.y.taps * s.x.positions * s.x.taps
    halo = 1 + s.x.reach / max(s.x.positions, 1) if s.x.positions < 32 else 1 + s.x.reach / 32
    rows = far * s.y.positions * max(1, min(s.y.taps, s.y.stride // gcd(s.y.stride, s.y.dilation)))
    elements = rows * s.channels * s.x.positions * (1 if s.x.taps == 1 else s.x.stride) * halo
    if not s.gradient and (s.groups == 1 or s.features % lanes == 0):
        tile = min(s.x.positions, 28)
        sums = products * PRODUCT_SAME * (max(tile, 8) + 1) / tile + far * s.y.positions * ceil(s.x.positions / 28) * SAME_TILE
        laid_out = elements * COPY
        several = 1.0  # channels of one vector are no neighbour's
    else:
        tile = min(s.x.positions, 14)
        sums = products * PRODUCT_LANES * max(tile, 8) / tile * (tile + 1.5) / tile
        laid_out = elements * (SPREAD if s.spreads else SPREAD_ALONE)
    stored = far * s.y.positions * (s.x.positions * (1 if s.apart == 1 else lanes) + ROW)
    weights = s.channels * _taps(s) * lanes
    return several * vectors * (sums + laid_out + rows * ROW + stored + weights)


def _pixel_cycles(s: _Sweep, lanes: int) -> float:
    far, far_taps = s.images * prod(a.positions for a in s.far), prod(a.taps for a in s.far)
    line = (s.x.positions + s.x.reach) * s.y.positions
    rows = s.y.positions + s.y.reach
    depth = s.channels * _taps(s)
    vectors = ceil(line / lanes) if s.images == 1 else line / lanes * rows / s.y.positions
    # A tile of few features is bound by its loads: each vector of input lies across two cache lines.
    each = max(DOT if s.gradient else PRODUCT, 0.5 + 0.8 / min(s.features, 8))
    products = far * vectors * s.features * depth * each
    planes = s.channels * far_taps * min(s.x.taps, s.x.stride) * min(s.y.taps, s.y.stride)
    copied = far * planes * rows * (ROW + (s.x.positions + s.x.reach) * costs.element_cycles(abs(s.x.step) * s.x.stride, COPY))
    moved = far * s.features * s.y.positions * (ROW + s.x.positions * costs.element_cycles(s.apart, COPY))
    weights = s.features * depth * (30.0 if s.gradient else 1.5)
    return s.groups * (products + copied + moved + weights + far * UNIT)


def workspace(problem: ConvProblem, machine: Machine) -> int:
    lanes = costs.lanes_of(problem, machine)
    sweeps = [_sweep(part, lanes) for part in rewrite.phases(problem) if 0 not in part.rhs_extents]
    elements = max((_kept(s, lanes) + machine.cores * scratch(s) for s in sweeps), default=0)
    return elements * costs.ITEM_BYTES[problem.dtype]


GROUPED = exchanging(timed("grouped", 7, 2.0e-6, refuse, cycles, workspace))
