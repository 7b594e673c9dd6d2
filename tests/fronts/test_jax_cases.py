"""Public reports that a JAX user can meet: one test each, named after the report. docs/cases.md lists them all.

Values are held against the written-out definition, with everything on the engine; speed is the benchmark's. Dtypes and layers are in
test_jax_cases_layers.py, sharded programs in test_jax_devices.py.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from casetools import NCW, NHWC, NWC, draw, hold, hold_all, rows, with_gradients
from jaxtools import accelerate, all_on_engine, conv, engine, jax, keras, records  # noqa: F401

from fastconv.plan import forced

jnp, lax = jax.numpy, jax.lax
pytestmark = pytest.mark.usefixtures("engine")


# --- speed: the form that was slow is right, and the planner's choice at the report's size is one without the defect --------


def test_jax_23783_transposed_over_a_forward_kernel() -> None:
    def transposed(step: int) -> Callable[..., Any]:
        reach = 4 * step - 1
        return lambda x, w: conv(x, w, (1,), ((reach, reach),), (step,), dimension_numbers=("NCT", "IOT", "NCT"))

    x, w = draw((2, 9, 12), (9, 1, 32))
    hold_all(transposed(8), x, w)
    hold_all(lambda x, w: conv(x, w, (8,), ((32, 32),)), *draw((2, 1, 96), (9, 1, 32)))
    found = rows(transposed(64), (16, 129, 400), (129, 1, 256))
    twin = rows(lambda x, w: conv(x, w, (64,), ((256, 256),)), (16, 1, 25600), (129, 1, 256))
    (back,), (forward,) = found.values(), twin.values()
    assert back.algorithm != "xla"
    assert back.seconds < 2 * forward.seconds


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_jax_31662_weight_gradient_of_a_transposed_volume(dtype: str) -> None:
    def gradient(x: Any, w: Any, c: Any) -> Any:
        layer = lambda w: conv(x, w, (1, 1, 1), ((1, 2),) * 3, (2, 2, 2))  # noqa: E731
        return jax.vmap(lambda c: jax.vjp(layer, w)[1](c)[0])(c[None])

    x, w, c = draw((1, 4, 3, 4, 2), (2, 4, 3, 3, 3), (1, 2, 6, 8, 4), dtype=np.dtype(dtype) if dtype == "float32" else jnp.bfloat16)
    hold(gradient, x, w, c)


def test_equinox_1259_dilated_input_and_written_zeros_have_the_same_gradient() -> None:
    x, w, c = draw((1, 1, 2, 2), (1, 1, 3, 3), (1, 1, 4, 4))
    dilated = lambda w: conv(x, w, (1, 1), ((1, 2), (1, 2)), (2, 2))  # noqa: E731
    written = lambda w: conv(lax.pad(x, np.float32(0), ((0, 0, 0), (0, 0, 0), (0, 0, 1), (0, 0, 1))), w, (1, 1), ((1, 2), (1, 2)))  # noqa: E731
    with accelerate():
        results = [jax.vjp(function, w)[1](c)[0] for function in (dilated, written)]
    np.testing.assert_array_equal(*results)
    all_on_engine()


def test_jax_13800_backward_of_depthwise() -> None:
    depthwise = lambda x, w: conv(x, w, (1,), "SAME", dimension_numbers=NCW, feature_group_count=x.shape[1])  # noqa: E731
    hold_all(depthwise, *draw((2, 20, 33), (1, 20, 5)))
    gradients = lambda x, w: jax.vjp(depthwise, x, w)[1](x)  # noqa: E731
    found = rows(gradients, (32, 512, 1024), (1, 512, 5))
    (forward,) = rows(depthwise, (32, 512, 1024), (1, 512, 5)).values()
    assert len(found) == 2
    assert all(row.algorithm != "xla" and row.seconds < 3 * forward.seconds for row in found.values())


def test_jax_26266_dilated_depthwise_costs_no_more() -> None:
    def depthwise(dilation: int) -> Callable[..., Any]:
        return lambda x, w: conv(x, w, (1,), "SAME", rhs_dilation=(dilation,), feature_group_count=x.shape[1])

    hold_all(depthwise(3), *draw((2, 18, 40), (18, 1, 7)))
    times = [rows(depthwise(dilation), (32, 64, 1024), (64, 1, 16))["fwd"].seconds for dilation in (1, 4, 16, 32)]
    assert max(times) < 1.5 * times[0]


def test_flax_4207_depthwise_layer() -> None:
    """Also jax#23713."""
    nn = pytest.importorskip("flax.linen")
    layer = nn.Conv(24, (3, 3), feature_group_count=24, use_bias=False)
    hold(lambda kernel, x: layer.apply({"params": {"kernel": kernel}}, x), *draw((3, 3, 1, 24), (1, 9, 8, 24)))


