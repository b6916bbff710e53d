"""Sets one key in the user's odinconfig.json. Everything else in the file stays as it was written, byte for byte."""

import json
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from odin.config.places import CONFIG_NAME, get_config_dir
from odin.config.read import parse_json_object, read_config_file
from odin.config.writing import PRIVATE_MODE, lock_file, write_atomically

_BOM = "\ufeff"
_BLANK = re.compile(r"[ \t\r\n]*")


class KeyPosition(Struct, frozen=True):
    """Where a key and its value stand in the text of an object."""

    key: str
    key_at: int
    value_at: int
    end: int


def set_key(key: str, value: Any, env: Mapping[str, str]) -> Path:
    """Write a key into the user's file, which is made when there is none. Gives the file.

    Raises ConfigError, and leaves the file alone, when it is not valid JSON.
    """
    path = get_config_dir(env) / CONFIG_NAME
    with lock_file(path):
        raw = read_config_file(path)
        text = insert_key(raw, path, key, value)
        mode = stat.S_IMODE(path.stat().st_mode) if raw is not None else PRIVATE_MODE
        write_atomically(path, text.encode(), mode)
    return path


def insert_key(raw: bytes | None, path: Path, key: str, value: Any) -> str:
    """The text of the file with this key in it."""
    said = json.dumps(value, ensure_ascii=False)
    if raw is None or not raw.strip():
        return f"{{\n  {json.dumps(key)}: {said}\n}}\n"
    parse_json_object(raw, path)
    text = raw.decode("utf-8")
    found = [entry for entry in scan_keys(text) if entry.key == key]
    if found:
        last = found[-1]  # of a key that is written twice the last one counts
        return f"{text[: last.value_at]}{said}{text[last.end :]}"
    return _insert_first(text, f"{json.dumps(key)}: {said}")


def scan_keys(text: str) -> Iterator[KeyPosition]:
    """The keys of the object that a valid text holds, in their order. It is the only place that knows positions."""
    decoder = json.JSONDecoder()
    at = _skip_blank(text, _find_opening(text) + 1)
    while text[at] == '"':
        key, after = decoder.raw_decode(text, at)
        value_at = _skip_blank(text, _skip_blank(text, after) + 1)
        _, end = decoder.raw_decode(text, value_at)
        yield KeyPosition(key, at, value_at, end)
        at = _skip_blank(text, end)
        if text[at] != ",":
            return
        at = _skip_blank(text, at + 1)


def _find_opening(text: str) -> int:
    return _skip_blank(text, len(_BOM) if text.startswith(_BOM) else 0)


def _skip_blank(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


def _insert_first(text: str, line: str) -> str:
    """As the first key, laid out like the one that was first."""
    opening = _find_opening(text) + 1
    first = _skip_blank(text, opening)
    blank = text[opening:first]
    if text[first] != "}":
        return f"{text[:opening]}{blank}{line},{blank or ' '}{text[first:]}"
    newline = "\r\n" if "\r\n" in text else "\n"
    return f"{text[:opening]}{newline}  {line}{newline}{text[first:]}"
