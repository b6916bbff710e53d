"""Splits a file into its named parts: definitions and members, sections, keys.

The lines of the parts, one after the other, are the file. A small model often writes only the parts that change; with
the outlines of both texts the rest can be kept.
"""

import re
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct, field

_BRACES = (".js", ".mjs", ".cjs", ".jsx", ".ts", ".tsx", ".go", ".rs", ".java", ".c", ".h", ".cpp", ".cs", ".kt")
_SCRIPTS = (".js", ".mjs", ".cjs", ".jsx", ".ts", ".tsx")
CODE = (*_BRACES, ".py", ".pyi", ".rb")
_SECTIONED = (".toml", ".ini", ".cfg", ".conf", ".properties", ".env", ".editorconfig", ".npmrc")

_MODIFIERS = (
    r"(?:export\s+|default\s+|async\s+|pub(?:\([\w ]+\))?\s+|static\s+|abstract\s+|final\s+|public\s+|private\s+)*"
)
_DEFINITION = re.compile(
    _MODIFIERS + r"(?:(?P<class>(?:class|struct|interface|enum|trait|namespace)\s+[A-Za-z_$][\w$]*|impl\b[^{]*[\w>])"
    r"|(?:def|function\*?|fn|type)\s+(?P<name>[A-Za-z_$][\w$]*)"
    r"|func\s+(?:\(\s*\w*\s*\*?(?P<receiver>\w+)[^)]*\)\s*)?(?P<func>[A-Za-z_]\w*))"
)
"""What defines a function, a type or a class."""
_BOUND = re.compile(
    _MODIFIERS + r"(?:(?:const|let|var)\s+)?(?P<bound>[A-Za-z_$][\w$]*)\s*(?::[^=]+)?=(?![=>])\s*(?P<value>.*)"
)
"""An assignment. Its value tells functions from plain variables."""
_FUNCTION_VALUE = re.compile(r"(?:async\s*)?(?:function\b|\([^()]*\)\s*(?::[^=]+)?=>|\w+\s*=>|lambda\b|class\b)")
_EXPORTED = re.compile(r"(?:module\.)?exports\.(?P<name>[\w$]+)\s*=|(?P<method>[\w$]+\.prototype\.[\w$]+)\s*=")
_TITLED = re.compile(
    r"(?P<call>(?:test|it|describe|suite)(?:\.\w+)?|\w+\.(?:get|post|put|patch|delete|all|route))\(\s*(['\"`])(?P<title>.+?)\2"
)
"""Tests and routes: calls that are told apart by their first argument."""
_CONFIGURED = re.compile(r"(?P<call>\w+\.(?:use|register\w*))\(")
_GROUP = re.compile(r"(?P<word>const|var|type)\s*\(\s*$")
_IMPORT = re.compile(r"(?:import|from|use)\b|#include\b|(?:const|let|var)\s.*\brequire\(|require(?:_relative)?[( ]")
_TRAILER = re.compile(
    r"(?P<word>if __name__|module\.exports(?=\s*=)|export\s*\{|export default(?= \w+;?$)|main\(\)(?=;?$)"
    r"|\w+\.(?:listen|run|start)(?=\())"
)
_CONTINUED = re.compile(r"(?:else|elif|except|finally|catch)\b|[)\]}]")
_PYTHON_MEMBER = re.compile(r"(?:async\s+)?(?:def|class)\s+(?P<name>\w+)|(?P<field>[A-Za-z_]\w*)\s*(?::|=(?!=))")
_BRACE_MEMBER = re.compile(
    r"(?P<words>(?:[\w<>\[\],.?*@]+\s+)*)(?P<name>#?[A-Za-z_$][\w$]*)\s*(?:<[^>]*>)?(?:\(|=(?!=)|;|:|$)"
)
_ACCESSOR = re.compile(r"@(?P<name>\w+)\.(?P<what>setter|deleter)")
_PYTHON_STRING = re.compile(r"\"\"\"|\'\'\'|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|#.*")
_BRACE_STRING = re.compile(r"`|/\*|\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|//.*")
_STRING_ENDS = {'"""': '"""', "'''": "'''", "`": "`", "/*": "*/"}
"""What starts a text of several lines, and what ends it."""
_HEADING = re.compile(r"(#{1,6})\s+(.+?)\s*#*$")
_FENCE = re.compile(r"\s*(```|~~~)")


