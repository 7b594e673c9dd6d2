"""The written-out definition of a problem, one precision above its operands: slow, plain, and what every result is held against."""

from __future__ import annotations

from itertools import product
from math import gcd, prod
from typing import Any, NamedTuple

import numpy as np

from fastconv.problem import Axis, ConvProblem, Operand

Array = np.ndarray[Any, Any]

_PI = "3.14159265358979323846264338327950288"  # more digits than float64's


class Reference(NamedTuple):
    """What the definition gives, in the extents of (g, n, o, *out).

    value: with bias and activation. total: before the activation. magnitude: the sum of |lhs| * |rhs|, plus |bias|.
    peak: the same sum with the largest |lhs| and the largest |rhs| of the output's window in place of each tap's (see `with_peak`).
    """

    value: Array
    total: Array
    magnitude: Array
    peak: Array | None = None


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The NumPy dtype of a name; bfloat16 is ml_dtypes'."""
    if name == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)
    return np.dtype(name)


def view(array: Array, operand: Operand, extents: tuple[int, ...]) -> Array:
    """The elements of an operand inside the buffer that `array` views, shaped by `extents`; element 0 is the array's first."""
    strides = tuple(stride * array.itemsize for stride in (*operand.outer, *operand.spatial))
    start, writeable = array.__array_interface__["data"][0] + operand.offset * array.itemsize, array.flags.writeable
    if prod(extents) == 0:
        return np.empty(extents, array.dtype)
    low, high = _span(array.shape, array.strides)
    first, last = (operand.offset * array.itemsize + end for end in _span(extents, strides))
    if array.size == 0 or first < low or last > high:
        raise ValueError(f"array must cover the operand's elements, got bytes {low} to {high} for {first} to {last}")
    holder = _Memory(
        array, {"shape": extents, "strides": strides, "typestr": _plain(array.dtype).str, "data": (start, not writeable), "version": 3}
    )
    return np.asarray(holder).view(array.dtype)


def _span(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int]:
    """Byte offsets of the first and the last element from the one at coordinate zero."""
    spans = [(extent - 1) * stride for extent, stride in zip(shape, strides, strict=True)]
    return sum(span for span in spans if span < 0), sum(span for span in spans if span > 0)


class _Memory:
    """What NumPy reads a foreign array from; it keeps the memory's owner alive."""

    def __init__(self, owner: Array, interface: dict[str, Any]) -> None:
        self.owner = owner
        self.__array_interface__ = interface


