"""Makes entries of envelopes: the same JSON as in the log, without secrets.

The log redacts what tools return, but not prompts and arguments; here every text is redacted. Text that streams is
redacted, too: its end is held back while it may be the beginning of a secret.

Redacting takes a while, so all of this runs in a thread, one call after the other.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from odin.core.call_events import (
    TOOL_EVENTS,
    CallStreamed,
    Replied,
    ReplyDiscarded,
    ReplyDrafted,
    ReplyRolledBack,
    TextStreamed,
    ThinkingEnded,
    ThinkingStreamed,
)
from odin.core.client import Snapshot
from odin.core.event import Envelope, PromptInjected, TurnEnded, TurnStarted
from odin.core.policy import SessionRedactor
from odin.core.text import to_valid_unicode_all

_END_OF_TEXT = (Replied, ReplyDiscarded, ThinkingEnded, CallStreamed, TurnEnded)
_MAX_HELD_CHARS = 50_000
"""More than the longest secret."""


class StreamEntry(Struct, frozen=True):
    """One event for Redis. `seq` is None for a transient one. `message` is the id of its turn, if known."""

    seq: int | None
    envelope: bytes
    topic: Literal["agent", "tool"]
    message: str = ""


class _Streamed(Struct):
    """Text that streams: the envelope of the newest chunk, and all text that was not published yet."""

    newest: Envelope
    kind: type[TextStreamed | ThinkingStreamed]
    text: str


class _Draft(Struct):
    """The text of a reply that was drafted: what is held back, and how long the rest is."""

    held: str = ""
    length: int = 0


class EntryEncoder:
    """Encodes the events of one session. `seq` is the last durable one that it has seen."""

    def __init__(self, redactor: SessionRedactor) -> None:
        self.seq = -1
        self._redactor = redactor
        self._turns: dict[str, str] = {}
        self._drafts: dict[str, _Draft] = {}
        self._streams: dict[str, _Streamed] = {}
        self._hidden: dict[str, str] = {}
        """The texts of the last snapshot: most are in the next one, too."""

    def restart(self, seq: int) -> None:
        """Go on after this event. After another one than the last, all events before it must be seen again."""
        if seq != self.seq:
            self._turns.clear()
            self._drafts.clear()
        self.seq = seq
        self._streams.clear()

    def encode_events(self, envelopes: Sequence[Envelope], after: int) -> list[StreamEntry]:
        """Return the entries of these events. Of durable ones up to `after`, only note what later ones need."""
        entries: list[StreamEntry] = []
        streamed = {item.event.call_id: item for item in envelopes if isinstance(item.event, CallStreamed)}
        for envelope in envelopes:
            event, agent = envelope.event, envelope.agent
            if isinstance(event, ReplyRolledBack):
                self._streams.pop(agent, None)
            if isinstance(event, TextStreamed | ThinkingStreamed):
                known = self._streams.get(agent)
                if known is None or known.kind is not type(event):
                    entries += self._release(agent)
                    known = _Streamed(envelope, type(event), "")
                self._streams[agent] = _Streamed(envelope, known.kind, known.text + event.text)
                continue
            if isinstance(event, _END_OF_TEXT):
                entries += self._release(agent)
            if event.durable:
                message = self._note(envelope)
                if isinstance(event, ReplyDrafted):
                    envelope = replace(envelope, event=self._complete_draft(event, agent))
                if envelope.seq > after:
                    entries.append(self._encode(envelope, message))
            elif not isinstance(event, CallStreamed):
                entries.append(self._encode(envelope, live=True))
            elif event.done or streamed[event.call_id] is envelope:
                # Pieces of JSON cannot be redacted; the last event has the arguments.
                entries.append(self._encode(replace(envelope, event=replace(event, json_delta="")), live=True))
        for agent in tuple(self._streams):
            entries += self._release(agent, is_whole=False)
        return entries

    def _note(self, envelope: Envelope) -> str:
        """Note a durable event, and return the id of its turn."""
        event, agent = envelope.event, envelope.agent
        self.seq = envelope.seq
        if isinstance(event, TurnStarted):
            self._turns[agent] = event.id
        message = self._turns.get(agent, "")
        if isinstance(event, TurnEnded):
            self._turns.pop(agent, None)
            message = event.id
        return event.turn or message if isinstance(event, PromptInjected) else message

    def _complete_draft(self, event: ReplyDrafted, agent: str) -> ReplyDrafted:
        draft = self._drafts.setdefault(agent, _Draft())
        if event.start == 0:
            draft = self._drafts[agent] = _Draft()
        start = draft.length
        text, draft.held = self._split(draft.held + event.text)
        draft.length += len(text)
        return ReplyDrafted(text, start)

    def _split(self, text: str) -> tuple[str, str]:
        """Return the part that can be published, redacted, and the rest."""
        end = self._redactor.find_open_end(text)
        if len(text) - end > _MAX_HELD_CHARS:
            end = len(text)
        return self._redactor.hide(text[:end]), text[end:]

    def _release(self, agent: str, *, is_whole: bool = True) -> list[StreamEntry]:
        """Return what can be published of the streamed text; all of it if it is whole."""
        streamed = self._streams.pop(agent, None)
        if streamed is None:
            return []
        text, held = (streamed.text, "") if is_whole else self._split(streamed.text)
        if held:
            self._streams[agent] = _Streamed(streamed.newest, streamed.kind, held)
        return [self._encode(replace(streamed.newest, event=streamed.kind(text)), live=True)] if text else []

    def _encode(self, envelope: Envelope, message: str = "", *, live: bool = False) -> StreamEntry:
        topic = "tool" if isinstance(envelope.event, TOOL_EVENTS) else "agent"
        data = _encode_json(_hide_all(msgspec.to_builtins(envelope), self._redactor.hide))
        return StreamEntry(None if live else envelope.seq, data, topic, message)

    def encode_snapshot(self, snapshot: Snapshot) -> bytes:
        known, self._hidden = self._hidden, {}

        def hide(text: str) -> str:
            found = self._hidden.get(text)
            if found is None:
                found = self._hidden[text] = known.get(text) or self._redactor.hide(text)
            return found

        return _encode_json(_hide_all(msgspec.to_builtins(snapshot), hide))

    def hide_texts(self, texts: Iterable[str]) -> list[str]:
        return [self._redactor.hide(text) for text in texts]


def _hide_all(value: Any, hide: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return hide(value)
    if isinstance(value, dict):
        return {hide(key): _hide_all(item, hide) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_hide_all(item, hide) for item in cast("Sequence[Any]", value)]
    return value


def _encode_json(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(to_valid_unicode_all(value))
