"""Public reports that a JAX user can meet: one test each, named after the report. docs/cases.md lists them all.

Values are held against the written-out definition, with everything on the engine; speed is the benchmark's. Here: dtypes, conventions,
layers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from casetools import NHWC, NWC, draw, hold, hold_all
from jaxtools import accelerate, all_on_engine, conv, engine, jax, keras  # noqa: F401

import fastconv.jax as fj

jnp, lax = jax.numpy, jax.lax
pytestmark = pytest.mark.usefixtures("engine")


# --- dtypes ------------------------------------------------------------------------------------------------------------------


def test_jax_7637_int8_accumulates_in_int32() -> None:
    """Also jax#14585."""
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((2, 4, 12, 11), (8, 4, 3, 3)))
    (got,) = hold(lambda x, w: conv(x, w, (1, 1), "SAME", preferred_element_type=np.int32), x, w)
    assert got.dtype == np.int32
    assert np.abs(got).max() > 32767


def test_jax_10128_small_integers_and_their_accumulator() -> None:
    """Also jax#16461."""
    x = np.full(4, 127, np.int8)
    w = np.full(4, 2, np.int8)
    with accelerate():
        got = jnp.convolve(x, w, "valid", preferred_element_type=np.int32)
        assert (got.tolist(), got.dtype) == ([1016], np.int32)
        assert conv(x[None, None], w[None, None], (1,), "VALID").dtype == np.int8
        y = conv(*draw((1, 1, 100), (1, 1, 5), dtype=np.int32), (1,), "VALID")
    assert y.dtype == np.int32
    all_on_engine()


def test_jax_3706_complex_and_its_adjoint() -> None:
    re, im, kre, kim, cre, cim = draw((1, 2, 5, 4), (1, 2, 5, 4), (3, 2, 2, 3), (3, 2, 2, 3), (1, 3, 4, 2), (1, 3, 4, 2))
    x, w, c = ((a + 1j * b).astype(np.complex64) for a, b in ((re, im), (kre, kim), (cre, cim)))
    function = lambda x, w: conv(x, w, (1, 1), "VALID")  # noqa: E731
    with accelerate():
        y, pull = jax.vjp(function, x, w)
        dx, dw = (np.asarray(g) for g in pull(np.conj(c)))
        one = conv(np.full((1, 1, 1, 1), 1 + 2j, np.complex64), np.full((1, 1, 1, 1), 3 - 1j, np.complex64), (1, 1), "VALID")
    assert one[0, 0, 0, 0] == (1 + 2j) * (3 - 1j)
    inner = np.sum(np.conj(c) * y)  # linear in x and in w: the pulled-back cotangent gives the same inner product
    assert inner == np.sum(dx * x) == np.sum(dw * w)
    all_on_engine()


def test_jax_940_double_precision() -> None:
    hold_all(lambda x, w: conv(x, w, (2, 1), "SAME"), *draw((2, 3, 9, 8), (4, 3, 3, 3), dtype="float64", exact=False), exact=False)


def test_jax_37922_bfloat16_with_stride_and_dilation() -> None:
    hold_all(lambda x, w: conv(x, w, (2,), "SAME", rhs_dilation=(2,)), *draw((2, 4, 16), (16, 4, 3), dtype=jnp.bfloat16))


def test_jax_11143_float16_with_a_bias() -> None:
    x, w, b = draw((2, 12, 16), (3, 16, 8), (8,), dtype=np.float16)
    got = fj.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=NWC, bias=b)
    expected = conv(*(a.astype(np.float64) for a in (x, w)), (1,), "SAME", dimension_numbers=NWC) + b.astype(np.float64)
    assert got.dtype == np.float16
    np.testing.assert_array_equal(got, expected)


def test_jax_22855_one_answer() -> None:
    """Also jax#15976: no choice is left to measurements made while compiling."""
    x, w, r = draw((4, 8, 8, 16), (3, 3, 16, 16), (4, 8, 8, 16), exact=False)
    with accelerate():
        programs = [jax.jit(lambda x, w, r: conv(x, w, (1, 1), "SAME", dimension_numbers=NHWC) + r) for _ in range(2)]
        results = [np.asarray(program(x, w, r)).tobytes() for program in programs for _ in range(3)]
    assert len(set(results)) == 1


# --- conventions of transposed layers and padding ----------------------------------------------------------------------------


def test_jax_17618_transposed_padding_means_what_it_does_in_jax() -> None:
    """Also flax#4593 and jax#32268: which shape follows is the installed JAX's; the values are its definition's."""
    for size, kernel, stride, padding in ((8, 4, 4, ((0, 0),)), (8, 4, 4, "VALID"), (4, 3, 1, ((0, 0),)), (5, 3, 2, "SAME")):
        x, w = draw((1, size, 3), (kernel, 3, 2))
        hold_all(lambda x, w, s=stride, p=padding: lax.conv_transpose(x, w, (s,), p), x, w)
        assert fj.conv_transpose(x, w, (stride,), padding).shape == lax.conv_transpose(x, w, (stride,), padding).shape


