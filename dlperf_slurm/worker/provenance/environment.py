"""Variables of this process -> those that change what frameworks and libraries do."""

import os
import re
from typing import Dict, Mapping

_PREFIXES = (
    "BLIS_",
    "CUBLAS_",
    "CUDA_",
    "CUDNN_",
    "DNNL_",
    "FI_",
    "FLAGS_",
    "GLOO_",
    "GOMP_",
    "HOROVOD_",
    "JAX_",
    "KMP_",
    "MALLOC_",
    "MEGENGINE_",
    "MKL_",
    "MXNET_",
    "NCCL_",
    "NVIDIA_",
    "OMPI_MCA_",
    "OMP_",
    "ONEDNN_",
    "ONEFLOW_",
    "OPENBLAS_",
    "PYTORCH_",
    "TF_",
    "TORCH_",
    "UCX_",
    "XLA_",
)
_NAMES = ("LD_PRELOAD",)
# what a launch sets itself, and is another one for each
_OF_LAUNCH = ("OMPI_MCA_PREFIXES", "OMPI_MCA_initial_wdir", "OMPI_MCA_num_procs", "TF_CONFIG")
_SECRET = re.compile("TOKEN|KEY|SECRET|PASSWORD|PASSWD|CREDENTIAL", re.I)
MAX_CHARACTERS = 300


def describe_environment(environ: Mapping[str, str] = os.environ) -> Dict[str, str]:
    """Under "env.NAME", long values cut off; those whose name speaks of a secret are left out."""
    return {
        f"env.{name}": _cut(value)
        for name, value in sorted(environ.items())
        if (name in _NAMES or name.startswith(_PREFIXES))
        and name not in _OF_LAUNCH
        and not _SECRET.search(name)
    }


def _cut(value: str) -> str:
    if len(value) <= MAX_CHARACTERS:
        return value
    return f"{value[:MAX_CHARACTERS]}... ({len(value)} characters)"
