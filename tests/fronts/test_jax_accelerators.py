"""GPUs and TPUs without one: programs lowered for them, read as StableHLO, and run on the CPU with the platform's name swapped."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import laxnumpy
import numpy as np
import pytest
from jaxtools import conv, jax, quickly, records

import fastconv.jax as fj
from fastconv.jax import accelerators
from fastconv.plan import forced
from fastconv.plan.accelerators import accelerator

jnp, lax = jax.numpy, jax.lax


def transposed(stride: Any, padding: Any, output_padding: int = 0, groups: int = 1) -> Any:
    """torch's transposed convolution by lax: x N C spatial, w O I/g spatial of the correlation that it amounts to."""

    def apply(x: Any, w: Any) -> Any:
        pads = [(k - 1 - p, k - 1 - p + output_padding) for k, p in zip(w.shape[2:], padding, strict=True)]
        return conv(x, w, (1,) * len(pads), pads, lhs_dilation=stride, feature_group_count=groups)

    return apply


def plain(*, numbers: Any = None, **options: Any) -> Any:
    return lambda x, w: conv(x, w, dimension_numbers=numbers, **{"window_strides": (1,) * (x.ndim - 2), "padding": "SAME", **options})


def mapped(function: Any) -> Any:
    """As flax and equinox users have it: an example without a batch, and vmap."""
    return lambda x, w: jax.vmap(lambda x: function(x[None], w)[0])(x)


WIO, HWIO = ("NWC", "WIO", "NWC"), ("NHWC", "HWIO", "NHWC")
BF16, F32 = "bfloat16", "float32"

#: The reports of slow or failing convolutions on GPUs: id -> (function, x, w, dtype).
REPORTS: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...], str]] = {
    "jax#23783": (plain(padding=((255, 255),), lhs_dilation=(64,), numbers=("NCT", "IOT", "NCT")), (16, 129, 400), (129, 1, 256), F32),
    "jax#23783 forward": (plain(padding=((256, 256),), window_strides=(64,)), (16, 1, 25600), (129, 1, 256), F32),
    "torch#120982": (transposed((256,), (0,)), (1, 1026, 224), (1, 1026, 1024), F32),
    "onnxruntime#23273": (transposed((1024,), (0,)), (8, 4098, 435), (1, 4098, 4096), F32),
    "TensorRT-RTX-EP-ABI#8": (transposed((1024,), (0,)), (12, 2049, 340), (1, 2049, 4096), F32),
    "torchaudio#471": (transposed((160,), (0,)), (4, 640, 96), (1, 640, 640), F32),
    "torch#47341": (transposed((3,), (2,), 1, 512), (16, 512, 32), (512, 1, 6), F32),
    "jax#31662": (mapped(transposed((2, 2, 2), (1, 1, 1), 1)), (1, 64, 64, 64, 32), (1, 64, 3, 3, 3), BF16),
    "equinox#1259": (
        mapped(plain(padding=((1, 2), (1, 2)), lhs_dilation=(2, 2), window_strides=(1, 1))), (1, 1, 2, 2), (1, 1, 3, 3), F32,
    ),
    "oneDNN#262": (transposed((2, 2, 2), (0, 0, 0)), (1, 256, 20, 20, 20), (128, 256, 2, 2, 2), F32),
    "jax#13800": (plain(numbers=("NCW", "IOW", "NCW"), feature_group_count=512), (32, 512, 1024), (1, 512, 5), F32),
    "jax#26266": (plain(numbers=WIO, feature_group_count=256, rhs_dilation=(16,)), (32, 1024, 256), (4, 1, 256), F32),
    "torch#157334": (plain(numbers=HWIO, feature_group_count=256), (128, 124, 124, 256), (3, 3, 1, 256), F32),
    "torch#192902": (plain(padding=((3, 0),), feature_group_count=12288), (1, 12288, 16384), (12288, 1, 4), BF16),
    "candle#3389": (plain(feature_group_count=2048), (1, 2048, 19), (2048, 1, 3), F32),
    "NNlib#520": (plain(feature_group_count=256), (64, 256, 1024), (256, 1, 2), F32),
    "transformers#45750": (plain(window_strides=(2, 14, 14), padding="VALID"), (576, 3, 2, 14, 14), (1280, 3, 2, 14, 14), BF16),
    "jax#23085": (plain(window_strides=(16, 16), padding="VALID"), (32, 3, 224, 224), (768, 3, 16, 16), F32),
    "torch#72850": (plain(), (1, 1, 16, 16, 16, 16), (16, 1, 3, 3, 3, 3), F32),
    "jax#37922": (plain(window_strides=(2,), rhs_dilation=(2,)), (2, 4, 16), (16, 4, 3), BF16),
}  # fmt: skip
DIRECTIONS = ("fwd", "dx", "dw")


