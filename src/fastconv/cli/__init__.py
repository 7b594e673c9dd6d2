"""The command line: `main` is the console script; app holds the commands, explain reads problems typed by hand."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs `fastconv ARGUMENTS` (default: the process's) and exits: 0, 2 after a wrong argument, or the status of the program run."""
    missing = [name for name in ("typer", "rich") if find_spec(name) is None]
    if missing:
        text = f"fastconv: the command line needs {' and '.join(missing)}; install them with: pip install 'fastconv[cli]'"
        print(text, file=sys.stderr)
        raise SystemExit(2)
    from fastconv.cli.app import start

    start(sys.argv[1:] if arguments is None else list(arguments))
