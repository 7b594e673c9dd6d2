"""Times half types beside float32 on every float32 workload of moderate size, in both layouts.

    python benchmarks/halves.py [NAME ...]

Names are beginnings of workload names (default: all). The three types take turns; a line shows the medians over float32's, worst
first. Needs ml_dtypes, for bfloat16.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from statistics import median

import ml_dtypes
import numpy as np

import fastconv as fc
from fastconv.bench.cases import Case, load

MOST_FLOPS = 1.5e9
ROUNDS = 7
ALLOWED = 1.1
TYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


def calls(case: Case, layout: str) -> Iterator[tuple[str, dict[str, Callable[[], object]]]]:
    """(direction, a call for each type) of a case."""
    x_shape = case.x_shape if layout == "NC" else (case.n, *case.size, case.cin)
    geometry = {"stride": case.stride, "padding": case.padding, "dilation": case.dilation, "groups": case.groups, "layout": layout}
    dims = fc.ConvDims(x_shape, case.w_shape, transposed=case.transposed, output_padding=case.output_padding, **geometry)
    rng = np.random.default_rng(0)
    drawn = [rng.standard_normal(shape, np.float32) for shape in (x_shape, case.w_shape, dims.output_shape)]
    for direction in case.directions:
        made = {}
        for name, dtype in TYPES.items():
            x, w, dy = (array.astype(dtype) for array in drawn)
            made[name] = {
                "fwd": lambda x=x, w=w, out=np.empty_like(dy): fc.conv(x, w, dims, out=out),
                "dx": lambda dy=dy, w=w, out=np.empty_like(x): fc.conv_input_grad(dy, w, dims, out=out),
                "dw": lambda x=x, dy=dy, out=np.empty_like(w): fc.conv_weight_grad(x, dy, dims, out=out),
            }[direction]
        yield direction, made


def in_turn(made: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Median seconds of each call."""
    times: dict[str, list[float]] = {name: [] for name in made}
    for call in made.values():
        call()
    for _ in range(ROUNDS):
        for name, call in made.items():
            start = time.perf_counter()
            call()
            times[name].append(time.perf_counter() - start)
    return {name: median(seconds) for name, seconds in times.items()}


def main() -> None:
    """Arguments: above."""
    beginnings = tuple(sys.argv[1:]) or ("",)
    cases = [c for c in load() if c.dtype == "float32" and c.op != "convn" and c.flops <= MOST_FLOPS and c.name.startswith(beginnings)]
    found = []
    for case in cases:
        for layout in ("NC", "N...C"):
            for direction, made in calls(case, layout):
                seconds = in_turn(made)
                ratios = [seconds[name] / seconds["float32"] for name in ("float16", "bfloat16")]
                found.append((*ratios, f"{case.name:<20} {direction:<4} {layout:<6} {seconds['float32'] * 1e3:8.3f} ms in float32"))
    for half, brain, text in sorted(found, key=lambda line: -max(line[:2])):
        print(f"float16 {half:5.2f}  bfloat16 {brain:5.2f}  {text}")
    for place, name in enumerate(("float16", "bfloat16")):
        ratios = [line[place] for line in found]
        print(f"{name}: median {median(ratios):.2f}; {sum(r > ALLOWED for r in ratios)} of {len(ratios)} above {ALLOWED}")


if __name__ == "__main__":
    main()
