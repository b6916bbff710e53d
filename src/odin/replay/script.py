"""Reads two things from a recording: the user's actions and what the model said.

An action waits until the replay has reached the same point: the end of the turns before it or, within a turn, the last
event before it. The recorded model is silent where its turn was cut off, so that an interrupt finds the replay waiting
at exactly that point.
"""

from collections.abc import Container, Iterable, Sequence
from typing import Any, Literal

import msgspec

from odin.compaction.summary import body_of
from odin.core import errors
from odin.core.call_events import (
    AnswerEvent,
    AskEvent,
    CallDiscarded,
    FileCached,
    HookRan,
    PermissionAnswered,
    Replied,
    ReplyDiscarded,
    RetryScheduled,
    RuleAdded,
    RuleRemoved,
    SpawnFinished,
    SpawnStarted,
    TodosChanged,
    ToolEnded,
    ToolStarted,
    UsageRecorded,
)
from odin.core.errors import ProviderError
from odin.core.event import (
    AgentEnded,
    AgentStarted,
    Compacted,
    ContextAdded,
    ContextSummarized,
    EffortChanged,
    Envelope,
    FilesChanged,
    MessageRemoved,
    ModeChanged,
    PermissionModeChanged,
    PromptChanged,
    PromptDropped,
    PromptInjected,
    PromptQueued,
    Redone,
    Rewound,
    RoleChanged,
    SessionOpened,
    SystemPromptChanged,
    TitleSet,
    ToolsChanged,
    TurnEnded,
    TurnStarted,
)
from odin.core.message import Usage
from odin.core.op import (
    AddContext,
    AddRule,
    ChangePrompt,
    Compact,
    Continue,
    DropPrompt,
    Interrupt,
    Op,
    Prompt,
    QueuePolicy,
    Redo,
    RemoveLastMessage,
    Rewind,
    SetEffort,
    SetMode,
    SetPermissionMode,
    SetRole,
    SetSystemPrompt,
    SetTools,
)
from odin.core.small_jobs import COMPACTION_JOB
from odin.core.team import TaskCreated
from odin.core.tool import canonical_name_of
from odin.providers.playback import RecordedReply

EventKey = tuple[str, ...]
"""Identifies an event by what is the same in a replay."""

_LONGEST_WAIT_S = 3.0
"""An interrupted command gets as long as in the recording, but not longer than this."""

_OPS: dict[type, type[Op]] = {
    TurnStarted: Prompt,
    PromptQueued: Prompt,
    PromptChanged: ChangePrompt,
    PromptDropped: DropPrompt,
    ContextAdded: AddContext,
    MessageRemoved: RemoveLastMessage,
    Rewound: Rewind,
    Redone: Redo,
    PermissionModeChanged: SetPermissionMode,
    RoleChanged: SetRole,
    EffortChanged: SetEffort,
    SystemPromptChanged: SetSystemPrompt,
    ToolsChanged: SetTools,
    ModeChanged: SetMode,
}
"""The op that caused an event and has its fields. A setting that the replay has changed by itself changes nothing."""


class UserAction(msgspec.Struct, frozen=True):
    """`op` is performed when `ended_turns` turns have ended and `after` has happened.

    `silent_turn` additionally waits until the model has nothing more to say in that turn. "open" and "close" are the
    start and end of the session, "kill" an end that it could not record.
    """

    seq: int
    op: Op | RuleRemoved | Literal["open", "close", "kill"]
    ended_turns: int
    after: EventKey = ()
    silent_turn: str = ""
    delay: float = 0.0


def copy_fields(kind: type[Any], event: msgspec.Struct, **changes: Any) -> Any:
    """Make a `kind` with the fields it shares with an event. Attachments are found again in the text."""
    shared = {*kind.__struct_fields__} & {*event.__struct_fields__} - {"attachments"}
    return kind(**{name: getattr(event, name) for name in shared} | changes)


