"""`data make`: files that the worker's readers take, whole or not there, and how to name them."""

import hashlib
import json
import re
import signal
import sys
import threading
from pathlib import Path

import numpy
import PIL.Image
import pytest
from builders import make_case
from support.problems import assert_problem
from support.tool import await_that, start_tool

from dlperf_slurm.cli import main
from dlperf_slurm.config.toml_tables import tomllib
from dlperf_slurm.provision.datasets import report_progress
from dlperf_slurm.provision.datasets.images import choose_validation, draw_image, make_fields
from dlperf_slurm.provision.datasets.text import make_zipf_shares
from dlperf_slurm.worker.datasets import open_dataset

IMAGES = ["data", "make", "images", "--train=6", "--val=4", "--classes=2", "--size=40"]
TEXT = ["data", "make", "text", "--train=5000", "--val=3000", "--vocabulary=1000"]
DIGITS = ["data", "make", "digits"]
HOSTILE_NAMES = ["a b", "a'b", "$(x)", "#", "\\", "new\nline", "größe", "-rf", "x" * 200]


def make_data(arguments, capsys):
    """Run a command that must succeed, and return its output."""
    assert main(arguments) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def fail_data(arguments, capsys):
    """Run a command with a user's mistake, and return its error."""
    assert main(arguments) == 2
    return capsys.readouterr().err


def read_tables(printed):
    """Parse the parts of a matrix and of a site file in the output."""
    _, matrix, site = re.split(
        r"\n(?:To use the data set for .*, in a matrix|In the site file.*):\n", printed
    )
    return tomllib.loads(matrix), tomllib.loads(site)


def hash_files(folder):
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    content = b"".join(str(p.relative_to(folder)).encode() + p.read_bytes() for p in files)
    return hashlib.sha256(content).hexdigest()


def open_split(folder, split, **changes):
    return open_dataset(make_case(data_dir=str(folder), **changes), split)


@pytest.mark.parametrize(("split", "count"), [("train", 6), ("val", 4)])
def test_images_are_read_by_the_worker(home, capsys, split, count):
    assert " for resnet50 or vit, in a matrix:\n" in make_data(IMAGES, capsys)
    dataset = open_split("data/images", split)
    samples = [dataset.read_sample(index, 0) for index in range(len(dataset))]
    assert [int(sample["labels"]) for sample in samples] == [0] * (count // 2) + [1] * (count // 2)
    assert {sample["images"].shape for sample in samples} == {(3, 224, 224)}


@pytest.mark.parametrize(("split", "count"), [("train", 5000), ("val", 3000)])
def test_text_is_read_by_the_worker(home, capsys, split, count):
    make_data(TEXT, capsys)
    sizes = {"vocabulary_size": 1000}
    dataset = open_split("data/text", split, model="bert", model_parameters=sizes)
    assert len(dataset) == count // 125
    samples = [dataset.read_sample(index, 0) for index in range(len(dataset))]
    assert {sample["input_ids"].shape for sample in samples} == {(128,)}
    assert max(sample["input_ids"].max() for sample in samples) < 1000


@pytest.mark.integration
def test_digits_are_read_by_the_worker(home, capsys):
    pytest.importorskip("sklearn", reason='the digits need it: pip install "dlperf-slurm[digits]"')
    make_data(DIGITS, capsys)
    sizes = {"classes": 10, "image_size": 32}
    splits = [open_split("data/digits", name, model_parameters=sizes) for name in ("train", "val")]
    assert [len(dataset) for dataset in splits] == [1438, 359]
    description = json.loads(Path("data/digits/dataset.json").read_text(encoding="utf-8"))
    assert description["augmentation"] == "shift"
    image = PIL.Image.open(next(Path("data/digits/train/0").glob("*.png")))
    assert (image.size, image.mode, image.getextrema()[1]) == ((8, 8), "L", 255)


def test_digits_without_scikit_learn_say_how_to_get_it(home, capsys, monkeypatch):
    # what Python does when a module is not there
    monkeypatch.setitem(sys.modules, "sklearn", None)
    assert 'pip install "dlperf-slurm[digits]"' in fail_data(DIGITS, capsys)
    assert list(Path("data").iterdir()) == []


def test_same_part_of_each_class_is_for_validation():
    labels = numpy.array([0] * 50 + [1] * 100 + [2] * 9)
    is_val = choose_validation(labels, seed=0)
    assert [int(is_val[labels == label].sum()) for label in (0, 1, 2)] == [10, 20, 2]
    assert not numpy.array_equal(is_val, choose_validation(labels, seed=1))


@pytest.mark.parametrize("arguments", [IMAGES, TEXT], ids=["images", "text"])
def test_same_seed_makes_the_same_bytes(home, capsys, arguments):
    for name, seed in (("one", 3), ("other", 3), ("third", 4)):
        make_data([*arguments, name, "--seed", str(seed)], capsys)
    digests = [hash_files(home / name) for name in ("one", "other", "third")]
    assert digests[0] == digests[1]
    assert digests[0] != digests[2]


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_printed_tables_name_the_folder_whatever_its_name(home, capsys, name):
    matrix, site = read_tables(make_data([*TEXT, "--", f"./{name}"], capsys))
    assert matrix["model"] == {"name": "bert", "vocabulary_size": 1000, "dataset": name}
    assert matrix["axes"] == {"data": "folder"}
    assert site == {"datasets": {name: str(home / name)}}
    assert (home / name / "dataset.json").is_file()


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch, lambda path: path.symlink_to("nowhere")])
def test_what_is_there_is_left_alone(home, capsys, make):
    make(home / "mine")
    assert "mine: already exists" in fail_data([*TEXT, "mine"], capsys)
    assert [path.name for path in home.iterdir()] == ["mine"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([*TEXT, "file/mine"], "file/mine: cannot be written: "),
        ([*TEXT, "\udcff"], "not valid UTF-8"),
        ([*IMAGES, "--classes=5"], "5 classes"),
        ([*TEXT, "--vocabulary=104"], "105 or more"),
        ([*TEXT, "--val=1"], "4000 or more for --train and for --val"),
    ],
)
def test_folders_and_sizes_that_make_no_data_set_are_errors(home, capsys, arguments, message):
    (home / "file").touch()
    assert message in fail_data(arguments, capsys)
    assert [path for path in home.rglob("*") if path.is_file()] == [home / "file"]


