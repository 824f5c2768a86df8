"""The protocol of each case in the frame: what a manifest tells, or else its records, or nobody."""

from dataclasses import replace

import pytest
from builders import make_axes, make_case, make_planned_case, make_record
from pydantic import ValidationError

from dlperf_slurm.contract.axes import LARGEST
from dlperf_slurm.matrix.settings import (
    LEAST_VALUES,
    OWN_SETTINGS,
    find_least_seconds,
    list_settings,
)
from dlperf_slurm.matrix.tables import Protocol
from dlperf_slurm.results.case_columns import CASES
from dlperf_slurm.results.cases import analyze
from dlperf_slurm.results.collect import CaseOutcomes, Outcome
from dlperf_slurm.results.columns import list_records

LEAST = {"min_warmup_seconds", "min_measured_seconds"}
LIMITED = Protocol(memory_limit_mib_per_device=5, stall_seconds=45.5, **dict.fromkeys(LEAST, 2.0))


@pytest.mark.parametrize("setting", Protocol.model_fields)
def test_manifest_may_have_the_values_that_a_matrix_may_have(setting):
    if setting in OWN_SETTINGS:
        return
    Protocol(**{setting: LEAST_VALUES[setting]})
    with pytest.raises(ValidationError):
        Protocol(**{setting: LEAST_VALUES[setting] - 1})


def find_values(planned):
    """Return the settings in the columns of a case with a record, without missing ones."""
    outcome = Outcome(planned.case_id, 1, make_record(make_case()), "")
    (row,) = list_records(analyze([CaseOutcomes(planned, (outcome,))]).case_columns)
    return {name: row[name] for name in Protocol.model_fields if row[name] is not None}


def test_every_setting_is_a_column_of_its_own_in_the_order_of_the_protocol():
    names = [column.name for column in CASES]
    assert [name for name in names if name in Protocol.model_fields] == [*Protocol.model_fields]
    assert len({*names}) == len(names)


@pytest.mark.parametrize(
    ("changes", "unused"),
    [
        ({"batch_size": LARGEST}, set()),
        ({"batch_size": 8}, {"batch_size_step"}),
        ({"batch_size": "64 -> 32"}, {"batch_size_step"}),
        ({"data": "host"}, {"batch_size_step"}),
        ({"epochs": 2}, {*LEAST, "batch_size_step", "warmup_steps", "measured_steps"}),
        ({"data": "pipeline"}, {*LEAST, "batch_size_step"}),
        (
            {"script": "theirs"},
            {
                *LEAST,
                *("batch_size_step", "memory_limit_mib_per_device"),
                *("telemetry_interval_seconds", "stall_seconds"),
            },
        ),
    ],
)
def test_setting_that_a_case_has_no_use_for_is_not_told(changes, unused):
    values = {"batch_size": 8, "epochs": 0, **changes}
    batch_size, epochs = values.pop("batch_size"), values.pop("epochs")
    axes = replace(make_axes(), batch_size_per_device=batch_size, **values)
    assert {*Protocol.model_fields} - {*list_settings(LIMITED, axes, epochs)} == unused
    least = find_least_seconds(LIMITED, axes, epochs)
    assert {name for name, seconds in least.items() if not seconds} == unused & LEAST


def test_setting_that_is_left_out_is_not_told():
    without = {*Protocol.model_fields} - {*list_settings(Protocol(), make_axes(), 0)}
    assert without == {"batch_size_step", "memory_limit_mib_per_device", "stall_seconds"}


@pytest.mark.parametrize("protocol", [{"measured_steps": 50, "seed": 4}, {}])
def test_manifest_counts_and_not_the_records(protocol):
    """An import tells nothing; its record makes settings up."""
    values = find_values(make_planned_case(protocol=protocol))
    assert values == {"repeats": 3, "blocks": 1, **protocol}
