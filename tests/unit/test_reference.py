"""The reference against cases worked out by hand, SciPy, and the definition written as a loop over single products."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import signal

from fastconv.normalise import ConvDims, Epilogue, Spec, convn, family
from fastconv.problem import ConvProblem, Operand
from fastconv.reference import activated, reference, view
from fastconv.soak.draws import fill, geometries, with_dtype


def conv1d(x: list, w: list, dtype: str = "float64", **geometry) -> list:
    """fc.conv's definition on lists, one batch and one channel."""
    lhs, rhs = np.array([[x]], dtype), np.array([[w]], dtype)
    dims = ConvDims(lhs.shape, rhs.shape, **geometry)
    call = family("conv", dims, Spec.contiguous(lhs.shape, dtype), Spec.contiguous(rhs.shape, dtype))
    return reference(call.problem, lhs, rhs).value.reshape(-1).tolist()


def test_by_hand() -> None:
    assert conv1d([1, 2, 3, 4], [1, 10]) == [21, 32, 43]
    assert conv1d([1, 2, 3, 4], [1, 10], flip=True) == [12, 23, 34]
    assert conv1d([1, 2, 3, 4], [1, 10], padding=1) == [10, 21, 32, 43, 4]
    assert conv1d([1, 2, 3, 4], [1, 10], padding=((2, -1),)) == [0, 10, 21, 32]
    assert conv1d([1, 2, 3, 4], [1, 10], padding=-1) == [32]
    assert conv1d([1, 2, 3, 4], [1, 10], stride=2) == [21, 43]
    assert conv1d([1, 2, 3, 4], [1, 10], dilation=3) == [41]
    assert conv1d([1, 2, 3, 4], [1, 10], padding="same") == [21, 32, 43, 4]
    assert conv1d([1, 2, 3, 4], [1, 10], padding="same_lower") == [10, 21, 32, 43]
    assert conv1d([1, 2, 3], [1, 10], transposed=True) == [1, 12, 23, 30]
    assert conv1d([1, 2, 3], [1, 10], transposed=True, stride=2) == [1, 10, 2, 20, 3, 30]
    assert conv1d([1, 2, 3], [1, 10], transposed=True, stride=2, padding=((1, 0),)) == [10, 2, 20, 3, 30]
    assert conv1d([1, 2, 3], [1, 10], transposed=True, stride=3, output_padding=1) == [1, 10, 0, 2, 20, 0, 3, 30, 0]
    assert conv1d([1, 2], [1, 10], transposed=True, dilation=2) == [1, 2, 10, 20]


def test_integers_wrap() -> None:
    assert np.array(conv1d([100, 100], [1, 1], "int8")).astype(np.int8).tolist() == [-56]
    assert np.array(conv1d([200, 100], [1, 1], "uint8")).astype(np.uint8).tolist() == [44]
    assert conv1d([2**62, 2**62], [1, 1], "int64") == [-(2**63)]


def test_specials_on_padding_leave_no_trace() -> None:
    assert np.isnan(conv1d([1, 2], [np.inf, 1, np.nan], padding=1)[0])
    assert conv1d([1, 2], [np.inf, 1, np.nan], padding=1)[1] == np.inf
    assert conv1d([1, 2], [np.inf, 1], padding=((1, 0),))[0] == 1
    assert conv1d([1, 2], [1, np.nan], padding=((0, 1),))[1] == 2
    assert conv1d([1, 2], [1, np.inf], transposed=True, stride=2) == [1, np.inf, 2, np.inf]


