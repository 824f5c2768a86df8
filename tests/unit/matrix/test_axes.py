"""Data sources, optimizers, loss scales, accumulation, training to accuracy: matrix -> cases."""

import pytest
from builders import make_site, write_matrix
from support.problems import assert_problem

from dlperf_slurm.cli import main
from dlperf_slurm.contract.axes import DATA_SOURCES, OPTIMIZERS
from dlperf_slurm.contract.case import NO_TRAINING, Case, Training
from dlperf_slurm.contract.json_files import read_json, write_json
from dlperf_slurm.errors import InputError
from dlperf_slurm.jobs.plan import make_case
from dlperf_slurm.matrix.axes import DEFAULTS
from dlperf_slurm.matrix.expand import expand_matrix
from dlperf_slurm.matrix.file import read_matrix

HEAD = """\
[model]
name = "resnet50"
[axes]
framework = "pytorch"
topology = "1n1g"
batch_size_per_device = 8
"""


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def list_cases(lines: str):
    return expand_matrix(read_matrix(write_matrix(HEAD + lines))).cases


def list_ids(lines: str) -> list[str]:
    return [case.case_id.removeprefix("pytorch-resnet50-1n1g-bs8-") for case in list_cases(lines)]


@pytest.mark.parametrize(
    ("lines", "ids"),
    [
        # workers, where there is a pipeline
        (
            'data = ["device", "host", "folder"]\ndata_workers = [1, 4]\n',
            ["fp32", "fp32-host", "fp32-folder", "fp32-folder-workers4"],
        ),
        ('data = "zmq"\nprefetch_batches = 8\n', ["fp32-zmq-prefetch8"]),
        # a loss scale, where losses are scaled
        (
            'precision = ["fp32", "amp-fp16"]\nloss_scale = ["dynamic", 128]\n',
            ["fp32", "amp-fp16", "amp-fp16-scale128"],
        ),
        # settings of training, in training
        (
            'mode = ["train", "infer"]\noptimizer = ["default", "sgd"]\n'
            "gradient_accumulation = [1, 4]\n",
            ["fp32", "fp32-accumulate4", "fp32-sgd", "fp32-sgd-accumulate4", "fp32-infer"],
        ),
        (
            "mode = 'infer'\noutput_tokens = [0, 16]\nprompt_length = [64, 256]\n",
            ["fp32-infer", "fp32-infer-output16-prompt64", "fp32-infer-output16-prompt256"],
        ),
        (
            "gradient_accumulation = [1, 2, 8]\n"
            '[[exclude]]\nwhen = { gradient_accumulation = ">=2" }\n',
            ["fp32"],
        ),
    ],
)
def test_axis_is_varied_where_it_has_a_meaning(lines, ids):
    assert list_ids(lines) == ids


@pytest.mark.parametrize(
    ("mode", "lines"),
    [
        ("train", "output_tokens = [0, 16]\n"),
        ("train", "output_tokens = 16\nprompt_length = [128, 256]\n"),
        # a forward pass has no prompt
        ("infer", "prompt_length = [128, 256]\n"),
        ("infer", "optimizer = ['default', 'sgd']\n"),
        ("infer", "gradient_accumulation = [1, 4]\n"),
        ("infer", "activation_checkpointing = [false, true]\n"),
        ("infer", "precision = 'fp16'\nloss_scale = ['dynamic', 128]\n"),
    ],
)
def test_axis_without_a_meaning_in_a_mode_makes_no_cases_of_it(mode, lines):
    (case,) = list_cases(f"mode = '{mode}'\n{lines}")
    for axis in ("output_tokens", "prompt_length", "optimizer", "gradient_accumulation",
                 "activation_checkpointing", "loss_scale"):  # fmt: skip
        assert getattr(case.axes, axis) == DEFAULTS[axis]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('data = "disk"', ("'disk'", f"known: {', '.join(DATA_SOURCES)}")),
        ('optimizer = "adam"', ("'adam'", f"known: {', '.join(OPTIMIZERS)}")),
        ("loss_scale = 0", ("0", "'dynamic'", "at least 1")),
        ('loss_scale = "big"', ("'big'", "'dynamic'", "at least 1")),
        ("loss_scale = true", ("True", "'dynamic'", "at least 1")),
        ("gradient_accumulation = 0", ("0", "allowed: at least 1")),
        ("data_workers = 0", ("0", "allowed: at least 1")),
    ],
)
def test_value_that_is_none_is_named_with_those_that_are(line, says):
    with pytest.raises(InputError) as error:
        list_cases(f"{line}\n")
    key = f"axes.{line.split(' ')[0]}"
    assert_problem(error.value, file="matrix.toml", line=7, key=key, says=says)


