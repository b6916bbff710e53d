"""What a small model is shown: files, search results and outputs, chosen from the prompt, and the text of the request.

One search tells where the project defines the words of the prompt, where it sets them, and how its tests run: a word
such as `mean` or `port` becomes a name because the project defines it. Files named in the prompt come first, then those
that contain its names, then the whole project if it is small. If the prompt is about a command or the tests, these run
first. Format and examples are the same in every request, so the server's prompt cache holds them; the task is last.
"""

import re
from collections.abc import Collection, Iterable, Mapping

from msgspec import Struct, field

from odin.core.message import Message, PromptMessage, ReplyMessage, Text
from odin.providers.whole_files.project_tests import TEST_LINE, is_test
from odin.providers.whole_files.prompt_intent import Intent, PromptReading

TOKENS_PER_LINE = 11
_GATHERED_SHARE = 0.3
"""The share of the context window for gathered files. History, reply and the next rounds need the rest."""
_MAX_FILES = 24
_OTHER_LINES = 120
"""Lines of files that the prompt does not lead to, if it leads to others. They take time and distract."""
_SKIPPED = re.compile(
    r"\.(?:lock|min\.js|map|svg|png|jpe?g|gif|ico|pdf|zip|gz|woff2?|pyc|so|o|class|jar|exe|bin|sum)$|package-lock\.json$"
)


_CODE = re.compile(r"\.(?:py|[cm]?[jt]sx?|go|rs|java|c|h|cpp|rb|sh|kt|cs|php)$")
_DATA = re.compile(r"\.(?:json|toml|ya?ml|ini|cfg|conf|properties|txt|csv|tsv|log|lock)$|(?:^|/)\.[\w.-]+$")
"""Files that can be changed without a look at any other."""

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
_FOUND = re.compile(r"^(?P<path>[^:\n]+):(?P<line>\d+):(?P<text>.*)$")


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
    """What the search found: `path:line` of each definition, the files that set a value, the lines about tests."""

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
        for found in filter(None, map(_FOUND.match, lines)):
            path, text = found["path"], found["text"]
            if defined := defines.match(text) if defines else None:
                self.definitions.setdefault(defined[1], []).append(f"{path}:{found['line']}")
            if is_about_tests.search(text):
                self.test_lines[path] = f"{self.test_lines.get(path, '')}{text}\n"
            elif not defined and path not in self.setters:
                self.setters.append(path)

    def find_defining_files(self) -> dict[str, list[str]]:
        """Return the files that define each word."""
        return {
            word: list(dict.fromkeys(place.rpartition(":")[0] for place in places))
            for word, places in self.definitions.items()
        }


# --- the files ---


class ProjectFiles(Struct, frozen=True):
    """The files of the project by their path from the working directory, with their lines. `complete`: all of them."""

    lines: Mapping[str, int]
    complete: bool = True

    def resolve(self, written: str) -> str:
        """Return the file that a written path means, or "": the same path, or the only one that ends with it."""
        path = written.removeprefix("./")
        if path in self.lines:
            return path
        matches = [known for known in self.lines if known.endswith(f"/{path}")]
        return matches[0] if len(matches) == 1 else ""

    def list_under(self, folder: str) -> list[str]:
        return [path for path in self.lines if path.startswith(f"{folder.rstrip('/')}/")]


