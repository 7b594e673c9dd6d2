"""What is left to XLA, and why: every decline has a reason on record, and nothing large is declined."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jaxtools import conv, engine, jax, records, x64  # noqa: F401

import fastconv.jax as fj
from fastconv.jax import forms, lowering, xla
from fastconv.normalise import Spec, conv_general_dilated
from fastconv.plan import forced, machine
from fastconv.plan.rates import rates

jnp = jax.numpy


def lowered(function: Any, *shapes: tuple[int, ...], dtype: Any = np.float32) -> str:
    """The program of a function under the switch; only lowered, not compiled."""
    with fj.accelerate():
        return jax.jit(lambda *a: function(*a)).lower(*(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes)).as_text()


def only_row() -> forms.Convolution:
    (row,) = records.report().convolutions
    return row


NCHW, NHWC = ("NCHW", "OIHW", "NCHW"), ("NHWC", "HWIO", "NHWC")


def test_directions_are_told_apart() -> None:
    for numbers, shapes in ((NCHW, ((2, 3, 8, 8), (4, 3, 3, 3))), (NHWC, ((2, 8, 8, 3), (3, 3, 3, 4)))):
        records.clear()
        lowered(jax.grad(lambda x, w, n=numbers: jnp.sum(conv(x, w, (2, 2), "SAME", dimension_numbers=n) ** 2), (0, 1)), *shapes)
        found = {row.direction: row.out for row in records.report().convolutions}
        assert (found["dx"], found["dw"]) == shapes
        assert set(found) == {"fwd", "dx", "dw"}


# --- declines ----------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("dtype", [jnp.float8_e4m3fn, jnp.float8_e5m2])
def test_dtypes_the_engine_lacks_are_xlas(dtype: Any) -> None:
    assert lowering.TARGET not in lowered(lambda x, w: conv(x, w, (1,), "SAME"), (1, 2, 8), (3, 2, 3), dtype=dtype)
    assert (only_row().kind, only_row().reason) == ("dtype", f"dtype {np.dtype(dtype).name} is not one of fastconv's")


def tiny(x: Any, w: Any) -> Any:
    return conv(x, w, (1,), "SAME")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "function",
    [
        tiny,
        jax.grad(lambda x, w: jnp.sum(tiny(x, w)), (0, 1)),
        lambda x, w: jax.lax.scan(lambda x, _: (tiny(x, w), None), x, length=1000),
        lambda x, w: jax.grad(lambda w: jnp.sum(jax.lax.scan(lambda x, _: (tiny(x, w), None), x, length=1000)[0]))(w),
        lambda x, w: jax.lax.while_loop(lambda x: jnp.sum(x) < 1, lambda x: tiny(x, w), x),
    ],
    ids=["alone", "gradients", "scan", "scan's gradient", "while"],
)
def test_programs_of_tiny_convolutions_are_xlas_own(function: Any, dtype: str) -> None:
    """A call of the library costs as much as a few hundred products, in a loop each time: the program is the one without the switch."""
    with x64():
        avals = [jax.ShapeDtypeStruct(shape, dtype) for shape in ((1, 1, 8), (1, 1, 3))]
        plain = jax.jit(lambda *a: function(*a)).lower(*avals).as_text()
        records.clear()
        assert lowered(function, *(aval.shape for aval in avals), dtype=dtype) == plain
    assert {row.kind for row in records.report().convolutions} == {"slower"}


def test_a_tiny_convolution_stays_with_xla_and_the_reason_has_both_times() -> None:
    records.clear()
    text = lowered(lambda x, w: conv(x, w, (1,), "SAME"), (1, 1, 8), (1, 1, 3))
    row = only_row()
    assert lowering.TARGET not in text
    assert (row.algorithm, row.kind) == ("xla", "slower")
    assert row.reason is not None
    assert row.reason.startswith("XLA is modelled faster (")
    assert row.seconds == row.xla_seconds


@pytest.mark.usefixtures("engine")
def test_export_and_symbolic_sizes_keep_xlas_operation() -> None:
    from jax import export

    function = jax.jit(lambda x, w: conv(x, w, (1,), "SAME"))
    x, w = jnp.ones((2, 2, 8), jnp.float32), jnp.ones((3, 2, 3), jnp.float32)
    (b,) = export.symbolic_shape("b")
    with fj.accelerate():
        exported = export.export(function)(x, w)
        symbolic = export.export(function)(jax.ShapeDtypeStruct((b, 2, 8), jnp.float32), w)
    assert {row.kind for row in records.report().convolutions} == {"export", "symbolic"}
    np.testing.assert_array_equal(exported.call(x, w), function(x, w))
    np.testing.assert_array_equal(symbolic.call(x, w), function(x, w))
    assert lowering.TARGET not in exported.mlir_module() + symbolic.mlir_module()


@pytest.mark.usefixtures("engine")
def test_complex_and_mixed_results() -> None:
    rng = np.random.default_rng(0)
    x, w = ((rng.integers(-3, 4, s) + 1j * rng.integers(-3, 4, s)).astype(np.complex64) for s in ((2, 3, 9), (4, 3, 3)))
    function = lambda x, w: conv(x, w, (1,), "SAME")  # noqa: E731
    expected = function(x, w)
    with fj.accelerate():
        np.testing.assert_array_equal(jax.jit(function)(x, w), expected)
    for dtype, preferred in ((np.int8, np.int32), (jnp.bfloat16, np.float32), (np.float16, np.float32), (np.int32, np.int32)):
        wide = lambda x, w, p=preferred: conv(x, w, (1,), "SAME", preferred_element_type=p)  # noqa: E731
        a, b = x.real.astype(dtype), w.real.astype(dtype)
        expected = wide(a, b)
        with fj.accelerate():
            got = jax.jit(wide)(a, b)
        assert got.dtype == preferred
        np.testing.assert_array_equal(got, expected)


@pytest.mark.usefixtures("engine")
def test_precision_highest_reaches_the_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(lowering, "choose", lambda problem, extra: seen.append(problem.precision) or (_ for _ in ()).throw(LookupError))
    for precision in (None, "highest", jax.lax.Precision.HIGHEST, ("default", "highest")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            lowered(lambda x, w, p=precision: conv(x, w, (1,), "SAME", precision=p), (1, 2, 8), (3, 2, 3))
    assert seen == ["default", "highest", "highest", "highest"]


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(("precision", "context", "approximate"), [(None, None, True), ("highest", None, False), (None, "highest", False)])
def test_precision_highest_rules_out_approximation(precision: str | None, context: str | None, approximate: bool) -> None:
    with jax.default_matmul_precision(context):
        lowered(lambda x, w: conv(x, w, (1, 1), "SAME", precision=precision), (1, 64, 56, 56), (64, 64, 3, 3))
    assert (only_row().algorithm == "winograd") == approximate


@pytest.mark.usefixtures("engine")
def test_an_error_of_ours_ends_in_xla_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> None:
        raise LookupError("broken by a test")

    monkeypatch.setattr(lowering, "choose", broken)
    with pytest.warns(RuntimeWarning, match="LookupError: broken by a test"):
        text = lowered(lambda x, w: conv(x, w, (1,), "SAME"), (1, 2, 8), (3, 2, 3))
    assert "stablehlo.convolution" in text
    assert only_row().kind == "error"


@pytest.mark.usefixtures("engine")
def test_a_refused_handler_ends_in_a_rewrite(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise ValueError("unsupported version")

    monkeypatch.setattr(jax.ffi, "register_ffi_target", refuse)
    lowering.register_target.cache_clear()
    try:
        with pytest.warns(RuntimeWarning, match="refused its handler: unsupported version"):
            text = lowered(lambda x, w: conv(x, w, (1,), "SAME"), (1, 2, 8), (3, 2, 3))
    finally:
        lowering.register_target.cache_clear()
    assert lowering.TARGET not in text
    assert only_row().algorithm.startswith("xla:")  # XLA's own row is left out by the fixture


def test_every_reason_is_of_a_known_kind() -> None:
    source = Path(lowering.__file__).read_text()
    used = {part.split('"')[1] for part in source.split("Decline(")[1:] if part.startswith('"')}
    assert used == set(lowering.KINDS)


# --- XLA's row ---------------------------------------------------------------------------------------------------------------


def seconds(x: tuple[int, ...], w: tuple[int, ...], dtype: str = "float32", **options: Any) -> float:
    options = {"window_strides": (1,) * (len(x) - 2), "padding": "SAME", **options}
    problem = conv_general_dilated(Spec.contiguous(x, dtype), Spec.contiguous(w, dtype), **options).problem
    return xla.seconds(problem, machine.machine_for("avx512", rates("xla").cores))


@pytest.mark.parametrize(
    ("measured", "x", "w", "dtype", "options"),
    [  # milliseconds of plain JAX on the machine where its rates were fitted
        (2.7, (1, 64, 56, 56), (64, 64, 3, 3), "float32", {}),
        (0.7, (1, 64, 28, 28), (32, 64, 4, 4), "float32", {"lhs_dilation": (2, 2), "padding": ((2, 2), (2, 2))}),
        (29.0, (1, 1, 500, 500), (1, 1, 5, 5), "float32", {}),
        (2.4, (1, 64, 28, 28), (64, 1, 3, 3), "float32", {"feature_group_count": 64}),
        (116.0, (16, 16, 28, 28), (16, 16, 3, 3), "float32", {"batch_group_count": 4}),
        (45.0, (1, 16, 8, 8, 8), (8, 16, 4, 4, 4), "float32", {"lhs_dilation": (2, 2, 2), "padding": ((2, 2),) * 3}),
        (4.8, (16, 1, 25600), (129, 1, 256), "float32", {"window_strides": (64,), "padding": ((256, 256),)}),
        (4.4, (1, 64, 56, 56), (64, 64, 3, 3), "float64", {}),
        (1.7, (1, 64, 28, 28), (64, 1, 3, 3), "float64", {"feature_group_count": 64}),
        (16.0, (4, 32, 1000), (32, 32, 5), "float64", {}),
        (130.0, (1, 64, 56, 56), (64, 64, 3, 3), "int32", {}),
    ],
)
def test_xlas_model_is_near_what_was_measured(measured: float, x: Any, w: Any, dtype: str, options: dict[str, Any]) -> None:
    assert measured / 2.5 < seconds(x, w, dtype, **options) * 1e3 < measured * 2.5


def test_xlas_model_counts_complex_as_three() -> None:
    assert seconds((1, 4, 64), (4, 4, 3), "complex64") == pytest.approx(3 * seconds((1, 4, 64), (4, 4, 3)))


# --- reversed kernels --------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("name", ["block", "points", "direct", "stencil", "general", "grouped"])
@pytest.mark.parametrize("dims", [(2, 3), (2,), (3,), (0, 2), (1,)])
def test_a_reversal_of_taps_is_read_backwards(dims: tuple[int, ...], name: str) -> None:
    """No copy of the kernel is left in the program, and the sums are the same; a reversal of features or channels stays."""
    x, w = (np.random.default_rng(0).integers(-4, 5, shape).astype(np.float32) for shape in ((2, 6, 11, 13), (8, 3, 4, 3)))

    def reversed_conv(x: Any, w: Any) -> Any:
        return conv(x, jax.lax.rev(w, dims), (2, 1), "SAME", dimension_numbers=NCHW, feature_group_count=2)

    with fj.accelerate(), forced(name):
        program = jax.jit(reversed_conv).lower(x, w).compile()
    assert lowering.TARGET in program.as_text()
    assert (" reverse(" in program.as_text()) == (not set(dims) <= {2, 3})
    assert np.array_equal(program(x, w), jax.jit(reversed_conv)(x, w))


@pytest.mark.usefixtures("engine")
def test_an_input_gradient_copies_no_kernel() -> None:
    for numbers, shapes in ((NCHW, ((2, 32, 30, 30), (64, 32, 3, 3))), (NHWC, ((2, 30, 30, 32), (3, 3, 32, 64)))):
        x, w = (np.ones(shape, np.float32) for shape in shapes)

        def gradient(x: Any, w: Any, numbers: Any = numbers) -> Any:
            return jax.grad(lambda x: jnp.sum(conv(x, w, (2, 2), "SAME", dimension_numbers=numbers) ** 2))(x)

        with fj.accelerate():
            program = jax.jit(gradient).lower(x, w).compile()
        assert lowering.TARGET in program.as_text()
        assert " reverse(" not in program.as_text()
        assert np.array_equal(program(x, w), jax.jit(gradient)(x, w))
