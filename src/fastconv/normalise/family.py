"""conv, conv_transpose, conv_input_grad, conv_weight_grad: one table of rewrites of one forward problem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from fastconv.normalise.arguments import Spec, activation, dtype, one_of, same_dtype
from fastconv.normalise.dims import ConvDims, split
from fastconv.problem import Axis, ConvProblem, Operand
from fastconv.rewrite import flipped, input_gradient, weight_gradient

PRECISIONS = (None, "default", "highest")


class Call(NamedTuple):
    """What a front runs: the problem, the array to return, and whether the second user array is the problem's lhs."""

    problem: ConvProblem
    out: Spec
    swapped: bool = False


class Epilogue(NamedTuple):
    """What follows the sum: bias (its Spec), activation; and the precision of the sum."""

    bias: Spec | None = None
    activation: Any = None
    precision: Any = None


@dataclass(frozen=True, slots=True)
class _Operation:
    """Names of the two arrays and of the result, each one of "x", "w", "y"; and how the problem follows from `_forward`."""

    arrays: tuple[str, str]
    result: str
    rewrite: Callable[[ConvProblem], ConvProblem] | None
    transposed_rewrite: Callable[[ConvProblem], ConvProblem] | None
    transposed_swap: bool = False


#: A transposed convolution is the input gradient of a convolution from y to x, so its own gradients come out of the same table.
_TABLE = {
    "conv": _Operation(("x", "w"), "y", None, input_gradient),
    "input_grad": _Operation(("y", "w"), "x", input_gradient, None),
    "weight_grad": _Operation(("x", "y"), "w", weight_gradient, weight_gradient, transposed_swap=True),
}

#: Operations of `family`; "conv_transpose" is "conv" with transposed dims.
OPERATIONS = ("conv", "conv_transpose", "input_grad", "weight_grad")


def family(op: str, dims: ConvDims, first: Spec, second: Spec, epilogue: Epilogue = Epilogue(), out: Spec | None = None) -> Call:
    """The problem of one operation on two arrays whose shapes must be those of `dims`.

    first, second: x and w for conv, dy and w for input_grad, x and dy for weight_grad. out: the caller's array, else C-order.
    """
    row = _TABLE["conv" if op == "conv_transpose" else op]
    shapes = {"x": dims.x_shape, "w": dims.w_shape, "y": dims.output_shape}
    shown = {"x": "x", "w": "w", "y": "dy"}
    specs: dict[str, Spec] = {}
    for key, spec in zip(row.arrays, (first, second), strict=True):
        if spec.shape != shapes[key]:
            raise ValueError(f"{shown[key]} must have shape {shapes[key]}, got {spec.shape}")
        specs[key] = spec
    element = dtype(shown[row.arrays[0]], first.dtype)
    same_dtype(shown[row.arrays[0]], element, shown[row.arrays[1]], second.dtype)
    result = check_out(out, shapes[row.result], element)
    specs[row.result] = result
    forward = _forward(dims, specs, element)
    rewrite = row.transposed_rewrite if dims.transposed else row.rewrite
    problem = rewrite(forward) if rewrite else forward
    features = split(dims.output_shape, dims.layout)[1]
    return Call(with_epilogue(problem, epilogue, features, element), result, dims.transposed and row.transposed_swap)


def check_out(out: Spec | None, shape: tuple[int, ...], element: str) -> Spec:
    """The caller's output array if it fits, or a new C-ordered one."""
    if out is None:
        return Spec.contiguous(shape, element)
    if out.shape != shape:
        raise ValueError(f"out must have shape {shape}, got {out.shape}")
    if out.dtype != element:
        raise TypeError(f"out must have dtype {element}, got {out.dtype}")
    return out


def with_epilogue(problem: ConvProblem, epilogue: Epilogue, features: int, element: str, last_axis: str = "O") -> ConvProblem:
    """The problem followed by its bias and activation, at its precision."""
    bias = epilogue.bias
    if bias is not None:
        if bias.shape != (features,):
            raise ValueError(f"bias must have shape ({last_axis},) = ({features},), got {bias.shape}")
        same_dtype("x", element, "bias", bias.dtype)
    name = activation(epilogue.activation, problem.out_dtype)
    precision = one_of("precision", epilogue.precision, PRECISIONS) or "default"
    stride = None if bias is None else bias.strides[0]
    return replace(problem, bias_stride=stride, activation=name, precision=precision)


def _forward(dims: ConvDims, specs: dict[str, Spec], element: str) -> ConvProblem:
    """The plain convolution from the larger side to the smaller: x to y, or y to x when transposed."""
    big, small = (specs["y"], specs["x"]) if dims.transposed else (specs["x"], specs["y"])
    batch, big_channels, size = split(big.shape, dims.layout)
    _, small_channels, out = split(small.shape, dims.layout)
    groups = dims.groups
    channels, features = big_channels // groups, small_channels // groups
    w = specs["w"]
    rows = zip(size, w.shape[2:], out, dims.stride, dims.padding, dims.dilation, strict=True)
    axes = tuple(Axis(n, k, p, s, lo, 1, d) for n, k, p, s, (lo, _), d in rows)
    outer, taps = w.strides[:2], w.strides[2:]
    problem = ConvProblem(
        axes=axes,
        groups=groups,
        batch=batch,
        channels=channels,
        features=features,
        lhs=_grouped(big, dims.layout, channels),
        rhs=Operand((features * outer[0], outer[0], outer[1]), taps),
        out=_grouped(small, dims.layout, features),
        dtype=element,
        out_dtype=element,
    )
    return replace(problem, rhs=flipped(problem.rhs, w.shape[2:])) if dims.flip else problem


def _grouped(spec: Spec, layout: str, per_group: int) -> Operand:
    """Strides of (group, batch, channel in the group) and the spatial axes of an array in a layout."""
    n, c, spatial = split(spec.strides, layout)
    return Operand((per_group * c, n, c), spatial)
