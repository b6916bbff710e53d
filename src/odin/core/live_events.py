"""What is going on now, folded from transient events, for a client that joins in the middle of it.

The log has nothing of a reply that still streams but a draft. Chunks are kept until the reply is final or dropped, of
everything else only the newest.
"""

from collections import defaultdict

from msgspec.structs import replace

from odin.core.call_events import (
    ActivityChanged,
    CallQueued,
    CallStreamed,
    KeyPoolChanged,
    RateLimitUpdated,
    Replied,
    ReplyDiscarded,
    ReplyRolledBack,
    RequestProgressed,
    RequestStarted,
    StatusUpdated,
    TextStreamed,
    ThinkingEnded,
    ThinkingStarted,
    ThinkingStreamed,
    ToolEnded,
    ToolStarted,
)
from odin.core.event import (
    CompactionChanged,
    Envelope,
    LanguageServersChanged,
    PromptDropped,
    PromptInjected,
    PromptPaused,
    PromptQueued,
    ServersChanged,
    TurnEnded,
    TurnStarted,
    WorkEnded,
)

_OF_TURN = ("RequestStarted", "RequestProgressed", "StatusUpdated", "CallQueued")
"""What no longer holds when the turn ends."""


class _Part:
    """One part of a reply that streams: a text, a thought or a call. Its chunks are joined when they are read."""

    def __init__(self, envelope: Envelope) -> None:
        self.envelope = envelope
        self.chunks: list[str] = []

    def make_envelope(self) -> Envelope:
        event, text = self.envelope.event, "".join(self.chunks)
        if isinstance(event, TextStreamed | ThinkingStreamed):
            event = replace(event, text=text)
        elif isinstance(event, CallStreamed):
            event = replace(event, json_delta=text)
        return replace(self.envelope, event=event)


class LiveEvents:
    def __init__(self) -> None:
        self._replies = defaultdict[str, list[_Part]](list)
        self._newest: dict[tuple[str, ...], Envelope] = {}

    def list_current(self, seq: int) -> list[Envelope]:
        """Return transient events that have the same effect as all since the last final reply, after event `seq`."""
        parts = (part.make_envelope() for parts in self._replies.values() for part in parts)
        return [replace(envelope, seq=seq) for envelope in (*self._newest.values(), *parts)]

    def list_writing_agents(self) -> list[str]:
        """Return the agents whose reply streams."""
        return [agent for agent, parts in self._replies.items() if parts]

    def apply(self, envelope: Envelope) -> None:
        event, agent = envelope.event, envelope.agent
        kind = type(event).__name__
        match event:
            case TextStreamed(text) | ThinkingStreamed(text):
                self._find_part(envelope).chunks.append(text)
            case CallStreamed():
                part = self._find_part(envelope)
                part.envelope = envelope
                part.chunks.append(event.json_delta)
            case ThinkingStarted() | ThinkingEnded():
                self._replies[agent].append(_Part(envelope))
            case Replied() | ReplyDiscarded() | ReplyRolledBack():
                self._replies.pop(agent, None)
            case PromptPaused(id, paused=True):
                self._newest[kind, agent, id] = envelope
            case PromptPaused(id) | TurnStarted(id) | PromptQueued(id) | PromptDropped(id) | PromptInjected(id):
                self._newest.pop(("PromptPaused", agent, id), None)
                if isinstance(event, TurnStarted | PromptQueued):
                    self._newest.pop(("WorkEnded", ""), None)
            case TurnEnded():
                self._replies.pop(agent, None)
                for key in [key for key in self._newest if key[1] == agent and key[0] in _OF_TURN]:
                    del self._newest[key]
            case RequestStarted() | RequestProgressed() | StatusUpdated() | ServersChanged() | LanguageServersChanged():
                self._newest[kind, agent] = envelope
            case WorkEnded():
                self._newest[kind, ""] = envelope
            case RateLimitUpdated(provider) | KeyPoolChanged(provider):
                self._newest[kind, agent, provider] = envelope
            case CallQueued(call_id):
                self._newest[kind, agent, call_id] = envelope
            case ToolStarted(call_id) | ToolEnded(call_id):
                self._newest.pop(("CallQueued", agent, call_id), None)
            case ActivityChanged():
                self._keep(envelope, event.activity != "idle")
            case CompactionChanged():
                self._keep(envelope, event.status == "started")
            case _:
                pass

    def _find_part(self, envelope: Envelope) -> _Part:
        """Return the part that this chunk continues, or a new one."""
        parts, event = self._replies[envelope.agent], envelope.event
        for part in reversed(parts) if isinstance(event, CallStreamed) else parts[-1:]:
            known = part.envelope.event
            if type(known) is type(event) and getattr(known, "call_id", "") == getattr(event, "call_id", ""):
                return part
        parts.append(_Part(envelope))
        return parts[-1]

    def _keep(self, envelope: Envelope, is_going_on: bool) -> None:
        key = type(envelope.event).__name__, envelope.agent
        if is_going_on:
            self._newest[key] = envelope
        else:
            self._newest.pop(key, None)
