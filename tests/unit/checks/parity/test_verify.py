"""The login side of `parity`: what counts as the same work, and running cases with fake Pythons."""

import dataclasses
import math
import re
from pathlib import Path, PurePosixPath

import pytest
from builders import make_matrix_case, make_site, write_program
from golden import GOLDEN, assert_script_is_golden
from support.cases import vary
from support.problems import assert_problem

from dlperf_slurm.checks.parity.run_case import (
    LOG_FILE,
    VerificationError,
    make_workplace,
    run_case,
    run_script,
)
from dlperf_slurm.checks.parity.tolerances import (
    DATA_PARALLEL_HEADER,
    PARITY_HEADER,
    Agreement,
    ParityCheck,
    compare_frameworks,
    compare_ranks,
    find_precision_problem,
    make_data_parallel_rows,
    make_parity_rows,
)
from dlperf_slurm.checks.parity.verify import REFERENCE, make_case, verify_frameworks
from dlperf_slurm.cli import main
from dlperf_slurm.config.overrides import JobKind
from dlperf_slurm.config.site import load_site
from dlperf_slurm.contract.case import CASE_FILE, Case
from dlperf_slurm.contract.json_files import read_json, write_json
from dlperf_slurm.contract.parity import PROOFS_FILE, Difference, Parity, Proofs
from dlperf_slurm.contract.topology import Topology
from dlperf_slurm.errors import EnvironmentMissingError
from dlperf_slurm.jobs.grouping import ArrayTask, group_array_tasks
from dlperf_slurm.jobs.render import render_scripts, render_verification
from dlperf_slurm.worker.frameworks import load_adapter
from dlperf_slurm.worker.models import list_models, load_model
from dlperf_slurm.worker.support import Unsupported

SITE = make_site(scheduler="local", launcher={"name": "mpirun"})
SAME = Difference(1e-7, "stem.convolution.weight")
PARITY = Parity(
    case=make_case(REFERENCE, "resnet50", SITE),
    parameter_count=135_506,
    initial_loss=2.341460,
    initial_evaluation_loss=2.427867,
    gradient_norm=3.299591,
    trained_loss=1.841447,
    trained_evaluation_loss=2.183436,
    updates=SAME,
    ranks=Difference(0.0, ""),
    gradients=(SAME,),
    versions={"torch": "2.13.0"},
    device_name="CPU",
    code_digest="ab12",
)


def list_failed(checks):
    return [check.quantity for check in checks if not check.is_within]


# Relative changes as PyTorch gave them at these sizes with the wrong value in place.
@pytest.mark.parametrize(
    ("compare", "changes", "failed"),
    [
        (compare_frameworks, {}, []),
        # one layer more
        (compare_frameworks, {"parameter_count": 1e-4}, ["parameters"]),
        (compare_ranks, {}, []),
        # no average
        (
            compare_ranks,
            {"gradients": 0.9, "ranks": 0.1},
            ["gradients", "model weights, compared between ranks"],
        ),
    ],
)
def test_work_that_is_not_the_same_is_named(compare, changes, failed):
    assert list_failed(compare(change_parity(**changes), PARITY)) == failed


def change_parity(**relative):
    """PARITY with values that are so much larger, or arrays that are so far away."""
    changed = {}
    for name, difference in relative.items():
        if name in ("updates", "ranks"):
            changed[name] = Difference(difference, "weight")
        elif name == "gradients":
            changed[name] = (Difference(difference, "weight"),)
        else:
            changed[name] = getattr(PARITY, name) * (1 + difference)
    return dataclasses.replace(PARITY, **changed)


