"""Every driver with its operands and result between inaccessible pages, flush left and flush right: one byte outside faults."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastconv.plan import ALGORITHMS
from fastconv.soak import memory
from fastconv.soak.child import in_child
from fastconv.soak.hold import Local
from fastconv.soak.memory import Cells, copied
from fastconv.soak.run import FAMILIES, held_by, problems, soak

RAN: set[str] = set()


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int8"])
@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=8)
@given(data=st.data(), values=st.integers(0, 99), exact=st.booleans())
def test_no_driver_touches_a_byte_outside(family: str, dtype: str, data: st.DataObject, values: int, exact: bool) -> None:
    problem, elements = data.draw(problems(family, dtype))
    RAN.update(held.algorithm for held in held_by(problem, elements, values, exact, True, (), (), Local()))


def test_every_driver_was_fenced() -> None:
    assert {row.name for row in ALGORITHMS} == RAN


@pytest.mark.parametrize("place", ["left", "right"])
def test_an_access_outside_is_a_fault(place: str) -> None:
    array = copied(np.arange(5, dtype=np.float32), place)
    start = array.ctypes.data
    outside = start - 1 if place == "left" else start + array.nbytes

    def touch(say):
        say("reading outside")
        return ctypes.string_at(outside, 1)

    assert in_child(lambda say: ctypes.string_at(start, array.nbytes)) == array.tobytes()
    with pytest.raises(AssertionError, match=r"reading outside: ended by SIG(SEGV|BUS)"):
        in_child(touch)


@pytest.mark.parametrize("place", memory.PLACES)
def test_a_changed_cell_beside_the_outputs_is_noticed(place: str) -> None:
    cells = Cells("float32", 6, place)
    outputs = lambda like: like[::2]  # noqa: E731
    cells.array[::2] = 1
    assert cells.untouched(outputs)
    cells.array[1] = 1
    assert not cells.untouched(outputs)


def test_the_child_tells_what_went_wrong() -> None:
    def wrong(say):
        raise AssertionError("a wrong sum")

    with pytest.raises(AssertionError, match="a wrong sum"):
        in_child(wrong)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        in_child(lambda say: 1 // 0)


def test_a_soak_counts_its_problems() -> None:
    result = soak(minutes=0, seed=1, least=5, names=["general", "direct"], levels=["scalar"], families=["dense"], dtypes=["float32"])
    assert result.failure is None
    assert {key: tally.problems >= 5 and 0 < tally.ratio <= 1 for key, tally in result.tallies.items()} == {
        ("general", "scalar"): True,
        ("direct", "scalar"): True,
    }


def test_a_soak_shrinks_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound that nothing meets: the smallest problem with a rounding error is shown, with the way to see it again."""
    from fastconv import check

    monkeypatch.setattr(check, "bound", lambda problem, ref, kind: np.full(ref.value.shape, -1.0))
    result = soak(minutes=1, seed=3, names=["general"], levels=["scalar"], families=["any"], dtypes=["float32"])
    assert result.failure is not None
    assert "general on scalar" in result.failure
    assert "--seed 3 --family 'any' --dtype float32" in result.failure
