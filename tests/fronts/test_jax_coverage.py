"""The pinned set: forward and both gradients of every kind of convolution, above 1 MFLOP, run on the engine. Only lowered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from jaxtools import accelerate, conv, jax, records, x64

from fastconv.jax.lowering import KINDS

NC, NHWC, NWC = ("NCHW", "OIHW", "NCHW"), ("NHWC", "HWIO", "NHWC"), ("NWC", "WIO", "NWC")
#: Per family: shapes of lhs and rhs, strides, padding, dimension numbers, other options.
PINNED = {
    "dense": [
        ((1, 64, 56, 56), (64, 64, 3, 3), (1, 1), "SAME", NC, {}),
        ((1, 56, 56, 64), (3, 3, 64, 64), (1, 1), "SAME", NHWC, {}),
        ((2, 14, 14, 256), (3, 3, 256, 256), (1, 1), "SAME", NHWC, {}),
        ((1, 3, 112, 112), (16, 3, 3, 3), (1, 1), "SAME", NC, {}),
        ((1, 1, 500, 500), (1, 1, 5, 5), (1, 1), ((4, 4), (4, 4)), NC, {}),
        ((1, 64, 28, 28), (256, 64, 1, 1), (1, 1), "VALID", NC, {}),
        ((4, 32, 1000), (32, 32, 5), (1,), "SAME", None, {}),
        ((1, 8, 16, 16, 16), (8, 8, 3, 3, 3), (1, 1, 1), "SAME", None, {}),
        ((64, 512), (256, 512), (), (), None, {}),
    ],
    "strided": [
        ((16, 1, 25600), (129, 1, 256), (64,), ((256, 256),), None, {}),
        ((1, 64, 56, 56), (64, 64, 3, 3), (2, 2), "SAME", NC, {}),
        ((1, 56, 56, 64), (3, 3, 64, 64), (2, 2), "SAME", NHWC, {}),
        ((1, 3, 224, 224), (64, 3, 7, 7), (2, 2), ((3, 3), (3, 3)), NC, {}),
        ((1, 64, 9600), (128, 64, 8), (4,), ((2, 2),), None, {}),
        ((8, 30, 30, 16), (2, 2, 16, 32), (3, 3), ((-1, 0), (0, -2)), NHWC, {}),
    ],
    "grouped": [
        ((1, 128, 28, 28), (128, 4, 3, 3), (1, 1), "SAME", NC, {"feature_group_count": 32}),
        ((1, 28, 28, 128), (3, 3, 4, 128), (1, 1), "SAME", NHWC, {"feature_group_count": 32}),
        ((2, 64, 2000), (64, 16, 9), (2,), "SAME", None, {"feature_group_count": 4}),
        ((1, 16, 12, 12, 12), (32, 4, 3, 3, 3), (1, 1, 1), "SAME", None, {"feature_group_count": 4}),
        ((64, 512), (256, 64), (), (), None, {"feature_group_count": 8}),
    ],
    "depthwise": [
        ((1, 256, 62, 62), (256, 1, 3, 3), (1, 1), "SAME", NC, {"feature_group_count": 256}),
        ((1, 62, 62, 256), (3, 3, 1, 256), (1, 1), "SAME", NHWC, {"feature_group_count": 256}),
        ((2, 56, 56, 32), (5, 5, 1, 64), (2, 2), "SAME", NHWC, {"feature_group_count": 32}),
        ((4, 512, 1024), (512, 1, 5), (1,), "SAME", None, {"feature_group_count": 512}),
        ((4, 1024, 512), (5, 1, 512), (1,), "SAME", NWC, {"feature_group_count": 512}),
        ((1, 1536, 1024), (1536, 1, 4), (1,), ((3, 0),), None, {"feature_group_count": 1536}),
        ((1, 64, 16, 16, 16), (64, 1, 3, 3, 3), (1, 1, 1), "SAME", None, {"feature_group_count": 64}),
    ],
    "lhs-dilated": [
        ((16, 129, 400), (129, 1, 256), (1,), ((255, 255),), ("NCT", "IOT", "NCT"), {"lhs_dilation": (64,)}),
        ((1, 64, 28, 28), (32, 64, 4, 4), (1, 1), ((2, 2), (2, 2)), NC, {"lhs_dilation": (2, 2)}),
        ((1, 28, 28, 64), (4, 4, 64, 32), (1, 1), ((2, 2), (2, 2)), NHWC, {"lhs_dilation": (2, 2)}),
        ((1, 512, 100), (256, 512, 16), (1,), ((11, 11),), None, {"lhs_dilation": (8,)}),
        ((1, 16, 8, 8, 8), (8, 16, 4, 4, 4), (1, 1, 1), ((2, 2),) * 3, None, {"lhs_dilation": (2, 2, 2)}),
        ((4, 64, 64, 64), (64, 1, 4, 4), (1, 1), ((2, 2), (2, 2)), NC, {"lhs_dilation": (2, 2), "feature_group_count": 64}),
        ((2, 32, 12, 12), (16, 32, 3, 3), (1, 1), ((3, 3), (2, 4)), NC, {"lhs_dilation": (2, 3), "rhs_dilation": (2, 2)}),
    ],
    "rhs-dilated": [
        ((1, 64, 40, 40), (64, 64, 3, 3), (1, 1), "SAME", NC, {"rhs_dilation": (4, 4)}),
        ((1, 40, 40, 64), (3, 3, 64, 64), (1, 1), "SAME", NHWC, {"rhs_dilation": (2, 2)}),
        ((2, 128, 2000), (128, 128, 3), (1,), "SAME", None, {"rhs_dilation": (16,)}),
        ((2, 64, 2000), (64, 1, 5), (1,), "SAME", None, {"rhs_dilation": (3,), "feature_group_count": 64}),
        ((2, 32, 31, 31), (32, 32, 3, 3), (2, 2), "SAME", NC, {"rhs_dilation": (2, 2)}),
        ((1, 8, 16, 16, 16), (8, 8, 3, 3, 3), (1, 1, 1), "SAME", None, {"rhs_dilation": (2, 2, 2)}),
    ],
    "batch-grouped": [
        ((16, 16, 28, 28), (16, 16, 3, 3), (1, 1), "SAME", NC, {"batch_group_count": 4}),
        ((16, 28, 28, 16), (3, 3, 16, 16), (1, 1), "SAME", NHWC, {"batch_group_count": 4}),
        ((64, 8, 500), (64, 8, 7), (1,), "SAME", None, {"batch_group_count": 64}),
        ((8, 32, 20, 20), (64, 32, 3, 3), (2, 2), "SAME", NC, {"batch_group_count": 8}),
        ((8, 4, 12, 12, 12), (8, 4, 3, 3, 3), (1, 1, 1), "SAME", None, {"batch_group_count": 4}),
        ((8, 64, 64), (32, 64, 15), (1,), ((7, 7),), None, {"batch_group_count": 2, "rhs_dilation": (2,)}),
    ],
    "vmapped w": [  # the first extent is vmap's
        ((4, 1, 16, 28, 28), (4, 16, 16, 3, 3), (1, 1), "SAME", NC, {}),
        ((4, 1, 28, 28, 16), (4, 3, 3, 16, 16), (1, 1), "SAME", NHWC, {}),
        ((8, 2, 32, 500), (8, 32, 32, 5), (2,), "SAME", None, {}),
        ((32, 1, 3, 32, 32), (32, 8, 3, 3, 3), (1, 1), "SAME", NC, {}),
        ((4, 2, 32, 32, 32), (4, 32, 1, 3, 3), (1, 1), "SAME", NC, {"feature_group_count": 32}),
        ((4, 1, 4, 10, 10, 10), (4, 8, 4, 3, 3, 3), (1, 1, 1), "SAME", None, {}),
    ],
}  # fmt: skip


def directions(family: str, strides: Any, padding: Any, numbers: Any, options: dict[str, Any]) -> dict[str, Callable[..., Any]]:
    """Functions of x, w and the result's cotangent that each come down to one convolution."""

    def forward(x: Any, w: Any) -> Any:
        function = lambda x, w: conv(x, w, strides, padding, dimension_numbers=numbers, **options)  # noqa: E731
        return (jax.vmap(function) if family == "vmapped w" else function)(x, w)

    return {
        "fwd": lambda x, w, c: forward(x, w),
        "dx": lambda x, w, c: jax.linear_transpose(lambda x: forward(x, w), x)(c),
        "dw": lambda x, w, c: jax.linear_transpose(lambda w: forward(x, w), w)(c),
    }


