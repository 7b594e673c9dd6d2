"""Training steps of models of flax, equinox, haiku and keras, by each library's own means: the same losses as in plain XLA."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from jaxtools import accelerate, all_on_engine, engine, jax, keras, records  # noqa: F401

jnp = jax.numpy
pytestmark = pytest.mark.usefixtures("engine")

STEPS = 4
X = np.random.default_rng(0).standard_normal((4, 8, 8, 2)).astype(np.float32)
Y = np.roll(X, 1, axis=1)[..., :1] * 0.5  # what the model is to learn: an image shifted and halved


def check(train: Callable[[], list[Any]]) -> None:
    """`train` returns the loss before every step; it runs twice, from the same start."""
    plain = np.asarray(train(), np.float64)
    records.clear()
    with accelerate():
        ours = np.asarray(train(), np.float64)
    all_on_engine()
    assert {row.direction for row in records.report().convolutions} == {"fwd", "dx", "dw"}
    np.testing.assert_allclose(ours, plain, rtol=1e-4)
    assert np.all(np.diff(plain) < 0)


def mean_square(y: Any) -> Any:
    return jnp.mean((y - Y) ** 2)


def descend(loss: Callable[[Any], Any], params: Any) -> list[Any]:
    """Gradient descent by hand."""

    @jax.jit
    def step(params: Any) -> tuple[Any, Any]:
        value, gradient = jax.value_and_grad(loss)(params)
        return jax.tree.map(lambda p, g: p - 0.02 * g, params, gradient), value

    losses = []
    for _ in range(STEPS):
        params, value = step(params)
        losses.append(value)
    return losses


def test_flax_linen() -> None:
    nn = pytest.importorskip("flax.linen")
    model = nn.Sequential([nn.Conv(6, (3, 3), strides=(2, 2)), nn.gelu, nn.ConvTranspose(1, (4, 4), strides=(2, 2))])
    params = model.init(jax.random.key(0), X)
    check(lambda: descend(lambda params: mean_square(model.apply(params, X)), params))


def test_flax_nnx() -> None:
    nnx = pytest.importorskip("flax.nnx")
    optax = pytest.importorskip("optax")

    def train() -> list[Any]:
        rngs = nnx.Rngs(0)
        model = nnx.Sequential(nnx.Conv(2, 6, (3, 3), rngs=rngs), nnx.gelu, nnx.Conv(6, 1, (3, 3), rngs=rngs))
        optimizer = nnx.Optimizer(model, optax.sgd(0.02), wrt=nnx.Param)

        @nnx.jit
        def step(model: Any, optimizer: Any) -> Any:
            value, gradient = nnx.value_and_grad(lambda model: mean_square(model(X)))(model)
            optimizer.update(model, gradient)
            return value

        return [step(model, optimizer) for _ in range(STEPS)]

    check(train)


def test_equinox() -> None:
    eqx = pytest.importorskip("equinox")
    keys = jax.random.split(jax.random.key(0))
    layers = [eqx.nn.Conv2d(2, 6, 3, stride=2, padding=1, key=keys[0]), eqx.nn.ConvTranspose2d(6, 1, 4, stride=2, padding=1, key=keys[1])]
    start = eqx.nn.Sequential([layers[0], eqx.nn.Lambda(jax.nn.gelu), layers[1]])

    @eqx.filter_jit
    def step(model: Any) -> tuple[Any, Any]:
        def loss(model: Any) -> Any:
            return mean_square(jnp.moveaxis(jax.vmap(model)(jnp.moveaxis(X, -1, 1).astype(float)), 1, -1))

        value, gradient = eqx.filter_value_and_grad(loss)(model)
        return eqx.apply_updates(model, jax.tree.map(lambda g: -0.02 * g, gradient)), value

    def train() -> list[Any]:
        model, losses = start, []
        for _ in range(STEPS):
            model, value = step(model)
            losses.append(value)
        return losses

    check(train)


def test_haiku() -> None:
    hk = pytest.importorskip("haiku")
    layers = lambda x: hk.Conv2DTranspose(1, 4, stride=2)(jax.nn.gelu(hk.Conv2D(6, 3, stride=2)(x)))  # noqa: E731
    model = hk.without_apply_rng(hk.transform(layers))
    params = model.init(jax.random.key(0), X)
    check(lambda: descend(lambda params: mean_square(model.apply(params, X)), params))


def test_keras(keras: Any) -> None:  # noqa: F811
    def train() -> list[Any]:
        keras.utils.set_random_seed(0)
        layers = [keras.layers.Conv2D(6, 3, strides=2, padding="same", activation="gelu"), keras.layers.Conv2DTranspose(1, 4, 2, "same")]
        model = keras.Sequential([keras.layers.Input(X.shape[1:]), *layers])
        model.compile(optimizer=keras.optimizers.SGD(0.02), loss="mse")
        return model.fit(X, Y, batch_size=4, epochs=STEPS, verbose=0).history["loss"]

    check(train)