class Part(Struct):
    """Lines of a file that belong together. `name` is unique among its siblings, "" for what has none.

    `kind` is import, definition, variable, trailer, statement, comment or entry. `lines` come before the inner parts,
    `tail` after them.
    """

    name: str
    kind: str
    lines: list[str]
    parts: list["Part"] = field(default_factory=list["Part"])
    tail: list[str] = field(default_factory=list[str])
    start: int = 0
    """How many comments and decorators come before its first line."""

    @property
    def first(self) -> str:
        """The line that says what the part is."""
        return self.lines[self.start] if self.start < len(self.lines) else ""

    def list_lines(self) -> list[str]:
        return [*self.lines, *(line for part in self.parts for line in part.list_lines()), *self.tail]

    def copy(self) -> "Part":
        return Part(
            self.name, self.kind, list(self.lines), [part.copy() for part in self.parts], list(self.tail), self.start
        )


def read_outline(path: str, text: str) -> list[Part] | None:
    """Return the parts of a file; None if files of this kind have none that are known."""
    lines = text.splitlines()
    name = path.rpartition("/")[2]
    if path.endswith(CODE):
        return _name_uniquely(_CodeReader(path).read(lines))
    if path.endswith((".md", ".markdown", ".mdx")):
        return _name_uniquely(_read_sections(lines))
    if path.endswith((".yml", ".yaml")):
        return _name_uniquely(_read_keys(lines, 0)) if not any(line.startswith("---") for line in lines[1:]) else None
    if path.endswith(_SECTIONED) or name.startswith(".env"):
        return None if any(line.startswith("[[") for line in lines) else _name_uniquely(_read_tables(lines))
    if path.endswith((".css", ".scss", ".less")):
        return _name_uniquely(_read_rules(lines))
    if name == "Makefile" or path.endswith(".mk"):
        return _name_uniquely(_read_targets(lines))
    return None


def list_definitions(path: str, text: str) -> set[str]:
    """Return the names that a program defines at its top."""
    return {part.name for part in (read_outline(path, text) or ()) if part.kind == "definition"}


def join_outline(parts: Iterable[Part]) -> str:
    text = "\n".join(line for part in parts for line in part.list_lines())
    return text.rstrip("\n") + "\n"


def _name_uniquely(parts: list[Part]) -> list[Part]:
    """Number the parts of the same name, in every level."""
    seen: dict[str, int] = {}
    for part in parts:
        if part.name:
            seen[part.name] = seen.get(part.name, 0) + 1
            part.name += f"#{seen[part.name]}" if seen[part.name] > 1 else ""
        _name_uniquely(part.parts)
    return parts


def strip_blank(lines: list[str]) -> list[str]:
    """Return lines without the blank ones at their end."""
    end = len(lines)
    while end and not lines[end - 1].strip():
        end -= 1
    return lines[:end]


def _indent_of(line: str) -> int:
    return len(line) - len(line.lstrip())


# --- code ---


