"""Errors of the direct and the approximate algorithms on kind and hostile data, against float64: the figures of docs/accuracy.md.

    python benchmarks/accuracy.py

Three figures an algorithm: the largest error over the largest output; the largest error of an output over its own sum of |x||w|, where
that is not zero; and the largest share of the declared bound that an output uses. F(4x4,3x3), which the library does not have, is
computed with NumPy and held to the bound of F(2x2,3x3).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import fastconv as fc
from fastconv.check import bound
from fastconv.normalise import ConvDims, Epilogue, Spec, family
from fastconv.plan import ALGORITHMS, forced
from fastconv.reference import reference, with_peak

SHAPES = ((1, 16, 56, 16), (1, 64, 56, 64), (1, 512, 14, 64))  # batch, channels, height = width, features

# F(4x4,3x3) at the points 0, 1, -1, 2, -2 and infinity (Lavin and Gray 2016).
INPUT_4 = np.array(
    [[4, 0, -5, 0, 1, 0], [0, -4, -4, 1, 1, 0], [0, 4, -4, -1, 1, 0], [0, -2, -1, 2, 1, 0], [0, 2, -1, -2, 1, 0], [0, 4, 0, -5, 0, 1]],
    float,
)
WEIGHTS_4 = np.array([[6, 0, 0], [-4, -4, -4], [-4, 4, -4], [1, 2, 4], [1, -2, 4], [0, 0, 24]], float) / 24
OUTPUT_4 = np.array([[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 1]], float)


def f4(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    """F(4x4,3x3) in float32, padding 1."""
    n, _, height, width = x.shape
    rows, columns = -(-height // 4), -(-width // 4)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 4 * rows + 1 - height), (1, 4 * columns + 1 - width)))
    tiles = np.lib.stride_tricks.sliding_window_view(padded, (6, 6), axis=(2, 3))[:, :, ::4, ::4]
    a, b, c = (matrix.astype(np.float32) for matrix in (INPUT_4, WEIGHTS_4, OUTPUT_4))
    inputs, weights = a @ tiles @ a.T, b @ w @ b.T
    products = weights.transpose(2, 3, 0, 1)[:, :, None] @ inputs.transpose(4, 5, 0, 1, 2, 3).reshape(6, 6, n, x.shape[1], rows * columns)
    outputs = c @ products.transpose(2, 3, 4, 0, 1) @ c.T
    outputs = outputs.reshape(n, w.shape[0], rows, columns, 4, 4).transpose(0, 1, 2, 4, 3, 5)
    return outputs.reshape(n, w.shape[0], 4 * rows, 4 * columns)[:, :, :height, :width]


def normal(rng: np.random.Generator, x: np.ndarray, w: np.ndarray) -> None:
    pass


def six_decades(rng: np.random.Generator, x: np.ndarray, w: np.ndarray) -> None:
    for array in (x, w):
        array *= 10.0 ** rng.uniform(-3, 3, array.shape)


def one_huge_pixel(rng: np.random.Generator, x: np.ndarray, w: np.ndarray) -> None:
    x[0, 0, 5, 6] = 1e6


def masked_kernels(rng: np.random.Generator, x: np.ndarray, w: np.ndarray) -> None:
    w.reshape(*w.shape[:2], 9)[:, :, 4:] = 0


def large_mean(rng: np.random.Generator, x: np.ndarray, w: np.ndarray) -> None:
    x += 1e3


DATA: tuple[Callable[..., None], ...] = (normal, six_decades, one_huge_pixel, masked_kernels, large_mean)


def by(name: str) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    def conv(x: np.ndarray, w: np.ndarray) -> np.ndarray:
        with forced(name):
            return fc.conv(x, w, padding=1)

    return conv


def main() -> None:
    approximate = [row.name for row in ALGORITHMS if row.bound == "window"]
    contestants = {"direct": (by("direct"), "direct"), **{name: (by(name), "window") for name in approximate}, "F(4x4)": (f4, "window")}
    print("| data | channels | algorithm | error / largest output | error / sum of abs products | share of its bound |")
    print("|---|--:|---|--:|--:|--:|")
    for n, channels, size, features in SHAPES:
        for make in DATA:
            rng = np.random.default_rng(channels)
            x = rng.standard_normal((n, channels, size, size)).astype(np.float32)
            w = rng.standard_normal((features, channels, 3, 3)).astype(np.float32)
            make(rng, x, w)
            x_spec, w_spec = (Spec.contiguous(array.shape, "float32") for array in (x, w))
            problem = family("conv", ConvDims(x.shape, w.shape, padding=1), x_spec, w_spec, Epilogue()).problem
            ref = with_peak(reference(problem, x, w), problem, x, w)
            for name, (conv, kind) in contestants.items():
                error = np.abs(conv(x, w).astype(np.float64) - ref.value[0])
                some = ref.magnitude[0] > 0
                own, share = (error[some] / ref.magnitude[0][some]).max(), (error / bound(problem, ref, kind)[0]).max()
                figures = (error.max() / np.abs(ref.value).max(), own, share)
                label = make.__name__.replace("_", " ")
                print(f"| {label} | {channels} | {name} | {figures[0]:.1e} | {figures[1]:.1e} | {figures[2]:.1e} |")


if __name__ == "__main__":
    main()
