"""Finds the editors that are configured to start `odin acp`."""

import re
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from odin.config import get_home_dir

_STARTS_ODIN = re.compile(rb"""\bodin["'].{0,200}?["']acp["']""", re.DOTALL)
"""A command and its argument, in JSON, Lua or Lisp."""

_MAX_FILES = 300
_MAX_BYTES = 1_000_000


def find_editors(env: Mapping[str, str]) -> dict[str, str]:
    """Return the editors whose settings start `odin acp`, each with the file."""
    found: dict[str, str] = {}
    for editor, path in _list_files(env):
        if editor not in found and _STARTS_ODIN.search(_read(path)):
            found[editor] = str(path)
    return found


def _list_files(env: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    home = get_home_dir(env)
    settings = Path(env.get("XDG_CONFIG_HOME") or home / ".config")
    yield "Zed", settings / "zed/settings.json"
    yield "JetBrains", home / ".jetbrains/acp.json"
    for path in islice((settings / "nvim").rglob("*.lua"), _MAX_FILES):
        yield "Neovim", path
    for path in (".emacs", ".emacs.d/init.el"):
        yield "Emacs", home / path
    for name in ("init.el", "config.el"):
        yield "Emacs", settings / "emacs" / name
        yield "Emacs", settings / "doom" / name
    for folder in (settings, home / "Library/Application Support"):
        for name in ("Code", "VSCodium", "Cursor"):
            yield "VS Code" if name == "Code" else name, folder / name / "User/settings.json"


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_BYTES)
    except OSError:
        return b""
