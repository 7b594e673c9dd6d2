"""conv_general_dilated and convn on NumPy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastconv import _core, normalise
from fastconv._numpy.arrays import Array, as_array
from fastconv._numpy.calls import find, make, run
from fastconv._numpy.defaults import frozen, typed
from fastconv.normalise import Call, Epilogue, Spec
from fastconv.normalise.lax import precision_name, preferred
from fastconv.plan.planner import forced_name
from fastconv.problem import DTYPE_CODES


def conv_general_dilated(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """jax.lax.conv_general_dilated on NumPy arrays: every convolution there is, by one formula.

        out[n, o, p] = sum over c, k of lhs[n, c, i] * rhs[o, c, k],  i = (p * window_stride + k * rhs_dilation - lo) / lhs_dilation

    where terms with i fractional or outside lhs are left out; c runs over the features of o's group.

    lhs: (N, C, *spatial), rhs: (O, C / feature_group_count, *k), result (N / batch_group_count, O, *output), or in the order
    that dimension_numbers gives: three strings such as ("NHWC", "HWIO", "NHWC"), or three permutations (batch, feature,
    *spatial; rhs: out feature, in feature, *spatial). padding: one (lo, hi) pair per axis, "SAME", "SAME_LOWER" or "VALID".
    Output extents are lax's: max(0, (dilated size + lo + hi - dilated k) // stride + 1). At most one of the group counts is above 1.
    precision: as in lax; only "highest" (or "float32") rules out approximate algorithms. preferred_element_type: the dtype
    of the sums and of the result, else that of the operands. Dtypes and accuracy are those of `conv`.

    Raises: ValueError, TypeError naming the argument, the rule and the value.

    >>> conv_general_dilated(np.array([[[1.0, 2.0, 3.0]]]), np.array([[[1.0, 10.0]]]), (1,), [(1, 1)], lhs_dilation=(2,))
    array([[[10.,  1., 20.,  2., 30.,  3.]]])

    Reference: XLA's operation semantics, Conv.
    """
    lhs, rhs = as_array("lhs", lhs), as_array("rhs", rhs)
    # A planned call outlives this one, and may be planned anew from its options: so they must not be the caller's own lists.
    window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers = map(
        frozen, (window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers)
    )
    options = typed(
        (window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, feature_group_count, batch_group_count)
    )  # fmt: skip
    chosen = precision_name(precision)
    element = None if preferred_element_type is None else dtype_name("preferred_element_type", preferred_element_type)
    if element in ("float16", "bfloat16") and lhs.dtype == rhs.dtype and lhs.dtype.kind in "iu":
        from fastconv.reference import numpy_dtype  # a rare case; an import less at start

        preferred(lhs.dtype.name, element)  # integers summed as halves are rounded to halves first, as in XLA
        lhs, rhs = lhs.astype(numpy_dtype(element)), rhs.astype(numpy_dtype(element))
    arrays = (lhs.shape, lhs.strides, lhs.dtype, rhs.shape, rhs.strides, rhs.dtype)
    key = ("conv_general_dilated", *arrays, options, chosen, element, _core.level, forced_name())
    entry = find(key)
    if entry is None:

        def build(first: Spec, second: Spec, bias: Spec | None, out: Spec | None) -> Call:
            return normalise.conv_general_dilated(
                first,
                second,
                window_strides,
                padding,
                lhs_dilation,
                rhs_dilation,
                dimension_numbers,
                feature_group_count,
                batch_group_count,
                element,
                Epilogue(precision=chosen),
            )

        entry = make(key, build, lhs, rhs)
    return run(entry, lhs, rhs)


def convn(x: Any, k: Any, mode: str = "full") -> Array:
    """True convolution of two arrays of equally many dimensions, one channel.

        y[p] = sum over q of x[p - q] * k[q]        (mode "full": p from 0 to the sum of both extents less 2)

    x, k: arrays of any and equal number of dimensions (0: the product). mode: "full"; "same", the middle of "full" with the
    shape of x (SciPy's centring); "valid", the part that needs no zeros around x, where k must not be larger than x on any
    axis. The dtype is numpy.result_type(x, k): integers stay integers and wrap; it must be one of `conv`'s (two bool arrays
    are refused). Accuracy is that of `conv`.

    Raises: ValueError for ranks, empty arrays, a k too large or an unknown mode; TypeError for dtypes.

    >>> convn(np.array([1, 2, 3]), np.array([1, 10]))
    array([ 1, 12, 23, 30])

    Reference: Amini, Horn and Edelman 2016, Accelerated Convolutions for Efficient Multi-Scale Time to Contact Computation in Julia.
    """
    if x.__class__ is not np.ndarray:
        x = as_array("x", x)
    if k.__class__ is not np.ndarray:
        k = as_array("k", k)
    if x.dtype is not k.dtype:
        x, k = _promoted(x, k)
    key = ("convn", x.shape, x.strides, x.dtype, k.shape, k.strides, k.dtype, typed(mode), _core.level, forced_name())
    entry = find(key)
    if entry is None:

        def build(first: Spec, second: Spec, bias: Spec | None, out: Spec | None) -> Call:
            return normalise.convn(first, second, mode)

        entry = make(key, build, x, k)
    return run(entry, x, k)


def _promoted(x: Array, k: Array) -> tuple[Array, Array]:
    """Both in their common dtype; an array that has it already is not copied."""
    try:
        common = np.result_type(x.dtype, k.dtype)
    except TypeError as error:
        raise TypeError(f"k must have a dtype that promotes with x's {x.dtype}, got {k.dtype}") from error
    return tuple(array if array.dtype == common else array.astype(common) for array in (x, k))  # type: ignore[return-value]


def dtype_name(argument: str, value: Any) -> str:
    """The name of a dtype given as a name, a type or a dtype."""
    if isinstance(value, str) and value in DTYPE_CODES:
        return value
    try:
        return np.dtype(value).name
    except TypeError as error:
        raise TypeError(f"{argument} must be a dtype, got {value!r}") from error
