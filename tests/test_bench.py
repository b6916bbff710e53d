"""`make bench` measures a group once more if it misses a bound."""

import argparse
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).parents[1] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, ModuleType]:
    monkeypatch.setattr(sys, "path", [str(BENCH), *sys.path])
    run, row = (import_module(name) for name in ("run", "row"))
    for name in ("run", "row"):
        monkeypatch.delitem(sys.modules, name)
    return run, row


def test_a_missed_row_is_replaced_by_its_second_result(
    bench: tuple[ModuleType, ModuleType], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    run, row = bench
    results = iter([(1.0, 9.0, 9.0), (7.0, 2.0, 8.0)])
    group = ModuleType("group")
    group.__dict__["rows"] = lambda: [
        row.Row(name, value, None, 5.0, "ms", False) for name, value in zip("abc", next(results), strict=True)
    ]
    monkeypatch.setitem(sys.modules, "group", group)
    monkeypatch.setattr(run, "measure", run.measure_here)  # in this process
    rows = run.measure_twice("group", argparse.Namespace())
    assert [(found.odin, found.good) for found in rows] == [(1.0, True), (2.0, True), (8.0, False)]
    assert "group: measuring again, because of: b; c" in capsys.readouterr().err