@pytest.mark.parametrize(
    ("compare", "name", "tolerance"),
    [
        (compare_frameworks, "initial_loss", 1e-5),
        (compare_frameworks, "initial_evaluation_loss", 1e-5),
        (compare_frameworks, "gradient_norm", 1e-4),
        (compare_frameworks, "trained_loss", 1e-3),
        (compare_frameworks, "trained_evaluation_loss", 1e-3),
        (compare_frameworks, "updates", 1e-5),
        (compare_ranks, "gradients", 1e-4),
        (compare_ranks, "updates", 1e-5),
        (compare_ranks, "ranks", 1e-6),
        (compare_ranks, "initial_loss", 1e-5),
        (compare_ranks, "trained_loss", 1e-3),
    ],
)
def test_difference_is_named_beyond_its_tolerance_and_not_within(compare, name, tolerance):
    within, beyond = (change_parity(**{name: factor * tolerance}) for factor in (0.9, 1.1))
    assert list_failed(compare(within, PARITY)) == []
    assert len(list_failed(compare(beyond, PARITY))) == 1


@pytest.mark.parametrize("name", ["initial_loss", "gradient_norm", "trained_evaluation_loss"])
def test_value_that_is_not_a_number_is_never_the_same(name):
    found = dataclasses.replace(PARITY, **{name: math.nan})
    assert len(list_failed(compare_frameworks(found, PARITY))) == 1


def test_rows_have_the_columns_of_their_header_and_a_verdict():
    check = ParityCheck("gradients", 1.0, 0.5, 1e-3, "pooler.bias")
    line = Agreement("jax", "bert", "clip", "pytorch", (check,))
    assert_problem(line.verdict, key="", says=("gradients", "5.0e-01", "1e-03", "pooler.bias"))
    assert not line.is_same
    absent = Agreement("jax", "-", "-", "-", problem="no environment", is_left_out=True)
    for compare, make_rows, header in (
        (compare_frameworks, make_parity_rows, PARITY_HEADER),
        (compare_ranks, make_data_parallel_rows, DATA_PARALLEL_HEADER),
    ):
        checks = compare(PARITY, PARITY)
        rows = make_rows([Agreement("jax", "resnet50", "clip", "pytorch", checks), absent])
        assert {len(row) for row in rows} == {len(header)}
        assert [row[-1] for row in rows] == ["same", "no environment"]
        if header == PARITY_HEADER:
            assert rows[0][3:6] == ["135,506", "2.341460 0e+00", "2.427867 0e+00"]


@pytest.mark.parametrize("name", list_models())
def test_model_is_verified_at_a_small_size_without_dropout(name):
    model = load_model(name)
    cases = [make_case("jax", name, SITE, variant={"precision": p}) for p in ("fp32", "amp-bf16")]
    definition, other = (model.Definition(**case.model_parameters) for case in cases)
    assert definition.find_problems() == other.find_problems() == []
    assert definition.parameter_count < model.Definition().parameter_count / 10
    assert getattr(definition, "dropout", 0.0) == 0.0


def compare_case(model, axes, **changes):
    """Return the differences of a changed case with these axes that exceed its tolerances."""
    case = vary(make_case(REFERENCE, model, SITE), **axes)
    expected = dataclasses.replace(PARITY, case=case)
    found = dataclasses.replace(change_parity(**changes), case=case)
    return list_failed(compare_frameworks(found, expected))


def test_gradients_may_differ_by_the_models_own_tolerance():
    assert compare_case("bert", {}, gradients=1e-4) == ["gradients"]
    assert compare_case("resnet50", {}, gradients=1e-4) == []


ON_GPU = {"device": "cuda"}


def test_gpus_round_otherwise_and_are_held_to_wider_tolerances():
    assert compare_case("bert", ON_GPU, initial_loss=4e-5, updates=4e-5, gradients=4e-5) == []
    assert compare_case("bert", ON_GPU, initial_loss=6e-5) == ["loss"]
    # what they are for is found: the tanh form of GELU, matrices without decay
    assert compare_case("bert", ON_GPU, gradients=6e-5) == ["gradients"]
    assert compare_case("bert", ON_GPU, updates=2e-4) == ["updates"]


def test_kinks_of_relus_may_move_a_gradient_on_gpus_alone():
    assert compare_case("resnet50", ON_GPU, gradients=5e-2) == []
    assert compare_case("resnet50", ON_GPU, gradients=2e-1) == ["gradients"]
    assert list_failed(compare_frameworks(change_parity(gradients=5e-2), PARITY)) == ["gradients"]