def make_event_key(envelope: Envelope, reply_counts: dict[str, int]) -> EventKey:
    """The key of an event that actions can wait for; empty for others. `reply_counts` counts replies per agent."""
    event, agent = envelope.event, envelope.agent
    match event:
        case TurnStarted():
            return ("turn", agent, event.id)
        case Replied():
            reply_counts[agent] = reply_counts.get(agent, 0) + 1
            return ("reply", agent, str(reply_counts[agent]))
        case ToolStarted():
            return ("start", event.call_id)
        case ToolEnded():
            return ("end", event.call_id)
        case AgentStarted():
            return ("agent", event.id)
        case _:
            return ("ask", event.call_id) if isinstance(event, AskEvent) else ()


class RecordedOrder:
    """The order of the events of several agents that work at once. Without delegated tasks nothing has to wait."""

    def __init__(self, envelopes: Sequence[Envelope]) -> None:
        is_team = any(isinstance(item.event, TaskCreated) for item in envelopes)
        self._anchors = _list_anchors(envelopes) if is_team else []
        self._reached = 0

    def has_reached(self, seq: int, happened: Container[EventKey]) -> bool:
        """True if everything that was recorded before event `seq` has happened again."""
        anchors = self._anchors
        while self._reached < len(anchors) and anchors[self._reached][2] in happened:
            self._reached += 1
        return self._reached == len(anchors) or anchors[self._reached][0] >= seq


def _list_anchors(envelopes: Sequence[Envelope]) -> list[tuple[int, float, EventKey]]:
    """Return number, time and key of the events that actions can wait for."""
    reply_counts: dict[str, int] = {}
    keys = ((item, make_event_key(item, reply_counts)) for item in envelopes)
    return [(item.seq, item.ts, key) for item, key in keys if key and not _is_partial(item)]


