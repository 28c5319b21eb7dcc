# Set-up, tests and benchmarks. `make demo` and `make test` need nothing but Python 3.10 or newer.
# `make test` runs the checks and the quick tests, `make test-all` the checks and every test.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/installed

.PHONY: demo test test-all check bench faults clean

demo: $(INSTALLED)
	$(BIN)/recollect demo

test: $(INSTALLED) check
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 -m "not slow"

test-all: $(INSTALLED) check
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2

check: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest tests/test_floors.py

bench: $(INSTALLED)
	$(BIN)/pip install --quiet -e '.[plots]'
	$(BIN)/python benchmarks/layers.py
	$(BIN)/python benchmarks/recurrences.py --without-bf16-lstm
	$(BIN)/python benchmarks/memory.py
	$(BIN)/python benchmarks/growth.py
	-$(BIN)/python benchmarks/markov.py # needs RECOLLECT_DATA, and says so
	$(BIN)/python benchmarks/readme.py

faults: $(INSTALLED) # twenty kills at random moments
	$(BIN)/python benchmarks/faults.py

$(INSTALLED): pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet -e '.[test]'
	touch $(INSTALLED)

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis
