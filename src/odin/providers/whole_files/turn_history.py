"""Reads the history of a turn as the planner needs it: the prompt, the searches, the model's replies and their results.

The state of the files is folded from the calls: what Read showed, and what successful edits made of it.
"""

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from odin.core.message import Message, PromptMessage, ReplyMessage, ToolCall, ToolResult
from odin.providers.whole_files.project_tests import TEST_LINE, is_unavailable
from odin.providers.whole_files.task_context import LookupHits, ProjectFiles

GATHER_PREFIX = "gather_"
VERIFY_PREFIX = "verify_"
FINISH_PREFIX = "finish_"
EVERY_LINE = "^"
"""The pattern whose matches per file are its lines."""

_NOTES = (
    "Your last reply ",
    "You changed ",
    "Odin ran the project's checks ",
    "Go on from where you stopped.",
    "Cached files: ",
)
"""The starts of messages by Odin that come after a reply and are no prompts."""

_NUMBERED = re.compile(r"^ *\d+\t(.*)$")
_COUNTED = re.compile(r"^(?P<path>.+):(?P<count>\d+)$")
_HIT = re.compile(r"^(?P<path>[^:\n]+):(?P<line>\d+):(?P<text>.*)$")
_CUT = re.compile(r"\(showing the first \d+ of (\d+) results")
_ENTRY = re.compile(r"^  (?P<name>.+?)(?: \[cached(?:, modified)?\]| -> .*)?$")
"""A line of a listing."""
_FINDS_NOTHING = re.compile(r"\s*(?:grep|rg|git grep|diff|test|\[)\b")
"""Programs whose exit code 1 without output is an answer."""
_DENIED = re.compile(r"Denied\b|\w+ requires confirmation:|The user said no\b")


def is_denied(result: ToolResult) -> bool:
    """True if the user, a rule or a missing approval kept a call from running."""
    return result.is_error and _DENIED.match(result.text) is not None


def is_survey(call: ToolCall) -> bool:
    """True if a search counts the lines of all files."""
    return call.args.get("pattern") == EVERY_LINE and not call.args.get("path") and not call.args.get("glob")


class Step(Struct):
    """One reply of the turn and the results of its calls. `note` is what Odin said after a reply without calls."""

    message: ReplyMessage
    results: dict[str, ToolResult] = field(default_factory=dict[str, ToolResult])
    note: str = ""

    @property
    def is_gathering(self) -> bool:
        return bool(self.message.calls) and all(call.id.startswith(GATHER_PREFIX) for call in self.message.calls)

    @property
    def is_verifying(self) -> bool:
        return bool(self.message.calls) and all(call.id.startswith(VERIFY_PREFIX) for call in self.message.calls)

    @property
    def is_finishing(self) -> bool:
        """True if Odin itself completed a change of the model."""
        return bool(self.message.calls) and all(call.id.startswith(FINISH_PREFIX) for call in self.message.calls)

    @property
    def is_by_model(self) -> bool:
        return not self.is_gathering and not self.is_verifying and not self.is_finishing

    def list_results(self) -> Iterator[tuple[ToolCall, ToolResult]]:
        for call in self.message.calls:
            yield call, self.results.get(call.id) or ToolResult(call.id, "The call has no result.", True)


class HistoryTurn(Struct):
    prompt: str
    notes: tuple[str, ...] = ()
    steps: list[Step] = field(default_factory=list[Step])


def read_turns(messages: Iterable[Message]) -> list[HistoryTurn]:
    """Return the turns of a history. Notes of Odin belong to the turn before them."""
    turns: list[HistoryTurn] = []
    for message in messages:
        if isinstance(message, PromptMessage):
            if turns and turns[-1].steps and message.text.startswith(_NOTES):
                turns[-1].steps[-1].note = "\n\n".join((message.text, *message.notes))
            elif message.text.strip() and not message.text.startswith(_NOTES):
                turns.append(HistoryTurn(message.text, message.notes))
        elif not turns:
            continue
        elif isinstance(message, ReplyMessage):
            turns[-1].steps.append(Step(message))
        elif turns[-1].steps:
            turns[-1].steps[-1].results = {result.call_id: result for result in message.results}
            turns[-1].steps[-1].note = "\n\n".join(note for note in message.notes if not note.startswith("Cached"))
    return turns


class FoundLine(Struct, frozen=True):
    """A line that a search has found."""

    path: str
    number: str
    text: str


