"""JAX's matrix product, and a copy that XLA does not optimize away."""

import os
from typing import Any

import jax
from jax import numpy as jnp

from dlperf_slurm.worker.peaks import Operation, PeakSettings

# by default XLA uses TF32 on GPUs; JAX's "tensorfloat32" has no effect in XLA's Triton kernels
PRECISIONS = {"fp32": "highest"}


def make_product(setting: PeakSettings, size: int) -> Operation:
    configure(setting)
    matrix = jax.random.normal(jax.random.PRNGKey(1), (size, size), setting.type_name)
    precision = PRECISIONS.get(setting.number_format)
    multiply = jax.jit(lambda values: jnp.matmul(values, values, precision=precision))
    return Operation(lambda: multiply(matrix), wait)


def make_copy(setting: PeakSettings, count: int) -> Operation:
    array = jnp.ones(count, jnp.float32)
    # donated: new memory would cost a page fault per page
    negate = jax.jit(jnp.negative, donate_argnums=0)
    latest = [array]

    def start() -> Any:
        latest[0] = negate(latest[0])
        return latest[0]

    return Operation(start, wait)


def configure(setting: PeakSettings) -> None:
    """Set device and CPU threads before JAX first uses a device; it cannot change them later."""
    os.environ["PJRT_NPROC"] = str(setting.cpus)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax.config.update("jax_platforms", setting.device)


def wait(result: Any) -> None:
    result.block_until_ready()
