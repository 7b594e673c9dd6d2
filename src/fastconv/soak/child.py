"""Runs a function in a forked process, so that a fault ends that process and becomes an exception here."""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import traceback
from collections.abc import Callable
from typing import Any


def in_child(function: Callable[[Callable[[str], None]], Any]) -> Any:
    """What `function(say)` returns, computed in a forked process. An AssertionError there is one here; so is a fatal signal, with the
    last text that `say` was given."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        with os.fdopen(write, "wb", buffering=0) as pipe:
            _answer(pipe, function)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        messages = list(_messages(pipe))
    _, status = os.waitpid(child, 0)
    said = [text for kind, text in messages if kind == "said"]
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        raise AssertionError(f"{said[-1] if said else 'the first run'}: ended by {name}")
    kind, value = messages[-1]
    if kind == "failed":
        raise AssertionError(value)
    if kind == "raised":
        raise RuntimeError(value)
    return value


def _answer(pipe: Any, function: Callable[[Callable[[str], None]], Any]) -> None:
    def send(kind: str, value: Any) -> None:
        pipe.write(pickle.dumps((kind, value)))

    faulthandler.disable()  # the parent tells of a fault
    try:
        send("returned", function(lambda text: send("said", text)))
    except AssertionError as error:
        send("failed", str(error))
    except BaseException:
        send("raised", traceback.format_exc())
    finally:
        os._exit(0)  # nothing of the parent's is cleaned up twice


def _messages(pipe: Any) -> Any:
    while True:
        try:
            yield pickle.load(pipe)
        except (EOFError, pickle.UnpicklingError):
            return
