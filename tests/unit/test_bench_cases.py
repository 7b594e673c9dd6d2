"""The case list: valid, unique, within reach of the library's own normalisation; and its errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastconv.bench.cases import Case, load, matching, suite, suites
from fastconv.bench.oracle import problem_of
from fastconv.problem import ConvProblem
from fastconv.reference import numpy_dtype

GOOD: dict[str, Any] = {
    "name": "a",
    "family": "f",
    "source": "s",
    "op": "conv",
    "n": 2,
    "cin": 4,
    "size": [9, 8],
    "cout": 6,
    "kernel": [3, 2],
    "stride": [2, 1],
    "padding": [1, 0],
    "output_padding": [0, 0],
    "dilation": [1, 2],
    "groups": 2,
    "dtype": "float32",
    "directions": ["fwd", "dw"],
}


def test_names_are_unique_and_families_known() -> None:
    cases = load()
    assert len({case.name for case in cases}) == len(cases) > 70
    assert {case.family for case in cases} == {"seed", "convn", "audio", "vision", "volume", "filter", "dtype", "lowp"}


def test_suites() -> None:
    assert {case.family for case in suite("seed")} == {"seed", "convn"}
    assert len([case for case in suite("seed") if case.op == "convn"]) == 5
    assert suite("all") == load()
    for name in suites():
        assert suite(name)


@pytest.mark.parametrize("case", load(), ids=lambda case: case.name)
def test_every_case_normalises_to_the_shape_it_states(case: Case) -> None:
    class Shaped(Case):
        """The same row with operands that hold no data, so that huge rows cost nothing."""

        def operands(self, direction: str) -> tuple[Any, Any]:
            shapes = {"fwd": (self.x_shape, self.w_shape), "dx": (self.y_shape, self.w_shape), "dw": (self.x_shape, self.y_shape)}
            first, second = (np.broadcast_to(np.zeros((), np.int8), shape) for shape in shapes[direction])
            return first, second

    for direction in case.directions:
        problem, lhs, rhs = problem_of(Shaped(**{name: getattr(case, name) for name in case.__dataclass_fields__}), direction)
        assert isinstance(problem, ConvProblem)
        assert np.prod(problem.out_extents) == np.prod(case.result_shape(direction))
        assert np.prod(problem.lhs_extents) == lhs.size
        assert np.prod(problem.rhs_extents) == rhs.size


def test_a_case_survives_json() -> None:
    for case in load():
        assert Case.from_json(json.loads(json.dumps(case.to_json()))) == case


def test_shapes_of_a_case() -> None:
    case = Case.from_json(GOOD)
    assert (case.x_shape, case.w_shape, case.y_shape) == ((2, 4, 9, 8), (6, 2, 3, 2), (2, 6, 5, 6))
    assert case.flops == 2 * 2 * (4 * 6 // 2) * 6 * 30
    transposed = Case.from_json({**GOOD, "op": "conv_transpose", "dilation": [1, 1], "output_padding": [1, 0]})
    assert (transposed.w_shape, transposed.y_shape) == ((4, 3, 3, 2), (2, 6, 18, 9))


def test_operands_are_the_same_every_time_and_differ_by_row() -> None:
    one, two = Case.from_json(GOOD), Case.from_json({**GOOD, "name": "b"})
    for a, b in zip(one.operands("fwd"), one.operands("fwd"), strict=True):
        np.testing.assert_array_equal(a, b)
    assert not np.array_equal(one.operands("fwd")[0], two.operands("fwd")[0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kernel": [3]}, "kernel must be a list of 2 integers, got [3]"),
        ({"stride": [0, 1]}, "stride must hold integers >= 1, got 0"),
        ({"groups": 3}, "groups must divide cin and cout, got 3 for 4 and 6"),
        ({"dtype": "float8"}, "dtype must be one of"),
        ({"op": "deconv"}, "op must be one of conv, conv_transpose, convn, got 'deconv'"),
        ({"directions": ["fwd", "db"]}, "directions must be a list of fwd, dx, dw"),
        ({"directions": []}, "directions must be a list of fwd, dx, dw"),
        ({"kernel": [30, 2]}, "the output must not be empty"),
        ({"pad": [1, 1]}, "unknown field 'pad'"),
        ({"mode": "same"}, "mode must be"),
        ({"n": True}, "n must hold integers >= 1, got True"),
        ({"size": 7}, "size must be a list of 1 integers, got 7"),
        ({"name": ""}, "name must be a non-empty string"),
    ],
)
def test_a_bad_row_is_refused_by_name(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="case ") as error:
        Case.from_json({**GOOD, **change})
    assert message in str(error.value)


def test_a_missing_field_is_named() -> None:
    with pytest.raises(ValueError, match="field 'size' is missing"):
        Case.from_json({name: value for name, value in GOOD.items() if name != "size"})


def test_lists_of_the_users_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    path.write_text(json.dumps([GOOD]))
    assert suite(str(path)) == (Case.from_json(GOOD),)
    path.write_text(json.dumps([GOOD, GOOD]))
    with pytest.raises(ValueError, match="case names must be unique, 'a' occurs 2 times"):
        suite(str(path))
    path.write_text("[")
    with pytest.raises(ValueError, match="is not JSON"):
        suite(str(path))
    with pytest.raises(ValueError, match="suite must be one of seed, convn, audio"):
        suite("sede")


def test_rows_by_pattern() -> None:
    assert [case.name for case in matching(suite("seed"), "seed-conv*")] == ["seed-conv1d", "seed-convt1d"]
    assert [case.name for case in matching(suite("seed"), "3ch")] == ["seed-image-3ch"]
    with pytest.raises(ValueError, match="rows must match a case of the suite, 'nothing' matches none of"):
        matching(suite("seed"), "nothing")


@pytest.mark.parametrize("case", [case for case in load() if case.flops < 1e9], ids=lambda case: case.name)
def test_flops_and_bytes_are_those_of_the_problem(case: Case) -> None:
    """Products that touch data, counted from the row, are those of the problem that the library gets, in every direction."""
    for direction in case.directions:
        problem, lhs, rhs = problem_of(case, direction)
        assert case.touching_flops == 2 * problem.products
        result = int(np.prod(case.result_shape(direction))) * numpy_dtype(case.out_dtype or case.dtype).itemsize
        assert case.bytes(direction) == lhs.nbytes + rhs.nbytes + result
