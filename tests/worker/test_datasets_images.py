"""Image folders: labels, errors that name the file, and pixels that can be reckoned by hand."""

import json
import os
import pickle
import shutil
import sys
from pathlib import Path

import pytest

from dlperf_slurm.worker.datasets import augment, images
from dlperf_slurm.worker.datasets.description import DataError
from dlperf_slurm.worker.models.resnet50 import Definition
from dlperf_slurm.worker.synthetic_batch import make_batch

numpy = pytest.importorskip("numpy", reason="the worker side needs it: pip install numpy")
image_module = pytest.importorskip("PIL.Image", reason="images need it: pip install pillow")

SMALL = Definition(image_size=32, classes=10)
HOSTILE_NAMES = ["a b", "a'b", "$(x)", "#", "\\", "new\nline", "größe", "x" * 200, "-rf"]


def make_image(width=40, height=36, seed=0):
    pixels = numpy.random.RandomState(seed).randint(0, 256, (height, width, 3))
    return image_module.fromarray(pixels.astype(numpy.uint8))


def make_ramp(width, height, step):
    """Make an image that gets brighter by `step` per column, from left to right."""
    columns = (numpy.arange(width) * step).astype(numpy.uint8)
    pixels = numpy.broadcast_to(columns[None, :, None], (height, width, 3))
    return image_module.fromarray(numpy.ascontiguousarray(pixels))


def write_images(folder, split, class_names, names=("0.png",)):
    for number, class_name in enumerate(class_names):
        class_folder = folder / split / class_name
        class_folder.mkdir(parents=True)
        for index, name in enumerate(names):
            make_image(seed=1000 * number + index).save(str(class_folder / name))


def describe(folder, **keys):
    (folder / "dataset.json").write_text(json.dumps(keys), encoding="utf-8")


@pytest.fixture
def folder(tmp_path):
    """Three classes to train and to validate, two images of each."""
    for split in ("train", "val"):
        write_images(tmp_path, split, ["b", "a", "c"], ["0.png", "1.JPEG"])
    return tmp_path


def open_folder(folder, split="train", definition=SMALL, seed=5):
    return images.Folder(str(folder), split, definition, seed)


@pytest.mark.parametrize("augmentation", ["crop-and-flip", "shift"])
@pytest.mark.parametrize("split", ["train", "val"])
def test_samples_have_keys_shapes_and_types_of_synthetic_ones(folder, split, augmentation):
    describe(folder, augmentation=augmentation)
    sample = open_folder(folder, split).read_sample(0, 0)
    expected = {name: values[0] for name, values in make_batch(SMALL, 1, 0, 0).items()}
    assert {name: (v.shape, v.dtype) for name, v in sample.items()} == {
        name: (v.shape, v.dtype) for name, v in expected.items()
    }
    assert sample["images"].flags["C_CONTIGUOUS"]


def list_samples(dataset):
    """Class folder, file and label of each."""
    paths = [Path(os.fsdecode(dataset.find_path(index))) for index in range(len(dataset))]
    labels = [int(dataset.read_sample(index, 0)["labels"]) for index in range(len(dataset))]
    return [(path.parent.name, path.name, label) for path, label in zip(paths, labels)]


def test_label_is_the_place_among_sorted_class_folders(folder):
    # neither classes nor images
    for name in ("a/.hidden.png", "a/readme.txt", "a/._0.JPEG", "list.txt"):
        (folder / "train" / name).write_bytes(b"")
    (folder / "train" / ".cache").mkdir()
    assert list_samples(open_folder(folder)) == [
        (class_name, name, label)
        for label, class_name in enumerate("abc")
        for name in ("0.png", "1.JPEG")
    ]
    # a class without validation images moves no other label
    shutil.rmtree(str(folder / "val" / "a"))
    assert [label for _, _, label in list_samples(open_folder(folder, "val"))] == [1, 1, 2, 2]


def test_hostile_names_are_read_like_others(tmp_path):
    write_images(tmp_path, "train", HOSTILE_NAMES, [f"{name}.png" for name in HOSTILE_NAMES])
    samples = list_samples(open_folder(tmp_path))
    assert [label for _, _, label in samples] == [label for label in range(9) for _ in range(9)]
    assert {class_name for class_name, _, _ in samples} == set(HOSTILE_NAMES)
    path = Path(os.fsdecode(open_folder(tmp_path).find_path(0)))
    try:
        path.rename(path.with_name(os.fsdecode(b"\xff\x80.png")))
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    assert len(list_samples(open_folder(tmp_path))) == len(samples)


