"""The planner's `fft` on NumPy arrays: overlap-save by scipy.fft, cut as `plan.overlap` says; imported when first needed.

What it adds to an output's error is at most `check.spectral_bound`. A transform spreads an inf or NaN over its whole block; such
blocks are summed by the library instead, so that they reach what their taps touch and nothing else.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice, product
from math import prod
from typing import Any

import numpy as np
import scipy.fft

from fastconv import _core, rewrite
from fastconv._numpy.arrays import Array, address, element_range
from fastconv.plan import choose, overlap
from fastconv.plan.overlap import Cut, Layout
from fastconv.problem import Axis, ConvProblem, Operand
from fastconv.reference import view

_fft: Any = scipy.fft  # its functions are declared to return what they dispatch on

#: Products of channels and features that are summed one by one; more become matrix products, one a frequency.
_FEW_PRODUCTS = 16


class Prepared:
    """A problem taken apart and laid out, ready to be computed on any arrays of its shapes."""

    def __init__(self, problem: ConvProblem) -> None:
        self.problem = problem
        self.parts: list[tuple[ConvProblem, Layout]] = []
        self.nothings: list[ConvProblem] = []  # where some outputs meet no data: all outputs, as sums of nothing
        for piece in overlap.pieces(problem):
            part = rewrite.touching(piece)
            if part is None or part.out_extents != piece.out_extents:
                self.nothings.append(replace(piece, axes=tuple(replace(a, size=0, kernel=0) for a in piece.axes)))
            if part is not None:
                layout = overlap.layout(part)
                assert layout is not None, "the planner chose transforms that memory has no room for"
                self.parts.append((part, layout))

    def run(self, lhs: Array, rhs: Array, bias: Array | None, out: Array) -> None:
        """Computes the problem into `out`; arrays as `reference.view` takes them."""
        problem = self.problem
        if bias is not None and problem.bias_stride is not None:  # the same elements, shaped like the features
            where = Operand((problem.features * problem.bias_stride, problem.bias_stride, 0), ())
            bias = view(bias, where, (problem.groups, problem.features, 1))[..., 0]
        for nothing in self.nothings:
            _direct(nothing, lhs, rhs, bias, out)
        with np.errstate(all="ignore"):  # numbers that are not finite go their way
            for part, layout in self.parts:
                _Run(part, layout, lhs, rhs, bias, out).run()


def _direct(problem: ConvProblem, lhs: Array, rhs: Array, bias: Array | None, out: Array) -> None:
    """The problem by the library, exactly."""
    words = choose(replace(problem, precision="highest")).words
    arrays = (lhs, rhs, bias, out)
    ranges = [limit for array in arrays for limit in ((0, 0) if array is None else element_range(array))]
    memory = (ctypes.c_int64 * (len(words) + 8))(*words, *ranges)
    at = ctypes.addressof(memory)
    addresses = [None if array is None else address(array) for array in arrays]
    if _core.conv(ctypes.c_void_p(at), len(words), *addresses, ctypes.c_void_p(at + 8 * len(words))):
        raise _core.error()


class _Run:
    """A problem without dilation, all of whose outputs meet data, on its arrays."""

    def __init__(self, problem: ConvProblem, layout: Layout, lhs: Array, rhs: Array, bias: Array | None, out: Array) -> None:
        self.problem, self.layout, self.cuts = problem, layout, layout.cuts
        self.arrays = lhs, rhs, bias, out
        self.x, self.w, self.y = (
            view(array, operand, extents)
            for array, operand, extents in (
                (lhs, problem.lhs, problem.lhs_extents),
                (rhs, problem.rhs, problem.rhs_extents),
                (out, problem.out, problem.out_extents),
            )
        )
        self.real = self.x.dtype.kind == "f"
        self.workers = _core.get_threads()

    def run(self) -> None:
        """Chunk by chunk of kernels, and of images' blocks under each."""
        p, layout = self.problem, self.layout
        for group, feature in product(range(0, p.groups, layout.groups), range(0, p.features, layout.features)):
            groups, features = slice(group, group + layout.groups), slice(feature, feature + layout.features)
            kernels = self._kernels(groups, features)
            contract = _contraction(kernels)
            items = product(range(p.batch), *(range(cut.blocks) for cut in self.cuts))
            while rows := list(islice(items, layout.rows)):
                spectra = self._forward(self._segments(groups, rows))
                self._finish(groups, features, rows, self._backward(contract(spectra)))

    def _kernels(self, groups: slice, features: slice) -> Array:
        """Spectra of the reversed parts: (groups, features, parts x channels, *frequencies)."""
        w = self.w[groups, features]
        parts = []
        for part in product(*(range(cut.parts) for cut in self.cuts)):
            first = [at * cut.taps for at, cut in zip(part, self.cuts, strict=True)]
            taps = w[(..., *(slice(k, k + cut.taps) for k, cut in zip(first, self.cuts, strict=True)))]
            reverse = taps[(..., *(slice(None, None, -1) for _ in self.cuts))]
            short = [cut.taps - n for cut, n in zip(self.cuts, taps.shape[3:], strict=True)]  # the last part: zeros behind its taps
            parts.append(np.pad(reverse, ((0, 0),) * 3 + tuple((n, 0) for n in short)) if any(short) else reverse)
        return self._forward(parts[0] if len(parts) == 1 else np.concatenate(parts, axis=2))

    def _segments(self, groups: slice, rows: Sequence[tuple[int, ...]]) -> Array:
        """The inputs of some (image, *block) pairs, zero where there are none: (groups, rows, parts x channels, *reads)."""
        x, channels = self.x[groups], self.problem.channels
        if all(cut.blocks == cut.parts == 1 and cut.reads == size for cut, size in zip(self.cuts, x.shape[3:], strict=True)):
            return x[:, rows[0][0] : rows[-1][0] + 1]  # whole images, as they are
        parts = list(product(*(range(cut.parts) for cut in self.cuts)))
        reads = [cut.reads for cut in self.cuts]
        segments = np.zeros((x.shape[0], len(rows), len(parts) * channels, *reads), x.dtype)
        for row, (image, *block) in enumerate(rows):
            for number, part in enumerate(parts):
                source, target = zip(*map(_window, self.cuts, block, part, x.shape[3:]), strict=True)
                depth = slice(number * channels, (number + 1) * channels)
                segments[(slice(None), row, depth, *target)] = x[(slice(None), image, slice(None), *source)]
        return segments

    def _forward(self, a: Array) -> Array:
        """Transforms over the spatial axes, each padded with zeros to its length."""
        lengths = [cut.length for cut in self.cuts]
        transform = _fft.rfft if self.real else _fft.fft
        a = transform(a, lengths[-1], axis=-1, workers=self.workers)
        for axis in range(2, len(lengths) + 1):
            a = _fft.fft(a, lengths[-axis], axis=-axis, workers=self.workers, overwrite_x=True)
        return a

    def _backward(self, a: Array) -> Array:
        """The outputs of the blocks; every axis is cropped as soon as it is back."""
        for axis in range(len(self.cuts), 1, -1):
            a = _crop(_fft.ifft(a, axis=-axis, workers=self.workers, overwrite_x=True), axis, self.cuts[-axis])
        if self.real:
            return _crop(_fft.irfft(a, self.cuts[-1].length, axis=-1, workers=self.workers, overwrite_x=True), 1, self.cuts[-1])
        return _crop(_fft.ifft(a, axis=-1, workers=self.workers, overwrite_x=True), 1, self.cuts[-1])

    def _finish(self, groups: slice, features: slice, rows: Sequence[tuple[int, ...]], sums: Array) -> None:
        """Adds the bias, applies the activation and stores (groups, rows, features, *step) sums; blocks not finite are done anew."""
        p, bias = self.problem, self.arrays[2]
        finite: Any = [True] * len(rows) if np.isfinite(sums).all() else np.isfinite(sums).all(axis=(0, *range(2, sums.ndim)))
        if bias is not None:
            sums += np.expand_dims(bias[groups, features], (1, *range(3, sums.ndim)))
        if p.activation is not None:
            sums = _ACTIVATIONS[p.activation](sums)
        for row, (image, *block) in enumerate(rows):
            source, target = zip(*map(_picked, self.cuts, block, p.axes), strict=True)
            if finite[row]:
                self.y[(groups, image, features, *target)] = sums[(slice(None), row, slice(None), *source)]
            else:
                self._by_the_library(groups, image, features, target)

    def _by_the_library(self, groups: slice, image: int, features: slice, target: Sequence[slice]) -> None:
        """One block of one image, direct."""
        p, (lhs, rhs, bias, out) = self.problem, self.arrays
        first_group, first_feature = groups.start, features.start
        positions = [s.start for s in target]
        axes = tuple(
            replace(a, out=len(range(*s.indices(a.out))), lo=a.lo - s.start * a.stride) for a, s in zip(p.axes, target, strict=True)
        )
        block = replace(
            p,
            axes=axes,
            groups=len(range(*groups.indices(p.groups))),
            batch=1,
            features=len(range(*features.indices(p.features))),
            lhs=_moved(p.lhs, (first_group, image, 0), [0] * len(axes)),
            rhs=_moved(p.rhs, (first_group, first_feature, 0), [0] * len(axes)),
            out=_moved(p.out, (first_group, image, first_feature), positions),
        )
        # Features are only cut where groups go one by one, so the biases of the block lie together.
        _direct(block, lhs, rhs, None if bias is None else bias[first_group:, first_feature:], out)


