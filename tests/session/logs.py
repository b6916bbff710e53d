"""Builders of events, and of session logs with these events."""

import os
from collections.abc import Iterable

from odin.core.call_events import Replied, UsageRecorded
from odin.core.event import AnyEvent, Envelope, SessionOpened, TitleSet, TurnEnded, TurnStarted
from odin.core.message import ReplyMessage, Text, Usage
from odin.session.log import SessionLog
from odin.session.store import SessionStore


def turn(name: str, text: str, answer: str = "Done.") -> list[AnyEvent]:
    """Return the events of one answered prompt."""
    return [
        TurnStarted(name, text, "edit_mode"),
        UsageRecorded("test/model", Usage(10, 5), 0.25),
        Replied(ReplyMessage((Text(answer),))),
        TurnEnded(name, "end_turn", answer),
    ]


def opened(model: str = "test/model") -> SessionOpened:
    return SessionOpened("/w", model, "1")


def titled(title: str) -> TitleSet:
    return TitleSet(title)


def write_session(store: SessionStore, session: str, events: Iterable[AnyEvent], modified: float = 0.0) -> SessionLog:
    """Create a session with these events, close it and return its log."""
    log = store.create("/w", session)
    append_events(log, events)
    log.close()
    if modified:
        os.utime(log.path, (modified, modified))
    return log


def append_events(log: SessionLog, events: Iterable[AnyEvent], first: int = 0) -> None:
    for number, event in enumerate(events, first):
        log.append(Envelope(number, 1000.0 + number, log.session, event))