@pytest.mark.parametrize(
    ("make", "split", "message"),
    [
        (lambda f: None, "train", r"train' .*\(No such file"),
        (lambda f: (f / "train").mkdir(), "train", r"train' .*class folders"),
        (lambda f: (f / "train" / "a").mkdir(parents=True), "train", r"a' .*no images \(\.jpeg"),
        (lambda f: write_images(f, "train", "a"), "val", r"val' .*No such file"),
        (
            lambda f: [write_images(f, s, c) for s, c in (("train", "a"), ("val", "ab"))],
            "val",
            r"val/b' .*no folder of the same name in train/",
        ),
    ],
)
def test_folder_in_another_layout_is_named_with_what_to_do(tmp_path, make, split, message):
    make(tmp_path)
    with pytest.raises(DataError, match=message):
        open_folder(tmp_path, split)


def test_more_classes_than_the_models_and_no_pillow_are_errors_with_a_remedy(folder, monkeypatch):
    with pytest.raises(DataError, match=r"has 3 classes, but the model has 2; set classes = 3 in"):
        open_folder(folder, definition=Definition(image_size=32, classes=2))
    # what Python does when a module is not there
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(DataError, match=r"pip install pillow"):
        open_folder(folder)


@pytest.mark.parametrize("keep", [0, 0.1, 0.5])
@pytest.mark.parametrize("name", ["0.png", "1.JPEG"])
def test_image_that_was_cut_off_is_named(folder, name, keep):
    path = folder / "train" / "a" / name
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * keep)])
    with pytest.raises(DataError, match=f"train/a/{name}' cannot be decoded: "):
        open_folder(folder).read_sample(0 if name == "0.png" else 1, 0)


