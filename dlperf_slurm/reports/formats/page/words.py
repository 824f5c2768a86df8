"""The tool's own words in a page -> the same words with what they mean, where they stand."""

import re

from markupsafe import Markup, escape

from dlperf_slurm.contract.topology import parse_topology
from dlperf_slurm.plain_text import count_things

GLOSSARY = {
    "batch size": "samples per device and step",
    "bs": "batch size: samples per device and step",
    "busy": "the share of time in which a device (or the hosts' CPUs) did any work",
    "efficiency": "the throughput of a device over that on the smallest topology measured",
    "imbalance": "the slowest rank's median step over the median rank's",
    "interval": "bounds that hold the true median with 95 % confidence",
    "precision": "the numbers that are computed with: fp32, tf32, or amp, which mixes them",
    "rank": "a process, which has one device",
    "repeat": "an independent measurement of the same case, in processes of its own",
    "speedup": "the throughput over that of the smallest topology measured",
    "topology": "NnMg: N nodes with M devices each; 2n8g are 16 devices",
    "waiting": "the share of a step that ranks wait for the slowest of them, on average",
    "waiting for data": "the share of the window in which ranks waited for their next batch",
    "warm-up": "the steps before the window, which are not measured",
    "window": "the measured steps together",
}
_WORD = re.compile(
    rf"\b({'|'.join(map(re.escape, sorted(GLOSSARY, key=len, reverse=True)))}|\d+n\d+g)\b"
)


def explain(text: str) -> Markup:
    """The text, escaped, with the first of the glossary's words in it explained."""
    match = _WORD.search(text)
    meaning = "" if match is None else explain_word(match[0])
    if match is None or not meaning:
        return escape(text)
    word = Markup('<abbr title="{}">{}</abbr>').format(meaning, match[0])
    return escape(text[: match.start()]) + word + escape(text[match.end() :])


def explain_topology(text: str) -> Markup:
    """The text, escaped, explained where all of it is a topology."""
    return explain(text) if re.fullmatch(r"\d+n\d+g", text) else escape(text)


def explain_word(word: str) -> str:
    """What a word of the glossary or a topology means; empty for any other."""
    if word in GLOSSARY:
        return GLOSSARY[word]
    try:
        topology = parse_topology(word)
    except ValueError:
        return ""
    devices = count_things(topology.devices_per_node, "device")
    each = " each" if topology.nodes > 1 else ""
    return f"{count_things(topology.nodes, 'node')} with {devices}{each}"
