"""Translates session events to messages of the public stream-json protocol, so that existing SDK clients work.

Odin's additions (`mode`, `exit_reason`, `error_kind`, …) are extra fields, which such clients ignore. Streaming replies
become events in the format of the Anthropic Messages API, whatever model wrote them.
"""

import os
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import to_builtins

from odin.core.call_events import (
    CallStreamed,
    HookRan,
    Replied,
    ReplyDiscarded,
    ReplyRolledBack,
    RetryScheduled,
    TextStreamed,
    ThinkingStreamed,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
    UsageRecorded,
    UsageTotals,
)
from odin.core.client import SessionInfo
from odin.core.event import (
    CHECK_ID_PREFIX,
    ChecksRan,
    Compacted,
    Envelope,
    ModeChanged,
    ModelChanged,
    PermissionModeChanged,
    Redone,
    Rewound,
    RoleChanged,
    ServersChanged,
    TitleSet,
    TurnEnded,
    TurnStarted,
    Warned,
)
from odin.core.event_values import Event, ExitReason, Mode, ServerStatus
from odin.core.message import ReplyMessage, StopReason, Text, Thinking, ToolCall, Usage
from odin.ui.exit import describe_ending
from odin.ui.plan_text import SDK_PLAN_MODE
from odin.ui.stream_json.agent_messages import AgentMessages

Raw = dict[str, Any]


def to_usage_fields(usage: Usage) -> Raw:
    """Return token counts under their SDK names, in which output includes reasoning."""
    return {
        "input_tokens": usage.input,
        "output_tokens": usage.output + usage.reasoning,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
    }


def to_content_blocks(message: ReplyMessage) -> list[Raw]:
    """Return the parts of a reply as SDK content blocks."""
    blocks: list[Raw] = []
    for part in message.parts:
        if isinstance(part, Text):
            blocks.append({"type": "text", "text": part.text})
        elif isinstance(part, Thinking):
            blocks.append({"type": "thinking", "thinking": part.text, "signature": part.signature})
        else:
            blocks.append({"type": "tool_use", "id": part.id, "name": part.name, "input": part.args})
    return blocks


def make_message_id() -> str:
    return f"msg_{os.urandom(12).hex()}"