def test_jax_12868_inside_a_loop() -> None:
    function = lambda x, w: lax.fori_loop(0, 2, lambda _, x: conv(x, w, (1,), "VALID"), x)  # noqa: E731
    x, w = draw((1, 6, 16), (6, 6, 1))
    with accelerate():
        got = jax.jit(function)(x, w)
    all_on_engine()
    np.testing.assert_array_equal(got, (w[..., 0] @ w[..., 0]) @ x)
    assert rows(function, (1, 1000, 1024), (1000, 1000, 1))["fwd"].algorithm != "xla"


def test_jax_25461_a_stack_filtered_by_an_even_kernel() -> None:
    import scipy.signal

    images, kernel = draw((3, 20, 25), (6, 6))
    padded = np.pad(images, ((0, 0), (3, 3), (3, 3)), mode="reflect")
    with accelerate():
        got = jax.jit(jax.vmap(lambda image: jax.scipy.signal.convolve(image, kernel, mode="valid", method="direct")))(padded)
    all_on_engine()
    np.testing.assert_array_equal(got, [scipy.signal.convolve(image, kernel, "valid", "direct") for image in padded])


def test_jax_5227_signal_convolution_of_equal_images() -> None:
    import scipy.signal

    a, b = draw((24, 24), (24, 24), dtype="float64")
    function = lambda a, b: jax.scipy.signal.convolve2d(a, b, mode="same")  # noqa: E731
    with accelerate():
        got = jax.jit(function)(a, b)
    all_on_engine()
    np.testing.assert_array_equal(got, scipy.signal.convolve2d(a, b, mode="same"))
    row = rows(function, (300, 300), (300, 300), dtype=np.float64)["fwd"]
    assert row.algorithm == "fft"
    assert row.seconds < row.xla_seconds / 100


# --- wrong numbers, crashes, memory ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("channels", [1, 8, 17])
def test_xla_48713_negative_low_padding_crops(channels: int) -> None:
    x, w = draw((1, 15, 6, channels), (1, 1, channels, channels))
    hold_all(lambda x, w: conv(x, w, (1, 1), ((0, 0), (-5, 1)), dimension_numbers=NHWC), x, w)


def test_jax_11517_padding_that_crops_too_much_gives_nothing() -> None:
    x = draw((1, 2, 3, 4))[0]
    patches = lambda x: lax.conv_general_dilated_patches(x, (1, 1), (1, 1), ((-4, -2), (-3, -4)))  # noqa: E731
    cropped = lambda x, w: conv(x, w, (1, 1), ((5, 16), (-5, 1)))  # noqa: E731
    with accelerate():
        for function, shapes in ((patches, (x.shape,)), (cropped, ((1, 1, 2, 3), (1, 1, 2, 2)))):
            arrays = draw(*shapes)
            try:
                expected = jax.eval_shape(function, *arrays).shape
            except (TypeError, ValueError):
                continue  # refused before anything runs
            assert function(*arrays).shape == expected
            assert 0 in expected


def test_jax_10833_vmap_over_no_samples() -> None:
    x, w = np.zeros((0, 2, 3, 8), np.float32), draw((4, 3, 3))[0]
    for function, arrays in ((lambda x: conv(x, w, (1,), "SAME"), (x,)), (lambda w: conv(x[:, 0], w, (1,), "SAME"), (w,))):
        with accelerate():
            got = jax.vmap(function)(*arrays) if arrays[0].shape[0] == 0 else function(*arrays)
        assert got.size == 0
    with accelerate():
        gradient = jax.grad(lambda w: jnp.sum(conv(x[:, 0], w, (1,), "SAME")))(w)
    np.testing.assert_array_equal(gradient, np.zeros_like(w))


def test_jax_8325_an_output_axis_of_nothing() -> None:
    x, w = np.zeros((2, 1, 3, 24, 24), np.float32), np.zeros((4, 1, 2, 22, 22), np.float32)
    function = lambda x, w: conv(x, w, (1, 1, 1), ((0, -2), (0, 0), (0, 0)))  # noqa: E731
    with accelerate():
        assert function(x, w).shape == (2, 4, 0, 3, 3)


