"""In a CUDA environment, with stub libraries: a search for the largest batch -> its outcome.

    python search.py MODEL RANKS FOLDER

The search ends at the memory of the emulated GPUs (REHEARSAL_MEMORY_MIB). Ranks are started by
mpirun, as in a job, and NVML is the stub of the tests. The outcome is a line of JSON on stdout.
"""

import json
import sys
from pathlib import Path

from support.attempts import Attempt

from dlperf_slurm.contract.axes import LARGEST
from rehearsal.combinations import SIZES

# steps that give few trials, of some seconds each
STEPS = {"bert": 32, "resnet50": 512}
CHECKOUT = Path(__file__).resolve().parents[2]


def main():
    model, ranks, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    attempt = Attempt(
        folder / "r1" / "a1",
        CHECKOUT,
        framework="pytorch",
        model=model,
        model_parameters=SIZES[model],
        devices_per_node=ranks,
        device="cuda",
        precision="amp-fp16",
        batch_size_per_device=LARGEST,
        batch_size_step=STEPS[model],
        warmup_steps=2,
        measured_steps=3,
        telemetry_interval_seconds=0.0,
    )
    record = attempt.search().read_record()
    trials = [(one.batch_size_per_device, one.is_out_of_memory) for one in record.batch_trials]
    answer = {
        "status": record.status,
        "reason": record.reason,
        "batch_size": record.case.axes.batch_size_per_device,
        "step": attempt.case.batch_size_step,
        "trials": trials,
        "peak_memory_bytes": max((rank.peak_memory_bytes for rank in record.ranks), default=0),
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
