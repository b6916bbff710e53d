from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fleet.engines import Engines, TableEngines, TemporalEngines
from tests.fleet.temporal_server import TemporalProcess, run_temporal


@pytest.fixture(scope="session")
def temporal(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporalProcess]:
    limit = "limit.historyCount.suggestContinueAsNew=40"  # so that runs continue as new
    with run_temporal(tmp_path_factory.mktemp("temporal"), "--dynamic-config-value", limit) as process:
        yield process


@pytest.fixture(params=["table", "temporal"])
def engines(request: pytest.FixtureRequest, tmp_path: Path) -> Engines:
    if request.param == "table":
        return TableEngines(tmp_path)
    return TemporalEngines(tmp_path, request.getfixturevalue("temporal").address)
