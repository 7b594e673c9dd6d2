"""jax.lax.conv_general_dilated's arguments, by the rules and with the extents of jax; jax itself is not needed."""

from __future__ import annotations

from typing import Any

from fastconv.normalise.arguments import MAX_SPATIAL, Spec, dtype, integer, pairs, per_axis
from fastconv.normalise.dims import named_padding
from fastconv.normalise.family import Call, Epilogue, check_out, with_epilogue
from fastconv.problem import Axis, ConvProblem, Operand

_PADDINGS = ("SAME", "SAME_LOWER", "VALID")
_CHARACTERS = (("lhs_spec", "N", "C"), ("rhs_spec", "O", "I"), ("out_spec", "N", "C"))
#: lax's names of precisions; "default" allows an approximate algorithm within its bound.
_PRECISIONS = {
    "default": "default", "fastest": "default", "bfloat16": "default",
    "high": "default", "bfloat16_3x": "default", "tensorfloat32": "default",
    "highest": "highest", "float32": "highest",
}  # fmt: skip


def conv_general_dilated(
    lhs: Spec,
    rhs: Spec,
    window_strides: Any,
    padding: Any,
    lhs_dilation: Any = None,
    rhs_dilation: Any = None,
    dimension_numbers: Any = None,
    feature_group_count: Any = 1,
    batch_group_count: Any = 1,
    preferred_element_type: str | None = None,
    epilogue: Epilogue = Epilogue(),
    out: Spec | None = None,
) -> Call:
    """The problem of lax.conv_general_dilated on two arrays.

    dimension_numbers: None, three strings, or three permutations (batch or out-feature, feature or in-feature, *spatial)
    as in lax.ConvDimensionNumbers. epilogue.bias has shape (output features,).
    """
    if len(lhs.shape) != len(rhs.shape):
        raise ValueError(f"rhs must have as many dimensions as lhs, got shapes {lhs.shape} and {rhs.shape}")
    if not 2 <= len(lhs.shape) <= 2 + MAX_SPATIAL:
        raise ValueError(f"lhs must have 2 to {2 + MAX_SPATIAL} dimensions, got shape {lhs.shape}")
    element = dtype("lhs", lhs.dtype)
    if rhs.dtype != element:
        raise TypeError(f"rhs must have lhs's dtype {element}, got {rhs.dtype}")
    axes = len(lhs.shape) - 2
    lhs_spec, rhs_spec, out_spec = _permutations(dimension_numbers, axes + 2)
    strides = per_axis("window_strides", window_strides, axes, 1, single=False)
    lhs_dilations = (1,) * axes if lhs_dilation is None else per_axis("lhs_dilation", lhs_dilation, axes, 1, single=False)
    rhs_dilations = (1,) * axes if rhs_dilation is None else per_axis("rhs_dilation", rhs_dilation, axes, 1, single=False)
    batch, channels, *size = (lhs.shape[i] for i in lhs_spec)
    features, depth, *kernel = (rhs.shape[i] for i in rhs_spec)
    groups, batch_groups = _check_groups(feature_group_count, batch_group_count, batch, channels, features, depth)
    reach = tuple(_dilated(k, d) for k, d in zip(kernel, rhs_dilations, strict=True))
    pads = _padding(padding, tuple(size), reach, strides, lhs_dilations)
    extents = _extents(size, reach, strides, pads, lhs_dilations)

    out_element = element if preferred_element_type is None else preferred(element, preferred_element_type)
    result_shape = [0] * (axes + 2)
    for position, extent in zip(out_spec, (batch // batch_groups, features, *extents), strict=True):
        result_shape[position] = extent
    result = check_out(out, tuple(result_shape), out_element)

    n, c, *lhs_spatial = (lhs.strides[i] for i in lhs_spec)
    o, i, *rhs_spatial = (rhs.strides[i] for i in rhs_spec)
    out_n, out_o, *out_spatial = (result.strides[i] for i in out_spec)
    per_group = features // (groups * batch_groups)
    per_batch = batch // batch_groups
    rows = zip(size, kernel, extents, strides, pads, lhs_dilations, rhs_dilations, strict=True)
    problem = ConvProblem(
        axes=tuple(Axis(m, k, p, s, lo, ld, rd) for m, k, p, s, (lo, _), ld, rd in rows),
        groups=groups * batch_groups,
        batch=per_batch,
        channels=depth,
        features=per_group,
        lhs=Operand((per_batch * n if batch_groups > 1 else depth * c, n, c), tuple(lhs_spatial)),
        rhs=Operand((per_group * o, o, i), tuple(rhs_spatial)),
        out=Operand((per_group * out_o, out_n, out_o), tuple(out_spatial)),
        dtype=element,
        out_dtype=out_element,
    )
    return Call(with_epilogue(problem, epilogue, features, element, "O"), result)


def precision_name(value: Any) -> str:
    """lax's precision (None, a name, a lax.Precision, or one of either per operand) as "default" or "highest"."""
    if value is None:
        return "default"
    if isinstance(value, (tuple, list)) and len(value) == 2:
        return max(precision_name(part) for part in value)  # "highest" > "default"
    name = value if isinstance(value, str) else getattr(value, "name", None)
    found = _PRECISIONS.get(name.lower()) if isinstance(name, str) else None
    if found is None:
        kind = ValueError if isinstance(value, str) else TypeError
        raise kind(f"precision must be None, one of {', '.join(map(repr, _PRECISIONS))}, a lax.Precision or a pair of them, got {value!r}")
    return found


def _permutations(numbers: Any, rank: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Positions of (batch, feature, *spatial), of (out feature, in feature, *spatial), and of the output's."""
    if numbers is None:
        identity = tuple(range(rank))
        return identity, identity, identity
    if not isinstance(numbers, (tuple, list)):
        raise TypeError(f"dimension_numbers must be None or a tuple of 3 specs, got {numbers!r}")
    if len(numbers) != 3:
        raise ValueError(f"dimension_numbers must hold 3 specs, got {numbers!r}")
    if not all(isinstance(spec, str) for spec in numbers):
        return _given_permutations(numbers, rank)
    for spec, (_, first, second) in zip(numbers, _CHARACTERS, strict=True):
        if len(spec) != rank or len(set(spec)) != rank or first not in spec or second not in spec:
            rule = f"{rank} different characters with {first!r} and {second!r} among them"
            raise ValueError(f"dimension_numbers must hold specs of {rule}, got {spec!r} in {tuple(numbers)!r}")
    spatials = [set(spec) - {first, second} for spec, (_, first, second) in zip(numbers, _CHARACTERS, strict=True)]
    if not spatials[0] == spatials[1] == spatials[2]:
        raise ValueError(f"dimension_numbers must use the same spatial characters in all 3 specs, got {tuple(numbers)!r}")
    order = [character for character in numbers[1] if character in spatials[1]]
    found = [
        tuple(spec.index(character) for character in (first, second, *order))
        for spec, (_, first, second) in zip(numbers, _CHARACTERS, strict=True)
    ]
    return found[0], found[1], found[2]


def _given_permutations(numbers: Any, rank: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    found = []
    for spec in numbers:
        if isinstance(spec, str) or not isinstance(spec, (tuple, list)):
            raise TypeError(f"dimension_numbers must hold 3 strings or 3 permutations, got {tuple(numbers)!r}")
        positions = tuple(integer("dimension_numbers", position) for position in spec)
        if sorted(positions) != list(range(rank)):
            raise ValueError(f"dimension_numbers must hold permutations of 0 to {rank - 1}, got {tuple(spec)!r}")
        found.append(positions)
    return found[0], found[1], found[2]


def _check_groups(feature_groups: Any, batch_groups: Any, batch: int, channels: int, features: int, depth: int) -> tuple[int, int]:
    f = integer("feature_group_count", feature_groups, 1)
    b = integer("batch_group_count", batch_groups, 1)
    if f > 1 and b > 1:
        raise ValueError(f"feature_group_count and batch_group_count must not both be above 1, got {f} and {b}")
    if channels % f:
        raise ValueError(f"feature_group_count must divide lhs's {channels} features, got {f}")
    if channels // f != depth:
        raise ValueError(f"rhs must have {channels // f} input features (lhs's {channels} / feature_group_count {f}), got {depth}")
    if features % f:
        raise ValueError(f"feature_group_count must divide rhs's {features} output features, got {f}")
    if batch % b:
        raise ValueError(f"batch_group_count must divide lhs's batch of {batch}, got {b}")
    if features % b:
        raise ValueError(f"batch_group_count must divide rhs's {features} output features, got {b}")
    return f, b


def _dilated(extent: int, dilation: int) -> int:
    """lax's extent of a dilated axis: 0 stays 0."""
    return extent if dilation == 1 else max(0, 1 + dilation * (extent - 1))


def _padding(
    padding: Any, size: tuple[int, ...], reach: tuple[int, ...], strides: tuple[int, ...], lhs_dilations: tuple[int, ...]
) -> tuple[tuple[int, int], ...]:
    if not isinstance(padding, str):
        return pairs("padding", padding, len(size), symmetric=False)
    if padding.upper() not in _PADDINGS:
        raise ValueError(f"padding must be one of {', '.join(map(repr, _PADDINGS))} or one (lo, hi) pair per axis, got {padding!r}")
    if any(dilation != 1 for dilation in lhs_dilations):
        raise ValueError(f"padding must be one (lo, hi) pair per axis when lhs_dilation is not 1, got {padding!r}")
    return named_padding(padding.lower(), size, reach, strides)


def _extents(
    size: list[int], reach: tuple[int, ...], strides: tuple[int, ...], pads: tuple[tuple[int, int], ...], lhs_dilations: tuple[int, ...]
) -> tuple[int, ...]:
    """max(0, (dilated size + lo + hi - reach) // stride + 1), as lax."""
    out = []
    for axis, (n, r, s, (lo, hi), d) in enumerate(zip(size, reach, strides, pads, lhs_dilations, strict=True)):
        padded = _dilated(n, d) + lo + hi
        if padded < 0:
            raise ValueError(
                f"padding must not crop more than lhs's dilated extent {_dilated(n, d)}, got {(lo, hi)} on spatial axis {axis}"
            )
        out.append(max(0, (padded - r) // s + 1))
    return tuple(out)


def _kind(name: str) -> tuple[str, int]:
    """Kind ("int", "uint", "float", "complex") and bits of a dtype name."""
    letters = name.rstrip("0123456789")
    return letters.removeprefix("b") if letters == "bfloat" else letters, int(name[len(letters) :])


def preferred(element: str, wanted: str) -> str:
    """lax's rule: same kind, or float for ints; signed stays signed; never narrower."""
    dtype("preferred_element_type", wanted)
    (kind, bits), (wanted_kind, wanted_bits) = _kind(element), _kind(wanted)
    allowed = {"int": ("int", "float"), "uint": ("uint", "int", "float"), "float": ("float",), "complex": ("complex",)}[kind]
    if wanted_kind not in allowed:
        raise TypeError(f"preferred_element_type must be {' or '.join(allowed)} for operands of dtype {element}, got {wanted}")
    if wanted_bits < bits:
        raise TypeError(f"preferred_element_type must not be narrower than the operands' {element}, got {wanted}")
    return wanted
