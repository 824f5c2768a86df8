"""The consecutive phases of a start: names, meanings, and durations on rank 0."""

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
    SCRIPT: "from the script's beginning with the array task to its call of the launcher: setup, "
    "modules, making the nodes ready",
    LAUNCHER: "from there until the Python of rank 0 starts: the launcher, and a container's start",
    PYTHON: "from there until that has imported the worker",
    RANKS: "until all ranks have found each other",
    LOOK: "placement, the look at the machine, and the device's peak where it is measured",
    FRAMEWORK: "import statements while the session is built, almost all of them the framework's",
    SESSION: "the rest of that: the framework's own rendezvous, network, weights and batch",
    SAMPLER: "waiting for the sampling process, which has started beside the session",
    FIRST_STEP: "the first step of the warm-up, with what is compiled in it",
    WARMUP: "the rest of the warm-up, and waiting for the other ranks at its end",
    WINDOW: "the measured steps; a training to accuracy as a whole",
    GATHER: "bringing the figures of all ranks together, the peaks of the network, and writing",
}
TO_FIRST_STEP = tuple(MEANINGS)[: tuple(MEANINGS).index(FIRST_STEP) + 1]


@dataclasses.dataclass(frozen=True)
class Phase:
    """A phase of a start (a key of `MEANINGS`), and its duration on rank 0."""

    name: str
    seconds: float
