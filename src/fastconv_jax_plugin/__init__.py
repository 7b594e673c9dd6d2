"""What JAX loads when it looks for plugins: with FASTCONV_JAX=1 it installs fastconv, else it does nothing and imports nothing.

Outside the package, because JAX loads this module in every program of an environment that has fastconv.
"""

import os


def initialize() -> None:
    """Called by JAX before its first backend starts. Raises: ValueError (which JAX logs) when FASTCONV_JAX is neither 0 nor 1."""
    wanted = os.environ.get("FASTCONV_JAX", "")
    if wanted in ("", "0"):
        return
    if wanted != "1":
        raise ValueError(f"FASTCONV_JAX must be 0 or 1, got {wanted!r}")
    from fastconv.jax import install

    install()
