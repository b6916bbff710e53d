"""The pages for newcomers and the pictures: every key, command, flag and setting they name exists."""

import re
from pathlib import Path

import pytest

from odin.commands import build_parser
from odin.commands.completions import capture_parser
from odin.commands.main import COMMANDS
from odin.context.library import BUILTIN_COMMANDS
from odin.core.slash_commands import SLASH_COMMANDS
from odin.core.tui_settings import TuiSettings
from odin.ui.tui.keys import KEYS, format_key

ROOT = Path(__file__).parents[2]
PAGES = ["app", "tutorial", "install", "troubleshooting", "dev-servers", "ci", "privacy", "sessions", "checkpoints"]
TEXT = "\n".join((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8") for page in PAGES)

TEXT_AREA_KEYS = {f"Ctrl+{key}" for key in "AEKUW"} | {f"Alt+{key}" for key in "BFD"}
"""Keys of the text area, as in a shell."""


def test_every_documented_key_exists() -> None:
    ours = {format_key(one.strip()) for key in KEYS for one in key.keys.split(",")}
    named = set(re.findall(r"`((?:Ctrl|Alt|Shift)\+[^`]+|F\d+)`", TEXT))
    in_windows = {"F2", "F5", "F6"}
    assert named - ours - TEXT_AREA_KEYS - in_windows == set()


def test_every_documented_subcommand_and_flag_exists() -> None:
    help_texts = {name: capture_parser(name, module).format_help() for name, module in COMMANDS.items()}
    of_odin = build_parser().format_help()
    for line in re.findall(r"(?:^|`|\$ )odin ([^`\n]*)", TEXT, re.MULTILINE):
        words = re.sub(r"(['\"]).*?\1|  .*|#.*", "", line).split()
        if words and re.fullmatch(r"[a-z]+", words[0]):
            assert words[0] in help_texts, line
        known = help_texts.get(words[0] if words else "", "") + of_odin
        assert [word for word in words if re.fullmatch(r"--[a-z-]+", word) and word not in known] == [], line


def test_every_documented_setting_exists() -> None:
    named = set(re.findall(r"`tui\.(\w+)", TEXT))
    assert named
    assert named - set(TuiSettings.__struct_fields__) == set()


def test_every_documented_command_exists() -> None:
    names = {name for command in SLASH_COMMANDS for name in (command.name, *command.aliases)} | BUILTIN_COMMANDS.keys()
    named = set(re.findall(r"`/([a-z]+(?:-[a-z]+)*)(?!/|[a-z])", TEXT))
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
