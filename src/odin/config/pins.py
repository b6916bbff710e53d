"""What trust in a folder is pinned to: the bytes of everything in a project that executes, redirects or allows."""

import json
import os
import re
import stat
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any, cast

from odin.config.places import CONFIG_NAME
from odin.core.errors import ConfigError

PINNED_FILES = (CONFIG_NAME, ".mcp.json")
PINNED_FOLDERS = (".odin/commands", ".claude/commands", ".odin/agents", ".odin/skills")
MAX_PINNED_FILES = 2_000
MAX_PINNED_BYTES = 10_000_000

_PROJECT_VARIABLE = re.compile(r"\$(?:\{(?:(?:CLAUDE|ODIN)_PROJECT_DIR|PWD)\}|(?:(?:CLAUDE|ODIN)_PROJECT_DIR|PWD)\b)")
_SEPARATOR = re.compile(r"[;|&()\n]+|\{|then|do|else|!")
_SCRIPTS = (".sh", ".bash", ".zsh", ".fish", ".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".pl", ".php", ".lua", ".ps1")
_SHELLS = frozenset(("sh", "bash", "zsh", "dash", "ksh", "fish", "source", ""))
_LANGUAGES = frozenset(("python", "node", "ruby", "perl", "php", "lua", "deno", "bun", "tsx", "uv", "run"))
_WRAPPERS = frozenset(("exec", "env", "sudo", "nohup", "time", "timeout", "nice", "command", "if"))
_RUNNERS = _SHELLS | _LANGUAGES | _WRAPPERS
"""What takes the name of a program, or of a file that is one, as its next word."""


def hash_pinned_files(folder: str, config_text: bytes | None) -> dict[str, str]:
    """The digests of everything in a project that executes, redirects or allows, by path below the folder."""
    found: dict[str, str] = {}
    if config_text is not None:
        found[CONFIG_NAME] = _hash_bytes(config_text)
    for name in _list_pinned_files(folder):
        found[name] = _hash_bytes(_read_pinned(Path(folder, name)))
    return found | {name: digest for name, digest in hash_hook_programs(folder, config_text).items() if digest}


def hash_hook_programs(folder: str, config_text: bytes | None) -> dict[str, str]:
    """The files of the project that its hooks run, with their digests; "" for one that is not there, or not yet.

    A program that is run is as good as the configuration. A file that a hook merely writes or reads is none of them, or
    its own log would end the trust in it.
    """
    found: dict[str, str] = {}
    for text in _collect_texts(_read_hooks(config_text)):
        for word in _find_programs(_PROJECT_VARIABLE.sub(lambda _: folder, text)):
            path = Path(os.path.normpath(Path(folder, word)))
            if path.is_relative_to(folder) and path not in (Path(folder), Path(folder, CONFIG_NAME)):
                found[str(path.relative_to(folder))] = hash_program(path)
    return found


def hash_program(path: Path) -> str:
    return _hash_bytes(_read_pinned(path)) if path.is_file() else ""


def _list_pinned_files(folder: str) -> Iterator[str]:
    for name in PINNED_FILES:
        if name != CONFIG_NAME and os.path.lexists(Path(folder, name)):
            yield name
    found = chain.from_iterable(_walk_files(Path(folder, name)) for name in PINNED_FOLDERS)
    for count, path in enumerate(found):
        if count >= MAX_PINNED_FILES:
            raise ConfigError(f"{folder} holds more than {MAX_PINNED_FILES:,} files under .odin.", "Remove some.")
        yield str(path.relative_to(folder))


def _walk_files(top: Path) -> Iterator[Path]:
    """Every file under a folder. A link to a folder cannot be pinned, because it may mean another one tomorrow."""
    if not os.path.lexists(top):
        return
    if top.is_symlink() or not top.is_dir():
        yield top
        return
    for where, folders, files in os.walk(top, onerror=_raise_unreadable):
        folders.sort()
        yield from (Path(where, name) for name in folders if Path(where, name).is_symlink())
        yield from (Path(where, name) for name in sorted(files))


def _raise_unreadable(error: OSError) -> None:
    raise ConfigError(f"{error.filename} cannot be read: {error.strerror}.", "Make it readable or remove it.")


def _find_programs(command: str) -> Iterator[str]:
    """The words of a command line that may be programs: where one begins, after an interpreter, scripts anywhere.

    After `cd sub` they are looked for in that folder as well. A word with spaces in it may be a command line itself.
    """
    first, entering, folder = True, False, ""
    for word in _split_words(command):
        if _SEPARATOR.fullmatch(word):
            first, entering = True, False
        elif entering:
            folder, entering = str(Path(folder, word)), False
        elif not word.startswith("-"):
            if first or word.endswith(_SCRIPTS):
                yield from (word, str(Path(folder, word))) if folder else (word,)
            if " " in word and word != command:
                yield from (str(Path(folder, inner)) for inner in _find_programs(word))
            entering = first and word in ("cd", "pushd")
            first = first and ("=" in word or Path(word).name.rstrip("0123456789.") in _RUNNERS)


def _split_words(command: str) -> list[str]:
    from shlex import shlex

    reader = shlex(command, posix=True, punctuation_chars=";|&()\n")
    reader.whitespace = " \t\r"
    reader.whitespace_split = True
    reader.commenters = ""
    try:
        return list(reader)
    except ValueError:  # a quotation mark is missing
        return [word for word in re.split(r"[\s\"'`;|&()]+", command) if word]


def _read_hooks(config_text: bytes | None) -> Any:
    try:
        value: Any = json.loads((config_text or b"null").decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None
    return cast("dict[str, Any]", value).get("hooks") if isinstance(value, dict) else None


def _collect_texts(value: Any) -> Iterator[str]:
    """Every text in a declaration, at whatever depth."""
    waiting: list[Any] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            yield item
        elif isinstance(item, list):
            waiting += cast("list[Any]", item)
        elif isinstance(item, dict):
            waiting += cast("dict[str, Any]", item).values()


def _read_pinned(path: Path) -> bytes:
    hint = "Remove it, or go on untrusted."
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise ConfigError(f"{path} is not a regular file, so its content cannot be pinned.", hint)
        if found.st_size > MAX_PINNED_BYTES:
            raise ConfigError(f"{path} is {found.st_size:,} bytes long; {MAX_PINNED_BYTES:,} is the limit.", hint)
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}.", hint) from error


def _hash_bytes(data: bytes) -> str:
    import hashlib

    return hashlib.sha256(data).hexdigest()
