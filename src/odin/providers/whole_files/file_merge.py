"""Completes what a small model wrote of a file: it often leaves out what does not change.

A program of which only some functions were written is merged with the old file, and so is an object of JSON. Anything
else that would lose parts of the old file is refused: `find_loss` says what would be lost.
"""

import json
import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, cast

from msgspec import Struct, field

from odin.providers.whole_files.file_change import drop_elisions, find_elision, is_strict_json, parse_json

_BRACES = (".js", ".mjs", ".cjs", ".jsx", ".ts", ".tsx", ".go", ".rs", ".java", ".c", ".h", ".cpp", ".cs", ".kt")
_PYTHON = (".py", ".pyi")
CODE = (*_BRACES, *_PYTHON)

_MODIFIERS = r"(?:export\s+|default\s+|async\s+|pub\s+|static\s+|abstract\s+|final\s+|public\s+|private\s+)*"
_CLASS = re.compile(_MODIFIERS + r"(?:class|struct|interface|enum|trait|impl)\s+(?P<name>[A-Za-z_$][\w$]*)")
_FUNCTION = re.compile(
    _MODIFIERS + r"(?:def|function\*?|fn|type|func(?:\s+\(\s*\w*\s*\*?(?P<receiver>\w+)[^)]*\))?)\s+"
    r"(?P<name>[A-Za-z_$][\w$]*)"
)
_ASSIGNED = re.compile(_MODIFIERS + r"(?:(?:const|let|var)\s+)?(?P<name>[A-Za-z_$][\w$.]*)\s*(?::[^=]+)?=(?![=>])")
_IMPORT = re.compile(r"(?:import|from|use|package)\b|#include\b|(?:const|let|var)\s.*\brequire\(")
_MEMBER = re.compile(
    r"(?:(?:async|static|public|private|get|set|def|class|func|fn|const|readonly)\s+)*"
    r"(?P<name>#?[A-Za-z_$][\w$]*)\s*(?:\(|=(?!=)|;|:|$)"
)
_LAST = re.compile(r"if __name__|module\.exports\b|export\s*\{|export default \w+;?$|main\(\)")
"""What stays at the end of a file."""
_WHOLE_SHARE = 0.6
"""The share of the other lines that a text has from which parts were removed on purpose."""
_ALIKE = 0.5
"""How alike a line is to another one that may be a version of it."""
_MAX_COMPARED = 200
_METHOD = re.compile(r"(?:async\s+)?def\s+\w+\(\s*(?:self|cls)\b")
_CONTINUED = re.compile(r"(?:else|elif|except|finally|catch)\b|[)\]}]")
_ABOVE = ("#", "@", "//", "/*", "*", "*/")
"""How lines start that belong to the definition below them."""


class Part(Struct):
    """Lines of a program that belong together. `name` is "" for a statement that defines nothing.

    `start` is how many comments and decorators come before its first line. `parts` are the members of a class, `tail`
    is what follows them.
    """

    name: str
    lines: list[str]
    start: int = 0
    parts: list["Part"] = field(default_factory=list["Part"])
    tail: list[str] = field(default_factory=list[str])

    @property
    def first(self) -> str:
        return self.lines[self.start].strip() if self.start < len(self.lines) else ""

    @property
    def is_import(self) -> bool:
        return not self.name and _IMPORT.match(self.first) is not None

    def list_lines(self) -> list[str]:
        return [*self.lines, *(line for part in self.parts for line in part.list_lines()), *self.tail]


def read_parts(text: str) -> list[Part]:
    """Return the parts of a program. Their lines, one after the other, are the text."""
    parts = _split(text.splitlines(), 0, _name_statement)
    for part in parts:
        if _CLASS.match(part.first):
            _split_members(part)
    return parts


def list_definitions(path: str, text: str) -> set[str]:
    """Return the names that a program defines at its top; none for other files."""
    return {part.name for part in read_parts(text) if part.name} if path.endswith(CODE) else set()


def _split(lines: list[str], indent: int, name_line: Callable[[str], str]) -> list[Part]:
    """Split lines at the statements of this indentation. Comments directly above belong to a statement."""
    parts: list[Part] = []
    above: list[str] = []
    is_string = False
    for line in lines:
        was_string = is_string
        is_string ^= line.count('"""') % 2 == 1 or line.count("`") % 2 == 1
        is_start = bool(line.strip()) and len(line) - len(line.lstrip()) <= indent and not was_string
        if is_start and line.strip().startswith(_ABOVE):
            above.append(line)
        elif is_start and not _CONTINUED.match(line.strip()):
            parts.append(Part(name_line(line.strip()), [*above, line], len(above)))
            above = []
        else:
            if above or not parts:
                parts.append(Part("", above))
                above = []
            parts[-1].lines.append(line)
    return [*parts, Part("", above)] if above else parts


