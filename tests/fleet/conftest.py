from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.fleet.engines import Engines, TableEngines, TemporalEngines
from tests.fleet.temporal_server import TemporalProcess, run_temporal


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """What needs Temporal runs in `make test-slow`: its server takes long to start, and waits for itself."""
    for item in (item for item in items if item.nodeid.startswith("tests/fleet/")):
        if isinstance(item, pytest.Function) and "temporal" in item.fixturenames:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def temporal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporalProcess]:
    limit = "limit.historyCount.suggestContinueAsNew=40"  # so that runs continue as new
    with run_temporal(tmp_path_factory.mktemp("temporal"), "--dynamic-config-value", limit) as process:
        yield process


@pytest.fixture(params=["table", pytest.param("temporal", marks=pytest.mark.slow)])
def engines(request: pytest.FixtureRequest, tmp_path: Path) -> Engines:
    if request.param == "table":
        return TableEngines(tmp_path)
    return TemporalEngines(tmp_path, request.getfixturevalue("temporal").address)
