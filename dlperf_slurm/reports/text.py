"""What every report says of its run and of its method."""

from dlperf_slurm.reports.summarize import Summary

METHOD = (
    "Throughput: median over independent repeats of global batch size x measured steps / window "
    "of the slowest rank; in parentheses its 95 % interval. Speedup and efficiency: ratios of "
    "medians; in parentheses their 95 % interval, from the ratios of all pairs of repeats. "
    "TFLOP/s: matrix products and convolutions of the model's definition, forward and backward, "
    "over the same time."
)


def describe_run(summary: Summary) -> str:
    """One line under the title: which run, where, when, how much of it is there."""
    manifest = summary.manifest
    version = f"{manifest.tool_version} {manifest.tool_git}".strip()
    return (
        f"run {manifest.run_id}, site {manifest.site_name}, {manifest.created_at}, "
        f"dlperf_slurm {version}, {summary.ok_repeats} of {summary.planned_repeats} "
        "repeats measured"
    )