def _name_statement(line: str) -> str:
    if _IMPORT.match(line):
        return ""
    if last := _LAST.match(line):
        return last[0]
    if found := _FUNCTION.match(line):
        return f"{found['receiver']}.{found['name']}" if found["receiver"] else found["name"]
    found = _CLASS.match(line) or _ASSIGNED.match(line)
    return found["name"] if found else ""


def _name_member(line: str) -> str:
    found = _MEMBER.match(line)
    return found["name"] if found else ""


def _split_members(part: Part) -> None:
    """Split a class into its head, its members and the closing bracket."""
    body = part.lines[part.start + 1 :]
    first = next((line for line in body if line[:1].isspace() and line.strip()), "")
    end = next((at for at in range(len(body) - 1, -1, -1) if body[at].startswith("}")), len(body))
    if first:
        members = _split(body[:end], len(first) - len(first.lstrip()), _name_member)
        named = next((at for at, member in enumerate(members) if member.name), len(members))
        head = [line for member in members[:named] for line in member.lines]
        part.lines = [*part.lines[: part.start + 1], *head]
        part.parts, part.tail = members[named:], body[end:]


# --- completing ---


def complete_file(path: str, new: str, old: str, prompt: str, elsewhere: Collection[str] = ()) -> str:
    """Return the whole new file. `new` is what the model wrote, all of it or the parts that change.

    `elsewhere` are the names that the same reply defines in other files.
    """
    if not old.strip():
        return new
    if path.endswith(".json"):
        return _complete_json(new, old, prompt)
    text = drop_elisions(new, old)
    is_partial = text != new and bool(find_elision(new, old))
    if not path.endswith(CODE):
        return new if is_partial else text
    text = textwrap.dedent(text) if text[:1].isspace() else text
    before, after = read_parts(old), read_parts(text)
    methods = [part for part in after if _METHOD.match(part.first)]
    if methods and not _place_methods(before, after):
        return text
    if not (
        is_partial or methods or _list_lost(before, after, text, prompt, elsewhere) or _lacks_imports(before, text)
    ):
        return text
    known = {part.name for part in before if part.name}
    statements = {part.first for part in before}
    if any(not part.name and not part.is_import and part.first and part.first not in statements for part in after):
        return text  # where a new statement belongs is not known
    if not any(part.name in known or _FUNCTION.match(part.first) or _CLASS.match(part.first) for part in after):
        return text
    gap = 2 if path.endswith(_PYTHON) else 1
    return "\n".join(line for part in _merge(before, after, gap) for line in part.list_lines()).rstrip("\n") + "\n"


def _list_lost(old: list[Part], new: list[Part], text: str, prompt: str, elsewhere: Collection[str] = ()) -> list[str]:
    """Return the names that a program would lose. Some may go if the rest is there: renamed, or named by the prompt."""
    before, after = dict(_walk(old)), dict(_walk(new))
    have = {*after, *map(_shorten, after), *elsewhere}
    lost = [name for name in before if name not in after and _shorten(name) not in have]
    lost = [name for name in lost if not _ASSIGNED.match(before[name].first) or _is_used(name, text)]
    written = {line.strip() for line in text.splitlines()}
    bodies = [line.strip() for name in lost for line in before[name].list_lines()[1:] if line.strip()]
    is_same = 2 * sum(line in written for line in bodies) > len(bodies)
    if is_same and len(lost) == sum(name not in before for name in after):
        return []  # renamed
    rest = [line for name, part in _walk(old) if not part.parts and name not in lost for line in part.lines]
    rest = [line.strip() for line in rest if line.strip()]
    if sum(line in written for line in rest) < _WHOLE_SHARE * len(rest):
        return lost
    is_named = all(re.search(rf"(?<!\w){re.escape(_shorten(name))}(?!\w)", prompt) for name in lost)
    is_unused = not any(_is_used(_shorten(name), text) for name in lost)
    return [] if is_named and is_unused else lost


