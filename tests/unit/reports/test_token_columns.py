"""Throughput of models that are published in tokens: beside samples, in tables and files."""

import dataclasses

import pytest
from builders import make_manifest, make_outcomes, make_planned_case, read_csv
from report_values import summarize

from dlperf_slurm.reports.summarize import tabulate_run
from dlperf_slurm.results.collect import CaseOutcomes

LENGTH = 128


def make_case(model="llama", rates=(100.0, 101.0, 102.0), log_format=None, mode="train"):
    """Repeats of a model with sequences of 128 where it has such."""
    outcomes = make_outcomes(make_planned_case(model=model, mode=mode), rates, batch_seconds=[0.1])
    parameters = {"sequence_length": LENGTH} if model in ("bert", "llama") else {}
    sound = []
    for outcome in outcomes.outcomes:
        case = dataclasses.replace(
            outcome.record.case, model=model, model_parameters=parameters, log_format=log_format
        )
        record = dataclasses.replace(outcome.record, case=case)
        sound.append(dataclasses.replace(outcome, record=record))
    return CaseOutcomes(outcomes.case, tuple(sound))


def find_table(case):
    (table, *_) = tabulate_run(summarize(make_manifest(), [case]))
    return table


@pytest.mark.parametrize("mode", ["train", "infer"])
def test_table_of_a_decoder_has_tokens_beside_sequences(mode):
    table = find_table(make_case(mode=mode))
    place = table.header.index("tokens/s")
    assert table.header[place + 1] == "sequences/s"
    (row,) = table.rows
    # 101 x 128 = 12928, of which repeats between 100 and 102 know four digits
    assert row[place].text == "12930"
    assert row[place + 1].text.startswith("101")


@pytest.mark.parametrize("model", ["bert", "resnet50", "vit"])
def test_table_of_another_model_has_none(model):
    assert "tokens/s" not in find_table(make_case(model)).header


def test_file_has_tokens_beside_samples():
    (line,) = read_csv(summarize(make_manifest(), [make_case()]))
    assert (float(line["tokens_per_s"]), float(line["samples_per_s"])) == (101.0 * LENGTH, 101.0)
    assert line["unit"] == "sequences/s"


def test_tokens_of_somebody_elses_log_are_not_known():
    (line,) = read_csv(summarize(make_manifest(), [make_case(log_format="pytorch_examples")]))
    assert (line["tokens_per_s"], line["samples_per_s"]) == ("", "101.0")


def test_tokens_of_a_case_that_failed_are_not_known():
    outcomes = make_outcomes(make_planned_case(model="llama"), (), ["failed: no memory"])
    (line,) = read_csv(summarize(make_manifest(), [outcomes]))
    assert line["tokens_per_s"] == ""
