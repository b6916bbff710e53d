"""Reads JSON as models write it, with the slips repaired that leave no doubt about what was meant."""

import json
import re
from typing import Any, cast

_JSON_DECODER = json.JSONDecoder(strict=False)
_JSON_STRING = r'"(?:[^"\\]|\\.)*"'
_TRAILING_COMMA = re.compile(rf"({_JSON_STRING})|,(?=\s*[}}\]])", re.DOTALL)
_BAD_ESCAPE = re.compile(r'\\(["\\/bfnrtu]|.)', re.DOTALL)
_BRACKET = re.compile(rf"{_JSON_STRING}|'(?:[^'\\\n]|\\.)*'|[{{}}\[\]]|[\"']", re.DOTALL)


def parse_loose_json(raw: str) -> Any:
    """One JSON value, with the slips repaired that leave no doubt about what was meant; None when it is broken."""
    raw = raw.strip()
    value, end = read_json(raw, 0)
    return value if end == len(raw) else None


def parse_leading_object(text: str) -> dict[str, Any] | None:
    """The JSON object that a text begins with, whatever comes after it."""
    value, _ = read_json(text, len(text) - len(text.lstrip()))
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None


def read_json(text: str, at: int) -> tuple[Any, int]:
    """The JSON value that starts at a position and where it ends, or an end of -1."""
    try:
        return _JSON_DECODER.raw_decode(text, at)
    except (ValueError, RecursionError):
        pass
    end = _find_balanced_end(text, at)
    if end < 0:
        return None, -1
    value = _parse_repaired(text[at:end])
    return (None, -1) if value is None else (value, end)


def _find_balanced_end(text: str, at: int) -> int:
    """Where the bracket that opens at a position is closed again, strings left aside; -1 when it never is."""
    depth = 0
    for token in _BRACKET.finditer(text, at):
        found = token[0]
        if found in "{[":
            depth += 1
        elif found in "}]":
            depth -= 1
            if depth == 0:
                return token.end()
        elif len(found) == 1:
            return -1
        if depth == 0:
            return -1
    return -1


def _parse_repaired(raw: str) -> Any:
    """Trailing commas, invalid escapes such as \\d, and Python literals: each has only one sensible reading."""
    mended = _TRAILING_COMMA.sub(lambda match: match[1] or "", raw)
    for candidate in (mended, _BAD_ESCAPE.sub(_fix_escape, mended)):
        try:
            return _JSON_DECODER.decode(candidate)
        except (ValueError, RecursionError):
            continue
    if "'" not in raw or "\\" in raw:
        return None
    import ast  # rare: only for a call written as a Python literal

    try:
        return ast.literal_eval(raw)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None


def _fix_escape(match: re.Match[str]) -> str:
    return match[0] if match[1] in '"\\/bfnrtu' else "\\" + match[0]