def test_jax_12659_the_odd_zero_of_transposed_same() -> None:
    ones = np.ones((1, 2, 2, 1), np.float32)
    (got,) = hold(lambda x, w: lax.conv_transpose(x, w, (1, 1), "SAME"), ones, ones.reshape(2, 2, 1, 1))
    np.testing.assert_array_equal(got[0, :, :, 0], [[1, 2], [2, 4]])


@pytest.mark.parametrize(("kernel", "stride"), [(5, 1), (4, 2)])
def test_flax_2577_a_circular_transposed_layer_is_the_adjoint(kernel: int, stride: int) -> None:
    """Also flax#2362."""
    nn = pytest.importorskip("flax.linen")
    options = {"kernel_size": (kernel, kernel), "strides": (stride, stride), "padding": "CIRCULAR", "use_bias": False}
    forward, back = nn.Conv(3, **options), nn.ConvTranspose(2, **options, transpose_kernel=True)
    x, y, w = draw((1, 6, 6, 2), (1, 6 // stride, 6 // stride, 3), (kernel, kernel, 2, 3))
    with accelerate():
        ahead = forward.apply({"params": {"kernel": w}}, x)
        pulled = jax.vjp(lambda x: forward.apply({"params": {"kernel": w}}, x), x)[1](y)[0]
        there = back.apply({"params": {"kernel": w}}, y)
    assert np.sum(ahead * y) == np.sum(x * pulled)
    all_on_engine()
    np.testing.assert_array_equal(there, pulled)


def test_equinox_661_padding_modes_with_stride() -> None:
    """Also equinox#638, #658."""
    eqx = pytest.importorskip("equinox")
    x, w = draw((2, 9), (3, 2, 3))

    def layer(mode: str) -> Any:
        options = {"stride": 2, "padding": "SAME", "padding_mode": mode, "use_bias": False}
        return eqx.tree_at(lambda layer: layer.weight, eqx.nn.Conv1d(2, 3, 3, **options, key=jax.random.key(0)), w)

    modes = {"CIRCULAR": "wrap", "REFLECT": "reflect", "REPLICATE": "edge"}
    layers = [layer(mode) for mode in modes]
    with accelerate():
        results = jax.jit(lambda x: [layer(x) for layer in layers])(x)
    all_on_engine()
    for got, mode in zip(results, modes.values(), strict=True):
        padded = np.pad(x, ((0, 0), (1, 1)), mode=mode)  # pyright: ignore[reportCallIssue, reportArgumentType]
        windows = np.lib.stride_tricks.sliding_window_view(padded, 3, axis=1)[:, ::2]
        np.testing.assert_array_equal(got, np.einsum("oik,itk->ot", w, windows))


def test_keras_22428_output_padding_is_checked_first(keras: Any) -> None:  # noqa: F811
    with accelerate(), pytest.raises(ValueError, match="output_padding"):
        keras.layers.Conv1DTranspose(16, 3, strides=1, output_padding=1)(np.zeros((4, 10, 128), np.float32))


def test_keras_20408_dilated_transposed(keras: Any) -> None:  # noqa: F811
    """Also keras#19870, #23181."""
    for x, w, options in (((1, 20, 4), (3, 5, 4), {"dilation_rate": 3}), ((1, 8, 8, 3), (3, 3, 2, 3), {"strides": 2, "dilation_rate": 2})):
        hold(lambda x, w, o=options: keras.ops.conv_transpose(x, w, padding="valid", **o), *draw(x, w))
    hold(lambda x, w: keras.ops.conv(x, w, strides=2, padding="valid", dilation_rate=2), *draw((1, 8, 8, 3), (3, 3, 3, 2)))


def test_jax_4637_grouped_transposed() -> None:
    back = lambda y, w: jax.vjp(lambda x: conv(x, w, (2, 2), "SAME", feature_group_count=4), np.zeros((1, 4, 6, 6), np.float32))[1](y)[0]  # noqa: E731
    hold(back, *draw((1, 8, 3, 3), (8, 1, 3, 3)))


def test_jax_4592_every_output_size_of_a_stride() -> None:
    y, w = draw((1, 3, 7), (3, 2, 4))
    for size in (22, 23, 24):
        function = lambda y, w, n=size: jax.vjp(lambda x: conv(x, w, (3,), "VALID"), np.zeros((1, 2, n), np.float32))[1](y)[0]  # noqa: E731
        assert hold(function, y, w)[0].shape == (1, 2, size)


def test_torch_72850_four_dimensions() -> None:
    hold_all(lambda x, w: conv(x, w, (1,) * 4, "SAME"), *draw((1, 1, 3, 4, 3, 3), (16, 1, 3, 3, 3, 3)))
    hold_all(lambda x, w: conv(x, w, (1,) * 4, "SAME"), *draw((1, 3, 3, 2, 3, 3), (4, 3, 1, 1, 1, 1)))