class PartialReply:
    """The stream events of one reply.

    Text and thinking blocks follow each other. Tool call blocks stay open until their call is complete, because some
    models stream several at once.
    """

    def __init__(self, model: str) -> None:
        self.id = make_message_id()
        self._model = model
        self.has_started = False
        self._count = 0
        self._open_block: tuple[str, int] | None = None
        self._calls: dict[str, int] = {}
        self._written: set[str] = set()

    def add_text(self, text: str) -> Iterator[Raw]:
        yield from self._enter_block("text", {"type": "text", "text": ""})
        yield self._make_delta({"type": "text_delta", "text": text})

    def add_thinking(self, text: str) -> Iterator[Raw]:
        yield from self._enter_block("thinking", {"type": "thinking", "thinking": "", "signature": ""})
        yield self._make_delta({"type": "thinking_delta", "thinking": text})

    def add_call(self, event: CallStreamed) -> Iterator[Raw]:
        """Yield the events for a chunk of a call; a call that arrives whole is one chunk."""
        index = self._calls.get(event.call_id)
        if index is None:
            if event.call_id in self._written:
                return
            yield from self._leave_block()
            index = self._calls[event.call_id] = self._take_index()
            block: Raw = {"type": "tool_use", "id": event.call_id, "name": event.name, "input": {}}
            yield from self._start_block(index, block)
        fragment = event.json_delta
        if event.done and not fragment and event.call_id not in self._written:
            fragment = msgspec.json.encode(event.args).decode()
        if fragment:
            self._written.add(event.call_id)
            delta = {"type": "input_json_delta", "partial_json": fragment}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        if event.done:
            self._written.add(event.call_id)
            del self._calls[event.call_id]
            yield {"type": "content_block_stop", "index": index}

    def add_whole(self, message: ReplyMessage) -> Iterator[Raw]:
        """Yield the events for a complete reply that was not streamed."""
        for part in message.parts:
            if isinstance(part, Text):
                yield from self.add_text(part.text)
            elif isinstance(part, Thinking):
                yield from self.add_thinking(part.text)
            else:
                yield from self.add_call(CallStreamed(part.id, part.name, done=True, args=part.args))

    def finish(self, stop: StopReason, usage: Usage) -> Iterator[Raw]:
        yield from self._leave_block()
        for index in self._calls.values():
            yield {"type": "content_block_stop", "index": index}
        self._calls.clear()
        yield from self._start_message()
        delta = {"stop_reason": stop, "stop_sequence": None}
        yield {"type": "message_delta", "delta": delta, "usage": to_usage_fields(usage)}
        yield {"type": "message_stop"}

    def _start_message(self) -> Iterator[Raw]:
        if self.has_started:
            return
        self.has_started = True
        yield {
            "type": "message_start",
            "message": {
                "id": self.id,
                "type": "message",
                "role": "assistant",
                "model": self._model,
                "content": [],
                "stop_reason": None,
                "stop_sequence": None,
                "usage": to_usage_fields(Usage()),
            },
        }

    def _enter_block(self, kind: str, block: Raw) -> Iterator[Raw]:
        """Open a text or thinking block of this kind, unless one is open."""
        if self._open_block is not None and self._open_block[0] == kind:
            return
        yield from self._leave_block()
        self._open_block = (kind, self._take_index())
        yield from self._start_block(self._open_block[1], block)

    def _leave_block(self) -> Iterator[Raw]:
        if self._open_block is not None:
            yield {"type": "content_block_stop", "index": self._open_block[1]}
            self._open_block = None

    def _start_block(self, index: int, block: Raw) -> Iterator[Raw]:
        yield from self._start_message()
        yield {"type": "content_block_start", "index": index, "content_block": block}

    def _take_index(self) -> int:
        self._count += 1
        return self._count - 1

    def _make_delta(self, delta: Raw) -> Raw:
        assert self._open_block is not None
        return {"type": "content_block_delta", "index": self._open_block[1], "delta": delta}


_SUBTYPES: dict[ExitReason, str] = {
    "end_turn": "success",
    "max_turns": "error_max_turns",
    "error_max_budget_usd": "error_max_budget_usd",
    "error_max_structured_output_retries": "error_max_structured_output_retries",
}
_ERROR_SUBTYPES = {"NeedsModel": "error_no_model"}
"""Subtypes by reason, then by kind of error. All others are error_during_execution."""

_TERMINAL_REASONS: dict[ExitReason, str] = {
    "end_turn": "completed",
    "interrupted": "aborted_streaming",
    "aborted": "aborted_streaming",
    "error_max_budget_usd": "max_budget",
    "error": "api_error",
}

_RETRY_CAUSES = {"RateLimited": "rate_limit", "AllKeysCooling": "rate_limit", "Overloaded": "server_error"}


def make_uuid() -> str:
    """Return a random version 4 UUID without importing the uuid module, which is slow."""
    digits = os.urandom(16).hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


class _ModelUsage:
    """Usage of one model in a turn."""

    def __init__(self) -> None:
        self.spent = UsageTotals()
        self.context = 0

    def to_fields(self) -> Raw:
        usage = self.spent.usage
        return {
            "inputTokens": usage.input,
            "outputTokens": usage.output + usage.reasoning,
            "cacheReadInputTokens": usage.cache_read,
            "cacheCreationInputTokens": usage.cache_write,
            "webSearchRequests": 0,
            "costUSD": self.spent.known_cost_usd,
            "contextWindow": self.context,
            "maxOutputTokens": 0,
        }


class _TurnTotals:
    """Data of the running turn for its result message."""

    def __init__(self) -> None:
        self.calls: dict[tuple[str, str], ToolCall] = {}
        self.denials: list[Raw] = []
        self.models: dict[str, _ModelUsage] = {}
        self.ended_in_tool = False
        self.stop: str | None = None


