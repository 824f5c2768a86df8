"""Sidecar files beside a record -> their contents, or where they contradict the record.

They have host noise, peaks of devices, and token times.
"""

from collections.abc import Mapping, Set
from typing import Union

from dlperf_slurm.contract.host_noise import HOST_NOISE_FILE, NoiseReport
from dlperf_slurm.contract.peaks import NUMBER_FORMATS, PEAKS_FILE, Peaks
from dlperf_slurm.contract.record import TOKEN_SECONDS_FILE, Record
from dlperf_slurm.contract.step_archive import SidecarFile
from dlperf_slurm.files.arrays import parse_array
from dlperf_slurm.jobs.attempts import Sidecars
from dlperf_slurm.jobs.decode import decode


def parse_sidecars(details: Mapping[str, SidecarFile]) -> Sidecars:
    """Parse the files beside a record, given by file name; raises FileProblem if invalid."""
    noise, peaks = details.get(HOST_NOISE_FILE), details.get(PEAKS_FILE)
    tokens = details.get(TOKEN_SECONDS_FILE)
    return Sidecars(
        None if noise is None else decode(NoiseReport, *noise),
        None if peaks is None else decode(Peaks, *peaks),
        None if tokens is None else parse_array(*tokens),
    )


def find_sidecar_problem(sidecars: Sidecars, record: Record) -> str:
    """Return which file and field beside a record contradict the record; "" if none does."""
    if sidecars.noise is not None:
        hosts = {one.host for one in sidecars.noise.hosts}
        problem = _find_problem(sidecars.noise, hosts, record)
        if problem:
            return f"{HOST_NOISE_FILE}: {problem}"
    if sidecars.peaks is not None:
        hosts = {one.host for one in sidecars.peaks.devices}
        problem = _find_problem(sidecars.peaks, hosts, record)
        numbers = NUMBER_FORMATS.get(record.case.axes.precision)
        if not problem and sidecars.peaks.number_format != numbers:
            found = sidecars.peaks.number_format
            problem = f"number_format is {found!r:.80}, but the record has precision {numbers!r}"
        if problem:
            return f"{PEAKS_FILE}: {problem}"
    return ""


def _find_problem(told: Union[NoiseReport, Peaks], hosts: Set[str], record: Record) -> str:
    """Return where host noise or peaks are of another attempt, or of other hosts, than the record.

    "" if nowhere. `told` is the content of the file, `hosts` are the hosts that it names.
    """
    for name in ("run_id", "case_id", "repeat", "attempt"):
        found, expected = getattr(told, name), getattr(record.case, name)
        if found != expected:
            return f"{name} is {found!r:.80}, but the record has {expected!r}"
    strangers = hosts - {rank.host for rank in record.ranks}
    if strangers:
        return f"names host {min(strangers)!r:.80}, but no rank ran there"
    return ""
