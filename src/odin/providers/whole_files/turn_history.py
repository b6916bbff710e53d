"""Reads the history of a turn as the planner needs it: the prompt, the searches, the model's replies and their results.

The state of the files is folded from the calls: what Read showed, and what successful edits made of it.
"""

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from odin.core.message import Message, PromptMessage, ReplyMessage, ToolCall, ToolResult
from odin.providers.whole_files.task_context import ProjectFiles

GATHER_PREFIX = "gather_"
VERIFY_PREFIX = "verify_"
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
_UNAVAILABLE = re.compile(r"No module named '?(?:pytest|unittest)|\(exit code 127\)\s*$")
"""A program that is not installed says nothing about the project."""
_DENIED = re.compile(r"Denied\b|\w+ requires confirmation:|The user said no\b")


def is_denied(result: ToolResult) -> bool:
    """True if the user, a rule or a missing approval kept a call from running."""
    return result.is_error and _DENIED.match(result.text) is not None


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
    def is_by_model(self) -> bool:
        return not self.is_gathering and not self.is_verifying

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


class TurnFacts(Struct):
    """What the calls of a turn have shown so far."""

    cwd: str = ""
    sizes: dict[str, int] = field(default_factory=dict[str, int])
    complete: bool = True
    hits: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """The lines `path:number:text` that contain a term of the prompt."""
    hit_counts: dict[str, int] = field(default_factory=dict[str, int])
    files: dict[str, str] = field(default_factory=dict[str, str])
    """The content of the files that were read as a whole, as it is now."""
    outputs: dict[str, str] = field(default_factory=dict[str, str])
    """The last output of each command that ran."""
    failed_commands: set[str] = field(default_factory=set[str])
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

    def find_hit_files(self) -> dict[str, list[str]]:
        return {
            term: list(dict.fromkeys(match["path"] for line in lines if (match := _HIT.match(line))))
            for term, lines in self.hits.items()
        }

    def to_relative(self, path: str) -> str:
        return path.removeprefix(self.cwd) if self.cwd else path

    def add_step(self, step: Step) -> None:
        for call, result in step.list_results():
            self._add_result(call, result)
        if step.is_by_model:
            self.rejected += step.message.stop == "unfinished"
            ran = [str(call.args.get("command")) for call in step.message.calls if call.name == "ExecuteCommand"]
            self.model_commands += ran

    def _add_result(self, call: ToolCall, result: ToolResult) -> None:
        if call.name == "ExecuteCommand":
            self._add_output(str(call.args.get("command", "")), result)
        elif result.is_error:
            if is_denied(result):
                self.denied.append(f"{call.args.get('file_path') or call.args.get('paths')}: {result.text}")
        elif call.name == "LS":
            self.cwd = result.text.partition("\n")[0]
        elif call.name == "Grep":
            self._add_search(call, result)
        elif call.name == "Read":
            self._add_file(call, result)
        else:
            self._add_change(call)

    def _add_output(self, command: str, result: ToolResult) -> None:
        if is_denied(result):
            self.denied.append(f"{command}: {result.text}")
            return
        self.outputs[command] = result.text
        is_failure = result.is_error and not _UNAVAILABLE.search(result.text)
        (self.failed_commands.add if is_failure else self.failed_commands.discard)(command)
        self.commands.append(command)

    def _add_search(self, call: ToolCall, result: ToolResult) -> None:
        lines = result.text.splitlines()
        if call.args.get("pattern") == EVERY_LINE:
            found = [match for line in lines if (match := _COUNTED.match(line))]
            self.sizes.update((self.to_relative(match["path"]), int(match["count"])) for match in found)
            self.complete = _CUT.search(result.text) is None
        else:
            term = str(call.args.get("pattern"))
            self.hits[term] = tuple(self.to_relative(line) for line in lines if _HIT.match(line))
            cut = _CUT.search(result.text)
            self.hit_counts[term] = int(cut[1]) if cut else len(self.hits[term])

    def _add_file(self, call: ToolCall, result: ToolResult) -> None:
        path = self.to_relative(str(call.args.get("file_path", "")))
        lines = result.text.split("\n")
        if lines == ["(empty file)"]:
            self.files[path] = ""
            return
        numbered = [_NUMBERED.match(line) for line in lines]
        if all(numbered):
            self.files[path] = "\n".join(match[1] for match in numbered if match) + "\n"

    def _add_change(self, call: ToolCall) -> None:
        if call.name == "Delete":
            for path in call.args.get("paths", ()):
                self.files.pop(path, None)
                self.sizes.pop(path, None)
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
