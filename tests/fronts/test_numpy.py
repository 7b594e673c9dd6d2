"""The NumPy front: values against the definition and torch, views and awkward arrays, options, `out=`, dims."""

# ruff: noqa: E501 (one case a line in the tables)

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpytools import draw, hold, hold_op, rng, spec

import fastconv as fc
from fastconv import check, normalise
from fastconv._numpy import calls
from fastconv.problem import DTYPES
from fastconv.reference import numpy_dtype


@st.composite
def geometries(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]:
    """Shapes and options of the family that fit each other."""
    axes = draw(st.integers(0, 3))
    transposed = draw(st.booleans())
    groups = draw(st.sampled_from((1, 1, 2, 3)))
    channels, features = draw(st.integers(1, 5)) * groups, draw(st.integers(1, 5)) * groups
    size = [draw(st.integers(1, 9)) for _ in range(axes)]
    kernel = [draw(st.integers(1, 4)) for _ in range(axes)]
    stride = [draw(st.integers(1, 3)) for _ in range(axes)]
    dilation = [draw(st.integers(1, 3)) for _ in range(axes)]
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    padding: Any = []
    for n, r, s in zip(size, reach, stride, strict=True):
        lo, hi = draw(st.integers(-2, 4)), draw(st.integers(-2, 4))
        padding.append((lo, min(hi, (n - 1) * s + r - lo) if transposed else max(hi, r - n - lo)))
    options: dict[str, Any] = {"stride": stride, "padding": tuple(padding), "dilation": dilation, "groups": groups}
    options["layout"] = draw(st.sampled_from(("NC", "N...C")))
    options["flip"] = draw(st.booleans())
    options["transposed"] = transposed
    if transposed:
        options["output_padding"] = [draw(st.integers(0, max(s, d) - 1)) for s, d in zip(stride, dilation, strict=True)]
    elif draw(st.integers(0, 3)) == 2:
        options["padding"] = draw(st.sampled_from(("same", "same_lower")))
    batch = draw(st.integers(0, 3))
    x = (batch, channels, *size) if options["layout"] == "NC" else (batch, *size, channels)
    w = (channels, features // groups, *kernel) if transposed else (features, channels // groups, *kernel)
    return x, w, options


@settings(max_examples=100)
@given(geometries(), st.sampled_from(("float32", "float32", "float64", "float16", "bfloat16", "complex64", "int8", "int64")))
def test_the_whole_family(drawn: tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]], dtype: str) -> None:
    """Forward, both gradients, by options and by dims, against the definition."""
    x_shape, w_shape, options = drawn
    dims = fc.ConvDims(x_shape, w_shape, **options)
    x, w, dy = draw(x_shape, dtype), draw(w_shape, dtype, 1), draw(dims.output_shape, dtype, 2)
    y = fc.conv(x, w, dims)
    hold_op("conv", y, dims, x, w)
    plain = {name: value for name, value in options.items() if name not in ("transposed", "output_padding")}
    if not options["transposed"]:
        np.testing.assert_array_equal(fc.conv(x, w, **plain), y)
    elif not options["flip"]:
        plain.pop("flip")
        np.testing.assert_array_equal(fc.conv_transpose(x, w, output_padding=options["output_padding"], **plain), y)
    if dtype == "complex64":  # the gradients conjugate: held by the adjoint identity below
        return
    dx = fc.conv_input_grad(dy, w, dims)
    dw = fc.conv_weight_grad(x, dy, dims)
    hold_op("input_grad", dx, dims, dy, w)
    hold_op("weight_grad", dw, dims, x, dy)
    np.testing.assert_array_equal(fc.conv_input_grad(dy, w, x_shape, **options), dx)
    np.testing.assert_array_equal(fc.conv_weight_grad(x, dy, w_shape, **options), dw)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "complex128"])
def test_gradients_are_adjoint(dtype: str, transposed: bool) -> None:
    """<conv(x, w), dy> = <x, dx> = <w, dw> with <a, b> = sum conj(a) * b, both where x and where dy is the smaller array."""
    for size in (4, 40):
        dims = fc.ConvDims(
            (2, 4, size), (4, 3, 3) if transposed else (6, 2, 3), groups=1 if transposed else 2, stride=2, padding=1, transposed=transposed
        )
        x, w, dy = draw(dims.x_shape, dtype), draw(dims.w_shape, dtype, 1), draw(dims.output_shape, dtype, 2)
        inner = np.vdot(fc.conv(x, w, dims), dy)
        np.testing.assert_allclose(np.vdot(x, fc.conv_input_grad(dy, w, dims)), inner, rtol=1e-12)
        np.testing.assert_allclose(np.vdot(w, fc.conv_weight_grad(x, dy, dims)), inner, rtol=1e-12)


