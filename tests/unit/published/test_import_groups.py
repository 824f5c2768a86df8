"""What a case of imported logs is: one machine, software and day, and one run for all its ranks."""

import json
import os
import sys
from pathlib import Path

import pytest
from reference_logs import FOLDER
from support.problems import assert_problem

from dlperf_slurm.cli import main
from dlperf_slurm.cli.logs import _format_figure
from dlperf_slurm.contract.json_files import read_json
from dlperf_slurm.contract.record import Record
from dlperf_slurm.jobs.run_directory import list_run_ids, open_run

(FIVE,) = FOLDER.rglob("1n8g")
V100 = b"Tesla V100-SXM2-16GB"


def import_logs(capsys, *arguments):
    return main(["import-logs", *map(str, arguments)]), capsys.readouterr()


def list_entries(capsys, *arguments):
    _, captured = import_logs(capsys, *arguments, "--dry-run", "--json")
    return json.loads(captured.out)


def write_log(path, number=1, changes=()):
    data = (FIVE / f"rn50_b128_fp32_{number}.log").read_bytes()
    for old, new in changes:
        assert old in data
        data = data.replace(old, new)
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def open_only_run():
    (run_id,) = list_run_ids(Path("results"))
    return open_run(Path("results") / run_id)


def list_records(run):
    return [read_json(path, Record) for path in sorted(run.path.glob("cases/*/*/*/s0/record.json"))]


def test_logs_of_two_machines_are_two_cases(home, capsys):
    write_log("a/1n8g/rn50_1.log", 1)
    write_log("b/1n8g/rn50_2.log", 2, [(V100, b"NVIDIA A100-SXM4-40GB")])
    import_logs(capsys, "a", "b")
    cases = open_only_run().manifest.cases
    assert [case.repeats for case in cases] == [1, 1]
    assert [case.axes.script for case in cases] == [
        "tensorflow_models on V100-SXM2-16GB",
        "tensorflow_models on A100-SXM4-40GB",
    ]
    assert "hardware A100-SXM4-40GB" in cases[1].notes[0]
    main(["report", "--plots", "none", str(open_only_run().path)])
    printed = capsys.readouterr().out
    assert "2493.56" in printed
    assert "2440.54" in printed
    assert "{" not in printed.partition("[1] ")[0]


def test_a_folder_s_name_tells_the_machine_where_the_log_does_not(home, capsys):
    bare = [(V100, b"GPU")]
    write_log("V100_LOG/1n8g/rn50_1.log", 1, bare)
    write_log("A100-LOG/1n8g/rn50_2.log", 2, bare)
    write_log("other/1n8g/rn50_3.log", 3, bare)
    import_logs(capsys, "V100_LOG", "A100-LOG", "other")
    cases = open_only_run().manifest.cases
    assert [case.axes.script.partition(" on ")[2] for case in cases] == [
        "V100",
        "A100",
        "unknown hardware",
    ]
    assert cases[2].notes[-1].endswith(": hardware")


@pytest.mark.parametrize(
    ("line", "axis", "value"),
    [
        (b"Compiled cluster using XLA!", "compiler", "xla"),
        (b"--mode=inference", "mode", "infer"),
        (b"use_synthetic_data: False", "data", "folder"),
        (b"--horovod", "gradient_sync", "horovod"),
    ],
)
def test_logs_that_state_other_settings_are_other_cases(home, capsys, line, axis, value):
    write_log("1n8g/a.log", 1)
    write_log("1n8g/b.log", 2).open("ab").write(line + b"\n")
    import_logs(capsys, "1n8g")
    usual, other = open_only_run().manifest.cases
    assert getattr(other.axes, axis) == value
    assert usual.axes != other.axes


def test_days_apart_are_cases_and_midnight_is_not(home, capsys):
    write_log("1n8g/a.log", 1)
    write_log("1n8g/b.log", 2, [(b"2020-08-26 17:", b"2020-08-27 01:")])
    write_log("1n8g/c.log", 3, [(b"2020-08-26", b"2021-03-01")])
    import_logs(capsys, "1n8g", "--set", "batch_size_per_device=128")
    cases = open_only_run().manifest.cases
    assert [(case.repeats, case.axes.script[-13:]) for case in cases] == [
        (2, "of 2020-08-26"),
        (1, "of 2021-03-01"),
    ]


