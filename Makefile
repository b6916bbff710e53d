# Every target sets up what it needs. Another interpreter: PYTHON=python3.13 VENV=.venv-313 make test
VENV ?= .venv
BIN := $(VENV)/bin

# Test workers start faster with cached bytecode.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: test test-all soak lint bench docs docs-check wires format setup clean

setup:
	@sh bin/prepare $(VENV) dev

# `test` leaves out the tests marked slow; `test-all` runs every test.
test: SELECTION := -m "not slow"
# A test that fails in parallel runs once more alone; if it passes then, it is printed as unsteady.
# In the whole run the SDKs of the vendors judge the requests of every test.
test-all: export ODIN_REFEREE := 1
test test-all: setup
	@$(BIN)/python -m pytest $(SELECTION) $(ARGS) || { [ $$? -eq 1 ] \
	  && echo "Retrying the failed tests alone. Tests that pass now are unsteady; fix them:" \
	  && $(BIN)/python -m pytest --last-failed --last-failed-no-failures none -n 0 -rA --no-header $(SELECTION) $(ARGS); }

# Races that the test run repeats only a few times.
soak: setup
	ODIN_RACE_ROUNDS=50 $(BIN)/python -m pytest --timeout 1200 tests/safety/test_git_races.py $(ARGS)

# The type checker collects garbage less often with a larger young generation: a tenth of its time.
lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	NODE_OPTIONS="--max-semi-space-size=256 $$NODE_OPTIONS" $(BIN)/basedpyright -p pyproject.toml --level error

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup
	$(BIN)/python bench/run.py $(ARGS)

docs: setup
	$(BIN)/python bin/docs.py --write

docs-check: setup
	$(BIN)/python bin/docs.py

# What the newest SDKs of the vendors added to or removed from their wire formats.
wires: setup
	@folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT \
	  && { $(BIN)/python -m pip install --quiet --disable-pip-version-check --target "$$folder" anthropic openai google-genai \
	  || { echo "The SDKs could not be installed; the lines above say why."; exit 2; }; } \
	  && PYTHONPATH="$$folder" $(BIN)/python bin/wires.py $(ARGS)

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis dist build
