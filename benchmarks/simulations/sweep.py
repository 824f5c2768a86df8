"""Simulated sweeps -> how often a slow node is named, and how often one that is not slow.

Noise of 1 % from repeat to repeat: normal, Student's t with 3 degrees of freedom, or normal with
one repeat in 20 that stalls by up to 5 %. All nodes drift by 3 % from block to block. No framework
runs here.
"""

import numpy

from dlperf_slurm.stats import slow_nodes
from dlperf_slurm.stats.slow_nodes import compute_node_effects

SEED = 7
NOISE = 0.01
DRIFT = 0.03
LEAST_EFFECT = 0.02
EFFECTS = (0.02, 0.05, 0.10)
TRIALS = {4: 200, 16: 200, 256: 40}
# a tenth of the draws of `nodes`, which is enough for 256 tests
DRAWS = 20_000


def draw_normal(random, shape):
    return NOISE * random.standard_normal(shape)


def draw_heavy_tails(random, shape):
    return NOISE * random.standard_t(3, shape) / numpy.sqrt(3)


def draw_stalls(random, shape):
    stalls = (random.random(shape) < 0.05) * random.uniform(0, 0.05, shape)
    return 0.7 * NOISE * random.standard_normal(shape) - stalls


KINDS = {"normal": draw_normal, "heavy tails": draw_heavy_tails, "stalls": draw_stalls}


def count_named(random, draw, nodes, blocks, slow, effect):
    """Return the share of slow nodes that are named, and of sweeps that name another one."""
    hits, wrong = 0, 0
    for trial in range(TRIALS[nodes]):
        logs = draw(random, (nodes, blocks)) + DRIFT * random.standard_normal(blocks)
        logs[:slow] += numpy.log(1 - effect)
        (effects,) = compute_node_effects([numpy.exp(logs)], LEAST_EFFECT, seed=trial)
        named = [node for node, one in enumerate(effects) if one.is_slow(LEAST_EFFECT)]
        hits += sum(node < slow for node in named)
        wrong += any(node >= slow for node in named)
    return hits / max(1, slow) / TRIALS[nodes], wrong / TRIALS[nodes]


def main():
    slow_nodes._DRAWS = DRAWS
    random = numpy.random.default_rng(SEED)
    print(
        "| noise | nodes | blocks | none slow: any named | slow nodes | named of 2 % | of 5 % |",
        end="",
    )
    print(" of 10 % | another named, at most |")
    print("|---|---|---|---|---|---|---|---|---|")
    for kind, draw in KINDS.items():
        for nodes in TRIALS:
            for blocks in (3, 5, 9):
                level = count_named(random, draw, nodes, blocks, 0, 0.0)[1]
                for slow in sorted({1, 2, max(1, nodes // 10)}):
                    found = [count_named(random, draw, nodes, blocks, slow, e) for e in EFFECTS]
                    powers = " | ".join(f"{share:.0%}" for share, _ in found)
                    wrong = max(share for _, share in found)
                    row = [kind, nodes, blocks, f"{level:.1%}", slow, powers, f"{wrong:.1%}"]
                    print("|", " | ".join(map(str, row)), "|", flush=True)


if __name__ == "__main__":
    main()