def test_image_of_another_colour_model_becomes_rgb_but_none_of_more_than_eight_bits(folder):
    path = folder / "train" / "a" / "0.png"
    for mode in ("L", "P", "CMYK", "RGBA"):
        with path.open("wb") as file:
            make_image().convert(mode).save(file, "tiff" if mode == "CMYK" else "png")
        assert open_folder(folder).read_sample(0, 0)["images"].shape == (3, 32, 32)
    image_module.fromarray(numpy.full((8, 8), 40000, numpy.uint16)).save(str(path))
    with pytest.raises(DataError, match=r"0\.png.* 8 bits.*mode I"):
        open_folder(folder).read_sample(0, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"augmentatoin": "shift"}', "augmentatoin .*: name, augmentation"),
        ('{"augmentation": "flip"}', "augmentation .*'flip'; allowed: crop-and-flip, shift"),
        ('{"augmentation": 1}', "augmentation is 1, .*str"),
        ('{"least_crop_area": 0}', r"least_crop_area .*0\.0; allowed: 0 < value <= 1"),
        ("{", "not JSON"),
        ("[]", "must be a JSON object"),
    ],
)
def test_mistake_in_the_description_is_named(folder, text, message):
    (folder / "dataset.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=f"dataset.json'.*{message}"):
        open_folder(folder)


def test_augmentation_depends_on_seed_epoch_and_index_alone(folder):
    def read(epoch, seed=5, split="train", copy=lambda dataset: dataset):
        dataset = copy(open_folder(folder, split, seed=seed))
        dataset.read_sample(0, 0)
        return dataset.read_sample(3, epoch)["images"].tolist()

    assert read(1) == read(1)
    # a process that loads samples has a copy
    assert read(1) == read(1, copy=lambda dataset: pickle.loads(pickle.dumps(dataset)))
    assert read(1) != read(2)
    assert read(1) != read(1, seed=6)
    assert read(1, split="val") == read(2, split="val")


def test_normalized_pixels_have_the_values_reckoned_by_hand():
    pixels = numpy.array([[[0, 0, 0], [255, 255, 255]]], numpy.uint8)
    expected = [[[-2.117904, 2.248908]], [[-2.035714, 2.428571]], [[-1.804444, 2.64]]]
    assert augment.normalize(pixels) == pytest.approx(numpy.array(expected), abs=1e-5)


@pytest.mark.parametrize(
    ("width", "height", "left", "upper"), [(32, 32, 2, 2), (64, 32, 18, 2), (32, 42, 2, 7)]
)
def test_centre_crop_is_the_centre_and_at_half_the_size_averages(width, height, left, upper):
    # the shorter side of 32 is what 28 is to 256/224
    image = make_image(width, height)
    expected = numpy.asarray(image)[upper : upper + 28, left : left + 28]
    assert numpy.array_equal(augment.crop_centre(image, 28), expected)
    pixels = augment.crop_centre(make_ramp(32, 32, 4), 14)
    # columns 2 and 3, of 8 and 12, become the first one
    assert pixels[0, :, 0].tolist() == [10 + 8 * column for column in range(14)]


def test_random_crops_have_area_and_ratio_in_their_bounds():
    random = numpy.random.RandomState(0)
    boxes = [augment.choose_crop(500, 375, random, 0.08) for _ in range(2000)]
    for left, upper, right, lower in boxes:
        assert 0 <= left < right <= 500
        assert 0 <= upper < lower <= 375
    widths = numpy.array([right - left for left, _, right, _ in boxes])
    heights = numpy.array([lower - upper for _, upper, _, lower in boxes])
    areas = widths * heights / (500 * 375)
    # sides are whole pixels
    assert 0.078 < areas.min() < 0.1
    assert 0.95 < areas.max() <= 1
    assert (widths / heights).min() == pytest.approx(3 / 4, abs=0.02)
    assert (widths / heights).max() == pytest.approx(4 / 3, abs=0.02)


def test_image_too_narrow_for_a_crop_gives_its_centre():
    box = augment.choose_crop(12, 1000, numpy.random.RandomState(0), 0.5)
    assert box == pytest.approx((0, 492, 12, 508))


def test_least_crop_area_of_the_description_is_kept(folder):
    describe(folder, least_crop_area=1)
    path = folder / "train" / "a" / "0.png"
    make_image(32, 32).save(str(path))
    whole = augment.normalize(numpy.asarray(image_module.open(str(path))))
    dataset = open_folder(folder)
    for epoch in range(20):
        image = dataset.read_sample(0, epoch)["images"]
        assert numpy.array_equal(image, whole) or numpy.array_equal(image[:, :, ::-1], whole)


def test_every_second_crop_is_flipped():
    image = make_ramp(40, 40, 5)
    random = numpy.random.RandomState(0)
    crops = [augment.crop_and_flip(image, 32, random, 0.5) for _ in range(400)]
    assert 160 < sum([crop[0, 0, 0] > crop[0, -1, 0] for crop in crops]) < 240


def test_shift_moves_all_of_the_image_by_an_eighth_and_fills_with_black():
    pixels = numpy.zeros((32, 32, 3), numpy.uint8)
    pixels[14:18, 14:18] = 255
    image = image_module.fromarray(pixels)
    random = numpy.random.RandomState(0)
    offsets = set()
    for _ in range(2000):
        moved = augment.shift(image, 32, random)
        rows, columns = numpy.nonzero(moved[:, :, 0])
        offsets.add((rows.min() - 14, columns.min() - 14))
        assert moved.sum() == pixels.sum()
    assert offsets == {(row, column) for row in range(-4, 5) for column in range(-4, 5)}
    # an eighth of it is less than a pixel
    assert augment.shift(image, 4, random).shape == (4, 4, 3)
    # and does not mirror
    inside = augment.shift(make_ramp(32, 32, 8), 32, random)[4:-4, 4:-4, 0].astype(int)
    assert (numpy.diff(inside, axis=1) == 8).all()


def test_small_signs_are_validated_whole(tmp_path):
    (tmp_path / "val" / "a").mkdir(parents=True)
    write_images(tmp_path, "train", "a")
    white = image_module.fromarray(numpy.full((8, 8), 255, numpy.uint8))
    white.putpixel((0, 0), 0)
    white.save(str(tmp_path / "val" / "a" / "0.png"))
    describe(tmp_path, augmentation="shift")
    image = open_folder(tmp_path, "val").read_sample(0, 0)["images"]
    assert image[0, 0, 0] == pytest.approx(-2.117904, abs=1e-5)
    assert image[0, -1, -1] == pytest.approx(2.248908, abs=1e-5)
