"""conv, conv_transpose and both gradients on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastconv import _core
from fastconv._numpy.arrays import Array, as_array, check_out
from fastconv._numpy.calls import Build, find, make, run
from fastconv._numpy.defaults import NC, NO, ONE, ZERO, given, refuse_geometry, typed
from fastconv.normalise import Call, ConvDims, Epilogue, Spec, family
from fastconv.normalise.arguments import shape
from fastconv.plan.planner import forced_name

Axes = int | Sequence[int]
Padding = str | int | Sequence[int] | Sequence[tuple[int, int]]


def conv(
    x: Any,
    w: Any,
    dims: ConvDims | None = None,
    /,
    *,
    stride: Axes = ONE,
    padding: Padding = ZERO,
    dilation: Axes = ONE,
    groups: int = ONE,
    bias: Any = None,
    activation: str | None = None,
    layout: str = NC,
    flip: bool = NO,
    precision: str | None = None,
    out: Array | None = None,
) -> Array:
    """Convolution over any number of axes, as torch counts (cross-correlation unless flip=True).

        y[n, o, p] = act(bias[o] + sum over c, k of x[n, c, p * stride + k * dilation - lo] * w[o, c, k])

    where c runs over the channels of o's group and x is zero outside its extent.

    x: (N, C, *spatial), or (N, *spatial, C) with layout="N...C". w: (O, C / groups, *k) in both layouts. bias: (O,).
    Returns (N, O, *output), or (N, *output, O), of x's dtype: the floats, bfloat16 of ml_dtypes, complex numbers and integers
    (which wrap). Any strided array is read where it lies.
    dims: a `ConvDims` in place of the geometry options (stride to flip); with transposed dims this is the transposed convolution.
    padding: an int, one int per axis, one (lo, hi) pair per axis, "valid", "same" or "same_lower" (ceil(size / stride) outputs,
    the odd zero high or low). Negative padding crops.
    activation: None, "relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid" or "leaky_relu" (slope 0.01).
    precision: None or "default" allow an approximate algorithm within its stated bound, "highest" only direct ones.
    out: an array to write to, of the result's shape and dtype; it is returned.

    Accuracy: |y - exact| <= eps * (terms + 1) * conv(|x|, |w|) and the rounding to y's dtype; half types are summed in
    float32. An approximate algorithm keeps to what docs/accuracy.md says of it: four times that bound with each window's largest |x| and
    |w| for 3x3 kernels, eps * log2(n) * ||x|| * ||w|| more for huge kernels by transforms. The result does not depend on the number
    of threads. Weights that meet padding contribute nothing, even inf.

    Raises: ValueError for shapes, ranks, extents and values that do not fit, TypeError for types and dtypes; both name
    the argument, the rule and the value, and nothing has been written then.

    >>> conv(np.array([[[1.0, 2.0, 3.0, 4.0]]]), np.array([[[1.0, 10.0]]]), padding=((1, 0),))
    array([[[10., 21., 32., 43.]]])

    Reference: Dumoulin and Visin 2016, A guide to convolution arithmetic for deep learning.
    """
    if x.__class__ is not np.ndarray:
        x = as_array("x", x)
    if w.__class__ is not np.ndarray:
        w = as_array("w", w)
    if stride is ONE and padding is ZERO and dilation is ONE and groups is ONE and layout is NC and flip is NO:
        options = None
    else:
        options = typed((stride, padding, dilation, groups, layout, flip))
    if dims is not None and (options is not None or dims.__class__ is not ConvDims):
        _check_dims(dims, stride=stride, padding=padding, dilation=dilation, groups=groups, layout=layout, flip=flip)
    if bias is not None:
        bias = as_array("bias", bias)
    if out is not None:
        check_out(out, x=x, w=w, bias=bias)
    key = ("conv", x.shape, x.strides, x.dtype, w.shape, w.strides, w.dtype, dims, options, _rest(bias, activation, precision, out))
    entry = find(key)
    if entry is None:
        geometry = given(stride=stride, padding=padding, dilation=dilation, groups=groups, layout=layout, flip=flip)
        used = ConvDims(x.shape, w.shape, **geometry) if dims is None else dims
        entry = make(key, _build("conv", used, activation, precision), x, w, bias, out)
    return run(entry, x, w, bias, out)


def conv_transpose(
    x: Any,
    w: Any,
    /,
    *,
    stride: Axes = ONE,
    padding: Axes | Sequence[tuple[int, int]] = ZERO,
    output_padding: Axes = ZERO,
    dilation: Axes = ONE,
    groups: int = ONE,
    bias: Any = None,
    activation: str | None = None,
    layout: str = NC,
    precision: str | None = None,
    out: Array | None = None,
) -> Array:
    """Transposed convolution, as torch counts: the adjoint of `conv` from y's shape to x's.

        y[n, o, p] = act(bias[o] + sum over c, i, k with p + lo = i * stride + k * dilation of x[n, c, i] * w[c, o, k])

    where c runs over the channels of o's group.

    x: (N, C, *spatial), or (N, *spatial, C) with layout="N...C". w: (C, O / groups, *k) in both layouts. bias: (O,).
    Returns (N, O, *output) of x's dtype, output = (size - 1) * stride - lo - hi + dilation * (k - 1) + 1 + output_padding.
    padding: numbers as in `conv`; they trim the output. output_padding < max(stride, dilation) lengthens it at the high end.
    Dtypes, activation, precision, out and accuracy are those of `conv`.

    Raises: ValueError, TypeError as `conv`.

    >>> conv_transpose(np.array([[[1.0, 2.0]]]), np.array([[[1.0, 10.0, 100.0]]]), stride=2)
    array([[[  1.,  10., 102.,  20., 200.]]])

    Reference: Shi et al. 2016, Is the deconvolution layer the same as a convolutional layer?
    """
    x, w = as_array("x", x), as_array("w", w)
    if bias is not None:
        bias = as_array("bias", bias)
    if out is not None:
        check_out(out, x=x, w=w, bias=bias)
    options = typed((stride, padding, output_padding, dilation, groups, layout))
    key = ("conv_transpose", x.shape, x.strides, x.dtype, w.shape, w.strides, w.dtype, options, _rest(bias, activation, precision, out))
    entry = find(key)
    if entry is None:
        geometry = given(stride=stride, padding=padding, output_padding=output_padding, dilation=dilation, groups=groups, layout=layout)
        used = ConvDims(x.shape, w.shape, transposed=True, **geometry)
        entry = make(key, _build("conv", used, activation, precision), x, w, bias, out)
    return run(entry, x, w, bias, out)


def conv_input_grad(
    dy: Any,
    w: Any,
    x_shape_or_dims: Sequence[int] | ConvDims,
    /,
    *,
    stride: Axes = ONE,
    padding: Padding = ZERO,
    dilation: Axes = ONE,
    groups: int = ONE,
    flip: bool = NO,
    transposed: bool = NO,
    output_padding: Axes = ZERO,
    layout: str = NC,
    precision: str | None = None,
    out: Array | None = None,
) -> Array:
    """Gradient of a convolution (or, transposed=True, of a transposed one) with respect to its input: the adjoint in x.

        dx[n, c, i] = sum over o, p, k with i = p * stride + k * dilation - lo of dy[n, o, p] * conj(w[o, c, k])

    dy: of the forward result's shape. w: the forward weights. x_shape_or_dims: the forward input's shape with the geometry
    options of the forward call, or its `ConvDims`. Returns dx of the forward input's shape, with
    sum(dy * conj(conv(x, w))) = sum(dx * conj(x)). Dtypes, precision, out and accuracy are those of `conv`.

    Raises: ValueError, TypeError as `conv`.

    >>> conv_input_grad(np.array([[[1.0, 2.0]]]), np.array([[[1.0, 10.0]]]), (1, 1, 4), stride=2)
    array([[[ 1., 10.,  2., 20.]]])

    Reference: Dumoulin and Visin 2016, A guide to convolution arithmetic for deep learning.
    """
    dy, w = as_array("dy", dy), as_array("w", w)
    if out is not None:
        check_out(out, dy=dy, w=w)
    if w.dtype.kind == "c":
        w = np.conjugate(w)
    geometry = given(
        stride=stride, padding=padding, dilation=dilation, groups=groups, flip=flip, transposed=transposed,
        output_padding=output_padding, layout=layout,
    )  # fmt: skip
    target = _target(x_shape_or_dims, geometry)
    options = typed(tuple(geometry.items()))
    key = ("input_grad", dy.shape, dy.strides, dy.dtype, w.shape, w.strides, w.dtype, target, options, _rest(None, None, precision, out))
    entry = find(key)
    if entry is None:
        used = target if isinstance(target, ConvDims) else ConvDims(shape("x_shape", x_shape_or_dims), w.shape, **geometry)
        entry = make(key, _build("input_grad", used, None, precision), dy, w, None, out)
    return run(entry, dy, w, None, out)


def conv_weight_grad(
    x: Any,
    dy: Any,
    w_shape_or_dims: Sequence[int] | ConvDims,
    /,
    *,
    stride: Axes = ONE,
    padding: Padding = ZERO,
    dilation: Axes = ONE,
    groups: int = ONE,
    flip: bool = NO,
    transposed: bool = NO,
    output_padding: Axes = ZERO,
    layout: str = NC,
    precision: str | None = None,
    out: Array | None = None,
) -> Array:
    """Gradient of a convolution (or, transposed=True, of a transposed one) with respect to its weights: the adjoint in w.

        dw[o, c, k] = sum over n, p of conj(x[n, c, p * stride + k * dilation - lo]) * dy[n, o, p]

    x: the forward input. dy: of the forward result's shape. w_shape_or_dims: the forward weights' shape with the geometry
    options of the forward call, or its `ConvDims`. Returns dw of the weights' shape, with
    sum(dy * conj(conv(x, w))) = sum(dw * conj(w)). Dtypes, precision, out and accuracy are those of `conv`; the terms
    summed are the batch times the positions of the output.

    Raises: ValueError, TypeError as `conv`.

    >>> conv_weight_grad(np.array([[[1.0, 2.0, 3.0, 4.0]]]), np.array([[[1.0, 10.0]]]), (1, 1, 2), stride=2)
    array([[[31., 42.]]])

    Reference: Dumoulin and Visin 2016, A guide to convolution arithmetic for deep learning.
    """
    x, dy = as_array("x", x), as_array("dy", dy)
    if out is not None:
        check_out(out, x=x, dy=dy)
    conjugate = x.dtype.kind == "c"
    if conjugate:  # conj(x) * dy = conj(x * conj(dy)): the smaller array is copied
        x, dy = (np.conjugate(x), dy) if x.size <= dy.size else (x, np.conjugate(dy))
    conjugate_result = conjugate and x.size > dy.size
    geometry = given(
        stride=stride, padding=padding, dilation=dilation, groups=groups, flip=flip, transposed=transposed,
        output_padding=output_padding, layout=layout,
    )  # fmt: skip
    target = _target(w_shape_or_dims, geometry)
    options = typed(tuple(geometry.items()))
    key = ("weight_grad", x.shape, x.strides, x.dtype, dy.shape, dy.strides, dy.dtype, target, options, _rest(None, None, precision, out))
    entry = find(key)
    if entry is None:
        used = target if isinstance(target, ConvDims) else ConvDims(x.shape, shape("w_shape", w_shape_or_dims), **geometry)
        entry = make(key, _build("weight_grad", used, None, precision), x, dy, None, out)
    result = run(entry, x, dy, None, out)
    return np.conjugate(result, out=result) if conjugate_result else result


def _rest(bias: Array | None, activation: Any, precision: Any, out: Array | None) -> tuple[Any, ...]:
    """The part of a key that is the same for all functions: epilogue, output array, and what steers the choice of algorithm."""
    if bias is None and activation is None and precision is None and out is None:
        return _core.level, forced_name()
    arrays = tuple([None if array is None else (array.shape, array.strides, array.dtype) for array in (bias, out)])
    return (*arrays, typed(activation), typed(precision), _core.level, forced_name())


def _build(op: str, dims: ConvDims, activation: Any, precision: Any) -> Build:
    """How the problem follows from the arrays."""

    def build(first: Spec, second: Spec, bias: Spec | None, out: Spec | None) -> Call:
        return family(op, dims, first, second, Epilogue(bias, activation, precision), out)

    return build


def _check_dims(dims: Any, **geometry: Any) -> None:
    if not isinstance(dims, ConvDims):
        raise TypeError(f"dims must be a ConvDims, got {dims!r}")
    refuse_geometry("dims", **geometry)


def _target(shape_or_dims: Any, geometry: dict[str, Any]) -> Any:
    """A key for the third argument of the gradients: dims, which take no geometry beside them, or a shape."""
    if isinstance(shape_or_dims, ConvDims):
        refuse_geometry("dims", **geometry)
        return shape_or_dims
    return typed(shape_or_dims)
