"""A JAX training loop of a transposed convolution, accelerated by one line: `fastconv.jax.install()`.

Nothing else in the program knows of fastconv; without the line it computes the same, in XLA's own convolutions.
"""

import jax
import jax.numpy as jnp

import fastconv.jax as fj

fj.install()

keys = jax.random.split(jax.random.key(0), 3)
frames = jax.random.normal(keys[0], (4, 65, 50))  # batch, filters, frames
truth = jax.random.normal(keys[1], (65, 1, 128)) / 128  # filters, outputs, taps


@jax.jit
def synthesise(frames, filters):
    """Overlap-add of every filter at every frame, hop 32: a transposed convolution."""
    return jax.lax.conv_general_dilated(frames, filters, (1,), ((127, 127),), lhs_dilation=(32,), dimension_numbers=("NCT", "IOT", "NCT"))


@jax.jit
def step(filters, wanted):
    def loss(filters):
        return jnp.sum((synthesise(frames, filters) - wanted) ** 2)

    value, gradient = jax.value_and_grad(loss)(filters)
    return filters - 5e-4 * gradient, value


wanted = synthesise(frames, truth)
filters = jnp.zeros_like(truth)
for count in range(101):
    filters, value = step(filters, wanted)
    if count % 25 == 0:
        print(f"step {count:3d}  loss {value:.3e}")

print(fj.report())
