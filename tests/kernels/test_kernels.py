"""Every row of the kernel table alone against its definition: a new row is tested by being listed.

FASTCONV_TEST_RUNNER names a command whose library is tested instead of this process's (`make check-full`: NEON under qemu).
"""

from __future__ import annotations

import os

import numpy as np
import pytest

from fastconv import _core
from fastconv.soak.remote import Remote

VECTOR_BYTES = {"scalar": 16, "avx2": 32, "avx512": 64, "neon": 16}
RUNNER = os.environ.get("FASTCONV_TEST_RUNNER")
REMOTE = Remote(RUNNER) if RUNNER else None
KERNELS = REMOTE.kernels if REMOTE else _core.kernels()
ISAS = REMOTE.isas if REMOTE else _core.isas()
GUARD = 8  # elements around each result that must stay as they were


def rows_of(family: str) -> list:
    rows = [(index, kernel) for index, kernel in enumerate(KERNELS) if kernel.family == family]
    return [pytest.param(index, kernel, id=f"{kernel.isa}-{kernel.element}-{kernel.name}") for index, kernel in rows]


def dtype_of(kernel: _core.Kernel) -> np.dtype:
    return np.dtype({"float": np.float32, "double": np.float64}[kernel.element])


def lanes_of(kernel: _core.Kernel) -> int:
    return VECTOR_BYTES[kernel.isa] // dtype_of(kernel).itemsize


