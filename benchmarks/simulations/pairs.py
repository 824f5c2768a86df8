"""Simulated sweeps over pairs -> how often slow nodes and links are named, and how often others.

Noise of 1 % from repeat to repeat and of 0.5 % from link to link; all nodes drift by 1 % from round
to round. Noise is normal, or Student's t with 3 degrees of freedom. No framework runs here.
"""

import numpy

from dlperf_slurm.jobs.grouping import make_rounds
from dlperf_slurm.stats import slow_nodes
from dlperf_slurm.stats.pair_effects import compute_pair_effects

SEED = 7
NOISE = 0.01
LINK_NOISE = 0.005
DRIFT = 0.01
LEAST_EFFECT = 0.02
EFFECTS = (0.05, 0.10)
# nodes -> numbers of rounds
ROUNDS = {4: (3,), 8: (7,), 16: (5, 15), 64: (7,)}
TRIALS = {4: 100, 8: 100, 16: 100, 64: 20}
# fewer draws than those of `nodes`; enough for as many links
DRAWS = {4: 20_000, 8: 20_000, 16: 20_000, 64: 100_000}


def draw_normal(random, shape):
    return random.standard_normal(shape)


def draw_heavy_tails(random, shape):
    return random.standard_t(3, shape) / numpy.sqrt(3)


KINDS = {"normal": draw_normal, "heavy tails": draw_heavy_tails}


def simulate(random, draw, nodes, rounds, blocks, effect, is_node):
    """Return the slow node or link as (kind, index), and the named ones as a set of them."""
    chosen = random.permutation(nodes - 1)[:rounds]
    plan = make_rounds([str(node) for node in range(nodes)])
    pairs = [(tuple(map(int, pair.split(","))), turn) for turn in chosen for pair in plan[turn]]
    drift = DRIFT * random.standard_normal(nodes)
    logs = NOISE * draw(random, (len(pairs), blocks))
    logs += LINK_NOISE * random.standard_normal((len(pairs), 1))
    logs += numpy.array([drift[turn] for _, turn in pairs])[:, None]
    slow = int(random.integers(nodes if is_node else len(pairs)))
    for index, (pair, _) in enumerate(pairs):
        if slow in pair if is_node else slow == index:
            logs[index] += numpy.log(1 - effect)
    found = compute_pair_effects(*zip(*pairs), [numpy.exp(logs)], LEAST_EFFECT)
    named = {
        (kind, index)
        for kind, (effects,) in zip(("node", "link"), found)
        for index, one in enumerate(effects)
        if one.is_slow(LEAST_EFFECT)
    }
    return ("node" if is_node else "link", slow), named


def count_named(random, draw, nodes, *settings):
    """Return the shares of sweeps that name the slow one, another node, and another link."""
    slow_nodes._DRAWS = slow_nodes._MAX_DRAWS = DRAWS[nodes]
    hits, wrong_nodes, wrong_links = 0, 0, 0
    for _ in range(TRIALS[nodes]):
        slow, named = simulate(random, draw, nodes, *settings)
        hits += slow in named
        wrong_nodes += any(kind == "node" for kind, _ in named - {slow})
        wrong_links += any(kind == "link" for kind, _ in named - {slow})
    return tuple(count / TRIALS[nodes] for count in (hits, wrong_nodes, wrong_links))


def main():
    print(
        "| noise | nodes | rounds | blocks | none slow: a node, a link named "
        "| slow node of 5 % named | of 10 % | slow link of 5 % named | of 10 % "
        "| another node, another link named, at most |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    for kind, draw in KINDS.items():
        for nodes, counts in ROUNDS.items():
            for rounds in counts:
                for blocks in (3, 5):
                    # a row of its own can be repeated alone
                    random = numpy.random.default_rng([SEED, nodes, rounds, blocks])
                    settings = (random, draw, nodes, rounds, blocks)
                    _, *level = count_named(*settings, 0.0, True)
                    found = [
                        count_named(*settings, effect, is_node)
                        for is_node in (True, False)
                        for effect in EFFECTS
                    ]
                    shares = [f"{share:.0%}" for share, *_ in found]
                    wrong = [max(one[place] for one in found) for place in (1, 2)]
                    pairs = [f"{a:.1%}, {b:.1%}" for a, b in (level, wrong)]
                    row = [kind, nodes, rounds, blocks, pairs[0], *shares, pairs[1]]
                    print("|", " | ".join(map(str, row)), "|", flush=True)


if __name__ == "__main__":
    main()
