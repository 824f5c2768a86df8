"""The quick reader of records makes, and refuses, what the contract's own reader does."""

import copy
import dataclasses
import json
from functools import partial

import pytest
from builders import make_case, make_failed_record, make_rank, make_record

from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.json_files import ContractError, build_dataclass, read_json, write_json
from dlperf_slurm.contract.record import BatchTrial, Epoch, Record
from dlperf_slurm.jobs import quick_reading

CASE = make_case(model_parameters={"layers": 4, "rate": 0.5, "name": "x", "flag": True})
RECORDS = [
    make_record(CASE),
    make_failed_record(),
    make_record(
        batch_trials=(BatchTrial(8, False, 1 << 20, 1.5),),
        ranks=(make_rank(), make_rank(1, device_name="a")),
        epochs=(Epoch(1, 1.5, 2.5, 0.25, 0.5, 0.5),),
    ),
]
ODD = (None, True, 1, 1.0, "1", [], ["a"], {}, {"a": 1}, {"a": []}, [1], [{}])


def encode(value):
    return json.loads(json.dumps(dataclasses.asdict(value)))


def list_places(value, place=()):
    yield place
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items if isinstance(value, (dict, list)) else ():
        if isinstance(item, (dict, list)):
            yield from list_places(item, (*place, key))
        else:
            yield (*place, key)


def build(builder, kind, data):
    """What a builder makes of it, with the types of its values, or what it says."""
    try:
        return repr(builder(kind, copy.deepcopy(data), "where"))
    except ContractError as error:
        return f"error: {error}"


@pytest.mark.parametrize("record", RECORDS)
def test_records_are_equal(record):
    built = quick_reading.build_quickly(Record, encode(record), "where")
    assert built == record
    assert hash(built.case.axes) == hash(record.case.axes)


def test_what_fits_is_built_without_the_contracts_own_builder(monkeypatch):
    monkeypatch.setattr(quick_reading, "build_dataclass", None)
    for record in RECORDS:
        assert quick_reading.build_quickly(Record, encode(record), "where") == record


@pytest.mark.parametrize(("kind", "value"), [(Case, CASE), *((Record, r) for r in RECORDS)])
def test_values_of_any_other_type_are_told_in_the_same_words(kind, value):
    data = encode(value)
    outcomes = set()
    for place in list_places(data):
        if not place:
            continue
        for odd in (*ODD, "gone", "more"):
            damaged = copy.deepcopy(data)
            within = damaged
            for key in place[:-1]:
                within = within[key]
            if odd == "gone":
                del within[place[-1]]
            elif odd == "more" and isinstance(within, dict):
                within["more"] = 1
            else:
                within[place[-1]] = odd
            expected = build(partial(build_dataclass, is_complete=True), kind, damaged)
            assert build(quick_reading.build_quickly, kind, damaged) == expected
            outcomes.add(expected.startswith("error: "))
    assert outcomes == {True, False}


@pytest.mark.parametrize("text", ["", "[]", "{", "3", '{"schema_version": 9}', '"\\ud800"'])
def test_files_that_are_no_record_are_told_in_the_same_words(tmp_path, text):
    path = tmp_path / "record.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ContractError) as one:
        read_json(path, Record, root=tmp_path)
    with pytest.raises(ContractError) as other:
        quick_reading.read_json(path, Record, tmp_path)
    assert str(one.value) == str(other.value)


def test_a_file_that_was_written_is_read(tmp_path):
    write_json(tmp_path / "record.json", RECORDS[0])
    assert quick_reading.read_json(tmp_path / "record.json", Record, tmp_path) == RECORDS[0]
