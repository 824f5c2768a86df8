"""A log format declared in a table: what is wrong with one is named, and a job reads it as JSON."""

import json

import pytest

from dlperf_slurm.cli import main
from dlperf_slurm.logs.declared_formats import FormatError, make_format, read_table

LINE = {"pattern": r"step (?P<step>{COUNT}): (?P<rate>{NUMBER})"}
TABLE = {
    "signature": r"step \d+: ",
    "lines": [LINE],
    "identity": {"framework": "jax", "devices": {"counts": ["all"], "over": "each"}},
    "window": {"kind": "rates after warm-up"},
    "rules": [{"name": "mean", "average": [1]}],
}


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"signatures": "x"}, ["'signatures'", "signature, start"]),
        ({"start": 1}, ["start", "str"]),
        ({"signature": "{NUMBERS}"}, ["signature", "{NUMBERS}", "NUMBER,"]),
        ({"lines": [LINE, {"pattern": "("}]}, ["lines[1].pattern"]),
        ({"lines": [{"patern": "x"}]}, ["lines[0]", "'patern'", "pattern,"]),
        ({"lines": [{"dll": "x"}]}, ["lines[0]", "metrics"]),
        ({"lines": [{"dll": "x", "metrics": {"rate": 1}}]}, ["lines[0]", "metrics", "str"]),
        ({"lines": [{"dll": "x", "metrics": {"time": "a"}}]}, ["lines[0]", "'time'"]),
        ({"lines": [{"csv": ",", "columns": {"step": 1}}]}, ["lines[0]", "columns", "str"]),
        ({"rules": [{"name": "a", "average": ["x"]}]}, ["rules[0]", "average", "int"]),
        ({"identity": {"devices": {"counts": ["a"], "over": 2}}}, ["identity.devices", "over"]),
        ({"identity": {"framework": [1]}}, ["identity", "framework", "str"]),
        ({"identity": {"devices": {"over": "x"}}}, ["identity.devices", "fact, counts"]),
        ({"window": {"kind": "rates"}}, ["window.kind", "'rates'", "rates after warm-up"]),
        ({"lines": [{"pattern": "x"}], "signature": "x", "window": {"x": 1}}, ["window", "'x'"]),
        ({"rules": [{"name": "mean"}]}, ["rules[0]", "average, time_lines"]),
        ({"rules": [{"name": "time", "time_lines": [1]}]}, ["rules[0]", "[20, 120]"]),
    ],
)
def test_mistake_is_named_with_file_key_and_what_is_allowed(change, parts):
    with pytest.raises(FormatError) as caught:
        make_format("new.toml", {**TABLE, **change})
    assert [part for part in ("new.toml", *parts) if part not in str(caught.value)] == []


def test_text_that_is_no_toml_is_named_with_its_file(tmp_path):
    (tmp_path / "new.toml").write_text("signature = ")
    with pytest.raises(FormatError, match=r"new\.toml.*TOML"):
        read_table(tmp_path / "new.toml")


def test_code_of_a_run_has_its_tables_as_json(tmp_path):
    (tmp_path / "new.json").write_text(json.dumps(TABLE))
    assert read_table(tmp_path / "new.toml") == TABLE


def test_facts_become_counts_and_what_no_line_tells_is_0():
    run = make_format("new.toml", TABLE).start_run()
    assert run.format.identify(run).devices == 0
    run.facts.update(all="16", each="2")
    assert run.format.identify(run).devices == 8


def test_invalid_table_is_a_mistake_of_the_user_in_every_command(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "formats"
    folder.mkdir()
    (folder / "own.toml").write_text("signature = 3\n", encoding="utf-8")
    monkeypatch.setattr("dlperf_slurm.logs._find_folder", lambda: folder)
    log = tmp_path / "x.log"
    log.write_text("step 1\n", encoding="utf-8")
    matrix = tmp_path / "m.toml"
    matrix.write_text(
        '[model]\nname = "resnet50"\n[axes]\nframework = "pytorch"\ntopology = "1n1g"\n'
        'batch_size_per_device = 2\nscript = "x"\n[scripts.x]\nformat = "own"\ncommand = "true"\n',
        encoding="utf-8",
    )
    for words in (["import-logs", log], ["plan", matrix, "--site", "local"]):
        assert main([*map(str, words)]) == 2
        assert "own.toml" in capsys.readouterr().err
