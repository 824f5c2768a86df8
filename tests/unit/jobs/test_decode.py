"""JSON of a run directory is decoded whole, with values that can be, or refused by file and key."""

import copy
import dataclasses
import json
import math
import os
import typing

import pytest
from builders import make_case, make_failed_record, make_record
from outcome_builders import make_telemetry

from dlperf_slurm.contract.case import Case
from dlperf_slurm.contract.host_noise import NoiseReport
from dlperf_slurm.contract.json_files import SCHEMA_VERSION, read_json, write_json
from dlperf_slurm.contract.peaks import Peaks
from dlperf_slurm.contract.record import BatchTrial, Epoch, Record
from dlperf_slurm.files import FileProblem
from dlperf_slurm.files.reading import JSON_LIMIT_BYTES
from dlperf_slurm.jobs import decode
from dlperf_slurm.jobs.decode import RANGES
from dlperf_slurm.jobs.journal import Event
from dlperf_slurm.jobs.manifest import Manifest

CASE = make_case(
    model_parameters={"layers": 4, "rate": 0.5, "name": "x", "flag": True, "sizes": (3, 4)}
)
RECORD = make_record(
    CASE,
    versions={"torch": "2.1 ü"},
    telemetry=(make_telemetry(),),
    batch_trials=(BatchTrial(8, False, 1 << 20, 1.5),),
    epochs=(Epoch(1, 0.5, 2.5, 0.25, 0.5, 0.5),),
    failures=make_failed_record().failures,
)


DATA = {"schema_version": SCHEMA_VERSION, **json.loads(json.dumps(dataclasses.asdict(RECORD)))}
# whose keys are free
FREE = ("errors", "printed", "versions", "platform", "job", "model_parameters")


def list_places(value, place=()):
    """Yield the keys to everything in decoded JSON that has a fixed name, with its value."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        yield (*place, key), item
        if isinstance(item, (dict, list)) and key not in FREE:
            yield from list_places(item, (*place, key))


def find(data, place):
    for key in place:
        data = data[key]
    return data


def change(place, value):
    """Return the text of the record with another value there."""
    changed = copy.deepcopy(DATA)
    find(changed, place[:-1])[place[-1]] = value
    return json.dumps(changed)


def read(text):
    content = text if isinstance(text, bytes) else text.encode()
    return decode.decode(Record, content, "a.json", is_versioned=True)


def refuse(text) -> str:
    """Return why a file with this text is refused, without its name."""
    with pytest.raises(FileProblem, match=r"^a\.json:") as caught:
        read(text)
    return str(caught.value)[len("a.json: ") :]


def format_place(place) -> str:
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in place)[1:]


def test_record_is_read_as_the_worker_reads_it(tmp_path):
    write_json(tmp_path / "record.json", RECORD)
    read = decode.read_json(tmp_path / "record.json", Record, tmp_path)
    assert repr(read) == repr(read_json(tmp_path / "record.json", Record))
    assert read == RECORD
    assert hash(read.case.axes) == hash(CASE.axes)


def test_value_of_another_type_is_refused_by_its_key():
    for place, value in list_places(DATA):
        if value is not None:
            odd = [] if isinstance(value, (str, int, float)) else 3
            assert refuse(change(place, odd)).startswith(format_place(place))
        if place[-1] in FREE:
            assert refuse(change(place, {"key": {}})).startswith(format_place(place))


def test_missing_and_unknown_keys_are_refused():
    for place, value in list_places(DATA):
        if isinstance(value, dict) and place[-1] not in FREE:
            assert refuse(change((*place, "colour"), 1)).startswith(f"{format_place(place)}.colour")
        if isinstance(place[-1], str):
            changed = copy.deepcopy(DATA)
            del find(changed, place[:-1])[place[-1]]
            assert refuse(json.dumps(changed)).startswith(format_place(place))


def test_no_number_may_be_anything():
    """A new field is in the default range at least."""
    numbers = [(p, v) for p, v in list_places(DATA) if type(v) in (int, float)]
    assert len(numbers) > 40
    for place, value in numbers:
        message = refuse(change(place, -(2**64) if isinstance(value, int) else -1e40))
        assert "64 bits" in message or message.startswith(format_place(place[:2])), place


def test_ranges_are_of_fields_that_there_are():
    kinds, known = [Record, Case, NoiseReport, Peaks, Event, Manifest], set()
    for kind in kinds:
        for field in dataclasses.fields(kind):
            known.add(f"{kind.__name__}.{field.name}")
            inner = [field.type, *typing.get_args(field.type)]
            kinds += [k for k in inner if dataclasses.is_dataclass(k) and k not in kinds]
    assert RANGES.keys() <= known


@pytest.mark.parametrize(
    ("table", "name", "value"),
    [
        *(("ranks", "window_seconds", value) for value in (0.0, math.inf)),
        *(("ranks", "final_loss", math.nan), ("ranks", "rank", -2)),
        ("ranks", "peak_memory_bytes", 2**60),
        *(("telemetry", name, -7) for name in ("energy_joules", "mean_power_watts", "samples")),
        *(("telemetry", name, -7) for name in ("mean_utilization", "stolen_share")),
    ],
)
def test_value_out_of_its_range_is_named(table, name, value):
    assert refuse(change((table, 0, name), value)).startswith(f"{table}[0].{name} is {value}")


def test_highest_and_lowest_values_are_accepted():
    data = copy.deepcopy(DATA)
    data["telemetry"][0].update(mean_utilization=1.05, device=-1, peak_temperature_celsius=-273.15)
    data["ranks"][0].update(rank=-1, final_loss=-3e38)
    assert read(json.dumps(data)).telemetry[0].mean_utilization == 1.05


def test_file_that_is_no_record_is_refused_at_once():
    nested = '{"colour": ' + "[" * 200_000
    for text in ("{", "[]", b'{"status": "\xff"}', nested, '{"seed": ' + "9" * 2_000_000 + "}"):
        assert len(refuse(text)) < 1000


def test_half_a_surrogate_pair_becomes_a_question_mark():
    text = json.dumps(DATA).replace('"2.1 \\u00fc"', '"a\\ud800b"')
    assert read(text).versions["torch"] == "a?b"
    assert read(text.replace("\\ud800", "\\ud83d\\ude00")).versions["torch"] == "a😀b"
    assert "rank" in refuse(text.replace('"rank": 0', '"rank": -9'))


@pytest.mark.parametrize("version", ["2", "null", '"1"', "true"])
def test_another_version_is_refused_whatever_else_is_wrong(version):
    text = json.dumps(DATA).replace('"schema_version": 1', f'"schema_version": {version}')
    for damaged in (text, text.replace('"status"', '"state"')):
        assert refuse(damaged).startswith("schema_version is ")


def test_file_of_another_size_than_any_record_is_refused(tmp_path):
    path = tmp_path / "record.json"
    path.touch()
    os.truncate(path, JSON_LIMIT_BYTES + 1)
    with pytest.raises(FileProblem, match=f"{path}: has more than {JSON_LIMIT_BYTES} bytes"):
        decode.read_json(path, Record)