class StreamTranslator:
    """Translates the events of one session to messages, in order.

    `partial` adds stream events for the main agent's replies. Messages of a sub-agent have the call that started it as
    `parent_tool_use_id`. `agent_types` are the types of sub-agents, `mode` is that of the turn; `is_quiet` says whether
    no agent works when a turn ends, if that is known.
    """

    def __init__(self, info: SessionInfo, *, partial: bool = False) -> None:
        self._info = info
        self._partial = partial
        self._model = info.model
        self.mode: Mode = info.mode
        self._permission_mode = info.permission_mode
        self._role = info.role
        self._servers = info.servers
        self._turn = _TurnTotals()
        self._reply: PartialReply | None = None
        self._usage = Usage()
        self._agents = AgentMessages()
        self.agent_types: tuple[str, ...] = ()
        self.skills = tuple(skill.name for skill in info.skills)
        self.is_quiet: bool | None = None

    def translate(self, envelope: Envelope) -> Iterator[Raw]:
        """Yield the messages for an event, often none. Must be consumed completely, because it updates the state."""
        event, agent = envelope.event, envelope.agent
        match event:
            case TurnStarted() if not agent:
                yield from self._on_turn_started(event)
            case TurnEnded() if not agent:
                yield self._make_result(event, self._turn)
                self._turn = _TurnTotals()
            case Replied():
                yield from self._on_replied(event, agent)
            case UsageRecorded():
                model = self._turn.models.setdefault(event.model, _ModelUsage())
                model.spent += UsageTotals.from_event(event)
                model.context = event.context_window
                if not agent and event.purpose == "main":
                    self._usage = event.usage
            case TextStreamed() | ThinkingStreamed() | CallStreamed() if self._partial and not agent:
                yield from self._stream(self._add_chunk(event))
            case ReplyRolledBack() | ReplyDiscarded() if not agent:
                yield from self._discard_reply(event.reason)
            case ToolStarted() | ToolProgressed() | ToolEnded():
                yield from self._on_tool_event(event, agent)
            case ModelChanged() if not agent:
                self._model = event.model
                yield self._make_status(model=event.model)
            case PermissionModeChanged():
                self._permission_mode = event.mode
                if self.mode != "plan_mode":
                    yield self._make_status(permissionMode=event.mode)
            case ModeChanged() if not agent:
                self.mode = event.mode
                yield self._make_status(permissionMode=self._get_sdk_mode(event.mode), mode=event.mode)
            case TitleSet():
                yield self._make_status(title=event.title)
            case RoleChanged():
                self._role = event.role
            case ServersChanged():
                self._servers = event.servers
            case _:
                yield from self._translate_notice(event, agent)

    def _get_sdk_mode(self, mode: Mode) -> str:
        """Return the permission mode as SDK clients know it; plan mode is one of theirs."""
        return SDK_PLAN_MODE if mode == "plan_mode" else self._permission_mode

    def _make_status(self, **changed: str) -> Raw:
        return self.make_note("status", status=None, **changed)

    def make_note(self, subtype: str, **fields: Any) -> Raw:
        """Return a system message."""
        return self._make_message("system", subtype=subtype, **fields)

    def make_failure(self, text: str, kind: str, prompt_id: str) -> Raw:
        """Return the result of a prompt that was refused before a turn started."""
        return self._make_result(TurnEnded(prompt_id, "error", error=text, error_kind=kind), _TurnTotals())

    @property
    def _model_id(self) -> str:
        """The model's name without the provider."""
        return self._model.partition("/")[2] or self._model

    def _make_message(self, type: str, **fields: Any) -> Raw:
        return {"type": type, **fields, "session_id": self._info.session, "uuid": make_uuid()}

    # --- the turn ---

    def _on_turn_started(self, event: TurnStarted) -> Iterator[Raw]:
        self._turn = _TurnTotals()
        self._reply = None
        self._usage = Usage()
        mode = self.mode = event.mode
        info = self._info
        yield self._make_message(
            "system",
            subtype="init",
            cwd=info.cwd,
            model=self._model,
            tools=list(info.tools),
            permissionMode=self._get_sdk_mode(mode),
            mode=mode,
            role=self._role,
            sandbox=info.sandbox,
            mcp_servers=[describe_server(server) for server in self._servers],
            slash_commands=[],
            agents=list(self.agent_types),
            skills=list(self.skills),
            plugins=[{"name": plugin.name, "path": plugin.folder} for plugin in info.plugins],
            apiKeySource="none",
            output_style=info.output_style,
            claude_code_version=info.version,
            odin_version=info.version,
            notice=info.notice,
            warnings=list(info.warnings),
            turn_id=event.id,
        )

    def _make_result(self, event: TurnEnded, turn: _TurnTotals) -> Raw:
        reason = event.reason
        terminal = _TERMINAL_REASONS.get(reason, reason)
        if terminal == "aborted_streaming" and turn.ended_in_tool:
            terminal = "aborted_tools"
        error = describe_ending(event)
        total = sum((model.spent for model in turn.models.values()), UsageTotals())
        return self._make_message(
            "result",
            subtype=_SUBTYPES.get(reason) or _ERROR_SUBTYPES.get(event.error_kind, "error_during_execution"),
            is_error=reason != "end_turn",
            result=event.text,
            num_turns=event.steps,
            duration_ms=event.duration_ms,
            duration_api_ms=event.api_ms,
            total_cost_usd=total.known_cost_usd,
            usage=to_usage_fields(total.usage),
            modelUsage={name: model.to_fields() for name, model in turn.models.items()},
            permission_denials=turn.denials,
            stop_reason=turn.stop,
            terminal_reason=terminal,
            exit_reason=reason,
            errors=[error] if error else [],
            error_kind=event.error_kind,
            verification=to_builtins(event.verification) if event.verification else None,
            turn_id=event.id,
            **({"idle": self.is_quiet} if self.is_quiet is not None else {}),
            **({"plan_path": event.plan_path} if event.plan_path else {}),
            **({"structured_output": event.structured_output} if event.structured_output is not None else {}),
        )

    # --- one reply ---

    def _on_replied(self, event: Replied, agent: str) -> Iterator[Raw]:
        message = event.message
        stop: StopReason = "end_turn" if message.stop == "unfinished" else message.stop  # SDK clients know no other
        model = message.model or self._model_id
        reply = None if agent else self._reply
        if self._partial and not agent:
            reply = reply or PartialReply(model)
            if not reply.has_started:
                yield from self._stream(reply.add_whole(message))
            yield from self._stream(reply.finish(stop, self._usage))
        self._turn.calls.update(((agent, call.id), call) for call in message.calls)
        if not agent:
            self._turn.stop = stop
            self._reply = None
        yield self._make_message(
            "assistant",
            message={
                "id": reply.id if reply else make_message_id(),
                "type": "message",
                "role": "assistant",
                "model": model,
                "content": to_content_blocks(message),
                "stop_reason": stop,
                "stop_sequence": None,
                "usage": to_usage_fields(self._usage),
            },
            parent_tool_use_id=self._agents.get_parent(agent),
        )

    def _discard_reply(self, reason: str) -> Iterator[Raw]:
        """Report that the streaming reply ends unfinished. The next one starts with its own message_start."""
        if self._reply is not None:
            self._reply = None
            yield self.make_note("reply_discarded", reason=reason)

    def _add_chunk(self, event: TextStreamed | ThinkingStreamed | CallStreamed) -> Iterator[Raw]:
        if self._reply is None:
            self._reply = PartialReply(self._model_id)
        reply = self._reply
        if isinstance(event, TextStreamed):
            return reply.add_text(event.text)
        return reply.add_thinking(event.text) if isinstance(event, ThinkingStreamed) else reply.add_call(event)

    def _stream(self, events: Iterator[Raw]) -> Iterator[Raw]:
        for event in events:
            yield self._make_message("stream_event", event=event, parent_tool_use_id=None)

    # --- tools ---

    def _make_progress(self, name: str, call_id: str, agent: str, seconds: float, **more: Any) -> Raw:
        return self._make_message(
            "tool_progress",
            tool_name=name,
            tool_use_id=call_id,
            parent_tool_use_id=self._agents.get_parent(agent),
            elapsed_time_seconds=seconds,
            **more,
        )

    def _on_tool_event(self, event: ToolStarted | ToolProgressed | ToolEnded, agent: str) -> Iterator[Raw]:
        name, call_id = event.name, event.call_id
        if isinstance(event, ToolStarted):
            yield self._make_progress(name, call_id, agent, 0.0, status="started", description=event.description)
        elif isinstance(event, ToolProgressed):
            yield self._make_progress(name, call_id, agent, event.elapsed_s, status="running", text=event.text)
        else:
            yield from self._on_tool_ended(event, agent)

    def _on_tool_ended(self, event: ToolEnded, agent: str) -> Iterator[Raw]:
        call = self._turn.calls.get((agent, event.call_id))
        if event.status == "denied":
            denied = {"tool_name": event.name, "tool_use_id": event.call_id, "tool_input": call.args if call else {}}
            self._turn.denials.append({**denied, "reason": event.text})
        self._turn.ended_in_tool = event.status == "cancelled"
        yield self._make_progress(event.name, event.call_id, agent, event.duration_ms / 1000, status=event.status)
        if call is None and event.call_id.startswith(CHECK_ID_PREFIX):  # no message has its tool_use
            return
        result: Raw = {"type": "tool_result", "tool_use_id": event.call_id, "content": event.text}
        if event.status != "success":
            result["is_error"] = True
        seen = {
            "status": event.status,
            "note": event.note,
            "view": event.display,
            "for_user": event.for_user,
            "files": list(event.files),
            "redacted": list(event.redacted),
            "audit": to_builtins(event.audit) if event.audit else None,
        }
        yield self._make_message(
            "user",
            message={"role": "user", "content": [result]},
            parent_tool_use_id=self._agents.get_parent(agent),
            tool_use_result={name: value for name, value in seen.items() if value},
        )

    # --- notices ---

    def _translate_notice(self, event: Event, agent: str) -> Iterator[Raw]:
        match event:
            case RetryScheduled():
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
            case Compacted():
                trigger = "manual" if event.trigger == "manual" else "auto"
                metadata = {"trigger": trigger, "pre_tokens": event.tokens_before, "post_tokens": event.tokens_after}
                parent = self._agents.get_parent(agent)
                yield self.make_note("compact_boundary", compact_metadata=metadata, parent_tool_use_id=parent)
            case ChecksRan():
                yield self.make_note("checks", verification=to_builtins(event.verification), continues=event.continues)
            case Rewound():
                yield self.make_note("rewound", rewind_id=event.id, turn_id=event.turn, chat=event.chat)
            case Redone():
                yield self.make_note("redone", rewind_id=event.id)
            case Warned(level="info"):
                yield self.make_note("informational", content=event.text, level="info")
            case Warned():
                yield self.make_note("warning", text=event.text)
            case HookRan() if event.outcome != "silent":
                yield self.make_note(
                    "hook", hook_name=event.hook, point=event.point, outcome=event.outcome, detail=event.detail
                )
            case _:
                for subtype, fields in self._agents.translate(event):
                    yield self.make_note(subtype, **fields)


_SDK_STATES = {"ready": "connected", "failed": "failed", "disabled": "disabled"}


def describe_server(server: ServerStatus) -> Raw:
    """Return the state of an MCP server as SDK clients know it."""
    raw: Raw = {"name": server.name, "status": _SDK_STATES.get(server.state, "pending"), "scope": "user"}
    if server.detail:
        raw["error"] = server.detail
    if server.version:
        name, _, version = server.version.rpartition(" ")
        raw["serverInfo"] = {"name": name or version, "version": version}
    return raw