def integers(rng: np.random.Generator, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Small integers, so that every sum is exact and a lost or doubled term shows."""
    return rng.integers(-9, 10, shape).astype(dtype)


class Guarded:
    """A flat result with guard cells on both sides."""

    def __init__(self, size: int, dtype: np.dtype, fill: float) -> None:
        self.memory = np.full(size + 2 * GUARD, 77, dtype)
        self.result = self.memory[GUARD:-GUARD]
        self.result[...] = fill

    def check(self) -> None:
        guards = np.concatenate([self.memory[:GUARD], self.memory[-GUARD:]])
        assert (guards == 77).all(), "wrote outside its result"


def run(index: int, sizes: tuple[int, ...], a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    if REMOTE:
        return REMOTE.run_kernel(index, sizes, a, b, c)
    _core.run_kernel(index, sizes, a.ctypes.data, b.ctypes.data, c.ctypes.data)


@pytest.mark.parametrize(("index", "kernel"), rows_of("tile"))
def test_tile(index: int, kernel: _core.Kernel) -> None:
    dtype, width = dtype_of(kernel), kernel.cols * lanes_of(kernel)
    rng = np.random.default_rng(index)
    for depth in (0, 1, 2, 7, 33):
        a, b = integers(rng, (depth, kernel.rows), dtype), integers(rng, (depth, width), dtype)
        expected = a.T @ b
        for accumulate in (False, True):
            for by_rows in (False, True):
                if by_rows and kernel.rows > 8:
                    with pytest.raises(ValueError, match="by rows"):
                        run(index, (depth, accumulate, by_rows), a, b, np.empty(0, dtype))
                    continue
                c = Guarded(kernel.rows * width, dtype, 5 if accumulate else np.nan)
                run(index, (depth, accumulate, by_rows), np.ascontiguousarray(a.T) if by_rows else a, b, c.result)
                c.check()
                np.testing.assert_array_equal(c.result.reshape(kernel.rows, width), expected + 5 * accumulate)


@pytest.mark.parametrize(("index", "kernel"), rows_of("stencil"))
def test_stencil(index: int, kernel: _core.Kernel) -> None:
    dtype, width = dtype_of(kernel), kernel.cols * lanes_of(kernel)
    taps = int(kernel.name.rsplit("x", 1)[1])
    rng = np.random.default_rng(index)
    for shifts in (1, 3, 6):
        row_step, out_step = width + shifts + 2, width + 3
        weights = integers(rng, (shifts, taps), dtype)
        image = integers(rng, (kernel.rows + taps - 1, row_step), dtype)
        expected = sum(weights[q, h] * image[h : h + kernel.rows, q : q + width] for q in range(shifts) for h in range(taps))
        for accumulate in (False, True):
            out = Guarded((kernel.rows - 1) * out_step + width, dtype, 5)
            run(index, (shifts, row_step, out_step, accumulate), weights, image, out.result)
            out.check()
            padded = np.append(out.result, np.full(out_step - width, 5, dtype)).reshape(kernel.rows, out_step)
            np.testing.assert_array_equal(padded[:, :width], expected + 5 * accumulate)
            assert (padded[:, width:] == 5).all(), "wrote between the rows"


@pytest.mark.parametrize(("index", "kernel"), rows_of("product"))
def test_product(index: int, kernel: _core.Kernel) -> None:
    dtype, lanes = dtype_of(kernel), lanes_of(kernel)
    rng = np.random.default_rng(index)
    for depth in (0, 1, lanes - 1, lanes, 3 * lanes + 1):
        blocks, tiles = -(-depth // lanes), kernel.rows + 2  # a task's tiles are more than those of one product
        a, b = integers(rng, (blocks, tiles, lanes), dtype), integers(rng, (depth, kernel.cols * lanes), dtype)
        steps = a[:, : kernel.rows].transpose(1, 0, 2).reshape(kernel.rows, blocks * lanes)[:, :depth]
        for accumulate in (False, True):
            c = Guarded(kernel.rows * kernel.cols * lanes, dtype, 5 if accumulate else np.nan)
            run(index, (depth, tiles * lanes, accumulate), a, b, c.result)
            c.check()
            np.testing.assert_array_equal(c.result.reshape(kernel.rows, -1), steps @ b + 5 * accumulate)


@pytest.mark.parametrize(("index", "kernel"), rows_of("dot"))
def test_dot(index: int, kernel: _core.Kernel) -> None:
    dtype, lanes = dtype_of(kernel), lanes_of(kernel)
    rng = np.random.default_rng(index)
    for depth in (0, lanes - 1, lanes, 3 * lanes + 1):
        a, b = integers(rng, (kernel.rows, depth), dtype), integers(rng, (kernel.cols, depth), dtype)
        whole = depth // lanes * lanes
        products = a[:, None, :whole] * b[None, :, :whole]
        expected = products.reshape(kernel.rows, kernel.cols, whole // lanes, lanes).sum(axis=2) + 5
        sums = Guarded(kernel.rows * kernel.cols * lanes, dtype, 5)
        run(index, (depth,), a, b, sums.result)
        sums.check()
        np.testing.assert_array_equal(sums.result.reshape(kernel.rows, kernel.cols, lanes), expected)


@pytest.mark.parametrize(("index", "kernel"), rows_of("outer"))
def test_outer(index: int, kernel: _core.Kernel) -> None:
    dtype, width = dtype_of(kernel), kernel.cols * lanes_of(kernel)
    rng = np.random.default_rng(index)
    for taps in (1, 3) if kernel.rows % 3 == 0 else (1,):
        for rows, pixels in ((0, 3), (1, 1), (2, 2), (3, 7), (2, 0)):
            image = integers(rng, (kernel.rows // taps, rows, pixels + taps - 1), dtype)
            b = integers(rng, (rows * pixels, width), dtype)
            a = np.stack([image[..., tap : tap + pixels] for tap in range(taps)], axis=1).reshape(kernel.rows, rows * pixels)
            for accumulate in (False, True):
                c = Guarded(kernel.rows * width, dtype, 5 if accumulate else np.nan)
                run(index, (rows, pixels, accumulate, taps), image, b, c.result)
                c.check()
                np.testing.assert_array_equal(c.result.reshape(kernel.rows, width), a @ b + 5 * accumulate)


@pytest.mark.parametrize(("index", "kernel"), rows_of("block"))
def test_block(index: int, kernel: _core.Kernel) -> None:
    dtype, lanes = dtype_of(kernel), lanes_of(kernel)
    width = kernel.cols * lanes
    rng = np.random.default_rng(index)
    for segments, steps in ((0, 3), (1, 1), (3, 7), (9, 4)):
        a, b = integers(rng, (segments, kernel.rows, steps), dtype), integers(rng, (segments, steps, width), dtype)
        expected = np.einsum("smi,sij->mj", a, b)
        for accumulate in (False, True):
            for tail in (1, lanes - 1, lanes):
                c = Guarded(kernel.rows * width, dtype, 5)
                run(index, (segments, steps, tail, accumulate), a, b, c.result)
                c.check()
                stored = width - lanes + tail
                np.testing.assert_array_equal(c.result.reshape(kernel.rows, width)[:, :stored], expected[:, :stored] + 5 * accumulate)
                assert (c.result.reshape(kernel.rows, width)[:, stored:] == 5).all(), "stored lanes beyond the tail"


@pytest.mark.parametrize(("index", "kernel"), rows_of("lane"))
def test_lane(index: int, kernel: _core.Kernel) -> None:
    dtype, vector = dtype_of(kernel), lanes_of(kernel)
    rng = np.random.default_rng(index)
    for outer, inner, lanes in ((0, 1, vector), (1, 1, vector - 1), (2, 3, 2 * vector), (1, 7, vector + 1), (2, 11, 1)):
        image = integers(rng, (outer, kernel.rows, kernel.cols + inner, lanes), dtype)
        weights = integers(rng, (outer, inner, lanes), dtype)
        expected = np.zeros((kernel.rows, kernel.cols, lanes), dtype)
        for o in range(outer):
            for tap in range(inner):
                expected += image[o, :, tap : tap + kernel.cols] * weights[o, tap]
        for accumulate in (False, True):
            out = Guarded(expected.size, dtype, 5 if accumulate else np.nan)
            run(index, (outer, inner, lanes, accumulate), image, weights, out.result)
            out.check()
            np.testing.assert_array_equal(out.result.reshape(expected.shape), expected + 5 * accumulate)


@pytest.mark.parametrize(("index", "kernel"), rows_of("plane") + rows_of("plane2"))
def test_plane(index: int, kernel: _core.Kernel) -> None:
    dtype, width, step = dtype_of(kernel), kernel.cols * lanes_of(kernel), 1 + (kernel.family == "plane2")
    taps = int(kernel.name.rsplit("x", 1)[1])
    rng = np.random.default_rng(index)
    for groups, shifts in ((0, 1), (1, 1), (2, 3)):
        weights = integers(rng, (groups, shifts, taps), dtype)
        image = integers(rng, (groups, kernel.rows + taps - 1, step * width + shifts), dtype)
        expected = np.zeros((kernel.rows, width), dtype)
        for g, q, h in np.ndindex(weights.shape):
            expected += weights[g, q, h] * image[g, h : h + kernel.rows, q : q + step * width : step]
        for accumulate in (False, True):
            out = Guarded(expected.size, dtype, 5 if accumulate else np.nan)
            run(index, (groups, shifts, accumulate), weights, image, out.result)
            out.check()
            np.testing.assert_array_equal(out.result.reshape(expected.shape), expected + 5 * accumulate)


@pytest.mark.parametrize(("index", "kernel"), rows_of("point"))
def test_point(index: int, kernel: _core.Kernel) -> None:
    dtype, width = dtype_of(kernel), kernel.cols * lanes_of(kernel)
    rng = np.random.default_rng(index)
    for depth in (0, 1, 2, 7, 33):
        a, b = integers(rng, (kernel.rows, depth), dtype), integers(rng, (depth, width), dtype)
        for accumulate in (False, True):
            c = Guarded(kernel.rows * width, dtype, 5 if accumulate else np.nan)
            run(index, (depth, accumulate), a, b, c.result)
            c.check()
            np.testing.assert_array_equal(c.result.reshape(kernel.rows, width), a @ b + 5 * accumulate)


@pytest.mark.parametrize(("index", "kernel"), rows_of("spread"))
def test_spread(index: int, kernel: _core.Kernel) -> None:
    dtype, lanes = dtype_of(kernel), lanes_of(kernel)
    rng = np.random.default_rng(index)
    for depth, step in ((0, 1), (1, 1), (5, 1), (3, 2)):
        weights = integers(rng, (depth, lanes), dtype)
        image = integers(rng, (max(depth, 1) + (kernel.rows - 1) * step, lanes), dtype)
        expected = sum((weights[k] * image[k:][::step][: kernel.rows] for k in range(depth)), np.zeros((kernel.rows, lanes), dtype))
        for accumulate in (False, True):
            sums = Guarded(kernel.rows * lanes, dtype, 5 if accumulate else np.nan)
            run(index, (depth, step, accumulate), weights, image, sums.result)
            sums.check()
            np.testing.assert_array_equal(sums.result.reshape(kernel.rows, lanes), expected + 5 * accumulate)


@pytest.mark.parametrize(("index", "kernel"), rows_of("same"))
def test_same(index: int, kernel: _core.Kernel) -> None:
    dtype, lanes = dtype_of(kernel), lanes_of(kernel)
    rng = np.random.default_rng(index)
    for depth, step in ((0, 1), (1, 1), (5, 1), (3, 2), (7, 3)):
        weights = integers(rng, (depth, lanes), dtype)
        image = integers(rng, (max(depth, 1) + (kernel.rows - 1) * step,), dtype)
        expected = sum(
            (np.outer(image[k:][::step][: kernel.rows], weights[k]) for k in range(depth)), np.zeros((kernel.rows, lanes), dtype)
        )
        for accumulate in (False, True):
            sums = Guarded(kernel.rows * lanes, dtype, 5 if accumulate else np.nan)
            run(index, (depth, step, accumulate), weights, image, sums.result)
            sums.check()
            np.testing.assert_array_equal(sums.result.reshape(kernel.rows, lanes), expected + 5 * accumulate)


@pytest.mark.parametrize(("index", "kernel"), rows_of("spread_sum"))
def test_spread_sum(index: int, kernel: _core.Kernel) -> None:
    dtype, lanes, taps = dtype_of(kernel), lanes_of(kernel), kernel.cols
    rng = np.random.default_rng(index)
    for count, step in ((0, 1), (1, 1), (7, 1), (4, 2)):
        dy = integers(rng, (count, lanes), dtype)
        image = integers(rng, (kernel.rows + taps + max(count, 1) * step, lanes), dtype)
        expected = [[(dy * image[r + q :][::step][:count]).sum(axis=0, dtype=dtype) + 5 for q in range(taps)] for r in range(kernel.rows)]
        sums = Guarded(kernel.rows * taps * lanes, dtype, 5)
        run(index, (count, step), dy, image, sums.result)
        sums.check()
        np.testing.assert_array_equal(sums.result.reshape(kernel.rows, taps, lanes), expected)


@pytest.mark.parametrize(("index", "kernel"), rows_of("pixels"))
def test_pixels(index: int, kernel: _core.Kernel) -> None:
    dtype, width = dtype_of(kernel), kernel.cols * lanes_of(kernel)
    rng = np.random.default_rng(index)
    for depth in (0, 1, 2, 7):
        weights, line = integers(rng, (depth, kernel.rows), dtype), integers(rng, (width + max(depth, 1),), dtype)
        shifted = np.array([line[k : k + width] for k in range(depth)], dtype).reshape(depth, width)
        out = Guarded(kernel.rows * width, dtype, np.nan)
        run(index, (depth,), weights, line, out.result)
        out.check()
        np.testing.assert_array_equal(out.result.reshape(kernel.rows, width), weights.T @ shifted)


def test_every_level_has_every_family() -> None:
    for isa in ISAS:
        for element in ("float", "double"):
            families = {kernel.family for kernel in KERNELS if kernel.isa == isa and kernel.element == element}
            assert families == {
                "tile",
                "stencil",
                "dot",
                "product",
                "outer",
                "block",
                "lane",
                "plane",
                "plane2",
                "point",
                "spread",
                "same",
                "spread_sum",
                "pixels",
            }, (isa, element)


def test_an_unknown_row_is_refused() -> None:
    with pytest.raises(ValueError, match="no such row"):
        run(len(KERNELS), (0,), *[np.empty(0, np.float32)] * 3)
