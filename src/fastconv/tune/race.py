"""Calls timed against each other: in turns, so that a machine whose speed drifts is as fast or slow for all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median

#: One that took this many times the fastest's time so far does not run again.
HOPELESS = 4.0


def race(calls: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """The median time of each call; each runs at least once after a first time that does not count, and all stop after `seconds`."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    running = dict(calls)
    for call in running.values():
        call()
    end = time.perf_counter() + seconds
    while True:
        for name, call in running.items():
            times[name] += _timed(call)
        best = min(min(values) for values in times.values())
        running = {name: call for name, call in running.items() if min(times[name]) <= HOPELESS * best}
        if time.perf_counter() >= end:
            return {name: median(values) for name, values in times.items()}


def _timed(call: Callable[[], object]) -> list[float]:
    """A few times in a row, as callers do; one if it is long."""
    found = []
    for _ in range(5):
        begin = time.perf_counter()
        call()
        found.append(time.perf_counter() - begin)
        if found[0] > 0.02:
            break
    return found
