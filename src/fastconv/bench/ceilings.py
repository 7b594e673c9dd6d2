"""What the machine can do beside a row: multiply-adds of the best register tile, and bytes that a copy of the row's size moves."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from fastconv import _core

#: Seconds that one ceiling is looked for.
SLICE = 0.06
_VECTOR_BYTES = {"scalar": 16, "avx2": 32, "avx512": 64, "neon": 16}
_ELEMENTS = {"float32": "float", "float64": "double"}


class Ceilings:
    """Measures with `threads` threads of this process; use it as a context manager."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._workers = ThreadPoolExecutor(threads)
        self._best: dict[str, tuple[int, _core.Kernel]] = {}

    def __enter__(self) -> Ceilings:
        return self

    def __exit__(self, *error: object) -> None:
        self._workers.shutdown()

    def flops(self, dtype: str) -> float | None:
        """Multiply-adds x 2 per second of the best packed tile on operands in the first cache; None for a dtype without tiles."""
        if dtype not in _ELEMENTS:
            return None
        if dtype not in self._best:
            wanted = (_core.isa(), _ELEMENTS[dtype], "tile")
            rows = [(i, k) for i, k in enumerate(_core.kernels()) if (k.isa, k.element, k.family) == wanted]
            # The widest tiles are the fastest; which of them is best differs between machines.
            widest = sorted(rows, key=lambda pair: -pair[1].rows * pair[1].cols)[:5]
            self._best[dtype] = max(widest, key=lambda pair: self._tile(*pair, np.dtype(dtype)))
        return self._tile(*self._best[dtype], np.dtype(dtype))

    def _tile(self, index: int, kernel: _core.Kernel, dtype: np.dtype) -> float:
        width, depth = kernel.cols * _VECTOR_BYTES[kernel.isa] // dtype.itemsize, 64
        products = depth * kernel.rows * width
        runs = max(1, int(4e7 / products))  # a quarter of a millisecond and more: the call around them takes 10 us

        def prepared() -> Callable[[], None]:
            a, b, c = (np.ones(n, dtype) for n in (depth * kernel.rows, depth * width, kernel.rows * width))
            return lambda: _core.run_kernel(index, (depth, 0, 0), a.ctypes.data, b.ctypes.data, c.ctypes.data, runs=runs)

        return 2.0 * products * runs * self._rate(prepared)

    def copied(self, size: int) -> float:
        """Bytes read plus bytes written per second when `size` bytes in all (half read, half written) are copied into a used buffer."""
        half = max(64, size // 2 // self._threads)

        def prepared() -> Callable[[], None]:
            source, target = np.ones(half, np.uint8), np.ones(half, np.uint8)
            return lambda: np.copyto(target, source)

        return 2.0 * half * self._rate(prepared)

    def _rate(self, prepare: Callable[[], Callable[[], None]]) -> float:
        """Runs per second, all threads together; each prepares what it works on itself."""

        def count(_: int) -> float:
            run = prepare()
            run()
            best, end = float("inf"), time.perf_counter() + SLICE
            while time.perf_counter() < end:
                start = time.perf_counter()
                run()
                best = min(best, time.perf_counter() - start)
            return 1 / best

        return sum(self._workers.map(count, range(self._threads)))
