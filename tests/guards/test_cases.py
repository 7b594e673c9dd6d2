"""docs/cases.md names tests and workloads that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def named_but_missing(page: str, tests: set[str], workloads: set[str]) -> list[str]:
    """Names in backquotes, in the table's last column, that are neither a test nor a workload."""
    cells = [line.rstrip(" |").rpartition("|")[2] for line in page.splitlines() if line.startswith("| ") and "`" in line]
    return [name for cell in cells for name in re.findall("`([^`]+)`", cell) if name not in tests | workloads]


def defined(files: Iterable[Path]) -> set[str]:
    return {name for path in files for name in re.findall(r"^def (test_\w+)", path.read_text(), re.MULTILINE)}


def test_the_page_of_reports_names_what_exists() -> None:
    workloads = {case["name"] for case in json.loads((ROOT / "src" / "fastconv" / "bench" / "cases.json").read_text())}
    page = (ROOT / "docs" / "cases.md").read_text()
    assert named_but_missing(page, defined((ROOT / "tests").rglob("test_*.py")), workloads) == []
    assert not [name for name in defined((ROOT / "tests" / "fronts").glob("test_jax_cases*.py")) if name not in page]


def test_the_guard_fires() -> None:
    page = "| report | x | held by |\n| a#1 | `ignored` | `test_there`; workload `row` |\n| a#2 | x | `test_gone` |"
    assert named_but_missing(page, {"test_there"}, {"row"}) == ["test_gone"]
