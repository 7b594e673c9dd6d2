"""Sweeps channels and lengths through 1 ... 70 at equal work, to find points that fall off the machine's speed.

    python benchmarks/sweep.py --json benchmarks/sweep.json --plot docs/sweep.svg [--only NAME]

A vector register holds `lanes` numbers, so c channels cost what ceil(c / lanes) * lanes would: the one dependence allowed. The
cost of a point is its time for a multiply-add; its neighbours predict it: the running median over +-8 points of the cost divided by
ceil(c / lanes) * lanes / c, times the same factor of the point. The sweep reports each point more than 10 % above that.
Points are timed in turn, in an order that changes from pass to pass, and the fastest of all passes counts. Needs matplotlib to plot.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import fastconv as fc

POINTS = range(1, 71)
REACH = 8
ALLOWED = 1.10
VECTOR_BYTES = {"scalar": 16, "avx2": 32, "avx512": 64, "neon": 16}


class Sweep(NamedTuple):
    """shapes: x, w and options of the point `c` with `repeat` times as many images (or a line as many times as long)."""

    name: str
    shapes: Callable[[int, int], tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]]
    products: float


SWEEPS = (
    Sweep("features: 48 to c channels, 3x3, 28x28", lambda c, n: ((n, 48, 28, 28), (c, 48, 3, 3), {"padding": 1}), 3e7),
    Sweep("channels: c to 48 channels, 3x3, 28x28", lambda c, n: ((n, c, 28, 28), (48, c, 3, 3), {"padding": 1}), 3e7),
    Sweep("channels: c to c, 1x1, 28x28", lambda c, n: ((n, c, 28, 28), (c, c, 1, 1), {}), 1e7),
    Sweep("depthwise: c channels, 3x3, 28x28", lambda c, n: ((n, c, 28, 28), (c, 1, 3, 3), {"padding": 1, "groups": c}), 2e6),
    Sweep("groups: 8 of c channels, 3x3, 14x14", lambda c, n: ((n, 8 * c, 14, 14), (8 * c, c, 3, 3), {"groups": 8}), 3e7),
    Sweep("lengths: c x c images, 32 to 32 channels, 3x3", lambda c, n: ((n, 32, c, c), (32, 32, 3, 3), {"padding": 1}), 3e7),
    Sweep("lengths: lines of c, 32 to 32 channels, 5 taps", lambda c, n: ((n, 32, c), (32, 32, 5), {"padding": 2}), 3e7),
    Sweep("widths: one channel, 5x5, 64 x c images", lambda c, n: ((n, 1, 64, c), (1, 1, 5, 5), {"padding": 2}), 5e6),
    Sweep("taps: one channel, lines of 4096, c taps", lambda c, n: ((n, 1, 4096), (1, 1, c), {"padding": c // 2}), 5e6),
)
DIRECTIONS = ("fwd", "dx", "dw")
LAYOUTS = ("NC", "N...C")


def calls(sweep: Sweep, direction: str, layout: str) -> list[tuple[Callable[[], object], float]]:
    """A call for each point and the multiply-adds that it makes."""
    rng = np.random.default_rng(0)
    made = []
    for c in POINTS:
        shape, w_shape, options = sweep.shapes(c, 1)
        each = fc.plan(shape, w_shape, **options).problem.products
        n = max(1, round(sweep.products / each))
        shape, w_shape, options = sweep.shapes(c, n)
        if layout == "N...C":
            shape = (shape[0], *shape[2:], shape[1])
        dims = fc.ConvDims(shape, w_shape, layout=layout, **options)
        x, w, dy = (rng.standard_normal(s, np.float32) for s in (shape, w_shape, dims.output_shape))
        call = {
            "fwd": lambda x=x, w=w, dims=dims, out=np.empty_like(dy): fc.conv(x, w, dims, precision="highest", out=out),
            "dx": lambda dy=dy, w=w, dims=dims, out=np.empty_like(x): fc.conv_input_grad(dy, w, dims, precision="highest", out=out),
            "dw": lambda x=x, dy=dy, dims=dims, out=np.empty_like(w): fc.conv_weight_grad(x, dy, dims, precision="highest", out=out),
        }[direction]
        made.append((call, each * n))
    return made


def measured(work: list[tuple[Callable[[], object], float]], passes: int) -> list[float]:
    """Nanoseconds a multiply-add at each point."""
    best = [float("inf")] * len(work)
    order = list(range(len(work)))
    for _ in range(passes):
        random.shuffle(order)
        for i in order:
            call, products = work[i]
            start = time.perf_counter()
            call()
            best[i] = min(best[i], (time.perf_counter() - start) / products * 1e9)
    return best


def predicted(costs: list[float], lanes: int) -> list[float]:
    """What the neighbours predict for each point."""
    factors = [-(-c // lanes) * lanes / c for c in POINTS]
    plain = [cost / factor for cost, factor in zip(costs, factors, strict=True)]
    found = []
    for i, factor in enumerate(factors):
        near = plain[max(0, i - REACH) : i + REACH + 1]
        found.append(max(float(np.median(near)) * factor, float(np.median(costs[max(0, i - REACH) : i + REACH + 1]))))
    return found


def plot(rows: list[dict[str, Any]], path: str) -> None:
    """One panel a sweep: cost over c for each direction and layout, points above the allowance marked."""
    import matplotlib  # pyright: ignore[reportMissingImports]

    matplotlib.use("svg")
    from matplotlib import pyplot  # pyright: ignore[reportMissingImports]

    names = list(dict.fromkeys(row["sweep"] for row in rows))
    figure, panels = pyplot.subplots((len(names) + 1) // 2, 2, figsize=(13, 3 * ((len(names) + 1) // 2)), squeeze=False)
    for panel, name in zip(panels.flat, names, strict=False):
        for row in (row for row in rows if row["sweep"] == name):
            (line,) = panel.plot(POINTS, row["ns"], linewidth=1, label=f"{row['direction']} {row['layout']}")
            worst = [c for c, cost, limit in zip(POINTS, row["ns"], row["predicted"], strict=True) if cost > ALLOWED * limit]
            panel.plot(worst, [row["ns"][c - 1] for c in worst], "o", markersize=4, color=line.get_color())
        panel.set(title=name, yscale="log", xlabel="c", ylabel="ns a multiply-add")
        panel.legend(fontsize=6, ncols=2)
    for panel in list(panels.flat)[len(names) :]:
        panel.remove()
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    """Arguments: above."""
    parser = argparse.ArgumentParser(description="Sweeps channels and lengths through 1 ... 70 at equal work")
    parser.add_argument("--json")
    parser.add_argument("--plot")
    parser.add_argument("--only", default="", help="sweeps whose name contains this")
    parser.add_argument("--passes", type=int, default=15)
    arguments = parser.parse_args()
    lanes = VECTOR_BYTES[fc.info()["isa"]] // 4
    rows = []
    random.seed(0)
    for sweep in (sweep for sweep in SWEEPS if arguments.only in sweep.name):
        for direction in DIRECTIONS:
            for layout in LAYOUTS:
                costs = measured(calls(sweep, direction, layout), arguments.passes)
                limits = predicted(costs, lanes)
                above = {c: round(cost / limit, 2) for c, cost, limit in zip(POINTS, costs, limits, strict=True) if cost > ALLOWED * limit}
                kept = {"ns": [round(cost, 6) for cost in costs], "predicted": [round(limit, 6) for limit in limits]}
                rows.append({"sweep": sweep.name, "direction": direction, "layout": layout, **kept})
                print(f"{sweep.name:<50} {direction:<4} {layout:<6} {len(above):>3} above: {above}", flush=True)
    if arguments.json:
        about = {name: fc.info()[name] for name in ("cpu", "isa", "threads", "fastconv", "numpy")}
        Path(arguments.json).write_text(json.dumps({"about": about, "lanes": lanes, "rows": rows}, indent=1) + "\n")
    if arguments.plot:
        plot(rows, arguments.plot)


if __name__ == "__main__":
    main()
