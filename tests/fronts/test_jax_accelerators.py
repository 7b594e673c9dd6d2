"""GPUs and TPUs without one: programs lowered for them, read as StableHLO, and run on the CPU with the platform's name swapped."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from typing import Any

import laxnumpy
import numpy as np
import pytest
from jax import export
from jax.interpreters import mlir
from jaxtools import conv, jax, quickly, records

import fastconv.jax as fj
from fastconv.jax import accelerators
from fastconv.jax.rewrites import table
from fastconv.plan import choose, forced
from fastconv.plan.accelerators import PLATFORMS, PROGRAMS, accelerator, devices

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


def gradient_of(report: str, name: str) -> tuple[Any, Any]:
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
        exported = export.export(jax.jit(everything), platforms=[platform])(*operands)
        rows = records.report().convolutions
        got = quickly(replace(exported, platforms=("cpu",)).call, *operands)
    assert sum(row.algorithm.startswith("xla:") for row in rows) > len(cases)
    assert force is None or force in {row.algorithm for row in rows}
    for ours, theirs in zip(got, laxnumpy.evaluate(everything, *operands), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert "gather" not in exported.mlir_module()
    assert "custom_call" not in exported.mlir_module()


# --- the rule ------------------------------------------------------------------------------------------------------------------


def only_row() -> Any:
    (row,) = records.report().convolutions
    return row


@pytest.mark.parametrize("platform", PLATFORMS)
def test_uninstalled_the_program_is_jaxs_own(platform: str) -> None:
    function, operands = gradient_of("jax#23783", "fwd")

    def program() -> str:
        return jax.jit(lambda *a: function(*a)).trace(*operands).lower(lowering_platforms=(platform,)).as_text()

    before = program()
    fj.install()
    try:
        assert program() != before
    finally:
        fj.uninstall()
    assert program() == before


def test_a_platform_that_nobody_has_heard_of_gets_the_common_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plugin's platform has no rule of its own in JAX: mlir._lowerings is what lowers it."""
    lowered(*gradient_of("jax#23783", "fwd"), "cuda")  # the rules are in place
    monkeypatch.setitem(mlir._platform_specific_lowerings, "cuda", {})
    records.clear()
    text = lowered(*gradient_of("jax#23783", "fwd"), "cuda")
    assert not offences(text)
    assert only_row().algorithm.startswith("xla:")


def test_every_decision_keeps_all_reasons() -> None:
    problem, _ = laxnumpy.problem_of((16, 129, 400), (129, 1, 256), SEED, "float32")
    plan = choose(problem, accelerator("cuda", "NVIDIA H100 80GB HBM3"), extra=(table.xla_row(False),), rows=table.ROWS)
    assert set(plan.considered) == {*PROGRAMS, "xla"}
    assert plan.algorithm in ("xla:phases", "xla:overlap_add")
    own = plan.considered["xla"]
    assert isinstance(own, float)
    assert own > 100 * plan.seconds
    assert plan.considered["xla:fold_axes"] == "lhs dilation"
    assert "lhs dilation" in str(plan)
    assert table.xla_row(True).seconds(problem, accelerator("cuda", "NVIDIA H100")) < own


SEED = {
    "window_strides": (1,),
    "padding": ((255, 255),),
    "lhs_dilation": (64,),
    "rhs_dilation": (1,),
    "dimension_numbers": lax.ConvDimensionNumbers((0, 1, 2), (1, 0, 2), (0, 1, 2)),
    "feature_group_count": 1,
    "batch_group_count": 1,
}


def test_what_is_left_to_xla_has_its_reason() -> None:
    cases = {
        "slower": (plain(numbers=HWIO), (4, 14, 14, 256), (3, 3, 256, 256), F32),
        "dtype": (plain(), (1, 2, 8), (3, 2, 3), "float8_e4m3fn"),
        "unsupported": (plain(padding="VALID"), (0, 2, 8), (3, 2, 3), F32),
    }
    for kind, (function, x, w, dtype) in cases.items():
        records.clear()
        text = lowered(function, tuple(jax.ShapeDtypeStruct(shape, jnp.dtype(dtype)) for shape in (x, w)), "cuda")
        assert "stablehlo.convolution" in text
        row = only_row()
        assert (row.algorithm, row.kind if kind != "slower" else "slower") == ("xla", kind)
        assert row.reason


def test_symbolic_sizes_stay_with_xla() -> None:
    (b,) = export.symbolic_shape("b")
    records.clear()
    with fj.accelerate():
        export.export(jax.jit(plain()), platforms=["cuda"])(
            jax.ShapeDtypeStruct((b, 2, 8), np.float32), jax.ShapeDtypeStruct((3, 2, 3), np.float32)
        )
    assert only_row().kind == "symbolic"


def test_an_error_of_ours_ends_in_xla_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise LookupError("broken by a test")

    monkeypatch.setattr(table, "lowered", broken)
    records.clear()
    with pytest.warns(RuntimeWarning, match="LookupError: broken by a test"):
        text = lowered(*gradient_of("jax#23783", "fwd"), "cuda")
    assert "lhs_dilate = [64]" in text
    assert only_row().kind == "error"


