"""The measurement: honest contestants are timed, and those that lie, sleep, eat memory or crash are found out and survived."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from fastconv.bench.cases import Case
from fastconv.bench.process import Contestant, Died, Overrun, Worker
from fastconv.bench.run import Settings, bench, chosen_peers

CASE = Case.from_json(
    {
        "name": "tiny",
        "family": "f",
        "source": "s",
        "op": "convn",
        "mode": "same",
        "size": [40, 30],
        "kernel": [5, 4],
        "dtype": "float32",
        "directions": ["fwd"],
    }
)
OTHER = Case.from_json({**CASE.to_json(), "name": "three", "kernel": [3, 3]})
HONEST = Contestant("scipy", "fastconv.bench.peers.scipy")
QUICK = Settings(threads=1, rounds=2, slice=0.005, cap=1.0, memory=1 << 30)


@pytest.fixture(autouse=True)
def _fakes_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))


def fake(name: str) -> Contestant:
    return Contestant(name, f"bench_fakes.{name}")


def cells(result: dict[str, Any], row: int = 0) -> dict[tuple[str, str], dict[str, Any]]:
    return {(cell["contestant"], cell["form"]): cell for cell in result["rows"][row]["cells"]}


def test_an_honest_contestant_is_checked_and_timed() -> None:
    heard: list[str] = []
    result = bench([CASE], [HONEST], QUICK, heard.append)
    assert result["complete"]
    assert heard == ["starting the contestants", "tiny fwd"]
    assert {form for _, form in cells(result)} == {"signal", "oaconvolve", "ndimage"}
    for cell in cells(result).values():
        assert cell["status"] == "ok"
        assert 0 < cell["minimum"] <= cell["median"]
        assert 0 < cell["error"] <= 1
        assert cell["calls"] >= 2


def test_a_slow_contestant_is_killed_and_its_other_form_still_timed() -> None:
    result = bench([CASE], [fake("slow"), HONEST], QUICK)
    sleeper = cells(result)["slow", "sleeps"]
    assert (sleeper["status"], sleeper["note"], sleeper["median"]) == ("capped", "> 1 s", None)
    assert cells(result)["slow", "ndimage"]["median"] > 0
    assert cells(result)["scipy", "ndimage"]["median"] > 0


def test_a_wrong_contestant_is_marked_and_not_timed() -> None:
    result = bench([CASE], [fake("wrong")], QUICK)
    for form in ("zeros", "one-off"):
        cell = cells(result)["wrong", form]
        assert (cell["status"], cell["median"], cell["calls"]) == ("wrong", None, 0)
        assert "times the bound" in cell["note"]
        assert cell["error"] > 1


def test_a_hungry_contestant_is_stopped() -> None:
    cell = cells(bench([CASE], [fake("hungry")], Settings(threads=1, rounds=1, cap=30.0, memory=400 << 20)))["hungry", "eats"]
    assert (cell["status"], cell["note"]) == ("memory", "> 0.391 GiB")


def test_a_crash_is_a_result_and_the_next_row_runs() -> None:
    result = bench([CASE, OTHER], [fake("crashing")], QUICK)
    dead, raised = cells(result)["crashing", "dies"], cells(result)["crashing", "raises"]
    assert (dead["status"], dead["note"]) == ("failed", "exit status 7: last words")
    assert (raised["status"], raised["note"]) == ("failed", "RuntimeError: no such kernel")
    (declined,) = cells(result, 1).values()
    assert (declined["status"], declined["note"]) == ("unsupported", "3x3")


def test_what_is_not_installed_is_absent() -> None:
    result = bench([CASE], [Contestant("nobody", "bench_fakes.nobody"), HONEST], QUICK)
    nobody, scipy = result["contestants"]
    assert nobody["version"] is None
    assert "No module named 'bench_fakes.nobody'" in nobody["absent"]
    assert scipy["absent"] is None
    assert {name for name, _ in cells(result)} == {"scipy"}


def test_an_interrupt_keeps_what_is_complete() -> None:
    def interrupt(text: str) -> None:
        if text.startswith("three"):
            raise KeyboardInterrupt

    result = bench([CASE, OTHER], [HONEST], QUICK, interrupt)
    assert not result["complete"]
    assert [row["name"] for row in result["rows"]] == ["tiny"]


def test_peers_by_name() -> None:
    assert [peer.name for peer in chosen_peers(["torch", "scipy", "torch"])] == ["torch", "scipy"]
    assert len(chosen_peers(None)) == 5
    with pytest.raises(ValueError, match="against must name peers among jax, torch, scipy, opencv, onnx, got 'numpy'"):
        chosen_peers(["torch", "numpy"])


def test_a_worker_is_killed_at_its_deadline_and_starts_again() -> None:
    worker = Worker(fake("slow"), 1, 1 << 30)
    try:
        worker.start(60.0)
        what = {"case": CASE.to_json(), "direction": "fwd"}
        assert worker.ask({"do": "prepare", **what, "form": "sleeps", "save": os.devnull}, 60.0) == {"event": "built"}
        with pytest.raises(Overrun):
            worker.receive(0.1)
        assert worker.ask({"do": "forms", **what}, 60.0)["forms"] == [["ndimage", False], ["sleeps", False]]
        assert worker.generation == 1
    finally:
        worker.stop()


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="this system has no /proc")
def test_while_one_is_timed_the_others_are_paused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that wait for work by spinning would take a core from whoever comes next."""
    started, seen = [], []
    start, ask = Worker.start, Worker.ask
    monkeypatch.setattr(Worker, "start", lambda self, limit: (started.append(self), start(self, limit))[1])

    def is_paused(worker: Worker) -> bool:
        assert worker._process is not None
        with open(f"/proc/{worker._process.pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "T"

    def watched(self: Worker, request: Any, limit: float) -> Any:
        if request["do"] == "time":
            (other,) = (worker for worker in started if worker is not self)
            end = time.monotonic() + 10  # a signal takes its time on a busy machine
            while not is_paused(other) and time.monotonic() < end:
                time.sleep(0.001)
            seen.append((is_paused(self), is_paused(other)))
        return ask(self, request, limit)

    monkeypatch.setattr(Worker, "ask", watched)
    result = bench([CASE], [HONEST, fake("wrong")], QUICK)
    assert result["complete"]
    assert len(started) == 2
    assert set(seen) == {(False, True)}


PAUSED_FOR_EVER = """
import sys, time
from fastconv.bench.process import Contestant, Worker
worker = Worker(Contestant("scipy", "fastconv.bench.peers.scipy"), 1, 1 << 30)
worker.start(60)
worker.pause()
print(worker._process.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux to end a process with its parent")
def test_a_paused_worker_ends_when_its_parent_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PAUSED_FOR_EVER], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    worker = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    end = time.monotonic() + 20
    while is_running(worker) and time.monotonic() < end:
        time.sleep(0.05)
    assert not is_running(worker)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_worker_that_cannot_start_says_why() -> None:
    worker = Worker(Contestant("?", "bench_fakes.slow"), 1, 1 << 30)
    worker.start(60.0)
    assert worker.ask({"do": "time", "form": "never prepared", "seconds": 0.1}, 60.0)["event"] == "error"
    process = worker._process
    assert process is not None
    process.kill()
    with pytest.raises(Died, match="exit status -9"):
        worker.receive(60.0)
