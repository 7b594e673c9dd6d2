"""Times every register-tile kernel alone, on operands that the first cache holds: the ceiling of what the drivers can reach.

    python benchmarks/kernels.py [ISA] [float|double]

One thread. A row is GFLOP/s of the multiply-adds that the kernel makes; the best row is close to the core's peak.
"""

from __future__ import annotations

import sys
import time

import numpy as np

from fastconv import _core

VECTOR_BYTES = {"scalar": 16, "avx2": 32, "avx512": 64, "neon": 16}
ELEMENTS = {"float": np.float32, "double": np.float64}


def aligned(count: int, dtype: type) -> np.ndarray:
    """Ones on a vector boundary, as the library's own scratch lies."""
    lanes = 64 // np.dtype(dtype).itemsize
    memory = np.ones(count + lanes, dtype)
    return memory[-(memory.ctypes.data // memory.itemsize) % lanes :][:count]


def operands(kernel: _core.Kernel) -> tuple[tuple[int, ...], list[np.ndarray], float]:
    """sizes, [a, b, c] and the flops of one run."""
    dtype = ELEMENTS[kernel.element]
    lanes = VECTOR_BYTES[kernel.isa] // np.dtype(dtype).itemsize
    width = kernel.cols * lanes
    if kernel.family == "tile":
        depth = max(16, 4096 // (width + kernel.rows))
        arrays = [np.ones(depth * kernel.rows, dtype), np.ones(depth * width, dtype), np.zeros(kernel.rows * width, dtype)]
        return (depth, 0, 0), arrays, 2.0 * depth * kernel.rows * width
    if kernel.family == "product":
        depth = max(lanes, 4096 // (width + kernel.rows) // lanes * lanes)
        arrays = [np.ones(depth * kernel.rows, dtype), np.ones(depth * width, dtype), np.zeros(kernel.rows * width, dtype)]
        return (depth, kernel.rows * lanes, 0), arrays, 2.0 * depth * kernel.rows * width
    if kernel.family == "point":
        depth = max(16, 4096 // (width + kernel.rows))
        arrays = [np.ones(depth * kernel.rows, dtype), aligned(depth * width, dtype), np.zeros(kernel.rows * width, dtype)]
        return (depth, 0), arrays, 2.0 * depth * kernel.rows * width
    if kernel.family == "stencil":
        taps, shifts = int(kernel.name.rsplit("x", 1)[1]), 5
        step = width + shifts
        arrays = [np.ones(shifts * taps, dtype), np.ones((kernel.rows + taps) * step, dtype), np.zeros(kernel.rows * width, dtype)]
        return (shifts, step, width, 0), arrays, 2.0 * shifts * taps * kernel.rows * width
    if kernel.family == "outer":
        rows, pixels, taps = 3, 56, 3 if kernel.rows > 8 else 1  # many rows are neighbouring taps
        image = np.ones(kernel.rows // taps * rows * (pixels + taps - 1), dtype)
        arrays = [image, np.ones(rows * pixels * width, dtype), np.zeros(kernel.rows * width, dtype)]
        return (rows, pixels, 0, taps), arrays, 2.0 * rows * pixels * kernel.rows * width
    if kernel.family == "block":
        segments, steps = 9, max(2, 4096 // 9 // (width + kernel.rows))
        depth = segments * steps
        arrays = [np.ones(depth * kernel.rows, dtype), aligned(depth * width, dtype), np.zeros(kernel.rows * width, dtype)]
        return (segments, steps, lanes, 0), arrays, 2.0 * depth * kernel.rows * width
    if kernel.family == "lane":
        outer, inner, groups = 3, 3, 2 * lanes
        sizes = (kernel.rows * (kernel.cols + inner) * outer, outer * inner, kernel.rows * kernel.cols)
        arrays = [np.ones(size * groups, dtype) for size in sizes]
        return (outer, inner, groups, 0), arrays, 2.0 * outer * inner * groups * kernel.rows * kernel.cols
    if kernel.family in ("plane", "plane2"):
        taps, shifts, step = int(kernel.name.rsplit("x", 1)[1]), 3, 1 + (kernel.family == "plane2")
        sizes = (shifts * taps, (kernel.rows + taps) * (step * width + shifts), kernel.rows * width)
        return (1, shifts, 0), [np.ones(size, dtype) for size in sizes], 2.0 * shifts * taps * kernel.rows * width
    if kernel.family in ("spread", "same"):
        depth = 36
        arrays = [np.ones((depth + n) * lanes, dtype) for n in (0, kernel.rows, kernel.rows)]
        return (depth, 1, 0), arrays, 2.0 * depth * kernel.rows * lanes
    if kernel.family == "spread_sum":
        count = 28
        arrays = [np.ones(n * lanes, dtype) for n in (count, count + kernel.rows + kernel.cols, kernel.rows * kernel.cols)]
        return (count, 1), arrays, 2.0 * count * kernel.rows * width
    if kernel.family == "pixels":
        depth = 36
        arrays = [np.ones(depth * kernel.rows, dtype), np.ones(depth + width, dtype), np.ones(kernel.rows * width, dtype)]
        return (depth,), arrays, 2.0 * depth * kernel.rows * width
    depth = 8 * lanes
    arrays = [np.ones(kernel.rows * depth, dtype), np.ones(kernel.cols * depth, dtype), np.zeros(kernel.rows * width, dtype)]
    return (depth,), arrays, 2.0 * depth * kernel.rows * kernel.cols


def rate(index: int, kernel: _core.Kernel) -> float:
    """GFLOP/s, the best of several batches of runs."""
    sizes, arrays, flops = operands(kernel)
    addresses = [array.ctypes.data for array in arrays]
    runs, best = max(1, int(2e7 / flops)), float("inf")
    for _ in range(15):
        start = time.perf_counter()
        _core.run_kernel(index, sizes, *addresses, runs=runs)
        best = min(best, time.perf_counter() - start)
    return flops * runs / best / 1e9


def main() -> None:
    isa = sys.argv[1] if len(sys.argv) > 1 else _core.isa()
    element = sys.argv[2] if len(sys.argv) > 2 else "float"
    print(f"{_core.cpu()}, {isa}, {element}, one thread")
    for index, kernel in enumerate(_core.kernels()):
        if (kernel.isa, kernel.element) == (isa, element):
            print(f"{kernel.name:16} {rate(index, kernel):7.1f} GFLOP/s", flush=True)


if __name__ == "__main__":
    main()
