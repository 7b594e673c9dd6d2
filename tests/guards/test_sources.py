"""What every file of the project keeps to: its length, and no path of anybody's machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (".ci", "benchmarks", "csrc", "docs", "examples", "src", "tests", "tools")
CODE = {".py", ".cc", ".h", ".inc", ".sh"}
TEXT = CODE | {"", ".md", ".toml", ".txt", ".json", ".yaml", ".yml", ".rst", ".map"}
MACHINE_PATH = re.compile(r"(?:(?<![\w.])|-[IL])/(?:root|home|Users|work|tmp|opt|mnt|private)/\w")


def files(suffixes: set[str]) -> Iterator[Path]:
    """The project's files with these suffixes: those at the top and all below FOLDERS."""
    candidates = [path for path in ROOT.iterdir() if path.is_file()]
    for folder in FOLDERS:
        candidates += sorted((ROOT / folder).rglob("*"))
    for path in candidates:
        if path.is_file() and path.suffix in suffixes and "__pycache__" not in path.parts and path.name not in (".git", ".DS_Store"):
            yield path


def too_long(path: Path, text: str) -> str | None:
    """A complaint about a file's length, or None. Kernels may be longer: a family belongs in one place."""
    lines, limit = text.count("\n"), 600 if "kernel" in path.as_posix() else 400
    return f"{path}: {lines} lines, the limit is {limit}" if lines > limit else None


def test_no_file_is_long() -> None:
    complaints = [why for path in files(CODE) if (why := too_long(path.relative_to(ROOT), path.read_text()))]
    assert not complaints, "\n".join(complaints)


def test_no_path_of_a_machine() -> None:
    hits = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
        for path in files(TEXT)
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]
    assert not hits, "\n".join(hits)


@pytest.mark.parametrize(
    ("name", "lines", "fires"),
    [("a.py", 401, True), ("a.py", 400, False), ("csrc/kernels/a.h", 401, False), ("csrc/kernels/a.h", 601, True)],
)
def test_the_length_guard_fires(name: str, lines: int, fires: bool) -> None:
    assert (too_long(Path(name), "x\n" * lines) is not None) == fires


@pytest.mark.parametrize(
    ("text", "fires"),
    [
        ("open('/ho" + "me/somebody/x')", True),
        ("#!/ro" + "ot/bin/python", True),
        ("-I/wor" + "k/include", True),
        ("https://example.org/home/page", False),
        ("#!/usr/bin/env bash", False),
    ],
)
def test_the_path_guard_fires(text: str, fires: bool) -> None:
    assert bool(MACHINE_PATH.search(text)) == fires
