# make demo              a real benchmark on this machine, from nothing, in a few minutes
# make test              the tool, PyTorch and the frameworks whose environments are there already,
#                        with a real Slurm cluster of emulated nodes
# make test-frameworks   creates all environments (12 GB), builds Horovod for four, and tests each;
#                        test-frameworks-briefly leaves out what takes longest for what it tells
#
# PYTHON chooses the interpreter of the tool (3.9 or newer); all that is made lies in .venv.
# `make test TEST_FRAMEWORKS=test-frameworks` is both of the latter.

PYTHON ?= python3
TEST_FRAMEWORKS ?= test-present
BIN := .venv/bin
ENVIRONMENTS := .venv/environments
PYTORCH := $(ENVIRONMENTS)/pytorch/bin/python
# Ranks and jobs wait for each other, and may run out of time on a machine with other work: what
# failed is shown, and tried once more in a process of its own.
AGAIN := --last-failed --last-failed-no-failures=none

.PHONY: demo test lint test-unit test-browser test-worker test-slurm test-pythons test-present
.PHONY: test-frameworks test-frameworks-briefly
.PHONY: benchmark clean
.SECONDARY:

demo: .venv/installed
	$(BIN)/python -m dlperf_slurm env create pytorch
	$(BIN)/python -m dlperf_slurm submit matrices/quickstart.toml --site local --wait

test: lint test-unit test-browser test-worker test-pythons test-slurm $(TEST_FRAMEWORKS)

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

test-unit: .venv/installed-dev
	$(BIN)/python -m pytest -q tests/unit || $(BIN)/python -m pytest -q tests/unit $(AGAIN)

test-browser: .venv/installed-dev
	tests/browser/install
	$(BIN)/python -m pytest -q tests/browser

test-worker: $(ENVIRONMENTS)/pytorch/with-pytest
	$(PYTORCH) -m pytest -q tests/worker --framework pytorch || \
	  $(PYTORCH) -m pytest -q tests/worker --framework pytorch $(AGAIN)

test-slurm: .venv/installed-dev $(ENVIRONMENTS)/pytorch/with-pytest
	$(BIN)/python -m pytest -q tests/slurm || $(BIN)/python -m pytest -q tests/slurm $(AGAIN)

test-pythons: .venv/installed-dev
	$(BIN)/python tests/run_on_pythons.py

test-present: .venv/installed-dev
	$(BIN)/python tests/run_on_frameworks.py --present

test-frameworks: .venv/installed-dev
	$(BIN)/python tests/run_on_frameworks.py

test-frameworks-briefly: .venv/installed-dev
	$(BIN)/python tests/run_on_frameworks.py --brief

benchmark: .venv/installed-dev
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/submit.py
	$(BIN)/python benchmarks/frameworks.py
	$(BIN)/python benchmarks/ratio_intervals.py
	$(BIN)/python benchmarks/slow_machines.py
	PYTHONPATH=. $(PYTORCH) benchmarks/telemetry.py

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

.venv/bin/python:
	$(PYTHON) -c 'import sys, ensurepip; assert sys.version_info >= (3, 9), sys.version' || { \
	  echo "make: $(PYTHON) must be Python 3.9 or newer with venv (Debian: apt-get install python3-venv);" \
	       "name another one with make PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv .venv

.venv/installed: setup.cfg pyproject.toml | .venv/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

# the environment of the pins, and pytest beside them
$(ENVIRONMENTS)/%/with-pytest: .venv/installed dlperf_slurm/provision/environments/%.txt
	$(BIN)/python -m dlperf_slurm env create $*
	$(ENVIRONMENTS)/$*/bin/python -m pip install --quiet --disable-pip-version-check pytest
	touch $@
