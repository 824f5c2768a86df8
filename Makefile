# make demo              a real benchmark on this machine, from nothing, in a few minutes
# make check             before each commit, in less than a minute: lint, and what the unit tests have
#                        that is quick
# make test              in five minutes, on any Linux: all of that and the slower unit tests, the
#                        worker with PyTorch, and a run of the installed wheel from matrix to report
# make test-all          all of that, in half an hour: the oldest and the newest Python, a real Slurm
#                        cluster of emulated nodes, TensorFlow 1, the frameworks that changed since
#                        they were last proven, a browser, a release; 6 GB of disk, or 18 GB if all
#                        frameworks changed; what a machine cannot run is named
#
# make test-faults       what takes minutes: nodes and controllers of that cluster die under a run
# make test-containers   a matrix in images of Charliecloud and Podman on that cluster, and jobs with
#                        the options that plug-ins such as Pyxis add to srun
# make test-frameworks   creates all environments (12 GB), builds Horovod for four, tests each, and
#                        writes down what passed
# make test-transformers our LLaMA and ViT beside those of Hugging Face, with the same weights (1 GB)
#
# make gpu               the acceptance on this machine's NVIDIA GPUs, any number: about an hour for the
#                        first, without network; its report is .venv/gpu-report. GPU="--python
#                        pytorch=PATH --limit 540" runs it in a Python of yours, for less (docs/gpu.md)
# make gpu-environments  what it runs in otherwise, 16 GB, where there is a network
#
# make rehearse          GPU paths of PyTorch, and numbers of TensorFlow 2 and JAX, without a GPU: CUDA
#                        builds (16 GB) over stand-ins for NVIDIA's libraries, and compiled for H100;
#                        a quarter of an hour on two idle cores, an hour beside other work; its
#                        report is .venv/rehearsal/report.md
#
# make docs              the pages of docs/ as a site, in .venv/site; every link is checked
#
# make bench             what this tool takes of CPU time, memory and files, beside others of its kind:
#                        benchmarks/RESULTS.md
#
# make fuzz              2,000 damaged inputs of each kind: matrices, sites, options, logs, tables, runs;
#                        INPUTS=2900 makes 20,300 in all, in six minutes on two idle cores
# make test-hostile      another user, fake peers, and signals against runs on that Slurm and without it,
#                        ten minutes each; SOAK_SECONDS=60 is shorter
#
# SLURM=24.11 runs test-slurm on that version instead of Debian's own; SLURM_ROOT=FOLDER on another
# one that tests/cluster/slurm-from-suite has made.
# PYTHON chooses the interpreter of the tool (3.9 or newer); all that is made lies in .venv.

PYTHON ?= python3
BIN := .venv/bin
ENVIRONMENTS := .venv/environments
GPU_FRAMEWORKS := pytorch jax tensorflow2
PYTORCH := $(ENVIRONMENTS)/pytorch/bin/python
# Ranks and jobs wait for each other, and may run out of time on a machine with other work: what
# failed is shown, and tried once more in a process of its own.
AGAIN := --last-failed --last-failed-no-failures=none
# what failed last is kept for each target, as two run at a time
PYTEST = -m pytest -q --override-ini=cache_dir=.pytest_cache/$@
# tests of tests/unit that are left to `make test`, to `make test-all`, and to `make test-exhaustive`
AFTER_CHECK := not_in_check or integration or slow or exhaustive
AFTER_TEST := slow or exhaustive
# of the tests in tests/worker with PyTorch: each model, precision and way to average gradients takes
# the same way through what is not the adapter; sharded weights take long
LONG_WORKER := bert or llama or vit or bf16 or fp16 or server or sharded or (step_by_step and not native)
BRIEF_WORKER := -m "not exhaustive" -k "not ($(LONG_WORKER))"

