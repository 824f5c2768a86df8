"""Text of a report page -> the same text with its terms explained on hover."""

import re

from markupsafe import Markup, escape

from dlperf_slurm.contract.topology import parse_topology
from dlperf_slurm.plain_text import count_things

# docs/glossary.md has a row for each of these terms
GLOSSARY = {
    "batch size": "samples per device and step",
    "bs": "batch size: samples per device and step",
    "busy": "share of time in which a device (or the host's CPUs) did any work",
    "efficiency": "speedup divided by the ratio of device counts (weak-scaling efficiency)",
    "imbalance": "median step time of the slowest rank divided by that of the median rank",
    "interval": "range that contains the true median with 95 % confidence",
    "precision": (
        "number format of the computation: fp32, tf32, bf16, fp16, or amp, which is mixed precision"
    ),
    "rank": "process that drives one device",
    "repeat": "independent measurement of the same case, in new processes",
    "speedup": "throughput divided by that on the smallest topology measured",
    "topology": "NnMg: N nodes with M devices each; 2n8g has 16 devices",
    "waiting": "mean share of a step in which ranks wait for the slowest rank",
    "waiting for data": "share of the measured time in which ranks waited for their next batch",
    "warm-up": "steps before the measured ones; their times are not used",
    "window": "all measured steps together",
}
_WORD = re.compile(
    rf"\b({'|'.join(map(re.escape, sorted(GLOSSARY, key=len, reverse=True)))}|\d+n\d+g)\b"
)


def explain(text: str) -> Markup:
    """Escape a text for HTML; the first glossary term in it gets its meaning as a tooltip."""
    match = _WORD.search(text)
    if match is None or not (meaning := explain_word(match[0])):
        return escape(text)
    word = Markup('<abbr title="{}">{}</abbr>').format(meaning, match[0])
    return escape(text[: match.start()]) + word + escape(text[match.end() :])


def explain_topology(text: str) -> Markup:
    """Escape a text for HTML; a topology such as "2n8g" gets its meaning as a tooltip."""
    return explain(text) if re.fullmatch(r"\d+n\d+g", text) else escape(text)


def explain_word(word: str) -> str:
    """Return the meaning of a glossary term or a topology; "" for any other word."""
    if word in GLOSSARY:
        return GLOSSARY[word]
    try:
        topology = parse_topology(word)
    except ValueError:
        return ""
    devices = count_things(topology.devices_per_node, "device")
    each = " each" if topology.nodes > 1 else ""
    return f"{count_things(topology.nodes, 'node')} with {devices}{each}"