def test_keras_22564_a_batch_of_nothing(keras: Any) -> None:  # noqa: F811
    layer = keras.layers.Conv2D(3, 2)
    layer.build((None, 10, 10, 1))
    with accelerate():
        assert layer(np.zeros((0, 10, 10, 1), np.float32)).shape == (0, 9, 9, 3)


def test_nemos_345_filters_over_signals_hold_no_patches() -> None:
    function = jax.vmap(jax.vmap(lambda x, w: jnp.convolve(x, w, "valid"), (None, 0)), (0, None))
    found = rows(function, (200, 20000), (8, 100))
    (seen,) = records._seen.values()
    assert all(row.algorithm != "xla" for row in found.values())
    assert seen.plan is not None
    assert seen.plan.workspace_bytes < 2 * 4 * 200 * 8 * 20000  # patches would be 1.6 GB
    signals, filters = draw((5, 60), (3, 7))
    with accelerate():
        got = jax.jit(function)(signals, filters)
    np.testing.assert_array_equal(got, [[np.convolve(x, w, "valid") for w in filters] for x in signals])


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_jax_31649_not_a_number_stays_where_its_taps_reach(value: float) -> None:
    (x, w) = draw((1, 1, 1000), (1, 1, 200), exact=False)
    x[0, 0, 100] = value
    with accelerate(), forced("fft"), warnings.catch_warnings():
        warnings.simplefilter("error")
        got = np.asarray(jax.jit(lambda x, w: conv(x, w, (1,), "SAME"))(x, w))[0, 0]
    assert records.report().convolutions[-1].algorithm == "fft"
    touched = np.arange(1000) < 200  # those whose 200 taps, 99 of them before, meet element 100
    np.testing.assert_array_equal(~np.isfinite(got), touched)
    clean = np.where(np.isfinite(x), x, 0)[0, 0]
    expected = np.correlate(np.pad(clean.astype(float), (99, 100)), w[0, 0].astype(float), "valid")
    np.testing.assert_allclose(got[~touched], expected[~touched], atol=1e-4)


# --- transformations ---------------------------------------------------------------------------------------------------------


def test_jax_4819_vmap_and_jit_of_two_convolutions() -> None:
    layer = lambda x, w: conv(x, w, (1, 1), "SAME", dimension_numbers=NHWC)  # noqa: E731
    two = lambda x, v, w: layer(layer(x, v), w)  # noqa: E731
    inner = lambda x, v, w, c: jax.vjp(two, x, v, w)[1](c)  # noqa: E731
    hold(jax.vmap(inner), *draw((2, 1, 4, 5, 2), (2, 3, 3, 2, 3), (2, 3, 3, 3, 2), (2, 1, 4, 5, 2)))


def test_jax_1606_per_sample_gradients_of_any_number_of_samples() -> None:
    def gradients(xs: Any, w: Any, cs: Any) -> Any:
        return jax.vmap(lambda x, c: jax.vjp(lambda w: conv(x[None], w, (1, 1), "VALID"), w)[1](c)[0])(xs, cs)

    hold(gradients, *draw((5, 1, 4, 4), (2, 1, 2, 2), (5, 1, 2, 3, 3), dtype="float64"))
    counts = []
    for samples in (3, 300):
        rows(gradients, (samples, 1, 4, 4), (2, 1, 2, 2), (samples, 1, 2, 3, 3), dtype=np.float64)
        counts.append(sum(row.compiled for row in records.report().convolutions))
    assert counts == [1, 1]


def test_jax_3428_a_kernel_for_each_sample() -> None:
    full = lambda x, w: conv(x[None], w[None], (1, 1), ((1, 1), (2, 2)))  # noqa: E731
    x, w, c = draw((3, 1, 2, 3), (3, 1, 2, 3), (3, 1, 1, 3, 5), dtype="float64")
    hold(lambda x, w, c: jax.vmap(with_gradients(full))(x, w, c), x, w, c)


def test_jax_11402_export_with_an_unknown_length() -> None:
    export = pytest.importorskip("jax.export")
    (time,) = export.symbolic_shape("t")

    def model(x: Any, w: Any) -> Any:
        return lax.conv_transpose(conv(x, w, (2,), "SAME", dimension_numbers=NWC), w, (2,), "SAME")

    x, w = draw((1, 10, 3), (4, 3, 3))
    with accelerate():
        exported = export.export(jax.jit(model))(jax.ShapeDtypeStruct((1, time, 3), np.float32), w)
    if find_spec("flatbuffers") is not None:  # JAX serialises by it, and does not ask for it
        exported = export.deserialize(exported.serialize())
    np.testing.assert_array_equal(exported.call(x, w), model(x, w))
