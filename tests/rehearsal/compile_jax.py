"""In JAX's CUDA environment, without a GPU: compilations on stdin -> products in each.

Each line of stdin is a compilation as JSON, and each line of stdout its answer: {"products": ...,
"tensor_cores": ...}, or {"error": ...}. XLA compiles for a described GPU, with the autotuner off,
which would have to time kernels.
"""

import json
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

# jax_plugins.xla_cuda13 would look for a driver
os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"

import jax
import numpy
from jax.experimental import topologies
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dlperf_slurm.worker.frameworks import RankInfo
from dlperf_slurm.worker.frameworks import jax as adapter
from dlperf_slurm.worker.frameworks.jax import device, forward, layers, session
from dlperf_slurm.worker.frameworks.jax.loader import prepare_batch
from dlperf_slurm.worker.frameworks.jax.training import Training
from dlperf_slurm.worker.work import Work
from rehearsal.combinations import Combination, make_case
from rehearsal.compiled import FAULTS, XLA, Compilation, count_products, count_tensor_cores

ALONE = RankInfo(0, 0, 1, "here", "127.0.0.1", 0)
# NVIDIA's figures for the H100 SXM5, as XLA's GpuTargetConfigProto (CUDA Programming Guide,
# "Technical Specifications per Compute Capability"; the Hopper white paper)
H100 = """
gpu_device_info {
  cuda_compute_capability { major: 9 }
  threads_per_warp: 32 threads_per_block_limit: 1024 threads_per_core_limit: 2048
  registers_per_block_limit: 65536 registers_per_core_limit: 65536
  shared_memory_per_block: 49152 shared_memory_per_block_optin: 232448
  shared_memory_per_core: 233472 core_count: 132 fpus_per_core: 128
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 3352320000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98
  device_memory_size: 84929347584
}
platform_name: "CUDA"
dnn_version_info { major: 9 minor: 28 }
runtime_version { major: 13 }
device_description_str: "NVIDIA H100 80GB HBM3"
"""


def main():
    precisions = device.MATMUL_PRECISIONS
    jax.config.update("jax_platforms", "cpu")
    here = Mesh(jax.devices(), (device.RANKS,))
    topology = topologies.get_topology_desc(platform="cuda", target_config=H100, topology="1x1x1")
    there = Mesh(topology.devices, (device.RANKS,))
    for line in sys.stdin:
        compilation = Compilation(**json.loads(line))
        device.MATMUL_PRECISIONS = FAULTS.get(compilation.fault, precisions)
        try:
            answer = compile_step(compilation, here, there)
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"[:500]}
        print(json.dumps(answer), flush=True)


def compile_step(compilation, here, there):
    """Answer one compilation: count the products in XLA's module and in its PTX."""
    step, arguments = trace_step(compilation, here, there)
    with tempfile.TemporaryDirectory() as folder:
        compiled = step.lower(*arguments).compile(
            {
                "xla_gpu_autotune_level": 0,
                "xla_gpu_enable_triton_gemm": compilation.products_by == XLA,
                "xla_dump_to": folder,
                # without it XLA of JAX 0.11 writes no PTX
                "xla_dump_emitter_re": "ptx",
            }
        )
        ptx = "".join(path.read_text() for path in Path(folder).glob("*.ptx"))
    return {
        "products": count_products(compiled.as_text()),
        "tensor_cores": count_tensor_cores(ptx),
    }


def trace_step(compilation, here, there):
    """Return the adapter's step for the absent GPU, and the shapes of its arguments."""
    combination = Combination(compilation.model, compilation.precision, "clip", 90, 1)
    case = make_case(combination)
    case = replace(case, axes=replace(case.axes, framework="jax", compiler="xla"))
    device.configure_devices(case, ALONE)
    # configure_devices has selected the case's GPU
    jax.config.update("jax_platforms", "cpu")
    work = Work(case, ALONE, adapter.__name__)
    weights, axes = session.place_weights(case, work, here)
    passes = forward.Forward(case, work, axes)
    training = Training(case, work, passes, there, axes)
    replicated = NamedSharding(here, PartitionSpec())
    state = session.make_state(case, work, here, weights)._replace(
        optimizer=Training(case, work, passes, here, axes).initialize_optimizer(weights),
        learning_rate=device.place(numpy.float32(1), replicated),
    )
    layout = layers.LAYOUTS[case.axes.memory_format][0]
    batch = device.load_batch(prepare_batch(work.make_batch(), layout, work.classes), here)

    def move(values):
        sharding = NamedSharding(there, values.sharding.spec)
        return jax.ShapeDtypeStruct(values.shape, values.dtype, sharding=sharding)

    return training.step, jax.tree.map(move, (state, batch))


if __name__ == "__main__":
    main()
