"""A framework on a GPU -> the same bits for the same work, as far as the framework can do that.

For what is compared, not for what is measured: kernels that add in a fixed order are slower.
"""

import os
import sys
from importlib import import_module
from typing import Dict

# What each framework, or a library below it, reads when it is first used: cuBLAS ("Results
# reproducibility"), TensorFlow (core/util/determinism.cc), MXNet and Paddle (their environment
# variables). OneFlow, MegEngine and MindSpore have none that is known to hold for a whole step.
VARIABLES = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "FLAGS_cudnn_deterministic": "1",
    "MXNET_ENFORCE_DETERMINISM": "1",
    "TF_DETERMINISTIC_OPS": "1",
}
XLA_FLAG = "--xla_gpu_deterministic_ops=true"


def make_deterministic(framework: str) -> None:
    """Ask for it in this process, before the framework is first used; what is set already stays."""
    for name, value in choose_variables(framework, dict(os.environ)).items():
        os.environ[name] = value
    if framework == "pytorch":
        # warn_only: what has no such kernel is done by another, and standard error names it
        import_module("torch").use_deterministic_algorithms(True, warn_only=True)
    print("verify: kernels are deterministic where there are such", file=sys.stderr, flush=True)


def choose_variables(framework: str, environ: Dict[str, str]) -> Dict[str, str]:
    """The variables to set beside those in `environ`.

    XLA ends a process for a flag that it does not know: only JAX, whose pinned version has it, is
    given that.
    """
    chosen = {name: value for name, value in VARIABLES.items() if name not in environ}
    if framework == "jax":
        chosen["XLA_FLAGS"] = " ".join(filter(None, [environ.get("XLA_FLAGS", ""), XLA_FLAG]))
    return chosen
