"""Public reports that a NumPy user can meet: one test each, named after the report. docs/cases.md lists them all.

Speed is the benchmark's; here are numbers, memory, choices of the planner, errors. Values are held against the definition.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from numpytools import draw, hold_op

import fastconv as fc
from fastconv import check
from fastconv.plan import ALGORITHMS, forced


def whole(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    """Small integers, whose sums are exact."""
    return check.operand(np.random.default_rng(seed), shape, dtype, exact=True)


def hold_all(x: np.ndarray, w: np.ndarray, **options: Any) -> None:
    """A convolution and both its gradients are what the definition says."""
    dims = fc.ConvDims(x.shape, w.shape, **options)
    dy = draw(dims.output_shape, x.dtype.name, 2)
    hold_op("conv", fc.conv(x, w, dims), dims, x, w)
    hold_op("input_grad", fc.conv_input_grad(dy, w, dims), dims, dy, w)
    hold_op("weight_grad", fc.conv_weight_grad(x, dy, dims), dims, x, dy)


@pytest.mark.parametrize("length", [50, 100, 150, 151])
def test_torch_120982_istft_of_changing_length(length: int) -> None:
    """torch#120982, #133304, onnxruntime#23273, TensorRT-RTX-EP-ABI#8: the workloads istft-* have the sizes."""
    hold_all(draw((1, 66, length)), draw((66, 1, 64)), stride=16, transposed=True)


def test_torchaudio_471_an_identity_kernel_overlaps_and_adds() -> None:
    frames = whole(1, 32, 20)
    signal = fc.conv_transpose(frames, np.eye(32, dtype=np.float32)[:, None], stride=8)
    expected = np.zeros(19 * 8 + 32, np.float32)
    for n in range(20):
        expected[8 * n : 8 * n + 32] += frames[0, :, n]
    np.testing.assert_array_equal(signal[0, 0], expected)