@pytest.mark.parametrize(("precision", "unit"), [("amp-bf16", 2**-8), ("tf32", 2**-11)])
def test_tolerances_of_reduced_precisions_follow_from_their_unit_roundoff(precision, unit):
    def compare(model, **changes):
        return compare_case(model, {"precision": precision}, **changes)

    assert compare("bert", initial_loss=3.9 * unit, gradients=28 * unit) == []
    assert compare("bert", initial_loss=4.1 * unit) == ["loss"]
    assert compare("bert", gradients=29 * unit) == ["gradients"]
    # the optimizer and the number of parameters are as in fp32
    assert compare("bert", updates=2e-5) == ["updates"]
    assert compare("bert", parameter_count=1e-4) == ["parameters"]
    kinks = math.sqrt(16 * 2 * 5 * unit / math.pi)
    assert compare("resnet50", gradients=1.9 * kinks) == []
    assert compare("resnet50", gradients=2.1 * kinks) == ["gradients"]
    assert compare("resnet50", trained_loss=0.4 * kinks**2) == []
    assert compare("resnet50", trained_loss=0.6 * kinks**2) == ["loss after 3 steps"]
    # one of zero
    assert compare("resnet50", gradients=1.0) == ["gradients"]


@pytest.mark.parametrize(("precision", "unit"), [("bf16", 2**-8), ("fp16", 2**-11)])
def test_weights_of_16_bits_have_tolerances_for_what_rounding_takes_of_updates(precision, unit):
    def compare(**changes):
        return compare_case("bert", {"precision": precision}, **changes)

    updates, bias = math.sqrt(12 * unit), math.sqrt(2) * unit / math.e / (1e-3 * 3.299591)
    fall = (2.341460 / 1.841447 - 1) * (2 if precision == "fp16" else 1)
    assert compare(updates=0.9 * updates, gradients=0.9 * bias, trained_loss=fall) == []
    assert compare(updates=1.1 * updates) == ["updates"]
    assert compare(gradients=1.1 * bias) == ["gradients"]
    assert compare(trained_loss=1.1 * fall + 4 * unit) == ["loss after 3 steps"]
    assert compare(initial_loss=4.1 * unit) == ["loss"]


def test_loss_of_a_model_without_second_moments_is_held_to_its_fall_in_fp16():
    kinks = 16 * 2 * 5 * 2**-11 / math.pi / 2
    fall = 2.341460 / 1.841447 - 1 + max(4 * 2**-11, kinks)

    def compare(change):
        return compare_case("resnet50", {"precision": "fp16"}, trained_loss=change)

    assert compare(0.9 * fall) == []
    assert compare(1.1 * fall) == ["loss after 3 steps"]


def test_work_in_fp32_under_the_name_of_another_precision_is_found():
    case = vary(PARITY.case, precision="amp-bf16")
    found = dataclasses.replace(PARITY, case=case)
    assert "amp-bf16" in find_precision_problem(found)
    rounded = dataclasses.replace(found, gradients=(Difference(2**-8, "weight"),))
    assert find_precision_problem(rounded) == find_precision_problem(PARITY) == ""


KIND = JobKind("pytorch", "native", Topology(1, 2))
RUN_DIR = PurePosixPath("/shared/results/verify")


@pytest.fixture
def render(monkeypatch):
    """Render the script of a case on a site, with managed environments at a fixed place."""
    monkeypatch.setenv("DLPERF_SLURM_ENVIRONMENTS", "/shared/environments")
    options = ["--data-rank=0", "--reference=/shared/results/a b"]
    return lambda site: render_verification(KIND, site, options, RUN_DIR, RUN_DIR / "case")


def test_script_is_as_its_golden_file(render):
    assert_script_is_golden(render(load_site("example", None, []).site), GOLDEN / "verify.sh")


