"""The oracle of the benchmark: agrees with plain loops in full and in pieces, and notices a single wrong output."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.signal

from fastconv.bench.cases import Case
from fastconv.bench.oracle import Oracle

BASE: dict[str, Any] = {"family": "f", "source": "s", "op": "conv", "dtype": "float32", "directions": ["fwd", "dx", "dw"]}
ROWS = [
    {**BASE, "name": "one", "size": [37], "kernel": [5], "padding": [4], "cin": 3, "cout": 2, "n": 2},
    {**BASE, "name": "two", "size": [17, 23], "kernel": [3, 4], "padding": [2, 1], "cin": 2, "cout": 3},
    {**BASE, "name": "three", "size": [9, 8, 7], "kernel": [3, 2, 3], "padding": [1, 0, 2], "cin": 1, "cout": 2},
]
DIRECTIONS = ("fwd", "dx", "dw")


def truth(case: Case, direction: str) -> np.ndarray[Any, Any]:
    """Stride-1 rows by SciPy in float64, independent of the library's own rewriting."""
    first, second = (a.astype(np.float64) for a in case.operands(direction))
    result = np.zeros(case.result_shape(direction))
    for n in range(case.n):
        for o in range(case.cout):
            for c in range(case.cin):
                if direction == "fwd":
                    result[n, o] += scipy.signal.correlate(np.pad(first[n, c], case.pads), second[o, c], "valid", "direct")
                elif direction == "dx":
                    full = scipy.signal.convolve(first[n, o], second[o, c], "full", "direct")
                    kept = tuple(slice(lo, lo + size) for (lo, _), size in zip(case.pads, case.size, strict=True))
                    result[n, c] += full[kept]
                else:
                    result[o, c] += scipy.signal.correlate(np.pad(first[n, c], case.pads), second[n, o], "valid", "direct")
    return result.astype(np.float32)


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
@pytest.mark.parametrize("budget", [10**9, 40])
def test_agrees_with_scipy(row: dict[str, Any], direction: str, budget: int) -> None:
    case = Case.from_json(row)
    oracle = Oracle(case, direction, budget)
    assert oracle.error(truth(case, direction)) <= 1
    assert oracle.checked > 0


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["name"])
def test_every_wrong_output_is_noticed_in_full(row: dict[str, Any], direction: str) -> None:
    case = Case.from_json(row)
    oracle = Oracle(case, direction)
    right = truth(case, direction)
    assert oracle.checked == right.size
    for at in np.random.default_rng(1).integers(0, right.size, 12):
        wrong = right.copy()
        wrong.flat[at] += 0.1
        assert oracle.error(wrong) > 1
        wrong.flat[at] = np.nan
        assert oracle.error(wrong) == np.inf


@pytest.mark.parametrize("edge", [(0, 0), (0, -1), (1, 0), (1, -1)])
def test_a_sampled_row_still_has_all_its_borders_checked(edge: tuple[int, int]) -> None:
    case = Case.from_json(ROWS[1])
    oracle = Oracle(case, "fwd", budget=case.flops // 3)
    wrong = truth(case, "fwd")
    assert oracle.error(wrong) <= 1
    border = np.moveaxis(wrong, 2 + edge[0], 0)[edge[1]]
    for at in range(border.size):
        index = np.unravel_index(at, border.shape)
        border[index] += 0.05
        assert oracle.error(wrong) > 1
        border[index] = truth(case, "fwd").take(edge[1], 2 + edge[0])[index]


def test_a_method_by_fft_has_a_wider_bound_but_a_lost_tap_breaks_it() -> None:
    case = Case.from_json(ROWS[1])
    oracle = Oracle(case, "fwd")
    right = truth(case, "fwd")
    noise = right + np.float32(3e-5)
    assert oracle.error(noise) > oracle.error(noise, fft=True)
    first, second = case.operands("fwd")
    lost = right.copy()
    lost[0, 0, 2:12, 2:12] -= second[0, 0, 0, 0] * first[0, 0, :10, 1:11]
    assert oracle.error(lost, fft=True) > 1


def test_shape_type_and_integers() -> None:
    case = Case.from_json(ROWS[0])
    oracle = Oracle(case, "fwd")
    right = truth(case, "fwd")
    assert oracle.error(right.astype(np.float64)) == np.inf
    assert oracle.error(right[..., :-1]) == np.inf
    whole = Case.from_json({**ROWS[0], "dtype": "int8", "out_dtype": "int32", "directions": ["fwd"]})
    values = truth(whole, "fwd").astype(np.int32)
    assert Oracle(whole, "fwd").error(values) == 0
    values[0, 0, 0] += 1
    assert Oracle(whole, "fwd").error(values) == np.inf
