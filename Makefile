# Every target first sets up what it needs in .venv.
PYTHON := .venv/bin/python
export OMP_NUM_THREADS ?= 1

.PHONY: setup quickstart quickstart-long policy test test-slow test-recipes test-faults lint lock gpu-smoke

setup: .venv/ready

.venv/ready: install.sh requirements-cpu.txt pyproject.toml
	bash install.sh --cpu
	@touch $@

quickstart: setup
	$(PYTHON) launcher.py --conf exp/quickstart.yaml --with-bfcl

quickstart-long: setup
	$(PYTHON) launcher.py --conf exp/quickstart_long.yaml --with-bfcl

policy: setup
	$(PYTHON) -m seal.cli policy make --out data/quickstart_policy --seed 0

# import-linter checks that no floor imports a higher one: .importlinter.
test: setup
	$(PYTHON) -m ruff check .
	$(dir $(PYTHON))lint-imports
	$(PYTHON) -m pytest -q -m "not slow"

test-slow: setup
	$(PYTHON) -m pytest -q -m "slow and not recipes" --ignore=tests/faults

# Every prompt mode and ablation, two steps each: docs/recipes.md.
test-recipes: setup
	$(PYTHON) -m pytest -q -m recipes

# Kills, fills and corrupts the parts of a run: docs/reliability.md.
test-faults: setup
	$(PYTHON) -m pytest -q tests/faults

lint: setup
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .
	$(dir $(PYTHON))lint-imports

# On a CUDA machine, in the environment of `bash install.sh`: conda's `seal` if it is active, else .venv.
gpu-smoke:
	$(if $(filter seal,$(CONDA_DEFAULT_ENV)),python,$(firstword $(wildcard $(PYTHON)) python)) -m benchmarks.gpu

# The CUDA lock. It keeps its versions as long as requirements.in allows; remove a line to renew that package.
LOCK := requirements.txt
LOCK_PYTHON := 3.12
lock:
	$(PYTHON) -m uv pip compile requirements.in --quiet --output-file $(LOCK) --python-version $(LOCK_PYTHON) \
		--python-platform x86_64-manylinux_2_28 --no-annotate --custom-compile-command "make lock"
