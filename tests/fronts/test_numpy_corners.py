"""Corners of the NumPy front that hostile use has reached."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from typing import Any, cast

import numpy as np
import pytest

import fastconv as fc
from fastconv.plan import ALGORITHMS, forced


def test_an_empty_operand_at_an_odd_address() -> None:
    memory = np.zeros(401, np.uint8)
    x = np.ndarray((1, 0, 5), np.float32, memory.data, offset=1)
    for _ in range(2):
        np.testing.assert_array_equal(fc.conv(x, np.zeros((3, 0, 2), np.float32)), np.zeros((1, 3, 4), np.float32))


@pytest.mark.parametrize("options", [{"padding": ((2**65, -(2**65)),)}, {"stride": 2**40}, {"dilation": 2**40}, {"padding": 2**50}])
def test_ints_beyond_the_librarys_arithmetic_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"{next(iter(options))} must lie between -2\*\*31 and 2\*\*31, got"):
        fc.conv(np.ones((1, 1, 8), np.float32), np.ones((1, 1, 1), np.float32), **options)


def test_a_phase_without_taps_and_a_broadcast_kernel() -> None:
    x, w = np.ones((1, 64, 500), np.float32), np.broadcast_to(np.ones((64, 1, 3), np.float32), (64, 64, 3))
    options: Any = {"window_strides": (1,), "padding": [(4, 4)], "lhs_dilation": (2,), "rhs_dilation": (2,)}
    got = fc.conv_general_dilated(x, w, **options)
    np.testing.assert_array_equal(got, fc.conv_general_dilated(x, w.copy(), **options))
    assert not got[:, :, 1::2].any()


def test_integers_summed_as_floats() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.integers(-9, 10, (2, 3, 20)).astype(np.int8), rng.integers(-9, 10, (4, 3, 5)).astype(np.int8)
    for wanted in ("float32", "float64", "float16"):
        got = fc.conv_general_dilated(x, w, (1,), "VALID", preferred_element_type=wanted)
        assert got.dtype == wanted
        np.testing.assert_array_equal(got, fc.conv(x.astype(np.float64), w.astype(np.float64)))


def test_a_planned_call_does_not_see_its_lists_change() -> None:
    x, w = np.arange(8, dtype=">f4").reshape(1, 1, 8), np.ones((1, 1, 3), ">f4")
    padding = [(0, 0)]
    assert fc.conv_general_dilated(x, w, [1], padding).shape == (1, 1, 6)
    padding[0] = (2, 2)
    assert fc.conv_general_dilated(x, w, [1], [(0, 0)]).shape == (1, 1, 6)
    assert fc.conv_general_dilated(x, w, [1], padding).shape == (1, 1, 10)


def test_dims_hash_alike_in_every_process() -> None:
    code = "import pickle, sys, fastconv as fc; sys.stdout.buffer.write(pickle.dumps(fc.ConvDims((1, 2, 8), (3, 2, 3), padding=1)))"
    here = fc.ConvDims((1, 2, 8), (3, 2, 3), padding=1)
    for seed in ("1", "2"):
        run = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True)
        assert pickle.loads(run.stdout) in {here}


def test_padding_as_an_array_of_pairs() -> None:
    x, w = np.ones((1, 1, 4, 5)), np.ones((1, 1, 2, 2))
    pairs = np.array([[1, 0], [0, 2]])
    np.testing.assert_array_equal(fc.conv(x, w, padding=cast("Any", pairs)), fc.conv(x, w, padding=((1, 0), (0, 2))))


@pytest.mark.parametrize("name", [row.name for row in ALGORITHMS])
def test_a_long_sum_over_many_images(name: str) -> None:
    """No algorithm is taken that the library would refuse: here the images of one position make a line of long inputs."""
    rng = np.random.default_rng(0)
    x, dy = rng.integers(-2, 3, (16, 16000, 2)).astype(np.float32), rng.integers(-2, 3, (16, 47998, 3)).astype(np.float32)
    dims = fc.ConvDims(x.shape, (2, 3, 1), stride=3, transposed=True, layout="N...C")
    with forced(name):
        got = fc.conv_weight_grad(x, dy, dims)
    np.testing.assert_array_equal(got[:, :, 0], np.einsum("nqi,nqo->io", x, dy[:, ::3]))