class ActionReader:
    """Reads the user's `actions`. `ended_turns` is the number of turns that ended while the session ran."""

    def __init__(self, envelopes: Sequence[Envelope]) -> None:
        self.actions: list[UserAction] = []
        self.ended_turns = 0
        self._envelopes = envelopes
        self._anchors = _list_anchors(envelopes)
        self._running = ""
        self._expected: set[str] = set()  # turns that queued prompts and the ends of background processes start
        self._effects = {
            effect.seq
            for at, item in enumerate(envelopes)
            if isinstance(item.event, TurnEnded) and not item.agent and item.event.reason in _CUT_REASONS
            for effect in envelopes[self._find_first_effect(at) : at]
        }
        self._remembered = {
            (item.event.rule, "allow" if item.event.allowed else "deny")
            for item in envelopes
            if isinstance(item.event, PermissionAnswered) and item.event.remember
        }
        for at, item in enumerate(envelopes):
            if isinstance(item.event, SpawnStarted):
                self._expected.add(f"{item.event.id}-ended")
            if not item.agent:
                self._read_event(at, item)
        if self._running:
            self._add_stop(len(envelopes), "kill")
        self.actions.sort(key=lambda action: action.seq)

    def _read_event(self, at: int, item: Envelope) -> None:  # noqa: C901 (one case per event)
        event = item.event
        match event:
            case SessionOpened():
                if self._running:
                    self._add_stop(at, "kill")
                    self._running = ""
                if event.resumed or at:
                    self._add(item, "open")
            case TurnStarted():
                if event.continues:
                    self._add(item, Continue(event.id, event.mode))
                elif event.id not in self._expected and event.id not in event.mail:
                    self._add(item, copy_fields(Prompt, event, display_text=event.display_text or event.text))
                self._running = event.id
            case TurnEnded() if event.id == self._running:  # the end of a killed turn is recorded by the next resume
                if event.reason == "interrupted" and find_stopping_answer(self._envelopes, at) is None:
                    self._add_stop(at, Interrupt(self._find_queue_policy(at)))
                elif event.reason == "aborted":
                    self._add_stop(at, "close")
                self.ended_turns += 1
                self._running = ""
            case PromptQueued() | PromptChanged():
                self._expected.add(event.id)
                op = copy_fields(_OPS[type(event)], event, display_text=event.display_text or event.text)
                self._add(item, op)
            case RuleAdded() if (event.text, event.action) not in self._remembered:
                self._add(item, AddRule(event.text, event.action, "session"))
            case RuleRemoved():
                self._add(item, event)
            case Compacted() if event.trigger == "manual":
                self._add(item, Compact(profile=event.profile))
            case _ if type(event) in _OPS and item.seq not in self._effects:
                self._add(item, copy_fields(_OPS[type(event)], event))
            case _:
                pass

    def _add(self, item: Envelope, op: Op | RuleRemoved | Literal["open"]) -> None:
        after = self._find_anchor(item.seq)[2] if self._running else ()
        self.actions.append(UserAction(item.seq, op, self.ended_turns, after))

    def _find_anchor(self, seq: int) -> tuple[int, float, EventKey]:
        return next((anchor for anchor in reversed(self._anchors) if anchor[0] < seq), (0, 0.0, ()))

    def _add_stop(self, at: int, op: Interrupt | Literal["close", "kill"]) -> None:
        """Add the action that cut off the running turn, before the first event it caused."""
        first = self._find_first_effect(at)
        end = self._envelopes[-1]
        reached, stopped = (
            (self._envelopes[first].seq, self._envelopes[first].ts)
            if first < len(self._envelopes)
            else (end.seq + 1, end.ts)
        )
        seq = self._envelopes[at].seq if at < len(self._envelopes) else reached
        _, ts, after = self._find_anchor(reached)
        if self._is_busy_at(first):
            delay = min(max(stopped - ts, 0.0), _LONGEST_WAIT_S)
            self.actions.append(UserAction(seq, op, self.ended_turns, after, delay=delay))
        else:
            self.actions.append(UserAction(seq, op, self.ended_turns, after, silent_turn=self._running))

    def _find_first_effect(self, at: int) -> int:
        """The index of the first event that cutting off the turn caused.

        A result between two cancelled ones is one of them: its call had finished, but one before it had not.
        """
        first = looked_at = at
        while looked_at > 0:
            looked_at -= 1
            if _is_effect(self._envelopes[looked_at]):
                first = looked_at
            elif not isinstance(self._envelopes[looked_at].event, ToolEnded):
                break
        return first

    def _is_busy_at(self, first: int) -> bool:
        """True if a call or request was open when the turn was cut off, so the model was not being waited for."""
        opened: set[str] = set()
        for item in self._envelopes[:first]:
            event = item.event
            if isinstance(event, TurnStarted) and not item.agent:
                opened.clear()
            elif isinstance(event, ToolStarted):
                opened.add(event.call_id)
            elif isinstance(event, ToolEnded):
                opened.discard(event.call_id)
            elif isinstance(event, AskEvent):
                opened.add(event.ask_id)
            elif isinstance(event, AnswerEvent):
                opened.discard(event.ask_id)
        return bool(opened)

    def _find_queue_policy(self, at: int) -> QueuePolicy:
        """What the interrupt did with queued prompts. They were paused if none of them started by itself."""
        effects = [item.event for item in self._envelopes[self._find_first_effect(at) : at]]
        if any(isinstance(event, PromptInjected) for event in effects):
            return "inject"
        if any(isinstance(event, PromptDropped) for event in effects):
            return "drop"
        queued: set[str] = set()
        for item in self._envelopes[:at]:
            if isinstance(item.event, PromptQueued):
                queued.add(item.event.id)
            elif isinstance(item.event, TurnStarted | PromptInjected | PromptDropped):
                queued.discard(item.event.id)
        for item in self._envelopes[at + 1 :]:
            if isinstance(item.event, TurnStarted) and not item.agent:
                return "keep" if not queued or item.event.id in queued else "pause"
            if isinstance(item.event, PromptChanged | PromptDropped) and item.event.id in queued:
                return "pause"
        return "pause" if queued else "keep"


def _is_partial(item: Envelope) -> bool:
    return isinstance(item.event, Replied) and item.event.message.interrupted


def find_stopping_answer(envelopes: Sequence[Envelope], at: int) -> PermissionAnswered | None:
    """The denial that ended the turn whose end is at index `at`, or None."""
    for item in reversed(envelopes[:at]):
        event = item.event
        if isinstance(event, Replied | ToolStarted | TurnStarted):
            return None
        if isinstance(event, PermissionAnswered):
            return event if not event.allowed and event.by not in ("interrupt", "shutdown") else None
    return None


