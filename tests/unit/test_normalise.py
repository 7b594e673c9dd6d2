"""Arguments into problems: every bad input by its message, and the sizes of the good ones."""
# ruff: noqa: E501 (one case a line; messages are long)

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from fastconv.normalise import ConvDims, Epilogue, Spec, conv_general_dilated, convn, family

X, W = (2, 6, 9, 8), (4, 6, 3, 3)
F32 = Spec.contiguous


def conv_dims(**changes: Any) -> ConvDims:
    arguments = {"x_shape": X, "w_shape": W, **changes}
    return ConvDims(arguments.pop("x_shape"), arguments.pop("w_shape"), **arguments)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        # ranks
        ({"w_shape": (4, 6, 3)}, ValueError, "w must have as many dimensions as x (a batch axis is never left out), got shapes (2, 6, 9, 8) and (4, 6, 3)"),
        ({"x_shape": (6, 9), "w_shape": (4, 6, 3)}, ValueError, "w must have as many dimensions as x (a batch axis is never left out), got shapes (6, 9) and (4, 6, 3)"),
        ({"x_shape": (6,), "w_shape": (6,)}, ValueError, "x must have at least 2 dimensions (batch and channels), got shape (6,)"),
        ({"x_shape": (1,) * 19, "w_shape": (1,) * 19}, ValueError, "x must have at most 16 spatial axes, got 17 spatial axes"),
        ({"x_shape": 5}, TypeError, "x_shape must be a shape (a tuple of ints), got 5"),
        ({"w_shape": (4, 6, 3, 3.0)}, TypeError, "w_shape must hold ints, got (4, 6, 3, 3.0)"),
        ({"x_shape": (2, 6, -9, 8)}, ValueError, "x_shape must hold extents of at least 0, got (2, 6, -9, 8)"),
        # channels and groups
        ({"w_shape": (4, 5, 3, 3)}, ValueError, "w must have 6 channels on its second axis (channels of x / groups = 6 / 1), got shape (4, 5, 3, 3) for x of shape (2, 6, 9, 8)"),
        ({"groups": 2}, ValueError, "w must have 3 channels on its second axis (channels of x / groups = 6 / 2), got shape (4, 6, 3, 3) for x of shape (2, 6, 9, 8)"),
        ({"groups": 4}, ValueError, "groups must divide the channels of x, got groups=4 for 6 channels in x of shape (2, 6, 9, 8)"),
        ({"groups": 3, "w_shape": (4, 2, 3, 3)}, ValueError, "groups must divide the output channels of w, got groups=3 for 4 in w of shape (4, 2, 3, 3)"),
        ({"groups": 0}, ValueError, "groups must be at least 1, got 0"),
        ({"groups": 2.0}, TypeError, "groups must be an int, got 2.0"),
        ({"groups": True}, TypeError, "groups must be an int, got True"),
        ({"transposed": True}, ValueError, "w must have x's 6 channels on its first axis (I, O / groups, ...), got shape (4, 6, 3, 3) for x of shape (2, 6, 9, 8)"),
        # stride and dilation
        ({"stride": 0}, ValueError, "stride must be at least 1 on every axis, got 0"),
        ({"stride": (1, -2)}, ValueError, "stride must be at least 1 on every axis, got (1, -2)"),
        ({"stride": (1, 2, 3)}, ValueError, "stride must hold 2 ints for 2 spatial axes, got (1, 2, 3)"),
        ({"stride": 1.0}, TypeError, "stride must be an int or 2 ints for 2 spatial axes, got 1.0"),
        ({"stride": True}, TypeError, "stride must be an int or 2 ints for 2 spatial axes, got True"),
        ({"stride": (1, 1.5)}, TypeError, "stride must hold ints, got (1, 1.5)"),
        ({"stride": "2"}, TypeError, "stride must be an int or 2 ints for 2 spatial axes, got '2'"),
        ({"dilation": 0}, ValueError, "dilation must be at least 1 on every axis, got 0"),
        ({"dilation": [2, 0]}, ValueError, "dilation must be at least 1 on every axis, got [2, 0]"),
        ({"dilation": None}, TypeError, "dilation must be an int or 2 ints for 2 spatial axes, got None"),
        # padding
        ({"padding": ((1, 1),)}, ValueError, "padding must hold 2 pairs for 2 spatial axes, got ((1, 1),)"),
        ({"padding": (1, 2, 3)}, ValueError, "padding must hold 2 ints or 2 (lo, hi) pairs for 2 spatial axes, got (1, 2, 3)"),
        ({"padding": ((1, 1), (1, 1, 1))}, ValueError, "padding must hold (lo, hi) pairs, got ((1, 1), (1, 1, 1))"),
        ({"padding": (1, (1, 1))}, ValueError, "padding must hold (lo, hi) pairs, got (1, (1, 1))"),
        ({"padding": ((1, 1), (1, 0.5))}, TypeError, "padding must hold pairs of ints, got ((1, 1), (1, 0.5))"),
        ({"padding": 1.0}, TypeError, "padding must be an int, 2 ints or 2 (lo, hi) pairs for 2 spatial axes, got 1.0"),
        ({"padding": "SAME"}, ValueError, "padding must be one of 'valid', 'same', 'same_lower', got 'SAME'"),
        ({"padding": (2, 3), "x_shape": (1, 6, 9), "w_shape": (4, 6, 3)}, ValueError, "padding must hold 1 int or 1 (lo, hi) pair for 1 spatial axis, got (2, 3)"),
        ({"padding": "same", "transposed": True, "w_shape": (6, 4, 3, 3)}, ValueError, "padding must be numbers in a transposed convolution, got 'same'"),
        ({"padding": 30, "transposed": True, "w_shape": (6, 4, 3, 3)}, ValueError, "padding must leave an output extent of at least 0, got (30, 30), which leaves -49 on spatial axis 0"),
        # a kernel that does not fit
        ({"dilation": 5}, ValueError, "w's dilated kernel must fit into the padded x, got 11 for 9 + 0 + 0 on spatial axis 0"),
        ({"padding": ((0, 0), (-4, -4))}, ValueError, "w's dilated kernel must fit into the padded x, got 3 for 8 + -4 + -4 on spatial axis 1"),
        ({"padding": "valid", "x_shape": (2, 6, 2, 2)}, ValueError, "w's dilated kernel must fit into the padded x, got 3 for 2 + 0 + 0 on spatial axis 0"),
        ({"w_shape": (4, 6, 0, 3)}, ValueError, "w must have at least one tap on every spatial axis, got shape (4, 6, 0, 3)"),
        ({"x_shape": (2, 6, 0, 8), "w_shape": (6, 4, 3, 3), "transposed": True}, ValueError, "x must have spatial extents of at least 1 in a transposed convolution, got 0 on spatial axis 0"),
        # output padding, layout, flags
        ({"output_padding": 1}, ValueError, "output_padding must be 0 unless transposed=True, got 1"),
        ({"output_padding": 1, "transposed": True, "w_shape": (6, 4, 3, 3)}, ValueError, "output_padding must be less than max(stride, dilation) = 1 on every axis, got 1"),
        ({"output_padding": (1, 2), "stride": 2, "transposed": True, "w_shape": (6, 4, 3, 3)}, ValueError, "output_padding must be less than max(stride, dilation) = 2 on every axis, got (1, 2)"),
        ({"output_padding": -1, "stride": 2, "transposed": True, "w_shape": (6, 4, 3, 3)}, ValueError, "output_padding must be at least 0 on every axis, got -1"),
        ({"layout": "NHWC"}, ValueError, "layout must be one of 'NC', 'N...C', got 'NHWC'"),
        ({"layout": None}, TypeError, "layout must be one of 'NC', 'N...C', got None"),
        ({"flip": 1}, TypeError, "flip must be True or False, got 1"),
        ({"transposed": "yes"}, TypeError, "transposed must be True or False, got 'yes'"),
    ],
)  # fmt: skip
def test_bad_geometry(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        conv_dims(**changes)


@pytest.mark.parametrize(
    ("changes", "output"),
    [
        ({}, (2, 4, 7, 6)),
        ({"padding": (1, 2)}, (2, 4, 9, 10)),
        ({"padding": ((1, 0), (0, -1))}, (2, 4, 8, 5)),
        ({"padding": np.array([1, 2])}, (2, 4, 9, 10)),
        ({"padding": [[1, 0], [0, 2]]}, (2, 4, 8, 8)),
        ({"stride": np.int64(2), "padding": "same"}, (2, 4, 5, 4)),
        ({"stride": [2, 3], "padding": "same_lower", "dilation": 2}, (2, 4, 5, 3)),
        ({"stride": 2, "padding": "valid"}, (2, 4, 4, 3)),
        ({"x_shape": (2, 6, 0, 8), "padding": "same"}, (2, 4, 0, 8)),
        ({"x_shape": (0, 6, 9, 8)}, (0, 4, 7, 6)),
        ({"x_shape": (2, 0, 9, 8), "w_shape": (4, 0, 3, 3)}, (2, 4, 7, 6)),
        ({"x_shape": (2, 6, 0, 8), "padding": ((2, 1), (0, 0))}, (2, 4, 1, 6)),
        ({"x_shape": (2, 9, 8, 6), "layout": "N...C"}, (2, 7, 6, 4)),
        ({"groups": 2, "w_shape": (4, 3, 3, 3)}, (2, 4, 7, 6)),
        ({"x_shape": (2, 6), "w_shape": (4, 6)}, (2, 4)),
        ({"w_shape": (6, 4, 3, 3), "transposed": True, "stride": 2, "padding": 1, "output_padding": (1, 0)}, (2, 4, 18, 15)),
        ({"w_shape": (6, 4, 3, 3), "transposed": True, "groups": 3}, (2, 12, 11, 10)),
        ({"w_shape": (6, 4, 3, 3), "transposed": True, "dilation": 3, "output_padding": 2}, (2, 4, 17, 16)),
        ({"w_shape": (6, 4, 3, 3), "transposed": True, "padding": ((5, 6), (-1, 0))}, (2, 4, 0, 11)),
    ],
)  # fmt: skip
def test_output_shape(changes: dict[str, Any], output: tuple[int, ...]) -> None:
    assert conv_dims(**changes).output_shape == output


def test_dims_are_values() -> None:
    a, b = conv_dims(stride=2, padding=1), conv_dims(stride=(2, 2), padding=((1, 1), (1, 1)))
    assert a == b
    assert hash(a) == hash(b)
    assert a != conv_dims(stride=2)
    assert (
        str(a)
        == "conv (2, 6, 9, 8) * (4, 6, 3, 3) -> (2, 4, 5, 4), stride=(2, 2), padding=((1, 1), (1, 1)), dilation=(1, 1), groups=1, layout=NC"
    )
    with pytest.raises(AttributeError):
        a.groups = 2  # type: ignore[misc]


def run_family(op: str = "conv", first: Spec | None = None, second: Spec | None = None, out: Spec | None = None, **epilogue: Any) -> Any:
    dims = conv_dims()
    return family(op, dims, first or F32(X, "float32"), second or F32(W, "float32"), Epilogue(**epilogue), out)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"first": F32((2, 6, 9, 9), "float32")}, ValueError, "x must have shape (2, 6, 9, 8), got (2, 6, 9, 9)"),
        ({"second": F32((4, 6, 3, 4), "float32")}, ValueError, "w must have shape (4, 6, 3, 3), got (4, 6, 3, 4)"),
        ({"op": "input_grad", "first": F32((2, 4, 7, 7), "float32")}, ValueError, "dy must have shape (2, 4, 7, 6), got (2, 4, 7, 7)"),
        ({"op": "weight_grad", "second": F32((2, 4, 7, 7), "float32")}, ValueError, "dy must have shape (2, 4, 7, 6), got (2, 4, 7, 7)"),
        ({"second": F32(W, "float64")}, TypeError, "w must have x's dtype float32, got float64"),
        ({"first": F32(X, "bool"), "second": F32(W, "bool")}, TypeError, "x must have one of the dtypes float32, float64, float16, bfloat16, complex64, complex128, int8, int16, int32, int64, uint8, uint16, uint32, uint64, got bool"),
        ({"bias": F32((3,), "float32")}, ValueError, "bias must have shape (O,) = (4,), got (3,)"),
        ({"bias": F32((4, 1), "float32")}, ValueError, "bias must have shape (O,) = (4,), got (4, 1)"),
        ({"bias": F32((4,), "float16")}, TypeError, "bias must have x's dtype float32, got float16"),
        ({"out": F32((2, 4, 7, 7), "float32")}, ValueError, "out must have shape (2, 4, 7, 6), got (2, 4, 7, 7)"),
        ({"out": F32((2, 4, 7, 6), "float64")}, TypeError, "out must have dtype float32, got float64"),
        ({"activation": "softplus"}, ValueError, "activation must be one of None, 'relu', 'gelu', 'gelu_tanh', 'silu', 'tanh', 'sigmoid', 'leaky_relu', got 'softplus'"),
        ({"activation": abs}, TypeError, "activation must be one of None, 'relu', 'gelu', 'gelu_tanh', 'silu', 'tanh', 'sigmoid', 'leaky_relu', got <built-in function abs>"),
        ({"activation": "relu", "first": F32(X, "int32"), "second": F32(W, "int32")}, TypeError, "activation must be None for dtype int32 (it needs a real floating-point dtype), got 'relu'"),
        ({"precision": "high"}, ValueError, "precision must be one of None, 'default', 'highest', got 'high'"),
    ],
)  # fmt: skip
def test_bad_arrays(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        run_family(**arguments)


L, R = (4, 6, 9), (8, 3, 2)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"rhs": (8, 3)}, ValueError, "rhs must have as many dimensions as lhs, got shapes (4, 6, 9) and (8, 3)"),
        ({"lhs": (4,), "rhs": (8,)}, ValueError, "lhs must have 2 to 18 dimensions, got shape (4,)"),
        ({"window_strides": 1}, TypeError, "window_strides must be 1 int for 1 spatial axis, got 1"),
        ({"window_strides": (1, 1)}, ValueError, "window_strides must hold 1 int for 1 spatial axis, got (1, 1)"),
        ({"window_strides": (0,)}, ValueError, "window_strides must be at least 1 on every axis, got (0,)"),
        ({"window_strides": (1.0,)}, TypeError, "window_strides must hold ints, got (1.0,)"),
        ({"padding": "FULL"}, ValueError, "padding must be one of 'SAME', 'SAME_LOWER', 'VALID' or one (lo, hi) pair per axis, got 'FULL'"),
        ({"padding": (1,)}, ValueError, "padding must hold (lo, hi) pairs, got (1,)"),
        ({"padding": ((1, 1), (1, 1))}, ValueError, "padding must hold 1 pair for 1 spatial axis, got ((1, 1), (1, 1))"),
        ({"padding": 1}, TypeError, "padding must be 1 (lo, hi) pair for 1 spatial axis, got 1"),
        ({"padding": ((-8, -2),)}, ValueError, "padding must not crop more than lhs's dilated extent 9, got (-8, -2) on spatial axis 0"),
        ({"padding": "SAME", "lhs_dilation": (2,)}, ValueError, "padding must be one (lo, hi) pair per axis when lhs_dilation is not 1, got 'SAME'"),
        ({"lhs_dilation": (-1,)}, ValueError, "lhs_dilation must be at least 1 on every axis, got (-1,)"),
        ({"rhs_dilation": (0,)}, ValueError, "rhs_dilation must be at least 1 on every axis, got (0,)"),
        ({"feature_group_count": 4}, ValueError, "feature_group_count must divide lhs's 6 features, got 4"),
        ({"feature_group_count": 1}, ValueError, "rhs must have 6 input features (lhs's 6 / feature_group_count 1), got 3"),
        ({"feature_group_count": 2, "rhs": (7, 3, 2)}, ValueError, "feature_group_count must divide rhs's 7 output features, got 2"),
        ({"batch_group_count": 2}, ValueError, "feature_group_count and batch_group_count must not both be above 1, got 2 and 2"),
        ({"feature_group_count": 1, "batch_group_count": 3, "rhs": (9, 6, 2)}, ValueError, "batch_group_count must divide lhs's batch of 4, got 3"),
        ({"feature_group_count": 1, "batch_group_count": 4, "rhs": (6, 6, 2)}, ValueError, "batch_group_count must divide rhs's 6 output features, got 4"),
        ({"dimension_numbers": "NCW"}, TypeError, "dimension_numbers must be None or a tuple of 3 specs, got 'NCW'"),
        ({"dimension_numbers": ("NCW", "OIW")}, ValueError, "dimension_numbers must hold 3 specs, got ('NCW', 'OIW')"),
        ({"dimension_numbers": ("NCW", "OIH", "NCW")}, ValueError, "dimension_numbers must use the same spatial characters in all 3 specs, got ('NCW', 'OIH', 'NCW')"),
        ({"dimension_numbers": ("NCW", "NCW", "NCW")}, ValueError, "dimension_numbers must hold specs of 3 different characters with 'O' and 'I' among them, got 'NCW' in ('NCW', 'NCW', 'NCW')"),
        ({"dimension_numbers": ("NC", "OIW", "NCW")}, ValueError, "dimension_numbers must hold specs of 3 different characters with 'N' and 'C' among them, got 'NC' in ('NC', 'OIW', 'NCW')"),
        ({"dimension_numbers": ((0, 1, 1), (0, 1, 2), (0, 1, 2))}, ValueError, "dimension_numbers must hold permutations of 0 to 2, got (0, 1, 1)"),
        ({"dimension_numbers": (3, 4, 5)}, TypeError, "dimension_numbers must hold 3 strings or 3 permutations, got (3, 4, 5)"),
        ({"preferred_element_type": "int32"}, TypeError, "preferred_element_type must be float for operands of dtype float32, got int32"),
        ({"preferred_element_type": "float16"}, TypeError, "preferred_element_type must not be narrower than the operands' float32, got float16"),
        ({"rhs_dtype": "float64"}, TypeError, "rhs must have lhs's dtype float32, got float64"),
    ],
)  # fmt: skip
def test_bad_lax_arguments(changes: dict[str, Any], error: type[Exception], message: str) -> None:
    arguments = {"window_strides": (1,), "padding": ((0, 0),), "feature_group_count": 2, **changes}
    lhs, rhs = F32(arguments.pop("lhs", L), "float32"), F32(arguments.pop("rhs", R), arguments.pop("rhs_dtype", "float32"))
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        conv_general_dilated(lhs, rhs, **arguments)


@pytest.mark.parametrize(
    ("x", "k", "mode", "message"),
    [
        ((3, 3), (3,), "full", "k must have as many dimensions as x, got shapes (3,) and (3, 3)"),
        ((3, 0), (1, 1), "full", "x must not be empty, got shape (3, 0)"),
        ((3,), (0,), "same", "k must not be empty, got shape (0,)"),
        ((3, 3), (2, 4), "valid", 'k must not be larger than x on any axis with mode="valid", got 4 for 3 on axis 1'),
        ((3,), (2,), "SAME", "mode must be one of 'full', 'same', 'valid', got 'SAME'"),
        ((1,) * 17, (1,) * 17, "full", "x must have at most 16 dimensions, got 17"),
    ],
)
def test_bad_convn(x: tuple[int, ...], k: tuple[int, ...], mode: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        convn(F32(x, "float32"), F32(k, "float32"), mode)
