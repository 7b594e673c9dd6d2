"""The one place that knows how versions of JAX differ (0.7.2 to 0.12), and all that is not public API."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any

try:
    import jax
except ImportError as error:
    raise ImportError("fastconv.jax needs jax >= 0.7.2: pip install 'fastconv[jax]'") from error

from jax import lax
from jax.interpreters import mlir

OLDEST = (0, 7, 2)
#: The newest minor release that the tests ran on. A newer one may have changed what is used here.
NEWEST = (0, 12)

if jax.__version_info__ < OLDEST:
    raise ImportError(f"fastconv.jax needs jax >= {'.'.join(map(str, OLDEST))}, found {jax.__version__}: pip install -U jax")

Rule = Callable[..., Any]
Context = Any

#: The name of JAX's convolution in a jaxpr.
CONV = "conv_general_dilated"


def cpu_rule() -> Rule:
    """The rule that lowers JAX's convolution for CPUs today."""
    entry: Any = mlir._platform_specific_lowerings["cpu"].get(conv_general_dilated_p) or mlir._lowerings[conv_general_dilated_p]
    return getattr(entry, "rule", entry)  # releases wrap the rule in an entry, with other facts


class _Inert:
    """A user context for a release that lacks them: what it holds never changes."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self, value: Any) -> AbstractContextManager[None]:
        return nullcontext()

    def set_global(self, value: Any) -> None:
        pass


def user_context(default: Any) -> Any:
    """A value that is part of the key of every cache of JAX."""
    return jax.make_user_context(default) if unserved is None else _Inert(default)


def device_kind(ctx: mlir.LoweringRuleContext, platform: str) -> str:
    """What the device that a program is lowered for calls itself; "" where there is none at hand, as in cross-lowering."""
    try:
        backend: Any = ctx.module_context.get_backend()
        return backend.devices()[0].device_kind if backend.platform in (platform, "gpu") else ""
    except Exception:  # lowering without a backend says so in ways that change with releases
        return ""


def is_reversed(value: Any) -> bool:
    """Whether an operand is the result of a reversal in the program."""
    owner = getattr(value, "owner", None)
    return getattr(owner, "name", None) == "stablehlo.reverse"


def reversal(value: Any) -> tuple[Any, frozenset[int]]:
    """What an operand is the reversal of, and on which dimensions; itself and none where it is not a reversal."""
    if not is_reversed(value):
        return value, frozenset()
    return value.owner.operands[0], frozenset(map(int, value.owner.attributes["dimensions"]))


def rules() -> dict[str | None, Rule]:
    """The rules that lower JAX's convolution today, by platform; None: wherever there is no other."""
    found: dict[str | None, Any] = {None: mlir._lowerings[conv_general_dilated_p]}
    for name, table in mlir._platform_specific_lowerings.items():
        if conv_general_dilated_p in table:
            found[name] = table[conv_general_dilated_p]
    return {name: getattr(entry, "rule", entry) for name, entry in found.items()}


def is_jaxs_own(rule: Rule, common: Rule) -> bool:
    """Whether a rule that lowers convolutions is the common one, but for its options; a plugin may have brought another."""
    return getattr(rule, "func", rule) is common


def set_globally(context: Any, value: Any) -> None:
    """Sets a user context for all threads; releases before 0.8 lack the public method."""
    setter = getattr(context, "set_global", None) or context._obj.set_global
    setter(value)


_one_by_one: set[Any] = set()


def lower_one_by_one(primitive: Any, wanted: bool) -> None:
    """Whether equal operations of a program are lowered one by one, so that each is known by its own line and sees its operands.

    Else JAX lowers the first and calls it from the others' places.
    """
    try:
        from jax._src.interpreters import mlir as inner

        found = inner._uncacheable_primitives
        if not _one_by_one:
            inner.lower_per_platform = _mended(inner.lower_per_platform)
    except (ImportError, AttributeError):
        return
    (found.add if wanted else found.discard)(primitive)
    _one_by_one.add(primitive)


def _mended(lower_per_platform: Rule) -> Rule:
    """JAX 0.8 to 0.12 cannot lower an operation one by one for several platforms: it adds its tuple of results to a list."""

    def mended(ctx: mlir.LoweringRuleContext, *args: Any, **kwargs: Any) -> Any:
        if ctx.primitive in _one_by_one and isinstance(ctx.avals_out, tuple):
            ctx = ctx.replace(avals_out=list(ctx.avals_out))
        return lower_per_platform(ctx, *args, **kwargs)

    return mended


def finish_running() -> None:
    """Waits for the work that JAX has dispatched; one that failed is its caller's matter."""
    for array in jax.live_arrays():
        with suppress(Exception):
            array.block_until_ready()


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
    enable: Any = getattr(jax, "enable_x64", None)
    if enable is None:  # before 0.8
        import jax.experimental as experimental

        enable = getattr(experimental, "enable_x64")  # noqa: B009
    return enable(True)