class _CodeReader:
    def __init__(self, path: str) -> None:
        self._is_python = path.endswith((".py", ".pyi"))
        self._comments = ("#", "@") if path.endswith((".py", ".pyi", ".rb")) else ("//", "/*", "*/", "@", "#[")

    def read(self, lines: list[str]) -> list[Part]:
        parts = self._split(lines, 0, self._classify)
        for part in parts:
            if part.kind == "definition" and _is_class(part):
                self._split_members(part)
            elif _GROUP.match(part.first):
                self._split_group(part)
        return parts

    def _split(
        self, lines: list[str], indent: int, classify: Callable[[str, list[str]], tuple[str, str]]
    ) -> list[Part]:
        """Split lines at the statements of this indentation. Comments directly above belong to a statement."""
        parts: list[Part] = []
        above: list[str] = []
        inside = ""
        for line in lines:
            was_inside, inside = inside, self._find_open_string(line, inside)
            is_start = line.strip() and _indent_of(line) <= indent and not was_inside
            if not is_start or _CONTINUED.match(line.strip()):
                (above if above and line.strip() else _find_last_lines(parts, above)).append(line)
            elif line.strip().startswith(self._comments):
                above.append(line)
            else:
                name, kind = classify(line.strip(), above)
                parts.append(Part(name, kind, [*above, line], start=len(above)))
                above = []
        if above:
            parts.append(Part("", "comment", above))
        return parts

    def _find_open_string(self, line: str, inside: str) -> str:
        """Return the mark that ends the string or comment in which the next line starts, or ""."""
        at = 0
        while at < len(line):
            if inside:
                end = line.find(inside, at)
                if end < 0:
                    return inside
                at, inside = end + len(inside), ""
            found = (_PYTHON_STRING if self._is_python else _BRACE_STRING).search(line, at)
            if found is None:
                return ""
            inside = _STRING_ENDS.get(found[0], "")
            at = found.end()
        return inside

    def _classify(self, line: str, above: list[str]) -> tuple[str, str]:
        """Return the name and the kind of a statement at the top of a file."""
        if line.startswith(('"""', "'''")):
            return "docstring", "comment"
        if _IMPORT.match(line):
            return "", "import"
        if line.startswith("package "):
            return "package", "definition"
        if trailer := _TRAILER.match(line):
            return trailer["word"], "trailer"
        if group := _GROUP.match(line):
            return f"{group['word']} group", "definition"
        if found := _DEFINITION.match(line):
            if found["class"]:
                return found["class"].split(maxsplit=1)[-1], "definition"
            receiver = f"{found['receiver']}." if found["receiver"] else ""
            return f"{receiver}{found['name'] or found['func']}", "definition"
        if found := _EXPORTED.match(line):
            return found["method"] or f"exports.{found['name']}", "definition"
        if found := _TITLED.match(line):
            return f"{found['call']} {found['title']}", "definition"
        if found := _CONFIGURED.match(line):
            return found["call"], "definition"
        if found := _BOUND.match(line):
            is_constant = found["bound"].isupper() or _FUNCTION_VALUE.match(found["value"])
            return found["bound"], "definition" if is_constant else "variable"
        return "", "statement"

    def _split_members(self, part: Part) -> None:
        """Split a class into its head and its members."""
        at = part.start + 1
        body = part.lines[at:]
        first = next((line for line in body if line.strip() and _indent_of(line)), "")
        if not first:
            return
        indent = _indent_of(first)
        classify = self._classify_python_member if self._is_python else self._classify_brace_member
        tail = self._take_tail(body)
        members = self._split(body, indent, classify)
        head = [line for member in _take_while_unnamed(members) for line in member.list_lines()]
        part.lines = [*part.lines[:at], *head]
        part.parts = members
        part.tail = tail

    def _take_tail(self, body: list[str]) -> list[str]:
        """Remove and return the closing bracket at the end of a body, and what follows it."""
        end = next((at for at in range(len(body) - 1, -1, -1) if body[at].startswith(("}", ")"))), len(body))
        tail = body[end:]
        del body[end:]
        return tail

    def _classify_python_member(self, line: str, above: list[str]) -> tuple[str, str]:
        found = _PYTHON_MEMBER.match(line)
        if found is None:
            return "", "statement"
        accessor = next((match for one in above if (match := _ACCESSOR.match(one.strip()))), None)
        suffix = f".{accessor['what']}" if accessor else ""
        return f"{found['name'] or found['field']}{suffix}", "definition"

    def _classify_brace_member(self, line: str, above: list[str]) -> tuple[str, str]:
        found = _BRACE_MEMBER.match(line)
        if found is None:
            return "", "statement"
        words = found["words"].split()
        prefix = f"{words[-1]} " if words and words[-1] in ("get", "set") else ""
        return f"{prefix}{found['name']}", "definition"

    def _split_group(self, part: Part) -> None:
        """Split a group of Go declarations into its lines."""
        at = part.start + 1
        body = part.lines[at:]
        part.tail = self._take_tail(body)
        first = next((line for line in body if line.strip()), "")
        part.parts = self._split(
            body, _indent_of(first), lambda line, above: (line.split()[0].rstrip(","), "definition")
        )
        part.lines = part.lines[:at]


def _is_class(part: Part) -> bool:
    found = _DEFINITION.match(part.first)
    return bool(found and found["class"])


def _find_last_lines(parts: list[Part], above: list[str]) -> list[str]:
    """Return the lines to which one without a start of its own belongs."""
    if above:
        parts.append(Part("", "comment", list(above)))
        above.clear()
    if not parts:
        parts.append(Part("", "comment", []))
    return parts[-1].lines


def _take_while_unnamed(parts: list[Part]) -> Iterator[Part]:
    """Remove and yield the parts before the first one with a name."""
    while parts and not parts[0].name:
        yield parts.pop(0)


# --- text and configuration ---


