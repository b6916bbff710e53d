# Every target does the set-up it needs.  PYTHON=python3.13 VENV=.venv-313 make test   tries another interpreter.
VENV ?= .venv
BIN := $(VENV)/bin

.PHONY: test lint bench docs docs-check format setup clean

setup:
	@sh bin/prepare $(VENV) dev

test: setup
	$(BIN)/python -m pytest $(ARGS)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/basedpyright -p pyproject.toml --level error

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	$(BIN)/python bench/run.py $(ARGS)

docs: setup
	$(BIN)/python bin/docs.py --write

docs-check: setup
	$(BIN)/python bin/docs.py

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis dist build
