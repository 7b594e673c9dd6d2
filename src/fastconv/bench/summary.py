"""What a result says: per row the best cell of each contestant, the best peer, and how ours compare. Reads the JSON data alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import exp, log
from typing import Any

#: Contestants that are fastconv; every other one is a peer.
OURS = ("fc", "jax+fastconv")


@dataclass(frozen=True)
class Line:
    """One row and direction. best: contestant -> its fastest right cell; state: contestant -> why it has none."""

    name: str
    direction: str
    what: str
    best: Mapping[str, Mapping[str, Any]]
    state: Mapping[str, str]

    @property
    def best_peer(self) -> Mapping[str, Any] | None:
        """The fastest right cell of all peers, by median."""
        cells = [cell for name, cell in self.best.items() if name not in OURS]
        return min(cells, key=lambda cell: cell["median"], default=None)

    def ratio(self, ours: str) -> float | None:
        """Best peer's median over ours: above 1 we are faster."""
        peer, own = self.best_peer, self.best.get(ours)
        return None if peer is None or own is None else peer["median"] / own["median"]


#: What stands in a table for a contestant without a right cell, the first that applies.
_STATES = ("wrong", "capped", "memory", "failed", "unsupported")


def lines(result: Mapping[str, Any]) -> list[Line]:
    """The rows of a result."""
    return [_line(row) for row in result["rows"]]


def _line(row: Mapping[str, Any]) -> Line:
    best: dict[str, Mapping[str, Any]] = {}
    state: dict[str, str] = {}
    for name in dict.fromkeys(cell["contestant"] for cell in row["cells"]):
        cells = [cell for cell in row["cells"] if cell["contestant"] == name]
        right = [cell for cell in cells if cell["status"] == "ok" and cell["median"] is not None]
        if right:
            best[name] = min(right, key=lambda cell: cell["median"])
            continue
        status = min((cell["status"] for cell in cells), key=lambda s: _STATES.index(s) if s in _STATES else len(_STATES))
        note = next(cell["note"] for cell in cells if cell["status"] == status)
        state[name] = {"capped": note, "memory": note, "unsupported": "-"}.get(status, status)
    return Line(row["name"], row["direction"], row["what"], best, state)


def losses(table: Iterable[Line]) -> list[tuple[str, Line, float]]:
    """(contestant, line, ratio) wherever a peer is faster than one of ours."""
    found = ((ours, line, line.ratio(ours)) for line in table for ours in OURS)
    return [(ours, line, ratio) for ours, line, ratio in found if ratio is not None and ratio < 1]


def geometric_mean(values: Iterable[float | None]) -> float | None:
    """The geometric mean of the numbers among the values."""
    logs = [log(value) for value in values if value is not None]
    return exp(sum(logs) / len(logs)) if logs else None


def troubles(result: Mapping[str, Any]) -> list[str]:
    """One line for each cell that was wrong or failed, ours first."""
    cells = [(row, cell) for row in result["rows"] for cell in row["cells"] if cell["status"] in ("wrong", "failed")]
    cells.sort(key=lambda pair: pair[1]["contestant"] not in OURS)
    return [
        f"{cell['contestant']} {cell['form']} on {row['name']} {row['direction']}: {cell['status']}, {cell['note']}" for row, cell in cells
    ]


def ours_are_right(result: Mapping[str, Any]) -> bool:
    """Whether no cell of ours was wrong or failed."""
    return not any(cell["contestant"] in OURS and cell["status"] in ("wrong", "failed") for row in result["rows"] for cell in row["cells"])