def _plain(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """A dtype of the same size that the array interface can name (bfloat16 has no type string of its own)."""
    return np.dtype(np.uint16) if dtype.kind == "V" else dtype


def wide_dtype(problem: ConvProblem) -> np.dtype[Any]:
    """One precision above the operands and the output; 64-bit integers, whose wrapping is that of every narrower type."""
    names = (problem.dtype, problem.out_dtype)
    if problem.out_dtype.startswith(("int", "uint")):
        return np.dtype(np.int64)
    if "complex128" in names:
        return np.dtype(np.clongdouble)
    if "complex64" in names:
        return np.dtype(np.complex128)
    return np.dtype(np.longdouble) if "float64" in names else np.dtype(np.float64)


def reference(problem: ConvProblem, lhs: Array, rhs: Array, bias: Array | None = None) -> Reference:
    """out[g,n,o,p] = act(bias[g,o] + sum over c, k of lhs[g,n,c,i] * rhs[g,o,c,k]), i = (p*stride + k*rhs_dilation - lo) / lhs_dilation.

    lhs, rhs, bias: arrays whose first element is the buffer's element 0. Terms with i fractional or outside the input are
    never formed, so an inf or NaN in the kernel that falls on padding leaves no trace.
    """
    wide = wide_dtype(problem)
    with np.errstate(all="ignore"):
        x = view(lhs, problem.lhs, problem.lhs_extents).astype(wide)
        w = view(rhs, problem.rhs, problem.rhs_extents).astype(wide)
        total = _sums(problem, x, w)
        magnitude = _sums(problem, np.abs(x), np.abs(w))
        if problem.bias_stride is not None:
            if bias is None:
                raise ValueError("bias must be given for a problem with a bias, got None")
            where = Operand((problem.features * problem.bias_stride, problem.bias_stride, 0), ())
            b = view(bias, where, (problem.groups, problem.features, 1)).astype(wide)
            b = b.reshape(problem.groups, 1, problem.features, *(1 for _ in problem.axes))
            total, magnitude = total + b, magnitude + np.abs(b)
        return Reference(activated(problem.activation, total), total, magnitude)


def with_peak(ref: Reference, problem: ConvProblem, lhs: Array, rhs: Array, bias: Array | None = None) -> Reference:
    """The reference with its `peak`: per channel taps * (largest |lhs| that the output's taps meet) * (largest |rhs| of the kernel),
    summed over channels, plus |bias|. What an algorithm that adds and subtracts neighbours before it multiplies is held to."""
    wide = wide_dtype(problem)
    with np.errstate(all="ignore"):
        x = np.abs(view(lhs, problem.lhs, problem.lhs_extents).astype(wide))
        w = np.abs(view(rhs, problem.rhs, problem.rhs_extents).astype(wide))
        window = np.zeros((*problem.lhs_extents[:3], *problem.out_extents[3:]), x.dtype)
        for taps in product(*(range(a.kernel) for a in problem.axes)):
            pairs = [_outputs_of_tap(a, k) for a, k in zip(problem.axes, taps, strict=True)]
            where = (slice(None),) * 3 + tuple(outputs for outputs, _ in pairs)
            window[where] = np.maximum(window[where], x[(slice(None),) * 3 + tuple(inputs for _, inputs in pairs)])
        taps = prod(a.kernel for a in problem.axes)
        largest = w.reshape(*w.shape[:3], taps).max(axis=3, initial=0) * taps
        flat = window.reshape(*window.shape[:3], prod(window.shape[3:]))
        peak = (largest[:, None] @ flat).reshape(problem.out_extents)
        if bias is not None and problem.bias_stride is not None:
            where = Operand((problem.features * problem.bias_stride, problem.bias_stride, 0), ())
            b = np.abs(view(bias, where, (problem.groups, problem.features, 1)).astype(wide))
            peak = peak + b.reshape(problem.groups, 1, problem.features, *(1 for _ in problem.axes))
        return ref._replace(peak=peak)


def _sums(problem: ConvProblem, x: Array, w: Array) -> Array:
    """Sums over channels and taps, tap by tap, or output by output where those are fewer (a kernel as large as an image)."""
    out = np.zeros(problem.out_extents, x.dtype)
    by_tap = prod(a.kernel for a in problem.axes) <= prod(a.out for a in problem.axes)
    if by_tap:
        for taps in product(*(range(a.kernel) for a in problem.axes)):
            pairs = [_outputs_of_tap(a, k) for a, k in zip(problem.axes, taps, strict=True)]
            where = (slice(None),) * 3 + tuple(outputs for outputs, _ in pairs)
            data = x[(slice(None),) * 3 + tuple(inputs for _, inputs in pairs)]
            kernel = w[(slice(None),) * 3 + taps]
            flat = data.reshape(*data.shape[:3], prod(data.shape[3:]))
            out[where] += (kernel[:, None] @ flat).reshape(*data.shape[:2], problem.features, *data.shape[3:])
        return out
    for position in product(*(range(a.out) for a in problem.axes)):
        pairs = [_taps_of_output(a, p) for a, p in zip(problem.axes, position, strict=True)]
        kernel = w[(slice(None),) * 3 + tuple(taps for taps, _ in pairs)]
        data = x[(slice(None),) * 3 + tuple(inputs for _, inputs in pairs)]
        rows = data.reshape(*data.shape[:2], prod(data.shape[2:]))
        columns = kernel.reshape(*kernel.shape[:2], prod(kernel.shape[2:]))
        out[(slice(None),) * 3 + position] = rows @ columns.transpose(0, 2, 1)
    return out


def _outputs_of_tap(a: Axis, tap: int) -> tuple[slice, slice]:
    """The outputs that one tap contributes to, and the inputs it reads there."""
    return _meetings(a.out, a.stride, tap * a.rhs_dilation - a.lo, a.size, a.lhs_dilation)


def _taps_of_output(a: Axis, position: int) -> tuple[slice, slice]:
    """The taps that contribute to one output, and the inputs they read there."""
    return _meetings(a.kernel, a.rhs_dilation, position * a.stride - a.lo, a.size, a.lhs_dilation)


def _meetings(extent: int, step: int, shift: int, size: int, dilation: int) -> tuple[slice, slice]:
    """The q in [0, extent) for which i = (q * step + shift) / dilation is a whole number in [0, size): slices of q and of i."""
    period = dilation // gcd(dilation, step)
    start = next((q for q in range(min(period, extent)) if (q * step + shift) % dilation == 0), None)
    if start is None:
        return slice(0, 0), slice(0, 0)
    q = range(start, extent, period)
    stride = period * step // dilation
    first = (start * step + shift) // dilation
    skip = max(0, -(first // stride))
    count = max(0, min(len(q), -((first - size) // stride)) - skip)
    if count == 0:
        return slice(0, 0), slice(0, 0)
    lo_q, lo_i = start + skip * period, first + skip * stride
    return slice(lo_q, lo_q + (count - 1) * period + 1, period), slice(lo_i, lo_i + (count - 1) * stride + 1, stride)


def activated(name: str | None, z: Array) -> Array:
    """The activation in the precision of z (gelu's erf in float64)."""
    if name is None:
        return z
    if name == "relu":
        return np.where(z < 0, z.dtype.type(0), z)
    if name == "leaky_relu":
        return np.where(z < 0, z * z.dtype.type("0.01"), z)
    if name == "tanh":
        return np.tanh(z)
    if name == "sigmoid":
        return 1 / (1 + np.exp(-z))
    if name == "silu":
        return z / (1 + np.exp(-z))
    if name == "gelu_tanh":
        inner = np.sqrt(2 / z.dtype.type(_PI)) * (z + z.dtype.type("0.044715") * z**3)
        return z * (1 + np.tanh(inner)) / 2
    if name == "gelu":
        from scipy.special import erfc

        return z * erfc((-z / np.sqrt(z.dtype.type(2))).astype(np.float64)).astype(z.dtype) / 2
    raise ValueError(f"activation must be known to the reference, got {name!r}")
