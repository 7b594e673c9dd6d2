"""The geometry of the `fc.conv` family, resolved once: NNlib's DenseConvDims in torch's conventions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fastconv.normalise.arguments import MAX_SPATIAL, flag, integer, one_of, pairs, per_axis, shape, spatial

Axes = int | Sequence[int]
Padding = str | int | Sequence[int] | Sequence[tuple[int, int]]
LAYOUTS = ("NC", "N...C")
SAME = ("valid", "same", "same_lower")


@dataclass(frozen=True, init=False)
class ConvDims:
    """The sizes and the geometry of a convolution, checked once and reused for it and both of its gradients.

        output = floor((size + lo + hi - dilation * (k - 1) - 1) / stride) + 1                       per spatial axis
        output = (size - 1) * stride - lo - hi + dilation * (k - 1) + 1 + output_padding             transposed

    x_shape: (N, C, *spatial), or (N, *spatial, C) with layout="N...C". w_shape: (O, C / groups, *k); transposed:
    (C, O / groups, *k). padding: an int, one int per axis, one (lo, hi) pair per axis, or (not transposed) "valid", "same",
    "same_lower"; negative padding crops. flip=True reverses the kernel on every axis.
    Dims with equal contents are equal and hash alike.

    Raises: ValueError, TypeError naming the argument, the rule and the value.

    >>> dims = ConvDims((1, 64, 56, 56), (128, 64, 3, 3), stride=2, padding=1)
    >>> dims.output_shape
    (1, 128, 28, 28)

    Reference: NNlib.jl's DenseConvDims; Dumoulin and Visin 2016, A guide to convolution arithmetic for deep learning.
    """

    x_shape: tuple[int, ...]
    w_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int
    flip: bool
    transposed: bool
    output_padding: tuple[int, ...]
    layout: str
    _hash: int = field(repr=False, compare=False)

    def __init__(
        self,
        x_shape: Sequence[int],
        w_shape: Sequence[int],
        *,
        stride: Axes = 1,
        padding: Padding = 0,
        dilation: Axes = 1,
        groups: int = 1,
        flip: bool = False,
        transposed: bool = False,
        output_padding: Axes = 0,
        layout: str = "NC",
    ) -> None:
        x, w = shape("x_shape", x_shape), shape("w_shape", w_shape)
        axes = _check_ranks(x, w)
        layout = one_of("layout", layout, LAYOUTS)
        transposed, flip = flag("transposed", transposed), flag("flip", flip)
        groups = integer("groups", groups, 1)
        strides = per_axis("stride", stride, axes, 1)
        dilations = per_axis("dilation", dilation, axes, 1)
        batch, channels, size = split(x, layout)
        features = _check_channels(channels, w, groups, transposed, x)
        kernel = w[2:]
        if 0 in kernel:
            raise ValueError(f"w must have at least one tap on every spatial axis, got shape {w}")
        reach = tuple(d * (k - 1) + 1 for d, k in zip(dilations, kernel, strict=True))
        extra = _output_padding(output_padding, strides, dilations, transposed)
        if transposed:
            pads = _numeric_padding(padding, axes, "a transposed convolution")
            out = _transposed_extents(size, reach, strides, pads, extra)
        elif isinstance(padding, str):
            pads = named_padding(one_of("padding", padding, SAME), size, reach, strides)
            out = _extents(size, reach, strides, pads, checked=padding == "valid")
        else:
            pads = _numeric_padding(padding, axes, "a convolution")
            out = _extents(size, reach, strides, pads, checked=True)
        values: dict[str, Any] = {
            "x_shape": x,
            "w_shape": w,
            "output_shape": join(batch, features, out, layout),
            "stride": strides,
            "padding": pads,
            "dilation": dilations,
            "groups": groups,
            "flip": flip,
            "transposed": transposed,
            "output_padding": extra,
            "layout": layout,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_hash", hash(tuple(values.values())))

    def __hash__(self) -> int:
        return self._hash

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Strings hash otherwise in every process, so a copy that comes from another one makes its hash anew."""
        values = {name: value for name, value in state.items() if name != "_hash"}
        for name, value in values.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "_hash", hash(tuple(values.values())))

    def __str__(self) -> str:
        kind = "conv_transpose" if self.transposed else "conv"
        options = [f"stride={self.stride}", f"padding={self.padding}", f"dilation={self.dilation}", f"groups={self.groups}"]
        options += [f"output_padding={self.output_padding}"] if self.transposed else []
        options += ["flip=True"] if self.flip else []
        return f"{kind} {self.x_shape} * {self.w_shape} -> {self.output_shape}, {', '.join(options)}, layout={self.layout}"