def _lacks_imports(old: list[Part], text: str) -> bool:
    """True if a text uses what the old file imports, and does not import anything."""
    imported = {name for part in old if part.is_import for name in _list_words(part)}
    is_without = not any(part.is_import for part in read_parts(text))
    return is_without and any(_is_used(name, text) for name in imported - {"import", "from", "as", "const", "require"})


def _list_words(part: Part) -> list[str]:
    return re.findall(r"[A-Za-z_$][\w$]*", " ".join(part.lines))


def _place_methods(old: list[Part], new: list[Part]) -> bool:
    """Put methods that a model wrote without their class into the class that has them; False if that is not certain."""
    for at, part in enumerate(new):
        if _METHOD.match(part.first):
            classes = [one for one in old if one.parts]
            owners = [one for one in classes if part.name in {member.name for member in one.parts}] or classes
            if len(owners) != 1:
                return False
            lines = textwrap.indent("\n".join(part.lines), "    ").split("\n")
            new[at] = Part(owners[0].name, [], 0, [Part(part.name, lines, part.start)])
    return True


def _shorten(name: str) -> str:
    return name.rpartition(".")[2]


def _is_used(name: str, text: str) -> bool:
    return re.search(rf"(?<![\w.'\"$]){re.escape(name)}(?![\w'\"$])", text) is not None


def _walk(parts: Iterable[Part], owner: str = "") -> Iterator[tuple[str, Part]]:
    """Yield the names of parts and of the parts in them, these after the name of their owner and a dot."""
    for part in parts:
        if part.name:
            yield f"{owner}{part.name}", part
            yield from _walk(part.parts, f"{owner}{part.name}.")


def _merge(old: list[Part], new: list[Part], gap: int) -> list[Part]:
    """Return the old parts with the new ones in their place. Parts that are only new follow their neighbor.

    `gap` is how many blank lines are around a new part.
    """
    merged = list(old)
    written = {part.first for part in merged}
    previous: Part | None = None
    for part in new:
        target = next((one for one in merged if part.name and one.name == part.name), None)
        if target is not None:
            _replace(target, part)
            previous = target
        elif part.is_import and part.first not in written:
            words = set(_list_words(part))
            merged = [one for one in merged if not (one.is_import and words.issuperset(_list_words(one)))]
            at = next((at + 1 for at in range(len(merged) - 1, -1, -1) if merged[at].is_import), 0)
            blank = _take_blank(merged[at - 1]) if at else []
            _take_blank(part)
            merged.insert(at, Part("", [*part.lines, *blank], part.start))
        elif part.name:
            merged.insert(_find_place(merged, part, previous), part)
            _separate(merged, part, gap)
            previous = part
    return merged


def _replace(target: Part, part: Part) -> None:
    """Give a part its new lines. Members that the new one lacks stay, and so do the comments above."""
    blank = _take_blank(target)
    above = part.lines[: part.start] or target.lines[: target.start]
    if target.parts and part.parts:
        head = part.lines[part.start :]
        target.lines = [*above, *(head if _strip_blank(head[1:]) else target.lines[target.start :])]
        target.parts = _merge(target.parts, part.parts, 1)
    else:
        lines = _keep_exports(target, part)
        target.lines, target.parts, target.tail = [*above, *lines], part.parts, part.tail
    target.start = len(above)
    _take_blank(target)
    _end_of(target).extend(blank)


def _keep_exports(target: Part, part: Part) -> list[str]:
    """Return the lines of a new part. A list of exports keeps the old names."""
    lines = part.lines[part.start :]
    old, new = (re.search(r"\{([^{}]*)\}", "\n".join(one.lines)) for one in (target, part))
    if not part.name.startswith(("module.exports", "export")) or old is None or new is None:
        return lines
    names = dict.fromkeys(name.strip() for found in (old, new) for name in found[1].split(",") if name.strip())
    return "\n".join(lines).replace(new[0], f"{{ {', '.join(names)} }}").split("\n")


def _find_place(merged: list[Part], part: Part, previous: Part | None) -> int:
    """Return where a new part goes: after its neighbor, assignments before the first definition, else at the end."""
    if previous is not None and not _LAST.match(previous.first):
        return merged.index(previous) + 1
    if _ASSIGNED.match(part.first) and not _LAST.match(part.first):
        defined = (at for at, one in enumerate(merged) if _FUNCTION.match(one.first) or _CLASS.match(one.first))
        return next(defined, len(merged))
    return next((at for at, one in enumerate(merged) if _LAST.match(one.first)), len(merged))


