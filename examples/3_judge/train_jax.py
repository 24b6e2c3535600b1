"""The MLP of train_numpy.py in JAX (pip install jax): its gradients, compiled by XLA, and Adam.

The commands are those of train_numpy.py, with this program in its place.
"""

import h5py
import jax
import jax.numpy as jnp
import numpy as np


@jax.jit
def loss_of(weights, x, target):
    hidden = jax.nn.relu(x @ weights["0/weight"].T + weights["0/bias"])
    return jnp.mean((hidden @ weights["2/weight"].T + weights["2/bias"] - target) ** 2)


@jax.jit
def adam_step(weights, mean, square, grads, lr, beta1, beta2, eps, t):
    mean = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, mean, grads)
    square = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * g * g, square, grads)
    weights = jax.tree.map(lambda w, m, v: w - lr / (1 - beta1**t) * m / (jnp.sqrt(v / (1 - beta2**t)) + eps),
                           weights, mean, square)
    return weights, mean, square


with h5py.File("fixture.h5") as fixture, h5py.File("result.h5", "w") as result:
    result.attrs.update({"format": "cnn-exchange", "format_version": 2, "role": "candidate"})
    settings = [np.float32(fixture["optimizer"].attrs[name]) for name in ("lr", "beta1", "beta2", "eps")]
    weights = {f"{layer}/{kind}": jnp.asarray(fixture[f"steps/0/weights/{layer}/{kind}"][()])
               for layer in ("0", "2") for kind in ("weight", "bias")}
    mean, square = (jax.tree.map(jnp.zeros_like, weights) for _ in range(2))
    for step in range(len(fixture["batches"])):
        x, target = (jnp.asarray(fixture[f"batches/{step}/{name}"][()]) for name in ("input", "target"))
        loss, grads = jax.value_and_grad(loss_of)(weights, x, target)
        result[f"steps/{step}/loss"] = np.asarray(loss)
        for name, one in weights.items():
            result[f"steps/{step}/weights/{name}"] = np.asarray(one)
            result[f"steps/{step}/grads/{name}"] = np.asarray(grads[name])
        weights, mean, square = adam_step(weights, mean, square, grads, *settings, np.float32(step + 1))
    for name, one in weights.items():
        result[f"steps/{step + 1}/weights/{name}"] = np.asarray(one)