def shapes(report: str) -> tuple[Any, Any]:
    _, x, w, dtype = REPORTS[report]
    return jax.ShapeDtypeStruct(x, jnp.dtype(dtype)), jax.ShapeDtypeStruct(w, jnp.dtype(dtype))


def gradient_of(report: str, name: str) -> Any:
    """The function whose program is one convolution of a report in one direction, from x or the gradient, as jit sees it."""
    function = REPORTS[report][0]
    x, w = shapes(report)
    y = jax.eval_shape(function, x, w)
    if name == "fwd":
        return function, (x, w)
    if name == "dx":
        return lambda dy, w: jax.linear_transpose(lambda x: function(x, w), x)(dy)[0], (y, w)
    return lambda dy, x: jax.linear_transpose(lambda w: function(x, w), w)(dy)[0], (y, x)


def lowered(function: Any, operands: Any, platform: str) -> str:
    """The program under the switch; nothing is compiled."""
    with fj.accelerate():
        return jax.jit(lambda *a: function(*a)).trace(*operands).lower(lowering_platforms=(platform,)).as_text()


def offences(text: str) -> list[str]:
    """What a lowered program should not hold."""
    found = [f"lhs dilation {list_}" for list_ in re.findall(r"lhs_dilate = \[([^\]]*)\]", text) if set(list_.split(", ")) != {"1"}]
    found += [f"{count} batch groups" for count in re.findall(r"batch_group_count = (\d+)", text) if count != "1"]
    found += [f"{pad} of padding" for pad in re.findall(r"pad = \[\[[^}]*?(-\d+)", text)]
    found += [name for name in ("gather", "custom_call", "while") if f"stablehlo.{name}" in text]
    moved = text.count("stablehlo.transpose")
    return found + ([f"{moved} transpositions"] if moved > 2 else [])


@pytest.mark.parametrize("report", REPORTS)
def test_the_programs_of_the_reports_hold_none_of_what_was_slow(report: str) -> None:
    for name in DIRECTIONS:
        records.clear()
        text = lowered(*gradient_of(report, name), "cuda")
        assert "stablehlo.convolution" in text or "dot_general" in text or "multiply" in text
        assert not offences(text), (name, offences(text), records.report().convolutions)


def test_the_reading_fires() -> None:
    function, operands = gradient_of("jax#23783", "fwd")
    text = jax.jit(function).trace(*operands).lower(lowering_platforms=("cuda",)).as_text()
    assert offences(text) == ["lhs dilation 64"]
    function, operands = gradient_of("jax#13800", "dw")
    text = jax.jit(function).trace(*operands).lower(lowering_platforms=("cuda",)).as_text()
    assert "512 batch groups" in offences(text)
    assert offences("stablehlo.transpose " * 3 + "stablehlo.gather pad = [[0, -2]]") == ["-2 of padding", "gather", "3 transpositions"]


# --- the programs, run ---------------------------------------------------------------------------------------------------------