def _separate(merged: list[Part], part: Part, gap: int) -> None:
    """Put blank lines around a new part. Those before the next part stay."""
    at = merged.index(part)
    _take_blank(part)
    blank = _take_blank(merged[at - 1]) if at else []
    if at:
        _end_of(merged[at - 1]).extend([""] * gap)
    if at + 1 < len(merged):
        _end_of(part).extend(blank or [""] * gap)


def _end_of(part: Part) -> list[str]:
    """Return the list that holds the last lines of a part."""
    if part.tail:
        return part.tail
    return _end_of(part.parts[-1]) if part.parts else part.lines


def _strip_blank(lines: list[str]) -> list[str]:
    end = len(lines)
    while end and not lines[end - 1].strip():
        end -= 1
    return lines[:end]


def _take_blank(part: Part) -> list[str]:
    """Remove and return the blank lines at the end of a part."""
    lines = _end_of(part)
    end = len(_strip_blank(lines))
    blank = lines[end:]
    del lines[end:]
    return blank


# --- JSON ---


def _complete_json(new: str, old: str, prompt: str) -> str:
    """Return the old object with the new values if the new text lacks keys; the new text if it is whole or invalid."""
    try:
        before, after = parse_json(old), parse_json(new)
    except ValueError:
        return new
    lost = list(_walk_lost_keys(before, after)) if isinstance(after, dict) else []
    is_partial = any(_shorten(key) not in prompt for key in lost)
    if not is_partial and is_strict_json(new):
        return new
    indent = re.search(r"\n([ \t]+)\S", old)
    value = _merge_values(before, after) if is_partial else parse_json(new)
    text = json.dumps(value, indent=indent[1] if indent else None, ensure_ascii=False)
    return text + ("\n" if old.endswith("\n") else "")


def _walk_lost_keys(old: Any, new: Any, owner: str = "") -> Iterator[str]:
    if not isinstance(old, dict):
        return
    have = cast("dict[str, Any]", new) if isinstance(new, dict) else {}
    for key, value in cast("dict[str, Any]", old).items():
        if key not in have:
            yield f"{owner}{key}"
        else:
            yield from _walk_lost_keys(value, have[key], f"{owner}{key}.")


def _merge_values(old: Any, new: Any) -> Any:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    merged = dict(cast("dict[str, Any]", old))
    for key, value in cast("dict[str, Any]", new).items():
        merged[key] = _merge_values(merged.get(key), value)
    return merged


# --- losses ---


def find_loss(path: str, new: str, old: str, prompt: str, elsewhere: Collection[str] = ()) -> str:
    """Return what a file would lose that the task does not name, as a sentence for the model; "" if nothing."""
    if not old.strip() or not new.strip():
        return ""
    if path.endswith(CODE) and (parts := read_parts(old)):
        if lost := _list_lost(parts, read_parts(new), new, prompt, elsewhere):
            return f"{path} would lose {', '.join(lost[:4])}. Write the complete file."
        if any(_FUNCTION.match(part.first) or _CLASS.match(part.first) for part in parts):
            return ""
    if path.endswith(".json") and new.lstrip()[:1] == old.lstrip()[:1] == "{":
        return ""
    before, after = ([line.strip() for line in text.splitlines() if line.strip()] for text in (old, new))
    lost = [line for line in before if line not in set(after)]
    most = 2 if len(before) - len(after) > 1 else len(before) // 2
    if (len(after) < len(before) and len(lost) > most) or _is_other_text(before, after):
        return f"{path} would lose {len(lost)} lines, for example {lost[0][:80]!r}. Write the complete file."
    return ""


def _is_other_text(before: list[str], after: list[str]) -> bool:
    """True if no line of a text is like one of another."""
    from difflib import get_close_matches

    if len(before) < 2 or len(before) > _MAX_COMPARED or len(after) > _MAX_COMPARED:
        return False
    folded = [line.casefold() for line in after]
    return not any(get_close_matches(line.casefold(), folded, 1, _ALIKE) for line in before)


def is_continued(path: str, new: str, known: str) -> bool:
    """True if a second text for a file is more of it, or a better version, and not an example of its use."""
    if set(new.split("\n")) <= set(known.split("\n")):
        return False
    return not path.endswith(CODE) or bool(list_definitions(path, new)) or not list_definitions(path, known)