def split(array_shape: tuple[int, ...], layout: str) -> tuple[int, int, tuple[int, ...]]:
    """(batch, channels, spatial extents) of a shape (or strides) in a layout."""
    if layout == "NC":
        return array_shape[0], array_shape[1], array_shape[2:]
    return array_shape[0], array_shape[-1], array_shape[1:-1]


def join(batch: int, channels: int, size: tuple[int, ...], layout: str) -> tuple[int, ...]:
    """The shape in a layout; undoes `split`."""
    return (batch, channels, *size) if layout == "NC" else (batch, *size, channels)


def named_padding(name: str, size: tuple[int, ...], reach: tuple[int, ...], stride: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """lax's padding of a name: ceil(size / stride) outputs for "same"; the odd zero goes high, or low for "same_lower"."""
    if name == "valid":
        return ((0, 0),) * len(size)
    result = []
    for n, r, s in zip(size, reach, stride, strict=True):
        total = max((-(-n // s) - 1) * s + r - n, 0)
        half = total // 2
        result.append((half, total - half) if name == "same" else (total - half, half))
    return tuple(result)


def _check_ranks(x: tuple[int, ...], w: tuple[int, ...]) -> int:
    if len(x) != len(w):
        raise ValueError(f"w must have as many dimensions as x (a batch axis is never left out), got shapes {x} and {w}")
    if len(x) < 2:
        raise ValueError(f"x must have at least 2 dimensions (batch and channels), got shape {x}")
    if len(x) - 2 > MAX_SPATIAL:
        raise ValueError(f"x must have at most {MAX_SPATIAL} spatial axes, got {spatial(len(x) - 2)}")
    return len(x) - 2


def _check_channels(channels: int, w: tuple[int, ...], groups: int, transposed: bool, x: tuple[int, ...]) -> int:
    """The number of output channels, after x, w and groups were found to agree."""
    if channels % groups:
        raise ValueError(f"groups must divide the channels of x, got groups={groups} for {channels} channels in x of shape {x}")
    if transposed:
        if w[0] != channels:
            raise ValueError(
                f"w must have x's {channels} channels on its first axis (I, O / groups, ...), got shape {w} for x of shape {x}"
            )
        return w[1] * groups
    if w[1] * groups != channels:
        rule = f"{channels // groups} channels on its second axis (channels of x / groups = {channels} / {groups})"
        raise ValueError(f"w must have {rule}, got shape {w} for x of shape {x}")
    if w[0] % groups:
        raise ValueError(f"groups must divide the output channels of w, got groups={groups} for {w[0]} in w of shape {w}")
    return w[0]


def _numeric_padding(padding: Any, axes: int, what: str) -> tuple[tuple[int, int], ...]:
    if isinstance(padding, str):
        raise ValueError(f"padding must be numbers in {what}, got {padding!r}")
    return pairs("padding", padding, axes)


def _output_padding(value: Any, strides: tuple[int, ...], dilations: tuple[int, ...], transposed: bool) -> tuple[int, ...]:
    extra = per_axis("output_padding", value, len(strides), 0)
    if not transposed and any(extra):
        raise ValueError(f"output_padding must be 0 unless transposed=True, got {value!r}")
    for e, s, d in zip(extra, strides, dilations, strict=True):
        if e and e >= max(s, d):
            raise ValueError(f"output_padding must be less than max(stride, dilation) = {max(s, d)} on every axis, got {value!r}")
    return extra


def _extents(
    size: tuple[int, ...], reach: tuple[int, ...], stride: tuple[int, ...], pads: tuple[tuple[int, int], ...], checked: bool
) -> tuple[int, ...]:
    out = []
    for axis, (n, r, s, (lo, hi)) in enumerate(zip(size, reach, stride, pads, strict=True)):
        if checked and n + lo + hi < r:
            raise ValueError(f"w's dilated kernel must fit into the padded x, got {r} for {n} + {lo} + {hi} on spatial axis {axis}")
        out.append((n + lo + hi - r) // s + 1)
    return tuple(out)


def _transposed_extents(
    size: tuple[int, ...], reach: tuple[int, ...], stride: tuple[int, ...], pads: tuple[tuple[int, int], ...], extra: tuple[int, ...]
) -> tuple[int, ...]:
    out = []
    for axis, (n, r, s, (lo, hi), e) in enumerate(zip(size, reach, stride, pads, extra, strict=True)):
        if n < 1:
            raise ValueError(f"x must have spatial extents of at least 1 in a transposed convolution, got {n} on spatial axis {axis}")
        extent = (n - 1) * s - lo - hi + r + e
        if extent < 0:
            raise ValueError(
                f"padding must leave an output extent of at least 0, got ({lo}, {hi}), which leaves {extent} on spatial axis {axis}"
            )
        out.append(extent)
    return tuple(out)
