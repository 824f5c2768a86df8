"""What a matrix asks for is there at every later stage: each axis, each setting of the protocol.

A stage that forgets one would measure, or name, the default instead, and no figure would show it.
"""

import dataclasses
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from axis_samples import AXIS_SAMPLES, SCRIPT
from builders import make_manifest as make_empty_manifest
from builders import make_record, make_site, read_csv, write_matrix
from report_values import summarize

from dlperf_slurm.config.site import LoadedSite
from dlperf_slurm.contract.axes import DYNAMIC, INFER, Axes
from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.record import Record
from dlperf_slurm.jobs.case_file import read_planned_case
from dlperf_slurm.jobs.manifest import MANIFEST_FILE, PlannedCase, format_manifest
from dlperf_slurm.jobs.plan import PlannedMatrix, make_case, resolve
from dlperf_slurm.jobs.run_directory import CASES_FILE, RunTask, open_run
from dlperf_slurm.jobs.stage import make_manifest
from dlperf_slurm.jobs.task_tables import format_case, list_script_values
from dlperf_slurm.matrix.axes import AXES, AXIS_SPECS
from dlperf_slurm.matrix.expand import MatrixCase, expand_matrix
from dlperf_slurm.matrix.file import read_matrix
from dlperf_slurm.matrix.tables import Protocol, ProtocolOverride, TrainingTable
from dlperf_slurm.matrix.value_types import list_choices
from dlperf_slurm.reports.summarize import Summary
from dlperf_slurm.results.collect import CaseOutcomes, Outcome
from dlperf_slurm.results.comparability import (
    describe_changes,
    find_other_work,
    list_provenance,
    list_work,
)
from dlperf_slurm.results.labels import label_cases

# the same on any Python, and hundreds
pytestmark = pytest.mark.integration

SOURCE_FORMAT = "pytorch_examples"

# the case that each sample differs from, on its axis alone
BASE = {"framework": "pytorch", "topology": "1n1g", "batch_size_per_device": 8}

# other axes, without which one has no meaning
CONTEXTS = {
    "data_workers": {"data": "zmq"},
    "prefetch_batches": {"data": "zmq"},
    "loss_scale": {"precision": "amp-fp16"},
    "output_tokens": {"mode": INFER},
    "prompt_length": {"mode": INFER, "output_tokens": 4},
}

# where an axis is no part of a label, tables tell it by their titles, rows and columns
NOT_IN_LABELS = {"topology", "batch_size_per_device", "precision", "mode", "global_batch_size"}
# what an axis sets besides itself
ALSO_SET = {"global_batch_size": {"batch_size_per_device": AXIS_SAMPLES["global_batch_size"]}}

# of each setting of the protocol a value that is not its default
PROTOCOL: dict[str, Any] = {
    "repeats": 3,
    "warmup_steps": 4,
    "measured_steps": 11,
    "shuffle_seed": 6,
    "seed": 9,
    "batch_size_step": 2,
    "memory_limit_mib_per_device": 5,
    "telemetry_interval_seconds": 0.25,
    "blocks": 2,
    "stall_seconds": 45.5,
    "min_warmup_seconds": 2.5,
    "min_measured_seconds": 7.5,
}
# what the worker does not need to know
NOT_IN_CASE = {"repeats", "blocks", "shuffle_seed"}
IN_SCRIPT = {"warmup_steps", "measured_steps", "seed"}
IN_WORK = {*IN_SCRIPT, "min_warmup_seconds", "min_measured_seconds"} - {"seed"}
IN_SURROUNDINGS = {"seed", "telemetry_interval_seconds"}
TRAINING: dict[str, Any] = {
    "epochs": 5,
    "target_top1": 0.75,
    "learning_rate": 0.125,
    "schedule": "cosine",
    "warmup_epochs": 1.5,
    "mixup_alpha": 0.25,
}


@dataclasses.dataclass(frozen=True)
class Way:
    """One case at each stage, files read back."""

    matrix_case: MatrixCase
    case: Case
    planned: PlannedCase
    script_values: dict[str, object]

    @property
    def record(self) -> Record:
        return make_record(self.case)

    @property
    def outcomes(self) -> CaseOutcomes:
        batch_seconds = np.full((1, 1), 0.5) if self.case.axes.mode == INFER else None
        outcome = Outcome(self.case.case_id, 1, self.record, "", batch_seconds)
        return CaseOutcomes(self.planned, (outcome,))