def _window(cut: Cut, block: int, part: int, size: int) -> tuple[slice, slice]:
    """The inputs of a segment, and where they lie in it."""
    first = cut.first + block * cut.step + part * cut.taps
    begin, end = max(first, 0), max(first, 0, min(size, first + cut.reads))
    return slice(begin, end), slice(begin - first, end - first)


def _picked(cut: Cut, block: int, axis: Axis) -> tuple[slice, slice]:
    """Which of a block's outputs are picked, and where they go."""
    first = block * cut.step // axis.stride
    count = min(cut.step // axis.stride + (cut.step % axis.stride > 0), axis.out - first)
    return slice(0, (count - 1) * axis.stride + 1, axis.stride), slice(first, first + count)


def _crop(a: Array, axis: int, cut: Cut) -> Array:
    return a[(..., slice(cut.start, cut.start + cut.step), *(slice(None) for _ in range(axis - 1)))]


def _moved(operand: Operand, outer: Sequence[int], spatial: Sequence[int]) -> Operand:
    shift = sum(i * stride for i, stride in zip((*outer, *spatial), (*operand.outer, *operand.spatial), strict=True))
    return replace(operand, offset=operand.offset + shift)


def _contraction(kernels: Array) -> Callable[[Array], Array]:
    """The sum over depth of spectra (groups, rows, depth, *frequencies) times kernels: (groups, rows, features, *frequencies)."""
    groups, features, depth, *frequencies = kernels.shape
    if features * depth <= _FEW_PRODUCTS:
        return lambda spectra: _sum_of_products(spectra, kernels)
    points = prod(frequencies)
    matrices = np.ascontiguousarray(kernels.reshape(groups, features, depth, points).transpose(0, 3, 2, 1))

    def multiply(spectra: Array) -> Array:
        rows = spectra.shape[1]
        left = np.ascontiguousarray(spectra.reshape(groups, rows, depth, points).transpose(0, 3, 1, 2))
        return np.ascontiguousarray((left @ matrices).transpose(0, 2, 3, 1)).reshape(groups, rows, features, *frequencies)

    return multiply


def _sum_of_products(spectra: Array, kernels: Array) -> Array:
    groups, features, depth, *frequencies = kernels.shape
    if depth == features == 1:
        return np.multiply(spectra, kernels, out=spectra)
    sums = np.empty((groups, spectra.shape[1], features, *frequencies), spectra.dtype)
    for feature in range(features):
        total = np.multiply(spectra[:, :, 0], kernels[:, None, feature, 0], out=sums[:, :, feature])
        for channel in range(1, depth):
            total += spectra[:, :, channel] * kernels[:, None, feature, channel]
    return sums


def _gelu(z: Array) -> Array:
    from scipy.special import ndtr

    return z * ndtr(z)


def _sigmoid(z: Array) -> Array:
    from scipy.special import expit

    return expit(z)


_ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "relu": lambda z: np.maximum(z, 0),
    "gelu": _gelu,
    "gelu_tanh": lambda z: 0.5 * z * (1 + np.tanh(0.7978845608028654 * (z + 0.044715 * z**3))),
    "silu": lambda z: z * _sigmoid(z),
    "tanh": np.tanh,
    "sigmoid": _sigmoid,
    "leaky_relu": lambda z: np.where(z < 0, 0.01 * z, z).astype(z.dtype),
}
