"""Element types that run on copies as reals: the copies bit by bit, problems cut into slabs, complex planes, exact integers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from test_grid import hold

from fastconv import _core
from fastconv.check import check
from fastconv.plan import ALGORITHMS, choose, forced, this_machine
from fastconv.plan.converted import real_problem
from fastconv.problem import Axis, ConvProblem
from fastconv.reference import numpy_dtype, reference, view
from fastconv.soak.draws import Buffers, fill, lay, problem_of, with_dtype
from fastconv.soak.hold import run, using_threads

DIRECT = next(row for row in ALGORITHMS if row.name == "direct")
HALVES = ("float16", "bfloat16")


def product_with_one(values: np.ndarray, out_dtype: str, level: str) -> np.ndarray:
    """values * 1 through the direct algorithm: nothing but the copies in and out."""
    problem, elements = problem_of((Axis(values.size, 1, values.size),), 1, 1, 1, 1)
    problem = with_dtype(problem, values.dtype.name, out_dtype)
    assert DIRECT.refuse(problem, this_machine()) is None
    with _core.isa_level(level):
        return run(problem, DIRECT.code, Buffers(values, np.ones(1, values.dtype), None), elements[2])


@pytest.mark.parametrize("level", _core.isas())
@pytest.mark.parametrize("dtype", HALVES)
def test_every_half_widens_and_narrows_to_itself(dtype: str, level: str) -> None:
    values = np.arange(1 << 16, dtype=np.uint16).view(numpy_dtype(dtype))
    wide = product_with_one(values, "float32", level)
    np.testing.assert_array_equal(wide, values.astype(np.float32))
    back = product_with_one(values, dtype, level)
    np.testing.assert_array_equal(np.isnan(back.astype(np.float32)), np.isnan(wide))
    real = ~np.isnan(wide) & (wide != 0)  # a sum that starts at zero loses the sign of zero
    np.testing.assert_array_equal(back[real].view(np.uint16), values[real].view(np.uint16))


@pytest.mark.parametrize("level", _core.isas())
@pytest.mark.parametrize("dtype", HALVES)
def test_narrowing_rounds_to_the_nearest_and_ties_to_even(dtype: str, level: str) -> None:
    rng = np.random.default_rng(3)
    halves = np.arange(1 << 16, dtype=np.uint16).view(numpy_dtype(dtype)).astype(np.float32)
    halves = np.sort(halves[np.isfinite(halves)])
    with np.errstate(all="ignore"):
        between = (halves[:-1].astype(np.float64) / 2 + halves[1:].astype(np.float64) / 2).astype(np.float32)  # ties
        near = np.concatenate([np.nextafter(between, np.float32(-np.inf)), np.nextafter(between, np.float32(np.inf))])
        random = rng.integers(0, 1 << 32, 1 << 14, np.uint32).view(np.float32)
        edges = np.array([np.inf, -np.inf, np.finfo(np.float32).max, -np.finfo(np.float32).max, 65519.996, 65520.0], np.float32)
        values = np.concatenate([between, near, random[~np.isnan(random)], edges])
        values = values[values != 0]  # a sum that starts at zero loses the sign of zero
        expected = values.astype(numpy_dtype(dtype))
    found = product_with_one(values, dtype, level)
    np.testing.assert_array_equal(found.view(np.uint16), expected.view(np.uint16))


#: Thin problems, large enough to be cut into slabs: one axis, rows of an image with its halo, a strided one, images, a transposed one.
THIN = {
    "one axis": (1, (Axis(100_003, 1, 100_003),)),
    "an image": (1, (Axis(161, 3, 161, lo=1), Axis(255, 1, 255))),
    "a dilated volume": (1, (Axis(150, 2, 148, rhs_dilation=2), Axis(5, 1, 5), Axis(131, 1, 131))),
    "strides": (1, (Axis(301, 3, 151, stride=2, lo=1), Axis(299, 1, 299))),
    "images": (700, (Axis(15, 1, 15), Axis(17, 1, 17))),
    "transposed": (1, (Axis(160, 4, 318, lo=2, lhs_dilation=2), Axis(200, 1, 200))),
    "mostly padding": (1, (Axis(40, 1, 400, lo=180), Axis(300, 1, 300))),
}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "complex64", "int8", "int16"])
@pytest.mark.parametrize("name", THIN)
def test_slabs(name: str, dtype: str) -> None:
    batch, axes = THIN[name]
    problem, elements = problem_of(axes, 1, batch, 2, 3)
    hold_slabs(with_dtype(replace(problem, bias_stride=1), dtype), elements)


def hold_slabs(problem: ConvProblem, elements: tuple[int, int, int]) -> None:
    """Every algorithm, the same with one thread and with two."""
    data = fill(problem, elements, 5, exact=True)
    expected = reference(problem, *data)
    for row in (row for row in ALGORITHMS if row.code and row.refuse(problem, this_machine()) is None):
        with using_threads(1):
            alone = run(problem, row.code, data, elements[2])
        with using_threads(2):
            shared = run(problem, row.code, data, elements[2])
        assert alone.tobytes() == shared.tobytes(), row.name
        check(problem, view(alone, problem.out, problem.out_extents), expected, exact=True)


#: Weight gradients of many groups, by groups, images and axes: their sums are cut into slabs, by images, taps or both.
SUMS = {
    "an image": (37, 3, (Axis(61, 61, 3, lo=1), Axis(50, 50, 3, lo=1))),
    "many images": (16, 300, (Axis(40, 36, 5),)),
    "strides": (48, 2, (Axis(90, 45, 3, lo=1, rhs_dilation=2), Axis(70, 70, 1))),
    "taps that meet no data": (40, 1, (Axis(30, 600, 4, lo=250), Axis(15, 15, 1))),
}


@pytest.mark.parametrize("groups_inside", [False, True])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8"])
@pytest.mark.parametrize("name", SUMS)
def test_slabs_of_sums(name: str, dtype: str, groups_inside: bool) -> None:
    groups, images, axes = SUMS[name]
    problem, elements = problem_of(axes, groups, 1, images, 1)
    if groups_inside:
        laid = []
        for extents in (problem.lhs_extents, problem.rhs_extents):
            laid.append(lay(extents, (0, *reversed(range(1, len(extents)))), [0] * len(extents), [False] * len(extents)).operand)
        problem = replace(problem, lhs=laid[0], rhs=laid[1])
    hold_slabs(with_dtype(problem, dtype), elements)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
def test_complex_sums_that_gauss_cannot_form_are_formed_otherwise(dtype: str) -> None:
    """re + im overflows where neither does, and one infinity must not make a NaN of its neighbours."""
    large = float(np.finfo(dtype).max) * 0.75
    problem, elements = problem_of((Axis(40, 3, 40, lo=1),), 1, 1, 5, 4)
    problem = with_dtype(problem, dtype)
    data = fill(problem, elements, 1, exact=True)
    data.rhs[...] = 0.125
    data.lhs[17] = complex(large, large)
    hold(problem, elements, 1, exact=True)
    expected = reference(problem, *data)
    check(problem, view(run(problem, DIRECT.code, data, elements[2]), problem.out, problem.out_extents), expected)


@pytest.mark.parametrize(("dtype", "terms", "real"), [("int8", 1023, "float32"), ("int8", 1024, "float64"), ("uint8", 256, "float64"),
                                                      ("int16", 600, "float64"), ("uint16", 600, "float64")])  # fmt: skip
def test_the_largest_integers_are_exact(dtype: str, terms: int, real: str) -> None:
    problem, elements = problem_of((Axis(3, 1, 3),), 1, 1, terms, 2)
    problem = with_dtype(problem, dtype, "int64" if "16" in dtype else "int32")
    inner = real_problem(problem)
    assert isinstance(inner, ConvProblem)
    assert (inner.dtype, inner.precision) == (real, "highest")
    info = np.iinfo(dtype)
    for value in (info.min, info.max):
        data = Buffers(np.full(elements[0], value, dtype), np.full(elements[1], value, dtype), None)
        data.lhs[1] = value - 1 if value > 0 else value + 1  # not all products alike
        out = run(problem, DIRECT.code, data, elements[2])
        check(problem, view(out, problem.out, problem.out_extents), reference(problem, *data), exact=True)


def test_integers_too_large_for_any_real_type_are_refused_with_the_reason() -> None:
    problem, _ = problem_of((Axis(9, 3, 7),), 1, 1, 2, 2)
    verdict = choose(with_dtype(problem, "int32")).considered["direct"]
    assert verdict == "no real type holds every sum of 6 products of int32"


def test_windows_that_share_their_elements_are_copied_within_reason_only() -> None:
    """An operand can be far longer than its memory: copying it would cost what nobody asked for."""
    problem, _ = problem_of((Axis(4096, 1, 4096), Axis(4096, 1, 4096)), 1, 1, 1, 1)
    problem = with_dtype(replace(problem, lhs=replace(problem.lhs, spatial=(1, 1))), "float16")
    assert choose(problem).considered["direct"] == "windows of an operand overlap too much to be copied"
    data = Buffers(np.zeros(8191, np.float16), np.ones(1, np.float16), None)
    with pytest.raises(AssertionError, match="windows of an operand overlap too much"):
        run(problem, DIRECT.code, data, 1 << 24)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "complex64", "complex128", "int8"])
def test_wide_layers_are_planned_on_copies(dtype: str) -> None:
    problem, _ = problem_of((Axis(28, 3, 28, lo=1), Axis(28, 3, 28, lo=1)), 1, 1, 64, 64)
    problem = with_dtype(problem, dtype)
    plan = choose(problem)
    assert plan.algorithm != "general"
    with forced("general"):
        slow = choose(problem)
    assert plan.seconds < slow.seconds / 4
