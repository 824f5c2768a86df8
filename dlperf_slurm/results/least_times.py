"""The work of cases, and what a core of this machine computes -> the least seconds they take.

It is a lower bound, to refuse what cannot end within its time limit before any earlier run tells.
"""

import os
import subprocess
import sys
from collections.abc import Iterator

from dlperf_slurm.contract.axes import TRAIN
from dlperf_slurm.contract.case import Case
from dlperf_slurm.jobs.plan import Plan
from dlperf_slurm.results.peaks import TRAINING_FLOPS_FACTOR
from dlperf_slurm.worker.models import load_model

# No core is slower: work that ends in time at this pace needs no measurement.
SLOWEST_FLOPS_PER_S = 1e9
# An upper bound of what a framework computes, over what NumPy does: a core that works alone has a
# higher clock, and some algorithms of convolutions take fewer operations.
MARGIN = 2.0
_SIDE = 512
# of the libraries that NumPy may be built with
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
# by CPU time, which other processes do not take away
_MEASURE = """\
import sys, time, numpy
matrix = numpy.ones((int(sys.argv[1]),) * 2, numpy.float32)
times = []
for _ in range(5):
    began = time.thread_time()
    matrix @ matrix
    times.append(time.thread_time() - began)
print(min(times))
"""


def find_least_seconds(plan: Plan) -> dict[str, float]:
    """Return the least seconds of an array task on this machine's cores, by case id.

    Cases whose work is not known, or not in single precision, are left out, and so are those that
    end in time even on the slowest machine.
    """
    long = {
        case_id: work
        for case_id, work in _list_work_per_core(plan)
        if work / SLOWEST_FLOPS_PER_S > 60 * plan.limit_minutes[case_id]
    }
    if not long:
        return {}
    flops_per_s = MARGIN * measure_flops_per_s()
    return {case_id: work / flops_per_s for case_id, work in long.items()}


def measure_flops_per_s() -> float:
    """Return what a core computes at best, by NumPy's matrix products in single precision."""
    environment = {**os.environ, **dict.fromkeys(_THREADS, "1")}
    command = [sys.executable, "-c", _MEASURE, str(_SIDE)]
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    return 2 * _SIDE**3 / float(done.stdout)


def _list_work_per_core(plan: Plan) -> Iterator[tuple[str, float]]:
    """Yield the operations of an array task for each of the cores that it has, by case id."""
    for case in plan.job_cases.values():
        if _has_known_work(case):
            definition = load_model(case.model).Definition(**case.model_parameters)
            per_sample = TRAINING_FLOPS_FACTOR * int(definition.flops_per_sample)
            steps = case.warmup_steps + case.measured_steps
            cores = min(case.world_size * case.cpus_per_rank, len(os.sched_getaffinity(0)))
            yield case.case_id, per_sample * case.global_batch_size * steps / cores


def _has_known_work(case: Case) -> bool:
    axes = case.axes
    return (
        axes.mode == TRAIN
        and axes.precision == "fp32"
        and not axes.has_batch_search
        and not case.log_format
        and not case.is_to_accuracy
    )
