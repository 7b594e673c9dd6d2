"""Wisdom: what is kept is found again by this library on this machine and nowhere else; damage is survived; writers merge."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fastconv import _core
from fastconv.cli.explain import in_words
from fastconv.plan import FFT, Machine, Measured, choose, forced, this_machine, wisdom
from fastconv.plan.planner import timing
from fastconv.plan.wisdom import Winner
from fastconv.problem import Axis
from fastconv.soak.draws import problem_of

PROBLEM, _ = problem_of((Axis(40, 3, 38), Axis(50, 3, 48)), 1, 2, 4, 4)
OTHER, _ = problem_of((Axis(40, 5, 36),), 1, 2, 4, 4)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(wisdom, "_CACHE", str(tmp_path / "cache"))
    wisdom.forget()
    yield tmp_path / "cache"
    wisdom.forget()


def won(name: str = "general", **seconds: float) -> Winner:
    return Winner(name, {"general": 1e-4, "direct": 2e-4} | seconds)


def measured(*arguments: Any, **options: Any) -> bool:
    """Whether the plan comes from wisdom."""
    return isinstance(choose(*arguments, **options).seconds, Measured)


def kept(machine: Machine | None = None) -> Path:
    """A file with wisdom about PROBLEM; the next look reads it."""
    machine = machine or this_machine()
    wisdom.keep(machine, {wisdom.key(PROBLEM, ()): won()})
    wisdom.forget()
    return Path(wisdom.path(machine))


def test_what_is_kept_is_taken() -> None:
    before = choose(PROBLEM)
    assert before.algorithm != "general"
    kept()
    plan = choose(PROBLEM)
    assert plan.algorithm == "general"
    assert plan.words == PROBLEM.words(0)
    assert isinstance(plan.seconds, Measured)
    assert plan.seconds == 1e-4
    assert isinstance(plan.considered["direct"], Measured)
    assert not isinstance(plan.considered["stencil"], Measured)
    assert "100.0 us measured" in str(plan)
    assert "modelled" in timing(1.0)
    text = in_words(plan)
    assert "measured at 100 us" in text
    assert "`fastconv tune` measured this problem" in text
    assert "direct: took 200 us, 2 times as long" in text


def test_other_problems_precisions_and_rows_keep_their_models() -> None:
    kept()
    assert not measured(OTHER)
    assert not measured(replace(PROBLEM, precision="highest"))
    assert not measured(PROBLEM, extra=(FFT,))
    assert not measured(PROBLEM, this_machine()), "with a machine as an argument choosing is pure"


def test_force_goes_before_wisdom_and_a_winner_that_refuses_is_not_taken() -> None:
    kept()
    with forced("stencil"):
        assert choose(PROBLEM).algorithm == "stencil"
    wisdom.keep(this_machine(), {wisdom.key(PROBLEM, ()): Winner("no such", {"no such": 1e-9})})
    assert not measured(PROBLEM)


def test_the_live_number_of_threads_changes_nothing() -> None:
    kept()
    _core.set_threads(1)
    try:
        assert measured(PROBLEM)
    finally:
        _core.set_threads(0)


@pytest.mark.parametrize("change", [{"name": "another CPU"}, {"isa": "other"}, {"cores": 99}, {"dot_unit": "other"}])
def test_another_machine_has_a_file_of_its_own(change: dict[str, object], cache: Path) -> None:
    elsewhere = replace(this_machine(), **change)  # type: ignore[arg-type]
    kept(elsewhere)
    assert not measured(PROBLEM)
    kept()
    assert len(list(cache.glob("*.json"))) == 2
    assert wisdom.table(elsewhere).keys() == wisdom.table(this_machine()).keys()


def test_a_newer_library_does_not_look_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    file = kept()
    monkeypatch.setattr(_core, "VERSION", "99.0")
    wisdom.forget()
    assert not measured(PROBLEM)
    file.rename(wisdom.path(this_machine()))  # even under its own name
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not measured(PROBLEM)


DAMAGED = {
    "empty": lambda text: "",
    "truncated": lambda text: text[: len(text) // 2],
    "not JSON": lambda text: "wisdom",
    "not an object": lambda text: "[1, 2]",
    "without winners": lambda text: text.replace('"winners"', '"losers"'),
    "winners of another shape": lambda text: json.dumps(json.loads(text) | {"winners": [1]}),
    "a winner without seconds": lambda text: text.replace('"algorithm": "general"', '"algorithm": "direct2"'),
    "seconds that are words": lambda text: text.replace("0.0001", '"soon"'),
    "seconds that are not finite": lambda text: text.replace("0.0001", "NaN"),
    "not text": lambda text: b"\xff\xfe\x00",
}


@pytest.mark.parametrize("how", DAMAGED)
def test_a_damaged_file_is_ignored_with_one_warning_and_written_anew(how: str) -> None:
    file = kept()
    damaged = DAMAGED[how](file.read_text())
    file.write_bytes(damaged if isinstance(damaged, bytes) else damaged.encode())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert not measured(PROBLEM)
        assert not measured(OTHER)
        wisdom.keep(this_machine(), {wisdom.key(PROBLEM, ()): won()})
    (warning,) = caught
    assert re.search("ignores its wisdom file .* damaged", str(warning.message))
    wisdom.forget()
    assert measured(PROBLEM)


WRITER = """
import sys
from fastconv.plan import this_machine, wisdom
for turn in range(20):
    wisdom.keep(this_machine(), {f"{sys.argv[1]} {turn}": wisdom.Winner("general", {"general": 1e-4})})
"""


def test_two_writers_at_once_lose_nothing(cache: Path) -> None:
    environment = {**os.environ, "FASTCONV_CACHE": str(cache)}
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(writer)], env=environment) for writer in range(2)]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert set(wisdom.table(this_machine())) == {f"{writer} {turn}" for writer in range(2) for turn in range(20)}
    assert {path.suffix for path in cache.iterdir()} == {".json", ".lock"}, "a temporary file was left behind"


def test_a_write_that_fails_leaves_the_file_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    file = kept()
    before = file.read_bytes()

    def full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        wisdom.keep(this_machine(), {"another": won()})
    assert file.read_bytes() == before
    assert not [path for path in file.parent.iterdir() if path.suffix not in (".json", ".lock")]


def test_a_folder_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    file = kept()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(PermissionError, match="FASTCONV_CACHE must be a folder that can be written"):
        wisdom.check_writable(this_machine())
    assert file.exists()
    assert measured(PROBLEM), "reading needs no writing"


def test_a_file_in_the_folders_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(wisdom, "_CACHE", str(tmp_path / "file"))
    with pytest.raises(OSError, match="file"):
        wisdom.check_writable(this_machine())
    with pytest.warns(RuntimeWarning, match="ignores its wisdom file"):
        assert not measured(PROBLEM)


def test_where_it_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wisdom, "_CACHE", None)
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
    monkeypatch.setattr("sys.platform", "linux")
    assert wisdom.folder() == os.path.join("/somewhere", "fastconv")
    monkeypatch.setattr("sys.platform", "darwin")
    assert wisdom.folder().endswith("Library/Caches/fastconv")
