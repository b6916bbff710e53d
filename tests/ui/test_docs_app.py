"""docs/app.md and its pictures: every key, command and setting they name exists."""

import re
from pathlib import Path

import pytest

from odin.core.slash_commands import SLASH_COMMANDS
from odin.core.tui_settings import TuiSettings
from odin.ui.tui.keys import KEYS, format_key

ROOT = Path(__file__).parents[2]
APP = (ROOT / "docs" / "app.md").read_text(encoding="utf-8")

TEXT_AREA_KEYS = {f"Ctrl+{key}" for key in "AEKUW"} | {f"Alt+{key}" for key in "BFD"}
"""Keys of the text area, as in a shell."""


def test_every_documented_key_exists() -> None:
    ours = {format_key(one.strip()) for key in KEYS for one in key.keys.split(",")}
    named = set(re.findall(r"`((?:Ctrl|Alt|Shift)\+[^`]+|F\d+)`", APP))
    in_windows = {"F2", "F5", "F6"}
    assert named - ours - TEXT_AREA_KEYS - in_windows == set()


def test_every_documented_setting_exists() -> None:
    named = set(re.findall(r"`tui\.(\w+)", APP))
    assert named
    assert named - set(TuiSettings.__struct_fields__) == set()


def test_every_documented_command_exists() -> None:
    names = {name for command in SLASH_COMMANDS for name in (command.name, *command.aliases)}
    named = set(re.findall(r"`/([a-z]+)", APP))
    assert named
    assert named - names == set()


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "docs" / "pictures").iterdir()))
def test_pictures_are_used_have_no_external_links_and_no_local_paths(name: str) -> None:
    pages = (ROOT / "README.md", *(ROOT / "docs").glob("*.md"))
    assert any(f"pictures/{name}" in page.read_text(encoding="utf-8") for page in pages)
    picture = (ROOT / "docs" / "pictures" / name).read_text(encoding="utf-8")
    assert "@font-face" not in picture
    assert set(re.findall(r"https?://[^\"')\s]+", picture)) == {"http://www.w3.org/2000/svg"}
    assert re.findall(r"/(?:tmp|root|work|home/(?!someone))", picture) == []
    assert len(picture) < 80_000
