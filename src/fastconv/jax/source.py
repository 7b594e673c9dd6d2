"""The user's own line behind a convolution: not that of the layer library which wrote the call for them."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterator
from functools import cache
from itertools import chain
from pathlib import Path
from threading import local
from traceback import walk_stack
from typing import Any

from fastconv.jax import _compat

#: Where libraries are installed; this package may lie elsewhere, in a checkout.
_INSTALLED = ("site-packages", "dist-packages")
_OURS = str(Path(__file__).resolve().parents[1]) + os.sep
_STANDARD = sysconfig.get_path("stdlib") + os.sep
#: Libraries whose frames are never the user's, even in a program that is an installed package itself.
_LIBRARIES = ("jax", "jaxlib", "flax", "equinox", "haiku", "keras", "optax", "chex", "numpy")

_parts = local()


def line(ctx: Any) -> str | None:
    """FILE:LINE of the operation that is being lowered: the innermost frame outside all installed libraries, else the innermost of a
    library that does not only pass calls on. Where the operation lies in a library's own jit, JAX keeps no frames above that: then it
    is the line whose call made JAX compile. XLA's partitioner asks for parts of an operation from nowhere: they have its line. None
    where nothing of the kind is found."""
    for is_candidate in (_is_users, _may_be_users):
        for file, number in chain(_compat.frames(ctx), _stack()):
            if is_candidate(file):
                return f"{file}:{number}"
    return getattr(_parts, "line", None)


def of_parts(line: str | None) -> None:
    """Remembers the line of the operation that is being partitioned on this thread."""
    _parts.line = line


def _stack() -> Iterator[tuple[str, int]]:
    return ((frame.f_code.co_filename, number) for frame, number in walk_stack(None))


def shown(source: str | None) -> str:
    """A source line for reading: relative to the working directory where it lies below it."""
    if source is None:
        return "?"
    try:
        short = os.path.relpath(source)
    except (ValueError, OSError):  # another drive; a working directory that is gone
        return source
    return source if short.startswith("..") else short


@cache
def _is_users(file: str) -> bool:
    return _may_be_users(file) and not any(part in _INSTALLED for part in Path(file).parts)


@cache
def _may_be_users(file: str) -> bool:
    if file.startswith(("<frozen ", _OURS)):
        return False
    parts = Path(file).parts
    for folder in _INSTALLED:
        if folder in parts[:-1]:
            return parts[parts.index(folder) + 1] not in _LIBRARIES
    return not file.startswith(_STANDARD)
