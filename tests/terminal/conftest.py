"""Settings of a user who has used Odin before, so that no welcome is shown."""

import json
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def skip_welcome(home: Path) -> None:
    folder = home / ".config" / "odin"
    folder.mkdir(parents=True)
    (folder / "odinconfig.json").write_text(json.dumps({"tui": {"bell": False, "desktop_notification": False}}))
