# Every target sets up what it needs. Another interpreter: PYTHON=python3.13 VENV=.venv-313 make test
VENV ?= .venv
BIN := $(VENV)/bin

# Test workers start faster with cached bytecode.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: test test-slow test-all soak steady lint bench docs docs-check wires format setup clean

setup:
	@sh bin/prepare $(VENV) dev

# `test` leaves out the tests marked slow, which `test-slow` runs; `test-all` runs both. Of the long suites it is a sample.
test: SELECTION := -m "not slow"
test-slow: SELECTION := -m slow
# In the whole run the SDKs of the vendors judge the requests of every test; so they do if both parts run in CI.
test-slow test-all: export ODIN_REFEREE := 1
test test-slow test-all: setup
	@sh bin/in-memory $(BIN)/python -m pytest $(SELECTION) $(ARGS)

# The long suites in full, which kill, race and type at random; the other runs have a sample of them.
soak: setup
	ODIN_SOAK=1 $(BIN)/python -m pytest -m "soak or hypothesis" --timeout 3600 $(ARGS)

# Tests that once failed now and then, again and again, and the whole suite, while other processes keep the cores busy.
ROUNDS ?= 100
SUITES ?= 3
steady: setup
	@$(BIN)/python -m tests.steady --rounds $(ROUNDS) --suites $(SUITES) $(ARGS)

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

# What the newest SDKs of the vendors added to or removed from their wire formats, and what the newest referees of MCP say.
wires: setup
	@{ folder=$$(mktemp -d) && trap 'rm -rf "$$folder"' EXIT \
	  && { $(BIN)/python -m pip install --quiet --disable-pip-version-check --target "$$folder" anthropic openai google-genai \
	  || { echo "The SDKs could not be installed; the lines above say why."; exit 2; }; } \
	  && PYTHONPATH="$$folder" $(BIN)/python bin/wires.py $(ARGS); }; sdks=$$?; \
	  $(BIN)/python bin/referees.py $(ARGS) && exit $$sdks

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis dist build