@pytest.mark.parametrize("value", ["0", "1.5"])
def test_numbers_that_are_none_are_usage_errors(home, capsys, value):
    with pytest.raises(SystemExit) as caught:
        main([*IMAGES, f"--train={value}"])
    assert caught.value.code == 2
    assert_problem(capsys.readouterr().err, key="argument --train", says=("at least 1",))


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_or_killed_it_leaves_nothing_that_looks_whole(home, capsys, signal_number):
    process = start_tool([*IMAGES, "--train=1000000"], home)
    await_that(lambda: list(home.glob("data/.images.*/train/*/*.jpeg")), "the first image")
    process.send_signal(signal_number)
    process.communicate(timeout=60)
    left = "[!.]*" if signal_number == signal.SIGKILL else "*"
    assert [path.name for path in (home / "data").glob(left)] == []
    make_data(IMAGES, capsys)
    assert len(open_split("data/images", "train")) == 6


def test_image_at_full_size_takes_as_many_bytes_as_those_of_imagenet(home, capsys):
    make_data([*IMAGES, "--size=500", "--train=20"], capsys)
    sizes = [path.stat().st_size for path in Path("data/images/train").rglob("*.jpeg")]
    assert 80_000 < numpy.mean(sizes) < 140_000


def test_images_have_the_power_spectrum_of_photographs():
    fields = make_fields(250, numpy.random.RandomState(0))
    images = [draw_image(fields, 256, 256, numpy.random.RandomState(i)) for i in range(20)]
    grey = numpy.mean(images, axis=3)
    window = numpy.hanning(256)[:, None] * numpy.hanning(256)
    power = numpy.abs(numpy.fft.fft2((grey - grey.mean((1, 2), keepdims=True)) * window)) ** 2
    # along one axis, from 4 to 64 periods an image
    slope = numpy.polyfit(numpy.log(range(4, 65)), numpy.log(power.mean(0)[0, 4:65]), 1)[0]
    assert slope == pytest.approx(-2, abs=0.4)


def test_words_are_as_frequent_as_zipf_says():
    assert numpy.diff(make_zipf_shares(3), prepend=0) == pytest.approx([6 / 11, 3 / 11, 2 / 11])


def test_files_and_bytes_are_told_while_they_become_more(tmp_path):
    heard = []
    is_told = threading.Event()

    def report(line):
        heard.append(line)
        is_told.set()

    with report_progress(tmp_path, report, news_seconds=0.01):
        (tmp_path / "train").mkdir()
        (tmp_path / "train" / "1.jpeg").write_bytes(bytes(1_500_000))
        for _ in range(2):
            is_told.clear()
            assert is_told.wait(20)
    assert heard[-1].startswith("1 files, 1.5 MB so far, ")
    count = len(heard)
    assert not threading.Event().wait(0.05)
    assert len(heard) == count
