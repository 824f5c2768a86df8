"""Data sources, optimizers, loss scales, accumulation, training to accuracy: matrix -> cases."""

import pytest
from builders import make_site, write_matrix

from dlperf_slurm.contract.case import NO_TRAINING, Case, Training
from dlperf_slurm.contract.json_files import read_json, write_json
from dlperf_slurm.jobs.plan import make_case
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
        # and one case where it has none
        ("output_tokens = [0, 16]\n", ["fp32"]),
        # a forward pass has no prompt
        ("mode = 'infer'\nprompt_length = [128, 256]\n", ["fp32-infer"]),
        ("mode = 'infer'\nactivation_checkpointing = [false, true]\n", ["fp32-infer"]),
        ("mode = 'infer'\nprecision = 'fp16'\nloss_scale = ['dynamic', 128]\n", ["fp16-infer"]),
    ],
)
def test_axis_is_varied_where_it_has_a_meaning(lines, ids):
    assert list_ids(lines) == ids


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


def test_inference_is_no_training():
    (case,) = list_cases('mode = "infer"\n[training]\nepochs = 3\n')
    assert case.training == NO_TRAINING


def test_model_table_names_the_data_set():
    (own,) = list_cases('data = "folder"\n')
    assert own.dataset == "images"
    text = HEAD.replace('"resnet50"\n', '"resnet50"\ndataset = "digits"\n')
    (other,) = expand_matrix(read_matrix(write_matrix(text + 'data = "folder"\n'))).cases
    assert other.dataset == "digits"
    site = make_site(datasets={"digits": "/scratch/digits"})
    assert make_case(other, site, "run", 1, 1).data_dir == "/scratch/digits"
