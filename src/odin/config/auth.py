"""`auth.json`: API keys, in a file only the user can read.

    {"anthropic": "sk-ant-…", "work": ["$WORK_KEY", "another"]}

A provider has one key or a list. `$NAME` stands for an environment variable; it is resolved on reading and preserved on
writing. Keys from a file that others could write are not used; a file that others could read is made private, with a
warning. The OAuth tokens of MCP servers are kept here, too, under names that begin with `mcp.`.
"""

import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from msgspec import Struct, field

from odin.config.files import (
    PRIVATE_MODE,
    locate_value,
    lock_file,
    parse_json_object,
    read_config_file,
    write_atomically,
)
from odin.config.paths import get_config_dir
from odin.core.errors import ConfigError, UsageError
from odin.core.lazy_pattern import compile_lazily
from odin.providers.settings import KEY_VARIABLE, resolve_keys

AUTH_NAME = "auth.json"
_MADE_PRIVATE: set[Path] = set()
"""Files that this process has made private, one per configuration folder. The warning is repeated to each part of each
session that reads the file."""

MAX_KEY_LENGTH = 10_000
MAX_TOKENS_LENGTH = 200_000
TOKENS_PREFIX = "mcp."
_PROVIDER_NAME = compile_lazily(r"[A-Za-z0-9][\w.-]{0,99}")


class AuthFile(Struct, frozen=True):
    """The content of the file. `raw_keys` are the keys as written, `keys` those that currently have a value.

    `tokens` are the tokens of MCP servers, as JSON.
    """

    path: Path
    raw_keys: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    keys: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    warnings: tuple[str, ...] = ()
    tokens: dict[str, str] = field(default_factory=dict[str, str])


def locate_auth_file(env: Mapping[str, str]) -> Path:
    return get_config_dir(env) / AUTH_NAME


def read_auth_file(env: Mapping[str, str]) -> AuthFile:
    """Return the stored keys. Problems with the file become warnings, never errors."""
    path = locate_auth_file(env)
    warnings: list[str] = []
    try:
        _make_private(path, warnings)
        entries = _read_entries(path)
        written = _read_keys(path, entries, warnings)
    except ConfigError as error:
        return AuthFile(path, warnings=(*warnings, f"No stored key is used: {error.describe()}"))
    keys: dict[str, tuple[str, ...]] = {}
    for provider, texts in written.items():
        for text in texts:
            values = resolve_keys(text, env)
            if not values:
                warnings.append(f"{path}: the key of {provider} is {text}, and that variable is not set.")
            for value in values:
                if _is_sendable(value):
                    keys[provider] = (*keys.get(provider, ()), value)
                    continue
                warnings.append(f"{path}: a key of {provider} is invalid: it contains spaces or non-ASCII characters.")
    tokens = {name: value for name, value in entries.items() if name.startswith(TOKENS_PREFIX) and value}
    return AuthFile(path, written, keys, tuple(warnings), {name: str(value) for name, value in tokens.items()})


def store_key(provider: str, key: str, env: Mapping[str, str]) -> None:
    """Store a key as the first of its provider, so it is the one in use; existing keys stay behind it."""
    provider, key = validate_provider_name(provider), validate_key(key)

    def change(entries: dict[str, Any]) -> None:
        others = [text for text in _list_key_texts(entries.get(provider)) if text != key]
        entries[provider] = [key, *others] if others else key

    _update_file(env, change)


def remove_keys(provider: str, env: Mapping[str, str]) -> int:
    """Remove all keys of a provider and return how many there were."""
    gone: list[str] = []
    if not locate_auth_file(env).exists():
        return 0
    _update_file(env, lambda entries: gone.extend(_list_key_texts(entries.pop(provider, None))))
    return len(gone)


def update_tokens(name: str, change: Callable[[str], str], env: Mapping[str, str]) -> None:
    """Store what `change` makes of the tokens with this name ("" if there are none), in one write.

    Raise UsageError if they are too long; then the old ones stay.
    """

    def replace(entries: dict[str, Any]) -> None:
        text = change(str(entries.get(name, "")))
        if len(text) > MAX_TOKENS_LENGTH:
            raise UsageError(f"The tokens of {name.removeprefix(TOKENS_PREFIX)} are too long to be stored.")
        entries[name] = text

    _update_file(env, replace)


