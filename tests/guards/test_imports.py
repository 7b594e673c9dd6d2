"""Data flows one way: a module imports only from rooms below its own (docs/design.md, "Layout")."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "fastconv"

#: Rooms from the bottom up. A room is a module of the package, or a folder; those of one row do not know each other.
ROWS = (
    ("problem", "_core"),
    ("rewrite", "reference"),
    ("normalise", "plan", "check"),
    ("_numpy", "jax", "soak"),
    ("__init__",),
    ("report",),
    ("bench",),
    ("tune",),
    ("cli",),
)
ROW_OF = {room: row for row, rooms in enumerate(ROWS) for room in rooms}


def room(module: str) -> str:
    """`fastconv.jax.install` lies in room `jax`; `fastconv` itself in `__init__`."""
    return (*module.split("."), "__init__")[1]


def imported(source: str, package: str) -> set[str]:
    """The modules of this package that a source file imports, wherever in it; `package` is the one it lies in."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            # `from fastconv import x` names a module x where there is one, else a name of the package's face.
            found.update(f"{module}.{alias.name}" if module == "fastconv" and alias.name in ROW_OF else module for alias in node.names)
    return {name for name in found if name.split(".")[0] == "fastconv"}


def upward(module: str, package: str, source: str) -> list[str]:
    """The imports of one module that do not point down, as text."""
    here = room(module)
    return [
        f"{module} imports {name}"
        for name in sorted(imported(source, package))
        if room(name) != here and ROW_OF[room(name)] >= ROW_OF[here]
    ]


def test_imports_point_down() -> None:
    offences: list[str] = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        package = ".".join(parts[:-1])
        module = package if parts[-1] == "__init__" else ".".join(parts)
        assert room(module) in ROW_OF, f"{path.relative_to(PACKAGE)}: give its room a place in ROWS"
        offences += upward(module, package, path.read_text())
    assert not offences, "\n".join(offences)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("fastconv.problem", "from fastconv.normalise import conv_problem"),
        ("fastconv.plan.planner", "def f():\n    import fastconv"),
        ("fastconv.plan.planner", "from fastconv import _numpy"),
        ("fastconv.jax.lowering", "from fastconv._numpy import conv"),
        ("fastconv.rewrite", "from . import normalise"),
        ("fastconv.jax.lowering", "from ..bench import cases"),
    ],
)
def test_the_guard_fires(module: str, source: str) -> None:
    assert upward(module, module.rpartition(".")[0], source)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("fastconv.jax.lowering", "from fastconv.problem import ConvProblem\nimport numpy\nimport jax"),
        ("fastconv.plan.planner", "from fastconv import _core\nfrom fastconv.plan.machine import Machine\nfrom . import machine"),
        ("fastconv", "from fastconv._numpy import conv"),
    ],
)
def test_the_guard_lets_downward_imports_pass(module: str, source: str) -> None:
    assert upward(module, module.rpartition(".")[0] or "fastconv", source) == []
