"""Profiles of a run -> a table beside the cases' medians."""

from pathlib import Path

import pandas
import pytest
from outcome_builders import make_case_outcomes

from dlperf_slurm.reports.tables.profiles import Profile, make_profile_table


def test_table_has_the_cost_of_the_profiler_and_a_link():
    record = make_case_outcomes().records[0]
    folder = Path("cases/c/r1/a1/s0/profile-nsys")
    cases = pandas.DataFrame({"samples_per_s": [record.samples_per_s * 1.25]}, index=["c"])
    table = make_profile_table([Profile("c", "nsys", folder, record)], cases)
    case, tool, step, profiled, slower, files = table.rows[0]
    assert (case.text, tool.text) == ("c", "nsys")
    assert profiled.value == pytest.approx(1.25 * step.value)
    assert slower.value == pytest.approx(0.25)
    assert files.link == f"../{folder}"
