"""Small trainers with logs like those of public ones: `python scripts.py NAME BATCH_SIZE STEPS`.

A step trains a layer for at least STEP_SECONDS. Without STEPS, training has no end.
"""

import os
import sys
import time
from collections.abc import Iterable, Iterator

STEP_SECONDS = 0.02
NEVER = 10**6


def train(batch_size: int, steps: Iterable[int]) -> Iterator[tuple[int, float, float]]:
    """Yield (step, seconds, loss) of each step."""
    import numpy as np

    generator = np.random.default_rng(1)
    weights, inputs = np.zeros((64, 64)), generator.normal(size=(batch_size, 64))
    for step in steps:
        start = time.perf_counter()
        difference = inputs @ weights - inputs
        weights -= 0.01 * inputs.T @ difference / batch_size
        time.sleep(max(0.0, STEP_SECONDS - (time.perf_counter() - start)))
        yield step, time.perf_counter() - start, float((difference**2).mean())


def horovod_synthetic(size: int, steps: int) -> None:
    """Print as Horovod's pytorch_synthetic_benchmark.py, a process for each rank."""
    rank, ranks = (int(os.environ[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "SIZE"))
    show = print if rank == 0 else lambda line: None
    show(f"Model: resnet50\nBatch size: {size}\nNumber of CPUs: {ranks}\nRunning warmup...")
    rates = []
    for iteration in range(steps // 10):
        rates.append(10 * size / sum(seconds for _, seconds, _ in train(size, range(10))))
        show(f"Iter #{iteration}: {rates[-1]:.1f} img/sec per CPU")
    mean = sum(rates) / len(rates)
    show(f"Img/sec per CPU: {mean:.1f} +-0.1")
    show(f"Total img/sec on {ranks} CPU(s): {mean * ranks:.1f} +-0.1")


def pytorch_examples(size: int, steps: int) -> None:
    """Print as the imagenet/main.py of PyTorch's examples with --dummy."""
    print("=> creating model 'resnet50'\n=> Dummy data is used!")
    total = 0.0
    for step, seconds, loss in train(size, range(1, steps + 1)):
        total += seconds
        if step % 10 == 1:
            times = f"Time {seconds:6.3f} ({total / step:6.3f})\tData  0.001 ( 0.001)"
            print(f"Epoch: [0][{step:4d}/{steps}]\t{times}\tLoss {loss:.4e} ({loss:.4e})")


def nanogpt(size: int, steps: int) -> None:
    """Print as the train.py of nanoGPT."""
    print("Overriding: block_size = 32\ntokens per iteration will be: 256\ncompiling the model...")
    for step, seconds, loss in train(size, range(steps + 1)):
        print(f"iter {step}: loss {loss:.4f}, time {seconds * 1000:.2f}ms, mfu -100.00%")


if __name__ == "__main__":
    name, size, steps = (*sys.argv[1:], str(NEVER))[:3]
    sys.stdout.reconfigure(line_buffering=True)
    globals()[name](int(size), int(steps))