@pytest.mark.parametrize("activation", [None, "relu", "gelu", "gelu_tanh", "silu", "tanh", "sigmoid", "leaky_relu"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("op", ["conv", "conv_transpose"])
def test_bias_and_activation(op: str, dtype: str, activation: str | None) -> None:
    transposed = op == "conv_transpose"
    dims = fc.ConvDims((2, 3, 9), (3, 5, 3) if transposed else (5, 3, 3), padding=1, transposed=transposed)
    x, w, bias = draw(dims.x_shape, dtype), draw(dims.w_shape, dtype, 1), draw((10,), dtype, 2)[::2]
    function = fc.conv_transpose if transposed else fc.conv
    y = function(x, w, padding=1, bias=bias, activation=activation)
    hold_op("conv", y, dims, x, w, bias=np.ascontiguousarray(bias), activation=activation)


def awkward(array: np.ndarray, how: str) -> np.ndarray:
    """The same values in another kind of array."""
    if how == "fortran":
        return np.asfortranarray(array)
    if how == "reversed":
        every = (slice(None, None, -1),) * array.ndim
        return np.ascontiguousarray(array[every])[every]
    if how == "strided":
        wide = np.zeros((*array.shape[:-1], 3 * array.shape[-1]), array.dtype)
        wide[..., 1::3] = array
        return wide[..., 1::3]
    if how == "swapped bytes":
        return array.astype(array.dtype.newbyteorder())
    if how == "unaligned":
        raw = np.zeros(array.nbytes + 1, np.uint8)
        moved = raw[1:].view(array.dtype).reshape(array.shape)
        moved[...] = array
        return moved
    if how == "field":
        records = np.zeros(array.shape, np.dtype([("a", "u1"), ("b", array.dtype)]))
        records["b"] = array
        return records["b"]
    if how == "read-only":
        array = array.copy()
        array.flags.writeable = False
        return array
    if how == "transposed":
        return np.ascontiguousarray(array.T).T
    return array.copy()


HOWS = ("fortran", "reversed", "strided", "swapped bytes", "unaligned", "field", "read-only", "transposed")


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "complex64", "float16", "bfloat16"])
def test_awkward_arrays(how: str, dtype: str) -> None:
    """x, w, bias and out as other kinds of arrays, one at a time and all together."""
    if dtype == "bfloat16" and how == "swapped bytes":
        pytest.skip("bfloat16 has no other byte order")
    x, w, bias = (check.operand(rng(), shape, dtype, exact=True) for shape in ((2, 3, 9), (4, 3, 3), (4,)))
    expected = fc.conv(x, w, padding=1, bias=bias)  # sums are exact, so that no order of summation shows
    for chosen in ("x", "w", "bias", "out", "all"):
        a, b, c = (awkward(array, how) if chosen in (name, "all") else array for name, array in (("x", x), ("w", w), ("bias", bias)))
        out = np.full_like(expected, 7)
        if chosen in ("out", "all") and how != "read-only":
            out = awkward(out, how)
        keep = [array.copy() for array in (a, b, c)]
        assert fc.conv(a, b, padding=1, bias=c, out=out) is out
        np.testing.assert_array_equal(out, expected)
        np.testing.assert_array_equal(fc.conv(a, b, padding=1, bias=c), expected)
        for array, before in zip((a, b, c), keep, strict=True):
            np.testing.assert_array_equal(array, before)


@pytest.mark.parametrize("dtype", DTYPES)
def test_broadcast_arrays(dtype: str) -> None:
    """Zero strides are read where they lie."""
    a, b = (check.operand(rng(seed), (1, 3, 1), dtype, exact=True) for seed in (0, 1))
    x, w = np.broadcast_to(a, (2, 3, 9)), np.broadcast_to(b, (4, 3, 3))
    np.testing.assert_array_equal(fc.conv(x, w), fc.conv(x.copy(), w.copy()))


