"""The case list: what is convolved, in which directions; the one list that tests, benchmark and report share."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from fnmatch import fnmatchcase
from functools import cached_property
from importlib.resources import files
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastconv.problem import Axis, touching_pairs
from fastconv.reference import numpy_dtype

if TYPE_CHECKING:
    from numpy.typing import NDArray

DIRECTIONS = ("fwd", "dx", "dw")
OPS = ("conv", "conv_transpose", "convn")
MODES = ("full", "same", "valid")
DTYPES = ("float16", "float32", "float64", "bfloat16", "complex64", "complex128", "int8", "int16", "int32", "int64", "uint8")

#: Fields with one integer per spatial axis: name, value when absent, least value.
_AXIS_FIELDS = (
    ("size", None, 1),
    ("kernel", None, 1),
    ("stride", 1, 1),
    ("padding", 0, None),
    ("output_padding", 0, 0),
    ("dilation", 1, 1),
)

#: Suites that are more than one family of the list.
COMBINED = {"seed": ("seed", "convn")}


@dataclass(frozen=True)
class Case:
    """One row of the list. `padding` is symmetric; a `convn` row has one channel and true convolution, and `mode` instead of padding."""

    name: str
    family: str
    source: str
    op: str
    size: tuple[int, ...]
    kernel: tuple[int, ...]
    dtype: str
    directions: tuple[str, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    output_padding: tuple[int, ...]
    dilation: tuple[int, ...]
    n: int = 1
    cin: int = 1
    cout: int = 1
    groups: int = 1
    mode: str | None = None
    out_dtype: str | None = None

    @property
    def dims(self) -> int:
        """Number of spatial axes."""
        return len(self.size)

    @property
    def transposed(self) -> bool:
        """Whether the row is a transposed convolution."""
        return self.op == "conv_transpose"

    @cached_property
    def pads(self) -> tuple[tuple[int, int], ...]:
        """(low, high) padding of each axis of the correlation that the row amounts to (a transposed row: what is trimmed)."""
        if self.mode is None:
            return tuple((p, p) for p in self.padding)
        if self.mode == "full":
            return tuple((k - 1, k - 1) for k in self.kernel)
        if self.mode == "valid":
            return tuple((0, 0) for _ in self.kernel)
        return tuple((k - 1 - (k - 1) // 2, (k - 1) // 2) for k in self.kernel)

    @cached_property
    def x_shape(self) -> tuple[int, ...]:
        """Shape of the input, N C spatial."""
        return (self.n, self.cin, *self.size)

    @cached_property
    def w_shape(self) -> tuple[int, ...]:
        """Shape of the weights, O I/g k, or I O/g k of a transposed row."""
        first, second = (self.cin, self.cout) if self.transposed else (self.cout, self.cin)
        return (first, second // self.groups, *self.kernel)

    @cached_property
    def y_shape(self) -> tuple[int, ...]:
        """Shape of the output, N C spatial."""
        geometry = zip(self.size, self.kernel, self.stride, self.pads, self.dilation, self.output_padding, strict=True)
        if self.transposed:
            out = [(i - 1) * s + (k - 1) * d + 1 - lo - hi + extra for i, k, s, (lo, hi), d, extra in geometry]
        else:
            out = [(i + lo + hi - (k - 1) * d - 1) // s + 1 for i, k, s, (lo, hi), d, _ in geometry]
        return (self.n, self.cout, *out)

    @cached_property
    def flops(self) -> int:
        """Two per product of the direct algorithm, edges counted in full; the same for every direction."""
        pixels = prod(self.size) if self.transposed else prod(self.y_shape[2:])
        return 2 * self.n * self.cin * self.cout // self.groups * prod(self.kernel) * pixels

    @cached_property
    def touching_flops(self) -> int:
        """Two per product that touches data; the same for every direction."""
        pairs = 1
        for i, k, s, (lo, _), d, o in zip(self.size, self.kernel, self.stride, self.pads, self.dilation, self.y_shape[2:], strict=True):
            pairs *= touching_pairs(Axis(i, k, o, 1, (k - 1) * d - lo, s, d) if self.transposed else Axis(i, k, o, s, lo, 1, d))
        return 2 * self.n * self.cin * self.cout // self.groups * pairs

    def bytes(self, direction: str) -> int:
        """Bytes of the two operands and the result of a direction."""
        shapes = {"x": self.x_shape, "w": self.w_shape, "y": self.y_shape}
        wide = {"fwd": "y", "dx": "x", "dw": "w"}[direction]
        sizes = {name: numpy_dtype(self.out_dtype or self.dtype if name == wide else self.dtype).itemsize for name in shapes}
        return sum(prod(shape) * sizes[name] for name, shape in shapes.items())

    def result_shape(self, direction: str) -> tuple[int, ...]:
        """Shape of what a direction computes, in the layout of `x_shape` and `w_shape`."""
        return {"fwd": self.y_shape, "dx": self.x_shape, "dw": self.w_shape}[direction]

    def describe(self) -> str:
        """The geometry in one line."""
        kernel, size = ("x".join(map(str, v)) for v in (self.kernel, self.size))
        if self.op == "convn":
            return f"convn {size} * {kernel} {self.mode} {self.dtype}"
        text = f"{self.op} N{self.n} {self.cin}->{self.cout} {size} k{kernel}"
        for letter, values, plain in (
            ("s", self.stride, 1),
            ("p", self.padding, 0),
            ("op", self.output_padding, 0),
            ("d", self.dilation, 1),
        ):
            if any(v != plain for v in values):
                text += f" {letter}{values[0] if len(set(values)) == 1 else 'x'.join(map(str, values))}"
        return text + (f" g{self.groups}" if self.groups > 1 else "") + f" {self.dtype}"

    def operands(self, direction: str) -> tuple[NDArray[Any], NDArray[Any]]:
        """The two arrays a direction reads: (x, w), (dy, w) or (x, dy); the same numbers in every process."""
        shapes = {"fwd": (self.x_shape, self.w_shape), "dx": (self.y_shape, self.w_shape), "dw": (self.x_shape, self.y_shape)}
        random = np.random.default_rng(zlib.crc32(f"{self.name} {direction}".encode()))
        first, second = (_draw(random, shape, self.dtype) for shape in shapes[direction])
        return first, second

    def to_json(self) -> dict[str, Any]:
        """The row as `from_json` reads it."""
        return {name: value for name, value in asdict(self).items() if value is not None}

    @staticmethod
    def from_json(row: Mapping[str, Any]) -> Case:
        """Checks one row of a list; ValueError names the row, the field and the rule."""
        if not isinstance(row, Mapping):
            raise ValueError(f"a case must be an object, got {row!r}")
        label = f"case {row.get('name', row)!r}"
        known = {f.name for f in fields(Case)}
        if unknown := sorted(set(row) - known):
            raise ValueError(f"{label}: unknown field {unknown[0]!r}; fields are {', '.join(sorted(known))}")
        required = ("name", "family", "source", "op", "size", "kernel", "dtype", "directions")
        if missing := [name for name in required if name not in row]:
            raise ValueError(f"{label}: field {missing[0]!r} is missing")
        for name in ("name", "family", "source"):
            if not isinstance(row[name], str) or not row[name]:
                raise ValueError(f"{label}: {name} must be a non-empty string, got {row[name]!r}")
        for name, allowed in (("op", OPS), ("dtype", DTYPES), ("out_dtype", DTYPES)):
            if name in row and row[name] not in allowed:
                raise ValueError(f"{label}: {name} must be one of {', '.join(allowed)}, got {row[name]!r}")
        if (row["op"] == "convn") != (row.get("mode") in MODES):
            raise ValueError(f"{label}: mode must be one of {', '.join(MODES)} for convn and absent otherwise, got {row.get('mode')!r}")
        values = dict(row)
        dims = len(row["size"]) if isinstance(row["size"], (list, tuple)) else 1
        for name, plain, least in _AXIS_FIELDS:
            values[name] = _integers(label, name, row.get(name, [plain] * dims), dims, least)
        for name in ("n", "cin", "cout", "groups"):
            (values[name],) = _integers(label, name, [row.get(name, 1)], 1, 1)
        directions = row["directions"]
        if not isinstance(directions, (list, tuple)) or not directions or not set(directions) <= set(DIRECTIONS):
            raise ValueError(f"{label}: directions must be a list of {', '.join(DIRECTIONS)}, got {directions!r}")
        values["directions"] = tuple(directions)
        case = Case(**values)
        if case.cin % case.groups or case.cout % case.groups:
            raise ValueError(f"{label}: groups must divide cin and cout, got {case.groups} for {case.cin} and {case.cout}")
        if case.op == "convn" and (case.n, case.cin, case.cout, case.directions) != (1, 1, 1, ("fwd",)):
            raise ValueError(f"{label}: convn rows have one channel and the direction fwd alone")
        if min(case.y_shape) < 1:
            raise ValueError(f"{label}: the output must not be empty, got shape {case.y_shape}")
        return case


def load(path: Path | None = None) -> tuple[Case, ...]:
    """The cases of a JSON list (default: the project's own); ValueError says which row breaks which rule."""
    text = (files("fastconv.bench") / "cases.json").read_text(encoding="utf-8") if path is None else path.read_text(encoding="utf-8")
    try:
        rows = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not JSON: {error}") from None
    if not isinstance(rows, list) or not rows:
        raise ValueError(f"{path} must hold a non-empty JSON list of cases")
    cases = tuple(Case.from_json(row) for row in rows)
    names = [case.name for case in cases]
    if repeated := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise ValueError(f"case names must be unique, {repeated[0]!r} occurs {names.count(repeated[0])} times")
    return cases


def suites() -> tuple[str, ...]:
    """Names that `suite` knows, besides files."""
    return (*dict.fromkeys(case.family for case in load()), "all")


def suite(name: str) -> tuple[Case, ...]:
    """The cases of a suite: a family of the list, `seed` (which includes convn), `all`, or the path of a JSON list."""
    if name == "all":
        return load()
    if name in suites():
        return tuple(case for case in load() if case.family in COMBINED.get(name, (name,)))
    path = Path(name)
    if path.is_file():
        return load(path)
    raise ValueError(f"suite must be one of {', '.join(suites())} or the path of a JSON list of cases, got {name!r}")


def matching(cases: Iterable[Case], pattern: str | None) -> tuple[Case, ...]:
    """The cases whose name matches a shell pattern, or holds it as a substring."""
    cases = tuple(cases)
    if pattern is None:
        return cases
    chosen = tuple(case for case in cases if fnmatchcase(case.name, pattern) or pattern in case.name)
    if not chosen:
        raise ValueError(f"rows must match a case of the suite, {pattern!r} matches none of {', '.join(case.name for case in cases)}")
    return chosen


def _integers(label: str, name: str, values: Any, count: int, least: int | None) -> tuple[int, ...]:
    if not isinstance(values, (list, tuple)) or len(values) != count or not count:
        raise ValueError(f"{label}: {name} must be a list of {count} integers, got {values!r}")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int) or (least is not None and value < least):
            rule = "integers" if least is None else f"integers >= {least}"
            raise ValueError(f"{label}: {name} must hold {rule}, got {value!r}")
    return tuple(values)


def _draw(random: np.random.Generator, shape: tuple[int, ...], dtype: str) -> NDArray[Any]:
    if dtype == "bfloat16":
        from ml_dtypes import bfloat16

        return random.standard_normal(shape, np.float32).astype(bfloat16)
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        info = np.iinfo(kind)
        return random.integers(max(info.min, -128), min(info.max, 127), shape, kind, endpoint=True)
    if kind.kind == "c":
        return (random.standard_normal(shape) + 1j * random.standard_normal(shape)).astype(kind)
    return random.standard_normal(shape).astype(kind)
