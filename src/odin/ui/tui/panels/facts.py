"""The files this session has changed, with how many lines came and went.

What is known of the session beside its conversation, folded from events. The panels only show it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from odin.core.client import ContextReport, SessionInfo
from odin.core.event import (
    AgentEnded,
    BudgetSet,
    Envelope,
    FileChange,
    FilesChanged,
    FileState,
    LoopChanged,
    ModelChanged,
    PermissionModeChanged,
    PromptDropped,
    PromptInjected,
    PromptQueued,
    RateLimitUpdated,
    Redone,
    RequestStarted,
    Rewound,
    SessionOpened,
    SpawnFinished,
    SpawnStarted,
    TitleSet,
    TodosChanged,
    ToolEnded,
    TurnEnded,
    TurnStarted,
    UsageRecorded,
)
from odin.core.usage import UsageTotals
from odin.ui.tui.format import model_name_of
from odin.ui.tui.panels.agent_activity import AgentList

MAX_FILES = 500


@dataclass(slots=True)
class EditedFile:
    """`first` is how it was before the session touched it. `counted` says that the lines of every change are known."""

    path: str
    original: FileState
    call_id: str
    added: int = 0
    removed: int = 0
    is_deleted: bool = False
    is_counted: bool = False


class EditedFiles:
    """Folds what calls did to files. A file that is as it was at first is not listed: a rewind takes it out again."""

    def __init__(self) -> None:
        self.files: dict[str, EditedFile] = {}
        self._lines: dict[str, tuple[int, int]] = {}

    def apply(self, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, FilesChanged):
            self._apply_changes(event.changes, event.call_id)
            self._count_lines_of(event.call_id)
        elif isinstance(event, Rewound | Redone):
            for path in self._apply_changes(event.changes, ""):
                self.files[path].is_counted = False
        elif isinstance(event, ToolEnded) and len(event.files) == 1 and event.status == "success":
            self._lines[event.call_id] = count_diff_lines(event.display)
            self._count_lines_of(event.call_id)
        elif isinstance(event, TurnEnded):
            self._lines.clear()

    def _apply_changes(self, changes: Iterable[FileChange], call_id: str) -> list[str]:
        """Take over what became of these files, and say which of them are listed now."""
        changed: dict[str, None] = {}
        for change in changes:
            path = change.after.path
            changed[path] = None
            file = self.files.pop(path, None) or EditedFile(path, change.before, call_id)
            file.call_id = call_id or file.call_id
            file.is_deleted = change.after.kind == "absent"
            if not _is_same_state(file.original, change.after):
                self.files[path] = file
        while len(self.files) > MAX_FILES:
            del self.files[next(iter(self.files))]
        return [path for path in changed if path in self.files]

    def _count_lines_of(self, call_id: str) -> None:
        """The lines of a call count when both are known: what it did to a file and what it showed of that."""
        changed = [file for file in self.files.values() if file.call_id == call_id]
        if len(changed) == 1 and call_id in self._lines:
            added, removed = self._lines.pop(call_id)
            file = changed[0]
            fresh = not (file.added or file.removed)
            file.added += added
            file.removed += removed
            file.is_counted = file.is_counted or fresh


def _is_same_state(one: FileState, other: FileState) -> bool:
    return (one.kind, one.sha256, one.target) == (other.kind, other.sha256, other.target)


def count_diff_lines(diff: str) -> tuple[int, int]:
    """How many lines a diff adds and takes away. Before its first place it only names the files."""
    added = removed = 0
    inside = False
    for line in diff.splitlines():
        if line.startswith("@@"):
            inside = True
        elif inside and line.startswith("+"):
            added += 1
        elif inside and line.startswith("-"):
            removed += 1
    return added, removed


LOW_LIMIT = 0.1
"""Which part of a provider's limit has to be left before it is worth a word."""

ACTIVE_LOOP_STATES = ("executing", "verifying", "assessing")
_RUN_EVENTS = (BudgetSet, ModelChanged, PermissionModeChanged, RequestStarted, SessionOpened)


