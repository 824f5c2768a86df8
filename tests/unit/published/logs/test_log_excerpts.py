"""Excerpts of logs in formats of which no whole log is at hand: what is read from them."""

from dataclasses import replace

import pytest
from log_excerpts import EXCERPTS, LOGS, UNTOLD, split_content
from published.logs.test_trainer_formats import LOGS as TRAINER_LOGS
from reference_logs import FOLDER, list_reference_logs, read_published_rows

from dlperf_slurm.logs import (
    compute_samples_per_s,
    find_formats,
    list_formats,
    load_format,
    read_runs,
)
from dlperf_slurm.logs.lines import read_lines

# the same on any Python, and hundreds
pytestmark = pytest.mark.slow


def _read(format_name, content):
    return read_runs(load_format(format_name), split_content(content))


def _read_figure(name, content):
    """(samples/s, problem) of a log that is to hold one run; no samples/s with a problem."""
    format_name = name.split("/")[0]
    (reading,) = _read(format_name, content)
    if reading.problem:
        return None, reading.problem
    expected = LOGS[name]
    identity = reading.identity
    identity = replace(
        identity,
        devices=identity.devices or expected.devices,
        batch_size_per_device=identity.batch_size_per_device or expected.batch_size_per_device,
    )
    return compute_samples_per_s(reading.windows, identity), ""


def _content(name):
    return (EXCERPTS / name).read_bytes()


@pytest.fixture(params=sorted(LOGS))
def name(request):
    return request.param


def test_every_format_has_a_log_with_its_expected_figure():
    published = {path for row in read_published_rows() for path in FOLDER.glob(row.log)}
    claims = [find_formats(read_lines(path)) for path in published & set(list_reference_logs())]
    covered = {name.split("/")[0] for name in LOGS}.union(TRAINER_LOGS, *claims)
    assert [name for name in list_formats() if name not in covered] == []


def test_every_excerpt_has_its_expected_figure():
    assert {path.relative_to(EXCERPTS).as_posix() for path in EXCERPTS.rglob("*.log")} == set(LOGS)


def test_one_format_claims_the_excerpt(name):
    assert find_formats(split_content(_content(name))) == [name.split("/")[0]]


def test_throughput_is_warm_samples_over_their_time(name):
    samples_per_s, problem = _read_figure(name, _content(name))
    assert problem == ""
    assert samples_per_s == pytest.approx(LOGS[name].samples_per_s, rel=1e-8)


def test_identity_is_what_the_log_tells(name):
    format_name = name.split("/")[0]
    (reading,) = _read(format_name, _content(name))
    expected = LOGS[name]
    untold = (0,) if name.startswith(UNTOLD) else ()
    assert reading.identity.devices in (expected.devices, *untold)
    assert reading.identity.batch_size_per_device in (expected.batch_size_per_device, *untold)


def test_an_empty_log_has_no_timed_step(name):
    (reading,) = _read(name.split("/")[0], b"")
    assert reading.problem == "the log contains no timed step" or "missing" in reading.problem
    assert reading.windows == ()


def test_no_log_of_another_format_is_taken_for_one_of_these_formats():
    own = {name.split("/")[0] for name in LOGS}
    logs = [path for path in FOLDER.rglob("*") if path.is_file() and path.suffix != ".csv"]
    assert logs, f"{FOLDER} holds no logs"
    claims = {str(path): own & set(find_formats(read_lines(path))) for path in logs}
    assert {path: names for path, names in claims.items() if names} == {}
