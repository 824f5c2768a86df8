"""Plain ResNet-50 v1.5 in JAX: prints the seconds of each step at batch size 2, as JSON."""

import json
import sys
import time

import jax
import numpy
from jax import lax, nn
from jax import numpy as jnp


def list_convolutions():
    """Yield (in, out, size, stride): the stem, then those of each block, the shortcut last."""
    yield 3, 64, 7, 2
    channels = 64
    for stage, count in enumerate((3, 4, 6, 3)):
        inner = 64 * 2**stage
        for index in range(count):
            stride = 2 if stage and index == 0 else 1
            yield from (
                (channels, inner, 1, 1),
                (inner, inner, 3, stride),
                (inner, 4 * inner, 1, 1),
            )
            if index == 0:
                yield channels, 4 * inner, 1, stride
            channels = 4 * inner


def apply(weights, images):
    layers = iter(zip(weights["convolutions"], list_convolutions()))

    def convolve(x):
        (kernel, scale, bias), (_, _, size, stride) = next(layers)
        pad, names = [(size // 2,) * 2] * 2, ("NHWC", "HWIO", "NHWC")
        x = lax.conv_general_dilated(x, kernel, (stride, stride), pad, dimension_numbers=names)
        return nn.standardize(x, axis=(0, 1, 2)) * scale + bias

    pad = ((0, 0), (1, 1), (1, 1), (0, 0))
    x = nn.relu(convolve(images))
    x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 3, 1), (1, 2, 2, 1), pad)
    for count in (3, 4, 6, 3):
        for index in range(count):
            y = convolve(nn.relu(convolve(nn.relu(convolve(x)))))
            x = nn.relu(y + (x if index else convolve(x)))
    return x.mean((1, 2)) @ weights["classifier"] + weights["bias"]


@jax.jit
def step(weights, momentum):
    def compute_loss(weights):
        return -nn.log_softmax(apply(weights, images))[jnp.arange(2), labels].mean()

    loss, gradients = jax.value_and_grad(compute_loss)(weights)
    momentum = jax.tree.map(lambda m, g, w: 0.875 * m + g + 3e-5 * w, momentum, gradients, weights)
    return jax.tree.map(lambda w, m: w - 0.002 * m, weights, momentum), momentum, loss


random = numpy.random.RandomState(0)
weights = {
    "convolutions": [
        (
            random.standard_normal((size, size, channels, out)).astype("float32") / size / out**0.5,
            numpy.ones(out, "float32"),
            numpy.zeros(out, "float32"),
        )
        for channels, out, size, _ in list_convolutions()
    ],
    "classifier": 0.01 * random.standard_normal((2048, 1000)).astype("float32"),
    "bias": numpy.zeros(1000, "float32"),
}
momentum = jax.tree.map(jnp.zeros_like, weights)
images, labels = jax.random.normal(jax.random.key(0), (2, 224, 224, 3)), jnp.array([3, 5])
seconds = []
for _ in range(int(sys.argv[1])):
    start = time.perf_counter()
    weights, momentum, loss = jax.block_until_ready(step(weights, momentum))
    seconds.append(time.perf_counter() - start)
print(json.dumps(seconds))
