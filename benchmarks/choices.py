"""Draws layers at random and races the algorithms on each: where does the planner choose badly?

    python benchmarks/choices.py [SECONDS] [SEED]

A layer has 1 to 3 axes, any of the common kernels, strides and dilations, dense, depthwise, grouped or with few channels, forward
or a gradient, transposed or not, in either layout. The five algorithms modelled fastest run on it. The loss is the time of the
planner's choice over that of the fastest; the worst are listed with microseconds measured (modelled) of each.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np

import fastconv as fc
from fastconv.plan import Plan, forced

WIDE = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)
KERNELS = {1: (1, 3, 5, 7, 9, 15, 31, 64), 2: (1, 2, 3, 3, 3, 4, 5, 7, 11), 3: (1, 2, 3, 3, 5)}
SIZES = {1: (50, 100, 400, 1000, 4000, 16000), 2: (7, 14, 28, 56, 112, 224), 3: (8, 16, 32, 48)}
#: Products of a layer, and elements of its larger image, that are raced.
PRODUCTS = (2e5, 2e8)
MOST_ELEMENTS = 1.2e7
RACERS = 5
SHOWN = 40


class Layer(NamedTuple):
    """Arguments of the calls; direction: "fwd", "dx" or "dw"."""

    x_shape: tuple[int, ...]
    w_shape: tuple[int, ...]
    direction: str
    transposed: bool
    options: dict[str, Any]

    def __str__(self) -> str:
        options = " ".join(f"{name}={value}" for name, value in self.options.items() if value not in (0, 1, "NC"))
        return f"x{self.x_shape} w{self.w_shape} {self.direction}{' transposed' if self.transposed else ''} {options}"


def drawn(rng: random.Random) -> Layer | None:
    """A layer, or None where the dice made none that fits."""
    axes = rng.choice((1, 1, 2, 2, 2, 3))
    kind = rng.choice(("dense", "dense", "depthwise", "grouped", "few"))
    groups = 1
    if kind == "dense":
        channels, features = rng.choice(WIDE), rng.choice(WIDE)
    elif kind == "depthwise":
        groups = channels = rng.choice((*WIDE, 1024))
        features = channels * rng.choice((1, 1, 1, 2))
    elif kind == "grouped":
        groups = rng.choice((2, 4, 8, 16, 32))
        channels, features = (groups * rng.choice((2, 4, 8, 16, 32)) for _ in "io")
    else:
        channels, features = rng.sample((rng.choice((1, 1, 2, 3, 4)), rng.choice((1, 1, 3, 4, 8, 16, 32, 64))), 2)
    kernel, size, batch = rng.choice(KERNELS[axes]), rng.choice(SIZES[axes]), rng.choice((1, 1, 2, 4, 8, 16, 64))
    stride = rng.choice((1, 1, 1, 2, 2, 3, 4))
    dilation = rng.choice((1, 1, 1, 1, 2, 4)) if kernel > 1 else 1
    transposed, reach = rng.random() < 0.25, (kernel - 1) * dilation
    products = batch * channels * features // groups * (kernel * size) ** axes // (1 if transposed else stride**axes)
    elements = batch * max(channels, features) * (size * (stride if transposed else 1)) ** axes
    if not PRODUCTS[0] < products < PRODUCTS[1] or elements > MOST_ELEMENTS or reach >= size:
        return None
    spatial, layout = (size,) * axes, rng.choice(("NC", "N...C"))
    first, second = (channels, features) if transposed else (features, channels)
    return Layer(
        (batch, channels, *spatial) if layout == "NC" else (batch, *spatial, channels),
        (first, second // groups, *(kernel,) * axes),
        rng.choice(("fwd", "dx", "dw")),
        transposed,
        {"stride": stride, "padding": reach // 2, "dilation": dilation, "groups": groups, "layout": layout},
    )


def prepared(layer: Layer) -> tuple[Plan, Callable[[], object]]:
    """The plan of a layer, and a call of it."""
    dims = fc.ConvDims(layer.x_shape, layer.w_shape, transposed=layer.transposed, **layer.options)
    rng = np.random.default_rng(0)
    x, w, dy = (rng.standard_normal(shape, np.float32) for shape in (layer.x_shape, layer.w_shape, dims.output_shape))
    op = {"fwd": "conv_transpose" if layer.transposed else "conv", "dx": "input_grad", "dw": "weight_grad"}[layer.direction]
    more: dict[str, Any] = {"transposed": True} if layer.transposed and layer.direction != "fwd" else {}
    call = {
        "fwd": lambda: fc.conv(x, w, dims),
        "dx": lambda: fc.conv_input_grad(dy, w, dims),
        "dw": lambda: fc.conv_weight_grad(x, dy, dims),
    }[layer.direction]
    return fc.plan(layer.x_shape, layer.w_shape, op=op, **layer.options, **more), call


def race(plan: Plan, call: Callable[[], object]) -> dict[str, float]:
    """Seconds of the planner's choice and its rivals, the best of a few calls each."""
    costs = {name: cost for name, cost in plan.considered.items() if not isinstance(cost, str)}
    seconds = {}
    for name in sorted(costs, key=lambda name: costs[name])[:RACERS]:
        with forced(name):
            call()
            best = float("inf")
            for _ in range(4):
                start = time.perf_counter()
                call()
                best = min(best, time.perf_counter() - start)
                if best > 0.05:
                    break
        seconds[name] = best
    return seconds


def main() -> None:
    span, seed = float((sys.argv[1:] or ["60"])[0]), int((sys.argv[2:] or ["0"])[0])
    rng, end = random.Random(seed), time.monotonic() + span
    rows = []
    while time.monotonic() < end:
        layer = drawn(rng)
        if layer is None:
            continue
        plan, call = prepared(layer)
        seconds = race(plan, call)
        if plan.algorithm in seconds:
            rows.append((seconds[plan.algorithm] / min(seconds.values()), layer, plan, seconds))
    if not rows:
        raise SystemExit("no layer was drawn: give more seconds")
    rows.sort(key=lambda row: -row[0])
    losses = [row[0] for row in rows]
    print(f"{fc.info()['cpu']}, {fc.info()['isa']}, {fc.get_num_threads()} threads, seed {seed}")
    print(
        f"{len(rows)} layers: geometric mean of the loss {prod(loss ** (1 / len(rows)) for loss in losses):.3f}, "
        f"{sum(loss > 1.25 for loss in losses)} above 1.25, {sum(loss > 2 for loss in losses)} above 2"
    )
    pairs = Counter((plan.algorithm, min(seconds, key=lambda name: seconds[name])) for loss, _, plan, seconds in rows if loss > 1.25)
    print("chosen, fastest:", ", ".join(f"{chosen} {fastest} {count}" for (chosen, fastest), count in pairs.most_common(10)))
    for loss, layer, plan, seconds in rows[:SHOWN]:
        times = (
            f"{name} {took * 1e6:.0f} ({plan.considered[name] * 1e6:.0f})" for name, took in sorted(seconds.items(), key=lambda i: i[1])
        )
        print(f"{loss:5.2f} {plan.algorithm:<10} {layer}: {', '.join(times)}")


if __name__ == "__main__":
    main()
