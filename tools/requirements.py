"""Prints the requirements of extras of pyproject.toml, one a line, for `pip install -r`: tools without a build of the project."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path


def main() -> None:
    """Arguments: names of extras."""
    extras = tomllib.loads((Path(__file__).resolve().parent.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra in sys.argv[1:]:
        print(*extras[extra], sep="\n")


if __name__ == "__main__":
    main()
