"""Files of the contract: each has a schema version and all of its keys, or is refused by name."""

import json
import re

import pytest
from builders import make_case, make_failed_record, make_record

from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.json_files import SCHEMA_VERSION, ContractError, read_json, write_json
from dlperf_slurm.contract.parity import Difference, Parity
from dlperf_slurm.contract.record import Failure, Record
from dlperf_slurm.errors import InputError
from dlperf_slurm.jobs.case_file import read_planned_case
from dlperf_slurm.jobs.run_directory import CASES_FILE, open_run

SAME = Difference(0.0, "w")
VALUES = {
    Case: make_case(),
    Record: make_record(),
    Failure: make_failed_record().failures[0],
    Parity: Parity(make_case(), 1, 1.0, 1.0, 1.0, 1.0, 1.0, SAME, SAME, (SAME,), {}, "CPU", "ab"),
}
OTHER_VERSIONS = [0, SCHEMA_VERSION + 1, None, "1", True, 1.0, [1]]


def edit(path, change):
    data = json.loads(path.read_text(encoding="utf-8"))
    change(data)
    path.write_text(json.dumps(data), encoding="utf-8")


def assert_is_refused(message, path, version):
    """Assert that the message names the file, both versions, and what to do."""
    expected = f"{path}.*: schema_version is {re.escape(repr(version))}, .* {SCHEMA_VERSION};"
    assert re.search(expected, message)
    assert message.endswith("or measure again")


@pytest.mark.parametrize("kind", VALUES)
def test_file_has_its_version_and_all_keys_or_is_refused_by_name(tmp_path, kind):
    path = tmp_path / "a.json"
    write_json(path, VALUES[kind])
    assert read_json(path, kind) == VALUES[kind]
    data = json.loads(path.read_text(encoding="utf-8"))
    for name in data:
        write_json(path, VALUES[kind])
        edit(path, lambda data, name=name: data.pop(name))
        with pytest.raises(ContractError, match=f"{path}: {name} is "):
            read_json(path, kind)
    for version in OTHER_VERSIONS:
        write_json(path, VALUES[kind])
        edit(path, lambda data, version=version: data.update(schema_version=version))
        with pytest.raises(ContractError) as caught:
            read_json(path, kind)
        assert_is_refused(str(caught.value), path, version)


def test_manifest_or_case_of_a_run_of_another_version_is_refused(staged_run):
    task = staged_run.read_all_tasks()[0]
    manifest, cases = (staged_run.path / name for name in ("manifest.json", CASES_FILE))
    text = cases.read_text(encoding="utf-8")
    cases.write_text(text.replace('"schema_version": 1', '"schema_version": 9'), encoding="utf-8")
    edit(manifest, lambda data: data.update(schema_version=2))
    for path, version, error, read in (
        (cases, 9, ContractError, lambda: read_planned_case(staged_run.path, task)),
        (manifest, 2, InputError, lambda: open_run(staged_run.path)),
    ):
        with pytest.raises(error) as caught:
            read()
        assert_is_refused(str(caught.value), path, version)
