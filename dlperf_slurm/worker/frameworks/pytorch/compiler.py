"""A function and a case's compiler -> the compiled function."""

from typing import Any

import torch

from dlperf_slurm.worker.frameworks.pytorch import GRAPH_MODES


def compile_function(function: Any, compiler: str) -> Any:
    """Return a function compiled by torch.compile for fixed shapes; unchanged for "none".

    A `compiler` of GRAPH_MODES is the mode of torch.compile; "torch.compile" is its default mode.
    """
    if compiler == "none":
        return function
    mode = compiler if compiler in GRAPH_MODES else None
    return torch.compile(function, dynamic=False, mode=mode)
