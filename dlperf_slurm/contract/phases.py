"""The consecutive phases of one execution of a job script: names, meanings, durations on rank 0."""

import dataclasses

SCRIPT = "script"
LAUNCHER = "launcher"
PYTHON = "python"
RANKS = "ranks"
LOOK = "look"
FRAMEWORK = "framework"
SESSION = "session"
SAMPLER = "sampler"
FIRST_STEP = "first_step"
WARMUP = "warmup"
WINDOW = "window"
GATHER = "gather"

# in the order of time
MEANINGS = {
    SCRIPT: "from the start of the array task in the job script to the call of the launcher: "
    "setup, modules, preparation of the nodes",
    LAUNCHER: "from the call of the launcher until the Python of rank 0 starts, including the "
    "start of a container",
    PYTHON: "from the start of rank 0's Python until the benchmark code runs in it",
    RANKS: "from the start of the benchmark code until all ranks have connected to each other",
    LOOK: "placement of ranks, checks for other load on the hosts, and any measurement of the "
    "device's peak rates",
    FRAMEWORK: "import of Python modules, mostly those of the framework",
    SESSION: "preparation of the framework after its import: rendezvous, network, model, weights "
    "and batch",
    SAMPLER: "waiting for the start of the telemetry process",
    FIRST_STEP: "the first warm-up step, with compilation",
    WARMUP: "the warm-up steps after the first, and then waiting for the other ranks",
    WINDOW: "the measured steps; for training to an accuracy, the whole training",
    GATHER: "gathering the results of all ranks, measuring the network, and writing the record",
}
TO_FIRST_STEP = tuple(MEANINGS)[: tuple(MEANINGS).index(FIRST_STEP) + 1]


@dataclasses.dataclass(frozen=True)
class Phase:
    """A phase of one execution of an attempt's job script, and its duration on rank 0."""

    name: str
    seconds: float
