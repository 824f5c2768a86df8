"""Simulated ranks -> how often a slow host or device is reported, if there is one and if not.

A run has seven repeats on four hosts with two devices each; times vary by 3 % from repeat to repeat
and by 2 % from step to step. No framework runs here.
"""

import random
import statistics

from dlperf_slurm.stats.stragglers import Machine, Repeat, find_slow_machines

SEED = 2020
RUNS = 300
REPEATS, HOSTS, DEVICES, STEPS = 7, 4, 2, 20
EXCESSES = (0.0, 0.02, 0.03, 0.05)
SLOW_HOST = "host3"


def draw_repeat(generator: random.Random, excess: float) -> dict[Machine, dict[Machine, float]]:
    """Draw the median step of each device, by host; those of the slow host take longer."""
    level = generator.lognormvariate(0, 0.03)
    hosts: dict[Machine, dict[Machine, float]] = {}
    for host in range(1, HOSTS + 1):
        name = f"host{host}"
        factor = level * (1 + excess if name == SLOW_HOST else 1)
        hosts[Machine(name)] = {
            Machine(name, device): statistics.median(
                factor * generator.lognormvariate(0, 0.02) for _ in range(STEPS)
            )
            for device in range(DEVICES)
        }
    return hosts


def find_named(generator: random.Random, excess: float) -> set[str]:
    """Return the hosts and devices that one simulated run reports as slow."""
    repeats = [draw_repeat(generator, excess) for _ in range(REPEATS)]
    by_host: list[Repeat] = [
        {host: statistics.median(devices.values()) for host, devices in hosts.items()}
        for hosts in repeats
    ]
    by_device = [devices for hosts in repeats for devices in hosts.values()]
    found = (*find_slow_machines(by_host), *find_slow_machines(by_device))
    return {str(slow.machine) for slow in found}


def main() -> None:
    """Print a line for each slowness of the slow host."""
    print(f"seed {SEED}, {RUNS} runs each")
    for excess in EXCESSES:
        generator = random.Random(SEED)
        named = [find_named(generator, excess) for _ in range(RUNS)]
        right = sum(SLOW_HOST in names for names in named) if excess else 0
        wrong = sum(bool(names - ({SLOW_HOST} if excess else set())) for names in named)
        print(f"{excess:.0%} slower: named in {right / RUNS:.1%}, others in {wrong / RUNS:.1%}")


if __name__ == "__main__":
    main()