TRAINING = """\
data = "folder"
[training]
epochs = 9
target_top1 = 0.9
schedule = "cosine"
warmup_epochs = 2
mixup_alpha = 0.2
"""


def test_training_to_accuracy_reaches_the_worker_with_a_seed_for_each_repeat(tmp_path):
    (case,) = list_cases(TRAINING)
    expected = Training(
        epochs=9, target_top1=0.9, schedule="cosine", warmup_epochs=2.0, mixup_alpha=0.2
    )
    cases = [make_case(case, make_site(), "run", repeat, 1) for repeat in (1, 2, 3)]
    assert {c.training for c in cases} == {expected}
    assert [c.seed for c in cases] == [1, 2, 3]
    (measured,) = list_cases("")
    assert {make_case(measured, make_site(), "run", r, 1).seed for r in (1, 2)} == {1}
    write_json(tmp_path / "case.json", cases[0])
    assert read_json(tmp_path / "case.json", Case) == cases[0]


@pytest.mark.parametrize(
    ("line", "key", "says"),
    [
        ("epochs = 2\nwarmup_epochs = 2", "training", ("warmup_epochs", "less than epochs (2)")),
        ("epochs = 2\ntarget_top1 = 90", "training.target_top1", ("90", "at most 1")),
        (
            'epochs = 2\nschedule = "cosin"',
            *("training.schedule", ("allowed: constant, cosine", "mean 'cosine'")),
        ),
        ("epoch = 2", "training.epoch", ("unknown key", "mean 'epochs'")),
    ],
)
def test_mistakes_in_training_are_named(line, key, says):
    with pytest.raises(InputError) as error:
        list_cases(f"[training]\n{line}\n")
    number = 7 if key == "training" else 8 + line.count("\n")
    assert_problem(error.value, file="matrix.toml", line=number, key=key, says=says)


def test_inference_is_no_training():
    (case,) = list_cases('mode = "infer"\n[training]\nepochs = 3\n')
    assert case.training == NO_TRAINING


def test_data_set_is_found_by_the_site_or_below_the_current_folder(tmp_path):
    site = make_site(datasets={"digits": "/scratch/digits"})
    assert site.find_dataset_path("digits") == "/scratch/digits"
    assert site.find_dataset_path("imagenet") == str(tmp_path / "data" / "imagenet")


def test_model_table_names_the_data_set():
    (own,) = list_cases('data = "folder"\n')
    assert own.dataset == "images"
    text = HEAD.replace('"resnet50"\n', '"resnet50"\ndataset = "digits"\n')
    (other,) = expand_matrix(read_matrix(write_matrix(text + 'data = "folder"\n'))).cases
    assert other.dataset == "digits"
    (tmp := make_site(datasets={"digits": "/scratch/digits"}))
    assert make_case(other, tmp, "run", 1, 1).data_dir == "/scratch/digits"


def test_plan_names_what_cannot_be_run(capsys):
    path = write_matrix(HEAD + 'data = ["device", "folder"]\n')
    assert main(["plan", str(path), "--site", "local"]) == 0
    assert "data make" in " ".join(capsys.readouterr().out.split())


def test_plan_of_nothing_shows_no_empty_table(capsys):
    path = write_matrix(HEAD + 'data = "folder"\n')
    assert main(["plan", str(path), "--site", "local"]) == 0
    out = capsys.readouterr().out
    assert "\n\nleft out\n" in out
    assert "0 cases, 0 groups" in out
