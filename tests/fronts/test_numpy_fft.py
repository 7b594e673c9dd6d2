"""Overlap-save on NumPy arrays: any geometry within its bound, hostile numbers, memory, threads, and when the planner takes it."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import fastconv as fc
from fastconv import _core, rewrite
from fastconv._numpy import spectral
from fastconv.check import bound, check, spectral_bound
from fastconv.plan import FFT, forced, overlap
from fastconv.problem import ACTIVATIONS, Axis, ConvProblem
from fastconv.reference import Array, reference, view
from fastconv.soak.draws import Buffers, fill, geometries, poison, problem_of, with_dtype

DTYPES = ("float32", "float64", "complex64", "complex128")
GUARD = 16
Drawn = tuple[ConvProblem, tuple[int, int, int]]


def run(problem: ConvProblem, data: Buffers, elements: int) -> Array:
    """The outputs by transforms; everything else in the poisoned buffer stays as it was."""
    memory = poison(problem.dtype, elements + 2 * GUARD)
    out = memory[GUARD : GUARD + elements]
    spectral.Prepared(problem).run(*data, out)
    touched = np.zeros(memory.size, bool)
    view(touched[GUARD : GUARD + elements], problem.out, problem.out_extents)[...] = True
    assert np.isnan(memory[~touched]).all(), f"cells that are no output were written\n{problem}"
    return view(out, problem.out, problem.out_extents)


def hold(problem: ConvProblem, data: Buffers, got: Array) -> None:
    expected = reference(problem, *data)
    allowed = bound(problem, expected) + spectral_bound(problem, data.lhs, data.rhs)
    error = np.abs(got - expected.value)
    assert (error <= allowed).all(), f"error {np.max(error / allowed)} of what is allowed\n{problem}"


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=40)
@given(drawn=geometries(1 << 15), seed=st.integers(0, 99))
def test_any_problem(dtype: str, drawn: Drawn, seed: int) -> None:
    problem, elements = drawn
    problem = with_dtype(problem, dtype)
    assume(problem.axes and 0 not in (*problem.lhs_extents, *problem.rhs_extents, *problem.out_extents))
    assume(overlap.count_pieces(problem) <= overlap.MOST_PARTS)
    data = fill(problem, elements, seed, exact=False)
    hold(problem, data, run(problem, data, elements[2]))


LONG = {
    "blocks of outputs": (Axis(2000, 65, 2064, lo=64),),
    "parts of the kernel": (Axis(2064, 2000, 65),),
    "one transform": (Axis(700, 300, 700, lo=140),),
    "padded far beyond the data": (Axis(200, 100, 900, lo=300),),
    "strided": (Axis(1500, 133, 510, stride=3, lo=100),),
    "dilated": (Axis(1000, 70, 880, lo=45, rhs_dilation=3),),
    "dilated and strided": (Axis(1000, 60, 360, stride=2, lo=35, rhs_dilation=6),),
    "transposed": (Axis(400, 100, 850, lo=49, lhs_dilation=2),),
    "image": (Axis(40, 20, 59, lo=19), Axis(100, 10, 95, lo=2)),
    "image in blocks": (Axis(100, 3, 100, lo=1), Axis(400, 4, 397)),
    "volume": (Axis(10, 4, 10, lo=2), Axis(11, 5, 15, lo=4), Axis(20, 6, 15)),
}


@pytest.mark.parametrize(
    ("dtype", "channels", "features"),
    [("float32", 1, 1), ("float32", 2, 3), ("float32", 5, 7), ("float64", 2, 3), ("complex64", 5, 4), ("complex128", 2, 1)],
)
@pytest.mark.parametrize("name", LONG)
def test_long_kernels(name: str, dtype: str, channels: int, features: int) -> None:
    problem, elements = problem_of(LONG[name], 2, 2, channels, features)
    problem = replace(with_dtype(problem, dtype), bias_stride=1)
    data = fill(problem, elements, 0, exact=False)
    hold(problem, data, run(problem, data, elements[2]))


@pytest.mark.parametrize("activation", [name for name in ACTIVATIONS if name])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_activations(activation: str, dtype: str) -> None:
    problem, elements = problem_of(LONG["one transform"], 1, 2, 2, 3)
    problem = replace(with_dtype(problem, dtype), bias_stride=2, activation=activation)
    data = fill(problem, (elements[0], elements[1], elements[2]), 0, exact=False)
    data = data._replace(lhs=data.lhs / 16)
    hold(problem, data, run(problem, data, elements[2]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["blocks of outputs", "parts of the kernel", "image"])
@pytest.mark.parametrize("kind", ["dynamic range", "masked kernel", "one huge number", "all alike"])
def test_hostile_numbers_stay_within_the_bound(kind: str, name: str, dtype: str) -> None:
    problem, elements = problem_of(LONG[name], 1, 1, 2, 2)
    problem = with_dtype(problem, dtype)
    data = fill(problem, elements, 0, exact=False)
    rng = np.random.default_rng(1)
    if kind == "dynamic range":
        for array in data[:2]:
            array *= 10.0 ** rng.uniform(-6, 6, array.size)
    elif kind == "masked kernel":
        data.rhs[rng.random(data.rhs.size) < 0.98] = 0
    elif kind == "one huge number":
        data.lhs[100] = 1e6
    else:
        data.lhs[...], data.rhs[...] = 1 / 3, 1
    hold(problem, data, run(problem, data, elements[2]))


def test_a_huge_number_costs_precision_in_its_block_alone() -> None:
    problem, elements = problem_of((Axis(60_000, 200, 59_801),), 1, 1, 1, 1)
    data = fill(problem, elements, 0, exact=False)
    plain = np.convolve(data.lhs.astype(float), data.rhs[::-1].astype(float), "valid")
    data.lhs[100] = 1e6
    layout = overlap.layout(problem)
    assert layout is not None
    assert layout.cuts[0].blocks > 2
    second = slice(layout.cuts[0].step, 2 * layout.cuts[0].step)
    error = np.abs(run(problem, data, elements[2])[0, 0, 0, second] - plain[second])
    block = data.lhs[second.start : second.stop + 199].astype(float)
    limit = np.finfo(np.float32).eps * np.log2(layout.cuts[0].length) * np.linalg.norm(block) * np.linalg.norm(data.rhs)
    assert error.max() <= limit


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["lhs", "rhs"])
@pytest.mark.parametrize("name", ["blocks of outputs", "parts of the kernel", "image", "strided", "dilated"])
def test_what_is_not_finite_reaches_only_what_its_tap_touches(name: str, where: str, value: float) -> None:
    problem, elements = problem_of(LONG[name], 2, 2, 2, 2)
    problem = replace(problem, bias_stride=1, activation="sigmoid")
    data = fill(problem, elements, 3, exact=False)
    getattr(data, where)[37] = value
    got, expected = run(problem, data, elements[2]), reference(problem, *data).value
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    assert np.nanmax(np.abs(got - expected)) < 1e-4


def test_sums_that_only_transforms_overflow_are_finite() -> None:
    problem, elements = problem_of((Axis(2000, 100, 1901),), 1, 1, 1, 1)
    data = fill(problem, elements, 0, exact=False)
    data.lhs[...], data.rhs[...] = np.where(np.arange(2000) % 2, 1e37, -1e37), 1
    check(problem, run(problem, data, elements[2]), reference(problem, *data))


def test_a_number_not_finite_is_computed_anew_in_its_block_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, elements = problem_of((Axis(60_000, 200, 59_801),), 1, 1, 1, 1)
    data = fill(problem, elements, 0, exact=False)
    data.lhs[30_000] = np.nan
    direct: list[int] = []
    plain = spectral._direct
    monkeypatch.setattr(spectral, "_direct", lambda problem, *arrays: (direct.append(problem.axes[0].out), plain(problem, *arrays)))
    run(problem, data, elements[2])
    layout = overlap.layout(problem)
    assert layout is not None
    assert 1 <= len(direct) <= 2
    assert max(direct) <= layout.cuts[0].step < 59_801 / 4


@pytest.mark.parametrize("name", ["blocks of outputs", "parts of the kernel", "image in blocks", "volume"])
def test_threads_change_no_bit(name: str) -> None:
    problem, elements = problem_of(LONG[name], 2, 3, 3, 7)
    data = fill(problem, elements, 0, exact=False)
    results = []
    for threads in (1, 2, 3):
        _core.set_threads(threads)
        results.append(run(problem, data, elements[2]).tobytes())
    _core.set_threads(0)
    assert len(set(results)) == 1


SHAPES = {
    "reverb": ((1, 1, 480_000), (1, 1, 48_000), 47_999),
    "image as large as its kernel": ((1, 1, 300, 300), (1, 1, 300, 300), 299),
    "many channels": ((1, 16, 40_000), (16, 16, 1024), 0),
    "many images": ((200, 1, 84, 84), (1, 1, 40, 40), 39),
}


@pytest.mark.parametrize("name", SHAPES)
def test_memory_is_bounded_and_the_planner_takes_it(name: str) -> None:
    x_shape, w_shape, padding = SHAPES[name]
    plan = fc.plan(x_shape, w_shape, padding=padding)
    assert plan.algorithm == "fft"
    assert fc.plan(x_shape, w_shape, padding=padding, precision="highest").algorithm != "fft"
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape, np.float32) for shape in (x_shape, w_shape))
    fc.conv(x[..., :70], w[..., :1], padding=0)
    tracemalloc.start()
    y = fc.conv(x, w, padding=padding)
    peak = tracemalloc.get_traced_memory()[1] - y.nbytes
    tracemalloc.stop()
    assert peak <= 2 * (x.nbytes + w.nbytes + y.nbytes) + (32 << 20)


@pytest.mark.parametrize(
    ("x_shape", "w_shape", "padding", "groups"),
    [
        ((1, 1, 1_000_000), (1, 1, 101), 100, 1),
        ((1, 1, 500, 500), (1, 1, 31, 31), 30, 1),
        ((1, 1, 96, 96, 96), (1, 1, 7, 7, 7), 6, 1),
        ((1, 768, 199), (768, 48, 128), 64, 16),
    ],
)
def test_direct_sums_keep_what_they_do_faster(x_shape, w_shape, padding, groups) -> None:
    plan = fc.plan(x_shape, w_shape, padding=padding, groups=groups)
    assert plan.algorithm != "fft"
    assert isinstance(plan.considered["fft"], float)


def test_every_door_leads_to_it() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 3, 400)), rng.standard_normal((4, 3, 150))
    y = fc.conv(x, w, padding=20)
    calls = {
        "conv": lambda: fc.conv(x, w, padding=20),
        "channels last": lambda: fc.conv(x.swapaxes(1, 2), w, padding=20, layout="N...C").swapaxes(1, 2),
        "out": lambda: fc.conv(x, w, padding=20, out=np.empty(y.shape)),
        "byte order": lambda: fc.conv(x.astype(">f8"), w, padding=20),
        "conv_transpose": lambda: fc.conv_transpose(x, w.swapaxes(0, 1), stride=2),
        "input_grad": lambda: fc.conv_input_grad(y, w, x.shape, padding=20),
        "weight_grad": lambda: fc.conv_weight_grad(x, y, w.shape, padding=20),
        "convn": lambda: fc.convn(x[0], w[0], "same"),
        "general": lambda: fc.conv_general_dilated(x, w, (1,), [(20, 20)], rhs_dilation=(2,)),
    }
    for name, call in calls.items():
        plain = call()
        with forced("fft"):
            transformed = call()
        assert transformed.shape == plain.shape
        assert not np.array_equal(transformed, plain), f"{name} did not go through transforms"
        np.testing.assert_allclose(transformed, plain, atol=1e-11)


def test_integers_and_half_types_never_go_through_it() -> None:
    for dtype in ("int32", "int64", "float16", "bfloat16", "uint8"):
        verdict = fc.plan((1, 1, 480_000), (1, 1, 48_000), padding=47_999, dtype=dtype).considered["fft"]
        assert isinstance(verdict, str)
        assert "for float32, float64 and complex numbers" in verdict


def test_layouts_cover_every_output_once() -> None:
    for axes in LONG.values():
        problem, _ = problem_of(axes, 1, 1, 1, 1)
        for piece in overlap.pieces(problem):
            part = rewrite.touching(piece)
            assert part is not None
            for axis in part.axes:
                for cut in overlap._cuts(axis):
                    reach = (axis.out - 1) * axis.stride + 1
                    assert (cut.blocks - 1) * cut.step < reach <= cut.blocks * cut.step
                    assert (cut.parts - 1) * cut.taps < axis.kernel <= cut.parts * cut.taps
                    assert cut.start + cut.step <= cut.length or cut.blocks == 1
                    assert cut.reads <= cut.length
    assert FFT.bound == "spectral"


def test_fast_lengths() -> None:
    smooth = sorted(2**a * 3**b * 5**c for a in range(15) for b in range(10) for c in range(7))
    for least in range(1, 9000):
        assert overlap.fast_length(least) == next(n for n in smooth if n >= least)
