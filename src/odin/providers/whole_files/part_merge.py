"""Merges what a model wrote of a file into the old file: the parts of a program or a text, the values of JSON."""

import json
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any, cast

from odin.providers.whole_files.file_outline import CODE, Part, strip_blank

_ALIKE = 0.6
"""How alike the first lines of two statements must be for one to replace the other."""


def is_used(name: str, text: str) -> bool:
    """True if a name occurs in a text, other than after a dot, as a key or in quotes."""
    return re.search(rf"(?<![\w.'\"$]){re.escape(name)}(?![\w'\"$])", text) is not None


def find_bound_names(part: Part) -> list[str]:
    """Return the names that an import makes known."""
    text = " ".join(line.strip() for line in part.lines if not line.strip().startswith(("#", "//")))
    if quoted := re.findall(r"^\s*(?:import\s+)?(?:[\w.]+\s+)?\"([^\"]+)\"", "\n".join(part.lines), re.MULTILINE):
        return [path.rpartition("/")[2] for path in quoted]
    before = re.split(r"\bfrom\s+['\"]|=\s*require\(|\brequire\(", text)[0]
    listed = re.sub(r"^from\s+\S+\s+import\b|^(?:import|use|const|let|var|#include)\b(?:\s+type\b)?", "", before)
    names = [re.split(r"\s+as\s+|:", item)[-1].strip(" (){}*;") for item in listed.split(",")]
    return [name.partition(".")[0] for name in names if name]


