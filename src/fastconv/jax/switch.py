"""The switch: JAX's own convolution goes through our lowering rule, or through the one it came with."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from threading import Lock

from jax.interpreters import mlir

from fastconv import _core
from fastconv.jax import _compat, accelerators, records
from fastconv.jax.lowering import lower
from fastconv.jax.sharded import take as take_sharded

#: Part of the key of every cache of JAX, so that flipping it never meets a program compiled under the other setting.
_on = _compat.user_context(False)
_lock = Lock()
_registered = False


def install(*, timing: bool | None = None, sharded: bool | None = None) -> None:
    """Sends the convolutions of this process's JAX programs to the engine, wherever it is modelled faster than XLA.

    Covers `jax.lax.conv_general_dilated` and all that is built on it (`lax.conv*`, flax, equinox, haiku, keras), eager
    and under every transformation: jit, grad, jvp, vmap, scan. Programs compiled before are compiled again on their next call.
    Calling it again changes nothing. What is not faster, or not possible, stays with XLA; `report()` says why.

    timing: True makes `report()` show calls and time of every convolution that runs on the library's kernels, at some 0.1 us a call;
    False stops that, None leaves it as it is (off at first). Programs compiled without it run no code for it.
    sharded: True takes over convolutions of programs that XLA partitions over devices as well. Batch, features and groups are split as
    XLA would; spatial axes are gathered, so leave it off where those are sharded. None leaves it as it is (off at first).

    On GPUs and TPUs, and where the library cannot run, convolutions are rewritten into other operations of XLA where that pays.

    Raises: TypeError where timing or sharded is anything else.
    Accuracy: as `fastconv.conv`'s; on GPUs and TPUs XLA's. A library built without XLA's FFI headers is a RuntimeWarning.
    Warns once and does nothing under a release of JAX that is newer than it knows.

    >>> import fastconv.jax as fj
    >>> fj.install()
    >>> fj.uninstall()
    """
    for name, value in (("timing", timing), ("sharded", sharded)):
        if value is not None and not isinstance(value, bool):
            raise TypeError(f"{name} must be True, False or None, got {value!r}")
    _register()
    if timing is not None:
        _compat.set_globally(records.timing, timing)
    if sharded is not None:
        take_sharded(sharded)
    _compat.set_globally(_on, True)


def uninstall() -> None:
    """Undoes `install`: every convolution is lowered by JAX's own rule again, to the same program as before.

    >>> import fastconv.jax as fj
    >>> fj.uninstall()  # not installed: nothing happens
    """
    _compat.set_globally(_on, False)
    _compat.set_globally(records.timing, False)
    if _registered:
        _compat.lower_one_by_one(_compat.conv_general_dilated_p, False)  # as JAX has it
    take_sharded(False)


@contextmanager
def accelerate() -> Iterator[None]:
    """`install` for the calls of this thread inside the block.

    The setting counts when the outermost jit compiles; a block inside a function that JAX is tracing has no effect, and warns.

    >>> import jax.numpy as jnp, fastconv.jax as fj
    >>> with fj.accelerate():
    ...     y = jnp.convolve(jnp.ones(8), jnp.ones(3))
    """
    _register()
    if _compat.unserved is None and _compat.tracing():
        warnings.warn(
            "fastconv.jax.accelerate() has no effect inside a function that JAX traces (jit, grad, vmap, scan): wrap the call from outside",
            RuntimeWarning,
            stacklevel=3,
        )
        yield
        return
    with _on(True):
        yield


def unaccelerated() -> AbstractContextManager[object]:
    """Plain XLA for the calls of this thread inside the block, whatever is installed."""
    return _on(False)


def _register() -> None:
    """Puts our rule in front of JAX's, once."""
    global _registered
    with _lock:
        if _registered:
            _compat.lower_one_by_one(_compat.conv_general_dilated_p, True)
            return
        if _compat.warn_if_unserved():
            return
        if not _core.has_xla():
            warnings.warn(
                "fastconv.jax can only rewrite the convolutions of CPUs, not run them: its library was built without XLA's FFI headers. "
                "Reinstall fastconv where `pip install jaxlib==0.7.2` works, or build it with FASTCONV_XLA_INCLUDE set to jaxlib's include "
                "folder",
                RuntimeWarning,
                stacklevel=3,
            )
        original = _compat.cpu_rule()
        rule = partial(_rule, partial(lower, original), original)
        mlir.register_lowering(_compat.conv_general_dilated_p, rule, platform="cpu")
        accelerators.register(_compat.conv_general_dilated_p, _rule)
        _compat.lower_one_by_one(_compat.conv_general_dilated_p, True)
        _registered = True


def _rule(ours: _compat.Rule, original: _compat.Rule, ctx: mlir.LoweringRuleContext, lhs, rhs, **params):
    return (ours if _on.value else original)(ctx, lhs, rhs, **params)
