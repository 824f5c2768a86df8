"""The wheel, installed beside the libraries of this Python, runs a matrix to its report."""

import sys
import sysconfig

from support.releases import copy_checkout, run, run_quickstart


def test_installed_wheel_runs_the_quickstart(tmp_path):
    copy_checkout(tmp_path / "checkout")
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, tmp_path / "checkout"]
    run(build)
    (wheel,) = tmp_path.glob("*.whl")
    run([sys.executable, "-m", "venv", tmp_path / "venv"])
    python = tmp_path / "venv" / "bin" / "python"
    run([python, "-m", "pip", "install", "--no-deps", wheel])
    # the libraries, but not the tool, whose folder is named in a file there that is not read here
    (packages,) = (tmp_path / "venv").glob("lib/python*/site-packages")
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    (tmp_path / "work").mkdir()
    where = [python, "-c", "import dlperf_slurm; print(dlperf_slurm.__file__)"]
    assert run(where, cwd=tmp_path / "work").startswith(str(packages))
    run_quickstart(python, tmp_path / "work")
