"""The NumPy front in its process: plans and info, several calling threads, fork, thread counts, the environment, memory."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import fastconv as fc
from fastconv import _core
from fastconv.bench.cases import Case, load
from fastconv.plan import forced


def draw(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def python(code: str, **environment: str) -> str:
    """What a fresh interpreter prints."""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}, timeout=120)
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.parametrize("op", ["conv", "conv_transpose", "input_grad", "weight_grad"])
def test_plan_is_what_a_call_uses(op: str) -> None:
    plan = fc.plan((2, 4, 9), (4, 6, 3) if op == "conv_transpose" else (6, 4, 3), op=op, padding=1, precision="highest")
    assert plan.algorithm in plan.considered
    assert plan.seconds == plan.considered[plan.algorithm]
    assert plan.workspace_bytes >= 0
    assert str(plan).startswith(plan.algorithm)
    assert plan.problem.precision == "highest"
    assert plan.words


def test_info() -> None:
    found = fc.info()
    assert found["fastconv"] == fc.__version__
    assert found["isa"] in found["isas"]
    assert found["threads"] == fc.get_num_threads() >= 1


def test_several_calling_threads() -> None:
    """Calls of different shapes from eight threads at once, each with the result that it has alone."""
    cases = [(draw(2, 3, 40 + n, 37), draw(4, 3, 3, 1 + n % 5, seed=1)) for n in range(12)]
    expected = [fc.conv(x, w, padding=1) for x, w in cases]

    def work(n: int) -> bool:
        x, w = cases[n % len(cases)]
        return np.array_equal(fc.conv(x, w, padding=1), expected[n % len(cases)])

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(400)))


def _child(queue: Any, x: np.ndarray, w: np.ndarray) -> None:
    queue.put(fc.conv(x, w, padding=1))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning", "ignore:.*fork.*:RuntimeWarning")
def test_a_forked_child_computes() -> None:
    """The parent's worker threads do not exist in the child; it starts its own. And the parent goes on."""
    x, w = draw(2, 8, 64, 64), draw(8, 8, 3, 3, seed=1)
    expected = fc.conv(x, w, padding=1)
    context = multiprocessing.get_context("fork")
    for _ in range(3):
        queue = context.Queue()
        child = context.Process(target=_child, args=(queue, x, w))
        child.start()
        np.testing.assert_array_equal(queue.get(timeout=60), expected)
        child.join(60)
        assert child.exitcode == 0
        np.testing.assert_array_equal(fc.conv(x, w, padding=1), expected)


def test_number_of_threads() -> None:
    try:
        x, w = draw(1, 16, 50, 50), draw(16, 16, 3, 3, seed=1)
        found = []
        for n in (1, 2, 3, 5):
            fc.set_num_threads(n)
            assert fc.get_num_threads() == n
            found.append(fc.conv(x, w).tobytes())
        assert len(set(found)) == 1
    finally:
        fc.set_num_threads(None)
    assert fc.get_num_threads() == _core.default_threads()


def test_the_environment_is_read_at_import() -> None:
    show = "import fastconv as fc; print(fc.get_num_threads(), fc.info()['isa'])"
    assert python(show, FASTCONV_NUM_THREADS="3", FASTCONV_ISA="scalar").split() == ["3", "scalar"]
    assert (
        python("import fastconv as fc; print(fc.plan((1, 1, 8), (1, 1, 3)).algorithm)", FASTCONV_ALGORITHM="general").strip() == "general"
    )


def test_a_cap_of_another_kind_of_cpu_is_refused() -> None:
    other = "avx2" if "neon" in _core.isas() else "neon"
    run = subprocess.run(
        [sys.executable, "-c", "import fastconv"], env={**os.environ, "FASTCONV_ISA": other}, capture_output=True, text=True
    )
    assert f"FASTCONV_ISA must be one of scalar, {'neon' if other == 'avx2' else 'avx2, avx512'} on this CPU, got '{other}'" in run.stderr


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity masks")
def test_the_affinity_mask_is_respected() -> None:
    one = min(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, [{one}]); import fastconv as fc; print(fc.get_num_threads())"
    environment = {name: value for name, value in os.environ.items() if name != "FASTCONV_NUM_THREADS"}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert run.stdout.strip() == "1"


MEASURE = """
import numpy as np
import fastconv as fc
def peak():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))
def reset():
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
fc.conv(np.ones((1, 1, 64, 64), np.float32), np.ones((1, 1, 3, 3), np.float32))
"""


