"""conv_general_dilated against jax: extents for any arguments that jax takes, an error where jax has one, and small values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastconv.check import operand
from fastconv.normalise import Spec, conv_general_dilated
from fastconv.normalise.lax import precision_name
from fastconv.reference import reference, view

jax = pytest.importorskip("jax")


@st.composite
def arguments(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of conv_general_dilated, now and then wrong ones."""
    dims = draw(st.integers(0, 3))
    small = st.sampled_from((1, 1, 2, 3))
    feature_groups, batch_groups = draw(st.sampled_from(((1, 1), (1, 1), (2, 1), (3, 1), (1, 2), (1, 3), (2, 2))))
    batch, depth, features = (
        draw(st.integers(0, 2)) * batch_groups,
        draw(st.integers(0, 3)),
        draw(st.integers(0, 2)) * feature_groups * batch_groups,
    )
    spatial = "".join(draw(st.permutations("HWD"[:dims])))

    def spec(first: str, second: str) -> str:
        return "".join(draw(st.permutations(first + second + spatial)))

    numbers = draw(st.one_of(st.none(), st.just((spec("N", "C"), spec("O", "I"), spec("N", "C")))))
    canonical = ("NC" + "HWD"[:dims], "OI" + "HWD"[:dims]) if numbers is None else numbers[:2]
    size = {axis: draw(st.integers(0, 8)) for axis in "HWD"[:dims]}
    kernel = {axis: draw(st.integers(0, 4)) for axis in "HWD"[:dims]}
    lhs = tuple({"N": batch, "C": depth * feature_groups, **size}[axis] for axis in canonical[0])
    rhs = tuple({"O": features, "I": depth, **kernel}[axis] for axis in canonical[1])
    padding = draw(
        st.one_of(
            st.sampled_from(("SAME", "same", "VALID", "SAME_LOWER")),
            st.tuples(*(st.tuples(st.integers(-4, 5), st.integers(-4, 5)) for _ in spatial)),
        )
    )
    return {
        "lhs": lhs,
        "rhs": rhs,
        "window_strides": tuple(draw(small) for _ in spatial),
        "padding": padding,
        "lhs_dilation": None if isinstance(padding, str) else tuple(draw(small) for _ in spatial),
        "rhs_dilation": draw(st.one_of(st.none(), st.tuples(*(small for _ in spatial)))),
        "dimension_numbers": numbers,
        "feature_group_count": feature_groups,
        "batch_group_count": batch_groups,
    }


@settings(max_examples=250)
@given(arguments())
def test_extents_are_jaxs(drawn: dict[str, Any]) -> None:
    lhs, rhs = drawn.pop("lhs"), drawn.pop("rhs")

    def there(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w, **drawn)

    try:
        expected = jax.eval_shape(there, jax.ShapeDtypeStruct(lhs, np.float32), jax.ShapeDtypeStruct(rhs, np.float32)).shape
    except (ValueError, TypeError):
        expected = None
    try:
        found = conv_general_dilated(Spec.contiguous(lhs, "float32"), Spec.contiguous(rhs, "float32"), **drawn).out.shape
    except (ValueError, TypeError):
        found = None
    assert found == expected


@settings(max_examples=40)
@given(arguments(), st.sampled_from(("float32", "int32")))
def test_values_are_jaxs(drawn: dict[str, Any], dtype: str) -> None:
    lhs, rhs = drawn.pop("lhs"), drawn.pop("rhs")
    try:
        call = conv_general_dilated(Spec.contiguous(lhs, dtype), Spec.contiguous(rhs, dtype), **drawn)
    except ValueError:
        return
    rng = np.random.default_rng(0)
    x, w = operand(rng, lhs, dtype, exact=True), operand(rng, rhs, dtype, exact=True)
    out = np.zeros(call.out.shape, dtype)
    if 0 not in out.shape and 0 not in x.shape and 0 not in w.shape:
        view(out, call.problem.out, call.problem.out_extents)[...] = reference(call.problem, x, w).value
        np.testing.assert_array_equal(out, jax.lax.conv_general_dilated(x, w, **drawn))


@pytest.mark.parametrize("operand_dtype", ["int8", "uint8", "int32", "float16", "bfloat16", "float32", "complex64"])
@pytest.mark.parametrize("preferred", ["int8", "int16", "uint16", "int32", "uint32", "float16", "bfloat16", "float32", "complex64"])
def test_preferred_element_types_are_jaxs(operand_dtype: str, preferred: str) -> None:
    def there(x: Any, w: Any) -> Any:
        return jax.lax.conv_general_dilated(x, w, (1,), "VALID", preferred_element_type=preferred)

    shapes = (1, 2, 5), (3, 2, 2)
    try:
        expected = jax.eval_shape(there, *(jax.ShapeDtypeStruct(shape, operand_dtype) for shape in shapes)).dtype.name
    except TypeError:
        expected = None
    try:
        lhs, rhs = (Spec.contiguous(shape, operand_dtype) for shape in shapes)
        found = conv_general_dilated(lhs, rhs, (1,), "VALID", preferred_element_type=preferred).out.dtype
    except TypeError:
        found = None
    assert found == expected


def test_precisions() -> None:
    precision = jax.lax.Precision
    assert precision_name(None) == precision_name("default") == precision_name(precision.DEFAULT) == precision_name("high") == "default"
    assert precision_name("highest") == precision_name(precision.HIGHEST) == precision_name("float32") == "highest"
    assert precision_name((precision.DEFAULT, precision.HIGHEST)) == precision_name(("highest", "default")) == "highest"
    with pytest.raises(ValueError, match=r"precision must be None, one of 'default'.*, got 'best'"):
        precision_name("best")
    with pytest.raises(TypeError, match=r"precision must be None, one of 'default'.*, got 3"):
        precision_name(3)
