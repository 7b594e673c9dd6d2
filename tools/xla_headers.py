"""Puts the XLA FFI headers of the jaxlib that pyproject.toml pins for builds into build/xla and prints their folder.

For `make build` only, so that a development build needs no jaxlib in anybody's environment. A wheel build takes the same
headers from the jaxlib that pip installs beside CMake.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def pinned_jaxlib() -> str:
    """The jaxlib requirement among the build requirements, without its environment marker: `jaxlib==x.y.z`."""
    requires = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    return next(r.split(";")[0].strip() for r in requires if r.startswith("jaxlib"))


def main() -> int:
    """Downloads the wheel once and unpacks its headers; on failure says so and returns 1."""
    requirement = pinned_jaxlib()
    target = ROOT / "build" / "xla" / requirement.replace("==", "-")
    include = target / "jaxlib" / "include"
    if not (target / "complete").exists():
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:", "-d", folder, requirement]
            if subprocess.run(command, stdout=sys.stderr).returncode:
                print(f"no wheel of {requirement} for this platform: the library will serve NumPy only", file=sys.stderr)
                return 1
            with zipfile.ZipFile(next(Path(folder).glob("*.whl"))) as wheel:
                wheel.extractall(target, [n for n in wheel.namelist() if n.startswith("jaxlib/include/xla/ffi/api/")])
        (target / "complete").touch()
    print(include)
    return 0


if __name__ == "__main__":
    sys.exit(main())
