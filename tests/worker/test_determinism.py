"""What makes a framework's kernels deterministic: variables, and a switch of PyTorch's."""

import os
import subprocess
import sys

import pytest
from support.attempts import CASE
from support.cases import vary

from dlperf_slurm.worker.determinism import (
    XLA_FLAG,
    XLA_LACK,
    can_be_deterministic,
    choose_variables,
    find_lack_of_xla,
    make_deterministic,
)


def test_what_the_user_has_set_stays_and_jax_is_given_a_flag_beside_it():
    chosen = choose_variables("tensorflow2", {"TF_DETERMINISTIC_OPS": "0"})
    assert not {"TF_DETERMINISTIC_OPS", "XLA_FLAGS"} & set(chosen)
    assert chosen["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert choose_variables("jax", {})["XLA_FLAGS"] == XLA_FLAG
    chosen = choose_variables("jax", {"XLA_FLAGS": "--xla_dump_to=x"})
    assert chosen["XLA_FLAGS"] == f"--xla_dump_to=x {XLA_FLAG}"


@pytest.mark.parametrize(
    ("flags", "is_lacking"),
    [
        (XLA_FLAG, True),
        ("--xla_dump_to=x --xla_gpu_exclude_nondeterministic_ops", True),
        ("--xla_gpu_deterministic_ops=false", False),
    ],
)
def test_flags_that_cudnn_attention_cannot_be_trained_with_are_found(flags, is_lacking):
    assert find_lack_of_xla({"XLA_FLAGS": flags}) == (XLA_LACK if is_lacking else "")


@pytest.mark.parametrize(
    ("framework", "model", "precision", "expected"),
    [
        ("jax", "llama", "amp-bf16", False),
        ("jax", "llama", "tf32", True),
        ("jax", "resnet50", "amp-bf16", True),
        ("pytorch", "llama", "amp-bf16", True),
    ],
)
def test_only_attention_of_jax_in_16_bits_cannot_be_deterministic(
    framework, model, precision, expected
):
    case = vary(CASE, framework=framework, model=model, precision=precision)
    assert can_be_deterministic(case) == expected


def test_pytorch_takes_deterministic_kernels_and_goes_on_without(torch, monkeypatch):
    monkeypatch.setattr(os, "environ", dict(os.environ))
    try:
        make_deterministic("pytorch")
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


def test_xla_of_the_pinned_jax_knows_the_flag(framework):
    if framework != "jax":
        pytest.skip("is about JAX: --framework jax")
    # in a process of its own, which XLA would end
    program = "import jax; jax.config.update('jax_platforms', 'cpu'); jax.devices()"
    environ = {**os.environ, "XLA_FLAGS": XLA_FLAG}
    done = subprocess.run([sys.executable, "-c", program], env=environ, stderr=subprocess.PIPE)
    assert done.returncode == 0, done.stderr.decode()
