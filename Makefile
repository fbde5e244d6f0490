# Everything is built in .venv from python3 and pip alone.
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-slow lint types bench-load bench-sweep clean

demo: .venv/installed
	$(BIN)/bayesmf data describe demo
	$(BIN)/bayesmf split demo --protocol paper --seed 0 --out demo-out/split --overwrite

test: lint types
	$(BIN)/python -m pytest

test-slow: .venv/installed-dev
	$(BIN)/python -m pytest -m slow

lint: .venv/installed-dev
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: .venv/installed-dev
	$(BIN)/mypy

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

clean:
	rm -rf .venv demo-out .pytest_cache .mypy_cache .ruff_cache .hypothesis