class TurnFacts(Struct):
    """What the calls of a turn have shown so far. `prompt`, `named` and `words` are what the prompt says."""

    prompt: str = ""
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
    complete: bool = True
    file_count: int = 0
    """All files, also those of a project with too many to list."""
    lookup: LookupHits = field(default_factory=LookupHits)
    hits: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """The lines `path:number:text` that contain a term of the prompt."""
    hit_counts: dict[str, int] = field(default_factory=dict[str, int])
    files: dict[str, str] = field(default_factory=dict[str, str])
    """The content of the files that were read as a whole, as it is now."""
    tried: set[str] = field(default_factory=set[str])
    """The files that were read, or could not be."""
    outputs: dict[str, str] = field(default_factory=dict[str, str])
    """The last output of each command that ran."""
    fresh: set[str] = field(default_factory=set[str])
    """The commands and searches that ran since the last change."""
    baseline: dict[str, str] = field(default_factory=dict[str, str])
    """The outputs of commands that failed before the model was asked."""
    failed_commands: set[str] = field(default_factory=set[str])
    unavailable: set[str] = field(default_factory=set[str])
    """The commands that could not run here."""
    failing_check: str = ""
    """The command that showed that the last change does not work."""
    refused: dict[str, str] = field(default_factory=dict[str, str])
    """The commands of Odin itself that were not allowed, and why."""
    denied: list[str] = field(default_factory=list[str])
    changed: list[str] = field(default_factory=list[str])
    deleted: list[str] = field(default_factory=list[str])
    created: list[str] = field(default_factory=list[str])
    commands: list[str] = field(default_factory=list[str])
    """The commands that ran, in order, with one entry per run."""
    model_commands: list[str] = field(default_factory=list[str])
    """Those of them that the model asked for."""
    rejected: int = 0
    """Replies that the model had to correct."""

    @property
    def project(self) -> ProjectFiles:
        return ProjectFiles(self.sizes, self.complete)

    @property
    def has_changes(self) -> bool:
        return bool(self.changed or self.created or self.deleted)

    @property
    def test_texts(self) -> dict[str, str]:
        """What is known about how the tests run: whole files, or the lines that tell it."""
        return {**self.lookup.test_lines, **self.files}

    def find_hit_files(self) -> dict[str, list[str]]:
        """Return the files that define or contain each name of the prompt."""
        found = self.lookup.find_defining_files()
        for term in self.hits:
            paths = (line.path for line in self.list_hits(term))
            found[term] = list(dict.fromkeys((*found.get(term, ()), *paths)))
        return found

    def list_hits(self, term: str) -> list[FoundLine]:
        """Return the lines that contain a term."""
        found = (_HIT.match(line) for line in self.hits.get(term, ()))
        return [FoundLine(match["path"], match["line"], match["text"]) for match in found if match]

    def has_folder(self, folder: str) -> bool:
        return bool(self.project.list_under(folder)) or f"{folder.split('/')[0]}/" in self.listed.get(".", ())

    def to_relative(self, path: str) -> str:
        return path.removeprefix(self.cwd) if self.cwd else path

    def add_step(self, step: Step) -> None:
        for call, result in step.list_results():
            command = str(call.args.get("command")) if step.is_gathering and call.name == "ExecuteCommand" else ""
            if command and is_denied(result):
                self.refused[command] = result.text
                continue
            self._add_result(call, result)
            if command and result.is_error:
                self.baseline[command] = result.text
                if "(timed out after" in result.text:  # tests that wait for changes never end
                    self.unavailable.add(command)
        if step.is_by_model:
            self.rejected += step.message.stop == "unfinished"
            ran = [str(call.args.get("command")) for call in step.message.calls if call.name == "ExecuteCommand"]
            self.model_commands += ran

    def _add_result(self, call: ToolCall, result: ToolResult) -> None:
        if call.name == "ExecuteCommand":
            self._add_output(str(call.args.get("command", "")), result)
        elif call.name == "Read":
            self._add_file(call, result)
        elif result.is_error:
            if is_denied(result):
                self.denied.append(f"{call.args.get('file_path') or call.args.get('paths')}: {result.text}")
            if call.name == "LS":
                self.listed[str(call.args.get("path"))] = set()
            elif call.name == "Grep" and not is_survey(call):
                self._add_search(call, ToolResult(call.id, ""))
        elif call.name == "LS":
            self._add_listing(str(call.args.get("path")), result.text)
        elif call.name == "Grep":
            self._add_search(call, result)
        else:
            self._add_change(call)

    def _add_output(self, command: str, result: ToolResult) -> None:
        if is_denied(result):
            self.denied.append(f"{command}: {result.text}")
            return
        self.outputs[command] = result.text
        self.fresh.add(command)
        is_missing = result.is_error and is_unavailable(result.text, self.prompt)
        found_nothing = _FINDS_NOTHING.match(command) and re.search(r"^\s*\S*\(exit code 1\)\s*$", result.text)
        is_failure = result.is_error and not is_missing and not found_nothing
        (self.unavailable.add if is_missing else self.unavailable.discard)(command)
        (self.failed_commands.add if is_failure else self.failed_commands.discard)(command)
        self.commands.append(command)

    def _add_listing(self, folder: str, text: str) -> None:
        """Note the entries of a folder. Those that the prompt names exist, although a search may leave them out."""
        first, *lines = text.split("\n")
        if folder == ".":
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

    def _add_search(self, call: ToolCall, result: ToolResult) -> None:
        lines = result.text.splitlines()
        pattern = str(call.args.get("pattern"))
        if pattern == EVERY_LINE and not is_survey(call):
            self.narrowed.add(str(call.args.get("path") or call.args.get("glob")))
            self.sizes.update(self._parse_sizes(lines))
        elif is_survey(call):
            cut = _CUT.search(result.text)
            self._add_sizes(lines)
            self.complete = cut is None
            self.file_count = int(cut[1]) if cut else len(self.searched)
        elif pattern.startswith(TEST_LINE):
            self.lookup = LookupHits()
            self.lookup.add_lines([self.to_relative(line) for line in lines], self.words)
        else:
            term = pattern.removeprefix(r"\b").removesuffix(r"\b")
            self.fresh.add(pattern)
            self.hits[term] = tuple(self.to_relative(line) for line in lines if _HIT.match(line))
            cut = _CUT.search(result.text)
            self.hit_counts[term] = int(cut[1]) if cut else len(self.hits[term])

    def _add_sizes(self, lines: Iterable[str]) -> None:
        """Note the files and their lines. In a later survey, what a command has created or deleted."""
        found = self._parse_sizes(lines)
        if self.searched and self.complete:
            self.created += [path for path in found if path not in self.sizes]
            gone = [path for path in self.searched if path not in found]
            for path in gone:
                self.files.pop(path, None)
                self.sizes.pop(path, None)
            self.deleted += gone
        self.searched = set(found)
        self.sizes.update(found)

    def _parse_sizes(self, lines: Iterable[str]) -> dict[str, int]:
        found = (match for line in lines if (match := _COUNTED.match(line)))
        return {self.to_relative(match["path"]): int(match["count"]) for match in found}

    def _add_file(self, call: ToolCall, result: ToolResult) -> None:
        """Note the content of a file. In a later reading, whether a command has changed it."""
        path = self.to_relative(str(call.args.get("file_path", "")))
        self.tried.add(path)
        lines = result.text.split("\n")
        numbered = [_NUMBERED.match(line) for line in lines]
        before = self.files.get(path)
        if result.is_error:
            return
        if lines == ["(empty file)"]:
            self.files[path] = ""
        elif all(numbered):
            self.files[path] = "\n".join(match[1] for match in numbered if match) + "\n"
            self.sizes[path] = len(lines)
        if before is not None and path in self.files and self.files[path] != before:
            self.changed.append(path)
            self.fresh.clear()

    def _add_change(self, call: ToolCall) -> None:
        self.fresh.clear()
        self.failing_check = ""
        if call.name == "Delete":
            for path in call.args.get("paths", ()):
                self.files.pop(path, None)
                self.sizes.pop(path, None)
                self.searched.discard(path)
                self.deleted.append(path)
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


def apply_call(call: ToolCall, text: str | None) -> str | None:
    """Return what an edit makes of a file; None if that is not known."""
    if call.name == "WriteFile":
        return str(call.args.get("content", ""))
    edits = call.args.get("edits", [call.args])
    for edit in edits:
        old = str(edit.get("old_string", ""))
        if text is None or not old or old not in text:
            return None
        text = text.replace(old, str(edit.get("new_string", "")), 1)
    return text
