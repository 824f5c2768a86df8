"""Cases beside published figures: the nearest one, what differs, the ratio, both machines."""

import dataclasses

import pytest
from builders import make_outcomes, make_planned_case, make_rank
from report_values import write_rows
from support.problems import assert_problem

from dlperf_slurm.cli import main
from dlperf_slurm.errors import InputError
from dlperf_slurm.published.against import (
    find_nearest,
    make_against_table,
    make_reference,
)
from dlperf_slurm.published.figures import read_source
from dlperf_slurm.results.cases import analyze


def make_case(topology="1n1g", samples=(784.48,), problems=(), **changes):
    planned = make_planned_case(
        topology, **{"framework": "mxnet", "batch_size_per_device": 128, **changes}
    )
    return make_outcomes(planned, samples, problems)


def tabulate(name: str, **changes):
    """Return the rows of a case beside a source, as text by header."""
    table = make_against_table(name, analyze([make_case(**changes)]).cases)
    return [dict(zip(table.header, row)) for row in write_rows(table)]


def find_row(name: str, **changes):
    (row,) = tabulate(name, **changes)
    return row


def list_figures(row):
    return [row[name] for name in ("this run", "published", "this run / published")]


def test_same_configuration_has_no_differences():
    row = find_row("dlperf")
    assert row["differences"] == "none known"
    assert list_figures(row) == ["784.48", "392.24", "2.00"]


def test_figures_that_agree_in_all_are_a_reference_for_accept():
    (case,) = make_reference("dlperf", [make_case(), make_case(precision="amp-bf16")])
    assert case.at_least_samples_per_s_per_device == 392.24
    (case,) = make_reference("dlperf", [make_case("1n8g", samples=(3000.0,))])
    assert case.at_least_samples_per_s_per_device * 8 == pytest.approx(3006.98)
    with pytest.raises(InputError):
        make_reference("dlperf", [make_case("3n1g")])


def test_figure_of_another_batch_size_or_precision_is_named_but_not_set_beside_ours():
    row = find_row("dlperf", batch_size_per_device=100)
    assert row["differences"] == "batch size 128"
    assert list_figures(row) == ["784.48", "not comparable", "none"]
    # two are equally near
    assert find_row("dlperf", precision="amp-bf16")["differences"].startswith("precision ")


def test_published_size_is_not_set_beside_a_smaller_model():
    case = make_case()
    (outcome,) = case.outcomes
    small = dataclasses.replace(outcome.record.case, model_parameters={"width": 24})
    record = dataclasses.replace(outcome.record, case=small)
    case = dataclasses.replace(case, outcomes=(dataclasses.replace(outcome, record=record),))
    table = make_against_table("dlperf", analyze([case]).cases)
    (row,) = (dict(zip(table.header, row)) for row in write_rows(table))
    assert row["differences"] == "model ResNet-50"
    assert list_figures(row)[1:] == ["not comparable", "none"]


def test_other_framework_precision_and_devices_are_named():
    row = find_row("nvidia_paddle_resnet50", framework="jax", precision="amp-bf16")
    differences = "framework paddle; precision amp-fp16; batch size not printed"
    assert row["differences"].startswith(differences)
    # of 1 and 8 devices, the nearer
    row = find_row("dlperf_report_v1", framework="paddle", topology="1n2g")
    assert row["differences"].startswith("devices 1")


def test_variants_that_tie_have_a_row_each():
    (case,) = analyze([make_case(framework="pytorch")]).cases.itertuples()
    notes = [figure.note for figure in find_nearest(case, read_source("dlperf"))]
    loaders = [f"{name}; workers={n}" for name in ("torch DataLoader", "DALI") for n in (8, 48)]
    assert notes == ["", *loaders]


def test_model_or_mode_that_was_not_published_has_no_figure():
    assert find_row("dlperf", mode="infer")["published"] == "none"
    row = find_row("tensorpack")
    assert list_figures(row) == ["784.48", "none", "none"]
    assert_problem(row["differences"], says=("model", "mode"))


def test_figures_of_the_nearest_batch_size_are_found():
    (case,) = analyze([make_case(mode="infer", precision="amp-fp16")]).cases.itertuples()
    nearest = find_nearest(case, read_source("nvidia_mxnet_resnet50_inference"))
    assert [figure.batch_size_per_device for figure in nearest] == [128, 128, 128]


def test_failed_case_keeps_its_row_without_a_ratio():
    row = find_row("dlperf", samples=(), problems=("failed: x",))
    assert list_figures(row) == ["failed", "392.24", "none"]


def test_table_has_figures_ratio_and_both_machines():
    planned = make_planned_case("1n2g", framework="mxnet", batch_size_per_device=128)
    ranks = [make_rank(r, device_name="NVIDIA H200", window_seconds=2.0) for r in range(2)]
    cases = analyze([make_outcomes(planned, [100.0], ranks=tuple(ranks))]).cases
    table = make_against_table("dlperf", cases)
    assert table.header[-3:] == ("this run", "published", "this run / published")
    (row,) = write_rows(table)
    assert row[2] == "4 nodes of 8x V100-SXM2 16GB"
    assert row[3] == "none known"
    assert row[4].endswith("RN50v1.5/README.md:297")
    assert row[6] == "764.60"


def test_report_prints_the_table(staged_run, capsys):
    main(["report", "--plots", "none", "--against", "dlperf"])
    assert "against dlperf, published by DLPerf" in capsys.readouterr().out


def test_report_against_an_unknown_source_writes_nothing(staged_run, capsys):
    assert main(["report", "--plots", "none", "--against", "nope"]) == 2
    assert "known: dlperf, " in capsys.readouterr().err
    assert not (staged_run.path / "report").exists()
