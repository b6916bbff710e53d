"""Reads two things from a recording: the user's actions and what the model said.

An action waits until the replay has reached the same point: the end of the turns before it or, within a turn, the last
event before it. The recorded model is silent where its turn was cut off, so that an interrupt finds the replay waiting
at exactly that point.
"""

from bisect import bisect_left
from collections.abc import Container, Iterable, Sequence
from typing import Literal

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
    AnyEvent,
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


def key_of(envelope: Envelope, reply_counts: dict[str, int]) -> EventKey:
    """The key of an event that actions can wait for; empty for others. `reply_counts` counts replies per agent."""
    event, agent = envelope.event, envelope.agent
    if isinstance(event, TurnStarted):
        return ("turn", agent, event.id)
    if isinstance(event, Replied):
        reply_counts[agent] = reply_counts.get(agent, 0) + 1
        return ("reply", agent, str(reply_counts[agent]))
    if isinstance(event, ToolStarted):
        return ("start", event.call_id)
    if isinstance(event, ToolEnded):
        return ("end", event.call_id)
    if isinstance(event, AskEvent):
        return ("ask", event.call_id)
    if isinstance(event, AgentStarted):
        return ("agent", event.id)
    return ()


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
    keys = ((item, key_of(item, reply_counts)) for item in envelopes)
    return [(item.seq, item.ts, key) for item, key in keys if key and not _is_partial(item)]


def actions_of(envelopes: Sequence[Envelope]) -> list[UserAction]:
    return _ActionReader(envelopes).read_all()


def _setting_op_of(event: AnyEvent) -> Op | None:
    """Return the op that changed a setting of the session. One that the replay has changed by itself does nothing."""
    match event:
        case PermissionModeChanged(mode=permission_mode):
            return SetPermissionMode(permission_mode)
        case RoleChanged(role=role):
            return SetRole(role)
        case EffortChanged(effort=effort):
            return SetEffort(effort)
        case SystemPromptChanged(text=text):
            return SetSystemPrompt(text)
        case ToolsChanged(tools=tools):
            return SetTools(tools)
        case ModeChanged(mode=mode):
            return SetMode(mode)
        case _:
            return None


