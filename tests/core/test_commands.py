"""The registry of Odin's own commands, and that the front ends call things by its names."""

import io
from typing import Any, cast

from odin.core.client import SessionInfo
from odin.core.slash_commands import SLASH_COMMANDS, find_slash_command, is_reserved
from odin.ui.plain.commands import MODES, PlainCommands
from tests.table import each

ASKED_FOR = ("new", "resume", "compact", "export", "models", "rules", "stats", "help", "loop", "diagnostics")
ALSO = ("show", "list", "switch")


class _Held:
    client = None


def plain_names() -> set[str]:
    """Every command that plain mode knows."""
    info = SessionInfo("s", "/", "m", "0", "edit_mode", "default", ())
    table = PlainCommands(cast("Any", _Held()), info, "edit_mode", io.StringIO(), lambda: None)
    return {*table.names, *MODES, "exit", "editor"}


@each("name", [*ASKED_FOR, *ALSO])
def test_what_every_coding_agent_has(name: str) -> None:
    assert is_reserved(name)


def test_names_are_words_and_none_is_given_twice() -> None:
    names = [name for command in SLASH_COMMANDS for name in (command.name, *command.aliases)]
    assert len(names) == len(set(names))
    assert all(name == name.casefold() and not name.startswith("/") and " " not in name for name in names)


@each("command", SLASH_COMMANDS)
def test_each_is_one_sentence(command: Any) -> None:
    assert command.help[0].isupper()
    assert command.help.endswith(".")
    assert "\n" not in command.help
    assert len(command.help) <= 100
    assert len(command.hint) <= 40


def test_it_is_found_by_any_of_its_names() -> None:
    assert find_slash_command("/CLEAR") is find_slash_command("new")
    assert find_slash_command("exit") is find_slash_command("/quit")
    assert find_slash_command("fix") is None
    assert find_slash_command("") is None


def test_plain_mode_has_no_name_of_its_own() -> None:
    assert {name for name in plain_names() if not is_reserved(name)} == set()


def test_plain_mode_knows_its_commands_by_all_their_names() -> None:
    known = plain_names()
    found = {alias: find_slash_command(f"/{alias}") for command in SLASH_COMMANDS for alias in command.aliases}
    missing = {alias for alias, command in found.items() if command is None or command.name not in known}
    assert missing == set(), "a name that works in one front end works in all that have the command"