@pytest.mark.parametrize("op", ["conv", "conv_transpose", "input_grad", "weight_grad"])
@pytest.mark.parametrize(("x", "channels", "kernel"), [((16, 512, 32), 512, 6), ((1, 2048, 19), 2048, 3), ((4, 512, 1024), 512, 5)])
def test_torch_47341_depthwise_is_never_modelled_slower_than_dense(op: str, x: tuple[int, ...], channels: int, kernel: int) -> None:
    """torch#47341, jax#13800, candle#3389. The workloads dwt1d, dw1d-k5 and causal-k4 time it."""
    depthwise, dense = (fc.plan(x, (channels, channels // g, kernel), groups=g, padding=2, op=op) for g in (channels, 1))
    assert depthwise.seconds < dense.seconds


def test_nnlib_520_workspace_does_not_grow_with_groups() -> None:
    for groups in (1, 4, 32, 256):
        plan = fc.plan((64, 256, 1024), (256, 256 // groups, 2), groups=groups)
        assert plan.workspace_bytes <= 32e6, (groups, plan.workspace_bytes)


def test_jax_25461_a_stack_filtered_by_an_even_kernel() -> None:
    stack, kernel = draw((5, 1, 60, 90)), draw((1, 1, 30, 30), seed=1)
    padded = np.pad(stack, ((0, 0), (0, 0), (15, 14), (15, 14)), mode="reflect")
    dims = fc.ConvDims(padded.shape, kernel.shape)
    got = fc.conv(padded, kernel, dims, precision="highest")
    assert got.shape == stack.shape
    hold_op("conv", got, dims, padded, kernel)


def test_torch_21462_time_does_not_grow_with_a_long_kernel() -> None:
    plans = [fc.plan((1, 64, 64000), (64, 1, taps), groups=64, padding=taps // 2) for taps in (1024, 2048, 8192)]
    assert [plan.algorithm for plan in plans[1:]] == ["fft", "fft"]
    assert plans[2].seconds < 2 * plans[0].seconds


def test_scipy_5967_an_outer_product() -> None:
    a, b = whole(1000, 1, dtype="float64"), whole(1, 1000, dtype="float64", seed=1)
    np.testing.assert_array_equal(fc.convn(a, b), a * b)


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_scipy_5280_a_short_kernel_over_a_long_signal(mode: Any) -> None:
    a, b = whole(23253, dtype="float64"), whole(5, dtype="float64", seed=1)
    np.testing.assert_array_equal(fc.convn(a, b, mode), np.convolve(a, b, mode))


def test_scipy_5280_other_threads_run_meanwhile() -> None:
    """The interpreter lock is released: another thread gets many turns before a long call ends."""
    x, w = np.zeros((1, 64, 400, 400), np.float32), np.zeros((64, 64, 7, 7), np.float32)
    begun, ends = threading.Event(), []

    def work() -> None:
        begun.set()
        fc.conv(x, w, precision="highest")
        ends.append(time.perf_counter())

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    turns = []
    while not ends:
        turns.append(time.perf_counter())
        time.sleep(0.0005)
    thread.join()
    assert sum(turn < ends[0] for turn in turns) > 20


def test_scipy_12232_axes_of_length_one_are_a_batch() -> None:
    stack, kernel = whole(60, 24, 24, dtype="float64"), whole(1, 13, 13, dtype="float64", seed=1)
    got = fc.convn(stack, kernel)
    for image, result in zip(stack, got, strict=True):
        np.testing.assert_array_equal(fc.convn(image, kernel[0]), result)


@pytest.mark.parametrize("scale", [1e-44, 1e-42, 1e-40])
def test_torch_67797_denormal_weights_keep_their_digits(scale: float) -> None:
    x, w = whole(1, 8, 30, 15), (whole(16, 8, 1, 1, seed=1) * np.float32(scale)).astype(np.float32)
    dims = fc.ConvDims(x.shape, w.shape)
    got = fc.conv(x, w)
    assert got.any()
    np.testing.assert_array_equal(got, fc.conv(x.astype(np.float64), w.astype(np.float64)).astype(np.float32))
    hold_op("conv", got, dims, x, w)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bfloat16"])
@pytest.mark.parametrize("channels", [1, 8, 16, 17])
def test_xla_48713_negative_low_padding_crops(channels: int, dtype: str) -> None:
    x = whole(1, channels, 15, 6, dtype=dtype)
    w = np.eye(channels, dtype=x.dtype)[:, :, None, None]
    expected = np.concatenate([x[..., 5:], np.zeros((1, channels, 15, 1), x.dtype)], axis=-1)
    np.testing.assert_array_equal(fc.conv(x, w, padding=((0, 0), (-5, 1))), expected)
    last = np.moveaxis(x, 1, -1)
    np.testing.assert_array_equal(fc.conv(last, w, padding=((0, 0), (-5, 1)), layout="N...C"), np.moveaxis(expected, 1, -1))


def test_jax_11517_padding_that_crops_too_much_is_an_error() -> None:
    ones = np.ones
    with pytest.raises(ValueError, match=r"padding must not crop more than lhs's dilated extent 3, got \(-5, 1\) on spatial axis 1"):
        fc.conv_general_dilated(ones((1, 1, 2, 3)), ones((1, 1, 2, 2)), (1, 1), ((5, 16), (-5, 1)))
    with pytest.raises(ValueError, match=r"padding must not crop more than lhs's dilated extent 3, got \(-4, -2\) on spatial axis 0"):
        fc.conv_general_dilated(ones((1, 2, 3, 4)), ones((2, 2, 1, 1)), (1, 1), ((-4, -2), (-3, -4)))
    with pytest.raises(ValueError, match="kernel must"):
        fc.conv(ones((1, 1, 2, 3)), ones((1, 1, 2, 2)), padding=((5, 16), (-5, 1)))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_torch_25101_a_stride_that_does_not_divide(dtype: str) -> None:
    hold_all(whole(1, 9, 32, 32, dtype=dtype), whole(3, 9, 5, 5, dtype=dtype, seed=1), stride=3, padding=1)


def test_torch_68868_stride_above_the_kernel_in_groups() -> None:
    hold_all(draw((1, 36, 9, 10, 5)), draw((36, 12, 2, 2, 2), seed=1), stride=(4, 4, 1), padding=1, groups=3)


def test_torch_169688_bfloat16_with_one_output_column() -> None:
    hold_all(draw((1, 4, 5, 6, 3), "bfloat16"), draw((8, 4, 3, 3, 3), "bfloat16", 1), stride=(1, 1, 2), padding=(1, 1, 0))
    ones = np.ones((1, 1, 2, 2), draw((1,), "bfloat16").dtype)
    assert float(fc.conv(ones, ones)[0, 0, 0, 0]) == 4


@pytest.mark.parametrize("channels", [2, 4, 6, 8, 12, 16, 24])
def test_torch_19912_odd_channels_in_groups(channels: int) -> None:
    hold_all(draw((2, channels, 1, 1)), draw((16, channels // 2, 1, 1), seed=1), groups=2)
    hold_all(draw((2, channels, 7)), draw((6, channels // 2, 3), seed=1), groups=2, padding=1)


def test_torch_16018_a_column_of_a_view() -> None:
    x, w = np.ones((1, 1, 3, 3), np.float32), np.ones((1, 1, 3, 3), np.float32)
    assert fc.conv(x[..., 2:], w[..., 2:]).tolist() == [[[[3.0]]]]


def test_torch_9404_more_than_two_to_the_31_products() -> None:
    """64 * 25 * 1159 ** 2 > 2 ** 31: the corner that lies last is held against the definition."""
    x, w = np.zeros((1, 64, 1167, 1167), np.float32), whole(64, 64, 5, 5, seed=1)
    x[:, :, -20:, -20:] = whole(1, 64, 20, 20)
    got = fc.conv(x, w, dilation=2)
    corner = np.ascontiguousarray(x[:, :, -20:, -20:])
    dims = fc.ConvDims(corner.shape, w.shape, dilation=2)
    hold_op("conv", got[:, :, -12:, -12:], dims, corner, w)
    assert not got[:, :, :1000].any()


#: `dots` copies its whole input, and would copy gigabytes here.
SPARSE = [(row.name, dtype) for row in ALGORITHMS for dtype in ("uint8", "float32") if row.name != "dots"]


@pytest.mark.parametrize(("name", "dtype"), SPARSE)
def test_scipy_10761_offsets_beyond_two_to_the_31(name: str, dtype: str) -> None:
    """Elements that far apart in an input of zeros, which the system keeps in no memory; only those that a tap reads are written."""
    step = 1 << 27
    x = np.zeros((1, 1, 17 * step + 3), dtype)
    expected = []
    for n in range(18):
        x[0, 0, n * step : n * step + 3] = values = (n % 5, n % 3, n % 7)
        expected.append(values[0] + 2 * values[1] + 3 * values[2])
    with forced(name):
        got = fc.conv(x, np.array([[[1, 2, 3]]], dtype), stride=step)
    assert got.tolist() == [[expected]]


@pytest.mark.parametrize(
    ("x", "w", "options"),
    [
        ((1, 256, 5, 1090, 1922), (64, 256, 3, 3, 3), {"padding": 1}),  # torch#128947: unfolded 161 GiB
        ((1, 1, 4222, 4222), (2, 1, 127, 127), {}),  # deepspeech.pytorch#273: unfolded 1008 GiB
        ((1, 1, 16860, 10750), (1, 1, 131, 131), {}),  # vision#7413
        ((1, 514, 2048, 2048), (1, 514, 3, 3), {"padding": 1, "dtype": "float16"}),  # torch#117736
    ],
)
@pytest.mark.parametrize("op", ["conv", "input_grad", "weight_grad"])
def test_torch_128947_workspace_is_bounded(op: str, x: tuple[int, ...], w: tuple[int, ...], options: dict[str, Any]) -> None:
    plan = fc.plan(x, w, op=op, **options)
    itemsize = 2 if "dtype" in options else 4
    dims = fc.ConvDims(x, w, padding=options.get("padding", 0))
    moved = sum(int(np.prod(shape)) for shape in (x, w, dims.output_shape)) * itemsize
    assert plan.workspace_bytes <= 2 * moved + 32e6


def test_nnlib_760_empty_arrays() -> None:
    x, w = np.ones((0, 1, 10, 10), np.float32), np.ones((3, 1, 2, 2), np.float32)
    dims = fc.ConvDims(x.shape, w.shape)
    assert fc.conv(x, w).shape == (0, 3, 9, 9)
    for threads in (1, 2, 4):
        fc.set_num_threads(threads)
        try:
            gradient = fc.conv_weight_grad(x, np.ones((0, 3, 9, 9), np.float32), dims, out=np.full(w.shape, np.nan, np.float32))
        finally:
            fc.set_num_threads(None)
        assert not gradient.any()
    x, w = np.ones((2, 1, 3, 24, 24), np.float32), np.ones((4, 1, 5, 22, 22), np.float32)
    assert fc.conv_general_dilated(x, w, (1, 1, 1), "VALID").shape == (2, 4, 0, 3, 3)


def test_scipy_15927_nan_stays_where_its_taps_reach() -> None:
    x, k = draw((100_000,), "float64"), draw((20_000,), "float64", 1)
    x[60_000] = np.nan
    got = fc.convn(x, k, "full")
    expected = np.zeros(got.shape, bool)
    expected[60_000:80_000] = True
    np.testing.assert_array_equal(np.isnan(got), expected)


def test_jax_10128_small_integers_and_their_accumulator() -> None:
    x, w = np.full((1, 1, 4), 127, np.int8), np.full((1, 1, 4), 2, np.int8)
    assert fc.conv_general_dilated(x, w, (1,), "VALID", preferred_element_type="int32").item() == 1016
    assert fc.conv(x, w).item() == np.int64(1016).astype(np.int8)  # modulo 2 ** 8, as NumPy's own
    assert fc.convn(np.arange(100, dtype=np.int32), np.ones(5, np.int32)).dtype == np.int32


def test_scipy_6076_integers_keep_every_bit() -> None:
    assert fc.convn(np.array([2]), np.array([2**61])).tolist() == [2**62]
    assert fc.convn(np.array([2**62 + 1]), np.array([1])).tolist() == [2**62 + 1]
    counts = np.full(10, 40_000, np.uint16)
    np.testing.assert_array_equal(fc.convn(counts, counts, "valid"), (10 * 40_000**2 % 2**16,))


def test_jax_3706_one_complex_number() -> None:
    x, w, dy = (np.full((1, 1, 1, 1), value, np.complex64) for value in (1 + 2j, 3 - 1j, 2 + 5j))
    dims = fc.ConvDims(x.shape, w.shape)
    assert fc.conv(x, w).item() == (1 + 2j) * (3 - 1j)
    assert fc.conv_input_grad(dy, w, dims).item() == (2 + 5j) * (3 + 1j)
    assert fc.conv_weight_grad(x, dy, dims).item() == (1 - 2j) * (2 + 5j)


@pytest.mark.parametrize("channels", [336, 352])
def test_mlx_4242_winograd_errs_alike_for_all_channels(channels: int) -> None:
    """The default's error is within twice that of direct sums, on the shapes of the report."""
    x, w = draw((1, channels, 14, 14)), draw((channels, channels, 3, 3), seed=1)
    exact = fc.conv(x.astype(np.float64), w.astype(np.float64), padding=1, precision="highest")
    errors = [np.abs(fc.conv(x, w, padding=1, precision=precision) - exact).max() for precision in ("default", "highest")]
    assert errors[0] <= 2 * errors[1]


def test_torch_2778_gradients_repeat_bit_for_bit() -> None:
    x, dy, dims = draw((4, 16, 30, 30)), draw((4, 24, 30, 30), seed=1), fc.ConvDims((4, 16, 30, 30), (24, 16, 3, 3), padding=1)
    first = fc.conv_weight_grad(x, dy, dims)
    for _ in range(5):
        assert fc.conv_weight_grad(x, dy, dims).tobytes() == first.tobytes()


def test_jax_17618_a_transposed_convolution_undoes_the_shape() -> None:
    for size, kernel, stride, padding in ((128, 4, 4, 0), (4, 3, 1, 0), (31, 5, 3, 2), (33, 3, 2, 1)):
        forward = fc.ConvDims((1, 2, size), (3, 2, kernel), stride=stride, padding=padding)
        left = (size + 2 * padding - kernel) % stride
        back = fc.ConvDims(forward.output_shape, (3, 2, kernel), stride=stride, padding=padding, output_padding=left, transposed=True)
        assert back.output_shape == (1, 2, size)


def test_keras_22428_output_padding_is_checked_first() -> None:
    with pytest.raises(ValueError, match="output_padding"):
        fc.conv_transpose(np.ones((4, 128, 10), np.float32), np.ones((128, 16, 3), np.float32), stride=1, output_padding=1)


def test_keras_20408_dilated_transposed() -> None:
    hold_all(draw((1, 6, 40)), draw((6, 4, 5), seed=1), dilation=3, transposed=True)
    hold_all(draw((1, 3, 8, 8)), draw((3, 5, 3, 3), seed=1), stride=2, dilation=2, transposed=True)


def test_jax_4637_grouped_transposed() -> None:
    hold_all(draw((2, 4, 9, 9)), draw((4, 2, 3, 3), seed=1), stride=2, groups=4, transposed=True)


def test_jax_4592_every_output_size_of_a_stride() -> None:
    for output_padding in range(3):
        dims = fc.ConvDims((1, 2, 7), (2, 3, 4), stride=3, output_padding=output_padding, transposed=True)
        assert dims.output_shape == (1, 3, 22 + output_padding)


@pytest.mark.parametrize("axes", [4, 5])
def test_torch_72850_four_and_more_dimensions(axes: int) -> None:
    hold_all(draw((1, 2, *[4] * axes)), draw((3, 2, *[2] * axes), seed=1))
    hold_all(draw((1, 1, *[5] * axes)), draw((16, 1, *[1] * axes), seed=1))


def test_jax_3428_a_kernel_for_each_sample() -> None:
    x, w = draw((3, 2, 6, 7)), draw((3, 4, 2, 2, 3), seed=1)
    got = fc.conv(x.reshape(1, 6, 6, 7), w.reshape(12, 2, 2, 3), groups=3).reshape(3, 4, 5, 5)
    for n in range(3):
        hold_op("conv", got[n : n + 1], fc.ConvDims((1, 2, 6, 7), (4, 2, 2, 3)), x[n : n + 1], w[n])


def test_scipy_21876_byte_orders_and_axes_of_length_one() -> None:
    big = whole(9, dtype="float64").astype(">f8")
    np.testing.assert_array_equal(fc.convn(big, np.ones(3)), np.convolve(big, np.ones(3)))
    assert fc.convn(np.ones((1, 100)), np.ones((7, 10)), "same").shape == (1, 100)