def read(axes: dict[str, Any], **tables: Any):
    """Read a matrix file with these axes added to BASE."""
    data = {
        "model": {"name": "resnet50"},
        "axes": {**BASE, **axes},
        "scripts": {SCRIPT: {"command": "true", "format": SOURCE_FORMAT}},
        **tables,
    }
    return read_matrix(write_matrix(tomli_w.dumps(data)))


def list_cases(axes: dict[str, Any], **tables: Any) -> tuple[MatrixCase, ...]:
    return expand_matrix(read(axes, **tables)).cases


def follow(axes: dict[str, Any], **tables: Any) -> Way:
    """Return the only case of a matrix at each stage: matrix, worker, manifest, script values."""
    file, site = read(axes, **tables), make_site()
    expansion = expand_matrix(file)
    (matrix_case,) = expansion.cases
    case = make_case(matrix_case, site, "run", repeat=1, attempt=1)
    Path(CASES_FILE).write_text(format_case(case) + "\n", encoding="utf-8")
    task = RunTask("group", 0, f"cases/{case.case_id}/r1/a1", seed=case.seed, case_offset=0)
    plan = resolve(expansion, site, max_array_size=1001)
    manifest = make_manifest(
        "run", PlannedMatrix(file, LoadedSite("tiny", site, {}), plan), ["dlperf-slurm"]
    )
    Path(MANIFEST_FILE).write_text(format_manifest(manifest), encoding="utf-8")
    (planned,) = open_run(Path()).manifest.cases
    return Way(
        matrix_case=matrix_case,
        case=read_planned_case(Path(), task),
        # as if the site and the framework could run them all
        planned=dataclasses.replace(planned, reason=""),
        script_values=(
            {} if matrix_case.axes.has_batch_search else list_script_values(matrix_case, 1, "cpu")
        ),
    )


@cache
def follow_sample(axis: str) -> tuple[Way, Way]:
    """Return the case without an axis's sample, and the one with it."""
    context = CONTEXTS.get(axis, {})
    return follow(context), follow({**context, axis: AXIS_SAMPLES[axis]})


def read_axis(stage: Any, axis: str) -> Any:
    """Return the value of an axis at one stage."""
    return stage[axis] if isinstance(stage, dict) else getattr(stage.axes, axis)


def name_work(one: Way, other: Way) -> set[str]:
    """Return what differs in the work of two cases, by their records."""
    text = find_other_work(list_work([one.record]), list_work([other.record]))
    parts = text.removeprefix("different workload: ").split("; ")
    return {part.split(" ")[0] for part in parts if part}


def test_every_field_is_specified_and_every_axis_is_a_field():
    fields = dataclasses.fields(Axes)
    assert [spec.name for spec in AXIS_SPECS] == [field.name for field in fields]


@pytest.mark.parametrize("axis", AXES)
def test_value_of_an_axis_arrives_at_each_stage_and_no_other_axis_changes(axis):
    ways = follow_sample(axis)
    for stage in ("matrix_case", "case", "planned", "script_values"):
        before, after = ({a: read_axis(getattr(w, stage), a) for a in AXES} for w in ways)
        changed = {name: value for name, value in after.items() if value != before[name]}
        expected = {axis: AXIS_SAMPLES[axis], **ALSO_SET.get(axis, {})}
        if stage == "script_values":
            # templates have the samples of a step under this name
            changed.pop("global_batch_size", None)
            expected.pop("global_batch_size", None)
        assert changed == expected, stage


def test_value_of_an_axis_is_in_the_case_id_of_every_stage():
    ways = [follow_sample(axis)[1] for axis in AXES]
    ids = {way.case.case_id for way in ways}
    assert len(ids) == len(AXES)
    assert follow_sample("framework")[0].case.case_id not in ids
    assert ids == {w.matrix_case.case_id for w in ways} == {w.planned.case_id for w in ways}


@cache
def summarize_samples() -> Summary:
    """Summarize the cases without and with each sample as one run, as a report takes a while."""
    ways = {way.case.case_id: way for axis in AXES for way in follow_sample(axis)}
    return summarize(make_empty_manifest(), [way.outcomes for way in ways.values()])


