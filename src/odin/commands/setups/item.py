"""What a setup consists of, and how its files are read. Nothing in them makes a reader fail."""

import json
import os
import re
import time
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct

from odin.config.files import MAX_DEPTH, is_deeper_than, read_config_file
from odin.context.markdown_folder import MarkdownFolder
from odin.core.errors import ConfigError
from odin.core.tool import ALIASES, get_canonical_name, get_display_name
from odin.session.messages import read_json_lines

MAX_SESSIONS = 10
"""How many of the latest sessions of the project are offered for each agent."""

SIGN_IN = "A sign-in is not taken over. Use a key: `odin auth add`."
SKILLS = "Add the folder to skills.paths in odinconfig.json."

_MAX_BYTES = 50_000_000
"""Claude Code's ~/.claude.json grows with the number of projects."""

_START_BYTES = 300_000
"""How much of a transcript is read for its title."""

Kind = Literal[
    "MCP server", "rule", "hook", "command", "agent", "instructions", "key", "provider", "model", "session", "settings"
]


class SetupFolders(Struct, frozen=True):
    """Where setups are looked for: the home folder, the project, and the variables that move folders."""

    home: Path
    root: Path
    env: Mapping[str, str]

    def find_folder(self, variable: str, default: str, name: str = "") -> Path:
        return Path(self.env.get(variable) or self.home / default, name)

    def is_in_project(self, path: Path) -> bool:
        return path.is_relative_to(self.root) and self.root not in (self.home, *self.home.parents)


class SetupItem(Struct, frozen=True):
    """One thing in a setup.

    `value` is what would be imported: settings, the text of a file, a rule and its action, a key, or the id of a
    session. Without it, `note` says why nothing is; with `used` because Odin reads the file where it is. What is not
    `suggested` is imported only if the user names it.
    """

    kind: Kind
    name: str
    source: Path
    value: Any = None
    note: str = ""
    used: bool = False
    suggested: bool = True


def as_object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_texts(value: Any) -> list[str]:
    return [item for item in cast("list[Any]", value) if isinstance(item, str)] if isinstance(value, list) else []


_STRING = r'("(?:\\[\s\S]|[^"\\])*"?)'  # also without an end, so that no text takes long
_COMMENT = rf"{_STRING}|//[^\n]*|/\*[\s\S]*?(?:\*/|\Z)"
_TRAILING_COMMA = rf"{_STRING}|,(?=\s*[}}\]])"


def read_settings(path: Path, items: list[SetupItem]) -> dict[str, Any]:
    """Return the content of a TOML file, or of a JSON file with or without comments. Add an item if it is broken."""
    found: Any = {}
    try:
        text = (read_config_file(path, _MAX_BYTES) or b"").decode("utf-8-sig")
        if path.suffix == ".toml":
            found = tomllib.loads(text)
        elif text.strip():
            found = msgspec.json.decode(re.sub(_TRAILING_COMMA, r"\1", re.sub(_COMMENT, r"\1", text)))
        problem = "it is nested too deeply." if is_deeper_than(MAX_DEPTH, found) else ""
    except ConfigError as error:
        problem = str(error)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        problem = f"{error}."
    if problem:
        items.append(SetupItem("settings", path.name, path, note=f"It cannot be read: {problem}"))
    return {} if problem else as_object(found)


def read_text(kind: Kind, path: Path, items: list[SetupItem]) -> str:
    """Return the text of a file, "" without one. Add an item if it cannot be read."""
    try:
        return (read_config_file(path) or b"").decode("utf-8", "replace")
    except ConfigError as error:
        items.append(SetupItem(kind, path.name, path, note=str(error)))
        return ""


def read_folder(kind: Kind, folder: Path, suffix: str, setup: SetupFolders, items: list[SetupItem]) -> None:
    """Add an item with the text of each file in a folder of commands or agents."""

    def report(problem: str) -> None:
        items.append(SetupItem(kind, folder.name, folder, note=problem))

    within = str(setup.root) if setup.is_in_project(folder) else ""
    for file in MarkdownFolder(str(folder), within, (suffix,)).read_files(report):
        if text := read_text(kind, Path(file.file), items):
            items.append(SetupItem(kind, file.name, Path(file.file), text))


def add_files(kind: Kind, items: list[SetupItem], *paths: Path, note: str = "") -> None:
    """Add items for those files and folders that exist. Odin reads them where they are, unless a note says why not."""
    items.extend(SetupItem(kind, path.name, path, note=note, used=not note) for path in paths if os.path.exists(path))  # noqa: PTH110 - it never fails


def add_instructions(path: Path, items: list[SetupItem]) -> None:
    if (text := read_text("instructions", path, items)).strip():
        items.append(SetupItem("instructions", path.name, path, text))


def make_rule(tool: str, pattern: str, action: str, source: Path) -> SetupItem:
    """Return the item of a permission rule for a tool by its name in another agent."""
    is_bare = pattern in ("", "*", "**")
    shown = get_display_name(tool) + ("" if is_bare else f"({pattern})")
    if get_canonical_name(tool) not in ALIASES or action not in ("allow", "ask", "deny"):
        return SetupItem("rule", f"{action} {shown}", source, note="Odin has no such rule.")
    note = "It allows all calls of the tool." if is_bare and action == "allow" else ""
    return SetupItem("rule", f"{action} {shown}", source, (shown, action), note, suggested=not note)


def make_sessions(files: Iterable[Path], pattern: bytes) -> Iterator[SetupItem]:
    """Yield an item for each of the first transcripts that has a prompt. The pattern finds the id in name or start."""
    for path in islice(files, MAX_SESSIONS):
        with path.open("rb") as file:
            start = file.read(_START_BYTES)
        found = re.search(pattern, path.name.encode() + b"\n" + start)
        prompts = [item for item in read_json_lines(start.splitlines()).build_messages() if item.role == "user"]
        if found is not None and prompts:
            day = time.strftime("%Y-%m-%d", time.localtime(path.stat().st_mtime))
            yield SetupItem("session", f"{day} {' '.join(prompts[0].content.split())}", path, found[1].decode())


def list_newest(folder: Path, pattern: str) -> list[Path]:
    """Return the readable files that match, newest first."""
    paths = (path for path in folder.glob(pattern) if os.access(path, os.R_OK) and path.is_file())
    return [path for _, path in sorted(((path.stat().st_mtime, path) for path in paths), reverse=True)]


def format_markdown(fields: Mapping[str, Any], text: str) -> str:
    """Return a Markdown file with front matter, whose values are JSON, as YAML allows."""
    front = "".join(f"{key}: {json.dumps(value)}\n" for key, value in fields.items() if value)
    return f"---\n{front}---\n{text}\n" if front else f"{text}\n"
