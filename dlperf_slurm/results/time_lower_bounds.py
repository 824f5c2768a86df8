"""The operations of cases and the speed of a CPU core -> a lower bound of their run time.

It rejects cases that cannot finish within their time limit when no earlier run has measured them.
"""

import os
import subprocess
import sys
from collections.abc import Iterator

from dlperf_slurm.contract.axes import TRAIN
from dlperf_slurm.contract.case import Case
from dlperf_slurm.jobs.plan import Plan
from dlperf_slurm.results.operation_counts import TRAINING_FLOPS_FACTOR
from dlperf_slurm.worker.models import load_model

# No core is slower: if the work fits the limit at this speed, the core need not be measured.
SLOWEST_FLOPS_PER_S = 1e9
# Upper bound of a framework's speed relative to NumPy's: a core that works alone has a higher
# clock, and some convolution algorithms need fewer operations.
MARGIN = 2.0
_SIDE = 512
# thread counts of the BLAS libraries that NumPy may use
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
# in CPU time, which does not depend on other processes
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


def compute_least_seconds(plan: Plan) -> dict[str, float]:
    """Return a lower bound of an array task's seconds on this machine's cores, by case id.

    Cases whose work is unknown or not in single precision are left out, and those that finish
    within their limit even on the slowest core.
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
    """Measure the FLOP/s of one core in NumPy's single-precision matrix product."""
    environment = {**os.environ, **dict.fromkeys(_THREADS, "1")}
    command = [sys.executable, "-c", _MEASURE, str(_SIDE)]
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    return 2 * _SIDE**3 / float(done.stdout)


def _list_work_per_core(plan: Plan) -> Iterator[tuple[str, float]]:
    """Yield (case id, floating-point operations per core of an array task)."""
    for case in plan.job_cases.values():
        if _has_known_work(case):
            definition = load_model(case.model).Definition(**case.model_parameters)
            per_sample = TRAINING_FLOPS_FACTOR * int(definition.flops_per_sample)
            steps = case.warmup_steps + case.measured_steps
            cores = min(case.world_size * case.cpus_per_rank, len(os.sched_getaffinity(0)))
            yield case.case_id, per_sample * case.global_batch_size * steps / cores


def _has_known_work(case: Case) -> bool:
    """Return whether the operations of a case can be counted: training in fp32 with known steps."""
    axes = case.axes
    return (
        axes.mode == TRAIN
        and axes.precision == "fp32"
        and not axes.has_batch_search
        and not case.log_format
        and not case.is_to_accuracy
    )