@pytest.mark.parametrize("axis", AXES)
def test_value_of_an_axis_is_told_by_label_work_and_csv(axis):
    before, after = follow_sample(axis)
    # a script is known by the format of its log
    expected = {"log_format"} if axis == "script" else {axis, *ALSO_SET.get(axis, {})}
    assert name_work(before, after) == expected
    summary = summarize_samples()
    cases = summary.results.cases
    labels = dict(zip(cases.case_id, label_cases(cases)))
    is_same = labels[before.case.case_id] == labels[after.case.case_id]
    assert is_same == (axis in NOT_IN_LABELS)
    lines = {line["case_id"]: line for line in read_csv(summary)}
    assert lines[after.case.case_id][axis] == str(AXIS_SAMPLES[axis])


@pytest.mark.parametrize("axis", AXES)
def test_include_override_and_conditions_know_every_axis(axis):
    context, changes = CONTEXTS.get(axis, {}), {axis: AXIS_SAMPLES[axis]}
    plain, wanted = list_cases(context), list_cases({**context, **changes})
    assert list_cases(context, include=[changes]) == (*plain, *wanted)
    assert list_cases(context, override=[{"when": {"model": "resnet50"}, **changes}]) == wanted
    both = {**context, axis: [read_axis(follow(context).planned, axis), AXIS_SAMPLES[axis]]}
    assert list_cases(both, exclude=[{"when": changes}]) == plain


def test_loss_scale_is_varied_in_every_precision_with_gradients_in_fp16():
    precisions = list_choices("precision")
    cases = list_cases({"precision": precisions, "loss_scale": [DYNAMIC, 128]})
    scaled = [case.axes.precision for case in cases if case.axes.loss_scale == 128]
    assert scaled == [precision for precision in precisions if "fp16" in precision]


@pytest.mark.parametrize(("value", "ladder"), [("max", ()), ("64 -> 32", (64, 32))])
def test_batch_size_to_be_found_arrives(value, ladder):
    way = follow({"batch_size_per_device": value})
    assert (way.case.axes.batch_ladder, way.case.axes.is_largest_batch) == (ladder, not ladder)
    assert way.planned.axes.batch_size_per_device == value
    with pytest.raises(ValueError, match=f"batch_size_per_device is '{value}'"):
        _ = way.case.axes.batch_size


@pytest.mark.parametrize("setting", Protocol.model_fields)
def test_setting_of_the_protocol_arrives_where_it_matters_and_no_other_changes(setting):
    name, value = setting, PROTOCOL[setting]
    before, after = follow({}), follow({}, protocol={setting: value})
    assert value != Protocol.model_fields[setting].default
    expected = {**before.matrix_case.protocol.model_dump(), setting: value}
    assert after.matrix_case.protocol.model_dump() == expected
    told = {setting: value} if setting in IN_SCRIPT else {}
    assert after.script_values == {**before.script_values, **told}
    # a manifest has no step of a search where there is none
    kept = {setting: value} if setting != "batch_size_step" else {}
    assert after.planned.settings == {**before.planned.settings, **kept}
    assert name_work(before, after) == ({setting} & IN_WORK)
    changes = describe_changes(*(list_provenance([way.record]) for way in (before, after)))
    named = {change.split(" ")[0].rpartition(".")[2] for change in changes}
    assert named == ({setting} & IN_SURROUNDINGS)
    if setting == "memory_limit_mib_per_device":
        name, value = "memory_limit_bytes", 5 * 1024 * 1024
    reached = {} if setting in NOT_IN_CASE else {name: value}
    assert after.case == dataclasses.replace(before.case, **reached)


@pytest.mark.parametrize("setting", ProtocolOverride.model_fields)
def test_override_of_the_protocol_arrives(setting):
    override = {"when": {"model": "resnet50"}, "protocol": {setting: PROTOCOL[setting]}}
    assert follow({}, override=[override]) == follow({}, protocol={setting: PROTOCOL[setting]})


@pytest.mark.parametrize("setting", TrainingTable.model_fields)
def test_setting_of_a_training_arrives_and_is_other_work(setting):
    shortest = {"epochs": 3}
    before = follow({}, training=shortest)
    after = follow({}, training={**shortest, setting: TRAINING[setting]})
    expected = dataclasses.replace(before.case.training, **{setting: TRAINING[setting]})
    assert after.case.training == expected != before.case.training
    assert after.planned.epochs == after.case.training.epochs
    assert name_work(before, after) == {"training"}