def count_budget_lines(context: int) -> int:
    """Return how many lines of files a model with this context window is shown."""
    return max(120, int((context or 8192) * _GATHERED_SHARE) // TOKENS_PER_LINE)


def choose_files(
    reading: PromptReading,
    project: ProjectFiles,
    hits: Mapping[str, Iterable[str]],
    budget: int,
    lookup: LookupHits | None = None,
) -> tuple[str, ...]:
    """Return the files to read, the most important first, as many as the budget of lines allows.

    `hits` are the files that define or contain the names of the prompt; `lookup` is what it led to for certain.
    """
    found_names = lookup or LookupHits()
    named = [found for path in reading.paths if (found := project.resolve(path))]
    folders = [file for path in reading.paths for file in project.list_under(path)]
    by_stem = [path for path in project.lines if _is_named_by_stem(path, reading.text)]
    by_hit = [path for paths in hits.values() for path in paths]
    ranked = [*named, *folders, *by_hit, *found_names.setters, *by_stem]
    tests = [path for path in project.lines if is_test(path)] if reading.mentions_tests else []
    partners = [path for path in project.lines if is_partner(path, named)]
    ranked += [*tests, *partners]
    others = sorted(project.lines.keys() - set(ranked), key=lambda path: (path.count("/"), path))
    chosen: list[str] = []
    left = budget
    for path in dict.fromkeys(path for path in (*ranked, *others) if _is_shown(path, project)):
        size = project.lines[path] + 3
        if chosen and ranked and path not in ranked:
            is_answered = reading.is_question and bool(named or folders or found_names.has_leads)
            is_led = reading.intent > Intent.EITHER and any(
                _is_code(one) and not is_test(one) for one in chosen if one in ranked
            )
            is_closed = is_answered or is_led or (bool(named) and _is_self_contained(named, reading, found_names))
            left = min(left, 0 if is_closed else _OTHER_LINES - _count_lines(chosen, ranked, project))
        if size <= left or (path in named and not chosen):
            chosen.append(path)
            left -= size
        if len(chosen) >= _MAX_FILES:
            break
    return tuple(chosen)


def _is_code(path: str) -> bool:
    return _CODE.search(path) is not None


def _is_self_contained(named: Iterable[str], reading: PromptReading, lookup: LookupHits) -> bool:
    """True if the named files can be changed without a look at others: data, or texts whose words the prompt quotes."""
    is_quoted = reading.has_quotes and not lookup.definitions
    return all(_DATA.search(path) or (is_quoted and path.endswith((".md", ".rst"))) for path in named)


def _count_lines(chosen: Iterable[str], ranked: Collection[str], project: ProjectFiles) -> int:
    """Return the lines of the chosen files that the prompt does not lead to."""
    return sum(project.lines[path] + 3 for path in chosen if path not in ranked)


def _is_shown(path: str, project: ProjectFiles) -> bool:
    return path in project.lines and not _SKIPPED.search(path.casefold())


def _is_named_by_stem(path: str, text: str) -> bool:
    stem = path.rpartition("/")[2].partition(".")[0]
    return len(stem) > 3 and re.search(rf"\b{re.escape(stem)}\b", text, re.IGNORECASE) is not None


def is_partner(path: str, named: Collection[str]) -> bool:
    """True for the test of a named file, and for the file that a named test is about."""
    stem = _stem_of(path)
    return path not in named and any(stem == _stem_of(other) for other in named)


def _stem_of(path: str) -> str:
    stem = path.rpartition("/")[2].partition(".")[0]
    return re.sub(r"^test_|_test$|^check_|Test$", "", stem)


# --- the text of the request ---

EDIT_FORMAT = """\
You get files of a project and a task. Reply in one of these forms:
- To change or create files: for each file its path on a line of its own, then a code block with the complete new \
content of the file, every line of it. Only files that change. Keep everything else in them as it is.
- To delete a file: DELETE path
- To run a command, for example to count, to compute or to test: RUN command
  You get its output and then answer.
- To answer a question that the files or outputs below answer: one or two sentences."""

CHANGE_FORMAT = """\
You get files of a project and a task. Reply with each file that changes: its path on a line of its own, then a code \
block with the complete new content of the file, every line of it. Keep everything else in it as it is."""

READ_FORMAT = """\
You get files of a project and a question. Answer it in one or two sentences. Change nothing.
To run a command that reads, for example to count, reply only: RUN command
You get its output and then answer."""

LONG_FORMAT = """\
{paths} is too long to repeat. Change it with blocks like this after its path, with lines copied exactly:
<<<<<<< SEARCH
lines to replace
=======
new lines
>>>>>>> REPLACE"""

EXAMPLE_FILES = {"door.py": 'def open_door(key):\n    return key == "gold"\n'}
_EXAMPLE_CHANGED = 'def open_door(key):\n    return key in ("gold", "silver")\n'


def block_of(path: str, text: str) -> str:
    """Return a file as the model reads and writes it: its path, then its content in a code block."""
    fence = "````" if "```" in text else "```"
    language = path.rpartition(".")[2] if "." in path else ""
    return f"{path}\n{fence}{_LANGUAGES.get(language, language)}\n{text.rstrip()}\n{fence}"


_LANGUAGES = {
    "py": "python",
    "js": "javascript",
    "mjs": "javascript",
    "ts": "typescript",
    "md": "markdown",
    "yml": "yaml",
}


def build_examples(*, can_edit: bool, can_run: bool) -> tuple[Message, ...]:
    """Return the examples as earlier messages of the conversation: an edit, and a command with its answer."""
    files = [block_of(*item) for item in EXAMPLE_FILES.items()]
    messages: list[Message] = []
    if can_edit:
        messages += [
            PromptMessage(format_task(files, "The door shall also open with a silver key.")),
            _reply(block_of("door.py", _EXAMPLE_CHANGED)),
        ]
    if can_run:
        question = 'What does open_door("iron") return?'
        messages += [
            PromptMessage(format_task(files, question)),
            _reply("RUN python3 -c 'from door import open_door; print(open_door(\"iron\"))'"),
            PromptMessage(format_outputs([("python3 -c …", "False")], question)),
            _reply('open_door("iron") returns False.'),
        ]
    return tuple(messages)


def _reply(text: str) -> ReplyMessage:
    return ReplyMessage((Text(text),))


def format_task(sections: Iterable[str], task: str, notes: Iterable[str] = ()) -> str:
    """Return the message with everything gathered and the task at its end, where small models look first."""
    return "\n\n".join([*sections, *notes, f"Task: {task}"])


def format_outputs(outputs: Iterable[tuple[str, str]], task: str) -> str:
    parts = [f"Output of {command}:\n{text}" for command, text in outputs]
    return "\n\n".join([*parts, f"Task: {task}"])
