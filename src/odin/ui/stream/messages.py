"""Events of a session as the messages that SDK and headless users of coding agents read today.

The shapes are those of the public stream-json protocol, so that existing clients work. What Odin adds (`mode`,
`exit_reason`, `error_kind`, …) are extra fields, which such clients ignore.
"""

import os
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import to_builtins

from odin.core.client import SessionInfo
from odin.core.event import (
    AgentStarted,
    CallStreamed,
    Compacted,
    Envelope,
    Event,
    ExitReason,
    HookRan,
    Mode,
    ModelChanged,
    PermissionModeChanged,
    Replied,
    ReplyDiscarded,
    ReplyRolledBack,
    RetryScheduled,
    TextStreamed,
    ThinkingStreamed,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    UsageRecorded,
    Warned,
)
from odin.core.message import ToolCall, Usage
from odin.ui.ending import describe_ending
from odin.ui.stream.partial import PartialReply, make_message_id, to_content_blocks, to_usage_fields

Raw = dict[str, Any]

_SUBTYPES: dict[ExitReason, str] = {
    "end_turn": "success",
    "max_turns": "error_max_turns",
    "error_max_budget_usd": "error_max_budget_usd",
}
"""Every other ending is error_during_execution."""

_TERMINAL_REASONS: dict[ExitReason, str] = {
    "end_turn": "completed",
    "interrupted": "aborted_streaming",
    "aborted": "aborted_streaming",
    "error_max_budget_usd": "max_budget",
    "error": "api_error",
}

_RETRY_CAUSES = {"RateLimited": "rate_limit", "AllKeysCooling": "rate_limit", "Overloaded": "server_error"}


def make_uuid() -> str:
    """A random identifier in the form of a version 4 UUID, without the cost of importing one."""
    digits = os.urandom(16).hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


class _ModelUsage:
    """What one model was used for in a turn."""

    def __init__(self) -> None:
        self.usage = Usage()
        self.cost_usd = 0.0
        self.context = 0

    def to_fields(self) -> Raw:
        return {
            "inputTokens": self.usage.input,
            "outputTokens": self.usage.output + self.usage.reasoning,
            "cacheReadInputTokens": self.usage.cache_read,
            "cacheCreationInputTokens": self.usage.cache_write,
            "webSearchRequests": 0,
            "costUSD": self.cost_usd,
            "contextWindow": self.context,
            "maxOutputTokens": 0,
        }


class _TurnTotals:
    """What has to be remembered of the running turn until its result is told."""

    def __init__(self) -> None:
        self.calls: dict[str, ToolCall] = {}
        self.denials: list[Raw] = []
        self.models: dict[str, _ModelUsage] = {}
        self.ended_in_tool = False
        self.stop: str | None = None


