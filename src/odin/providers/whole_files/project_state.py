"""What the calls of a turn have shown of the project: its files, their contents as they are now, and found names.

The state is folded from the calls: what Read showed, and what successful edits made of it.
"""

import re
from collections.abc import Collection, Iterable

from msgspec import Struct, field

from odin.core.message import ToolCall, ToolResult
from odin.providers.whole_files.project_tests import TEST_LINE

EVERY_LINE = "^"
"""The pattern whose matches per file are its lines."""

_NUMBERED = re.compile(r"^ *\d+\t(.*)$")
_COUNTED = re.compile(r"^(?P<path>.+):(?P<count>\d+)$")
_HIT = re.compile(r"^(?P<path>[^:\n]+):(?P<line>\d+):(?P<text>.*)$")
_CUT = re.compile(r"\(showing the first \d+ of (\d+) results")
_ENTRY = re.compile(r"^  (?P<name>.+?)(?: \[cached(?:, modified)?\]| -> .*)?$")
"""A line of a listing."""

# --- one search for the names of a prompt ---

_MAX_WORDS = 16
_WORD = re.compile(r"(?<![\w./-])[A-Za-z_]\w{2,}(?![\w/]|\.\w)")
_STOP_WORDS = re.compile(
    r"the|and|for|with|that|this|these|those|from|into|its|are|was|were|has|have|had|not|but|you|your|our|can|could|would"
    r"|should|shall|must|will|may|what|which|where|when|who|why|how|does|did|done|please|then|there|here|them|they|their"
    r"|some|any|all|each|every|only|also|just|new|old|same|files?|folder|functions?|methods?|class|classes|constant"
    r"|variable|module|script|project|code|lines?|called|named|instead|about|after|before|between|inside|within|sure"
    r"|many|much|often|times|python|javascript|one|two|three|everywhere",
    re.IGNORECASE,
)
"""Words that are hardly ever names."""
_VAGUE_WORDS = re.compile(
    r"names?|values?|default|returns?|prints?|run|used?|uses|[sg]et|find|list|count|number|tests?|types?|string|words?"
    r"|defined?|definition|program|calls?|add",
    re.IGNORECASE,
)
"""Words that may be names of functions, but are no names of settings."""
_DEFINES = (
    r"^\s*(?:export\s+|default\s+|async\s+|pub\s+|static\s+|abstract\s+)*"
    r"(?:def|class|function\*?|func|const|let|var|type|fn|struct|interface|enum)\s+(?:\([^)]*\)\s*)?"
)
"""How a definition starts, up to its name."""
_SETS = r"^\s*(?:export\s+|const\s+|let\s+|var\s+|self\.|this\.)*[\"']?[\w.-]*"
_SET_END = r"[\w.-]*[\"']?\s*(?::[^=]{0,20})?[:=]"
"""How a value is set: an assignment, or a key of a configuration file, whose name contains a word."""


def find_words(text: str, names: Iterable[str]) -> tuple[str, ...]:
    """Return the words of a prompt that the project may define: `names` are certain ones, the others just words."""
    plain = (word for word in _WORD.findall(text) if not _STOP_WORDS.fullmatch(word))
    known = (name for name in names if re.fullmatch(r"[A-Za-z_]\w+", name))
    return tuple(dict.fromkeys((*known, *plain)))[:_MAX_WORDS]


def build_lookup(words: Collection[str], *, with_values: bool) -> str:
    """Return the pattern of the one search. `with_values`: lines that set a value named like a word, too."""
    parts = [TEST_LINE]
    if words:
        parts.append(f"{_DEFINES}(?:{'|'.join(words)})\\b")
    telling = [word for word in words if not _VAGUE_WORDS.fullmatch(word)]
    if telling and with_values:
        parts.append(f"(?i:{_SETS}(?:{'|'.join(telling)}){_SET_END})")
    return "|".join(parts)