def _is_effect(item: Envelope) -> bool:
    """True if the event may be a consequence of cutting off a turn."""
    event = item.event
    match event:
        case ToolEnded():
            return event.status == "cancelled"
        case PromptInjected():
            return not event.turn
        case TurnEnded():
            return bool(item.agent)
        case PromptDropped() | AgentEnded() | CallDiscarded() | FileCached() | FilesChanged() | HookRan():
            return True
        case SpawnFinished() | TodosChanged() | UsageRecorded():
            return True
        case _:
            return _is_partial(item) or (isinstance(event, AnswerEvent) and event.by in ("interrupt", "shutdown"))


_CUT_REASONS = ("interrupted", "aborted")


class ReplayScript:
    """What the recorded model says: replies by agent, answers to small-model jobs, and the turns that were cut off."""

    def __init__(self, envelopes: Iterable[Envelope]) -> None:
        self.replies: dict[str, list[RecordedReply]] = {}
        self.cut_turns: set[str] = set()
        self.jobs: dict[str, list[str]] = {}
        self._turns: dict[str, str] = {}
        self._usage: dict[str, Usage] = {}
        self._summaries = 0
        for envelope in envelopes:
            self._read_event(envelope)
        self.cut_turns.update(self._turns.values())

    def _read_event(self, envelope: Envelope) -> None:
        event, agent = envelope.event, envelope.agent
        match event:
            case TurnStarted():
                self._turns[agent] = event.id
            case UsageRecorded():
                # A long conversation is summarized in several requests, and only the last answer is in the log.
                self._summaries += event.purpose == COMPACTION_JOB.name
                if event.purpose == "main":
                    self._usage[agent] = self._usage.get(agent, Usage()) + event.usage
            case Replied():
                self._add_reply(envelope, message=event.message, is_unfinished=event.message.interrupted)
            case ReplyDiscarded():
                self._add_reply(envelope, discard_reason=event.reason)
            case RetryScheduled():
                self._add_reply(envelope, error=event.error_kind, error_text=event.error)
            case TurnEnded():
                self._end_turn(event, envelope)
            case SessionOpened():
                self.cut_turns.update(self._turns.values())
                self._turns.clear()
            case TitleSet():
                self.jobs.setdefault("title", []).append(event.title)
            case ContextSummarized():
                self.jobs.setdefault("context-summary", []).append(event.text)
            case Compacted():
                self.jobs.setdefault("compaction", []).extend([body_of(event.text)] * max(1, self._summaries))
                self._summaries = 0
            case _:
                pass

    def _add_reply(self, envelope: Envelope, **fields: Any) -> None:
        agent = envelope.agent
        usage = self._usage.pop(agent, Usage())
        reply = RecordedReply(envelope.seq, self._turns.get(agent, agent), usage=usage, **fields)
        self.replies.setdefault(agent, []).append(reply)

    def _end_turn(self, event: TurnEnded, envelope: Envelope) -> None:
        """Add the model's final failure, which the log records only as the end of the turn."""
        turn = self._turns.get(envelope.agent, event.id)
        replies = self.replies.get(envelope.agent, [])
        last = replies[-1] if replies and replies[-1].turn == turn else None
        if event.reason in _CUT_REASONS:
            self.cut_turns.add(turn)
        elif kind := _find_failure(event, last):
            if last is not None and last.is_unfinished:
                replies[-1] = msgspec.structs.replace(last, is_unfinished=False, error=kind, error_text=event.error)
            else:
                self._turns[envelope.agent] = turn
                self._add_reply(envelope, error=kind, error_text=event.error or kind)
        self._turns.pop(envelope.agent, None)


_ENDING_TOOLS = frozenset(("Complete", "Escalate", "Handoff"))
"""A call of these is the answer of its turn: the model says nothing after it."""


def _find_failure(event: TurnEnded, last: RecordedReply | None) -> str:
    message = None if last is None or last.is_unfinished else last.message
    names = {canonical_name_of(call.name) for call in message.calls} if message is not None else set[str]()
    answered = message is not None and (not names or not names.isdisjoint(_ENDING_TOOLS))
    if event.reason == "end_turn" and not answered:
        return "EmptyReply"
    if event.reason == "max_tokens" and not answered and (last is None or not last.discard_reason):
        return "EmptyTruncation"
    if event.reason == "error":
        kind = getattr(errors, event.error_kind, None)
        return event.error_kind if isinstance(kind, type) and issubclass(kind, ProviderError) else ""
    return ""