def test_precision_and_preferred_type_reach_the_inner_operations() -> None:
    for force in ("xla:phases", "xla:overlap_add", "xla:per_tap"):
        function = plain(padding=((3, 3),), lhs_dilation=(4,), precision="highest", preferred_element_type=jnp.float32)
        operands = tuple(jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in ((2, 9, 20), (3, 9, 8)))
        with forced(force):
            text = lowered(function, operands, "cuda")
        assert "HIGHEST" in text
        assert "tensor<2x3x76xf32>" in text.split("return")[1]
        inner = [line for line in text.splitlines() if "stablehlo.dot_general" in line or "stablehlo.convolution" in line]
        assert inner
        assert all("f32>" in line.split("->")[-1] for line in inner)
    with forced("xla:overlap_add"):  # half types are added in f32, and rounded once
        text = lowered(plain(padding=((3, 3),), lhs_dilation=(4,)), operands, "cuda")
    assert "stablehlo.add" in text
    assert all("f32>" in line for line in text.splitlines() if "stablehlo.add" in line)


def test_machines_are_known_by_their_device_kind() -> None:
    found = {kind: accelerator(platform, kind).name for platform, kind in KINDS}
    assert found == {
        "NVIDIA H100 80GB HBM3": "NVIDIA H100",
        "NVIDIA H200": "NVIDIA H200",
        "NVIDIA L40S": "NVIDIA L40S",
        "NVIDIA L4": "NVIDIA L4",
        "Tesla V100-SXM2-16GB": "NVIDIA V100",
        "NVIDIA GeForce RTX 4090": "NVIDIA GeForce RTX 4090",
        "AMD Instinct MI300X": "AMD Instinct MI300X",
        "TPU v5 lite": "TPU v5e",
        "NVIDIA B999": "NVIDIA B999, taken for NVIDIA L4",
        "Apple M9": "Apple M9, taken for NVIDIA L4",
    }
    for row in devices():
        assert row["source"]
        assert 0 < row["single"] <= row["matrix"] <= row["half"]
        assert all(accelerator(row["platform"], kind).name for kind in row["kinds"])


KINDS = [
    ("cuda", "NVIDIA H100 80GB HBM3"),
    ("cuda", "NVIDIA H200"),
    ("cuda", "NVIDIA L40S"),
    ("cuda", "NVIDIA L4"),
    ("cuda", "Tesla V100-SXM2-16GB"),
    ("cuda", "NVIDIA GeForce RTX 4090"),
    ("rocm", "AMD Instinct MI300X"),
    ("tpu", "TPU v5 lite"),
    ("cuda", "NVIDIA B999"),
    ("metal", "Apple M9"),
]


# --- partitioned programs ------------------------------------------------------------------------------------------------------

SHARDED = """
import re, sys
sys.path[:0] = sys.argv[1:]
import jax, numpy as np
import fastconv.jax as fj
from fastconv.jax import records
from fastconv.plan import forced
conv = jax.lax.conv_general_dilated
mesh = jax.sharding.Mesh(np.array(jax.devices()), ("batch",))
spec = jax.sharding.PartitionSpec
def place(shape, *names):
    return jax.ShapeDtypeStruct(shape, np.float32, sharding=jax.sharding.NamedSharding(mesh, spec(*names)))
up = lambda x, w: conv(x, w, (1,), ((31, 31),), lhs_dilation=(8,))
depthwise = lambda x, w: conv(x, w, (1,), "SAME", feature_group_count=16)
patches = lambda x, w: conv(x, w, (4, 4), "VALID")
CASES = {
    "xla:phases": (up, (8, 16, 20), (2, 16, 32)),
    "xla:overlap_add": (up, (8, 16, 20), (1, 16, 32)),
    "xla:per_tap": (depthwise, (8, 16, 40), (16, 1, 4)),
    "xla:patches": (patches, (8, 3, 16, 16), (32, 3, 4, 4)),
}
def gathered(text):
    return re.findall(r"= \\w+\\[[\\d,]*\\][^=]* all-gather", text)
for name, (function, x, w) in CASES.items():
    both = lambda x, w: (function(x, w), jax.grad(lambda w: (function(x, w) ** 2).sum())(w))
    operands = place(x, "batch"), place(w)
    quick = {"xla_backend_optimization_level": 0}
    plain = jax.jit(lambda *a: both(*a)).lower(*operands).compile(quick)
    records.clear()
    with forced(name), fj.accelerate():
        ours = jax.jit(lambda *a: both(*a)).lower(*operands).compile(quick)
    assert name in {row.algorithm for row in records.report().convolutions}, name
    assert gathered(ours.as_text()) == [], (name, gathered(ours.as_text()))
    kinds = lambda text: {kind for kind in ("all-reduce", "all-to-all", "collective-permute") if kind + "(" in text}
    assert kinds(ours.as_text()) <= kinds(plain.as_text()), (name, kinds(ours.as_text()), kinds(plain.as_text()))
    assert ours.output_shardings[0].is_equivalent_to(plain.output_shardings[0], len(x)), name
    print(name)
"""


def test_a_partitioned_program_moves_nothing_more_between_devices() -> None:
    flags = os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
    done = subprocess.run(
        [sys.executable, "-c", SHARDED, *sys.path],
        env={**os.environ, "XLA_FLAGS": flags}, capture_output=True, text=True, timeout=580,
    )  # fmt: skip
    assert done.stdout.split() == ["xla:phases", "xla:overlap_add", "xla:per_tap", "xla:patches"], done.stderr[-2000:]
