"""`fastconv tune`: hears the problems of scripts and suites, races what may run, and keeps the winners where the planner finds them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import fastconv as fc
from fastconv import _core, tune
from fastconv.bench import cases
from fastconv.plan import Measured, this_machine, wisdom
from fastconv.tune import posed
from fastconv.tune.race import race

NUMPY_SCRIPT = """
import sys
import numpy as np, fastconv as fc
x = np.ones((1, 1, int(sys.argv[1])))
fc.conv(x, np.ones((1, 1, 90)), padding=8, bias=np.ones(1), activation="relu")
fc.conv(x[:, :, ::-1], np.ones((1, 1, 90)), padding=8)
sys.exit(int(sys.argv[2]))
"""
JAX_SCRIPT = """
import jax, jax.numpy as jnp
x, w = jnp.ones((1, 64, 28, 28)), jnp.ones((64, 64, 3, 3))
jax.jit(lambda x, w: jax.lax.conv_general_dilated(x, w, (1, 1), "SAME"))(x, w)
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(wisdom, "_CACHE", str(tmp_path / "cache"))
    wisdom.forget()
    yield tmp_path / "cache"
    wisdom.forget()


def command(cache: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "FASTCONV_CACHE": str(cache), "JAX_PLATFORMS": "cpu"}
    call = [sys.executable, "-m", "fastconv.cli", "tune", "--seconds", "0.002", *arguments]
    return subprocess.run(call, capture_output=True, text=True, env=environment)


def test_a_suite_is_heard_in_both_layouts_and_its_winners_are_taken() -> None:
    races = posed.by_cases(cases.matching(cases.suite("seed"), "seed-image-3ch"))
    assert len(races) == 6
    heard: list[tune.Measurement] = []
    threads = _core.get_threads()
    assert tune.tune(races, 0.002, heard.append) == 6
    assert _core.get_threads() == threads
    for race_, found in zip(races, heard, strict=True):
        assert found.winner in found.seconds
        assert found.before in found.seconds
        assert set(found.seconds) == {row.name for row in race_.rows}
        assert wisdom.table(this_machine())[race_.key] == wisdom.Winner(found.winner, found.seconds)
    plan = fc.plan((1, 3, 500, 500), (1, 3, 5, 5), padding=4)
    assert isinstance(plan.seconds, Measured)
    assert plan.algorithm == heard[0].winner


def test_candidates_compute_what_the_front_computes() -> None:
    """Each raced call writes the same result, so none of them is timed on other work."""
    races = posed.by_cases(cases.matching(cases.suite("seed"), "seed-image-5x5"))
    for entrants in races:
        calls = entrants.calls()
        results = []
        for call in calls.values():
            call()
            alive = call.__defaults__[0] if hasattr(call, "__defaults__") else None  # type: ignore[attr-defined]
            if alive is not None:
                results.append(np.array(alive[1][3]))
        assert len(results) >= 2
        assert all(np.allclose(result, results[0], atol=1e-3) for result in results)
        assert results[0].any()


def test_a_script_is_heard_to_its_end_whatever_its_status(tmp_path: Path, cache: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(NUMPY_SCRIPT)
    done = command(cache, str(script), "700", "3")
    assert done.returncode == 0, done.stderr
    assert "ended with status 3" in done.stderr
    assert "2 problems measured" in done.stdout
    (file,) = cache.glob("*.json")
    winners = json.loads(file.read_text())["winners"]
    assert len(winners) == 2
    assert all(key.startswith("fft default ") for key in winners)
    again = command(cache, str(script), "800", "0")
    assert again.returncode == 0, again.stderr
    assert len(json.loads(file.read_text())["winners"]) == 4


def test_a_jax_program_is_heard_and_xla_runs_too(tmp_path: Path, cache: Path) -> None:
    pytest.importorskip("jax")
    script = tmp_path / "program.py"
    script.write_text(JAX_SCRIPT)
    done = command(cache, str(script))
    assert done.returncode == 0, done.stderr
    (file,) = cache.glob("*.json")
    ((key, winner),) = json.loads(file.read_text())["winners"].items()
    assert key.startswith("xla fft default ")
    assert "xla" in winner["seconds"]
    environment = {**os.environ, "FASTCONV_CACHE": str(cache), "JAX_PLATFORMS": "cpu"}
    report = tmp_path / "report.json"
    call = [sys.executable, "-m", "fastconv.cli", "run", "--report", str(report), str(script)]
    subprocess.run(call, check=True, env=environment)
    (row,) = json.loads(report.read_text())
    assert row["algorithm"] == winner["algorithm"]
    assert row["xla_seconds"] == pytest.approx(winner["seconds"]["xla"])


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "tune must be given one of a script, -m MODULE and --suite S"),
        (("--suite", "seed", "script.py"), "tune must be given one of"),
        (("--rows", "x", "script.py"), "rows must be given with a suite"),
        (("--suite", "nothing"), "suite must be one of"),
        (("no-such-script.py",), "script must be an existing file"),
        (("--seconds", "0", "script.py"), "seconds must be above 0"),
    ],
)
def test_wrong_arguments(arguments: tuple[str, ...], why: str, cache: Path) -> None:
    done = command(cache, *arguments)
    assert done.returncode == 2
    assert why in done.stderr
    assert "Traceback" not in done.stderr


def test_a_cache_in_the_place_of_a_file_is_an_error_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    script = tmp_path / "script.py"
    script.write_text("raise SystemExit('it ran')")
    done = command(tmp_path / "file", str(script))
    assert done.returncode == 2
    assert "it ran" not in done.stderr


def test_the_race_takes_turns_and_lets_the_hopeless_go() -> None:
    order: list[str] = []
    clock = {"fast": 0.001, "slow": 0.02}

    def runner(name: str):
        def run() -> None:
            order.append(name)
            import time

            time.sleep(clock[name])

        return run

    times = race({name: runner(name) for name in clock}, 0.1)
    assert set(times) == set(clock)
    assert times["fast"] < times["slow"]
    assert order[:3] == ["fast", "slow", "fast"]
    assert order.count("slow") <= 6 < order.count("fast")


def test_a_win_within_the_noise_changes_nothing() -> None:
    from fastconv.plan import ALGORITHMS

    rows = [row for row in ALGORITHMS if row.name in ("general", "direct")]
    assert tune._best(rows, {"general": 1.0, "direct": 0.98}, "general") == "general"
    assert tune._best(rows, {"general": 1.0, "direct": 0.9}, "general") == "direct"