class PartMerge:
    """Merges parts. `gone` are the full names of those that the task removes. `is_adding`: it adds something."""

    def __init__(self, path: str, gone: Collection[str] = (), *, is_adding: bool = False) -> None:
        self._is_adding = is_adding
        self._is_code = path.endswith(CODE)
        self._is_python = path.endswith((".py", ".pyi"))
        self._gone = gone

    def merge(self, old: list[Part], new: list[Part], owner: str = "") -> list[Part]:
        """Return the old parts with the new ones in their place. Parts that are only new follow their neighbour."""
        known = {part.name for part in old if part.name}
        added = [part.name for part in new if part.name and part.name not in known]
        gone = [part.name for part in old if part.name and f"{owner}{part.name}" in self._gone]
        renamed = dict(zip(added, gone, strict=True)) if len(added) == len(gone) else {}
        merged = [part.copy() for part in old if part.name not in gone or part.name in renamed.values()]
        previous: Part | None = None
        imported: Part | None = None
        for part in new:
            target = self._find(merged, renamed.get(part.name, part.name)) if part.name else None
            if part.kind == "import":
                imported = self._add_import(merged, part, imported)
            elif target is not None:
                self._replace(target, part, merged, owner)
                previous = target
            elif part.name:
                previous = self._insert(merged, part.copy(), previous, owner)
            elif part.kind == "statement" and self._is_code:
                self._add_statement(merged, part, new)
        return merged

    def _find(self, parts: list[Part], name: str) -> Part | None:
        return next((part for part in parts if part.name == name), None)

    def _replace(self, target: Part, part: Part, merged: list[Part], owner: str) -> None:
        """Give a part its new lines. Inner parts that the new one lacks stay."""
        blank = _take_blank(target)
        if part.name.startswith(("module.exports", "export")):
            defined = {one.name for one in merged}
            target.lines = _keep_exports(target.lines, strip_blank(part.lines), defined)
        elif target.parts and part.parts:
            target.lines = _merge_heads(target, part)
            target.parts = self.merge(target.parts, part.parts, f"{owner}{part.name}.")
        elif part.kind == "entry" and len(strip_blank(part.lines)) == 1 and not self._is_setting(part):
            target.lines[target.start] = part.first
        elif self._is_adding and _is_list(target) and _is_list(part):
            target.lines += [line for line in strip_blank(part.lines)[part.start + 1 :] if line not in target.lines]
        else:
            above = [] if part.start else target.lines[: target.start]
            target.lines, target.parts, target.tail = [*above, *part.lines], part.parts, list(part.tail)
            target.start = part.start or target.start
            _take_blank(target)
        target.name = part.name
        _add_blank(target, blank)

    def _is_setting(self, part: Part) -> bool:
        """True for a key with its value; False for a heading or a table, which without more lines says nothing."""
        return not part.first.startswith(("#", "["))

    def _insert(self, merged: list[Part], part: Part, previous: Part | None, owner: str) -> Part:
        at = self._find_place(merged, part, previous)
        before = merged[at - 1] if at else None
        gap = self._find_usual_gap(merged, part, owner)
        blank = _take_blank(before) if before is not None else []
        _take_blank(part)
        if before is not None:
            is_headed = self._is_code and (before.kind == "import") and not owner
            _add_blank(before, [""] if is_headed and self._is_binding(part) else gap)
        if at < len(merged):
            is_ended = self._is_binding(part) and not self._is_binding(merged[at])
            _add_blank(part, blank or ([""] * (1 + self._is_python) if is_ended and self._is_code else gap))
        merged.insert(at, part)
        return part

    def _find_place(self, merged: list[Part], part: Part, previous: Part | None) -> int:
        """Return where a new part goes: after its neighbour, constants before the functions, else at the end."""
        if previous is not None and previous.kind != "trailer":
            return merged.index(previous) + 1
        if self._is_binding(part):
            head = ("import", "comment", "variable")
            return next(
                (
                    at
                    for at, one in enumerate(merged)
                    if one.kind not in head and one.name != "package" and not self._is_binding(one)
                ),
                len(merged),
            )
        if part.kind == "trailer":
            return len(merged)
        same = [at for at, one in enumerate(merged) if one.kind == part.kind and not self._is_binding(one)]
        if same:
            return same[-1] + 1
        return next((at for at, one in enumerate(merged) if one.kind == "trailer"), len(merged))

    def _is_binding(self, part: Part) -> bool:
        """True for a constant or variable, which has to come before the code that uses it."""
        if part.kind == "variable":
            return True
        return (
            self._is_code
            and re.match(r"(?:export\s+)?(?:(?:const|let|var)\s+)?[A-Z_][A-Z0-9_]*\s*(?::[^=]+)?=", part.first)
            is not None
        )

    def _find_usual_gap(self, merged: list[Part], part: Part, owner: str) -> list[str]:
        """Return the blank lines between parts of this kind."""
        if self._is_binding(part):
            return []
        gaps = [_count_blank(one) for one in merged[:-1] if one.kind == part.kind and not self._is_binding(one)]
        usual = 0 if not self._is_code and owner else 2 if self._is_python and not owner else 1
        if part.kind == "entry":
            usual = int(not self._is_setting(part))
        return [""] * max(gaps, default=usual)

    def _add_import(self, merged: list[Part], part: Part, previous: Part | None) -> Part:
        """Add an import unless the file has all its names; return where it is. Lists of the same module are joined."""
        names = set(find_bound_names(part))
        imports = [one for one in merged if one.kind == "import"]
        for one in imports:
            bound = set(find_bound_names(one))
            if names and names <= bound:
                return one
            if bound and bound <= names and (not self._is_python or _find_start(one) == _find_start(part)):
                one.lines = [*strip_blank(part.lines), *_take_blank(one)]
                return one
            if not self._is_python and _find_module(one) == _find_module(part) and _join_lists(one, part):
                return one
        before = previous or (imports[-1] if imports else None)
        at = merged.index(before) + 1 if before is not None else self._find_import_place(merged)
        blank = _take_blank(before) if before is not None else ["", ""] if self._is_python else [""]
        added = Part("", "import", [*strip_blank(part.lines), *blank])
        merged.insert(at, added)
        return added

    def _find_import_place(self, merged: list[Part]) -> int:
        """Return where the first import goes: after comments and docstring."""
        head = (at for at, one in enumerate(merged) if one.name != "package" and one.kind != "comment")
        return next(head, 0)

    def _add_statement(self, merged: list[Part], part: Part, new: Iterable[Part]) -> None:
        """Add a statement that the file does not have: in the place of the one it is a version of, or at the end."""
        from difflib import SequenceMatcher

        lines = strip_blank(part.lines)
        written = [strip_blank(one.lines) for one in new]
        old = [one for one in merged if one.kind == "statement" and strip_blank(one.lines) not in written]
        if any(strip_blank(one.lines) == lines for one in merged):
            return
        alike = [(SequenceMatcher(None, one.first, part.first).ratio(), at) for at, one in enumerate(old)]
        best = max(alike, default=(0.0, 0))
        if best[0] >= _ALIKE:
            target = old[best[1]]
            target.lines = [*lines, *_take_blank(target)]
            return
        at = next((at for at, one in enumerate(merged) if one.kind == "trailer"), len(merged))
        blank = _take_blank(merged[at - 1]) if at else []
        if at:
            _add_blank(merged[at - 1], blank or [""])
        merged.insert(at, Part("", "statement", [*lines, *(blank if at < len(merged) else [])]))


