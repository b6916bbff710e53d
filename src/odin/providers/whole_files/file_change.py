"""Turns the new content of a file into minimal exact edits, after it has been cleaned and checked."""

import json
import re
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from odin.providers.whole_files.written_reply import find_commented_path

_BRACKETED = (".js", ".mjs", ".cjs", ".ts", ".tsx", ".jsx", ".go", ".rs", ".java", ".c", ".h", ".cpp", ".css")
_NUMBERED = re.compile(r"^ *(\d+)(?:\t|: ?|\| ?| )(.*)$")
_MAX_EDITS = 8


class FileEdit(Struct, frozen=True):
    old: str
    new: str


def clean_text(path: str, text: str, old: str) -> str:
    """Return what a model wrote for a file, as it belongs there: without line numbers and its path, with tabs.

    Numbers in front of the lines of the old file, or of a new one, may be data.
    """
    if old.strip() and strip_line_numbers(old) == old:
        text = strip_line_numbers(text)
    return _fit_tabs(path, _strip_path_comment(path, text, old), old)


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


def _strip_path_comment(path: str, text: str, old: str) -> str:
    """Return a text without a first line that only names its path, unless the old file has it."""
    first, _, rest = text.partition("\n")
    named = find_commented_path(first, (path,))
    if not named or named.rpartition("/")[2] != path.rpartition("/")[2] or first in old.splitlines():
        return text
    return rest.lstrip("\n")


def _fit_tabs(path: str, text: str, old: str) -> str:
    """Return a text that is indented with tabs if its kind of file or the old text is: make refuses spaces."""
    is_makefile = path.rpartition("/")[2] in ("Makefile", "makefile", "GNUmakefile") or path.endswith(".mk")
    uses_tabs = is_makefile or path.endswith(".go") or "\n\t" in old
    widths = [len(match[0]) for match in re.finditer(r"^ +(?=\S)", text, re.MULTILINE)]
    if not uses_tabs or not widths or "\n\t" in text:
        return text
    unit = 8 if is_makefile else min(width for width in widths if width > 1) if max(widths) > 1 else 1
    return re.sub(r"(?m)^ +(?=\S)", lambda match: "\t" * -(-len(match[0]) // unit), text)


def replace_loosely(text: str, old: str, new: str) -> str | None:
    """Return a text with other lines instead of the old ones, whose spaces may differ; None if they are not there."""
    if old and old in text:
        return text.replace(old, new, 1)
    wanted = [line.strip() for line in old.strip("\n").split("\n")]
    lines = text.splitlines(keepends=True)
    for at in range(len(lines) - len(wanted) + 1):
        found = lines[at : at + len(wanted)]
        if any(wanted) and [line.strip() for line in found] == wanted:
            fitted = _fit_indentation(new.strip("\n"), old, found)
            return "".join((*lines[:at], fitted, *lines[at + len(wanted) :]))
    return None


def _fit_indentation(new: str, old: str, found: Sequence[str]) -> str:
    """Return new lines with the indentation that the old ones have in the file."""
    known = {line.strip(): line.rstrip("\n") for line in found}
    written = next(line for line in old.split("\n") if line.strip())
    indent = known[written.strip()].partition(written.strip())[0].removesuffix(written.partition(written.strip())[0])
    lines = (
        [known.get(line.strip(), f"{indent}{line}" if line.strip() else "") for line in new.split("\n")] if new else []
    )
    return "".join(f"{line}\n" for line in lines)


# --- what is left out ---

_ELISION = re.compile(
    r"^\s*(?:#|//|--|;|/\*|<!--|\*)*\s*[\[(<{]?\s*(?:\.{3}|…)\s*"
    r"(?:[^.…]*\b(?:exist|rest|remain|unchanged|same|other|previous|code|omitted|stay|keep|function|method|content|line)\w*.*)?"
    r"(?:\.{3}|…)?\s*[\])>}]?\s*(?:\*/|-->)?$"
    r"|^\s*(?:#|//|--|;|/\*|<!--)+\s*[\[(]?(?:\.{3}\s*)?(?:keep |the |all |leave )*"
    r"(?:rest|remaining|existing|other|previous)\b"
    r"(?: of)?(?: (?:the|your|existing))?[\w ]{0,30}?\b(?:code|file|functions?|methods?|contents?|lines|imports?|tests?"
    r"|class|here|rest|definitions|remains?|unchanged|same)\b[\w ]{0,20}[\])]?(?:\.{3})?\s*(?:\*/|-->)?$",
    re.IGNORECASE,
)
"""Three dots, alone or in a comment about what is left out; or a comment like `rest of the code`."""


def find_elision(text: str, old: str = "") -> str:
    """Return the line that stands for something left out, or "". Three dots in a function may be code."""
    kept = set(old.splitlines())
    elided = next((line for line in text.splitlines() if line not in kept and _ELISION.match(line)), "")
    is_bare = elided.startswith(("...", "…")) and len(elided.strip()) <= 3
    if is_bare or not old.strip():
        return "" if elided.strip() == "..." and not is_bare else elided.strip()
    before, after = ({line.strip() for line in one.splitlines() if line.strip()} for one in (old, text))
    return elided.strip() if len(before - after) > 1 else ""


# --- checking ---


def find_error(path: str, text: str, old: str = "") -> str:
    """Return why a file with this content cannot be right, or "": it cannot be parsed, or lines are left out."""
    if elided := find_elision(text, old):
        return f"{path} is not complete: it contains {elided!r}. Write every line of the file."
    if old.strip() and not text.strip():
        return f"{path} is empty. Write the complete file, or DELETE {path}."
    error = _find_syntax_error(path, text)
    if not error or (old.strip() and _find_syntax_error(path, old) and not path.endswith((".py", ".toml"))):
        return ""
    return f"{path} would not be valid: {error}"


def _find_syntax_error(path: str, text: str) -> str:
    try:
        if path.endswith((".py", ".pyi")):
            compile(text, path, "exec", dont_inherit=True)
        elif path.endswith(".json"):
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
    except (RecursionError, MemoryError):
        return "it is nested too deeply"
    return ""


_SKIPPED = re.compile(
    r"(?<!:)//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`", re.DOTALL
)
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


def make_call(path: str, new: str, old: str | None) -> tuple[str, dict[str, Any]]:
    """Return the tool and the arguments that give a file this content. `old` is None for a new file."""
    edits = make_edits(old, new) if old is not None else None
    if edits is None:
        return "WriteFile", {"file_path": path, "content": new}
    if len(edits) == 1:
        return "EditTool", {"file_path": path, "old_string": edits[0].old, "new_string": edits[0].new}
    items = [{"old_string": edit.old, "new_string": edit.new} for edit in edits]
    return "MultiEditTool", {"file_path": path, "edits": items}
