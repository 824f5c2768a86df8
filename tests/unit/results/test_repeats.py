"""Facts of one repeat that a column of the repeats shows."""

import dataclasses

import pytest
from builders import make_case, make_record

from dlperf_slurm.results.repeats import describe_hardware


@pytest.mark.parametrize(
    ("device", "platform", "text"),
    [
        ("cpu", {"cpu_model": "AMD EPYC", "cpu_sockets": "1"}, "8 ranks on 2x AMD EPYC, 2 nodes"),
        ("cpu", {"cpu_model": "AMD EPYC"}, "8 ranks on AMD EPYC, 2 nodes"),
        ("cuda", {"cpu_model": "AMD EPYC"}, "8x NVIDIA H200, 2 nodes"),
    ],
)
def test_ranks_on_cpus_are_not_counted_as_cpus(device, platform, text):
    case = dataclasses.replace(make_case(topology="2n4g"), device=device)
    record = make_record(case, platform=platform)
    ranks = [dataclasses.replace(rank, device_name="NVIDIA H200") for rank in record.ranks]
    assert describe_hardware(dataclasses.replace(record, ranks=tuple(ranks))) == text
