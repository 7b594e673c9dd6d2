"""The shared library through ctypes: loaded once with this module, held to its ABI number, each C function under a Python name.

Importing this module raises ImportError with what to do when the library is missing, cannot be loaded, or is another build's.
FASTCONV_NUM_THREADS and FASTCONV_ISA are read by the library when it is loaded; a value it cannot use is an ImportError too.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_char_p, c_int, c_int64, c_void_p
from typing import NamedTuple

VERSION = "0.1.0"
ABI = 1  # FASTCONV_ABI in csrc/fastconv.h
ISAS = ("scalar", "avx2", "avx512", "neon")

_NAME = "libfastconv.so"  # on every platform (CMakeLists.txt)
_SIGNATURES: dict[str, tuple[type | None, list[type]]] = {
    "fastconv_abi": (c_int64, []),
    "fastconv_conv": (c_int, [c_void_p, c_int64, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p]),
    "fastconv_error": (c_char_p, []),
    "fastconv_set_threads": (None, [c_int64]),
    "fastconv_get_threads": (c_int64, []),
    "fastconv_isa": (c_char_p, []),
    "fastconv_isas": (c_char_p, []),
    "fastconv_set_isa": (c_int, [c_char_p]),
    "fastconv_dot_unit": (c_char_p, []),
    "fastconv_set_dot_unit": (c_int, [c_char_p]),
    "fastconv_kernels": (c_char_p, []),
    "fastconv_run_kernel": (c_int, [c_int64, c_int64, c_void_p, c_void_p, c_void_p, c_void_p]),
    "fastconv_has_xla": (c_int64, []),
    "fastconv_counted": (None, [c_int64, c_void_p, c_void_p]),
    "fastconv_clear_counts": (None, []),
    "fastconv_cpu": (c_char_p, []),
}
_REMEDY = "Install fastconv again (`pip install --force-reinstall fastconv`), or build the library in a checkout with `make build`."


def _check_environment() -> None:
    """Refuses what the library would pass over in silence when it reads its variables."""
    level, count = os.environ.get("FASTCONV_ISA"), os.environ.get("FASTCONV_NUM_THREADS")
    if level and level not in ISAS:
        raise ImportError(f"FASTCONV_ISA must be one of {', '.join(ISAS)}, got {level!r}")
    if count and not (count.isascii() and count.isdigit() and int(count) >= 1):
        raise ImportError(f"FASTCONV_NUM_THREADS must be an int of at least 1, got {count!r}")


def library_path() -> str:
    """Where the library lies: beside this module."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), _NAME)


