"""Wisdom: which algorithm was measured fastest for a problem on this machine. `fastconv tune` writes it, the planner reads it.

One JSON file for each library version, CPU, instruction set and number of cores, in the folder FASTCONV_CACHE (default: the platform's
cache folder). Whatever else a file is from is not looked at; one that is damaged is ignored with one warning. Files are replaced
whole, under a lock, with what others wrote meanwhile kept (Frigo and Johnson 2005: plans remembered as wisdom).
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple
from zlib import crc32

from fastconv import _core
from fastconv.plan.machine import Machine
from fastconv.plan.row import Algorithm
from fastconv.problem import ConvProblem

FORMAT = 1

_CACHE = os.environ.get("FASTCONV_CACHE") or None
_tables: dict[Machine, dict[str, Winner]] = {}
_warned = False


class Winner(NamedTuple):
    """The algorithm measured fastest, and the seconds of all that were measured."""

    algorithm: str
    seconds: dict[str, float]


def folder() -> str:
    """Where wisdom is kept: FASTCONV_CACHE as it was at import, or the platform's cache folder."""
    if _CACHE is not None:
        return _CACHE
    if sys.platform == "darwin":
        return os.path.expanduser("~/Library/Caches/fastconv")
    return os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "fastconv")


def path(machine: Machine) -> str:
    """The file of a machine; its name tells machines apart, so that none overwrites another's."""
    return os.path.join(folder(), f"wisdom-{crc32(repr(_identity(machine)).encode()):08x}.json")


def key(problem: ConvProblem, extra: tuple[Algorithm, ...]) -> str:
    """What a winner is filed under: the problem as packed for the library, its precision, and which other rows were in the race."""
    return " ".join((*(row.name for row in extra), problem.precision, *map(str, problem.words(0)[2:])))


def table(machine: Machine) -> Mapping[str, Winner]:
    """All that is known for a machine, read once."""
    found = _tables.get(machine)
    if found is None:
        found = _tables[machine] = _read(machine)
    return found


def forget() -> None:
    """The next look reads the files again."""
    global _warned
    _tables.clear()
    _warned = False


def keep(machine: Machine, winners: Mapping[str, Winner]) -> None:
    """Adds winners to the machine's file; those of the same problems are replaced, all others stay. Raises: OSError."""
    import json

    os.makedirs(folder(), exist_ok=True)
    target = path(machine)
    with _locked(target):
        merged = _read(machine) | dict(winners)
        text = json.dumps({**_identity(machine), "winners": {name: winner._asdict() for name, winner in merged.items()}}, indent=1)
        beside = f"{target}.{os.getpid()}"
        try:
            with open(beside, "w", encoding="utf-8") as file:
                file.write(text + "\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, target)
        finally:
            if os.path.exists(beside):
                os.unlink(beside)
    _tables[machine] = merged


def check_writable(machine: Machine) -> None:
    """Raises OSError where winners could not be kept: known before anything is measured."""
    os.makedirs(folder(), exist_ok=True)
    if not os.access(folder(), os.W_OK) or (os.path.exists(path(machine)) and not os.path.isfile(path(machine))):
        raise PermissionError(f"FASTCONV_CACHE must be a folder that can be written, got {folder()!r}")


def _identity(machine: Machine) -> dict[str, Any]:
    """What must agree for a file to be of use."""
    return {
        "format": FORMAT,
        "library": _core.VERSION,
        "cpu": machine.name,
        "isa": machine.isa,
        "dot_unit": machine.dot_unit,
        "cores": machine.cores,
    }


def _read(machine: Machine) -> dict[str, Winner]:
    try:
        with open(path(machine), encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        _warn(path(machine), str(error))
        return {}
    try:
        return _parsed(text, machine)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        _warn(path(machine), f"{type(error).__name__}: {error}")
        return {}


def _parsed(text: str, machine: Machine) -> dict[str, Winner]:
    import json

    content = json.loads(text)
    if {name: content[name] for name in _identity(machine)} != _identity(machine):
        return {}  # a copy from elsewhere
    found = {}
    for name, entry in content["winners"].items():
        winner = Winner(entry["algorithm"], {row: float(seconds) for row, seconds in entry["seconds"].items()})
        if winner.algorithm not in winner.seconds or not all(0 < seconds < float("inf") for seconds in winner.seconds.values()):
            raise ValueError(f"no seconds for {winner.algorithm!r}")
        found[name] = winner
    return found


def _warn(file: str, why: str) -> None:
    global _warned
    if not _warned:
        _warned = True
        text = f"fastconv ignores its wisdom file {file}, which is damaged ({why}); `fastconv tune` writes it anew"
        warnings.warn(text, RuntimeWarning, stacklevel=2)


@contextmanager
def _locked(target: str) -> Iterator[None]:
    """One writer at a time; where the system has no file locks, the last one wins."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with open(f"{target}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
