"""What the pages say about the app is there: its keys, its commands, its settings, its pictures."""

import re
from pathlib import Path

import pytest

from odin.core.slash_commands import SLASH_COMMANDS
from odin.core.tui_settings import TuiSettings
from odin.ui.tui.keys import KEYS, format_key

ROOT = Path(__file__).parents[2]
APP = (ROOT / "docs" / "app.md").read_text(encoding="utf-8")

AS_IN_A_SHELL = {f"Ctrl+{key}" for key in "AEKUW"} | {f"Alt+{key}" for key in "BFD"}
"""Keys of the text area itself."""


def test_every_key_that_is_named_does_something() -> None:
    ours = {format_key(one.strip()) for key in KEYS for one in key.keys.split(",")}
    named = set(re.findall(r"`((?:Ctrl|Alt|Shift)\+[^`]+|F\d+)`", APP))
    in_windows = {"F2", "F5", "F6"}
    assert named - ours - AS_IN_A_SHELL - in_windows == set()


def test_every_setting_that_is_named_exists() -> None:
    named = set(re.findall(r"`tui\.(\w+)", APP))
    assert named
    assert named - set(TuiSettings.__struct_fields__) == set()


def test_every_command_that_is_named_exists() -> None:
    names = {name for command in SLASH_COMMANDS for name in (command.name, *command.aliases)}
    named = set(re.findall(r"`/([a-z]+)", APP))
    assert named
    assert named - names == set()


@pytest.mark.parametrize("name", ["app", "permission", "sessions", "narrow"])
def test_pictures_need_nothing_from_elsewhere_and_tell_nothing_of_a_machine(name: str) -> None:
    assert f"docs/pictures/{name}.svg" in (ROOT / "README.md").read_text(encoding="utf-8")
    picture = (ROOT / "docs" / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
    assert "@font-face" not in picture
    assert set(re.findall(r"https?://[^\"')\s]+", picture)) == {"http://www.w3.org/2000/svg"}
    assert re.findall(r"/(?:tmp|root|work|home/(?!someone))", picture) == []
    assert len(picture) < 80_000