class _ActionReader:
    def __init__(self, envelopes: Sequence[Envelope]) -> None:
        self._envelopes = envelopes
        self._actions: list[UserAction] = []
        self._ended = 0
        self._running = ""
        self._queued: set[str] = set()
        self._spawned: set[str] = set()
        self._effects: set[int] = set()
        self._answered = {
            (item.event.rule, "allow" if item.event.allowed else "deny")
            for item in envelopes
            if isinstance(item.event, PermissionAnswered) and item.event.remember
        }
        self._anchors = _list_anchors(envelopes)
        self._seqs = [seq for seq, _, _ in self._anchors]

    def read_all(self) -> list[UserAction]:
        for at, item in enumerate(self._envelopes):
            if isinstance(item.event, TurnEnded) and not item.agent:
                self._note_effects(at)
        for at, item in enumerate(self._envelopes):
            self._handle_event(at, item)
        if self._running:
            self._add_stop(len(self._envelopes), "kill")
        return sorted(self._actions, key=lambda act: act.seq)

    def _handle_event(self, at: int, item: Envelope) -> None:
        event = item.event
        if isinstance(event, SpawnStarted):
            self._spawned.add(f"{event.id}-ended")
        if item.agent:
            return
        if isinstance(event, SessionOpened):
            if self._running:
                self._add_stop(at, "kill")
                self._running = ""
            if event.resumed or at:
                self._add_action(item, "open")
        elif isinstance(event, TurnStarted):
            self._handle_turn_start(item, event)
        elif isinstance(event, TurnEnded):
            self._handle_turn_end(at, event)
        else:
            op = self._op_of(item)
            if op is not None:
                self._add_action(item, op)

    def _add_action(self, item: Envelope, op: Op | RuleRemoved | Literal["open"]) -> None:
        after = self._find_anchor(item.seq)[2] if self._running else ()
        self._actions.append(UserAction(item.seq, op, self._ended, after))

    def _find_anchor(self, seq: int) -> tuple[int, float, EventKey]:
        at = bisect_left(self._seqs, seq)
        return self._anchors[at - 1] if at else (0, 0.0, ())

    def _handle_turn_start(self, item: Envelope, event: TurnStarted) -> None:
        if event.continues:
            self._add_action(item, Continue(event.id, event.mode))
        elif event.id not in self._queued and event.id not in self._spawned and event.id not in event.mail:
            self._add_action(
                item,
                Prompt(
                    event.id,
                    event.text,
                    event.mode,
                    display_text=event.display_text or event.text,
                    temperature=event.temperature,
                    max_tokens=event.max_tokens,
                ),
            )
        self._running = event.id

    def _handle_turn_end(self, at: int, event: TurnEnded) -> None:
        """The end of a killed turn is recorded by the next resume; it needs no action."""
        if event.id != self._running:
            return
        if event.reason == "interrupted" and not self._is_stopped_by_answer(at):
            self._add_stop(at, Interrupt(self._leftover_of(at)))
        elif event.reason == "aborted":
            self._add_stop(at, "close")
        self._ended += 1
        self._running = ""

    def _op_of(self, item: Envelope) -> Op | RuleRemoved | None:
        event = item.event
        if isinstance(event, PromptQueued):
            self._queued.add(event.id)
            return Prompt(
                event.id,
                event.text,
                event.mode,
                delivery=event.delivery,
                display_text=event.display_text or event.text,
                temperature=event.temperature,
                max_tokens=event.max_tokens,
            )
        if isinstance(event, PromptChanged):
            return ChangePrompt(event.id, event.text, event.mode, event.delivery, event.display_text or event.text)
        if isinstance(event, PromptDropped) and item.seq not in self._effects:
            return DropPrompt(event.id)
        if isinstance(event, ContextAdded):
            return AddContext(event.content, event.path, event.command)
        if isinstance(event, MessageRemoved):
            return RemoveLastMessage()
        if isinstance(event, Rewound):
            return Rewind(event.turn, event.files, event.chat)
        if isinstance(event, Redone):
            return Redo()
        if (setting := _setting_op_of(event)) is not None:
            return setting
        if isinstance(event, RuleAdded) and (event.text, event.action) not in self._answered:
            return AddRule(event.text, event.action, "session")
        if isinstance(event, RuleRemoved):
            return event
        if isinstance(event, Compacted) and event.trigger == "manual":
            return Compact(profile=event.profile)
        return None

    def _add_stop(self, at: int, op: Interrupt | Literal["close", "kill"]) -> None:
        """Add the action that cut off the running turn, before the first event it caused."""
        first = self._find_first_effect(at)
        reached = self._envelopes[first].seq if first < len(self._envelopes) else self._envelopes[-1].seq + 1
        stopped = self._envelopes[first].ts if first < len(self._envelopes) else self._envelopes[-1].ts
        seq = self._envelopes[at].seq if at < len(self._envelopes) else reached
        _, ts, after = self._find_anchor(reached)
        if self._is_busy_at(first):
            delay = min(max(stopped - ts, 0.0), _LONGEST_WAIT_S)
            self._actions.append(UserAction(seq, op, self._ended, after, delay=delay))
        else:
            self._actions.append(UserAction(seq, op, self._ended, after, silent_turn=self._running))

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

    def _note_effects(self, at: int) -> None:
        event = self._envelopes[at].event
        if isinstance(event, TurnEnded) and event.reason in ("interrupted", "aborted"):
            self._effects.update(item.seq for item in self._envelopes[self._find_first_effect(at) : at])

    def _is_busy_at(self, first: int) -> bool:
        """True if a call or request was open when the turn was cut off, so the model was not being waited for."""
        open_calls: set[str] = set()
        asked: set[str] = set()
        for item in self._envelopes[:first]:
            event = item.event
            if isinstance(event, ToolStarted):
                open_calls.add(event.call_id)
            elif isinstance(event, ToolEnded):
                open_calls.discard(event.call_id)
            elif isinstance(event, AskEvent):
                asked.add(event.ask_id)
            elif isinstance(event, AnswerEvent):
                asked.discard(event.ask_id)
            elif isinstance(event, TurnStarted) and not item.agent:
                open_calls.clear()
                asked.clear()
        return bool(open_calls or asked)

    def _leftover_of(self, at: int) -> QueuePolicy:
        effects = [item.event for item in self._envelopes[self._find_first_effect(at) : at]]
        if any(isinstance(event, PromptInjected) for event in effects):
            return "inject"
        if any(isinstance(event, PromptDropped) for event in effects):
            return "drop"
        return "pause" if self._is_paused_after(at) else "keep"

    def _is_paused_after(self, at: int) -> bool:
        """True if prompts were queued when the turn ended and none of them started by itself."""
        queued: set[str] = set()
        for item in self._envelopes[:at]:
            if isinstance(item.event, PromptQueued):
                queued.add(item.event.id)
            elif isinstance(item.event, TurnStarted | PromptInjected | PromptDropped):
                queued.discard(item.event.id)
        for item in self._envelopes[at + 1 :]:
            if isinstance(item.event, TurnStarted) and not item.agent:
                return bool(queued) and item.event.id not in queued
            if isinstance(item.event, PromptChanged | PromptDropped) and item.event.id in queued:
                return True
        return bool(queued)

    def _is_stopped_by_answer(self, at: int) -> bool:
        return find_stopping_answer(self._envelopes, at) is not None


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


_EFFECT_TYPES = (
    AgentEnded,
    CallDiscarded,
    FileCached,
    FilesChanged,
    HookRan,
    SpawnFinished,
    TodosChanged,
    UsageRecorded,
)