def test_empty_arrays() -> None:
    assert fc.conv(np.zeros((0, 3, 8)), np.zeros((4, 3, 3))).shape == (0, 4, 6)
    assert fc.conv(np.zeros((2, 3, 8)), np.zeros((0, 3, 3))).shape == (2, 0, 6)
    np.testing.assert_array_equal(fc.conv(np.zeros((2, 0, 8)), np.zeros((4, 0, 3)), bias=np.arange(4.0))[0, :, 0], np.arange(4.0))
    np.testing.assert_array_equal(fc.conv(np.zeros((1, 1, 0)), np.ones((1, 1, 2)), padding=1), np.zeros((1, 1, 1)))
    assert fc.conv(np.zeros((1, 1, 0)), np.ones((1, 1, 2)), padding="same").shape == (1, 1, 0)
    np.testing.assert_array_equal(fc.conv_weight_grad(np.zeros((0, 3, 8)), np.zeros((0, 4, 6)), (4, 3, 3)), np.zeros((4, 3, 3)))
    assert fc.conv_input_grad(np.zeros((0, 4, 6)), np.zeros((4, 3, 3)), (0, 3, 8)).shape == (0, 3, 8)
    np.testing.assert_array_equal(fc.conv_general_dilated(np.ones((1, 1, 3)), np.ones((1, 1, 5)), (1,), "VALID"), np.zeros((1, 1, 0)))
    np.testing.assert_array_equal(fc.conv_general_dilated(np.ones((1, 1, 3)), np.ones((1, 1, 0)), (1,), "VALID"), np.zeros((1, 1, 4)))


def test_lists_and_scalars_of_other_types() -> None:
    x, w = [[[1.0, 2.0, 3.0]]], [[[1.0, 10.0]]]
    expected = [[[21.0, 32.0]]]
    assert fc.conv(x, w).tolist() == expected
    options: dict[str, Any] = {"stride": np.int32(1), "padding": [[np.int8(0), 0]], "dilation": np.array([1]), "flip": np.False_}
    assert fc.conv(x, w, **options).tolist() == expected
    with pytest.warns(PendingDeprecationWarning):
        matrix = np.matrix([[1.0, 2.0]])
    assert type(fc.conv(matrix, matrix)) is np.ndarray


def test_specials_on_padding_leave_no_trace() -> None:
    x, w = np.array([[[1.0, 2.0]]]), np.array([[[np.inf, 1.0, np.nan]]])
    np.testing.assert_array_equal(fc.conv(x, w, padding=((1, 0),), dilation=1), [[[np.nan]]])
    np.testing.assert_array_equal(fc.conv(x, w[..., :2], padding=((1, 0),)), [[[1.0, np.inf]]])
    np.testing.assert_array_equal(fc.conv_transpose(x, w[..., :2], stride=2), [[[np.inf, 1.0, np.inf, 2.0]]])


def test_the_cache_tells_options_apart() -> None:
    """A right call does not let a wrong one of equal hash through."""
    x, w = np.ones((1, 1, 8), np.float32), np.ones((1, 1, 3), np.float32)
    cases: list[tuple[dict[str, Any], tuple[dict[str, Any], ...]]] = [
        ({"stride": 1}, ({"stride": 1.0}, {"stride": True}, {"stride": np.float32(1)}, {"stride": (1.0,)}, {"stride": [True]})),
        ({"padding": 1}, ({"padding": 1.0}, {"padding": True}, {"padding": ((1, 1.0),)}, {"padding": ((True, 1),)})),
        ({"padding": ((1, 1),)}, ({"padding": (1, 1)}, {"padding": ((1.0, 1),)})),
        ({"groups": 1}, ({"groups": 1.0}, {"groups": True})),
        ({"flip": False}, ({"flip": 0}, {"flip": 0.0}, {"flip": None})),
        ({"activation": None}, ({"activation": False}, {"activation": []})),
    ]
    for right, wrongs in cases:
        fc.conv(x, w, **right)
        for wrong in wrongs:
            for _ in range(2):
                with pytest.raises((TypeError, ValueError)):
                    fc.conv(x, w, **wrong)
    assert fc.conv(x, w, flip=True).shape == fc.conv(x, w, stride=(1,)).shape == fc.conv(x, w, stride=[1]).shape


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "_entries", {})
    monkeypatch.setattr(calls, "_MOST_ENTRIES", 20)
    w = np.ones((1, 1, 1), np.float32)
    for size in range(1, 60):
        fc.conv(np.broadcast_to(np.float32(1), (1, 1, size)), w)
    assert len(calls._entries) == 20


