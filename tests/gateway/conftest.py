from collections.abc import Generator

import pytest

from tests.gateway.synapse import Homeserver, install, run_homeserver


@pytest.fixture(scope="session")
def homeserver(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Generator[Homeserver]:
    assert request.config.cache is not None
    python = install(request.config.cache.mkdir("synapse"))
    with run_homeserver(python, tmp_path_factory.mktemp("synapse")) as server:
        yield server
