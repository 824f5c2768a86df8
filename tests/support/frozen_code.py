"""A frozen copy of the worker, as in a run's code/, with the spin framework added."""

import shutil
from pathlib import Path

import dlperf_slurm

PACKAGE = Path(dlperf_slurm.__file__).parent
SPIN = Path(__file__).with_name("spin.py")


def freeze_worker(code_dir):
    """Copy the modules that the worker needs, and nothing else of the package."""
    target = code_dir / "dlperf_slurm"
    target.mkdir(parents=True)
    for name in ("__init__.py", "version.py"):
        shutil.copy(str(PACKAGE / name), str(target / name))
    # with its bytecode, which ranks would compile again
    for name in ("contract", "files", "logs", "worker"):
        shutil.copytree(str(PACKAGE / name), str(target / name))


def freeze_with_spin(code_dir):
    """Freeze the worker with the spin framework under its own name; return the folder."""
    freeze_worker(code_dir)
    put_spin_as("spin", code_dir)
    return code_dir


def put_spin_as(framework, code_dir):
    """Add the spin framework as `framework` to a frozen copy, in place of a real adapter."""
    frameworks = code_dir / "dlperf_slurm" / "worker" / "frameworks"
    if (frameworks / framework).is_dir():
        shutil.rmtree(str(frameworks / framework))
    add_framework(framework, SPIN.read_text(), code_dir)


def add_framework(framework, session, code_dir):
    """Add a framework to a frozen copy; `session` is the text of its module of that name."""
    folder = code_dir / "dlperf_slurm" / "worker" / "frameworks" / framework
    folder.mkdir()
    (folder / "session.py").write_text(session)
    names = "OUT_OF_MEMORY, SUPPORTED"
    module = f"dlperf_slurm.worker.frameworks.{framework}.session"
    (folder / "__init__.py").write_text(f"from {module} import {names}\n")
