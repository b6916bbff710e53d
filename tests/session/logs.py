"""Sessions on disk, made of events that a test names."""

import os
from collections.abc import Iterable

from odin.core.call_events import Replied, UsageRecorded
from odin.core.event import AnyEvent, Envelope, SessionOpened, TitleSet, TurnEnded, TurnStarted
from odin.core.message import ReplyMessage, Text, Usage
from odin.session.log import SessionLog
from odin.session.store import SessionStore


def turn(name: str, text: str, answer: str = "Done.") -> list[AnyEvent]:
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


def write(store: SessionStore, session: str, events: Iterable[AnyEvent], modified: float = 0.0) -> SessionLog:
    """A session of these events, closed."""
    log = store.create("/w", session)
    add(log, events)
    log.close()
    if modified:
        os.utime(log.path, (modified, modified))
    return log


def add(log: SessionLog, events: Iterable[AnyEvent], first: int = 0) -> None:
    for number, event in enumerate(events, first):
        log.append(Envelope(number, 1000.0 + number, log.session, event))