def test_dims() -> None:
    x, w = draw((2, 3, 9)), draw((4, 3, 3))
    dims = fc.ConvDims(x.shape, w.shape, stride=2)
    assert (
        fc.conv(x, w, dims, bias=np.zeros(4, np.float32), activation="relu", out=np.zeros(dims.output_shape, np.float32)).shape
        == dims.output_shape
    )
    options: list[dict[str, Any]] = [
        {"stride": 2},
        {"stride": 1},
        {"padding": 0},
        {"dilation": 1},
        {"groups": 1},
        {"layout": "NC"},
        {"flip": False},
    ]
    for option in options:
        with pytest.raises(TypeError, match="must not be given together with dims, which holds the geometry"):
            fc.conv(x, w, dims, **option)
        with pytest.raises(TypeError, match="must not be given together with dims, which holds the geometry"):
            fc.conv_input_grad(draw(dims.output_shape), w, dims, **option)
        with pytest.raises(TypeError, match="must not be given together with dims, which holds the geometry"):
            fc.conv_weight_grad(x, draw(dims.output_shape), dims, **option)
    with pytest.raises(TypeError, match="dims must be a ConvDims, got 3"):
        fc.conv(x, w, 3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"x must have shape \(2, 3, 9\), got \(2, 3, 8\)"):
        fc.conv(x[..., :8], w, dims)


def refusals() -> list[tuple[str, Any, type[Exception], str]]:
    x, w = draw((2, 3, 9)), draw((4, 3, 3))
    shared = np.zeros(200, np.float32)
    read_only = np.zeros((2, 4, 7), np.float32)
    read_only.flags.writeable = False
    big = np.zeros(54 + 56, np.float32)
    over_x, out_over_x = big[:54].reshape(2, 3, 9), big[50:106].reshape(2, 4, 7)
    masked = np.ma.masked_array(x, x > 0)
    return [
        ("mixed dtypes", lambda: fc.conv(x, w.astype(np.float64)), TypeError, "w must have x's dtype float32, got float64"),
        ("bool", lambda: fc.conv(x > 0, w > 0), TypeError, "x must have one of the dtypes float32, .*, got bool"),
        ("longdouble", lambda: fc.conv(x.astype(np.longdouble), w.astype(np.longdouble)), TypeError, "x must have one of the dtypes .*, got float128|got longdouble"),
        ("strings", lambda: fc.conv([["a"]], [["b"]]), TypeError, "x must have one of the dtypes .*, got str32"),
        ("ragged", lambda: fc.conv([[1.0], [1.0, 2.0]], [[1.0]]), ValueError, "x must be an array or nested lists of equal lengths"),
        ("masked x", lambda: fc.conv(masked, w), TypeError, "x must be an array without a mask, got MaskedArray"),
        ("masked out", lambda: fc.conv(x, w, out=np.ma.zeros((2, 4, 7), np.float32)), TypeError, "out must be an array without a mask, got MaskedArray"),
        ("out list", lambda: fc.conv(x, w, out=cast(Any, [1.0])), TypeError, "out must be a NumPy array, got list"),
        ("out shape", lambda: fc.conv(x, w, out=np.zeros((2, 4, 8), np.float32)), ValueError, r"out must have shape \(2, 4, 7\), got \(2, 4, 8\)"),
        ("out dtype", lambda: fc.conv(x, w, out=np.zeros((2, 4, 7))), TypeError, "out must have dtype float32, got float64"),
        ("out read-only", lambda: fc.conv(x, w, out=read_only), ValueError, r"out must be writeable, got a read-only array of shape \(2, 4, 7\)"),
        ("out over x", lambda: fc.conv(over_x, w, out=out_over_x), ValueError, "out must not overlap x, got arrays that share memory"),
        ("out over bias", lambda: fc.conv(x, w, bias=shared[3:7], out=shared[:56].reshape(2, 4, 7)), ValueError, "out must not overlap bias"),
        ("out over itself", lambda: fc.conv(x, w, out=np.lib.stride_tricks.as_strided(shared, (2, 4, 7), (16, 4, 4))), ValueError, "out must not overlap itself"),
        ("transposed out over w", lambda: fc.conv_transpose(x, w[:3], out=shared[:9].reshape(3, 3, 1)), ValueError, "out must have shape"),
        ("unbatched", lambda: fc.conv(x[0], w), ValueError, "w must have as many dimensions as x"),
        ("kernel too large", lambda: fc.conv(x, w, dilation=5), ValueError, "w's dilated kernel must fit into the padded x"),
        ("int activation", lambda: fc.conv(np.ones((1, 1, 3), int), np.ones((1, 1, 1), int), activation="relu"), TypeError, "activation must be None for dtype int64"),
        ("op", lambda: fc.plan((1, 1, 8), (1, 1, 3), op="fft"), ValueError, "op must be one of 'conv', 'conv_transpose', 'input_grad', 'weight_grad', got 'fft'"),
        ("plan dtype", lambda: fc.plan((1, 1, 8), (1, 1, 3), dtype="float8"), TypeError, "dtype must be a dtype, got 'float8'"),
        ("threads", lambda: fc.set_num_threads(0), ValueError, "n must be at least 1, got 0"),
        ("threads type", lambda: fc.set_num_threads(2.0), TypeError, "n must be an int, got 2.0"),  # type: ignore[arg-type]
        ("convn bool", lambda: fc.convn(np.ones(3, bool), np.ones(2, bool)), TypeError, "x must have one of the dtypes .*, got bool"),
        ("convn ranks", lambda: fc.convn(np.ones(3), np.ones((2, 2))), ValueError, "k must have as many dimensions as x"),
        ("convn strings", lambda: fc.convn(np.ones(3), np.array(["a"])), TypeError, "x must have one of the dtypes .*, got str"),
        ("convn dates", lambda: fc.convn(np.ones(3), np.zeros(2, "M8[s]")), TypeError, r"k must have a dtype that promotes with x's float64, got datetime64\[s\]"),
        ("target", lambda: fc.conv_input_grad(np.ones((1, 1, 3)), np.ones((1, 1, 1)), 3), TypeError, "x_shape must be a shape"),  # type: ignore[arg-type]
        ("dy", lambda: fc.conv_weight_grad(x, np.ones((2, 4, 6), np.float32), (4, 3, 3)), ValueError, r"dy must have shape \(2, 4, 7\), got \(2, 4, 6\)"),
    ]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), [row[1:] for row in refusals()], ids=[row[0] for row in refusals()])