def lowered(function: Callable[..., Any], *avals: Any) -> records.Convolution:
    """What becomes of the function's only convolution."""
    records.clear()
    with accelerate():
        jax.jit(function).lower(*avals)
    (row,) = records.report().convolutions
    assert row.compiled == 1
    return row


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
@pytest.mark.parametrize("family", PINNED)
def test_the_pinned_set_runs_on_the_engine(family: str, dtype: str) -> None:
    found: dict[str, list[records.Convolution]] = {"fwd": [], "dx": [], "dw": []}
    with x64():
        for x_shape, w_shape, *geometry in PINNED[family]:
            functions = directions(family, *geometry)
            x, w = (jax.ShapeDtypeStruct(shape, dtype) for shape in (x_shape, w_shape))
            c = jax.eval_shape(functions["fwd"], x, w, None)
            for direction, function in functions.items():
                found[direction].append(lowered(function, x, w, c))
    rows = [row for each in found.values() for row in each]
    assert all(2 * (row.products or 0) > 1e6 for row in rows)
    for direction, each in found.items():
        assert any(row.algorithm != "xla" for row in each), f"{direction}: {each}"
    declined = [row for row in rows if row.algorithm == "xla"]
    assert {row.kind for row in declined} <= set(KINDS)
    assert len(declined) <= len(rows) // 20, "\n".join(map(str, declined))
    if dtype != "bfloat16":  # `general` is right on everything and fast on nothing
        assert not [row for row in rows if row.algorithm == "general"]