@pytest.mark.parametrize("name", ["local", "slurm", "example"])
def test_ranks_start_as_those_of_jobs_do(name, render):
    site = load_site(name, None, []).site
    (group,) = group_array_tasks([ArrayTask(make_matrix_case("1n2g"), 1, 1)], site, 1001)
    (job,) = (
        text
        for name, text in render_scripts([group], site, "verify", RUN_DIR).items()
        if name.endswith(".sbatch")
    )
    command = "worker verify --data-rank=0 '--reference=/shared/results/a b' "
    launch = read_launch(job).replace("worker run ", command)
    assert launch.endswith(f'{command}"$attempt_dir"')
    assert read_launch(render(site)) == launch


def read_launch(script):
    return re.search(r"^launch_pytorch\(\) \{\n(.*)\n\}", script, re.M)[1]


@pytest.fixture
def write_python(home, monkeypatch):
    """Make the managed PyTorch environment of a fake mpirun and a fake Python."""

    def write(script):
        folder = home / ".environments" / "pytorch" / "bin"
        folder.mkdir(parents=True, exist_ok=True)
        write_program(folder, "mpirun", 'while [ "$1" != python ]; do shift; done; exec "$@"')
        return write_program(folder, "python", script)

    monkeypatch.setenv("TMPDIR", str(home))
    return write


@pytest.fixture
def workplace(home):
    return make_workplace(SITE, home / "work", lambda line: None)


@pytest.fixture
def parity_file(home):
    write_json(home / "canned.json", PARITY)
    return home / "canned.json"


def test_case_runs_once_from_the_frozen_code_with_the_options_asked_for(
    write_python, workplace, parity_file, monkeypatch
):
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "1")
    write_python(
        'test "$ROCR_VISIBLE_DEVICES" = 1 && test -f case.json && echo "$PYTHONPATH" "$@"; '
        f"cp {parity_file} parity.json"
    )
    folder = run_case(PARITY.case, workplace, data_rank=1, references=[Path("/a b")])
    assert (folder / LOG_FILE).read_text().split("\n")[0] == (
        f"{workplace.folder}/code -m dlperf_slurm.worker verify --data-rank=1 "
        f"--reference=/a b {folder}"
    )
    assert (workplace.folder / "code" / "dlperf_slurm" / "worker" / "parity.py").exists()
    case = read_json(folder / CASE_FILE, Case)
    assert case.model == "resnet50"
    assert case.case_id == folder.name == "pytorch-resnet50-1n1g-native"
    write_python("exit 3")
    assert run_case(PARITY.case, workplace) == folder


FAILURE = (
    '{"schema_version": 1, "rank": 0, "host": "a", "error": "ValueError", "message": "no '
    'weights", "traceback": "", "is_out_of_memory": false}'
)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            f"mkdir failures; echo '{FAILURE}' > failures/rank-0.json; exit 1",
            "ValueError: no weights",
        ),
        ("exit 3", "exit code 3; see .*/log"),
        ("exit 0", "exit code 0; see .*/log"),
    ],
)
def test_case_that_failed_says_why_and_where_its_log_is(script, message, write_python, workplace):
    write_python(script)
    with pytest.raises(VerificationError, match=message):
        run_case(PARITY.case, workplace)


def test_script_over_its_limit_is_ended(home):
    assert run_script(write_program(home, "slow", "sleep 60"), home / "log", 0.1) is None


def test_each_precision_has_a_reference_of_its_own_sizes(write_python, workplace, parity_file):
    write_python(f"cp {parity_file} parity.json")
    variants = [{"precision": "fp32"}, {"precision": "amp-bf16"}]
    verify_frameworks([REFERENCE], ["resnet50"], workplace, variants)
    cases = [read_json(path, Case) for path in workplace.folder.glob("*/case.json")]
    widths = {(c.axes.precision, c.model_parameters["width"]) for c in cases}
    assert widths == {("fp32", 8), ("fp32", 16), ("amp-bf16", 16)}