#: Small forms of the reports, which a CPU runs in no time.
SMALL: dict[str, tuple[Any, tuple[int, ...], tuple[int, ...]]] = {
    "transposed": (plain(padding=((31, 31),), lhs_dilation=(8,), numbers=("NCT", "IOT", "NCT")), (2, 9, 20), (9, 1, 32)),
    "odd transposed": (transposed((3, 2), (1, 0), 1), (2, 4, 5, 6), (5, 4, 4, 3)),
    "smaller than its stride": (transposed((4, 5), (0, 0)), (1, 3, 5, 4), (2, 3, 2, 3)),
    "depthwise transposed": (transposed((3,), (2,), 1, 12), (2, 12, 9), (12, 1, 6)),
    "volume": (mapped(transposed((2, 2, 2), (1, 1, 1), 1)), (1, 6, 5, 4, 3), (1, 6, 3, 3, 3)),
    "causal depthwise": (plain(padding=((3, 0),), feature_group_count=16), (1, 16, 40), (16, 1, 4)),
    "dilated depthwise": (plain(numbers=HWIO, feature_group_count=8, rhs_dilation=(3, 2)), (2, 9, 8, 8), (3, 3, 1, 16)),
    "grouped": (plain(feature_group_count=4), (2, 8, 9), (12, 2, 3)),
    "patches": (plain(window_strides=(4, 3), padding="VALID", numbers=HWIO), (2, 16, 12, 3), (4, 3, 3, 8)),
    "cropped": (plain(padding=((-2, 5), (3, -1)), lhs_dilation=(2, 1), numbers=HWIO), (2, 6, 7, 3), (3, 4, 3, 5)),
    "four axes": (plain(), (1, 2, 4, 3, 4, 3), (3, 2, 3, 2, 3, 3)),
}


def directions(name: str) -> Any:
    """The convolution and both of its gradients, as functions that are linear in what they turn round."""
    function = SMALL[name][0]

    def apply(x: Any, w: Any, dy: Any) -> Any:
        dx = jax.linear_transpose(lambda x: function(x, w), jax.ShapeDtypeStruct(x.shape, x.dtype))(dy)[0]
        dw = jax.linear_transpose(lambda w: function(x, w), jax.ShapeDtypeStruct(w.shape, w.dtype))(dy)[0]
        return [function(x, w), dx, dw]

    return apply


RUNS = [
    ("cuda", None, ("transposed", "odd transposed", "causal depthwise", "grouped", "patches", "volume")),
    ("tpu", "xla:phases", ("odd transposed", "depthwise transposed", "volume", "cropped")),
    ("rocm", "xla:fold_axes", ("smaller than its stride", "dilated depthwise", "four axes")),
]


@pytest.mark.parametrize(("platform", "force", "cases"), RUNS)
def test_the_programs_run_with_the_platform_swapped(
    platform: str, force: str | None, cases: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accelerators, "PAYS", 0.0)  # small problems too
    monkeypatch.setattr(accelerators, "accelerator", lambda name, kind: replace(accelerator(name, kind), call_seconds=1e-12))
    rng = np.random.default_rng(3)

    def everything(*operands: Any) -> Any:
        return [out for at, name in enumerate(cases) for out in directions(name)(*operands[3 * at : 3 * at + 3])]

    operands = []
    for name in cases:
        function, x, w = SMALL[name]
        y = jax.eval_shape(function, *(jax.ShapeDtypeStruct(shape, np.float32) for shape in (x, w))).shape
        operands += [rng.integers(-3, 4, shape).astype(np.float32) for shape in (x, w, y)]
    records.clear()
    with forced(force), fj.accelerate():
        exported = jax.export.export(jax.jit(everything), platforms=[platform])(*operands)
        rows = records.report().convolutions
        got = quickly(replace(exported, platforms=("cpu",)).call, *operands)
    assert sum(row.algorithm.startswith("xla:") for row in rows) > len(cases)
    assert force is None or force in {row.algorithm for row in rows}
    for ours, theirs in zip(got, laxnumpy.evaluate(everything, *operands), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert "gather" not in exported.mlir_module()
    assert "custom_call" not in exported.mlir_module()