def remove_tokens(pattern: str, env: Mapping[str, str]) -> int:
    """Remove the tokens whose name matches a regular expression, and return how many there were."""
    if not locate_auth_file(env).exists():
        return 0
    gone: list[str] = []

    def remove(entries: dict[str, Any]) -> None:
        gone.extend(name for name in entries if name.startswith(TOKENS_PREFIX) and re.fullmatch(pattern, name))
        for name in gone:
            del entries[name]

    _update_file(env, remove)
    return len(gone)


def validate_provider_name(name: str) -> str:
    name = name.strip()
    if not _PROVIDER_NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a valid provider name.", "Use letters, digits, '.', '-' and '_'.")
    return name


def validate_key(text: str) -> str:
    """Return the key if it is one line without blanks. Raise UsageError, without the key in the message."""
    key = text.strip()
    if not key:
        raise UsageError("No key was given.", "Paste it at the prompt, or pipe it in.")
    if not _is_sendable(key):
        raise UsageError(
            "This is not a valid key: it contains spaces, line breaks or non-ASCII characters.", "Copy it again."
        )
    return key


def _is_sendable(key: str) -> bool:
    return len(key) <= MAX_KEY_LENGTH and key.isascii() and key.isprintable() and " " not in key


def mask_key(key: str) -> str:
    """Return enough of a key to recognize it, but not to use it. A variable name is shown in full."""
    if KEY_VARIABLE.fullmatch(key):
        return key
    if len(key) < 20:
        return "…" + key[-2:] if len(key) >= 8 else "…"
    start = re.match(r"[a-z]{2,4}[-_](?:[a-z]{2,5}[-_])?", key)
    return f"{start[0] if start else ''}…{key[-4:]}"


def _make_private(path: Path, warnings: list[str]) -> None:
    """Raise ConfigError if others can write the file, or if it cannot be made private."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}.") from error
    if not stat.S_ISREG(found.st_mode) or os.name == "nt":
        return
    if found.st_uid not in (0, os.geteuid(), path.parent.stat().st_uid):
        raise ConfigError(f"{path} belongs to another user.", "Remove it, and store your keys with `odin auth add`.")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise ConfigError(f"{path} is writable by other users.", "Check its content, then run chmod 600 on it.")
    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        _MADE_PRIVATE.add(path)
        try:
            path.chmod(PRIVATE_MODE)
        except OSError as error:
            raise ConfigError(f"{path} is readable by other users.", "Run chmod 600 on it.") from error
    if path in _MADE_PRIVATE:
        warnings.append(
            f"{path} was readable by other users and is now private. Replace its keys if others use this machine."
        )


def _read_keys(path: Path, entries: dict[str, Any], warnings: list[str]) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for provider, value in entries.items():
        texts = _list_key_texts(value)
        if provider == "$schema" or value == "" or provider.startswith(TOKENS_PREFIX):
            continue
        if texts:
            found[provider] = texts
        else:
            place = f"{path}, line {locate_value(path, provider)}"
            warnings.append(f"{place}: {provider} must be a key or a list of keys; it is ignored.")
    return found


def _read_entries(path: Path) -> dict[str, Any]:
    raw = read_config_file(path)
    return parse_json_object(raw, path)[0] if raw is not None and raw.strip() else {}


def _list_key_texts(value: Any) -> tuple[str, ...]:
    """Return the keys in a value, or none if it has another type."""
    several = cast("list[Any]", value) if isinstance(value, list) else [value]
    texts = [item.strip() for item in several if isinstance(item, str) and item.strip()]
    return tuple(texts) if len(texts) == len(several) else ()


def _update_file(env: Mapping[str, str], change: Callable[[dict[str, Any]], None]) -> None:
    """Read, change and rewrite the file, preserving everything else in it."""
    import json

    path = locate_auth_file(env)
    with lock_file(path):
        _make_private(path, [])
        entries = _read_entries(path)
        change(entries)
        # Remove other users' access to the folder that holds the keys, if it is ours.
        found = path.parent.stat()
        if os.name != "nt" and found.st_uid == os.geteuid() and found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            path.parent.chmod(0o700)
        write_atomically(path, (json.dumps(entries, indent=2, ensure_ascii=False) + "\n").encode())
