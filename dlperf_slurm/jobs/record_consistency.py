"""A record -> where its measured values contradict each other or its case."""

from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Any

from dlperf_slurm.contract.case import ModelParameter
from dlperf_slurm.contract.record import WHOLE_JOB, Record
from dlperf_slurm.matrix.model_parameters import find_parameter_problems
from dlperf_slurm.worker.models import list_models, load_model

# Allowed difference between a rank's window and the sum of its steps. The window also contains the
# clock's own time and the last wait, so it may be longer, but not shorter; on a shared machine the
# rank may also lose some time slices (20 ms were observed).
WINDOW_TOLERANCE = 0.02
WINDOW_SLACK_SECONDS = 0.05
CLOCK_SECONDS = 1e-4
MAX_WEIGHTS = 100_000


def find_figure_problem(record: Record) -> str:
    """Return where an OK record's values contradict each other or its case; '' if nowhere."""
    case = record.case
    if case.measured_steps < 1 and not case.is_to_accuracy:
        return f"case.measured_steps is {case.measured_steps}; allowed: at least 1"
    problems = [*_find_step_count_problems(record), *_find_rank_problems(record)]
    if case.log_format is None:
        problems.append(_find_parameter_problem(record))
    problems += _find_training_problems(record)
    return next((problem for problem in problems if problem), "")


def _find_step_count_problems(record: Record) -> Iterator[str]:
    """Yield a message for each step count of the record that no minimum of seconds explains.

    A count of 0 stands for that of the case; any other must be above it, and needs such a minimum.
    """
    case = record.case
    for phase in ("warmup", "measured"):
        found, asked = getattr(record, f"{phase}_steps"), getattr(case, f"{phase}_steps")
        if found and not (getattr(case, f"min_{phase}_seconds") and found > asked):
            yield (
                f"{phase}_steps is {found}, but must be 0 (the {asked} planned steps were run), or "
                f"above {asked} if the case sets min_{phase}_seconds"
            )


def _find_rank_problems(record: Record) -> Iterator[str]:
    """Yield a message for each impossible value of ranks and telemetry, such as a shared device."""
    case, places = record.case, set()
    per_node = case.devices_per_node
    for index, rank in enumerate(record.ranks):
        is_whole_job = rank.rank == WHOLE_JOB
        if not is_whole_job and rank.rank != index:
            yield f"ranks[{index}].rank is {rank.rank}; allowed: {index}, as ranks are in order"
        if not is_whole_job and not 0 <= rank.local_rank < per_node:
            yield (
                f"ranks[{index}].local_rank is {rank.local_rank}; allowed: 0 to {per_node - 1} "
                f"with topology {case.axes.topology}"
            )
        if (rank.host, rank.local_rank) in places:
            yield (
                f"ranks[{index}].local_rank is {rank.local_rank}, but another rank on "
                f"{rank.host!r} has the same"
            )
        places.add((rank.host, rank.local_rank))
        if rank.data_wait_seconds >= rank.window_seconds:
            yield (
                f"ranks[{index}].data_wait_seconds is {rank.data_wait_seconds}; allowed: less than "
                f"window_seconds of the rank, {rank.window_seconds}"
            )
    hosts = {rank.host for rank in record.ranks}
    for index, one in enumerate(record.telemetry):
        if one.host not in hosts or one.device >= per_node:
            yield (
                f"telemetry[{index}] is of device {one.device} on {one.host!r}, which no rank used"
            )


def _find_parameter_problem(record: Record) -> str:
    """Return why the record's parameter count is not that of the case's model, or ''."""
    case = record.case
    names, values = tuple(case.model_parameters), case.model_parameters.values()
    problem, count = _count_parameters(case.model, names, *values)
    if not problem and count != record.parameter_count:
        return f"parameter_count is {record.parameter_count}, but {case.model} has {count}"
    return problem


