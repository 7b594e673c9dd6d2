"""Overlap-save: how a problem is cut into Fourier transforms of bounded memory, and what that costs.

A circular convolution of n points is right wherever nothing wraps round. So an axis is computed in blocks of outputs, each from a
segment of the input as long as the block and the kernel together (Oppenheim and Schafer 1975); a kernel much longer than the output
is cut instead, its parts summed before the inverse transform. Where one block holds everything, the zeros around the data may
wrap, and the transform need only be as long as what is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from math import ceil, log2, prod

from fastconv import rewrite
from fastconv.plan.costs import ITEM_BYTES
from fastconv.plan.rates import rates
from fastconv.problem import Axis, ConvProblem

#: What a problem may hold beyond twice its operands and result; the other half of 32 MB is for what is not counted here.
_SPARE_BYTES = 16 << 20
#: Transforms in flight at a time: more would leave the caches and save nothing.
_CHUNK_BYTES = 16 << 20
#: Points of the longest transform that stays in a core's cache.
_NEAR_POINTS = 1 << 16
#: Outputs of a block, or taps of a part, that are worth one.
_LEAST_CUT = 16
#: Most sub-problems (phases times residues) that a problem is taken apart into.
MOST_PARTS = 64


@dataclass(frozen=True, slots=True)
class Cut:
    """One axis cut into transforms of `length` points.

    `blocks` of `step` outputs each, at stride 1 (strided outputs are picked from them), and `parts` of `taps` taps each. The
    segment of block b and part t holds `reads` inputs from input `first + b * step + t * taps` on; the block's outputs begin at
    `start` in the circular convolution of the segment with the reversed part.
    """

    length: int
    blocks: int
    step: int
    parts: int
    taps: int
    reads: int
    first: int
    start: int


@dataclass(frozen=True, slots=True)
class Layout:
    """How a problem without dilation is computed: the cuts of its axes, and how much is in flight at a time.

    groups, features, rows: of the kernels and of the (image, block) pairs transformed together. seconds: modelled; bytes: held at most.
    """

    cuts: tuple[Cut, ...]
    groups: int
    features: int
    rows: int
    seconds: float
    bytes: int


@dataclass(frozen=True, slots=True)
class Rates:
    """Seconds of a Fourier library, of one core where transforms share the work, per real element of single precision."""

    cores: int  # in use when the rates were fitted
    point: float  # a transform's element, for each doubling of its length
    long: float  # more than that for each doubling beyond the cache
    far: float  # more than that of an element in a transform along another axis than the last
    product: float  # a complex product, added to a sum
    copy: float  # an element copied
    row: float  # placing one segment, or one block of results
    call: float  # starting one chunk of transforms, products and inverse transforms


@cache
def rates_of(library: str) -> Rates:
    """The fitted rates of "scipy" (with NumPy) or "ducc" (XLA's transforms on CPUs)."""
    fit = rates(library)
    return Rates(cores=fit.cores, **fit.rates)


def pieces(problem: ConvProblem) -> Iterator[ConvProblem]:
    """Sub-problems without dilation that together write every output once."""
    for phase in rewrite.phases(problem):
        yield from rewrite.residues(phase)


def count_pieces(problem: ConvProblem) -> int:
    """How many there are, at most."""
    return prod(min(a.lhs_dilation * a.rhs_dilation, max(a.out, 1)) for a in problem.axes)


def layout(problem: ConvProblem, rates: Rates | None = None) -> Layout | None:
    """The cheapest layout of a problem that `rewrite.touching` gave, by default on SciPy; None if every one holds too much memory."""
    axes = tuple((a.size, a.kernel, a.out, a.stride, a.lo) for a in problem.axes)
    return _layout(axes, _work(problem), rates or rates_of("scipy"))


def price(problem: ConvProblem, layout: Layout, rates: Rates) -> float:
    """Modelled seconds of a layout at other rates; linear in each of them."""
    priced = _priced(layout.cuts, _work(problem), rates)
    assert priced is not None, "a layout within its memory"
    return priced.seconds


def _work(problem: ConvProblem) -> _Work:
    return _Work(problem.groups, problem.batch, problem.channels, problem.features, problem.dtype, allowed(problem))


@dataclass(frozen=True, slots=True)
class _Work:
    """What a layout's price depends on besides the axes."""

    groups: int
    batch: int
    channels: int
    features: int
    dtype: str
    most: int  # bytes

    @property
    def real(self) -> bool:
        return self.dtype.startswith("float")

    @property
    def item(self) -> int:
        """Bytes of an element of a transform."""
        return ITEM_BYTES[self.dtype] * (2 if self.real else 1)


def allowed(problem: ConvProblem) -> int:
    """Bytes that the transforms of a problem may hold."""
    elements = (prod(problem.lhs_extents), prod(problem.rhs_extents), prod(problem.out_extents))
    return 2 * sum(elements) * ITEM_BYTES[problem.dtype] + _SPARE_BYTES


@lru_cache(maxsize=256)
def _layout(axes: tuple[tuple[int, int, int, int, int], ...], work: _Work, rates: Rates) -> Layout | None:
    candidates = [_cuts(Axis(*axis)) for axis in axes]

    def priced(cuts: tuple[Cut, ...]) -> Layout | None:
        return _priced(cuts, work, rates)

    if len(candidates) == 1:
        found = [layout for cut in candidates[0] if (layout := priced((cut,))) is not None]
        return min(found, key=lambda layout: layout.seconds, default=None)
    # Axis by axis, each the best while the others stay, from the fewest transforms on and from the least memory on.
    best: Layout | None = None
    for begin in (tuple(cuts[0] for cuts in candidates), tuple(min(cuts, key=lambda cut: cut.length) for cuts in candidates)):
        chosen = begin
        for at in (*range(len(axes)), *range(len(axes))):
            options = [layout for cut in candidates[at] if (layout := priced((*chosen[:at], cut, *chosen[at + 1 :]))) is not None]
            if options:
                found = min(options, key=lambda layout: layout.seconds)
                chosen = found.cuts
                best = found if best is None or found.seconds < best.seconds else best
    return best


def _cuts(a: Axis) -> list[Cut]:
    """Ways to cut an axis, the one of a single transform first."""
    reach = (a.out - 1) * a.stride + 1
    begin = a.kernel - 1 - a.lo
    cuts = [Cut(fast_length(max(begin + reach, a.size + a.lo)), 1, reach, 1, a.kernel, a.size, 0, begin)]
    for count in _counts():
        step, taps = ceil(ceil(reach / count) / a.stride) * a.stride, ceil(a.kernel / count)
        blocks, parts = count <= reach and 2 * step >= a.kernel, count <= a.kernel and 2 * taps >= reach
        if max(step, taps) < _LEAST_CUT or not (blocks or parts):
            break
        if blocks:
            length = fast_length(step + a.kernel - 1)
            step = (length - a.kernel + 1) // a.stride * a.stride
            cuts.append(Cut(length, ceil(reach / step), step, 1, a.kernel, length, -a.lo, a.kernel - 1))
        if parts:
            length = fast_length(reach + taps - 1)
            taps = min(length - reach + 1, a.kernel)
            cuts.append(Cut(length, 1, reach, ceil(a.kernel / taps), taps, length, -a.lo, taps - 1))
    return cuts


def _counts() -> Iterator[int]:
    count = 2
    while True:
        yield count
        yield count * 3 // 2 if count > 2 else 3
        count *= 2


def _priced(cuts: tuple[Cut, ...], work: _Work, rates: Rates) -> Layout | None:
    """The cuts with the chunks that memory allows, and their price."""
    points = prod(cut.length for cut in cuts[:-1]) * (cuts[-1].length // 2 + 1 if work.real else cuts[-1].length)
    depth = work.channels * prod(cut.parts for cut in cuts)
    images = work.batch * prod(cut.blocks for cut in cuts)
    kernel = 2 * points * depth * work.item  # of one feature, with the copy that the next axis makes
    features = max(1, min(work.features, work.most // 2 // kernel))
    groups = max(1, min(work.groups, _CHUNK_BYTES // (kernel * features))) if features == work.features else 1
    kernels = groups * features * kernel
    each = groups * 2 * points * work.item * (depth + features if depth * features > 1 else 1)  # one product goes in place
    rows = max(1, min(images, min(work.most - kernels, _CHUNK_BYTES) // each))
    total = kernels + rows * each
    if total > work.most:
        return None
    passes, width = ceil(work.features / features), work.item / 8 * (1 if work.real else 2)
    transforms = width * (
        passes * _transforms(images * depth, cuts, [cut.reads for cut in cuts], rates)
        + _transforms(work.features * depth, cuts, [cut.taps for cut in cuts], rates)
        + _transforms(images * work.features, cuts, [cut.step for cut in cuts], rates)
    )
    sums = images * work.features * depth * points * rates.product * work.item / 8
    read, written = depth * passes * prod(cut.reads for cut in cuts), work.features * prod(cut.step for cut in cuts)
    copies = images * (read + written) * rates.copy * width
    placed = images * (prod(cut.parts for cut in cuts) + 1) * rates.row
    starts = ceil(work.groups / groups) * passes * (placed + (1 + ceil(images / rows)) * rates.call)
    return Layout(cuts, groups, features, rows, work.groups * (transforms + sums + copies) + starts, total)


def _transforms(count: int, cuts: tuple[Cut, ...], given: list[int], rates: Rates) -> float:
    """Seconds of transforms of which only `given` points an axis are looked at: the last axis first, real; then the others."""
    lines, points, total = count * prod(given[:-1]), 1, 0.0
    for at in reversed(range(len(cuts))):
        length, last = cuts[at].length, at == len(cuts) - 1
        each = rates.point * log2(max(length, 2)) + rates.long * max(0.0, log2(length / _NEAR_POINTS)) + (0 if last else rates.far)
        total += lines * points * length * (1 if last else 2) * each / min(rates.cores, lines * points)
        points *= length // 2 + 1 if last else length
        lines = count * prod(given[: at - 1]) if at else 0
    return total


@cache
def fast_length(least: int) -> int:
    """The smallest number from `least` on without prime factors above 5."""
    best, fives = 1 << max(0, least - 1).bit_length(), 1
    while fives < best:
        odd = fives
        while odd < best:
            best = min(best, odd << (-(-least // odd) - 1).bit_length())
            odd *= 3
        fives *= 5
    return best
