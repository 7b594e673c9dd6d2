"""The one place that knows how versions of JAX differ (0.7.2 to 0.12), and all that is not public API."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    import jax
except ImportError as error:
    raise ImportError("fastconv.jax needs jax >= 0.7.2: pip install 'fastconv[jax]'") from error

from jax.extend.core.primitives import conv_general_dilated_p
from jax.interpreters import mlir

OLDEST = (0, 7, 2)

if jax.__version_info__ < OLDEST:
    raise ImportError(f"fastconv.jax needs jax >= {'.'.join(map(str, OLDEST))}, found {jax.__version__}: pip install -U jax")

Rule = Callable[..., Any]


def cpu_rule() -> Rule:
    """The rule that lowers JAX's convolution for CPUs today."""
    entry: Any = mlir._platform_specific_lowerings["cpu"].get(conv_general_dilated_p) or mlir._lowerings[conv_general_dilated_p]
    return getattr(entry, "rule", entry)  # releases wrap the rule in an entry, with other facts


def set_globally(context: Any, value: bool) -> None:
    """Sets a user context for all threads; releases before 0.8 lack the public method."""
    setter = getattr(context, "set_global", None) or context._obj.set_global
    setter(value)


def tracing() -> bool:
    """Whether JAX is tracing on this thread: what is done now ends up in somebody's jaxpr."""
    from jax._src import core

    return not core.trace_state_clean()


def frames(ctx: mlir.LoweringRuleContext) -> list[tuple[str, int]]:
    """FILE and line of the calls that led to the operation being lowered, innermost first, without JAX's own."""
    try:
        from jax._src.source_info_util import user_frames

        return [(frame.file_name, frame.start_line) for frame in user_frames(ctx.traceback)]
    except (ImportError, AttributeError, TypeError):  # a release that keeps them elsewhere: reports then show no lines
        return []


def double_precision() -> Any:
    """A context in which arrays of 64 bits keep them."""
    if hasattr(jax, "enable_x64"):
        return jax.enable_x64(True)
    from jax.experimental import enable_x64  # before 0.8

    return enable_x64(True)


def devices_shared(ctx: mlir.LoweringRuleContext) -> int:
    """Devices over which XLA's partitioner would spread this operation; 1 when the operation is already local to a device."""
    context: Any = ctx.module_context.axis_context
    mesh = getattr(context, "mesh", None)
    if mesh is not None:  # shard_map, pmap
        return 1 if frozenset(mesh.axis_names) == context.manual_axes else mesh.size
    return getattr(context, "num_devices", 1)  # jit; a context without it belongs to a pmap of an older release


def for_export(ctx: mlir.LoweringRuleContext) -> bool:
    """Whether the program is lowered to be serialised, for a machine that may not have this library."""
    return ctx.module_context.lowering_parameters.for_export


def open_jaxpr(traced: Any) -> tuple[Any, Any]:
    """The jaxpr behind what `jax.make_jaxpr` returns, and the values of its constants."""
    return traced.jaxpr, traced.consts


def is_literal(atom: Any) -> bool:
    """Whether an operand of an equation is a constant written into it."""
    from jax.extend.core import Literal

    return isinstance(atom, Literal)


def literal(atom: Any) -> Any:
    """That constant."""
    return atom.val


def bind(equation: Any, operands: list[Any]) -> list[Any]:
    """Evaluates one equation of a jaxpr."""
    found = equation.primitive.get_bind_params(equation.params)
    functions, params = found if isinstance(found, tuple) else ((), found)  # newer releases keep functions among the params
    results = equation.primitive.bind(*functions, *operands, **params)
    return list(results) if equation.primitive.multiple_results else [results]
