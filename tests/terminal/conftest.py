"""Somebody who has used Odin before, so that no welcome stands in the way."""

import json
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def known(home: Path) -> None:
    folder = home / ".config" / "odin"
    folder.mkdir(parents=True)
    (folder / "odinconfig.json").write_text(json.dumps({"tui": {"bell": False, "desktop_notification": False}}))
