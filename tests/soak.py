"""How much the long suites try: a fixed sample in the test run, everything with `make soak`.

These suites kill, race, type and damage files at seeded random. The sample has the same seeds in every run, so that a
run can be repeated; what it leaves out is for `make soak`, which sets `ODIN_SOAK`. A test with a seed has it in its
name, and `ODIN_SEED` is the first one: `ODIN_SEED=42 make soak ARGS=tests/crash/test_kills.py` begins with that.
"""

import os

import pytest

SOAK = bool(os.environ.get("ODIN_SOAK"))
FIRST_SEED = int(os.environ.get("ODIN_SEED", "1"))

soak = pytest.mark.soak
"""Marks a test that `make soak` runs in full."""


def choose(sample: int, full: int) -> int:
    """Return how often something is tried in this run."""
    return full if SOAK else sample


def list_seeds(sample: int, full: int) -> range:
    return range(FIRST_SEED, FIRST_SEED + choose(sample, full))
