"""What lies beside a record passes the same gate: of its case, and with values that can be."""

import dataclasses
import json
import re

import pytest
from builders import make_case, make_record

from dlperf_slurm.contract.host_noise import (
    HOST_NOISE_FILE,
    CpuUse,
    HostNoise,
    NoiseReport,
    OtherProcess,
)
from dlperf_slurm.contract.json_files import ContractError, write_sidecar
from dlperf_slurm.contract.phases import SCRIPT, Phase
from dlperf_slurm.contract.step_archive import SidecarFile
from dlperf_slurm.jobs.attempts import NO_SIDECARS, Sidecars
from dlperf_slurm.jobs.sidecars import find_sidecar_problem, parse_sidecars

CASE = make_case()
USE = CpuUse(2.0, 4, 0.5, 0.1, 0.0, (OtherProcess("x", 0.1),))
SOUND = NoiseReport(
    CASE.run_id,
    CASE.case_id,
    CASE.repeat,
    CASE.attempt,
    (HostNoise("node1", 1.0, (USE,), (), (USE,)),),
)


def change_window(**changes):
    host = dataclasses.replace(SOUND.hosts[0], window=(dataclasses.replace(USE, **changes),))
    return dataclasses.replace(SOUND, hosts=(host,))


def test_what_was_written_is_read(tmp_path):
    write_sidecar(tmp_path / HOST_NOISE_FILE, SOUND)
    content = (tmp_path / HOST_NOISE_FILE).read_bytes()
    sidecars = parse_sidecars({HOST_NOISE_FILE: SidecarFile(content, HOST_NOISE_FILE)})
    assert sidecars == Sidecars(SOUND)
    assert find_sidecar_problem(sidecars, make_record(CASE)) == ""


def test_record_may_have_nothing_beside_it():
    assert parse_sidecars({}) == NO_SIDECARS
    assert find_sidecar_problem(NO_SIDECARS, make_record(CASE)) == ""


@pytest.mark.parametrize(
    ("noise", "problem"),
    [
        (dataclasses.replace(SOUND, case_id="other"), "case_id is 'other'"),
        (dataclasses.replace(SOUND, repeat=2), "repeat is 2, "),
        (dataclasses.replace(SOUND, hosts=(HostNoise("n9", 1.0),)), "host 'n9'"),
    ],
)
def test_what_contradicts_the_record_is_named(noise, problem):
    found = find_sidecar_problem(Sidecars(noise), make_record(CASE))
    assert found.startswith(f"{HOST_NOISE_FILE}: ")
    assert problem in found


@pytest.mark.parametrize(
    ("noise", "key"),
    [
        (change_window(other_share=1.5), "hosts[0].window[0].other_share is 1.5"),
        (change_window(run_share=float("nan")), "hosts[0].window[0].run_share is nan"),
        (change_window(cpus=0), "hosts[0].window[0].cpus is 0"),
        (dataclasses.replace(SOUND, phases=(Phase(SCRIPT, -1.0),)), "phases[0].seconds is -1.0"),
    ],
)
def test_value_that_cannot_be_is_refused(noise, key):
    content = json.dumps(dataclasses.asdict(noise)).encode()
    with pytest.raises(ContractError, match=re.escape(f"a/host_noise.json: {key}")):
        parse_sidecars({HOST_NOISE_FILE: SidecarFile(content, "a/host_noise.json")})