.PHONY: demo check test test-all lint docs clean bench fuzz
.PHONY: test-fast test-unit test-slow test-exhaustive test-worker test-wheel test-pythons test-changed
.PHONY: test-slurm test-release test-browser test-containers test-faults test-frameworks test-hostile
.PHONY: test-trainers test-transformers gpu gpu-environments rehearse
.SECONDARY:
.NOTPARALLEL:

demo: .venv/installed
	@echo "make: 1 of 2: PyTorch and MPI, pinned: 1 GB on disk, some minutes the first time"
	@$(BIN)/python -m dlperf_slurm env create pytorch
	@echo "make: 2 of 2: a ResNet-50 on this machine's cores, for about three minutes"
	@$(BIN)/python -m dlperf_slurm submit matrices/quickstart.toml --site local --wait

check: .venv/installed-dev
	@$(BIN)/python tests/run_lanes.py $@

test test-all: .venv/installed-dev $(ENVIRONMENTS)/pytorch/with-pytest
	@$(BIN)/python tests/run_lanes.py $@

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/shellcheck templates/harness.sh
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

docs: .venv/installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

test-fast test-unit test-slow test-exhaustive: .venv/installed-dev
	$(BIN)/python $(PYTEST) -n 2 tests/unit $(IGNORED) -m "$(MARKS)" || \
	  $(BIN)/python $(PYTEST) tests/unit $(IGNORED) -m "$(MARKS)" $(AGAIN)

test-fast: MARKS := not ($(AFTER_CHECK))
# what needs many frames and tables is left to `make test`
test-fast: IGNORED := --ignore=tests/unit/published --ignore=tests/unit/reports --ignore=tests/unit/results --ignore=tests/unit/stats
test-unit: MARKS := not ($(AFTER_TEST))
test-slow: MARKS := slow and not exhaustive
# all of tests/unit
test-exhaustive: MARKS :=

# scripts like those of public trainers, from matrix to report
test-trainers: .venv/installed-dev $(PYTORCH)
	$(BIN)/python $(PYTEST) tests/trainers || \
	  $(BIN)/python $(PYTEST) tests/trainers $(AGAIN)

test-browser: .venv/installed-dev
	tests/browser/install
	$(BIN)/python $(PYTEST) tests/browser

test-worker: $(ENVIRONMENTS)/pytorch/with-pytest
	$(PYTORCH) $(PYTEST) -n 2 --dist worksteal tests/worker --framework pytorch $(BRIEF_WORKER) || \
	  $(PYTORCH) $(PYTEST) tests/worker --framework pytorch $(BRIEF_WORKER) $(AGAIN)

# a run of the wheel, from matrix to report
test-wheel: .venv/installed-dev $(PYTORCH)
	$(BIN)/python $(PYTEST) tests/release/test_wheel.py

# our models beside those of Hugging Face, in an environment of its own
test-transformers: .venv/transformers/installed
	.venv/transformers/bin/python $(PYTEST) tests/transformers

.venv/transformers/installed: tests/transformers/requirements.txt | .venv/bin/python
	$(PYTHON) -m venv .venv/transformers
	.venv/transformers/bin/python -m pip install --quiet --disable-pip-version-check \
	  --requirement tests/transformers/requirements.txt
	touch $@

test-slurm: .venv/installed-dev $(ENVIRONMENTS)/pytorch/with-pytest
	$(BIN)/python $(PYTEST) tests/slurm -m "not faults and not containers" || \
	  $(BIN)/python $(PYTEST) tests/slurm -m "not faults and not containers" $(AGAIN)

# nodes and controllers that die, which takes minutes
test-faults: .venv/installed-dev $(ENVIRONMENTS)/pytorch/with-pytest
	$(BIN)/python $(PYTEST) tests/slurm -m faults

SOAK_SECONDS ?= 600
test-hostile: .venv/installed-dev $(ENVIRONMENTS)/pytorch/with-pytest
	DLPERF_SOAK_SECONDS=$(SOAK_SECONDS) $(BIN)/python $(PYTEST) -s tests/slurm/test_hostile.py

