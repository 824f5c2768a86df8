"""What a type checker sees of the package's names; `make lint` checks this file."""

from typing_extensions import assert_type

import dlperf_slurm as dp


def open_a_run() -> None:
    assert_type(dp.open_run("20261122"), dp.RunResults)
    # an error, or the comment would be one, which ignores nothing
    dp.open_runs()  # type: ignore[attr-defined]
