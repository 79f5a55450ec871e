# Needs only Python 3.11 or newer and make. Run `make demo` or `make test`; both set up .venv if needed.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test coverage test-variants test-lowest test-python test-integrations lint docs docs-serve gallery figures \
	dist test-dist reproduce-quick bench faults fuzz soak clean

.venv/.created:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Plackett needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv .venv
	touch $@

# Packages for the demo: no torch.
.venv/.demo: .venv/.created pyproject.toml constraints.txt
	$(PIP) --editable '.[boosted]'
	touch $@

# All packages: torch, LightGBM and the development tools.
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

# The documentation site, in site/. Strict: a broken link or a name without documentation is an error.
DOCS := .venv-docs/bin
.venv-docs/.created: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-docs
	$(DOCS)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	touch $@

docs: .venv-docs/.created
	NO_MKDOCS_2_WARNING=1 $(DOCS)/mkdocs build
	$(DOCS)/python docs/theme/check_site.py site

docs-serve: .venv-docs/.created
	NO_MKDOCS_2_WARNING=1 $(DOCS)/mkdocs serve

# What the examples print and draw, for the gallery of the site; NAME=search runs one.
gallery: .venv/.dev
	OMP_NUM_THREADS=1 $(BIN)/python docs/theme/run_examples.py $(NAME)

# Every picture and printed output of README and docs that takes minutes: the demo, the gallery, the page of experiments.
# Measured tables come from `make bench` (hours, an idle machine) and `plackett reproduce all --scale full`.
figures: gallery
	$(BIN)/plackett demo --output plackett-demo --picture docs/demo.png
	$(BIN)/plackett reproduce --document docs/reproduction

# The wheel and the sdist, in dist/.
dist: .venv/.dev
	$(BIN)/python -m build

# Install the packages into empty environments, and try every extra there. Downloads torch several times.
test-dist: .venv/.created
	$(BIN)/python tests/smoke_wheel.py

# The tests with the instruction sets of other processors, with two threads, and in other orders. Takes hours.
test-variants: .venv/.dev
	$(BIN)/python tests/variants.py

# Which lines the tests run. Kernels are compiled, so their lines cannot be counted.
coverage: .venv/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist loadgroup --cov --cov-report=term:skip-covered

# The lowest versions that pyproject.toml allows. Skips tests that need torch, ignores warnings of old packages about
# their newer dependencies, and skips stored results, whose last digits differ between versions.
test-lowest: PINS := constraints-lowest.txt
test-lowest: OTHER := .venv-lowest
test-lowest: OPTIONS := -o filterwarnings= --ignore tests/experiments/test_reproduction.py
# Another Python version: make test-python PYTHON=python3.13. Skips tests that need torch.
test-python: PINS := constraints.txt
test-python: OTHER := .venv-$(notdir $(PYTHON))
test-lowest test-python:
	test -d $(OTHER) || $(PYTHON) -m venv $(OTHER)
	$(OTHER)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(PINS) --editable '.[test]'
	OMP_NUM_THREADS=1 $(OTHER)/bin/python -m pytest -q -n 2 --dist loadgroup $(OPTIONS) tests

# The integrations with the real packages, in an environment of their own, offline once it is installed.
INTEGRATIONS := .venv-integrations
$(INTEGRATIONS)/.created: pyproject.toml constraints-integrations.txt
	test -d $(INTEGRATIONS) || $(PYTHON) -m venv $(INTEGRATIONS)
	$(INTEGRATIONS)/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint constraints-integrations.txt --editable '.[integrations]'
	touch $@

test-integrations: $(INTEGRATIONS)/.created
	OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 $(INTEGRATIONS)/bin/python -m pytest -q -n 2 --dist loadgroup tests/integrations

# All experiments of the papers at a small scale, in minutes; `plackett reproduce all --scale full` takes hours.
reproduce-quick: .venv/.dev
	$(BIN)/plackett reproduce all --scale quick --output experiments

bench: .venv/.dev
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/startup.py --ahead
	$(BIN)/python benchmarks/likelihood.py
	$(BIN)/python benchmarks/losses.py
	$(BIN)/python benchmarks/serving.py
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

# Fuzz every reader and loader with altered files; MINUTES=60 runs longer.
MINUTES ?= 10
fuzz: .venv/.dev
	$(BIN)/python tests/fuzz.py --minutes $(MINUTES)
	$(BIN)/python tests/fuzz_readers.py -max_total_time=120 -max_len=400

# Run 10,000 small fits in one process.
soak: .venv/.dev
	$(BIN)/python benchmarks/soak.py

# Repeat the trials of tests/faults many times: killed processes, full disks, truncated files.
faults: .venv/.dev
	$(BIN)/python tests/fork_table.py
	$(BIN)/python benchmarks/faults.py
	$(BIN)/python benchmarks/dask_faults.py

clean:
	rm -rf .venv .venv-* .cache .mypy_cache .pytest_cache .ruff_cache .hypothesis site dist
