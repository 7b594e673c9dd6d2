"""Measuring on a device: who takes part, bursts, the error that is allowed, and what is said where there is no device."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from fastconv.bench import devices, worker
from fastconv.bench.cases import Case
from fastconv.bench.oracle import Oracle, problem_of
from fastconv.bench.run import Settings, bench
from fastconv.reference import reference

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
CASE = Case.from_json(
    {
        "name": "up",
        "family": "f",
        "source": "s",
        "op": "conv_transpose",
        "cin": 4,
        "cout": 2,
        "size": [9],
        "kernel": [4],
        "stride": [2],
        "dtype": "float32",
        "directions": ["fwd"],
    }
)


def test_contestants_know_their_device() -> None:
    found = devices.contestants("cuda")
    assert [(c.name, c.platform) for c in found] == [("jax+fastconv", "cuda"), ("jax", "cuda"), ("torch", "cuda")]
    assert [c.name for c in devices.contestants("rocm", ["torch"])] == ["jax+fastconv", "torch"]
    with pytest.raises(ValueError, match="platform must be one of cuda, rocm, tpu, cpu, got 'gpu'"):
        devices.contestants("gpu")
    with pytest.raises(ValueError, match="against must name peers among jax, torch on a platform, got 'scipy'"):
        devices.contestants("cuda", ["scipy"])


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="needs jax")
@pytest.mark.parametrize("platform", ["cuda", "rocm"])
def test_without_the_device_the_error_says_so(platform: str) -> None:
    if any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/kfd").exists():
        pytest.skip("there may be such a device")
    with pytest.raises(ValueError, match=rf"platform must be one that JAX finds a device of, got '{platform}' \(.*JAX finds no device"):
        bench([CASE], devices.contestants(platform, []), Settings(threads=1, platform=platform))


def test_bursts_grow_warm_up_and_divide(monkeypatch: pytest.MonkeyPatch) -> None:
    now, made = 0.0, []

    def burst(count: int) -> None:
        nonlocal now
        made.append(count)
        now += 0.010 + count * 0.001  # 10 ms to wait, 1 ms a call

    monkeypatch.setattr(worker, "time", SimpleNamespace(perf_counter=lambda: now))
    times = worker._measure_bursts(burst, 0.5)
    assert made[:8] == [1, 2, 4, 8, 16, 32, 64, 128]
    assert set(made[8:]) == {128}
    assert len(times) == len(made) - 8 >= 3
    assert times == pytest.approx([0.138 / 128] * len(times))
    assert worker._measure_bursts(burst, 0.005) == pytest.approx([0.011])  # one call is longer than all the time there is


def test_products_may_be_rounded_as_the_device_rounds_them() -> None:
    assert devices.product_error("cuda", "float32") == 2.0**-10
    assert devices.product_error("cuda", "float64") == devices.product_error("rocm", "float32") == devices.product_error("", "float32") == 0
    problem, lhs, rhs = problem_of(CASE, "fwd")

    def tf32(array: np.ndarray) -> np.ndarray:
        return (array.view(np.uint32) + np.uint32(1 << 12) & np.uint32(0xFFFFE000)).view(np.float32)

    rounded = reference(problem, tf32(lhs), tf32(rhs)).value.reshape(CASE.y_shape[1:][::1]).astype(np.float32)
    result = np.ascontiguousarray(rounded.reshape(CASE.y_shape))
    assert Oracle(CASE, "fwd").error(result) > 1
    assert Oracle(CASE, "fwd", product_error=devices.product_error("cuda", "float32")).error(result) < 1


def test_the_cells_for_gpus_are_sixty_at_most_and_their_plan_counts_compilations() -> None:
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "gpu.py", "--plan", "--json", "no such file"], capture_output=True, text=True, check=True
    )
    assert "60 of 60 cells to be measured, at most 8 minutes" in done.stdout
    assert "= 240 compilations" in done.stdout
