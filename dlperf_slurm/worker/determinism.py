"""A framework on a GPU -> bitwise reproducible results, as far as the framework allows.

For comparing results, not for measuring: deterministic kernels are slower.
"""

import os
import re
import sys
from importlib import import_module
from typing import Dict, Mapping

from dlperf_slurm.contract.case import Case
from dlperf_slurm.worker.models import load_model

# "1" has measured cases compute deterministically; `sweep --bits` sets it in [env]
SWITCH = "DLPERF_SLURM_DETERMINISTIC"
# What each framework, or a library that it uses, reads when first used: cuBLAS ("Results
# reproducibility"), TensorFlow (core/util/determinism.cc), MXNet and Paddle (their environment
# variables). For OneFlow, MegEngine and MindSpore no setting is known that makes a whole step
# reproducible.
VARIABLES = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "FLAGS_cudnn_deterministic": "1",
    "MXNET_ENFORCE_DETERMINISM": "1",
    "TF_DETERMINISTIC_OPS": "1",
}
XLA_FLAG = "--xla_gpu_deterministic_ops=true"
# Flags under which a step with the backward kernel of cuDNN's attention ends with an IndexError:
# seen with JAX 0.11.2 and cuDNN 9.19 on an H200.
_XLA_FLAGS = re.compile(r"--xla_gpu_(deterministic|exclude_nondeterministic)_ops(?!=(false|0))")
XLA_LACK = "XLA cannot run cuDNN attention's backward kernel deterministically"


def make_deterministic(framework: str) -> None:
    """Switch on deterministic kernels in this process, before the framework is first used.

    Environment variables that are set already are kept; for JAX, XLA_FLAGS gets one flag more.
    """
    for name, value in choose_variables(framework, dict(os.environ)).items():
        os.environ[name] = value
    if framework == "pytorch":
        # warn_only: operations without a deterministic kernel still run, with a warning on standard
        # error
        import_module("torch").use_deterministic_algorithms(True, warn_only=True)
    print("deterministic kernels are used where they exist", file=sys.stderr, flush=True)


def can_be_deterministic(case: Case) -> bool:
    """Return whether the kernels that the case is measured with can be made deterministic.

    JAX uses cuDNN's attention in 16 bits, which XLA cannot make deterministic.
    """
    has_attention = "attention" in load_model(case.model).LAYERS
    is_fused = has_attention and case.axes.precision not in ("fp32", "tf32")
    return case.axes.framework != "jax" or not is_fused


def find_lack_of_xla(environ: Mapping[str, str]) -> str:
    """Return why cuDNN's attention cannot be trained with these environment variables, or ''."""
    return XLA_LACK if _XLA_FLAGS.search(environ.get("XLA_FLAGS", "")) else ""


def choose_variables(framework: str, environ: Dict[str, str]) -> Dict[str, str]:
    """Return the environment variables to add to `environ` for deterministic kernels.

    Only JAX gets the XLA flag, because its pinned version knows it: XLA ends a process for an
    unknown flag.
    """
    chosen = {name: value for name, value in VARIABLES.items() if name not in environ}
    if framework == "jax":
        chosen["XLA_FLAGS"] = " ".join(filter(None, [environ.get("XLA_FLAGS", ""), XLA_FLAG]))
    return chosen
