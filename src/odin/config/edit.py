"""Sets one key in the user's odinconfig.json. Everything else in the file stays as it was written, byte for byte."""

import json
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec import Struct

from odin.config.places import CONFIG_NAME, config_dir
from odin.config.read import parse_object, read_file
from odin.config.writing import PRIVATE, locked, put_file

_BOM = "\ufeff"
_BLANK = re.compile(r"[ \t\r\n]*")


class Entry(Struct, frozen=True):
    """Where a key and its value stand in the text of an object."""

    key: str
    key_at: int
    value_at: int
    end: int


def set_key(key: str, value: Any, env: Mapping[str, str]) -> Path:
    """Write a key into the user's file, which is made when there is none. Gives the file.

    Raises ConfigError, and leaves the file alone, when it is not valid JSON.
    """
    path = config_dir(env) / CONFIG_NAME
    with locked(path):
        raw = read_file(path)
        text = edited(raw, path, key, value)
        mode = stat.S_IMODE(path.stat().st_mode) if raw is not None else PRIVATE
        put_file(path, text.encode(), mode)
    return path


def edited(raw: bytes | None, path: Path, key: str, value: Any) -> str:
    """The text of the file with this key in it."""
    said = json.dumps(value, ensure_ascii=False)
    if raw is None or not raw.strip():
        return f"{{\n  {json.dumps(key)}: {said}\n}}\n"
    parse_object(raw, path)
    text = raw.decode("utf-8")
    found = [entry for entry in entries(text) if entry.key == key]
    if found:
        last = found[-1]  # of a key that is written twice the last one counts
        return f"{text[: last.value_at]}{said}{text[last.end :]}"
    return _added(text, f"{json.dumps(key)}: {said}")


def entries(text: str) -> Iterator[Entry]:
    """The keys of the object that a valid text holds, in their order. It is the only place that knows positions."""
    decoder = json.JSONDecoder()
    at = _after_blank(text, _opening(text) + 1)
    while text[at] == '"':
        key, after = decoder.raw_decode(text, at)
        value_at = _after_blank(text, _after_blank(text, after) + 1)
        _, end = decoder.raw_decode(text, value_at)
        yield Entry(key, at, value_at, end)
        at = _after_blank(text, end)
        if text[at] != ",":
            return
        at = _after_blank(text, at + 1)


def _opening(text: str) -> int:
    return _after_blank(text, len(_BOM) if text.startswith(_BOM) else 0)


def _after_blank(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


def _added(text: str, line: str) -> str:
    """As the first key, laid out like the one that was first."""
    opening = _opening(text) + 1
    first = _after_blank(text, opening)
    blank = text[opening:first]
    if text[first] != "}":
        return f"{text[:opening]}{blank}{line},{blank or ' '}{text[first:]}"
    newline = "\r\n" if "\r\n" in text else "\n"
    return f"{text[:opening]}{newline}  {line}{newline}{text[first:]}"