class SessionFacts:
    """`chosen` is the model that was asked for, `running` the one that answers; `context` is None until it was asked.

    `limit_low` says how little is left of a provider's limits, when it is little.
    """

    def __init__(self, info: SessionInfo | None = None) -> None:
        self.info = info
        self.context: ContextReport | None = None
        self.chosen_model = info.model if info else ""
        self.running_model = self.chosen_model
        self.permission_mode = info.permission_mode if info else "default"
        self.budget_usd = info.budget_usd if info else 0.0
        self.title = ""
        self.usage_totals = UsageTotals()
        self.queued: set[str] = set()
        self.processes: dict[str, str] = {}
        self.todos: dict[str, TodosChanged] = {}
        self.loop: LoopChanged | None = None
        self.low_limit = ""
        self.key_note = ""
        self.agents = AgentList()
        self.edited_files = EditedFiles()

    def apply(self, envelope: Envelope, live: bool = True) -> None:
        """What a run of the past was told holds no longer: `info` says what holds in this one."""
        self.agents.apply(envelope)
        self.edited_files.apply(envelope)
        step = _FACT_HANDLERS.get(type(envelope.event))
        if step is not None and (live or not isinstance(envelope.event, _RUN_EVENTS)):
            step(self, envelope.event, envelope.agent)

    def update(self, info: SessionInfo, context: ContextReport) -> None:
        """What the session says of itself, asked now and then."""
        self.info, self.context = info, context
        self.permission_mode, self.budget_usd = info.permission_mode, info.budget_usd

    @property
    def fullness(self) -> float | None:
        """Which part is used of what there may be before the conversation is summarised; of the window without that."""
        report = self.context
        room = (report.threshold or report.limit) if report is not None else 0
        return report.used / room if report is not None and room else None

    def _open_session(self, event: SessionOpened, agent: str) -> None:
        self.permission_mode = event.permission_mode or self.permission_mode

    def _change_model(self, event: ModelChanged, agent: str) -> None:
        self.running_model = event.model
        if not event.reason:
            self.chosen_model = event.model

    def _start_request(self, event: RequestStarted, agent: str) -> None:
        """Requests name a model without its provider."""
        if event.model and not agent:
            known = (
                ref
                for ref in (self.running_model, self.chosen_model)
                if model_name_of(ref) == model_name_of(event.model)
            )
            self.running_model = next(known, event.model)

    def _change_permission_mode(self, event: PermissionModeChanged, agent: str) -> None:
        self.permission_mode = event.mode

    def _set_budget(self, event: BudgetSet, agent: str) -> None:
        self.budget_usd = event.usd

    def _set_title(self, event: TitleSet, agent: str) -> None:
        self.title = event.title

    def _add_usage(self, event: UsageRecorded, agent: str) -> None:
        self.usage_totals = self.usage_totals + UsageTotals.from_event(event)

    def _add_queued(self, event: PromptQueued, agent: str) -> None:
        if not agent:
            self.queued.add(event.id)

    def _remove_queued(self, event: PromptDropped | PromptInjected, agent: str) -> None:
        self.queued.discard(event.id)

    def _start_turn(self, event: TurnStarted, agent: str) -> None:
        self.queued.discard(event.id)
        todos = self.todos.get(agent)
        if todos is not None and all(todo.status in ("completed", "cancelled") for todo in todos.todos):
            del self.todos[agent]

    def _set_todos(self, event: TodosChanged, agent: str) -> None:
        self.todos[agent] = event

    def _end_agent(self, event: AgentEnded, agent: str) -> None:
        self.todos.pop(event.id, None)

    def _change_loop(self, event: LoopChanged, agent: str) -> None:
        self.loop = event if event.state in ACTIVE_LOOP_STATES else None

    def _add_process(self, event: SpawnStarted, agent: str) -> None:
        self.processes[event.id] = event.description or event.command

    def _remove_process(self, event: SpawnFinished, agent: str) -> None:
        self.processes.pop(event.id, None)

    def _update_limits(self, event: RateLimitUpdated, agent: str) -> None:
        low = [
            f"{left:,} of {limit:,} {name} left"
            for left, limit, name in (
                (event.requests_left, event.requests_limit, "requests"),
                (event.tokens_left, event.tokens_limit, "tokens"),
            )
            if left >= 0 and limit > 0 and left <= limit * LOW_LIMIT
        ]
        self.low_limit = low[0] if low else ""


_FACT_HANDLERS: dict[type[Any], Callable[[SessionFacts, Any, str], None]] = {
    SessionOpened: SessionFacts._open_session,
    ModelChanged: SessionFacts._change_model,
    RequestStarted: SessionFacts._start_request,
    PermissionModeChanged: SessionFacts._change_permission_mode,
    BudgetSet: SessionFacts._set_budget,
    TitleSet: SessionFacts._set_title,
    UsageRecorded: SessionFacts._add_usage,
    PromptQueued: SessionFacts._add_queued,
    PromptDropped: SessionFacts._remove_queued,
    PromptInjected: SessionFacts._remove_queued,
    TurnStarted: SessionFacts._start_turn,
    TodosChanged: SessionFacts._set_todos,
    AgentEnded: SessionFacts._end_agent,
    LoopChanged: SessionFacts._change_loop,
    SpawnStarted: SessionFacts._add_process,
    SpawnFinished: SessionFacts._remove_process,
    RateLimitUpdated: SessionFacts._update_limits,
}
