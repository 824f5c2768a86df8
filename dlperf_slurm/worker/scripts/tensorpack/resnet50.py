"""Command line -> ResNet-50 v1.5 in tensorpack's trainers, with the log that they write.

    python -m dlperf_slurm.worker.scripts.tensorpack.resnet50 --update replicated --data device \
        --batch 64 --device cuda --devices 8

Runs in the tensorflow1 environment. One process drives all devices of a node; with Horovod the
launcher starts one process per device.
"""

import argparse
import os
import re
import sys
import warnings
from typing import List, Optional, Sequence

from dlperf_slurm.contract.axes import PYTHON_QUEUE
from dlperf_slurm.logs.windows import drop_warmup
from dlperf_slurm.worker.models.resnet50 import Definition
from dlperf_slurm.worker.scripts.tensorpack import DATA, HOROVOD, PYTHON, UPDATES, Settings


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Train; return 0, or 2, with a line on standard error, if something needed is missing."""
    settings = parse_arguments(sys.argv[1:] if arguments is None else arguments)
    # errors only: TensorFlow warns of deprecations, CPU instructions and large allocations
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    with warnings.catch_warnings():
        # raised by TensorFlow's own use of NumPy
        warnings.simplefilter("ignore", FutureWarning)
        from dlperf_slurm.worker.scripts.tensorpack.training import find_missing, train

    missing = find_missing(settings)
    if missing:
        print(f"error: {missing}", file=sys.stderr)
        return 2
    train(settings)
    return 0


def parse_arguments(arguments: Sequence[str]) -> Settings:
    """Parse the command line; exits with 2 and all problems on standard error, as argparse does."""
    parser = _make_parser()
    options = parser.parse_args(arguments)
    definition = Definition(
        image_size=options.image_size,
        stage_blocks=tuple(options.stage_blocks),
        width=options.width,
        classes=options.classes,
    )
    problems = [*definition.find_problems(), *_find_problems(options)]
    if problems:
        parser.error("; ".join(problems))
    epoch_steps = choose_epoch_steps(options.warmup_steps, options.measured_steps)
    return Settings(
        definition=definition,
        batch_size_per_device=options.batch,
        data=options.data,
        update=options.update,
        device=options.device,
        devices=options.devices,
        cpus_per_device=options.cpus_per_device,
        epoch_steps=epoch_steps,
        epochs=1 + max(options.measured_steps // epoch_steps, 1),
    )


def choose_epoch_steps(warmup_steps: int, measured_steps: int) -> int:
    """Return the fewest steps per epoch with which one epoch is the warm-up, the rest measured.

    All epochs have the same number of steps, and the measured ones add up to `measured_steps`;
    `drop_warmup` must drop the first epoch only. If there is no such number, warm-up and
    measurement are one epoch each, as long as the longer one.
    """
    for steps in range(max(warmup_steps, 1), measured_steps):
        count = measured_steps // steps
        if measured_steps % steps == 0 and len(drop_warmup([(steps, 0.0)] * (1 + count))) == count:
            return steps
    return max(warmup_steps, measured_steps)


def _find_problems(options: argparse.Namespace) -> List[str]:
    """Return a sentence for each unsupported combination of options."""
    if options.devices == 1:
        return []
    if options.update == HOROVOD:
        return [
            f"--devices {options.devices}: with --update {HOROVOD} each process has one device; "
            "use --devices 1, and start one process per device"
        ]
    if options.data == PYTHON:
        return [
            f"--data {PYTHON}: with several devices, tensorpack needs a queue; use {PYTHON_QUEUE}"
        ]
    return []


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tensorpack_resnet", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--data", choices=DATA, required=True, help="data source")
    parser.add_argument(
        "--update", choices=UPDATES, required=True, help="how variables are updated"
    )
    parser.add_argument(
        "--batch", type=_parse_count, required=True, help="batch size: images per device"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    parser.add_argument(
        "--devices", type=_parse_count, default=1, help="number of devices of this process"
    )
    parser.add_argument(
        "--cpus-per-device",
        type=_parse_count,
        # the job script sets this to the CPUs of a rank
        default=os.environ.get("OMP_NUM_THREADS", "1"),
        help="threads per device, if devices are CPUs",
    )
    parser.add_argument("--precision", choices=("fp32",), default="fp32")
    parser.add_argument(
        "--warmup-steps", type=_parse_steps, default=20, help="minimum number of warm-up steps"
    )
    parser.add_argument("--measured-steps", type=_parse_count, default=100)
    sizes = parser.add_argument_group("parameters of the model")
    sizes.add_argument("--image-size", type=_parse_count, default=Definition.image_size)
    sizes.add_argument(
        "--stage-blocks", type=_parse_count, nargs=4, default=Definition.stage_blocks
    )
    sizes.add_argument("--width", type=_parse_count, default=Definition.width)
    sizes.add_argument("--classes", type=_parse_count, default=Definition.classes)
    return parser


def _parse_count(text: str) -> int:
    return _parse_whole(text, 1)


def _parse_steps(text: str) -> int:
    return _parse_whole(text, 0)


def _parse_whole(text: str, least: int) -> int:
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of at least {least}")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
