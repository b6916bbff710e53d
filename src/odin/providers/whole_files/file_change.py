"""Turns the new content of a file into minimal exact edits, after it has been completed and checked.

Small models leave out what they do not change. Parts of a file are merged by their definitions; a file in which
something is abbreviated otherwise is refused, because writing it would delete code.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

_ELISION = re.compile(
    r"^\s*(?:(?:#|//|--|;|/\*|<!--|\*)+\s*)?[\[(<{]?\s*(?:\.{3}|…)\s*(?:.*\b(?:exist|rest|remain|unchanged|same|other|previous|code|omitted)\w*.*)?"
    r"[\])>}]?\s*(?:\*/|-->)?$"
    r"|^\s*(?:#|//|--|;|/\*|<!--)+.*\b(?:rest of|remaining|existing|unchanged|other)\b.*"
    r"\b(?:code|file|functions?|methods?|content|lines|imports?|remains?|unchanged|same)\b.*$",
    re.IGNORECASE,
)
_DEFINITION = re.compile(
    r"(?:export\s+|default\s+|async\s+|pub\s+|static\s+)*"
    r"(?:(?:def|class|function\*?|fn|struct|interface|enum|type|trait)\s+(?P<name>[A-Za-z_$][\w$]*)"
    r"|func\s+(?:\([^)]*\)\s*)?(?P<func>[A-Za-z_]\w*)"
    r"|(?:const|let|var)\s+(?P<bound>[A-Za-z_$][\w$]*)"
    r"|(?P<assigned>[A-Za-z_]\w*)\s*(?::[^=]+)?=(?!=))"
)
_IMPORT = re.compile(r"(?:import|from|use|#include|package|require)\b|(?:const|let|var)\s.*\brequire\(")
_TRAILER = re.compile(r"if __name__\b|module\.exports\b|export\s*\{|main\(\)|export default \w+;?$")
_CODE_ENDINGS = (".py", ".js", ".mjs", ".cjs", ".ts", ".tsx", ".jsx", ".go", ".rs", ".java", ".c", ".h", ".cpp", ".rb")
_BRACKETED = (".js", ".mjs", ".cjs", ".ts", ".tsx", ".jsx", ".go", ".rs", ".java", ".c", ".h", ".cpp", ".css")
_NUMBERED = re.compile(r"^ *(\d+)(?:\t|: ?|\| ?| )(.*)$")
_MAX_EDITS = 8


class FileEdit(Struct, frozen=True):
    old: str
    new: str


def find_elision(text: str, old: str = "") -> str:
    """Return the line that stands for something left out, or "". Lines of the old file do not count."""
    kept = set(old.splitlines())
    lines = text.splitlines()
    return next((line.strip() for line in lines if line not in kept and _ELISION.match(line)), "")


def strip_line_numbers(text: str) -> str:
    """Return a text without the line numbers in front of every line, if they are consecutive."""
    lines = text.splitlines()
    found = [_NUMBERED.match(line) for line in lines]
    matches = [match for match in found if match]
    if len(matches) < 2 or len(matches) != len(lines):
        return text
    numbers = [int(match[1]) for match in matches]
    if numbers != list(range(numbers[0], numbers[0] + len(numbers))):
        return text
    return "\n".join(match[2] for match in matches) + ("\n" if text.endswith("\n") else "")


# --- completing a part of a file ---


class _Part(Struct):
    """Top-level lines of a file that belong together. `name` is what they define, or "" ."""

    name: str
    lines: list[str]


def complete_file(path: str, new: str, old: str, *, removes: bool) -> str:
    """Return the whole new file if `new` is only the part of it that changes; else `new`.

    It is a part if it defines something the old file defines, or only new things, and lacks others of the old file.
    With `removes`, the task itself takes definitions away, so that a file that lacks some may be whole.
    """
    if not path.endswith(_CODE_ENDINGS) or not old.strip():
        return new
    elided = find_elision(new, old)
    old_parts = _split_parts(old)
    new_parts = _split_parts("\n".join(line for line in new.splitlines() if not elided or not _ELISION.match(line)))
    old_names = [part.name for part in old_parts if part.name]
    new_names = [part.name for part in new_parts if part.name]
    lost = [name for name in old_names if name not in new_names]
    if not new_names or not lost or (removes and not elided):
        return new
    if not set(new_names) & set(old_names) and not elided and len(new) > len(old) // 2:
        return new
    return _merge_parts(old_parts, new_parts)


def _split_parts(text: str) -> list[_Part]:
    """Split a file at its top-level definitions. Decorators and comments directly above belong to a definition."""
    parts: list[_Part] = [_Part("", [])]
    for line in text.splitlines():
        top = bool(line) and not line[0].isspace() and line[0] not in ")]}"
        found = _DEFINITION.match(line) if top else None
        if top and (_IMPORT.match(line) or _TRAILER.match(line)):
            if parts[-1].name:
                parts.append(_Part("", []))
        elif found:
            name = next(value for value in found.groupdict().values() if value)
            parts.append(_Part(name, _take_leading(parts[-1])))
        elif top and parts[-1].name and not line.startswith(("#", "//", "@", "/*", "*", "else", "except", "finally")):
            parts.append(_Part("", []))
        parts[-1].lines.append(line)
    return [part for part in parts if part.lines]


def _take_leading(part: _Part) -> list[str]:
    """Remove and return the decorators and comments at the end of a part."""
    at = len(part.lines)
    while at and part.lines[at - 1].startswith(("@", "#", "//")) and not part.lines[at - 1].startswith("#!"):
        at -= 1
    taken, part.lines = part.lines[at:], part.lines[:at]
    return taken


def _merge_parts(old: list[_Part], new: list[_Part]) -> str:
    """Return the old file with the definitions of the new parts, new ones after the last definition."""
    merged = [_Part(part.name, list(part.lines)) for part in old]
    by_name = {part.name: part for part in merged if part.name}
    for part in new:
        if not part.name:
            _add_imports(merged, part)
        elif part.name in by_name:
            target = by_name[part.name]
            target.lines = [*_strip_blank(part.lines), *_find_trailing_blank(target.lines)]
        else:
            last = max((at for at, one in enumerate(merged) if one.name), default=len(merged) - 1)
            gap = _find_trailing_blank(merged[last].lines) or _find_usual_gap(merged)
            merged[last].lines = [*_strip_blank(merged[last].lines), *_find_usual_gap(merged)]
            merged.insert(
                last + 1, _Part(part.name, [*_strip_blank(part.lines), *(gap if last + 1 < len(merged) else [])])
            )
            by_name[part.name] = merged[last + 1]
    return "\n".join(line for part in merged for line in part.lines).rstrip("\n") + "\n"


def _add_imports(merged: list[_Part], part: _Part) -> None:
    """Add import lines that the file does not have to its head."""
    have = {line for one in merged for line in one.lines}
    added = [line for line in part.lines if _IMPORT.match(line) and line not in have and not line.startswith("package")]
    if not added:
        return
    head = merged[0] if not merged[0].name else None
    if head is None:
        merged.insert(0, _Part("", [*added, "", ""]))
        return
    at = max((number + 1 for number, line in enumerate(head.lines) if _IMPORT.match(line)), default=0)
    head.lines[at:at] = added if at else [*added, ""]


def _find_usual_gap(parts: list[_Part]) -> list[str]:
    gaps = [_find_trailing_blank(part.lines) for part in parts[:-1] if part.name]
    return max(gaps, key=len, default=[""]) or [""]


def _strip_blank(lines: list[str]) -> list[str]:
    end = len(lines)
    while end and not lines[end - 1].strip():
        end -= 1
    return lines[:end]


def _find_trailing_blank(lines: list[str]) -> list[str]:
    return lines[len(_strip_blank(lines)) :]


# --- checking ---


def find_fault(path: str, text: str, old: str = "") -> str:
    """Return why a file with this content cannot be right, or "": it cannot be parsed, or lines are left out."""
    if elided := find_elision(text, old):
        return f"{path} is not complete: it contains {elided!r}. Write every line of the file."
    if old.strip() and not text.strip():
        return f"{path} is empty. Write the complete file, or DELETE {path}."
    fault = _find_syntax_fault(path, text)
    return f"{path} would not be valid: {fault}" if fault else ""


def _find_syntax_fault(path: str, text: str) -> str:
    try:
        if path.endswith((".py", ".pyi")):
            compile(text, path, "exec", dont_inherit=True)
        elif path.endswith(".json") and "tsconfig" not in path:
            json.loads(text)
        elif path.endswith(".toml"):
            import tomllib

            tomllib.loads(text)
        elif path.endswith(_BRACKETED):
            return _find_open_bracket(text)
    except SyntaxError as error:
        line = (error.text or "").strip()
        return f"line {error.lineno}: {error.msg}: {line}" if line else f"line {error.lineno}: {error.msg}"
    except ValueError as error:
        return str(error)
    return ""


_SKIPPED = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`", re.DOTALL)
_PAIRS = {")": "(", "]": "[", "}": "{"}


def _find_open_bracket(text: str) -> str:
    """Return which bracket has no partner, or "". A slash may start a regular expression, so such files pass."""
    plain = _SKIPPED.sub("", text)
    if re.search(r"[=(,:]\s*/[^/*]", plain):
        return ""
    opened: list[str] = []
    for mark in re.findall(r"[()\[\]{}]", plain):
        if mark in "([{":
            opened.append(mark)
        elif not opened or opened.pop() != _PAIRS[mark]:
            return f"a {mark!r} closes nothing"
    return f"a {opened[-1]!r} is never closed" if opened else ""


# --- edits ---


def make_edits(old: str, new: str) -> tuple[FileEdit, ...] | None:
    """Return few replacements that make `new` of `old`, each with an old text that occurs once.

    None if writing the whole file is simpler.
    """
    from difflib import SequenceMatcher

    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    matcher = SequenceMatcher(None, before, after, autojunk=False)
    hunks = [(i1, i2, j1, j2) for tag, i1, i2, j1, j2 in matcher.get_opcodes() if tag != "equal"]
    if not hunks or len(hunks) > _MAX_EDITS or matcher.ratio() < 0.4:
        return None
    edits: list[FileEdit] = []
    current = old
    for hunk in reversed(hunks):
        edit = _make_unique(before, after, hunk, current)
        if edit is None or current.count(edit.old) != 1:
            return None
        current = current.replace(edit.old, edit.new)
        edits.append(edit)
    return tuple(edits) if current == new else None


def _make_unique(
    before: Sequence[str], after: Sequence[str], hunk: tuple[int, int, int, int], text: str
) -> FileEdit | None:
    """Return the edit of one hunk with as many unchanged lines around as make its old text unique."""
    first, last, new_first, new_last = hunk
    for around in range(12):
        above = before[max(0, first - around) : first]
        below = before[last : last + around]
        old = "".join((*above, *before[first:last], *below))
        if old.strip() and text.count(old) == 1:
            return FileEdit(old, "".join((*above, *after[new_first:new_last], *below)))
    return None


def make_calls(path: str, new: str, old: str | None) -> tuple[str, dict[str, Any]]:
    """Return the tool and the arguments that give a file this content. `old` is None for a new file."""
    edits = make_edits(old, new) if old is not None else None
    if edits is None:
        return "WriteFile", {"file_path": path, "content": new}
    if len(edits) == 1:
        return "EditTool", {"file_path": path, "old_string": edits[0].old, "new_string": edits[0].new}
    items = [{"old_string": edit.old, "new_string": edit.new} for edit in edits]
    return "MultiEditTool", {"file_path": path, "edits": items}