class LookupHits(Struct):
    """What the search found: the files that define each word, those that set a value, and the lines about tests."""

    definitions: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    setters: list[str] = field(default_factory=list[str])
    test_lines: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def has_leads(self) -> bool:
        """True if the project defines or sets something that the prompt names."""
        return bool(self.definitions or self.setters)

    def add_lines(self, lines: Iterable[str], words: Collection[str]) -> None:
        defines = re.compile(f"{_DEFINES}({'|'.join(words)})\\b") if words else None
        is_about_tests = re.compile(TEST_LINE)
        for found in filter(None, map(_HIT.match, lines)):
            path, text = found["path"], found["text"]
            if defined := defines.match(text) if defines else None:
                paths = self.definitions.setdefault(defined[1], [])
                paths += [path] if path not in paths else []
            if is_about_tests.search(text):
                self.test_lines[path] = f"{self.test_lines.get(path, '')}{text}\n"
            elif not defined and path not in self.setters:
                self.setters.append(path)


# --- the files ---


class ProjectState(Struct):
    """The files of the project by their path from the working directory. `named` and `words` are from the prompt."""

    named: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    cwd: str = ""
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    """The lines of each file; 0 for a hidden, ignored, empty or binary one that the prompt names."""
    searched: set[str] = field(default_factory=set[str])
    """The files that a search finds."""
    narrowed: set[str] = field(default_factory=set[str])
    """The files of a large project whose lines were counted one by one."""
    listed: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    """The entries of each folder that was listed; folders end with a slash."""
    is_complete: bool = True
    """False if the project has too many files to list."""
    lookup: LookupHits = field(default_factory=LookupHits)
    hits: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """The lines `path:number:text` that contain a term of the prompt."""
    hit_counts: dict[str, int] = field(default_factory=dict[str, int])
    files: dict[str, str] = field(default_factory=dict[str, str])
    """The content of the files that were read as a whole, as it is now."""
    read_paths: set[str] = field(default_factory=set[str])
    """The files that were read, or could not be."""
    changed: list[str] = field(default_factory=list[str])
    created: list[str] = field(default_factory=list[str])
    deleted: list[str] = field(default_factory=list[str])

    @property
    def has_changes(self) -> bool:
        return bool(self.changed or self.created or self.deleted)

    @property
    def written(self) -> list[str]:
        """The files that the turn has created or changed."""
        return list(dict.fromkeys((*self.created, *self.changed)))

    @property
    def test_texts(self) -> dict[str, str]:
        """The files, or the lines of them, that say how the tests run."""
        return {**self.lookup.test_lines, **self.files}

    def resolve(self, written: str) -> str:
        """Return the file that a written path means, or "": the same path, or the only one that ends with it."""
        path = written.removeprefix("./")
        if path in self.sizes:
            return path
        matches = [known for known in self.sizes if known.endswith(f"/{path}")]
        return matches[0] if len(matches) == 1 else ""

    def list_under(self, folder: str) -> list[str]:
        return [path for path in self.sizes if path.startswith(f"{folder.rstrip('/')}/")]

    def list_named(self) -> list[str]:
        """Return the files that the prompt names and that exist."""
        return [found for path in self.named if (found := self.resolve(path))]

    def has_folder(self, folder: str) -> bool:
        return bool(self.list_under(folder)) or f"{folder.split('/')[0]}/" in self.listed.get(".", ())

    def find_hit_files(self) -> dict[str, list[str]]:
        """Return the files that define or contain each name of the prompt."""
        found = dict(self.lookup.definitions)
        for term, lines in self.hits.items():
            paths = (line.partition(":")[0] for line in lines)
            found[term] = list(dict.fromkeys((*found.get(term, ()), *paths)))
        return found

    def to_relative(self, path: str) -> str:
        return path.removeprefix(self.cwd) if self.cwd else path

    # --- folding the results of calls ---

    def add_result(self, call: ToolCall, result: ToolResult) -> bool:
        """Note the result of any call but a command; True if files have changed."""
        is_survey = call.args.get("pattern") == EVERY_LINE and not call.args.get("path") and not call.args.get("glob")
        if call.name == "Read":
            return self._add_file(call, result)
        if call.name == "LS":
            self._add_listing(str(call.args.get("path")), "" if result.is_error else result.text)
        elif call.name == "Grep":
            if is_survey and not result.is_error:
                self._add_survey(result.text)
            elif not is_survey:
                self._add_search(call, "" if result.is_error else result.text)
        elif not result.is_error:
            self._add_change(call)
            return True
        return False

    def _add_listing(self, folder: str, text: str) -> None:
        """Note the entries of a folder. Those that the prompt names exist, although a search may leave them out."""
        first, *lines = text.split("\n")
        if folder == "." and text:
            self.cwd = first
        entries = {match["name"] for line in lines if (match := _ENTRY.match(line))}
        before = self.listed.get(folder)
        self.listed[folder] = entries
        inside = "" if folder == "." else f"{folder.rstrip('/')}/"
        named = [path for path in self.named if path.startswith(inside) and path[len(inside) :] in entries]
        if before is not None:
            new = {f"{inside}{name}" for name in entries - before}
            self.created += sorted(path for path in new if path.endswith("/") or path in named)
            self.deleted += sorted(path for path in self.named if f"{path}/" in before - entries)
        for path in named:
            self.sizes.setdefault(path, 0)

    def _add_search(self, call: ToolCall, text: str) -> None:
        lines = text.splitlines()
        pattern = str(call.args.get("pattern"))
        if pattern == EVERY_LINE:
            self.narrowed.add(str(call.args.get("path") or call.args.get("glob")))
            self.sizes.update(self._parse_sizes(lines))
        elif pattern.startswith(TEST_LINE):
            self.lookup = LookupHits()
            self.lookup.add_lines([self.to_relative(line) for line in lines], self.words)
        else:
            cut = _CUT.search(text)
            self.hits[pattern] = tuple(self.to_relative(line) for line in lines if _HIT.match(line))
            self.hit_counts[pattern] = int(cut[1]) if cut else len(self.hits[pattern])

    def _add_survey(self, text: str) -> None:
        """Note the files and their lines. In a later survey, what a command has created or deleted."""
        found = self._parse_sizes(text.splitlines())
        if self.searched and self.is_complete:
            self.created += [path for path in found if path not in self.sizes]
            self._remove([path for path in self.searched if path not in found])
        self.searched = set(found)
        self.sizes.update(found)
        self.is_complete = _CUT.search(text) is None

    def _parse_sizes(self, lines: Iterable[str]) -> dict[str, int]:
        found = (match for line in lines if (match := _COUNTED.match(line)))
        return {self.to_relative(match["path"]): int(match["count"]) for match in found}

    def _add_file(self, call: ToolCall, result: ToolResult) -> bool:
        """Note the content of a file. In a later reading, whether a command has changed it."""
        path = self.to_relative(str(call.args.get("file_path", "")))
        self.read_paths.add(path)
        lines = result.text.split("\n")
        numbered = [_NUMBERED.match(line) for line in lines]
        before = self.files.get(path)
        if result.is_error:
            return False
        if lines == ["(empty file)"]:
            self.files[path] = ""
        elif all(numbered):
            self.files[path] = "\n".join(match[1] for match in numbered if match) + "\n"
            self.sizes[path] = len(lines)
        if before is None or path not in self.files or self.files[path] == before:
            return False
        self.changed.append(path)
        return True

    def _add_change(self, call: ToolCall) -> None:
        if call.name == "Delete":
            self._remove(call.args.get("paths", ()))
            return
        path = self.to_relative(str(call.args.get("file_path", "")))
        if not path:
            return
        text = apply_call(call, self.files.get(path))
        (self.changed if path in self.sizes else self.created).append(path)
        self.sizes[path] = len((text or "").splitlines())
        if text is None:
            self.files.pop(path, None)
        else:
            self.files[path] = text

    def _remove(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.files.pop(path, None)
            self.sizes.pop(path, None)
            self.searched.discard(path)
            self.deleted.append(path)


def apply_call(call: ToolCall, text: str | None) -> str | None:
    """Return what an edit makes of a file; None if that is not known."""
    if call.name == "WriteFile":
        return str(call.args.get("content", ""))
    for edit in call.args.get("edits", [call.args]):
        old = str(edit.get("old_string", ""))
        if text is None or not old or old not in text:
            return None
        text = text.replace(old, str(edit.get("new_string", "")), 1)
    return text
