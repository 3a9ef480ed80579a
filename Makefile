# make demo: a first look.  make test: format, lint, types, tests.  Both build .venv on first use.
PYTHON ?= python3
BIN := .venv/bin
CODE := src tests benchmarks examples

.PHONY: demo test format study benchmark benchmark-convex benchmark-priors benchmark-tabular benchmark-training clean

demo: .venv/.installed-demo
	$(BIN)/labeldp demo

test: .venv/.installed-dev
	$(BIN)/ruff format --check $(CODE)
	$(BIN)/ruff check $(CODE)
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses auto --dist loadfile

format: .venv/.installed-dev
	$(BIN)/ruff format $(CODE)
	$(BIN)/ruff check --fix $(CODE)

study: .venv/.installed-dev
	$(BIN)/python benchmarks/information.py

benchmark: .venv/.installed-dev
	$(BIN)/python benchmarks/mechanisms.py

benchmark-tabular: .venv/.installed-dev
	$(BIN)/python benchmarks/tabular.py
	$(BIN)/python benchmarks/imbalanced.py

benchmark-convex: .venv/.installed-dev
	$(BIN)/python benchmarks/convex_speed.py
	$(BIN)/python benchmarks/convex_rates.py

benchmark-priors: .venv/.installed-dev
	$(BIN)/python benchmarks/patches.py
	$(BIN)/python benchmarks/byol.py
	$(BIN)/python benchmarks/clusters.py

benchmark-training: .venv/.installed-benchmark
	$(BIN)/python benchmarks/training.py

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.installed-demo: .venv/bin/python pyproject.toml constraints.txt
	@echo "Installing torch and the rest into .venv: some minutes, once."
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[torch,sklearn,survey,report,table]"
	touch $@

.venv/.installed-dev: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@ .venv/.installed-demo

.venv/.installed-benchmark: .venv/bin/python pyproject.toml constraints.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev,benchmark]"
	touch $@ .venv/.installed-dev .venv/.installed-demo
