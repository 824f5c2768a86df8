"""Energy of whole nodes from Cray's counters or a site's command -> power over the window."""

import math
import time

import pytest

from dlperf_slurm.contract.case import ENERGY_VARIABLE
from dlperf_slurm.contract.record import HOST, NODE
from dlperf_slurm.worker.telemetry import sources
from dlperf_slurm.worker.telemetry.series import (
    ENERGY,
    POWER,
    SECONDS,
    DeviceSeries,
    HostSamples,
    summarize_samples,
)
from dlperf_slurm.worker.telemetry.sources import CommandSource, open_host


def take(source, count):
    """Sample a source until it has this many values; return them with their keys."""
    found, deadline = [], time.monotonic() + 30
    while len(found) < count and time.monotonic() < deadline:
        found += [(key, value) for key, value in source.read().items() if value == value]
        time.sleep(0.02)
    return found


def test_cray_counter_is_a_device_beside_the_host(tmp_path):
    folder = tmp_path / "sys/cray/pm_counters"
    folder.mkdir(parents=True)
    (folder / "energy").write_text("214527 J 1571234567890 us\n")
    node = [one for one in open_host({}, tmp_path) if one.device != HOST]
    assert [(one.device, one.read()) for one in node] == [(NODE, {ENERGY: 214527.0})]
    (folder / "energy").unlink()
    assert math.isnan(node[0].read()[ENERGY])
    assert [one for one in open_host({}, tmp_path) if one.device == NODE] == []


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("350 W", (POWER, 350.0)),
        ("    Instantaneous power reading:   412.5 Watts", (POWER, 412.5)),
        ("5120 J", (ENERGY, 5120.0)),
        ("7 sensors, 99 joules", (ENERGY, 99.0)),
    ],
)
def test_command_of_the_site_tells_power_or_energy(words, expected, tmp_path):
    (source,) = (one for one in open_host({ENERGY_VARIABLE: f"echo '{words}'"}, tmp_path)
                 if one.device == NODE)  # fmt: skip
    assert take(source, 1) == [expected]


@pytest.mark.parametrize("command", ["exit 1", "echo 350", "no-such-program"])
def test_command_that_tells_no_amount_is_unknown(command, monkeypatch):
    monkeypatch.setattr(sources, "COMMAND_SECONDS", 0.05)
    source = CommandSource(command)
    deadline = time.monotonic() + 1
    while time.monotonic() < deadline:
        assert all(map(math.isnan, source.read().values()))
        time.sleep(0.02)


def test_command_that_hangs_is_ended_and_holds_up_no_sample(monkeypatch, tmp_path):
    monkeypatch.setattr(sources, "COMMAND_SECONDS", 1.0)
    first = tmp_path / "first"
    source = CommandSource(f"test -e {first} && echo 9 W || {{ touch {first}; sleep 60 | cat; }}")
    began = time.monotonic()
    source.read()
    assert time.monotonic() - began < 5
    assert take(source, 1) == [(POWER, 9.0)]


def test_amount_of_before_the_window_is_not_one_of_it(monkeypatch):
    monkeypatch.setattr(sources, "COMMAND_SECONDS", 0.5)
    source = CommandSource("date +%s%N | sed 's/$/ J/'")
    source.read()
    time.sleep(1.0)
    began = time.time_ns()
    ((_, printed_at),) = take(source, 1)
    assert printed_at > began


def test_power_is_the_growth_of_the_counter_over_time():
    series = DeviceSeries(NODE, "node", {SECONDS: [0.0, 1.0, 5.0], ENERGY: [10.0, math.nan, 110.0]})
    (summary,) = summarize_samples([HostSamples("n1", series=(series,))])
    assert (summary.device, summary.energy_joules, summary.mean_power_watts) == (NODE, 100.0, 20.0)
