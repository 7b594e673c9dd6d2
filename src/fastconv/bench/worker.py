"""One contestant in a process of its own: `python -m fastconv.bench.worker MODULE THREADS`, JSON lines in, JSON lines out.

Requests (key "do"): "forms" lists the forms of a case and direction; "prepare" builds one and answers "built", makes the first
call and answers "called", writes its result to a file and answers "saved"; "time" calls it for a while and answers the seconds
of each call; "forget" drops what was prepared. An error inside a request is answered as {"event": "error"}; the worker goes on.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

import numpy as np

from fastconv.bench.cases import Case
from fastconv.bench.peers.base import Form, Ready, Unsupported

#: Fewest and most calls that one "time" request makes.
CALLS = (2, 10_000)
PR_SET_PDEATHSIG = 1  # linux/prctl.h
#: Bursts on a device that one "time" request makes, at least.
BURSTS = 5


def main() -> None:
    """Serves requests until standard input ends."""
    module, threads = sys.argv[1], int(sys.argv[2])
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints goes to standard error, not between the replies
    _end_with_parent()
    _bind_to_cores(threads)
    try:
        peer = importlib.import_module(module)
        hello = {"event": "hello", "version": peer.start(threads)}
    except ImportError as error:
        _reply(replies, {"event": "absent", "why": f"{type(error).__name__}: {error}"})
        return
    _reply(replies, hello)
    _serve(peer.forms, replies)


def _serve(forms: Callable[[Case, str], list[Form]], replies: TextIO) -> None:
    ready: dict[str, Ready] = {}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            if request["do"] == "forms":
                found = forms(Case.from_json(request["case"]), request["direction"])
                _reply(replies, {"event": "forms", "forms": [[form.name, form.fft] for form in found]})
            elif request["do"] == "prepare":
                case, direction = Case.from_json(request["case"]), request["direction"]
                (form,) = (f for f in forms(case, direction) if f.name == request["form"])
                made = form.build(case, direction, *case.operands(direction))
                _reply(replies, {"event": "built"})
                start = time.perf_counter()
                result = made.step()
                _reply(replies, {"event": "called", "seconds": time.perf_counter() - start})
                _save(request["save"], made.read(result))
                ready[form.name] = made
                _reply(replies, {"event": "saved"})
            elif request["do"] == "time":
                made = ready[request["form"]]
                times = _measure(made.step, request["seconds"]) if made.burst is None else _measure_bursts(made.burst, request["seconds"])
                _reply(replies, {"event": "timed", "seconds": times})
            elif request["do"] == "forget":
                ready.clear()
                gc.collect()
                _reply(replies, {"event": "forgotten"})
        except Unsupported as error:
            _reply(replies, {"event": "unsupported", "why": str(error)})
        except MemoryError as error:
            _reply(replies, {"event": "memory", "why": str(error)})
        except Exception as error:  # a peer may raise anything, and its failure is a result
            text = str(error).strip().splitlines() or [""]
            _reply(replies, {"event": "error", "why": f"{type(error).__name__}: {text[0]}"})


def _measure(step: Callable[[], Any], seconds: float) -> list[float]:
    """Seconds of each call; one call that is not counted comes first, so that caches and threads are this contestant's again."""
    clock = time.perf_counter
    start = clock()
    step()
    if (alone := clock() - start) > seconds:
        return [alone]
    times: list[float] = []
    gc.disable()
    try:
        end = clock() + seconds
        while (len(times) < CALLS[0] or clock() < end) and len(times) < CALLS[1]:
            start = clock()
            step()
            times.append(clock() - start)
    finally:
        gc.enable()
    return times


def _measure_bursts(burst: Callable[[int], Any], seconds: float) -> list[float]:
    """Seconds per call of bursts of calls that wait once, at their end: launching hides behind computing, as it does in a program.

    The first bursts warm up, and grow until one takes a BURSTS-th of the time; no fewer than BURSTS are counted where time allows.
    """
    clock = time.perf_counter

    def timed(count: int) -> float:
        start = clock()
        burst(count)
        return clock() - start

    count = 1
    while (taken := timed(count)) < seconds / BURSTS and count < CALLS[1]:
        count *= 2
    if taken > seconds:
        return [taken / count]
    end, times = clock() + seconds, []
    while not times or clock() < end:
        times.append(timed(count) / count)
    return times


def _save(path: str, result: Any) -> None:
    """Writes a result as .npy; a type that .npy does not know (bfloat16) goes as its bits."""
    array = np.ascontiguousarray(result)
    np.save(path, array.view(f"u{array.dtype.itemsize}") if array.dtype.name == "bfloat16" else array)


def _end_with_parent() -> None:
    """A parent that is killed may leave this process paused, and so unable to see that its input has ended: Linux kills it too."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def _bind_to_cores(threads: int) -> None:
    """Restricts the process to `threads` CPUs of its mask, so that pools which cannot be told their size see no more."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])


def _reply(replies: TextIO, message: dict[str, Any]) -> None:
    replies.write(json.dumps(message) + "\n")
    replies.flush()


if __name__ == "__main__":
    main()
