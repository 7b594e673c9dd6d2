"""Words that do not fit the buffers: an error through XLA's call, never a read or write out of bounds."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from jaxtools import jax, x64

from fastconv.jax import lowering
from fastconv.normalise import Epilogue, Spec, conv_general_dilated
from fastconv.problem import WORDS_VERSION, ConvProblem

jnp = jax.numpy

LHS, RHS = (2, 4, 6, 5), (6, 2, 3, 2)
VALUES = (0, 1, -1, 2, 3, 7, 8, 13, 14, 64, 1000, 2**31 - 1, 2**31, 2**32, 2**40, 2**40 + 1, 2**62, 2**63 - 1, -2, -(2**31), -(2**63))


def valid(bias: bool = False) -> tuple[ConvProblem, tuple[int, ...]]:
    """A problem with every feature of the words, and its output's shape."""
    epilogue = Epilogue(Spec.contiguous((6,), "float32") if bias else None, "relu" if bias else None)
    lhs, rhs = Spec.contiguous(LHS, "float32"), Spec.contiguous(RHS, "float32")
    call = conv_general_dilated(
        lhs, rhs, (2, 1), ((1, 2), (3, 1)), (2, 1), (1, 2), feature_group_count=2, preferred_element_type="float32", epilogue=epilogue
    )
    return call.problem, call.out.shape


def operands(bias: bool = False) -> list[Any]:
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-3, 4, shape).astype(np.float32) for shape in (LHS, RHS)]
    return [*arrays, np.arange(6, dtype=np.float32)] if bias else arrays


def call(words: Any, arrays: list[Any], shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray[Any, Any]:
    assert lowering.register_target() is None
    with x64():  # the words are int64
        result = jax.ffi.ffi_call(lowering.TARGET, jax.ShapeDtypeStruct(shape, dtype))(*arrays, words=np.asarray(words, np.int64))
        return np.asarray(result)


def mutations(words: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Every word at every value of VALUES and a little off its own; and vectors cut short or too long."""
    changed = []
    for position, word in enumerate(words):
        changed += [(*words[:position], value, *words[position + 1 :]) for value in {*VALUES, word - 1, word + 1, -word} - {word}]
    counted = [(words[0], length, *words[2:length]) for length in range(2, len(words))]
    return [
        *changed,
        *(words[:length] for length in range(1, len(words))),
        *counted,
        (*words, 0),
        (*words[:1], len(words) + 1, *words[2:], 0),
    ]


def survives(words: tuple[int, ...], arrays: list[Any], shape: tuple[int, ...]) -> bool:
    """True when the call ran (the words happened to describe another problem inside the same buffers), False on a clean error."""
    try:
        call(words, arrays, shape)
        return True
    except Exception as error:
        message = str(error)
    assert "fastconv" in message
    return False


def test_the_words_as_they_are_run() -> None:
    for bias in (False, True):
        problem, shape = valid(bias)
        x, w, *b = operands(bias)
        got = call(problem.words(0), [x, w, *b], shape)
        options = {"lhs_dilation": (2, 1), "rhs_dilation": (1, 2), "feature_group_count": 2}
        expected = jax.lax.conv_general_dilated(x, w, (2, 1), ((1, 2), (3, 1)), **options)
        if bias:
            expected = jnp.maximum(expected + b[0][:, None, None], 0)
        np.testing.assert_array_equal(got, expected)


def test_corrupted_words_are_refused() -> None:
    problem, shape = valid()
    ran = sum(survives(words, operands(), shape) for words in mutations(problem.words(0))[::5])
    assert ran > 0  # some only describe another problem: the buffers, not the words, are what is guarded


CHILD = """
import sys
sys.path[:0] = sys.argv[1:]
import test_jax_ffi as t
problem, shape = t.valid(bias=True)
for algorithm in (0, 1, 2, 3):
    for words in t.mutations(problem.words(algorithm))[algorithm::24]:
        t.survives(words, t.operands(bias=True), shape)
print("alive")
"""


def test_corrupted_words_do_not_crash_a_process() -> None:
    # MALLOC_PERTURB_ and MALLOC_CHECK_ make glibc notice a write beside a buffer.
    environment = {**os.environ, "MALLOC_PERTURB_": "165", "MALLOC_CHECK_": "3"}
    paths = [os.path.dirname(__file__), *sys.path]
    done = subprocess.run([sys.executable, "-c", CHILD, *paths], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip() == "alive"


@pytest.mark.parametrize(
    ("words", "message"),
    [((), "fewer than 2 words"), ((WORDS_VERSION + 1, 2), "version"), ((WORDS_VERSION, 3), "word 1"), ((WORDS_VERSION, 2), "cut off")],
)
def test_the_message_says_what_is_wrong(words: tuple[int, ...], message: str) -> None:
    with pytest.raises(Exception, match=message):
        call(words, operands(), valid()[1])


def test_buffers_that_do_not_fit_are_refused() -> None:
    problem, shape = valid()
    words, (x, w) = problem.words(0), operands()
    with pytest.raises(Exception, match="outside lhs"):
        call(words, [x[:1], w], shape)
    with pytest.raises(Exception, match="outside rhs"):
        call(words, [x, w[:, :, :2]], shape)
    with pytest.raises(Exception, match="outside out"):
        call(words, [x, w], (*shape[:-1], shape[-1] - 1))
    with pytest.raises(Exception, match="operand's dtype"):
        call(words, [x.astype(np.float64), w], shape)
    with pytest.raises(Exception, match="operand's dtype"):
        call(words, [x, w.astype(np.int32)], shape)
    with pytest.raises(Exception, match="operand's dtype"):
        call(words, [x.astype(bool), w.astype(bool)], shape)
    with pytest.raises(Exception, match="result's dtype"):
        call(words, [x, w], shape, np.float64)
    with pytest.raises(Exception, match="number of operands"):
        call(words, operands(bias=True), shape)
    with_bias = valid(bias=True)[0].words(0)
    with pytest.raises(Exception, match="number of operands"):
        call(with_bias, [x, w], shape)
    with pytest.raises(Exception, match="outside bias"):
        call(with_bias, [x, w, np.zeros(5, np.float32)], shape)
    with pytest.raises(Exception, match="bias's dtype"):
        call(with_bias, [x, w, np.zeros(6)], shape)


@pytest.mark.parametrize("extent", [2**20, 2**28, 2**31])
def test_an_operand_larger_than_its_buffer_is_refused(extent: int) -> None:
    """A zero stride keeps every index inside the buffer, and would let damaged words run for hours."""
    problem, shape = valid()
    axis = replace(problem.axes[0], kernel=extent, rhs_dilation=1)
    rhs = replace(problem.rhs, spatial=(0, *problem.rhs.spatial[1:]))
    damaged = replace(problem, axes=(axis, *problem.axes[1:]), rhs=rhs)
    for algorithm in range(4):
        with pytest.raises(Exception, match="larger rhs than its buffer"):
            call(damaged.words(algorithm), operands(), shape)
    empty = replace(problem, batch=0, channels=0, features=2**40)
    with pytest.raises(Exception, match="more outputs than out"):
        call(empty.words(1), operands(), shape)
