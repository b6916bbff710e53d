"""The end of a conversation at a glance: its last prompts and the words they were answered with.

Only the end of the log is read, so a session of any length is shown at once. Nothing is decided by what it says.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from odin.core.event import Envelope, PromptJoined, Replied, TurnStarted
from odin.core.sessions import Exchange, SessionPreview

READ_BYTES = 512_000
EXCHANGES = 6
WORDS = 600
"""Characters that are kept of a prompt, and of an answer."""

_MARKS = (b'"event":{"type":"TurnStarted"', b'"event":{"type":"PromptJoined"', b'"event":{"type":"Replied"')
_decoder = msgspec.json.Decoder(Envelope)


def glance(log: Path, session: str) -> SessionPreview:
    """The last prompts of the session with this log; of sub-agents nothing is shown."""
    lines, earlier = _tail(log)
    found: list[Exchange] = []
    for envelope in _said(lines):
        event = envelope.event
        if isinstance(event, TurnStarted | PromptJoined):
            text = event.shown or event.text
            if text:
                found.append(Exchange(_short(text), "", envelope.ts))
        elif isinstance(event, Replied) and found and event.message.text.strip():
            found[-1] = msgspec.structs.replace(found[-1], answer=_short(event.message.text))
    return SessionPreview(session, tuple(found[-EXCHANGES:]), earlier or len(found) > EXCHANGES)


def _tail(log: Path) -> tuple[list[bytes], bool]:
    """The last lines, whole ones, and whether there are others before them."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        size = file.seek(0, 2)
        start = max(0, size - READ_BYTES)
        file.seek(start)
        return file.read(READ_BYTES).split(b"\n")[1:], start > 0
    return [], False


def _said(lines: list[bytes]) -> Iterator[Envelope]:
    for line in lines:
        if any(mark in line[:400] for mark in _MARKS):
            with contextlib.suppress(msgspec.MsgspecError, UnicodeError):
                envelope = _decoder.decode(line)
                if not envelope.agent:
                    yield envelope


def _short(text: str) -> str:
    return text if len(text) <= WORDS else text[:WORDS] + "…"
