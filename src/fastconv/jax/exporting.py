"""Programs that leave this machine with the engine's calls in them, for machines that have fastconv too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.export

from fastconv.jax.lowering import TARGET, calls_exported, register_target
from fastconv.jax.switch import accelerate


def export(
    function: Any,
    *,
    platforms: Sequence[str] | None = None,
    disabled_checks: Sequence[jax.export.DisabledSafetyCheck] = (),
) -> Callable[..., jax.export.Exported]:
    """jax.export.export with the engine's calls in the program, for machines that have fastconv.

    A program that jax.export itself makes, under `install` or not, has XLA's convolutions and runs anywhere. This one runs where
    fastconv is installed, once `register` was called. Each convolution's algorithm is chosen here, for this machine; instruction set
    and tiles, where it runs. Convolutions of symbolic sizes, and those of other platforms than the CPU, are XLA's.

    function: what jax.jit returned. platforms, disabled_checks: as jax.export.export's; the check for custom calls knows ours.
    Raises: what jax.export.export raises; RuntimeError when the library was built without XLA's FFI headers.

    >>> import jax, jax.numpy as jnp, fastconv.jax as fj
    >>> function = jax.jit(lambda x, w: jax.lax.conv(x, w, (1,), "SAME"))
    >>> program = fj.export(function)(jnp.ones((4, 16, 64)), jnp.ones((32, 16, 5))).serialize()
    >>> fj.register()
    >>> jax.export.deserialize(program).call(jnp.ones((4, 16, 64)), jnp.ones((32, 16, 5))).shape
    (4, 32, 64)

    Reference: https://docs.jax.dev/en/latest/export/export.html
    """
    ours = jax.export.DisabledSafetyCheck.custom_call(TARGET)
    inner = jax.export.export(function, platforms=platforms, disabled_checks=(*disabled_checks, ours))

    def exported(*args: Any, **kwargs: Any) -> jax.export.Exported:
        with accelerate(), calls_exported(True):
            return inner(*args, **kwargs)

    return exported


def register() -> None:
    """Makes the engine's call known to XLA, for programs that were exported or compiled elsewhere; starts JAX's CPU backend.

    Nothing else needs it: whatever is compiled in this process registers the call by itself.

    Raises: RuntimeError when the library was built without XLA's FFI headers, or XLA refuses the call.

    >>> import fastconv.jax as fj
    >>> fj.register()
    """
    jax.devices("cpu")  # a handler that is refused while the backend starts would take it down
    if (trouble := register_target()) is not None:
        raise RuntimeError(f"fastconv.jax cannot serve JAX: {trouble}")
