"""Excerpts of logs, and lines of tests, as the formats read them."""

from dataclasses import replace
from pathlib import Path

from dlperf_slurm.logs import load_format, read_runs
from dlperf_slurm.logs.lines import split_lines

EXCERPTS = Path(__file__).parent / "published" / "logs"


def split_content(content):
    """The labelled lines of a log's bytes."""
    return list(split_lines(content.splitlines(keepends=True)))


def list_excerpt(name):
    return (EXCERPTS / name).read_text().splitlines()


def read_all(format_name, lines):
    """The readings of all runs in the lines, each of which ends."""
    content = "".join(line + "\n" for line in lines).encode()
    return read_runs(load_format(format_name), split_content(content))


def read_one(format_name, lines):
    (reading,) = read_all(format_name, lines)
    return reading


def publish(format_name, lines, rule=0, **known):
    """The figure of the format's rule, with what a file's name would tell."""
    reading = read_one(format_name, lines)
    identity = replace(reading.identity, **known)
    return load_format(format_name).RULES[rule].compute(reading, identity)


def tag(dealt):
    """(rank, line) -> lines with Open MPI's labels."""
    return [f"[1,{rank}]<stdout>:{line}" for rank, line in dealt]


def deal(lines, is_timed):
    """(rank, line): of lines that `is_timed` matches alike the n-th is rank n's."""
    seen, dealt = {}, []
    for line in lines:
        step, rank = is_timed.match(line), 0
        if step is not None:
            rank = seen[step.group()] = seen.get(step.group(), -1) + 1
        dealt.append((rank, line))
    return dealt
