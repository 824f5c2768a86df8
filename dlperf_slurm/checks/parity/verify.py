"""Frameworks x models at small sizes -> whether they do the same work, on one and on two ranks."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

from dlperf_slurm.checks.parity.run_case import (
    RunContext,
    VerificationError,
    list_variant,
    read_parity,
    run_case,
)
from dlperf_slurm.checks.parity.tolerances import (
    UNIT_ROUNDOFFS,
    Agreement,
    compare_frameworks,
    compare_ranks,
    find_precision_problem,
)
from dlperf_slurm.config.folders import (
    find_managed_environment,
    get_creation_command,
    get_environment_name,
)
from dlperf_slurm.config.site import Site
from dlperf_slurm.contract.axes import DYNAMIC, HOROVOD, Axes
from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.parity import Proof, Proofs
from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.errors import EnvironmentMissingError
from dlperf_slurm.provision.environments import horovod
from dlperf_slurm.provision.environments.pins import read_pins
from dlperf_slurm.worker.frameworks import load_adapter
from dlperf_slurm.worker.models import load_model

REFERENCE = "pytorch"
NATIVE = "native"
# with this seed no value of ResNet-50 is near the kink of a ReLU (see its gradient tolerance)
SEED = 4
# a dynamic loss scale would skip the first updates, until their gradients do not overflow
LOSS_SCALE = 128
PRECISIONS = ("fp32", *UNIT_ROUNDOFFS)

# axis name -> value; without "compiler", the first compiler that the framework supports is used
Variant = Mapping[str, str]
PLAIN: Variant = MappingProxyType({})


def list_variants(
    precisions: Sequence[str], compilers: Sequence[str], memory_formats: Sequence[str]
) -> list[Variant]:
    """List all combinations of values as {axis: value}, without axes whose list is empty."""
    asked = {"precision": precisions, "compiler": compilers, "memory_format": memory_formats}
    given = {name: values for name, values in asked.items() if values}
    return [dict(zip(given, values)) for values in product(*given.values())]


def verify_frameworks(
    frameworks: Sequence[str],
    models: Sequence[str],
    workplace: RunContext,
    variants: Sequence[Variant] = (PLAIN,),
) -> tuple[list[Agreement], list[Agreement]]:
    """Run all comparisons; return the lines of the parity and of the data-parallel table.

    Each framework and model is run in each of `variants`, in the folder of `workplace`. The parity
    table compares frameworks on one rank, the other two ranks with one. A framework without an
    environment has one line with the command that creates it. Raises EnvironmentMissingError if the
    reference framework has no environment.
    """
    missing = find_missing_environment(REFERENCE, workplace.site)
    if missing:
        raise EnvironmentMissingError(f"{missing}; every framework is compared with {REFERENCE}")
    parity: list[Agreement] = []
    data_parallel: list[Agreement] = []
    for framework in frameworks:
        missing = find_missing_environment(framework, workplace.site)
        if missing:
            parity.append(Agreement(framework, "-", "-", "-", problem=missing, is_left_out=True))
            continue
        for model, variant in product(models, variants):
            for is_clipped in (False, True):
                parity.append(verify_parity(framework, model, is_clipped, workplace, variant))
            for distribution in load_adapter(framework).SUPPORTED["gradient_sync"]:
                data_parallel.append(
                    verify_data_parallel(framework, model, distribution, workplace, variant)
                )
    return parity, data_parallel


def collect_proofs(lines: Iterable[Agreement]) -> Proofs:
    """Return comparisons in both tables' `lines` that found the same results, for proofs.json."""
    found = [line.found for line in lines if line.found and line.is_same]
    return Proofs(
        tuple(
            Proof(one.case.model, one.device_name, one.case.axes, one.versions, one.code_digest)
            for one in found
        )
    )


def find_missing_environment(framework: str, site: Site) -> str:
    """Return a message if a framework has no environment, with the command to create it, or ""."""
    venv = site.find_environment(framework).venv
    if venv is None or (Path(venv) / "bin" / "python").exists():
        return ""
    creation = get_creation_command(framework, site.device)
    return f"{framework}: no environment; create it with `{creation}`"


def find_missing_horovod(framework: str, site: Site) -> str:
    """Return a message if a managed environment has no Horovod, with the command that installs it.

    Returns "" if Horovod is installed, and for other environments, which only the ranks can check.
    """
    environment = find_managed_environment(get_environment_name(framework, site.device))
    if site.find_environment(framework).venv != str(environment):
        return ""
    return horovod.find_missing_horovod(read_pins(framework, site.device), environment)


