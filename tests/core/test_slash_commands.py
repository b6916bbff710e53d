"""The registry of slash commands, and that plain mode uses its names."""

import io
from typing import Any, cast

from odin.core.client import SessionInfo
from odin.core.slash_commands import SLASH_COMMANDS, find_slash_command, is_reserved
from odin.ui.plain.commands import MODES, PlainCommands
from tests.table import each

REQUIRED_NAMES = ("new", "resume", "compact", "export", "models", "rules", "stats", "help", "loop", "diagnostics")
OTHER_NAMES = ("show", "list", "switch")


class _FakeSessions:
    client = None


def list_plain_names() -> set[str]:
    """Return every command name of plain mode."""
    info = SessionInfo("s", "/", "m", "0", "edit_mode", "default", ())
    table = PlainCommands(cast("Any", _FakeSessions()), info, "edit_mode", io.StringIO(), lambda: None)
    return {*table.names, *MODES, "exit", "editor"}


@each("name", [*REQUIRED_NAMES, *OTHER_NAMES])
def test_common_slash_command_names_are_reserved(name: str) -> None:
    assert is_reserved(name)


def test_names_are_unique_lower_case_words() -> None:
    names = [name for command in SLASH_COMMANDS for name in (command.name, *command.aliases)]
    assert len(names) == len(set(names))
    assert all(name == name.casefold() and not name.startswith("/") and " " not in name for name in names)


@each("command", SLASH_COMMANDS)
def test_help_is_one_short_sentence(command: Any) -> None:
    assert command.help[0].isupper()
    assert command.help.endswith(".")
    assert "\n" not in command.help
    assert len(command.help) <= 100
    assert len(command.hint) <= 40


def test_command_is_found_by_any_of_its_names() -> None:
    assert find_slash_command("/CLEAR") is find_slash_command("new")
    assert find_slash_command("exit") is find_slash_command("/quit")
    assert find_slash_command("fix") is None
    assert find_slash_command("") is None


def test_plain_mode_uses_only_registered_names() -> None:
    assert {name for name in list_plain_names() if not is_reserved(name)} == set()


def test_plain_mode_accepts_every_alias_of_its_commands() -> None:
    known = list_plain_names()
    found = {alias: find_slash_command(f"/{alias}") for command in SLASH_COMMANDS for alias in command.aliases}
    missing = {alias for alias, command in found.items() if command is None or command.name not in known}
    assert missing == set(), "an alias must work in every front end that has the command"