def devices_shared(ctx: mlir.LoweringRuleContext) -> int:
    """Devices over which XLA's partitioner would spread this operation; 1 when the operation is already local to a device."""
    context: Any = ctx.module_context.axis_context
    mesh = getattr(context, "mesh", None)
    if mesh is not None:  # shard_map, pmap
        return 1 if frozenset(mesh.axis_names) == context.manual_axes else mesh.size
    return getattr(context, "num_devices", 1)  # jit; a context without it belongs to a pmap of an older release


def needs_devices(primitive: Any, needed: bool) -> None:
    """Whether the lowering of programs with this primitive is told their devices and mesh, as custom partitioning asks."""
    try:
        from jax._src.dispatch import prim_requires_devices_during_lowering as primitives

        (primitives.add if needed else primitives.discard)(primitive)
    except (ImportError, AttributeError):  # then `partitions_by_rules` sees no mesh, and XLA partitions its own operation
        pass


def partitions_by_rules(ctx: mlir.LoweringRuleContext) -> bool:
    """Whether XLA's partitioner will ask custom operations of this program for their sharding rule: Shardy, on a mesh with names."""
    mesh = getattr(ctx.module_context.axis_context, "abstract_mesh", None)
    return bool(getattr(jax.config, "jax_use_shardy_partitioner", False) and mesh is not None and mesh.axis_names)


def program_of(ctx: mlir.LoweringRuleContext) -> object:
    """Something small that is the same object for all operations of the program being lowered, and no other's while it lives."""
    return getattr(ctx.module_context, "channel_iterator", None) or object()


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


def varying_alike(*operands: Any) -> tuple[Any, ...]:
    """Operands inside a shard_map, each made to vary over the mesh axes that any of them does, as jax.lax makes those of its functions."""
    axes = [_varying(jax.typeof(operand)) for operand in operands]
    wanted = frozenset().union(*axes)
    if not wanted:
        return operands
    vary = partial(lax.pcast, to="varying") if hasattr(lax, "pcast") else lax.pvary  # pyright: ignore[reportAttributeAccessIssue]
    return tuple(
        vary(operand, tuple(sorted(wanted - own, key=str))) if own != wanted else operand
        for operand, own in zip(operands, axes, strict=True)
    )


def struct(aval: Any) -> jax.ShapeDtypeStruct:
    """Shape and dtype of an abstract value, and over which mesh axes it varies inside a shard_map."""
    if not _varying(aval):
        return jax.ShapeDtypeStruct(aval.shape, aval.dtype)
    if hasattr(aval, "mat"):
        return jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=aval.sharding, manual_axis_type=aval.mat)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, vma=aval.vma)  # pyright: ignore[reportCallIssue]


def _varying(aval: Any) -> frozenset[Any]:
    return aval.mat.varying if hasattr(aval, "mat") else getattr(aval, "vma", frozenset())


def bind(equation: Any, operands: list[Any]) -> list[Any]:
    """Evaluates one equation of a jaxpr."""
    found = equation.primitive.get_bind_params(equation.params)
    functions, params = found if isinstance(found, tuple) else ((), found)  # newer releases keep functions among the params
    results = equation.primitive.bind(*functions, *operands, **params)
    return list(results) if equation.primitive.multiple_results else [results]


def _why_unserved() -> str | None:
    """What this release of JAX lacks, or that nobody has looked; None where convolutions can be taken over."""
    if jax.__version_info__[:2] > NEWEST and os.environ.get("FASTCONV_JAX_UNTESTED") != "1":
        newest = ".".join(map(str, NEWEST))
        return f"jax {jax.__version__} is newer than {newest}, the newest that it was tested with (FASTCONV_JAX_UNTESTED=1 takes the risk)"
    try:
        cpu_rule()
        set_globally(jax.make_user_context(False), False)
        tracing()
        fields = {*mlir.ModuleContext.__dataclass_fields__, *mlir.LoweringRuleContext.__dataclass_fields__}
        if missing := {"axis_context", "lowering_parameters", "traceback"} - fields:
            raise AttributeError(f"no {missing} in the lowering context")
    except (ImportError, AttributeError, TypeError, KeyError) as error:
        return f"jax {jax.__version__} is not as fastconv knows it: {type(error).__name__}: {error}"
    return None


_warned: set[str] = set()


def warn_once(text: str) -> None:
    """A warning that a process gets once, whatever its filters."""
    if text not in _warned:
        _warned.add(text)
        warnings.warn(text, RuntimeWarning, stacklevel=4)


try:
    from jax.extend.core.primitives import conv_general_dilated_p
except ImportError as error:
    conv_general_dilated_p: Any = None
    unserved: str | None = f"jax {jax.__version__} is not as fastconv knows it: {error}"
else:
    #: Why every convolution is left to XLA in this release of JAX; None in those that are known.
    unserved = _why_unserved()


def warn_if_unserved() -> bool:
    """Whether this release is unserved; then the process has been told so."""
    if unserved is not None:
        warn_once(f"fastconv.jax leaves every convolution to XLA: {unserved}")
    return unserved is not None
