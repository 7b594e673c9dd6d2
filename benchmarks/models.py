"""Times every algorithm that accepts a workload against its cost model: is the planner's choice the fastest?

    python benchmarks/models.py [NAME ...]

Names are beginnings of workload names (default: the seed family and a few others); layout N C spatial. Algorithms modelled at
more than 20 times the planner's choice are left out. Times are minima of repeated calls on warm memory.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

import numpy as np

import fastconv as fc
from fastconv.bench.cases import Case, load
from fastconv.plan import Plan, forced

DEFAULT = ("seed", "small-3x3", "mnist", "resnet-stem", "resnet-3x3-64", "dcgan", "vnet", "signal-101", "image-7x7")


def directions(case: Case) -> Iterator[tuple[str, Plan, Callable[[], object]]]:
    """(direction, its plan, a call) for each direction of a case."""
    geometry = {"stride": case.stride, "padding": case.pads, "dilation": case.dilation, "groups": case.groups}
    dims = fc.ConvDims(case.x_shape, case.w_shape, transposed=case.transposed, output_padding=case.output_padding, **geometry)
    rng = np.random.default_rng(0)
    x, w, dy = (rng.standard_normal(shape).astype(case.dtype) for shape in (case.x_shape, case.w_shape, case.y_shape))
    transposed = {"transposed": case.transposed, "output_padding": case.output_padding}
    forward = {"output_padding": case.output_padding} if case.transposed else {}
    ops = {
        "fwd": (case.op, forward, lambda: fc.conv(x, w, dims)),
        "dx": ("input_grad", transposed, lambda: fc.conv_input_grad(dy, w, dims)),
        "dw": ("weight_grad", transposed, lambda: fc.conv_weight_grad(x, dy, dims)),
    }
    for direction in case.directions:
        op, more, call = ops[direction]
        yield direction, fc.plan(case.x_shape, case.w_shape, dtype=case.dtype, op=op, **geometry, **more), call


def milliseconds(call: Callable[[], object], span: float = 0.2) -> float:
    """The best of the calls that fit into `span` seconds."""
    call()
    best, start = float("inf"), time.perf_counter()
    while time.perf_counter() - start < span:
        begin = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - begin)
    return best * 1e3


def main() -> None:
    wanted = tuple(sys.argv[1:]) or DEFAULT
    print(f"{fc.info()['cpu']}, {fc.info()['isa']}, {fc.get_num_threads()} threads; milliseconds measured (modelled), the choice first")
    for case in load():
        if case.op == "convn" or not case.name.startswith(wanted):
            continue
        for direction, plan, call in directions(case):
            modelled = {name: cost for name, cost in plan.considered.items() if isinstance(cost, float) and cost <= 20 * plan.seconds}
            rows = {}
            for name in sorted(modelled, key=lambda name, chosen=plan.algorithm: name != chosen):
                with forced(name):
                    rows[name] = milliseconds(call)
            text = ", ".join(f"{name} {measured:.3f} ({modelled[name] * 1e3:.3f})" for name, measured in rows.items())
            lost = rows[plan.algorithm] / min(rows.values())
            print(f"{case.name:20} {direction:3} {text}{f'  LOST x{lost:.2f}' if lost > 1.1 else ''}", flush=True)


if __name__ == "__main__":
    main()