def verify_parity(
    framework: str, model: str, is_clipped: bool, workplace: RunContext, variant: Variant
) -> Agreement:
    """Compare one rank of a framework with one rank of the reference framework in fp32.

    With `is_clipped`, gradients are clipped by their global norm. `variant` has values of axes,
    such as the precision. If a run failed, the result has the problem.
    """
    case = make_case(framework, model, workplace.site, is_clipped, variant)
    name = _name(case, "clip" if is_clipped else "no clipping")
    line = Agreement(framework, model, name, REFERENCE)
    try:
        reference = _move_to_reference(case)
        expected_dir = run_case(reference, workplace)
        found_dir = run_case(case, workplace, "-compared", references=[expected_dir])
        found, expected = read_parity(found_dir), read_parity(expected_dir)
    except VerificationError as error:
        return replace(line, problem=str(error), is_left_out=error.is_left_out)
    problem = find_precision_problem(found)
    return replace(line, checks=compare_frameworks(found, expected), problem=problem, found=found)


def verify_data_parallel(
    framework: str, model: str, distribution: str, workplace: RunContext, variant: Variant
) -> Agreement:
    """Compare two ranks that have different data with the same work on one rank.

    `distribution` is the gradient_sync, such as "horovod"; `variant` has values of other axes. The
    reference is one rank with both batches joined. For a model with batch normalization, whose
    statistics are per rank, it is the mean of the gradients of one rank with each batch, and for
    the losses the reference framework's run on two ranks.
    """
    alone = make_case(framework, model, workplace.site, variant=variant)
    pair = _vary(alone, topology=str(Topology(1, 2)), gradient_sync=distribution)
    is_joined = not load_model(model).HAS_BATCH_STATISTICS
    reference = (
        "one rank with both batches" if is_joined else "mean of one-rank runs, one per batch"
    )
    line = Agreement(framework, model, _name(pair, distribution), reference)
    missing = find_missing_horovod(framework, workplace.site)
    if distribution == HOROVOD and missing:
        return replace(line, problem=missing, is_left_out=True)
    try:
        if is_joined:
            joined = _vary(alone, batch_size_per_device=pair.global_batch_size)
            references = [run_case(joined, workplace, "-joined")]
            expected_dir = references[0]
        else:
            references = [run_case(alone, workplace, f"-rank{r}", data_rank=r) for r in range(2)]
            same_pair = _move_to_reference(pair)
            expected_dir = run_case(same_pair, workplace)
        found_dir = run_case(pair, workplace, "-compared", references=references)
        found, expected = read_parity(found_dir), read_parity(expected_dir)
    except VerificationError as error:
        return replace(line, problem=str(error), is_left_out=error.is_left_out)
    return replace(line, checks=compare_ranks(found, expected), found=found)


def make_case(
    framework: str, model: str, site: Site, is_clipped: bool = False, variant: Variant = PLAIN
) -> Case:
    """Make a small case on one rank.

    With `is_clipped`, gradients are clipped by their global norm. `variant` has values of axes,
    such as precision and compiler; without them, the case is in fp32 with the first compiler that
    the adapter lists: "none" for most frameworks.
    """
    verification = load_model(model).VERIFICATION
    is_reduced = variant.get("precision", "fp32") != "fp32"
    changed = verification.reduced_precision_parameters if is_reduced else {}
    # the first compiler is the framework's usual one: for all but JAX and MindSpore "none"
    axes = Axes(
        framework=framework,
        topology=str(Topology(1, 1)),
        batch_size_per_device=verification.batch_size_per_device,
        gradient_sync=load_adapter(framework).SUPPORTED["gradient_sync"][0],
        clip_global_norm=is_clipped,
        loss_scale=LOSS_SCALE if variant.get("precision") in ("amp-fp16", "fp16") else DYNAMIC,
        **{"compiler": load_adapter(framework).SUPPORTED["compiler"][0], **variant},
    )
    return Case(
        run_id="verify",
        case_id=f"{framework}-{model}",
        repeat=1,
        attempt=1,
        axes=axes,
        model=model,
        model_parameters={**verification.model_parameters, **changed},
        device=site.device,
        cpus_per_rank=site.cpus_per_rank,
        warmup_steps=0,
        measured_steps=1,
        seed=SEED,
    )


def _move_to_reference(case: Case) -> Case:
    """Return the case with the same work in the reference framework, in fp32 and not compiled."""
    return _vary(
        case,
        framework=REFERENCE,
        gradient_sync=NATIVE,
        precision="fp32",
        compiler=load_adapter(REFERENCE).SUPPORTED["compiler"][0],
        memory_format="default",
        loss_scale=DYNAMIC,
    )


def _name(case: Case, what: str) -> str:
    """Name a line of a table: `what`, then the values of `list_variant`, such as "clip, bf16"."""
    return ", ".join([what, *list_variant(case.axes)])


def _vary(case: Case, **axes: Any) -> Case:
    """Return a copy of the case with the given values on the given axes."""
    return replace(case, axes=replace(case.axes, **axes))
