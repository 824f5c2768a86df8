"""A frozen copy of the worker, as in a run's code/, with the spin framework in it."""

import shutil
from pathlib import Path

import dlperf_slurm

PACKAGE = Path(dlperf_slurm.__file__).parent
SPIN = Path(__file__).with_name("spin.py")


def freeze_worker(code_dir):
    """Copy what the worker needs, and nothing else of the package."""
    target = code_dir / "dlperf_slurm"
    target.mkdir(parents=True)
    for name in ("__init__.py", "version.py"):
        shutil.copy(str(PACKAGE / name), str(target / name))
    ignored = shutil.ignore_patterns("__pycache__")
    for name in ("contract", "files", "logs", "worker"):
        shutil.copytree(str(PACKAGE / name), str(target / name), ignore=ignored)


def freeze_with_spin(code_dir):
    """The frozen worker with the spin framework by its own name; returns its folder."""
    freeze_worker(code_dir)
    put_spin_as("spin", code_dir)
    return code_dir


def put_spin_as(framework, code_dir):
    """Make `framework` the spin framework in a frozen copy; a real adapter of that name goes."""
    frameworks = code_dir / "dlperf_slurm" / "worker" / "frameworks"
    if (frameworks / framework).is_dir():
        shutil.rmtree(str(frameworks / framework))
    shutil.copy(str(SPIN), str(frameworks / (framework + ".py")))
