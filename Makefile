# On a machine with Python 3.11 or newer and make:  make demo, make test. Each sets up .venv by itself.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test test-variants test-lowest test-python lint reproduce-quick bench faults fuzz soak clean

.venv/.created:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Plackett needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv .venv
	touch $@

# What the demo needs: no torch.
.venv/.demo: .venv/.created pyproject.toml constraints.txt
	$(PIP) --editable '.[report]'
	touch $@

# Everything: torch, LightGBM and the tools.
.venv/.dev: .venv/.created pyproject.toml constraints.txt
	$(PIP) --editable '.[dev]'
	touch $@ .venv/.demo

demo: .venv/.demo
	$(BIN)/plackett demo

lint: .venv/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: .venv/.dev lint
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadgroup

# The tests as other processors would run them, with two threads, and in other orders: hours.
test-variants: .venv/.dev
	$(BIN)/python tests/variants.py

# The lowest versions that pyproject.toml allows. Tests that need torch are left out; old packages warn of new ones that
# they use; and results stored with the project's own versions have other last digits.
test-lowest: PINS := constraints-lowest.txt
test-lowest: OTHER := .venv-lowest
test-lowest: OPTIONS := -o filterwarnings= --ignore tests/test_reproduction.py
# Another Python: make test-python PYTHON=python3.13. Tests that need torch are left out.
test-python: PINS := constraints.txt
test-python: OTHER := .venv-$(notdir $(PYTHON))
test-lowest test-python:
	test -d $(OTHER) || $(PYTHON) -m venv $(OTHER)
	$(OTHER)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(PINS) --editable '.[test]'
	OMP_NUM_THREADS=1 $(OTHER)/bin/python -m pytest -q -n 2 --dist loadgroup $(OPTIONS) tests

# Every experiment of the papers in minutes; `plackett reproduce all --scale full` takes hours.
reproduce-quick: .venv/.dev
	$(BIN)/plackett reproduce all --scale quick --output experiments

bench: .venv/.dev
	$(BIN)/python benchmarks/likelihood.py
	$(BIN)/python benchmarks/losses.py
	$(BIN)/python benchmarks/data.py
	$(BIN)/python benchmarks/metrics.py
	$(BIN)/python benchmarks/boosted.py
	$(BIN)/python benchmarks/boosted_quality.py
	$(BIN)/python benchmarks/extreme.py
	$(BIN)/python benchmarks/mesh.py
	$(BIN)/python benchmarks/dask_boosted.py
	$(BIN)/python benchmarks/extreme_quality.py
	$(BIN)/python benchmarks/label_ranking.py
	$(BIN)/python benchmarks/linear.py
	$(BIN)/python benchmarks/aggregation.py
	$(BIN)/python benchmarks/preferences.py

# Altered files for every reader and loader; MINUTES=60 for more of them.
MINUTES ?= 10
fuzz: .venv/.dev
	$(BIN)/python tests/fuzz.py --minutes $(MINUTES)
	$(BIN)/python tests/fuzz_readers.py -max_total_time=120 -max_len=400

# 10,000 small fits in one process.
soak: .venv/.dev
	$(BIN)/python benchmarks/soak.py

# Processes killed, disks full, files cut off: the trials of tests/faults, many times.
faults: .venv/.dev
	$(BIN)/python tests/fork_table.py
	$(BIN)/python benchmarks/faults.py
	$(BIN)/python benchmarks/dask_faults.py

clean:
	rm -rf .venv .venv-* .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis
