"""What share of the machine's multiply-adds dense 3x3 layers reach directly (precision "highest": without Winograd).

    python benchmarks/peak.py [NAME ...]

Names are workloads (default: the dense 3x3 ones of 64 channels and more, and 28 x 28 outputs and more). Every share is the median of
calls that alternate with measurements of the ceiling (`fastconv.bench.ceilings`), since machines change their pace within seconds;
only multiply-adds that touch data count.
"""

from __future__ import annotations

import sys
import time
from statistics import median

import numpy as np

import fastconv as fc
from fastconv.bench import ceilings
from fastconv.bench.cases import Case, load

DEFAULT = ("resnet-3x3-64", "vgg-3x3-64", "resnet-3x3-64-n16", "c3d-3x3x3")
DIRECTIONS = ("fwd", "dx", "dw")
TURNS, SLICE = 20, 0.006
THREADS = 2


def shares(case: Case, layout: str, ceiling: ceilings.Ceilings) -> list[float]:
    """Of each direction."""
    x_shape = case.x_shape if layout == "NC" else (case.n, *case.size, case.cin)
    dims = fc.ConvDims(x_shape, case.w_shape, padding=case.padding, layout=layout)
    rng = np.random.default_rng(0)
    x, w, dy = (rng.standard_normal(shape).astype(np.float32) for shape in (x_shape, case.w_shape, dims.output_shape))
    y, dx, dw = (np.empty_like(a) for a in (dy, x, w))
    calls = (
        lambda: fc.conv(x, w, dims, precision="highest", out=y),
        lambda: fc.conv_input_grad(dy, w, dims, precision="highest", out=dx),
        lambda: fc.conv_weight_grad(x, dy, dims, precision="highest", out=dw),
    )
    flops = 2 * fc.plan(x_shape, case.w_shape, padding=case.padding, layout=layout).problem.products
    found = []
    for call in calls:
        call()
        turns = []
        for _ in range(TURNS):
            before = ceiling.flops("float32")
            times, end = [], time.perf_counter() + SLICE
            while time.perf_counter() < end or len(times) < 2:
                start = time.perf_counter()
                call()
                times.append(time.perf_counter() - start)
            after = ceiling.flops("float32")
            assert before is not None
            assert after is not None
            turns.append(2 * flops / median(times) / (before + after))
        found.append(median(turns))
    return found


def main(names: tuple[str, ...]) -> None:
    cases = {case.name: case for case in load()}
    ceilings.SLICE = SLICE
    fc.set_num_threads(THREADS)
    print(f"| row | layout | {' | '.join(DIRECTIONS)} |")
    print("|---|---|--:|--:|--:|")
    with ceilings.Ceilings(THREADS) as ceiling:
        for name in names:
            for layout in ("NC", "N...C"):
                print(f"| {name} | {layout} | {' | '.join(f'{share:.0%}' for share in shares(cases[name], layout, ceiling))} |", flush=True)


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or DEFAULT)
