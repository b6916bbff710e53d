"""Reads the history of a turn as the strategy needs it: the prompt, the searches, the model's replies and results."""

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from odin.core.errors import CommandTimedOut, NeedsConfirmation
from odin.core.message import Message, PromptMessage, ReplyMessage, ToolCall, ToolResult
from odin.providers.whole_files.project_state import ProjectState
from odin.providers.whole_files.project_tests import is_unavailable

GATHER_PREFIX = "gather_"
VERIFY_PREFIX = "verify_"

_FINDS_NOTHING = re.compile(r"\s*(?:grep|rg|git grep|diff|test|\[)\b")
"""Programs whose exit code 1 without output is an answer."""


class Step(Struct):
    """One reply of the turn and the results of its calls. `note` is the message of Odin after a reply without calls."""

    message: ReplyMessage
    results: dict[str, ToolResult] = field(default_factory=dict[str, ToolResult])
    note: PromptMessage | None = None

    @property
    def is_gathering(self) -> bool:
        return self._has_calls(GATHER_PREFIX)

    @property
    def is_verifying(self) -> bool:
        return self._has_calls(VERIFY_PREFIX)

    @property
    def is_by_model(self) -> bool:
        return not self.is_gathering and not self.is_verifying

    @property
    def is_unfinished(self) -> bool:
        """True if the reply had an error that the model has to correct."""
        return self.is_by_model and self.message.stop == "unfinished"

    @property
    def commands(self) -> list[str]:
        return [str(call.args.get("command")) for call in self.message.calls if call.name == "ExecuteCommand"]

    def _has_calls(self, prefix: str) -> bool:
        return bool(self.message.calls) and all(call.id.startswith(prefix) for call in self.message.calls)

    def list_results(self) -> Iterator[tuple[ToolCall, ToolResult]]:
        for call in self.message.calls:
            yield call, self.results.get(call.id) or ToolResult(call.id, "The call has no result.", True)


class HistoryTurn(Struct):
    prompt: str
    notes: tuple[str, ...] = ()
    steps: list[Step] = field(default_factory=list[Step])


def read_turns(messages: Iterable[Message]) -> list[HistoryTurn]:
    """Return the turns of a history. Messages of Odin itself belong to the turn before them."""
    turns: list[HistoryTurn] = []
    for message in messages:
        if isinstance(message, PromptMessage):
            if message.origin != "user":
                if turns and turns[-1].steps:
                    turns[-1].steps[-1].note = message
            elif message.text.strip():
                turns.append(HistoryTurn(message.text, message.notes))
        elif not turns:
            continue
        elif isinstance(message, ReplyMessage):
            turns[-1].steps.append(Step(message))
        elif turns[-1].steps:
            turns[-1].steps[-1].results = {result.call_id: result for result in message.results}
    return turns


class CommandLog(Struct):
    """The commands that ran in a turn."""

    outputs: dict[str, str] = field(default_factory=dict[str, str])
    """The last output of each command, those that ran last at the end."""
    fresh: set[str] = field(default_factory=set[str])
    """Those that ran since the last change."""
    failed: set[str] = field(default_factory=set[str])
    unavailable: set[str] = field(default_factory=set[str])
    """Those that could not run here."""
    first_failures: dict[str, str] = field(default_factory=dict[str, str])
    """The outputs of commands that failed before the model was asked."""
    by_model: list[str] = field(default_factory=list[str])
    refused: dict[str, str] = field(default_factory=dict[str, str])
    """The commands of Odin itself that were not allowed, and why."""

    def add_output(self, command: str, result: ToolResult, prompt: str) -> None:
        self.outputs.pop(command, None)
        self.outputs[command] = result.text
        self.fresh.add(command)
        is_missing = result.is_error and is_unavailable(result.text, prompt)
        found_nothing = _FINDS_NOTHING.match(command) and re.search(r"^\s*\S*\(exit code 1\)\s*$", result.text)
        is_failure = result.is_error and not is_missing and not found_nothing
        (self.unavailable.add if is_missing else self.unavailable.discard)(command)
        (self.failed.add if is_failure else self.failed.discard)(command)


class TurnFacts(Struct):
    """What the calls of a turn have shown so far."""

    prompt: str = ""
    project: ProjectState = field(default_factory=ProjectState)
    commands: CommandLog = field(default_factory=CommandLog)
    denied: list[str] = field(default_factory=list[str])
    """What was not allowed, and why."""
    needs_user: bool = False
    """Something was not allowed because no user could be asked."""
    rejected: int = 0
    """Replies that the model had to correct."""
    refused_texts: dict[str, str] = field(default_factory=dict[str, str])
    """What the model wrote for files that would have lost something: if it insists, it is right."""
    failing_check: str = ""
    """The command that showed that the last change does not work."""

    def add_step(self, step: Step) -> None:
        for call, result in step.list_results():
            command = str(call.args.get("command", "")) if call.name == "ExecuteCommand" else ""
            what = command or str(call.args.get("file_path") or call.args.get("paths"))
            self.needs_user = self.needs_user or result.error_kind == NeedsConfirmation.__name__
            if result.is_denied and command and step.is_gathering:
                self.commands.refused[command] = result.text
            elif result.is_denied:
                self.denied.append(f"{what}: {result.text}")
            if command and not result.is_denied:
                self.commands.add_output(command, result, self.prompt)
                if step.is_gathering and result.is_error:
                    self.commands.first_failures[command] = result.text
                    if result.error_kind == CommandTimedOut.__name__:  # tests that wait for changes never end
                        self.commands.unavailable.add(command)
            elif not command and self.project.add_result(call, result):
                self.commands.fresh.clear()
                self.failing_check = ""
        if step.is_by_model:
            self.rejected += step.is_unfinished
            self.commands.by_model += step.commands
