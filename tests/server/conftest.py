from collections.abc import Iterator

import pytest

from odin.server import pairing_codes


@pytest.fixture(autouse=True, scope="package")
def cheap_codes() -> Iterator[None]:
    """Hash pairing codes at the least cost, which other processes than that of the tests do not do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pairing_codes, "HASH_COST", 2)
        yield