# typed, as 1 and True are different values of a parameter
@lru_cache(maxsize=256, typed=True)
def _count_parameters(
    model: str, names: tuple[str, ...], *values: ModelParameter
) -> tuple[str, int]:
    """Return ('', number of weights) of a model, or (problem, 0) for invalid parameters."""
    if model not in list_models():
        return f"case.model is {model!r}; known: {', '.join(list_models())}", 0
    parameters = dict(zip(names, values))
    problems = find_parameter_problems(model, parameters)
    if problems:
        return f"case.model_parameters: {problems[0][1]}", 0
    definition = load_model(model).Definition(**parameters)
    weights = [one.size for one in islice(definition.list_parameters(), MAX_WEIGHTS)]
    if len(weights) == MAX_WEIGHTS:
        return (
            f"case.model_parameters: with these values, {model} has {MAX_WEIGHTS} weight "
            "tensors or more; allowed: fewer",
            0,
        )
    return "", sum(weights)


def _find_training_problems(record: Record) -> Iterator[str]:
    """Yield a message where the epochs and trained samples of a record contradict its case."""
    case, epochs = record.case, record.epochs
    if not case.is_to_accuracy:
        if epochs or record.trained_samples:
            yield (
                f"trained_samples is {record.trained_samples}, but the case does not train over "
                "epochs"
            )
        return
    target, top1 = case.training.target_top1, epochs[-1].top1 if epochs else 0.0
    is_short = len(epochs) < case.training.epochs and not (target and top1 >= target)
    if not epochs or is_short or len(epochs) > case.training.epochs:
        yield f"epochs has {len(epochs)} entries, but the case trains {case.training.epochs} epochs"
    elapsed = 0.0
    for index, epoch in enumerate(epochs):
        elapsed += epoch.training_seconds
        if epoch.number != index + 1 or epoch.elapsed_seconds < elapsed * (1 - WINDOW_TOLERANCE):
            yield (
                f"epochs[{index}] is epoch {epoch.number} after {epoch.elapsed_seconds} s; epochs "
                "must count up from 1, with increasing times"
            )
    if record.ranks and abs(elapsed - record.ranks[0].window_seconds) > _find_slack(elapsed):
        yield (
            f"ranks[0].window_seconds is {record.ranks[0].window_seconds}, but training_seconds of "
            f"all epochs add up to {elapsed}"
        )
    if not record.trained_samples or record.trained_samples % case.global_batch_size:
        yield (
            f"trained_samples is {record.trained_samples}; allowed: multiples of the global batch "
            f"size, {case.global_batch_size}"
        )


def find_step_problem(record: Record, seconds: Any) -> str:
    """Return where step times [ranks, steps] contradict the record; '' if nowhere.

    The steps of a rank must add up to the total time that the record has for it.
    """
    samples = seconds.shape[1] * record.case.global_batch_size
    if record.epochs and samples != record.trained_samples:
        return f"has steps for {samples} samples, but trained_samples is {record.trained_samples}"
    # steps must add up to the window, else throughput x mean step time is not the batch size
    import numpy

    totals, windows = seconds.sum(axis=1), numpy.array([r.window_seconds for r in record.ranks])
    longest = windows * (1 + WINDOW_TOLERANCE) + CLOCK_SECONDS
    wrong = (totals < windows - _find_slack(windows)) | (totals > longest)
    if not wrong.any():
        return ""
    index = int(wrong.argmax())
    return (
        f"the steps of rank {record.ranks[index].rank} took {totals[index]:.6f} s in total, but "
        f"window_seconds of this rank is {windows[index]:.6f}"
    )


def find_token_problem(record: Record, seconds: Any, step_seconds: Any) -> str:
    """Return why token times [ranks, steps, tokens] contradict the record's steps, or ''.

    `seconds` are the token times, `step_seconds` is [ranks, steps]; each is None if not recorded.
    """
    import numpy

    axes = record.case.axes
    if seconds is None:
        return (
            "is missing; this file must contain the times of the generated tokens"
            if axes.is_generation
            else ""
        )
    shape = (*(() if step_seconds is None else step_seconds.shape), axes.output_tokens)
    if not axes.is_generation or seconds.shape != shape:
        return f"shape is {seconds.shape}, not [ranks, steps, tokens] {shape}"
    if not (numpy.isfinite(seconds) & (seconds >= 0)).all():
        return "has negative, infinite or NaN times"
    if (seconds.sum(axis=2) > step_seconds + CLOCK_SECONDS).any():
        return "the tokens of a step took longer than the step"
    return ""


def _find_slack(window_seconds: Any) -> Any:
    """Return by how many seconds sums of step times may differ from these total times."""
    return WINDOW_TOLERANCE * window_seconds + WINDOW_SLACK_SECONDS
