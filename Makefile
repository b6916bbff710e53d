# Every target does the set-up it needs.  PYTHON=python3.13 VENV=.venv-313 make test   tries another interpreter.
VENV ?= .venv
BIN := $(VENV)/bin

# Test workers start faster with cached bytecode.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: test test-all lint bench docs docs-check format setup clean

setup:
	@sh bin/prepare $(VENV) dev

# `test` leaves out the tests marked slow; `test-all` runs every test.
test: SELECTION := -m "not slow"
# A test that fails while its neighbours press on the machine gets one more chance alone, and is named as unsteady.
test test-all: setup
	@$(BIN)/python -m pytest $(SELECTION) $(ARGS) || { [ $$? -eq 1 ] \
	  && echo "Trying what failed once more, alone. What passes now is unsteady and should be mended:" \
	  && $(BIN)/python -m pytest --last-failed --last-failed-no-failures none -n 0 -rA --no-header $(SELECTION) $(ARGS); }

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