def _find_start(part: Part) -> str:
    """Return how an import starts, with its module: `from os import` differs from `import os`."""
    words = part.first.split()
    return " ".join(words[:2]) if words[0] == "from" else words[0]


def _find_module(part: Part) -> str:
    """Return the quoted name of the module that an import is from."""
    found = re.search(r"(['\"])([^'\"]+)\1\)?;?\s*$", " ".join(strip_blank(part.lines)))
    return found[2] if found else ""


def _join_lists(target: Part, part: Part) -> bool:
    """Add the names in the braces of an import to those of another; False if they have no such lists."""
    text = "\n".join(target.lines)
    found, other = _LISTED.search(text), _LISTED.search("\n".join(part.lines))
    if found is None or other is None:
        return False
    names = [one.strip() for match in (found, other) for one in match[1].split(",") if one.strip()]
    listed = ", ".join(dict.fromkeys(names))
    target.lines = f"{text[: found.start()]}{{ {listed} }}{text[found.end() :]}".split("\n")
    return True


def _is_list(part: Part) -> bool:
    """True for a key of YAML with a list below it."""
    lines = strip_blank(part.lines)[part.start + 1 :]
    return part.kind == "entry" and bool(lines) and all(line.lstrip().startswith("- ") for line in lines)


def _merge_heads(old: Part, new: Part) -> list[str]:
    """Return the first lines of a class: the new ones, and the old docstring if the new ones have none."""
    if not new.lines or strip_blank(new.lines[new.start + 1 :]):
        return new.lines or old.lines
    above = new.lines[: new.start] or old.lines[: old.start]
    return [*above, new.first, *old.lines[old.start + 1 :]]


_LISTED = re.compile(r"\{([^{}]*)\}")


def _keep_exports(old: list[str], new: list[str], defined: set[str]) -> list[str]:
    """Return new exports with the old names that are still defined."""
    before, after = _LISTED.search("\n".join(old)), _LISTED.search("\n".join(new))
    if before is None or after is None:
        return new
    names, have = ([one.strip() for one in found[1].split(",") if one.strip()] for found in (before, after))
    lost = [name for name in names if name not in have and name.partition(":")[0].strip() in defined]
    if not lost:
        return new
    text = "\n".join(new)
    listed = ", ".join([*lost, *have])
    return f"{text[: after.start()]}{{ {listed} }}{text[after.end() :]}".split("\n")


# --- blank lines at the end of a part ---


def _end_of(part: Part) -> list[str]:
    """Return the list that holds the last lines of a part."""
    if part.tail:
        return part.tail
    return _end_of(part.parts[-1]) if part.parts else part.lines


def _take_blank(part: Part) -> list[str]:
    """Remove and return the blank lines at the end of a part."""
    lines = _end_of(part)
    end = len(strip_blank(lines))
    blank = lines[end:]
    del lines[end:]
    return blank


def _add_blank(part: Part, blank: list[str]) -> None:
    _end_of(part).extend(blank)


def _count_blank(part: Part) -> int:
    lines = _end_of(part)
    return len(lines) - len(strip_blank(lines))


# --- JSON ---


_TOKEN = re.compile(r'"(?:\\.|[^"\\\n])*"|//[^\n]*|/\*.*?\*/|,(?=\s*[}\]])', re.DOTALL)
"""A string, a comment, or a comma before a closing bracket: models write JSON with both."""


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


def merge_objects(new: str, old: str, *, is_adding: bool) -> str:
    """Return the old object with the values of the new one, in the old form. `is_adding`: lists get more items."""
    return _format_json(_merge_values(parse_json(old), parse_json(new), is_adding=is_adding), old)


def _merge_values(old: Any, new: Any, *, is_adding: bool) -> Any:
    if is_adding and isinstance(old, list) and isinstance(new, list):
        known = cast(list[Any], old)
        items = cast(list[Any], new)
        return items if any(item in known for item in items) else [*known, *items]
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    merged = dict(cast(dict[str, Any], old))
    for key, value in cast(dict[str, Any], new).items():
        merged[key] = _merge_values(merged[key], value, is_adding=is_adding) if key in merged else value
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