def test_bad_input(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_nothing_is_written_before_an_error() -> None:
    x, w = draw((2, 3, 9)), draw((4, 3, 3))
    out = np.full((2, 4, 7), 7, np.float32)
    wrong: list[dict[str, Any]] = [{"activation": "softplus"}, {"precision": "low"}, {"bias": np.zeros(3, np.float32)}, {"stride": 2}]
    for options in wrong:
        with pytest.raises(ValueError, match="must"):
            fc.conv(x, w, out=out, **options)
    assert (out == 7).all()


def test_out_may_interleave_with_an_input() -> None:
    both = np.zeros((2, 4, 9, 2), np.float32)
    x, w = (check.operand(rng(), shape, "float32", exact=True) for shape in ((2, 4, 9), (4, 4, 3)))
    both[..., 0] = x
    fc.conv(both[..., 0], w, padding=1, out=both[..., 1])
    np.testing.assert_array_equal(both[..., 1], fc.conv(x, w, padding=1))
    np.testing.assert_array_equal(both[..., 0], x)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "float32", "float16", "bfloat16", "complex64"])
@pytest.mark.parametrize("preferred", [None, "int16", "int32", "float32", "float64", "complex128"])
def test_preferred_element_type(dtype: str, preferred: str | None) -> None:
    lhs, rhs = check.operand(rng(), (1, 6, 9), dtype, exact=True), check.operand(rng(1), (4, 3, 3), dtype, exact=True)
    arguments: Any = ((1,), ((1, 1),), None, None, None, 2)
    try:
        call = normalise.conv_general_dilated(spec(lhs), spec(rhs), *arguments, preferred_element_type=preferred)
    except TypeError:
        with pytest.raises(TypeError, match="preferred_element_type must"):
            fc.conv_general_dilated(lhs, rhs, *arguments, preferred_element_type=preferred)
        return
    got = fc.conv_general_dilated(lhs, rhs, *arguments, preferred_element_type=preferred)
    assert got.dtype == numpy_dtype(preferred or dtype)
    hold(got, call, lhs, rhs)


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize(
    ("x", "k"), [((), ()), ((7,), (3,)), ((9, 8), (4, 3)), ((5, 6, 7), (2, 3, 1)), ((3, 4, 3, 5, 3), (2, 2, 1, 3, 2)), ((40, 33), (5, 5))]
)
@pytest.mark.parametrize(
    "dtypes",
    [
        ("float32", "float32"),
        ("float64", "float32"),
        ("int8", "int8"),
        ("uint8", "int16"),
        ("bool", "int32"),
        ("float16", "int8"),
        ("complex64", "float64"),
    ],
)
def test_convn(dtypes: tuple[str, str], x: tuple[int, ...], k: tuple[int, ...], mode: str) -> None:
    a = draw(x, dtypes[0]) if dtypes[0] != "bool" else rng().integers(0, 2, x).astype(bool)
    b = draw(k, dtypes[1], 1)
    got = fc.convn(a, b, mode)
    common = np.result_type(a, b)
    assert got.dtype == common
    a, b = a.astype(common), b.astype(common)
    hold(got, normalise.convn(spec(a), spec(b), mode), a, b)
