"""`fastconv run`: any unmodified JAX program, accelerated, with everything else as Python itself would have it."""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
import zipfile
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType

from fastconv.jax import forms, records
from fastconv.jax.switch import install


def run_script(path: str, argv: Sequence[str], report: str | None = None, compare: bool = False) -> None:
    """`python PATH ARGV` under `install`: same sys.argv, sys.path, `__main__`, traceback and exit status.

    path: a script, or a folder or zip file with a `__main__.py`. report: a .json, .html or .txt file written at the end,
    with calls and times (`install(timing=True)`); compare: as in `fastconv.jax.report`, after the program has ended.
    Returns when the program ends; SystemExit passes the program's own status on, 1 after an uncaught exception.

    Raises, before the program starts: FileNotFoundError, ValueError (report's suffix or place).
    """
    if not os.path.exists(path):
        raise FileNotFoundError(f"script must be an existing file, got {path!r}")
    if os.path.isdir(path) or zipfile.is_zipfile(path):
        report = _prepare(path, report, compare)
        _run(lambda: runpy.run_path(path, run_name="__main__"), [path, *argv], report, compare)
    else:
        report = _prepare(os.path.dirname(os.path.realpath(path)), report, compare)
        file = os.path.abspath(path)
        _run(lambda: _execute(compile(Path(path).read_bytes(), file, "exec"), file, None), [path, *argv], report, compare)


def run_module(name: str, argv: Sequence[str], report: str | None = None, compare: bool = False) -> None:
    """`python -m NAME ARGV` under `install`; all else as `run_script`. Raises: ImportError when there is no such module."""
    report = _prepare(os.getcwd(), report, compare)
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        spec = importlib.util.find_spec(f"{name}.__main__")
    code = None if spec is None else getattr(spec.loader, "get_code", lambda _: None)(spec.name)
    if spec is None or code is None:
        raise ImportError(f"module must name an importable module or a package with a __main__, got {name!r}")
    file = spec.origin or name
    _run(lambda: _execute(code, file, spec), [file, *argv], report, compare)


def _prepare(folder: str, report: str | None, compare: bool) -> str | None:
    """All that can be refused is refused here, before the program starts; `folder` takes the place of our own program's.

    The report's path as it is now: the program may go to another folder.
    """
    if report is not None:
        forms.check_place(report)
        report = os.path.abspath(report)
    elif compare:
        raise ValueError("compare must be given with a report")
    install(timing=True if report is not None else None)
    if not sys.flags.safe_path:
        sys.path[0] = folder
    return report


def _run(start: Callable[[], object], argv: list[str], report: str | None, compare: bool) -> None:
    """Starts the program. An uncaught exception shows the program's own frames, then status 1 (130 for Ctrl-C), as in Python."""
    sys.argv[:] = argv
    try:
        start()
    except SystemExit:
        raise
    except BaseException as error:
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
            frames = frames.tb_next
        sys.excepthook(type(error), error.with_traceback(frames), frames)
        raise SystemExit(130 if isinstance(error, KeyboardInterrupt) else 1) from None
    finally:
        if report is not None:
            _write(report, compare)


def _write(report: str, compare: bool) -> None:
    """A report that fails after all leaves the program its exit status, and a file that was there as it was."""
    found = records.report()
    if compare:
        try:
            found = records.report(compare=True)
        except (Exception, KeyboardInterrupt) as error:
            print(f"fastconv: the report is without a comparison, which ended early: {type(error).__name__} {error}", file=sys.stderr)
    try:
        found.write(report)
    except OSError as error:
        print(f"fastconv: the report could not be written: {error}", file=sys.stderr)


def _execute(code: CodeType, file: str, spec: ModuleSpec | None) -> None:
    """Runs code as `__main__`, which stays in place afterwards: exit handlers and threads still look at it."""
    main = ModuleType("__main__")
    main.__dict__.update(__file__=file, __spec__=spec, __builtins__=__builtins__, __cached__=None)
    if spec is not None:
        main.__dict__.update(__package__=spec.parent, __loader__=spec.loader)
    sys.modules["__main__"] = main
    exec(code, main.__dict__)