class StreamTranslator:
    """Turns the envelopes of one session into messages, in order.

    `partial` adds stream events for the main agent's replies; messages of a sub-agent name the call that started it in
    `parent_tool_use_id`.
    """

    def __init__(self, info: SessionInfo, *, partial: bool = False) -> None:
        self._info = info
        self._partial = partial
        self._model = info.model
        self._permission_mode = info.permission_mode
        self._turn = _TurnTotals()
        self._reply: PartialReply | None = None
        self._usage = Usage()
        self._last_call = ""
        self._parents: dict[str, str] = {}
        self._routes: dict[type[Event], Callable[[Any, str], Iterator[Raw]]] = {
            TurnStarted: self._on_turn_started,
            TurnEnded: self._on_turn_ended,
            Replied: self._on_replied,
            UsageRecorded: self._on_usage_recorded,
            TextStreamed: self._on_text_streamed,
            ThinkingStreamed: self._on_thinking_streamed,
            CallStreamed: self._on_call_streamed,
            ReplyRolledBack: self._on_rolled_back,
            ReplyDiscarded: self._on_rolled_back,
            RetryScheduled: self._on_retry_scheduled,
            ToolStarted: self._on_tool_started,
            ToolProgressed: self._on_tool_progressed,
            ToolEnded: self._on_tool_ended,
            AgentStarted: self._on_agent_started,
            ModelChanged: self._on_model_changed,
            PermissionModeChanged: self._on_permission_mode_changed,
            Warned: self._on_warned,
            Compacted: self._on_compacted,
            HookRan: self._on_hook_ran,
        }

    def translate(self, envelope: Envelope) -> Iterator[Raw]:
        """The messages this event gives rise to, often none. It must be read to its end."""
        route = self._routes.get(type(envelope.event))
        if route is not None:
            yield from route(envelope.event, envelope.agent)

    def make_init(self, mode: Mode) -> Raw:
        info = self._info
        return self._make_message(
            "system",
            subtype="init",
            cwd=info.cwd,
            model=self._model,
            tools=list(info.tools),
            permissionMode=self._permission_mode,
            mode=mode,
            sandbox=info.sandbox,
            mcp_servers=[],
            slash_commands=[],
            agents=[],
            skills=[],
            plugins=[],
            apiKeySource="none",
            output_style="default",
            claude_code_version=info.version,
            odin_version=info.version,
            notice=info.notice,
            warnings=list(info.warnings),
        )

    def make_note(self, subtype: str, **fields: Any) -> Raw:
        """A system message of our own."""
        return self._make_message("system", subtype=subtype, **fields)

    def make_failure(self, text: str, kind: str, prompt_id: str) -> Raw:
        """The result of a prompt that was refused before it became a turn."""
        return next(self._on_turn_ended(TurnEnded(prompt_id, "error", error=text, error_kind=kind), ""))

    @property
    def _model_id(self) -> str:
        """The name the API knows the model by: the reference without its provider."""
        return self._model.partition("/")[2] or self._model

    def _make_message(self, type: str, **fields: Any) -> Raw:
        return {"type": type, **fields, "session_id": self._info.session, "uuid": make_uuid()}

    # --- the turn ---

    def _on_turn_started(self, event: TurnStarted, agent: str) -> Iterator[Raw]:
        if agent:
            return
        self._turn = _TurnTotals()
        self._reply = None
        self._usage = Usage()
        yield self.make_init(event.mode)

    def _on_turn_ended(self, event: TurnEnded, agent: str) -> Iterator[Raw]:
        if agent:
            return
        turn, reason = self._turn, event.reason
        terminal = _TERMINAL_REASONS.get(reason, reason)
        if terminal == "aborted_streaming" and turn.ended_in_tool:
            terminal = "aborted_tools"
        said = describe_ending(event)
        yield self._make_message(
            "result",
            subtype=_SUBTYPES.get(reason, "error_during_execution"),
            is_error=reason != "end_turn",
            result=event.text,
            num_turns=event.steps,
            duration_ms=event.duration_ms,
            duration_api_ms=event.api_ms,
            total_cost_usd=sum(spent.cost_usd for spent in turn.models.values()),
            usage=to_usage_fields(sum((spent.usage for spent in turn.models.values()), Usage())),
            modelUsage={name: spent.to_fields() for name, spent in turn.models.items()},
            permission_denials=turn.denials,
            stop_reason=turn.stop,
            terminal_reason=terminal,
            exit_reason=reason,
            errors=[said] if said else [],
            error_kind=event.error_kind,
            turn_id=event.id,
        )
        self._turn = _TurnTotals()

    # --- one reply ---

    def _on_replied(self, event: Replied, agent: str) -> Iterator[Raw]:
        message = event.message
        model = message.model or self._model_id
        reply = None if agent else self._reply
        if self._partial and not agent:
            reply = reply or PartialReply(model)
            if not reply.has_started:
                yield from self._stream(reply.add_whole(message))
            yield from self._stream(reply.finish(message.stop, self._usage))
        if not agent:
            self._turn.calls.update((call.id, call) for call in message.calls)
            self._turn.stop = message.stop
            self._reply = None
        yield self._make_message(
            "assistant",
            message={
                "id": reply.id if reply else make_message_id(),
                "type": "message",
                "role": "assistant",
                "model": model,
                "content": to_content_blocks(message),
                "stop_reason": message.stop,
                "stop_sequence": None,
                "usage": to_usage_fields(self._usage),
            },
            parent_tool_use_id=self._parents.get(agent),
        )

    def _on_usage_recorded(self, event: UsageRecorded, agent: str) -> Iterator[Raw]:
        spent = self._turn.models.setdefault(event.model, _ModelUsage())
        spent.usage += event.usage
        spent.cost_usd += event.cost_usd
        spent.context = event.context_window
        if not agent and event.purpose == "planner":
            self._usage = event.usage
        return iter(())

    def _on_text_streamed(self, event: TextStreamed, agent: str) -> Iterator[Raw]:
        return self._stream(self._open_reply().add_text(event.text)) if self._should_stream(agent) else iter(())

    def _on_thinking_streamed(self, event: ThinkingStreamed, agent: str) -> Iterator[Raw]:
        return self._stream(self._open_reply().add_thinking(event.text)) if self._should_stream(agent) else iter(())

    def _on_call_streamed(self, event: CallStreamed, agent: str) -> Iterator[Raw]:
        return self._stream(self._open_reply().add_call(event)) if self._should_stream(agent) else iter(())

    def _on_rolled_back(self, event: ReplyRolledBack | ReplyDiscarded, agent: str) -> Iterator[Raw]:
        """A reply that was being streamed will not be finished. The next one starts with its own message_start."""
        if not agent and self._reply is not None:
            self._reply = None
            yield self.make_note("reply_discarded", reason=event.reason)

    def _should_stream(self, agent: str) -> bool:
        return self._partial and not agent

    def _open_reply(self) -> PartialReply:
        if self._reply is None:
            self._reply = PartialReply(self._model_id)
        return self._reply

    def _stream(self, events: Iterator[Raw]) -> Iterator[Raw]:
        for event in events:
            yield self._make_message("stream_event", event=event, parent_tool_use_id=None)

    # --- tools ---

    def _make_progress(self, name: str, call_id: str, agent: str, seconds: float, **more: Any) -> Raw:
        return self._make_message(
            "tool_progress",
            tool_name=name,
            tool_use_id=call_id,
            parent_tool_use_id=self._parents.get(agent),
            elapsed_time_seconds=seconds,
            **more,
        )

    def _on_agent_started(self, event: AgentStarted, agent: str) -> Iterator[Raw]:
        """A sub-agent works for the call that runs; such calls run one at a time."""
        self._parents[event.id] = self._last_call or event.id
        return iter(())

    def _on_tool_started(self, event: ToolStarted, agent: str) -> Iterator[Raw]:
        if not agent:
            self._last_call = event.call_id
        yield self._make_progress(
            event.name, event.call_id, agent, 0.0, status="started", description=event.description
        )

    def _on_tool_progressed(self, event: ToolProgressed, agent: str) -> Iterator[Raw]:
        yield self._make_progress(event.name, event.call_id, agent, event.elapsed_s, status="running", text=event.text)

    def _on_tool_ended(self, event: ToolEnded, agent: str) -> Iterator[Raw]:
        call = self._turn.calls.get(event.call_id)
        if event.status == "denied":
            denied = {"tool_name": event.name, "tool_use_id": event.call_id, "tool_input": call.args if call else {}}
            self._turn.denials.append({**denied, "reason": event.text})
        self._turn.ended_in_tool = event.status == "cancelled"
        yield self._make_progress(event.name, event.call_id, agent, event.duration_ms / 1000, status=event.status)
        result: Raw = {"type": "tool_result", "tool_use_id": event.call_id, "content": event.text}
        if event.status != "success":
            result["is_error"] = True
        seen = {
            "status": event.status,
            "note": event.note,
            "view": event.display,
            "files": list(event.files),
            "redacted": list(event.redacted),
            "audit": to_builtins(event.audit) if event.audit else None,
        }
        yield self._make_message(
            "user",
            message={"role": "user", "content": [result]},
            parent_tool_use_id=self._parents.get(agent),
            tool_use_result={name: value for name, value in seen.items() if value},
        )

    # --- the rest ---

    def _on_retry_scheduled(self, event: RetryScheduled, agent: str) -> Iterator[Raw]:
        yield self.make_note(
            "api_retry",
            attempt=event.attempt,
            max_retries=event.attempts,
            retry_delay_ms=round(event.delay_s * 1000),
            error=_RETRY_CAUSES.get(event.error_kind, "unknown"),
            error_status=None,
            error_kind=event.error_kind,
            message=event.error,
        )

    def _on_model_changed(self, event: ModelChanged, agent: str) -> Iterator[Raw]:
        if not agent:
            self._model = event.model
        return iter(())

    def _on_permission_mode_changed(self, event: PermissionModeChanged, agent: str) -> Iterator[Raw]:
        self._permission_mode = event.mode
        return iter(())

    def _on_compacted(self, event: Compacted, agent: str) -> Iterator[Raw]:
        trigger = "manual" if event.trigger == "manual" else "auto"
        about: Raw = {"trigger": trigger, "pre_tokens": event.tokens_before, "post_tokens": event.tokens_after}
        yield self.make_note("compact_boundary", compact_metadata=about, parent_tool_use_id=self._parents.get(agent))

    def _on_warned(self, event: Warned, agent: str) -> Iterator[Raw]:
        yield self.make_note("warning", text=event.text)

    def _on_hook_ran(self, event: HookRan, agent: str) -> Iterator[Raw]:
        """One that changed nothing is not worth a message."""
        if event.outcome != "silent":
            yield self.make_note(
                "hook", hook_name=event.hook, point=event.point, outcome=event.outcome, detail=event.detail
            )
