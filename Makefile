# Every target sets up what it needs. Another interpreter: PYTHON=python3.13 VENV=.venv-313 make test
VENV ?= .venv
BIN := $(VENV)/bin

# Test workers start faster with cached bytecode.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: test test-all soak lint bench docs docs-check wires format setup clean

setup:
	@sh bin/prepare $(VENV) dev

# `test` leaves out the tests marked slow; `test-all` runs every test, and of the long suites a sample.
test: SELECTION := -m "not slow"
# In the whole run the SDKs of the vendors judge the requests of every test.
test-all: export ODIN_REFEREE := 1
# Failed tests are repeated once, alone, and named. The run fails if one fails again.
test test-all: setup
	@rm -f .pytest_cache/failed-once
	@$(BIN)/python -m pytest $(SELECTION) $(ARGS) || { [ $$? -eq 1 ] && echo "Repeating the failed tests alone:" \
	  && ODIN_REPEAT=1 $(BIN)/python -m pytest --last-failed --last-failed-no-failures none -n 0 --no-header $(SELECTION) $(ARGS); }

# The long suites in full, which kill, race and type at random; the other runs have a sample of them.
soak: setup
	ODIN_SOAK=1 $(BIN)/python -m pytest -m "soak or hypothesis" --timeout 3600 $(ARGS)

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
