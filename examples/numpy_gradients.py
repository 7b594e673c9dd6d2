"""Forward and both gradients of one layer in NumPy: a least-squares fit of an unknown filter bank by gradient descent.

`ConvDims` holds the geometry once; `conv`, `conv_input_grad` and `conv_weight_grad` take it in place of the options.
"""

import numpy as np

import fastconv as fc

rng = np.random.default_rng(0)
x = rng.standard_normal((8, 3, 32, 32))
truth = rng.standard_normal((4, 3, 3, 3))
dims = fc.ConvDims(x.shape, truth.shape, stride=2, padding=1)
wanted = fc.conv(x, truth, dims)

w = np.zeros_like(truth)
for step in range(101):
    error = fc.conv(x, w, dims) - wanted
    w -= 2e-4 * fc.conv_weight_grad(x, error, dims)
    if step % 25 == 0:
        print(f"step {step:3d}  loss {0.5 * np.mean(error**2):.3e}  distance to the truth {np.abs(w - truth).max():.3e}")

# The input gradient is the adjoint of the forward map: <conv(x), y> = <x, conv_input_grad(y)>.
left, right = np.vdot(wanted, error), np.vdot(x, fc.conv_input_grad(error, truth, dims))
print(f"adjoint identity holds to {abs(left - right) / abs(left):.1e}")
