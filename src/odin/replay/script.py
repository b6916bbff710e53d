"""Reads a log into a script: what the user did and answered, and what the model said.

An action waits until the replay has reached the same point: the end of the turns before it or, within a turn, the last
event before it. The recorded model is silent where its turn was cut off, so that an interrupt finds the replay waiting
at that point.
"""

from collections import defaultdict, deque
from collections.abc import Container, Sequence
from typing import Any, Literal

import msgspec

from odin.compaction.summary import extract_body
from odin.core import op as ops
from odin.core.call_events import (
    AnswerEvent,
    AskEvent,
    PermissionAnswered,
    PermissionAsked,
    PlanAnswered,
    PlanAsked,
    QuestionsAnswered,
    QuestionsAsked,
    Replied,
    ReplyDiscarded,
    RetryScheduled,
    RuleAdded,
    RuleRemoved,
    ToolEnded,
    ToolStarted,
    UsageRecorded,
)
from odin.core.event import (
    AgentStarted,
    Compacted,
    ContextAdded,
    ContextSummarized,
    EffortChanged,
    Envelope,
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
    RootAdded,
    RootRemoved,
    SessionOpened,
    SystemPromptChanged,
    TitleSet,
    ToolsChanged,
    TurnEnded,
    TurnStarted,
)
from odin.core.interaction import make_interaction, read_answer
from odin.core.message import Usage
from odin.core.team import TaskCreated
from odin.core.timeline import Timeline, follow_turns, get_source
from odin.providers.playback import RecordedReply

EventKey = tuple[str, ...]
"""Identifies an event by what is the same in a replay."""

_LONGEST_WAIT_S = 3.0
"""An interrupted command gets as long as in the recording, but not longer than this."""

_OPS: dict[type, type[ops.Op]] = {
    ContextAdded: ops.AddContext,
    MessageRemoved: ops.RemoveLastMessage,
    PromptQueued: ops.Prompt,
    PromptChanged: ops.ChangePrompt,
    PromptDropped: ops.DropPrompt,
    Rewound: ops.Rewind,
    Redone: ops.Redo,
    PermissionModeChanged: ops.SetPermissionMode,
    RoleChanged: ops.SetRole,
    RootRemoved: ops.RemoveRoot,
    EffortChanged: ops.SetEffort,
    SystemPromptChanged: ops.SetSystemPrompt,
    ToolsChanged: ops.SetTools,
    ModeChanged: ops.SetMode,
}
"""The op that caused an event and has its fields. A setting that the replay has changed by itself changes nothing."""


class UserAction(msgspec.Struct, frozen=True):
    """`op` is performed when `ended_turns` turns have ended and `after` has happened.

    `silent_turn` additionally waits until the model has nothing more to say in that turn. "open" and "close" are the
    start and end of the session, "kill" an end that it could not record.
    """

    seq: int
    op: ops.Op | RuleRemoved | Literal["open", "close", "kill"]
    ended_turns: int
    after: EventKey = ()
    silent_turn: str = ""
    delay: float = 0.0


def _copy_fields(kind: type[Any], event: msgspec.Struct, **changes: Any) -> Any:
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