def test_what_the_command_line_says_of_the_machine_is_decided(home, capsys):
    write_log("V100/1n8g/a.log", 1)
    surroundings = ["hardware=H100", "software=tensorflow 2.3", "date=2024-01-02"]
    options = [word for text in surroundings for word in ("--set", text)]
    (entry,) = list_entries(capsys, "V100", *options)
    told = [entry["identity"][name] for name in ("hardware", "software", "date")]
    assert told == ["H100", "tensorflow 2.3", "2024-01-02"]
    assert import_logs(capsys, "V100", "--set", "date=yesterday")[0] == 2


def test_copies_of_one_log_are_the_ranks_of_one_run(home, capsys):
    for rank in range(8):
        write_log(f"1n8g/workerlog.{rank}")
    code, _ = import_logs(capsys, "1n8g")
    (case,) = open_only_run().manifest.cases
    assert (code, case.repeats) == (0, 1)
    assert_problem(case.notes[0], says=("8 files", "copies", "workerlog.0"))
    (entry,) = list_entries(capsys, "1n8g")
    assert entry["notes"] == [case.notes[0]]


def test_logs_of_ranks_that_differ_are_one_run_of_the_slowest(home, capsys):
    for rank in (0, 1):
        # another rank's line begins with another process's number
        write_log(f"1n8g/rank_{rank}.log", 1, [(b"tensorflow/", b"tensorflow%d/" % rank)])
    (entry,) = list_entries(capsys, "1n8g")
    (note,) = entry["notes"]
    assert_problem(note, says=("2 files", "ranks of one run", "rank_0.log, rank_1.log"))
    # at another time it is a run of its own
    write_log("1n8g/rank_1.log", 2, [(b"2020-08-26", b"2020-08-27")])
    assert len(list_entries(capsys, "1n8g")) == 2


def test_a_pipe_among_the_logs_is_a_failed_run_and_not_waited_for(home, capsys):
    write_log("1n8g/a.log")
    os.mkfifo("pipe.log")
    entries = list_entries(capsys, "1n8g", "pipe.log")
    assert [entry["status"] for entry in entries] == ["ok", "failed"]


def test_one_rank_s_failure_is_that_of_the_run(home, capsys):
    write_log("1n8g/rank_0.log")
    path = write_log("1n8g/rank_1.log")
    path.write_bytes(path.read_bytes() + b"Segmentation fault\n")
    (entry,) = list_entries(capsys, "1n8g")
    assert entry["status"] == "failed"


def test_report_of_logs_has_no_section_of_what_does_not_exist(home, capsys, monkeypatch):
    # the page tells the command, which is pytest's here and may name anything
    monkeypatch.setattr(sys, "argv", ["dlperf-slurm"])
    write_log("1n8g/a.log")
    import_logs(capsys, "1n8g")
    path = open_only_run().path
    # dates are the log's and not those of the import
    (record,) = list_records(open_only_run())
    assert {record.started_at[:10], record.ended_at[:10]} == {"2020-08-26"}
    assert open_only_run().manifest.created_at == record.ended_at
    main(["report", "--plots", "none", str(path)])
    page = (path / "report" / "report-plots-none.html").read_text(encoding="utf-8")
    assert "Measured</dt><dd>2020-08-26T" in page
    assert "1 of 1 runs" in page
    for absent in ("Site</dt>", "Submitted", "planned", "Hosts</h3>", "scheduler", "the scripts"):
        assert absent not in page


def test_incomplete_log_s_figure_by_its_publisher_s_rule_is_a_note(home, capsys):
    path = write_log("1n8g/a.log")
    lines = path.read_bytes().splitlines(True)
    path.write_bytes(b"".join(line for line in lines if b"train_finish_time" not in line))
    code, captured = import_logs(capsys, "1n8g")
    run = open_only_run()
    (record,) = list_records(run)
    assert code == 5
    assert "2494.22 *" in captured.out
    assert (record.status, record.ranks) == ("failed", ())
    assert record.reason.startswith("incomplete: ")
    assert_problem(run.manifest.cases[0].notes[-1], says=("2494 samples/s", "part"))


@pytest.mark.parametrize(("rate", "text"), [(0.0123456, "0.01235"), (12.3456, "12.35")])
def test_small_rates_keep_their_digits(rate, text):
    assert _format_figure(rate) == text
