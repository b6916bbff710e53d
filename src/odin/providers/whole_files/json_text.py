"""Reads and merges JSON as small models write it: with comments, commas too many, or only the keys that change."""

import json
import re
from collections.abc import Iterator
from typing import Any, cast

_TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/|,(?=\s*[}\]])', re.DOTALL)
"""A string, a comment, or a comma before a closing bracket."""


def is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def parse_json(text: str) -> Any:
    """Return the value of a JSON text. Comments and commas before a closing bracket do no harm. Raise ValueError."""
    try:
        return json.loads(text)
    except ValueError:
        return json.loads(strip_comments(text))


def strip_comments(text: str) -> str:
    """Return JSON without comments and without commas before a closing bracket."""
    plain = re.sub(r"(?m)^\s*//.*\n", "", text)
    plain = _TOKEN.sub(lambda match: match[0] if match[0][0] in '",' else "", plain)
    plain = _TOKEN.sub(lambda match: match[0] if match[0][0] == '"' else "", plain)
    return "\n".join(line.rstrip() for line in plain.splitlines()) + ("\n" if text.endswith("\n") else "")


def list_lost_keys(new: str, old: str) -> list[str]:
    """Return the keys that an object lacks and another one has; none if one of the texts is invalid."""
    try:
        return list(_walk_lost_keys(parse_json(old), parse_json(new)))
    except ValueError:
        return []


def _walk_lost_keys(old: Any, new: Any, owner: str = "") -> Iterator[str]:
    if not isinstance(old, dict):
        return
    values = cast(dict[str, Any], old)
    have = cast(dict[str, Any], new) if isinstance(new, dict) else {}
    for key, value in values.items():
        if key not in have:
            yield f"{owner}{key}"
        else:
            yield from _walk_lost_keys(value, have[key], f"{owner}{key}.")


def merge_objects(new: str, old: str) -> str:
    """Return the old object with the values of the new one, in the old form."""
    return _format_json(_merge_values(parse_json(old), parse_json(new)), old)


def _merge_values(old: Any, new: Any) -> Any:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    merged = dict(cast(dict[str, Any], old))
    for key, value in cast(dict[str, Any], new).items():
        merged[key] = _merge_values(merged[key], value) if key in merged else value
    return merged


def append_items(new: str, old: str) -> str:
    """Return an old list with the new items after its own; `new` if it is no such list, or has old items, too."""
    before, after = parse_json(old), parse_json(new)
    if not isinstance(before, list):
        return new
    items = cast(list[Any], after if isinstance(after, list) else [after])
    known = cast(list[Any], before)
    return new if any(item in known for item in items) else _format_json([*known, *items], old)


def _format_json(value: Any, old: str) -> str:
    """Return JSON with the indentation of the old text."""
    indent = re.search(r"\n([ \t]+)\S", old)
    text = json.dumps(value, indent=indent[1] if indent else None, ensure_ascii=False)
    return text + ("\n" if old.endswith("\n") else "")
