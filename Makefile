# make demo: a first look.  make test: format, lint, types, tests.  Both build .venv on first use.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test format study benchmark clean

demo: .venv/.installed-demo
	$(BIN)/labeldp demo

test: .venv/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest

format: .venv/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

study: .venv/.installed-dev
	$(BIN)/python benchmarks/information.py

benchmark: .venv/.installed-dev
	$(BIN)/python benchmarks/mechanisms.py

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.installed-demo: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[sklearn]"
	touch $@

.venv/.installed-dev: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@ .venv/.installed-demo
