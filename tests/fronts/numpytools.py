"""What the NumPy tests share: operands, and a call's result held against the definition."""

from __future__ import annotations

from typing import Any

import numpy as np

import fastconv as fc
from fastconv import check, normalise
from fastconv.normalise import Epilogue, Spec
from fastconv.reference import reference, view


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def draw(shape: tuple[int, ...], dtype: str = "float32", seed: int = 0) -> np.ndarray:
    return check.operand(rng(seed), shape, dtype, exact=False)


def spec(array: np.ndarray) -> Spec:
    return Spec.contiguous(array.shape, array.dtype.name)


def hold(got: np.ndarray, call: normalise.Call, first: np.ndarray, second: np.ndarray, bias: np.ndarray | None = None) -> None:
    """`got` is what the definition says of C-ordered copies of the operands."""
    assert got.shape == call.out.shape
    first, second = np.ascontiguousarray(first), np.ascontiguousarray(second)
    lhs, rhs = (second, first) if call.swapped else (first, second)
    ref = reference(call.problem, lhs, rhs, bias)
    check.check(call.problem, view(np.ascontiguousarray(got), call.problem.out, call.problem.out_extents), ref)


def hold_op(op: str, got: np.ndarray, dims: fc.ConvDims, first: np.ndarray, second: np.ndarray, **epilogue: Any) -> None:
    bias = epilogue.pop("bias", None)
    call = normalise.family(op, dims, spec(first), spec(second), Epilogue(None if bias is None else spec(bias), **epilogue))
    hold(got, call, first, second, bias)