# the packages of runtimes, an image, a minute or two for each runtime
test-containers: .venv/installed-dev $(ENVIRONMENTS)/pytorch/with-pytest
	tests/containers/make-image .venv/container-image
	$(BIN)/python $(PYTEST) tests/slurm -m containers

ifneq ($(SLURM),)
export SLURM_ROOT ?= $(CURDIR)/.venv/slurm-$(SLURM)
test-slurm: $(SLURM_ROOT)/bin/slurmctld
endif

# Slurm of a later Debian, unpacked beside this one's
.venv/slurm-24.11/bin/slurmctld $(CURDIR)/.venv/slurm-24.11/bin/slurmctld:
	tests/cluster/slurm-from-suite trixie .venv/slurm-24.11

test-pythons: .venv/installed-dev
	$(BIN)/python tests/run_on_pythons.py

# the archives of a release, installed in empty environments by the words of the README
test-release: .venv/installed-dev $(PYTORCH)
	$(BIN)/python $(PYTEST) tests/release/test_release.py || \
	  $(BIN)/python $(PYTEST) tests/release/test_release.py $(AGAIN)

$(PYTORCH): .venv/installed
	$(BIN)/python -m dlperf_slurm env create pytorch

test-changed: .venv/installed-dev
	$(BIN)/python tests/run_on_frameworks.py --changed

test-frameworks: .venv/installed-dev
	$(BIN)/python tests/run_on_frameworks.py

# without what needs a network: not even the tool is brought up to date
gpu:
	$(or $(wildcard $(BIN)/python),$(PYTHON)) tests/run_on_gpus.py $(GPU)

gpu-environments: .venv/installed-dev
	$(BIN)/python -m dlperf_slurm env create --cuda $(GPU_FRAMEWORKS)
	for name in $(GPU_FRAMEWORKS); do \
	  $(ENVIRONMENTS)/$$name-cuda/bin/python -m pip install --quiet --disable-pip-version-check \
	    pytest || exit 1; done

# not a part of `make test`: for a night, or before a release
rehearse: .venv/installed-dev
	$(BIN)/python -m dlperf_slurm env create --cuda pytorch tensorflow2 jax
	$(BIN)/python tests/rehearse.py

INPUTS ?= 2000
fuzz: .venv/installed-dev
	DLPERF_FUZZ_EXAMPLES=$(INPUTS) $(BIN)/python $(PYTEST) -n 2 tests/unit/test_fuzz.py

# QUICK=1 tries it on sizes a tenth, for at most ten minutes; both print what became slower
bench: .venv/installed-dev
	$(BIN)/python benchmarks/run.py $(if $(QUICK),--quick)

clean:
	rm -rf .venv build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

.venv/bin/python:
	@$(PYTHON) -c 'import sys, ensurepip; assert sys.version_info >= (3, 9), sys.version' || { \
	  echo "make: $(PYTHON) must be Python 3.9 or newer with venv (Debian: apt-get install python3-venv);" \
	       "name another one with make PYTHON=..." >&2; exit 1; }
	@$(PYTHON) -m venv .venv

.venv/installed: setup.cfg pyproject.toml | .venv/bin/python
	@echo "make: the tool and 29 packages: 84 MB to download, 364 MB on disk, about a minute"
	@start=$$(date +%s); \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . && \
	  echo "make: installed, after $$(($$(date +%s) - start)) s"
	@touch $@

.venv/installed-dev: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

.venv/installed-docs: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[docs]'
	touch $@

# the environment of the pins, and pytest beside them
$(ENVIRONMENTS)/%/with-pytest: .venv/installed dlperf_slurm/provision/environments/%.txt
	$(BIN)/python -m dlperf_slurm env create $*
	$(ENVIRONMENTS)/$*/bin/python -m pip install --quiet --disable-pip-version-check \
	  pytest pytest-xdist
	touch $@