def test_all_lines_of_the_reference_framework_are_the_same(write_python, workplace, parity_file):
    write_python(f"cp {parity_file} parity.json")
    parity, data_parallel = verify_frameworks(["pytorch"], ["resnet50", "bert"], workplace)
    assert [(line.model, line.variant) for line in parity] == [
        ("resnet50", "no clipping"),
        ("resnet50", "clip"),
        ("bert", "no clipping"),
        ("bert", "clip"),
    ]
    native = [line for line in data_parallel if line.variant == "native"]
    assert [(line.model, line.reference) for line in native] == [
        ("resnet50", "mean of one-rank runs, one per batch"),
        ("bert", "one rank with both batches"),
    ]
    assert all(line.is_same for line in (*parity, *native))


def test_horovod_that_is_not_there_is_left_out_with_the_command(
    write_python, workplace, parity_file
):
    write_python(f"cp {parity_file} parity.json")
    _, data_parallel = verify_frameworks(["pytorch"], ["bert"], workplace)
    assert [(line.variant, line.is_left_out) for line in data_parallel] == [
        ("native", False),
        ("horovod", True),
        ("sharded", False),
    ]
    assert "`dlperf-slurm env create pytorch --horovod`" in data_parallel[1].verdict


def test_what_an_adapter_cannot_do_is_left_out_with_its_reason(
    write_python, workplace, monkeypatch
):
    write_python("exit 7")
    rows = (Unsupported({"device": "cpu"}, "no", "use another"),)
    monkeypatch.setattr(load_adapter("pytorch"), "UNSUPPORTED", rows)
    parity, data_parallel = verify_frameworks(["pytorch"], ["bert"], workplace)
    native = [line for line in data_parallel if line.variant == "native"]
    assert {(line.is_left_out, line.verdict) for line in (*parity, *native)} == {
        (True, "pytorch: no; use another")
    }


def test_case_that_fails_is_a_line_with_its_reason(write_python, workplace, capsys):
    write_python("exit 7")
    parity, data_parallel = verify_frameworks(["pytorch"], ["bert"], workplace)
    assert len(parity) == 2
    native = [line for line in data_parallel if line.variant == "native"]
    assert all("exit code 7" in line.verdict for line in (*parity, *native))
    assert main(["parity", "pytorch", "--model", "bert"]) == 5
    assert "4 of 4 comparisons failed" in capsys.readouterr().err


def test_without_the_reference_nothing_can_be_proven(workplace):
    with pytest.raises(EnvironmentMissingError, match="env create pytorch"):
        verify_frameworks(["pytorch"], ["bert"], workplace)


def test_command_prints_both_tables_and_the_place_of_the_files(write_python, parity_file, capsys):
    write_python(f"cp {parity_file} parity.json")
    assert main(["parity", "pytorch", "--model", "resnet50"]) == 0
    printed = capsys.readouterr().out
    assert "one rank" in printed
    assert "two ranks" in printed
    proofs = read_json(Path(printed.splitlines()[-1].partition(": ")[2]) / PROOFS_FILE, Proofs)
    assert {one.code_digest for one in proofs.proofs} == {"ab12"}
    assert len(proofs.proofs) == 4


def test_command_runs_the_combinations_of_the_axes_asked_for(write_python, parity_file, capsys):
    # what it computes is in fp32, whatever it was asked for
    write_python(f"cp {parity_file} parity.json")
    axes = ["--precision", "fp32", "--precision", "amp-bf16", "--compiler", "torch.compile"]
    assert main(["parity", "pytorch", "--model", "vit", *axes]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line for line in printed if "-compared" in line][::4] == [
        "pytorch-vit-1n1g-native-torch.compile-compared",
        "pytorch-vit-1n1g-native-amp-bf16-torch.compile-compared",
    ]


@pytest.mark.parametrize(
    "words",
    [
        ["pytroch"],
        ["--model", "brt"],
        ["--compiler", "torch.compil"],
    ],
)
def test_unknown_name_is_an_error_with_a_suggestion(words, capsys):
    assert main(["parity", *words]) == 2
    assert "Did you mean" in capsys.readouterr().err