def _is_effect(item: Envelope) -> bool:
    """True if the event may be a consequence of cutting off a turn."""
    event = item.event
    if isinstance(event, ToolEnded):
        return event.status == "cancelled"
    if isinstance(event, Replied):
        return event.message.interrupted
    if isinstance(event, AnswerEvent):
        return event.by in ("interrupt", "shutdown")
    if isinstance(event, PromptInjected):
        return not event.turn
    if isinstance(event, PromptDropped):
        return True
    return isinstance(event, _EFFECT_TYPES) or (isinstance(event, TurnEnded) and bool(item.agent))


_CUT_REASONS = ("interrupted", "aborted")


class ReplayScript(msgspec.Struct):
    """What the recorded model says: replies by agent, answers to small-model jobs, and the turns that were cut off."""

    replies: dict[str, list[RecordedReply]] = msgspec.field(default_factory=dict[str, list[RecordedReply]])
    cut_turns: set[str] = msgspec.field(default_factory=set[str])
    jobs: dict[str, list[str]] = msgspec.field(default_factory=dict[str, list[str]])


def script_of(envelopes: Iterable[Envelope]) -> ReplayScript:
    return _ScriptReader().read(envelopes)


class _ScriptReader:
    def __init__(self) -> None:
        self._script = ReplayScript()
        self._turns: dict[str, str] = {}
        self._usage: dict[str, Usage] = {}
        self._summaries = 0

    def read(self, envelopes: Iterable[Envelope]) -> ReplayScript:
        for envelope in envelopes:
            self._handle_event(envelope)
        self._script.cut_turns.update(self._turns.values())
        return self._script

    def _handle_event(self, envelope: Envelope) -> None:
        event, agent = envelope.event, envelope.agent
        if isinstance(event, TurnStarted):
            self._turns[agent] = event.id
        elif isinstance(event, UsageRecorded):
            self._add_usage(event, agent)
        elif isinstance(event, Replied):
            self._add_reply(
                envelope, RecordedReply(0, "", message=event.message, is_unfinished=event.message.interrupted)
            )
        elif isinstance(event, ReplyDiscarded):
            self._add_reply(envelope, RecordedReply(0, "", discard_reason=event.reason))
        elif isinstance(event, RetryScheduled):
            self._add_reply(envelope, RecordedReply(0, "", error=event.error_kind, error_text=event.error))
        elif isinstance(event, TurnEnded):
            self._end_turn(event, envelope)
        elif isinstance(event, SessionOpened):
            self._script.cut_turns.update(self._turns.values())
            self._turns.clear()
        else:
            self._handle_job(envelope)

    def _handle_job(self, envelope: Envelope) -> None:
        event = envelope.event
        if isinstance(event, TitleSet):
            self._script.jobs.setdefault("title", []).append(event.title)
        elif isinstance(event, ContextSummarized):
            self._script.jobs.setdefault("context-summary", []).append(event.text)
        elif isinstance(event, Compacted):
            asked, self._summaries = max(1, self._summaries), 0
            self._script.jobs.setdefault("compaction", []).extend([body_of(event.text)] * asked)

    def _add_usage(self, event: UsageRecorded, agent: str) -> None:
        """Count summary requests: a long conversation is summarized in several, and only the last is in the log."""
        if event.purpose == "main":
            self._usage[agent] = self._usage.get(agent, Usage()) + event.usage
        elif event.purpose == COMPACTION_JOB.name:
            self._summaries += 1

    def _add_reply(self, envelope: Envelope, reply: RecordedReply) -> None:
        agent = envelope.agent
        usage = self._usage.pop(agent, Usage())
        reply = msgspec.structs.replace(reply, seq=envelope.seq, turn=self._turns.get(agent, agent), usage=usage)
        self._script.replies.setdefault(agent, []).append(reply)

    def _end_turn(self, event: TurnEnded, envelope: Envelope) -> None:
        """Add the model's final failure, which the log records only as the end of the turn."""
        turn = self._turns.pop(envelope.agent, event.id)
        if event.reason in _CUT_REASONS:
            self._script.cut_turns.add(turn)
            return
        replies = self._script.replies.setdefault(envelope.agent, [])
        last = replies[-1] if replies and replies[-1].turn == turn else None
        kind = _failure_of(event, last)
        if not kind:
            return
        if last is not None and last.is_unfinished:
            replies[-1] = msgspec.structs.replace(last, is_unfinished=False, error=kind, error_text=event.error)
        else:
            usage = self._usage.pop(envelope.agent, Usage())
            replies.append(RecordedReply(envelope.seq, turn, usage=usage, error=kind, error_text=event.error or kind))


_ENDING_TOOLS = frozenset(("Complete", "Escalate", "Handoff"))
"""A call of these is the answer of its turn: the model says nothing after it."""


def _failure_of(event: TurnEnded, last: RecordedReply | None) -> str:
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