def _load(path: str) -> ctypes.CDLL:
    """The library with its signatures set; ImportError says what is wrong with it and what to do."""
    if not os.path.exists(path):
        raise ImportError(f"fastconv needs its compiled library {path}, which is missing. {_REMEDY}")
    try:
        found = ctypes.CDLL(path)
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(found, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as error:
        raise ImportError(f"fastconv could not load its compiled library {path}: {error}. {_REMEDY}") from error
    if found.fastconv_abi() != ABI:
        raise ImportError(f"fastconv needs its compiled library {path} with ABI {ABI}, but it has ABI {found.fastconv_abi()}. {_REMEDY}")
    return found


def _check_level(here: tuple[str, ...]) -> None:
    """Refuses a cap from another kind of CPU, which the library would pass over."""
    cap = os.environ.get("FASTCONV_ISA")
    possible = ("scalar", "neon") if "neon" in here else ("scalar", "avx2", "avx512")
    if cap and cap not in possible:
        raise ImportError(f"FASTCONV_ISA must be one of {', '.join(possible)} on this CPU, got {cap!r}")


_check_environment()
_library = _load(library_path())
_check_level(tuple(_library.fastconv_isas().decode().split(",")))
_default_threads: int = _library.fastconv_get_threads()

#: The raw call, for callers that keep packed words and ranges: conv(words, count, lhs, rhs, bias, out, ranges) -> 0 or an error.
conv = _library.fastconv_conv

#: The ISA level in use; part of the key of any cache of plans. Only `isa_level` changes it.
level: str = _library.fastconv_isa().decode()


class Kernel(NamedTuple):
    """One registered kernel: rows x cols is its register tile."""

    isa: str
    element: str
    family: str
    name: str
    rows: int
    cols: int


def library() -> ctypes.CDLL:
    """The loaded library (`fastconv_conv_v1` and `fastconv_counted_v1` are its XLA FFI handlers when `has_xla`)."""
    return _library


def error() -> Exception:
    """The exception for this thread's last failed call. Arguments were checked before, so but for memory it is a fault of fastconv's."""
    message = _library.fastconv_error().decode()
    if message == "out of memory":
        return MemoryError("fastconv found no memory for its workspace")
    return RuntimeError(f"the fastconv library refused a call: {message}. This is a bug in fastconv; please report it.")


def isa() -> str:
    """The ISA level in use: "scalar", "avx2", "avx512" or "neon"."""
    return level


def isas() -> tuple[str, ...]:
    """The ISA levels that this CPU and this build can run, lowest first."""
    return tuple(_library.fastconv_isas().decode().split(","))


@contextmanager
def isa_level(name: str) -> Iterator[None]:
    """Within the block the whole process uses another ISA level; for tests and measurements, from one thread at a time."""
    global level
    before = level
    if name not in isas():
        raise ValueError(f"name must be one of {', '.join(isas())}, got {name!r}")
    _library.fastconv_set_isa(name.encode())
    level = name
    try:
        yield
    finally:
        _library.fastconv_set_isa(before.encode())
        level = before


def dot_unit() -> str:
    """What multiplies bfloat16 and int8 at the level in use: "none", "vector" (AVX-512 BF16 and VNNI) or "tiles" (AMX)."""
    return _library.fastconv_dot_unit().decode()


@contextmanager
def dot_unit_cap(name: str) -> Iterator[None]:
    """Within the block the whole process uses no better unit than the named one; for tests, which make their plans inside it."""
    if _library.fastconv_set_dot_unit(name.encode()):
        raise ValueError(_library.fastconv_error().decode())
    try:
        yield
    finally:
        _library.fastconv_set_dot_unit(b"")


def kernels() -> tuple[Kernel, ...]:
    """Every registered kernel of every ISA level in this build."""
    return kernels_of(_library.fastconv_kernels().decode())


def kernels_of(table: str) -> tuple[Kernel, ...]:
    """The kernels of a library's list: a line each."""
    lines = (line.split() for line in table.splitlines() if line)
    return tuple(Kernel(isa, element, family, name, int(rows), int(cols)) for isa, element, family, name, rows, cols in lines)


def run_kernel(index: int, sizes: tuple[int, ...], a: int, b: int, c: int, runs: int = 1) -> None:
    """Runs kernel `index` of `kernels()` alone, `runs` times, on the memory at addresses a, b, c; csrc/fastconv.h says what each reads."""
    if _library.fastconv_run_kernel(index, runs, (c_int64 * len(sizes))(*sizes), a, b, c):
        raise ValueError(_library.fastconv_error().decode())


def default_threads() -> int:
    """FASTCONV_NUM_THREADS, else the number of CPUs in the affinity mask, as found when the library was loaded."""
    return _default_threads


def set_threads(n: int) -> None:
    """Threads that calls may use from now on, the caller included; 0 restores the default."""
    _library.fastconv_set_threads(n)


def get_threads() -> int:
    """Threads that a call may use, the caller included."""
    return _library.fastconv_get_threads()


def has_xla() -> bool:
    """Whether the library holds the XLA FFI handler."""
    return bool(_library.fastconv_has_xla())


def counted(key: int) -> tuple[int, float]:
    """Calls through the counting FFI handler under a key so far, and the seconds spent in them."""
    calls, nanoseconds = c_int64(), c_int64()
    _library.fastconv_counted(key, ctypes.byref(calls), ctypes.byref(nanoseconds))
    return calls.value, nanoseconds.value * 1e-9


def clear_counts() -> None:
    """Forgets those calls."""
    _library.fastconv_clear_counts()


def cpu() -> str:
    """The CPU's name, for reports."""
    return _library.fastconv_cpu().decode()