@pytest.mark.skipif(not os.access("/proc/self/clear_refs", os.W_OK), reason="this system does not tell a process's peak memory")
@pytest.mark.parametrize(
    ("name", "arrays", "call"),
    [
        ("large image, long kernel", ((1, 1, 4222, 4222), (1, 1, 127, 127)), "fc.conv(a, b)"),  # unfolded: 1008 GiB
        ("its input gradient", ((1, 2, 1038, 1038), (2, 1, 63, 63)), "fc.conv_input_grad(a, b, (1, 1, 1100, 1100))"),
        ("its weight gradient", ((1, 1, 400, 400), (1, 2, 370, 370)), "fc.conv_weight_grad(a, b, (2, 1, 31, 31))"),
        ("many channels", ((4, 64, 130, 130), (64, 64, 3, 3)), "fc.conv(a, b, padding=1)"),
        ("transposed", ((4, 129, 400), (129, 1, 256)), "fc.conv_transpose(a, b, stride=64)"),
        ("channels last", ((2, 128, 128, 96), (96, 96, 3, 3)), "fc.conv(a, b, layout='N...C')"),
        ("depthwise", ((4, 256, 100, 100), (256, 1, 5, 5)), "fc.conv(a, b, groups=256)"),
        ("float64 volume", ((1, 4, 60, 60, 60), (4, 4, 5, 5, 5)), "fc.conv(a.astype(np.float64), b.astype(np.float64))"),
    ],
)  # fmt: skip
def test_extra_memory(name: str, arrays: tuple[tuple[int, ...], ...], call: str) -> None:
    """No call needs more than 2 x (inputs + output) + 32 MB beside its arrays, whatever the kernel."""
    code = f"""{MEASURE}
a, b = (np.ones(shape, np.float32) for shape in {arrays!r})
reset()
before = peak()
y = {call}
print(peak() - before, a.nbytes, b.nbytes, y.nbytes)
"""
    grown, a, b, y = map(int, python(code).split())
    double = 2 if "float64" in call else 1  # the copies that the test itself makes are inputs too
    assert grown - y - (double - 1) * 2 * (a + b) <= 2 * (double * (a + b) + y) + 32e6


@pytest.mark.parametrize("case", [case for case in load() if case.op != "convn"], ids=lambda case: case.name)
def test_workspace_of_every_workload(case: Case) -> None:
    """As planned, in both layouts: within 2 x (inputs + output) + 32 MB."""
    ops = {"fwd": "conv", "dx": "input_grad", "dw": "weight_grad"}
    options: dict[str, Any] = {"stride": case.stride, "padding": case.padding, "dilation": case.dilation, "groups": case.groups}
    if case.transposed:
        ops["fwd"], options["output_padding"] = "conv_transpose", case.output_padding
    for direction in case.directions:
        transposed: dict[str, Any] = {"transposed": True} if case.transposed and direction != "fwd" else {}
        for layout, x_shape in (("NC", case.x_shape), ("N...C", (case.n, *case.size, case.cin))):
            op = ops[direction]
            plan = fc.plan(x_shape, case.w_shape, dtype=case.dtype, op=op, layout=layout, **options, **transposed)
            assert plan.workspace_bytes <= 2 * case.bytes(direction) + 32e6, (direction, layout, plan)


def test_precision_highest_is_direct_after_and_before_the_default() -> None:
    """The approximate algorithm is what the default takes here; neither order of calls mixes their plans."""
    x, w = draw(1, 64, 40, 40), draw(64, 64, 3, 3, seed=1)
    dy = draw(1, 64, 40, 40, seed=2)
    calls: dict[str, Any] = {
        "conv": lambda **o: fc.conv(x, w, padding=1, **o),
        "input_grad": lambda **o: fc.conv_input_grad(dy, w, x.shape, padding=1, **o),
        "general": lambda **o: fc.conv_general_dilated(x, w, (1, 1), "SAME", **o),
    }
    for call in calls.values():
        for _ in range(2):
            default, highest = call(), call(precision="highest")
            with forced("winograd"):
                np.testing.assert_array_equal(default, call())
                np.testing.assert_array_equal(highest, call(precision="highest"))
            assert not np.array_equal(default, highest)
    assert fc.plan(x.shape, w.shape, padding=1).algorithm == "winograd"
    assert fc.plan(x.shape, w.shape, padding=1, precision="highest").algorithm != "winograd"
