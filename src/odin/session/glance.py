"""The end of a conversation at a glance: its last prompts and the words they were answered with.

Only the end of the log is read, so a session of any length is shown at once. Nothing is decided by what it says.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from odin.core.event import Envelope, PromptInjected, Replied, TurnStarted
from odin.core.sessions import Exchange, SessionPreview

PREVIEW_BYTES = 512_000
MAX_EXCHANGES = 6
EXCHANGE_CHARS = 600
"""Characters that are kept of a prompt, and of an answer."""

_EXCHANGE_MARKS = (b'"event":{"type":"TurnStarted"', b'"event":{"type":"PromptJoined"', b'"event":{"type":"Replied"')
_exchange_decoder = msgspec.json.Decoder(Envelope)


def preview_session(log: Path, session: str) -> SessionPreview:
    """The last prompts of the session with this log; of sub-agents nothing is shown."""
    lines, earlier = _read_tail(log)
    found: list[Exchange] = []
    for envelope in _decode_exchanges(lines):
        event = envelope.event
        if isinstance(event, TurnStarted | PromptInjected):
            text = event.display_text or event.text
            if text:
                found.append(Exchange(_shorten_text(text), "", envelope.ts))
        elif isinstance(event, Replied) and found and event.message.text.strip():
            found[-1] = msgspec.structs.replace(found[-1], answer=_shorten_text(event.message.text))
    return SessionPreview(session, tuple(found[-MAX_EXCHANGES:]), earlier or len(found) > MAX_EXCHANGES)


def _read_tail(log: Path) -> tuple[list[bytes], bool]:
    """The last lines, whole ones, and whether there are others before them."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        size = file.seek(0, 2)
        start = max(0, size - PREVIEW_BYTES)
        file.seek(start)
        return file.read(PREVIEW_BYTES).split(b"\n")[1:], start > 0
    return [], False


def _decode_exchanges(lines: list[bytes]) -> Iterator[Envelope]:
    for line in lines:
        if any(mark in line[:400] for mark in _EXCHANGE_MARKS):
            with contextlib.suppress(msgspec.MsgspecError, UnicodeError):
                envelope = _exchange_decoder.decode(line)
                if not envelope.agent:
                    yield envelope


def _shorten_text(text: str) -> str:
    return text if len(text) <= EXCHANGE_CHARS else text[:EXCHANGE_CHARS] + "…"