def _read_sections(lines: list[str]) -> list[Part]:
    """Split Markdown at its headings."""
    parts: list[Part] = [Part("", "statement", [])]
    is_code = False
    for line in lines:
        is_code = is_code != bool(_FENCE.match(line))
        heading = None if is_code else _HEADING.match(line)
        if heading:
            is_title = heading[1] == "#" and not any(part.name for part in parts)
            parts.append(Part("the title" if is_title else heading[2].casefold(), "entry", []))
        parts[-1].lines.append(line)
    return [part for part in parts if part.lines]


_YAML_KEY = re.compile(r"\s*(?P<name>[\w./-]+|\"[^\"]+\"|'[^']+')\s*:(?:\s|$)")
_TABLE = re.compile(r"\[(?P<name>[^\[\]]+)\]\s*(?:#.*)?$")
_SETTING = re.compile(r"(?:export\s+)?(?P<name>[\w.\"'-]+)\s*[=:]")
_RULE = re.compile(r"(?P<name>[^\s{}/][^{}]*?)\s*\{")
_PROPERTY = re.compile(r"\s+(?P<name>[\w-]+)\s*:")
_TARGET = re.compile(r"(?P<name>[\w./%-]+(?: [\w./%-]+)*)\s*:(?!=)|(?P<variable>\w+)\s*[:?+]?=")


def _read_keys(lines: list[str], indent: int) -> list[Part]:
    """Split YAML at the keys of this indentation, and these at their own keys."""
    parts: list[Part] = []
    above: list[str] = []
    for line in lines:
        found = _YAML_KEY.match(line) if _indent_of(line) == indent else None
        if found:
            parts.append(Part(found["name"].strip("\"'"), "entry", [*above, line], start=len(above)))
            above = []
        elif line.strip().startswith("#") and _indent_of(line) <= indent:
            above.append(line)
        elif parts and not above:
            parts[-1].lines.append(line)
        else:
            above.append(line)
    if above:
        parts.append(Part("", "comment", above))
    for part in parts:
        at = part.start + 1
        inner = part.lines[at:]
        first = next((line for line in inner if line.strip() and not line.strip().startswith("#")), "")
        if first and _indent_of(first) > indent and _YAML_KEY.match(first):
            part.parts, part.lines = _read_keys(inner, _indent_of(first)), part.lines[:at]
    return parts


def _read_tables(lines: list[str]) -> list[Part]:
    """Split TOML and its relatives at the tables, and these at their keys. Keys before the first table are parts."""
    top: list[Part] = []
    parts = top
    above: list[str] = []
    for line in lines:
        table = _TABLE.match(line)
        setting = None if table or line.startswith((" ", "\t", "]", "}")) else _SETTING.match(line)
        if table:
            top.append(Part(f"[{table['name'].strip()}]", "entry", [*above, line], start=len(above)))
            parts = top[-1].parts
            above = []
        elif setting:
            kind = "variable" if parts is top else "entry"
            parts.append(Part(setting["name"].strip("\"'"), kind, [*above, line], start=len(above)))
            above = []
        elif line.strip().startswith(("#", ";")):
            above.append(line)
        else:
            last = parts[-1].lines if parts else top[-1].lines if top else above
            last += [*above, line] if last is not above else [line]
            above = [] if last is not above else above
    if above:
        top.append(Part("", "comment", above))
    return top


def _read_rules(lines: list[str]) -> list[Part]:
    """Split a style sheet at its rules, and these at their properties unless there are rules in them."""
    parts: list[Part] = [Part("", "comment", [])]
    for line in lines:
        rule = _RULE.match(line)
        if rule:
            parts.append(Part(rule["name"], "definition", []))
        parts[-1].lines.append(line)
    for part in parts:
        inner = part.lines[1:]
        end = next((at for at, line in enumerate(inner) if line.startswith("}")), 0)
        found = [_PROPERTY.match(line) for line in inner[:end]]
        if part.name and found and all(found):
            properties = zip(found, inner[:end], strict=True)
            part.parts = [Part(match["name"], "definition", [line]) for match, line in properties if match]
            part.lines, part.tail = part.lines[:1], inner[end:]
    return [part for part in parts if part.lines]


def _read_targets(lines: list[str]) -> list[Part]:
    """Split a Makefile at its targets and variables."""
    parts: list[Part] = [Part("", "comment", [])]
    for line in lines:
        found = _TARGET.match(line) if line[:1].strip() and not line.startswith("#") else None
        if found:
            parts.append(
                Part(found["name"] or found["variable"], "variable" if found["variable"] else "definition", [])
            )
        parts[-1].lines.append(line)
    return [part for part in parts if part.lines]
