"""A planned case, measured or not -> the settings of its protocol."""

from dlperf_slurm.jobs.gate import OF_LOG
from dlperf_slurm.matrix.settings import Settings, is_used
from dlperf_slurm.matrix.tables import Protocol
from dlperf_slurm.results.collect import CaseOutcomes


def find_settings(outcomes: CaseOutcomes) -> Settings:
    """What the manifest tells of the protocol; of a version that kept none, what records tell."""
    planned = outcomes.case
    if planned.protocol is not None or not outcomes.records:
        return planned.settings
    case = outcomes.records[0].case
    # no log tells the others, and its record has them all the same
    names = Protocol.model_fields if case.log_format is None else OF_LOG
    recorded = {
        name: getattr(case, name, None)
        for name in names
        if is_used(name, planned.axes, planned.epochs)
    }
    told = {name: value for name, value in recorded.items() if value is not None}
    return {**told, **planned.settings}
