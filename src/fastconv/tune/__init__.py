"""`fastconv tune`: hears which problems a script or a suite poses, races the algorithms on each, and keeps what won as wisdom.

posed: hearing. race: timing calls against each other. candidates: the algorithms of a problem as calls, for both fronts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from fastconv import _core
from fastconv.plan import wisdom
from fastconv.plan.machine import this_machine
from fastconv.plan.planner import fastest
from fastconv.plan.row import Algorithm
from fastconv.tune.candidates import Race
from fastconv.tune.race import race

#: A winner must be this much faster than the planner's own choice: less is noise.
MARGIN = 1.03


class Measurement(NamedTuple):
    """What came of one problem: its description, the planner's choice before, the winner, and the seconds of all."""

    text: str
    before: str
    winner: str
    seconds: dict[str, float]


def tune(races: Iterable[Race], seconds: float, notify: Callable[[Measurement], None] = lambda measurement: None) -> int:
    """Measures each problem's candidates for about `seconds` each and keeps the winners as they come; how many problems there were.

    Runs on the default number of threads. Raises: OSError if the wisdom cannot be written.
    """
    machine, count = this_machine(), 0
    threads = _core.get_threads()
    _core.set_threads(0)
    try:
        for entrants in races:
            measured = race(entrants.calls(), seconds * len(entrants.rows))
            best = _best([row for row in entrants.rows if row.name in measured], measured, entrants.before)
            wisdom.keep(machine, {entrants.key: wisdom.Winner(best, measured)})
            notify(Measurement(entrants.text, entrants.before, best, measured))
            count += 1
    finally:
        _core.set_threads(threads)
    return count


def _best(rows: list[Algorithm], measured: dict[str, float], before: str) -> str:
    """The winner by the planner's own rule, unless its own choice is as good."""
    seconds, row = fastest([(measured[row.name], row) for row in rows], {})
    return before if measured.get(before, float("inf")) <= seconds * MARGIN else row.name
