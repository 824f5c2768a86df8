"""Cases beside published figures: the nearest one, what differs, the ratio, both machines."""

import pytest
from builders import make_manifest, make_outcomes, make_planned_case, make_rank
from report_values import write_report, write_rows

from dlperf_slurm.cli import main
from dlperf_slurm.errors import InputError
from dlperf_slurm.reports.summarize import summarize
from dlperf_slurm.reports.tables.against import AgainstRow, make_against_table, tabulate_against
from dlperf_slurm.results.frame import make_case_frame


def list_rows(name: str, samples=(784.48,), topology="1n1g", problems=(), **changes):
    planned = make_planned_case(
        topology, **{"framework": "mxnet", "batch_size_per_device": 128, **changes}
    )
    return make_against_table(
        name, make_case_frame([make_outcomes(planned, samples, problems)])
    ).rows


def find_row(name: str, **changes) -> AgainstRow:
    (row,) = list_rows(name, **changes)
    return row


def test_same_configuration_has_no_differences():
    row = find_row("dlperf")
    assert row.figure.samples_per_s == 392.24
    assert row.differences == ()
    assert row.ratio == pytest.approx(2)


def test_nearest_batch_size_is_named():
    row = find_row("dlperf", batch_size_per_device=100)
    assert (row.figure.samples_per_s, row.differences) == (392.24, ("batch size 128",))


def test_nearest_devices_are_named_the_fewer_where_two_are_as_near():
    row = find_row("nvidia_paddle_resnet50", framework="paddle", precision="tf32", topology="1n3g")
    assert row.figure.world_size == 8
    assert row.differences[0] == "devices 8"
    row = find_row("dlperf_report_v1", framework="paddle", topology="1n2g")
    assert row.differences[0] == "devices 1"


def test_other_framework_and_precision_are_named():
    row = find_row("nvidia_paddle_resnet50", framework="jax", precision="amp-bf16")
    assert row.differences == ("framework paddle", "precision amp-fp16", "batch size not printed")


def test_variants_that_tie_have_a_row_each():
    rows = list_rows("dlperf", framework="pytorch")
    notes = [row.figure.note for row in rows]
    assert notes == [
        "",
        "torch DataLoader; workers=8",
        "torch DataLoader; workers=48",
        "DALI; workers=8",
        "DALI; workers=48",
    ]


def test_model_that_was_not_published_has_no_figure():
    row = find_row("tensorpack")
    assert (row.figure, row.ratio, row.case.samples_per_s) == (None, None, pytest.approx(784.48))


def test_inference_is_compared_with_inference_only():
    row = find_row("dlperf", mode="infer")
    assert row.figure is None
    rows = list_rows("nvidia_mxnet_resnet50_inference", mode="infer", precision="amp-fp16")
    assert [row.figure.batch_size_per_device for row in rows] == [128, 128, 128]


def test_failed_case_keeps_its_row_without_a_ratio():
    row = find_row("dlperf", samples=(), problems=("failed: x",))
    assert (row.case.problem, row.case.samples_per_s, row.ratio) == ("failed", None, None)
    assert row.figure.samples_per_s == 392.24


def test_unknown_source_lists_the_known_ones():
    with pytest.raises(InputError, match="known: dlperf, "):
        make_against_table("nope", make_case_frame([]))


def test_table_has_figures_ratio_and_both_machines():
    planned = make_planned_case("1n2g", framework="mxnet", batch_size_per_device=128)
    ranks = tuple(
        make_rank(rank, device_name="NVIDIA H200", window_seconds=2.0) for rank in range(2)
    )
    outcomes = make_outcomes(planned, [100.0], ranks=ranks)
    table = tabulate_against(make_against_table("dlperf", make_case_frame([outcomes])))
    assert table.header[-3:] == ("ours", "theirs", "ours / theirs")
    (row,) = write_rows(table)
    assert row[2] == "4 nodes of 8x V100-SXM2 16GB"
    assert row[3] == "nothing known"
    assert row[4].endswith("RN50v1.5/README.md:297")
    assert row[6] == "764.60"


def test_every_report_ends_with_the_table():
    planned = make_planned_case("1n1g", framework="mxnet", batch_size_per_device=128)
    summary = summarize(make_manifest(), [make_outcomes(planned, [784.48])], ["dlperf"])
    markdown = write_report("markdown", summary)
    assert "## against dlperf, published by DLPerf" in markdown
    assert "| 784.48 | 392.24 | 2.00 |" in markdown
    assert '"ratio": 2.0' in write_report("json", summary)


def test_report_prints_the_table(staged_run, capsys):
    main(["report", "--plots", "none", "--against", "dlperf"])
    assert "against dlperf, published by DLPerf" in capsys.readouterr().out


def test_report_against_an_unknown_source_writes_nothing(staged_run, capsys):
    assert main(["report", "--plots", "none", "--against", "nope"]) == 2
    assert "known: dlperf, " in capsys.readouterr().err
    assert not (staged_run.path / "report").exists()