def test_bias_and_activation() -> None:
    x, w, b = np.ones((1, 1, 2)), np.array([[[1.0]], [[-1.0]]]), np.array([0.5, 0.25])
    dims = ConvDims(x.shape, w.shape)
    epilogue = Epilogue(Spec((2,), (1,), "float64"), "leaky_relu")
    call = family("conv", dims, Spec.contiguous(x.shape, "float64"), Spec.contiguous(w.shape, "float64"), epilogue)
    found = reference(call.problem, x, w, b)
    np.testing.assert_allclose(found.value.reshape(2, 2).astype(float), [[1.5, 1.5], [-0.0075, -0.0075]], rtol=1e-15)
    np.testing.assert_array_equal(found.total.reshape(2, 2).astype(float), [[1.5, 1.5], [-0.75, -0.75]])
    np.testing.assert_array_equal(found.magnitude.reshape(2, 2).astype(float), [[1.5, 1.5], [1.25, 1.25]])


@pytest.mark.parametrize(
    ("name", "value"),
    [("relu", 0.0), ("gelu", -0.15865525393145707), ("gelu_tanh", -0.15880800939172324), ("silu", -0.2689414213699951),
     ("tanh", -0.7615941559557649), ("sigmoid", 0.2689414213699951), ("leaky_relu", -0.01)],
)  # fmt: skip
def test_activations(name: str, value: float) -> None:
    assert float(activated(name, np.array(-1.0, np.longdouble))) == pytest.approx(value, rel=1e-15, abs=0)


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize(("n", "m"), [((7,), (3,)), ((7, 6), (4, 3)), ((5, 4, 6), (2, 4, 3)), ((4, 4), (4, 1))])
def test_convn_is_scipys(mode: str, n: tuple[int, ...], m: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x, k = rng.standard_normal(n), rng.standard_normal(m)
    call = convn(Spec.contiguous(n, "float64"), Spec.contiguous(m, "float64"), mode)
    expected = signal.convolve(x, k, mode, method="direct")
    assert call.out.shape == expected.shape
    np.testing.assert_allclose(reference(call.problem, x, k).value[0, 0, 0].astype(float), expected, rtol=1e-12, atol=1e-13)


@settings(max_examples=30)
@given(geometries(1000), st.sampled_from(("int64", "complex128", "float32")), st.integers(0, 99))
def test_by_single_products(drawn: tuple[ConvProblem, tuple[int, int, int]], dtype: str, seed: int) -> None:
    """The same sums with every index computed by itself, by Python's integers and floats."""
    problem, elements = drawn
    problem = with_dtype(problem, dtype)
    data = fill(problem, elements, seed, exact=True)
    expected = np.zeros(problem.out_extents, np.complex128)
    lhs, rhs = (list(map(complex, a)) for a in data[:2])

    def element(flat: list[complex], operand: Operand, index: tuple[int, ...]) -> complex:
        return flat[operand.offset + sum(i * s for i, s in zip(index, (*operand.outer, *operand.spatial), strict=True))]

    for g, n, o, *p in product(*map(range, problem.out_extents)):
        total = 0j if data.bias is None else complex(data.bias[(g * problem.features + o) * (problem.bias_stride or 0)])
        for c, *k in product(range(problem.channels), *(range(a.kernel) for a in problem.axes)):
            at = [q * a.stride + t * a.rhs_dilation - a.lo for a, q, t in zip(problem.axes, p, k, strict=True)]
            if all(i % a.lhs_dilation == 0 and 0 <= i < a.size * a.lhs_dilation for a, i in zip(problem.axes, at, strict=True)):
                i = tuple(q // a.lhs_dilation for a, q in zip(problem.axes, at, strict=True))
                total += element(lhs, problem.lhs, (g, n, c, *i)) * element(rhs, problem.rhs, (g, o, c, *k))
        expected[(g, n, o, *p)] = total
    np.testing.assert_array_equal(reference(problem, *data).value.astype(np.complex128), expected)


def test_view_stays_inside_its_array() -> None:
    with pytest.raises(ValueError, match="array must cover the operand's elements"):
        view(np.zeros(5), Operand((0, 0, 0), (1,)), (1, 1, 1, 6))
    with pytest.raises(ValueError, match="array must cover the operand's elements"):
        view(np.zeros(5), Operand((0, 0, 0), (-1,), 1), (1, 1, 1, 3))
