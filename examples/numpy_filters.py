"""Image filters in NumPy: blur, edges and sharpening of a 1080p image by one-channel true convolution.

`convn` takes N-dimensional arrays and SciPy's three modes; the result is that of scipy.signal.convolve.
"""

import numpy as np

import fastconv as fc

rows, columns = np.mgrid[0:1080, 0:1920]
image = (np.hypot(rows - 540, columns - 960) < 400).astype(np.float32)  # a white disc on black

line = np.exp(-0.5 * (np.arange(-4, 5) / 1.5) ** 2)
gauss = np.outer(line, line).astype(np.float32)
gauss /= gauss.sum()
sobel = np.array([[1, 0, -1], [2, 0, -2], [1, 0, -1]], np.float32)

blurred = fc.convn(image, gauss, "same")
edges = np.hypot(fc.convn(blurred, sobel, "valid"), fc.convn(blurred, sobel.T, "valid"))
sharpened = 2 * blurred - fc.convn(blurred, gauss, "same")

print(f"blurred    shape {blurred.shape}  range {blurred.min():.3f} .. {blurred.max():.3f}")
print(f"edges      shape {edges.shape}  strongest {edges.max():.3f}, on {np.mean(edges > 0.1):.2%} of the image")
print(f"sharpened  shape {sharpened.shape}  overshoot {sharpened.max() - 1:.3f}")
