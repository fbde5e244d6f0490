# Everything is built in .venv from python3 and pip alone.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-slow test-browser test-least fuzz chromium lint types api picture bench bench-load bench-sweep literature clean

demo: .venv/installed
	$(BIN)/bayesmf data describe demo
	rm -rf demo-out/study
	$(BIN)/bayesmf study demo --quick --out demo-out/study

# Files of tests side by side, as many as there are cores.
test: lint types
	$(BIN)/python -m pytest -n auto --dist loadfile

test-slow: .venv/installed-fuzz
	$(BIN)/python -m pytest -m slow

# Some tests with the least versions of all dependencies, in an environment of its own.
test-least:
	$(PYTHON) tests/least_versions.py .least $(LEAST)

# Bytes that no reader can take, searched for so many seconds of a core.
FUZZ ?= 600
fuzz: .venv/installed-fuzz
	$(BIN)/python tests/fuzz_guided.py $(FUZZ)

test-browser: chromium .venv/installed-browser
	$(BIN)/python -m pytest -m browser tests/browser

# Debian's browser, if there is none yet and we may install one.
AS_ROOT := $(shell [ "$$(id -u)" = 0 ] || echo sudo -n)
chromium:
	@command -v chromium >/dev/null || { \
	  $(AS_ROOT) apt-get update -qq && \
	  $(AS_ROOT) env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y \
	    --no-install-recommends chromium fonts-dejavu-core; } >/dev/null 2>&1 || { \
	  echo "The browser tests need chromium, which could not be installed: run" \
	    "'apt-get install chromium' as root, then 'make test-browser' again." >&2; exit 1; }

lint: .venv/installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: .venv/installed-dev
	$(BIN)/mypy

# docs/api.md and docs/cli.md, from the docstrings and the options
api: .venv/installed-dev
	$(BIN)/python docs/make_reference.py

# docs/figures/predictions.svg; traces.svg and ranks.svg
picture: .venv/installed-dev
	$(BIN)/python docs/make_picture.py
	$(BIN)/python docs/make_chains_picture.py

# Us and the peers, each in an environment of its own under .bench; hours.
bench: .venv/installed-dev
	$(BIN)/python benchmarks/peers.py $(BENCH)

# The literature's protocols beside its figures, for docs/results/literature.md.
literature: .venv/installed-dev
	$(BIN)/python benchmarks/literature $(LITERATURE)

bench-sweep: .venv/installed-dev
	$(BIN)/python benchmarks/sweep.py

bench-load: .venv/installed-dev
	$(BIN)/python benchmarks/load.py

.venv/python:
	$(PYTHON) -m venv .venv
	touch $@

.venv/installed: .venv/python pyproject.toml constraints.txt
	$(PIP) -e .
	touch $@

.venv/installed-dev: .venv/installed
	$(PIP) -e ".[dev]"
	touch $@

.venv/installed-browser: .venv/installed-dev
	$(PIP) -e ".[browser]"
	touch $@

.venv/installed-fuzz: .venv/installed-dev
	$(PIP) -e ".[fuzz]"
	touch $@

clean:
	rm -rf .venv .least demo-out .pytest_cache .mypy_cache .ruff_cache .hypothesis
