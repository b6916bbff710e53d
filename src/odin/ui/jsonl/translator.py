"""Translates session events to the payloads of JSON lines."""

from collections.abc import Iterator

from msgspec import UNSET
from msgspec.structs import replace

from odin.core.call_events import (
    ActivityChanged,
    PermissionAnswered,
    PermissionAsked,
    PlanAnswered,
    PlanAsked,
    QuestionsAnswered,
    QuestionsAsked,
    Replied,
    ReplyDiscarded,
    ReplyRolledBack,
    TextStreamed,
    TodosChanged,
    ToolEnded,
    UsageRecorded,
)
from odin.core.event import (
    AgentEnded,
    AgentStarted,
    CompactionChanged,
    ContextAdded,
    Envelope,
    PromptInjected,
    Rewound,
    TurnEnded,
    TurnStarted,
    Warned,
)
from odin.core.event_values import Event
from odin.core.interaction import Interaction, make_interaction, read_answer
from odin.ui.agent_tracker import AgentTracker
from odin.ui.exit import describe_ending
from odin.ui.jsonl import payloads
from odin.ui.line_server import get_outcome
from odin.ui.progress import EventLines


def present_request(request: Interaction) -> payloads.RequestPayload:
    """Return the line that asks for an answer.

    A plan cannot be carried out in a new session here, because the program keeps its session.
    """
    if request.kind == "permission":
        return payloads.ConfirmRequestPayload(agent=request.agent, id=request.id, request=request)
    if request.kind == "plan":
        kept = tuple(one for one in request.choices if not one.key.startswith("approve_new_session"))
        request = replace(request, choices=kept)
        return payloads.HandoffRequestPayload(agent=request.agent, id=request.id, request=request)
    return payloads.QuestionRequestPayload(agent=request.agent, id=request.id, request=request)


class EventTranslator:
    def __init__(self) -> None:
        self._agents = AgentTracker()
        self._lines = EventLines()

    def translate(self, envelope: Envelope) -> Iterator[payloads.Payload]:
        event = envelope.event
        seq = envelope.seq if event.durable else UNSET
        for payload in self._translate(envelope):
            yield replace(payload, session=envelope.session, agent=payload.agent or envelope.agent, seq=seq)

    def _translate(self, envelope: Envelope) -> Iterator[payloads.Payload]:
        event = envelope.event
        match event:
            case ActivityChanged():
                yield payloads.ActivityPayload(activity=event.activity, detail=event.detail)
            case TextStreamed():
                yield payloads.TextDeltaPayload(text=event.text)
            case Replied(message=message):
                yield payloads.AssistantMessagePayload(
                    text=message.text,
                    thinking=message.thinking,
                    calls=message.calls,
                    model=message.model,
                    stop=message.stop,
                    interrupted=message.interrupted,
                )
            case ReplyRolledBack() | ReplyDiscarded():
                yield payloads.AssistantRollbackPayload(reason=event.reason)
            case Rewound(chat=True):
                yield payloads.AssistantRollbackPayload(reason="rewound", turn=event.turn)
            case TurnStarted(continues=False) | PromptInjected():
                turn = event.turn if isinstance(event, PromptInjected) else ""
                yield payloads.UserMessagePayload(
                    id=event.id, text=event.body, mode=event.mode, source=event.source, turn=turn
                )
            case TurnEnded():
                yield from _end_turn(event)
            case TodosChanged():
                yield payloads.TodosPayload(todos=event.todos)
            case UsageRecorded(purpose="main"):
                yield payloads.ContextUsagePayload(
                    model=event.model,
                    used=event.usage.total,
                    limit=event.context_window,
                    usage=event.usage,
                    cost_usd=event.cost_usd,
                )
            case PermissionAsked() | QuestionsAsked() | PlanAsked():
                yield present_request(make_interaction(event, envelope.agent))
            case PermissionAnswered() | QuestionsAnswered() | PlanAnswered():
                answer = read_answer(event)
                yield payloads.RequestAnsweredPayload(
                    id=answer.id, choice=answer.choice, text=answer.text, by=answer.by
                )
            case ContextAdded(id=shell) if shell:
                yield payloads.LocalShellResultPayload(shell=shell, command=event.command, output=event.content)
            case CompactionChanged():
                detail = f": {event.detail}" if event.detail else "."
                yield payloads.InfoPayload(text=f"Compaction {event.status}{detail}")
            case Warned(level=level):
                yield (
                    payloads.InfoPayload(text=event.text)
                    if level == "info"
                    else payloads.ToastPayload(text=event.text, level=level)
                )
            case _:
                yield from self._report_agent(event)
        if isinstance(event, ToolEnded):
            yield payloads.ToolResultPayload(
                call_id=event.call_id,
                tool=event.name,
                status=event.status,
                text=event.text,
                display=event.display,
                files=event.files,
                duration_ms=event.duration_ms,
                error_kind=event.error_kind,
            )
        if not isinstance(event, Warned) and (line := self._lines.format_line(replace(envelope, agent=""))):
            yield payloads.InfoPayload(text=line)

    def _report_agent(self, event: Event) -> Iterator[payloads.Payload]:
        report = self._agents.record(event)
        agent = event.id if isinstance(event, AgentStarted | AgentEnded) else report.sender if report else ""
        task_id, call_id = self._agents.get_task(agent), self._agents.get_call(agent)
        if isinstance(event, AgentStarted):
            yield payloads.AgentStartedPayload(
                agent=agent,
                task_id=task_id,
                call_id=call_id,
                description=event.description or event.task,
                agent_type=event.agent_type or "general",
                owner=event.owner,
            )
        elif isinstance(event, AgentEnded):
            status, state = self._agents.get_end(event)
            yield payloads.AgentDonePayload(
                agent=agent, task_id=task_id, call_id=call_id, status=status, state=state, summary=event.text
            )
        elif report is not None:
            yield payloads.AgentNotifyPayload(
                agent=agent,
                task_id=task_id,
                call_id=call_id,
                kind=report.kind,
                priority=report.priority,
                text=report.text,
                recipient=report.recipient,
                needs_reply=report.needs_reply,
            )


def _end_turn(event: TurnEnded) -> Iterator[payloads.Payload]:
    outcome = get_outcome(event)
    yield payloads.DoneCompletionPayload(
        turn=event.id,
        outcome=outcome,
        reason=event.reason,
        text=event.text,
        steps=event.steps,
        usage=event.usage,
        cost_usd=event.cost_usd,
        duration_ms=event.duration_ms,
        verification=event.verification,
        structured_output=event.structured_output,
        all_denied=event.all_denied,
        plan_path=event.plan_path,
    )
    if outcome == "error":
        kind = event.error_kind or event.reason
        yield payloads.ErrorPayload(message=describe_ending(event), kind=kind, turn=event.id)
