# Every target first sets up what it needs in .venv.
PYTHON := .venv/bin/python
WORKERS := 3
export OMP_NUM_THREADS ?= 1

.PHONY: setup quickstart quickstart-long test test-core test-slow test-recipes test-faults test-attack test-viewer lint lock lock-docs
.PHONY: pretrained lock-check docs docs-serve notebook screenshots gpu-smoke

setup: .venv/ready

.venv/ready: install.sh requirements-cpu.txt pyproject.toml
	bash install.sh --cpu
	@touch $@

quickstart: setup
	$(PYTHON) launcher.py --conf exp/quickstart.yaml --with-bfcl

quickstart-long: setup
	$(PYTHON) launcher.py --conf exp/quickstart_long.yaml --with-bfcl

# A pretrained model through the whole loop: fetched, taught for an hour (kept in the cache), trained for three steps
# of 16 rollouts, exported and evaluated. CORES: for all of it.
MODELS := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/seal/models
PRETRAINED := experiments/pretrained_cpu
CORES := $(shell nproc)
pretrained: setup
	$(PYTHON) -m seal.cli model fetch smollm2-135m-instruct
	test -e $(MODELS)/smollm2-135m-lessons || $(PYTHON) -m seal.cli policy warm-start --threads $(CORES) --minutes 60 \
		--model $(MODELS)/smollm2-135m-instruct --out $(MODELS)/smollm2-135m-lessons
	SEAL_THREADS=$(CORES) $(PYTHON) launcher.py --conf exp/pretrained_cpu.yaml --with-bfcl \
		trainer.total_training_steps=3 trainer.val_before_train=false trainer.test_freq=-1 \
		data.train_batch_size=4 actor_rollout_ref.actor.ppo_mini_batch_size=4 actor_rollout_ref.rollout.n=4
	test -e $(PRETRAINED)/model || $(PYTHON) -m seal.cli export $(PRETRAINED) --out $(PRETRAINED)/model
	OMP_NUM_THREADS=$(CORES) $(PYTHON) -m seal.cli evaluate bfcl --checkpoint $(PRETRAINED)/model --temperature 1 \
		--tasks data/pretrained/probe.jsonl --max-tokens 96 --max-steps 6

# import-linter checks that no floor imports a higher one: .importlinter.
# Each worker takes whole files, so that module fixtures are made once, in the order of tests/conftest.py. Three
# keep two cores busy, because many tests wait. Modules are compiled once, not in each process that a test starts.
TESTS := -m pytest -q -m "not slow" -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=20
test test-core: export PYTHONDONTWRITEBYTECODE :=
# Ray gives its workers a low priority; those of one test would wait for all other tests.
test test-core: export RAY_worker_niceness := 0
# A service has a worker per core unless a test says how many; most tests play one episode at a time.
test test-core: export BFCL_WORKERS := 1
test: setup
	$(PYTHON) -m ruff check .
	$(dir $(PYTHON))lint-imports
	$(PYTHON) $(TESTS)

# The core's rooms: no training run, no faults, no installation.
test-core: setup
	$(PYTHON) $(TESTS) tests --ignore tests/e2e --ignore tests/faults --ignore tests/install --ignore tests/benchmarks

# tests/gpu has a process of its own: verl's workers and vLLM's engine share it.
test-slow: setup
	$(PYTHON) -m pytest -q -m "slow and not recipes" --ignore=tests/faults --ignore=tests/attack --ignore=tests/gpu
	$(PYTHON) -m pytest -q tests/gpu

# Every prompt mode and ablation, two steps each.
test-recipes: setup
	$(PYTHON) -m pytest -q -m recipes

# Kills, fills and corrupts the parts of a run: docs/operate.md.
test-faults: setup
	$(PYTHON) -m pytest -q tests/faults

# Hostile requests and logs, on loopback: tests/attack/README.md.
test-attack: setup
	$(PYTHON) -m pytest -q tests/attack

# Every page of the viewer in a headless Chromium; without one the browser's tests are skipped: shelf/view/README.md.
test-viewer: setup
	$(PYTHON) -m pytest -q shelf/view/tests/viewer

# The budget is in pyproject.toml: what grows names what goes out.
lint: setup
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(dir $(PYTHON))lint-imports
	$(PYTHON) scripts/budget.py

# On a CUDA machine, in the environment of `bash install.sh`: conda's `seal` if it is active, else .venv.
gpu-smoke:
	$(if $(filter seal,$(CONDA_DEFAULT_ENV)),python,$(firstword $(wildcard $(PYTHON)) python)) -m benchmarks.gpu

# The CUDA lock. It keeps its versions as long as requirements.in allows; remove a line to renew that package.
LOCK := requirements.txt
LOCK_PYTHON := 3.12
lock:
	$(PYTHON) -m uv pip compile requirements.in --quiet --output-file $(LOCK) --python-version $(LOCK_PYTHON) \
		--python-platform x86_64-manylinux_2_28 --no-annotate --custom-compile-command "make lock"

# Published advisories of locked versions.
lock-check: setup
	for lock in requirements.txt requirements-cpu.txt; do \
		$(PYTHON) -m uv tool run pip-audit --no-deps --disable-pip --requirement $$lock || exit; done

# The documentation site, built into build/site. Its packages stay apart from training's: .venv-docs.
DOCS := .venv-docs/bin
DOCS_PYTHON ?= $(firstword $(wildcard $(PYTHON)) python3)
export NO_MKDOCS_2_WARNING := 1

.venv-docs/ready: requirements-docs.txt
	$(DOCS_PYTHON) -m venv .venv-docs
	$(DOCS)/python -m pip install --quiet -r requirements-docs.txt
	@touch $@

docs: .venv-docs/ready
	$(DOCS)/python -m mkdocs build --strict --clean

docs-serve: .venv-docs/ready
	$(DOCS)/python -m mkdocs serve

# Runs the notebook on experiments/quickstart, or on the run in SEAL_RUN, and keeps what it prints.
notebook: .venv-docs/ready
	PYTHONPATH=$(CURDIR) $(DOCS)/jupyter execute --inplace docs/notebooks/read_a_run.ipynb

# Pictures of the viewer on experiments/quickstart, or on RUN=FOLDER; needs Chromium.
RUN ?= experiments/quickstart
screenshots: setup
	PYTHONPATH=$(CURDIR) $(PYTHON) -m shelf.view.tests.screenshots $(RUN)

lock-docs:
	$(PYTHON) -m uv pip compile requirements-docs.in --quiet --output-file requirements-docs.txt --python-version 3.11 \
		--python-platform x86_64-manylinux_2_28 --no-annotate --custom-compile-command "make lock-docs"