class ReplayScript:
    """`actions` of the user, `replies` of the model by agent and turn, and its answers to `jobs`.

    `cut_turns` were cut off by the user or the end of the program; `ended_turns` counts those that ended while the
    session ran.
    """

    def __init__(self, envelopes: Sequence[Envelope]) -> None:
        self.actions: list[UserAction] = []
        self.replies: dict[tuple[str, str], list[RecordedReply]] = {}
        self.jobs: dict[str, list[str]] = {}
        self.cut_turns: set[str] = set()
        self.ended_turns = 0
        self._envelopes = envelopes
        self._answers: dict[tuple[type, str], deque[AnswerEvent]] = {}
        self._allowed_calls: set[str] = set()
        self._stopping_asks: set[str] = set()
        # The turns of each agent, and what it has used since its last reply.
        self._timelines: defaultdict[str, Timeline[None]] = defaultdict(follow_turns)
        self._usage: dict[str, Usage] = {}
        self._queued: set[str] = set()
        # Where the running turn is: the last event to wait for and its time, the open calls, the denial that may end
        # it, when it was cut off, and whether that injected prompts.
        self._anchors: list[tuple[int, EventKey]] = []
        self._anchor: tuple[float, EventKey] = (0.0, ())
        self._open: set[str] = set()
        self._denial: PermissionAnswered | None = None
        self._cut_at = 0.0
        self._injected = False
        self._remembered = {
            (item.event.rule, "allow" if item.event.allowed else "deny")
            for item in envelopes
            if isinstance(item.event, PermissionAnswered) and item.event.remember
        }
        reply_counts: dict[str, int] = {}
        for at, item in enumerate(envelopes):
            if not item.agent:
                self._read_user(at, item)
            self._read_model(item)
            self._follow(item, make_event_key(item, reply_counts))
            # The end of a run ends the turns of all agents.
            for agent in list(self._timelines) if isinstance(item.event, SessionOpened) else (item.agent,):
                self._timelines[agent].apply(item)
        if running := self._get_turn(""):
            self._add_stop("kill", running, envelopes[-1].seq + 1, envelopes[-1].ts)
        self.cut_turns.update(self._list_running())
        # Only a team works at once, so only its events have an order of their own.
        if not any(isinstance(item.event, TaskCreated) for item in envelopes):
            self._anchors.clear()
        self._anchors.reverse()

    def has_reached(self, seq: int, happened: Container[EventKey]) -> bool:
        """True if everything that agents working at once did before event `seq` has happened again."""
        while self._anchors and self._anchors[-1][1] in happened:
            self._anchors.pop()
        return not self._anchors or self._anchors[-1][0] >= seq

    def _read_user(self, at: int, item: Envelope) -> None:
        event = item.event
        match event:
            case SessionOpened():
                if running := self._get_turn(""):
                    self._add_stop("kill", running, item.seq, self._envelopes[at - 1].ts)
                if event.resumed or at:
                    self._add(item, "open")
            case TurnStarted() if event.continues:
                self._add(item, ops.Continue(event.id, event.mode))
            case TurnStarted() if event.id not in self._queued and get_source(event) != "mail":
                self._add(item, _copy_fields(ops.Prompt, event, display_text=event.body))
            case TurnEnded() if event.id == self._get_turn(""):  # the next resume records the end of a killed turn
                if event.reason == "interrupted" and self._denial is not None:
                    self._stopping_asks.add(self._denial.ask_id)
                elif event.reason == "interrupted":
                    self._add_stop(ops.Interrupt(self._find_queue_policy(at)), event.id, item.seq, item.ts)
                elif event.reason == "aborted":
                    self._add_stop("close", event.id, item.seq, item.ts)
                self.ended_turns += 1
            case PromptQueued() | PromptChanged():
                self._queued.add(event.id)
                self._add(item, _copy_fields(_OPS[type(event)], event, display_text=event.body))
            case RuleAdded() if (event.text, event.action) not in self._remembered:
                self._add(item, ops.AddRule(event.text, event.action, "session"))
            case RuleRemoved():
                self._add(item, event)
            case RootAdded():
                self._add(item, ops.AddRoot(f"{event.root.path}{'' if event.root.is_writable else ':ro'}"))
            case Compacted() if event.trigger == "manual":
                self._add(item, ops.Compact(profile=event.profile))
            case _ if type(event) in _OPS:
                self._add(item, _copy_fields(_OPS[type(event)], event))
            case _:
                pass

    def _add(self, item: Envelope, op: ops.Op | RuleRemoved | Literal["open"]) -> None:
        after = self._anchor[1] if self._get_turn("") else ()
        self.actions.append(UserAction(item.seq, op, self.ended_turns, after))

    def _get_turn(self, agent: str) -> str:
        """Return the turn that the agent was running before this event, or ""."""
        running = self._timelines[agent].running
        return running.id if running is not None else ""

    def _list_running(self) -> list[str]:
        return [timeline.running.id for timeline in self._timelines.values() if timeline.running is not None]

    def _add_stop(self, op: ops.Interrupt | Literal["close", "kill"], turn: str, seq: int, ts: float) -> None:
        """Add the action that cut off the running turn: during a call, or while the model was waited for."""
        then, after = self._anchor
        delay = min(max((self._cut_at or ts) - then, 0.0), _LONGEST_WAIT_S) if self._open else 0.0
        silent_turn = "" if self._open else turn
        self.actions.append(UserAction(seq, op, self.ended_turns, after, silent_turn, delay))

    def _find_queue_policy(self, at: int) -> ops.QueuePolicy:
        """What the interrupt did with queued prompts. Dropped ones are dropped by actions of their own."""
        if self._injected:
            return "inject"
        later = (item.event for item in self._envelopes[at + 1 :] if not item.agent)
        then = next((event for event in later if isinstance(event, TurnStarted | PromptChanged | PromptDropped)), None)
        return "keep" if isinstance(then, TurnStarted) and then.id in self._queued else "pause"

    def _follow(self, item: Envelope, key: EventKey) -> None:
        """Note where the running turn is. What happens after it was cut off is no point to wait for."""
        event = item.event
        is_partial = isinstance(event, Replied) and event.message.interrupted
        if key and not is_partial:
            self._anchors.append((item.seq, key))
        is_cancelled = isinstance(event, ToolEnded) and event.status == "cancelled"
        if is_partial or is_cancelled or (isinstance(event, AnswerEvent) and event.by in ("interrupt", "shutdown")):
            self._cut_at = self._cut_at or item.ts
        elif key and (not self._cut_at or not isinstance(event, ToolEnded)):
            if self._cut_at:  # only some of its calls were cancelled
                self._open.clear()
            self._anchor = (item.ts, key)
            self._cut_at = 0.0
        if isinstance(event, TurnStarted) and not item.agent:
            self._open.clear()
            self._injected = False
        if isinstance(event, ToolStarted | AskEvent):
            self._open.add(event.call_id)
        elif isinstance(event, ToolEnded) and not self._cut_at:
            self._open.discard(event.call_id)
        if isinstance(event, PermissionAnswered):
            is_denial = not event.allowed and event.by not in ("interrupt", "shutdown")
            self._denial = event if is_denial else None
        elif isinstance(event, Replied | ToolStarted | TurnStarted):
            self._denial = None

    def _read_model(self, item: Envelope) -> None:
        event, agent = item.event, item.agent
        match event:
            case TurnEnded():
                self._end_turn(event, item)
            case SessionOpened():
                self.cut_turns.update(self._list_running())
            case UsageRecorded() if event.purpose == "main":
                self._usage[agent] = self._usage.get(agent, Usage()) + event.usage
            case Replied():
                self._add_reply(item, message=event.message, is_unfinished=event.message.interrupted)
            case ReplyDiscarded():
                self._add_reply(item, discard_reason=event.reason)
            case RetryScheduled():
                self._add_reply(item, error=event.error_kind, error_text=event.error)
            case TitleSet():
                self.jobs.setdefault("title", []).append(event.title)
            case ContextSummarized():
                self.jobs.setdefault("context-summary", []).append(event.text)
            case Compacted():
                self.jobs.setdefault("compaction", []).append(extract_body(event.text))
            case PromptInjected() if not event.turn:
                self._injected = True
            case ToolStarted():
                self._allowed_calls.add(event.call_id)
            case ToolEnded() if event.status != "denied":
                self._allowed_calls.add(event.call_id)
            case PermissionAnswered() | QuestionsAnswered() | PlanAnswered():
                self._answers.setdefault((type(event), event.call_id), deque()).append(event)
            case _:
                pass

    def _add_reply(self, item: Envelope, **fields: Any) -> None:
        turn = self._get_turn(item.agent) or item.agent
        reply = RecordedReply(item.seq, usage=self._usage.pop(item.agent, Usage()), **fields)
        self.replies.setdefault((item.agent, turn), []).append(reply)

    def _end_turn(self, event: TurnEnded, item: Envelope) -> None:
        """Add the model's final failure, which the log records only as the end of the turn."""
        turn = self._get_turn(item.agent) or event.id
        replies = self.replies.get((item.agent, turn), [])
        last = replies[-1] if replies else None
        if event.reason in ("interrupted", "aborted"):
            self.cut_turns.add(turn)
        elif error := event.error_kind or (last.error if last is not None else ""):
            if last is not None and last.is_unfinished:
                replies[-1] = msgspec.structs.replace(last, is_unfinished=False, error=error, error_text=event.error)
            else:
                self._add_reply(item, error=error, error_text=event.error or error)

    def find_answer(self, asked: AskEvent) -> ops.Answer | None:
        """Return the recorded answer, or None if the request stayed open until the turn was interrupted.

        A call that needed no approval in the recording, because of a rule or a flag, is allowed.
        """
        kinds = {PermissionAsked: PermissionAnswered, QuestionsAsked: QuestionsAnswered, PlanAsked: PlanAnswered}
        recorded = self._answers.get((kinds[type(asked)], asked.call_id))
        answered = recorded.popleft() if recorded else None
        if answered is not None and answered.by in ("interrupt", "shutdown"):
            return None
        interaction = make_interaction(asked)
        leaves_sandbox = interaction.may_answer == "user"
        if answered is not None:
            answer = read_answer(answered)
            choice = "deny" if leaves_sandbox else answer.choice
            scope, stops = "session" if answer.scope else None, answered.ask_id in self._stopping_asks
            return msgspec.structs.replace(answer, id=asked.ask_id, choice=choice, scope=scope, interrupt=stops)
        if interaction.kind != "permission":
            return ops.Answer(asked.ask_id, interaction.default, by="replay")
        reason = "" if asked.call_id in self._allowed_calls else "The recording has no answer for this call."
        if leaves_sandbox:
            reason = "A replay runs no command outside the sandbox."
        return ops.Answer(asked.ask_id, "deny" if reason else "allow_once", reason, by="replay")
