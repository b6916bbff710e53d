"""Sessions for programs that bring their own loop, such as a chat channel: messages go in, messages come out.

It writes the same logs as everything else, so such a session can be listed, searched, resumed and exported like any
other. The log keeps every message; what is handed out is bounded.
"""

import time

import msgspec

from odin.core.errors import SessionNotFound
from odin.core.event import AnyEvent, Envelope, Mode, Replied, Rewound, TitleSet, TurnStarted
from odin.core.sessions import SessionSummary
from odin.session.index import SessionIndex
from odin.session.log import SessionLog, read_header, read_log
from odin.session.messages import StoredMessage, events_of, read_messages
from odin.session.remove import delete_session
from odin.session.store import SessionStore, is_session_id

NEW = "New Session"
MOST = 100
"""Messages of one session that are handed out; the oldest stay on the disk."""


class Record(msgspec.Struct, frozen=True):
    """One session as a document: what a channel needs to go on with it."""

    key: str
    id: str
    title: str
    messages: tuple[StoredMessage, ...]
    summary: str
    created: float
    updated: float


class _Writing:
    """A log that is open here: the number of its last event, its last prompt, and the tools that were called."""

    def __init__(self, log: SessionLog) -> None:
        self.log = log
        self.seq = -1
        self.turn = ""
        self.names: dict[str, str] = {}

    def saw(self, envelope: Envelope) -> None:
        self.seq = max(self.seq, envelope.seq)
        event = envelope.event
        if isinstance(event, TurnStarted):
            self.turn = event.id
        elif isinstance(event, Replied):
            self.names = {call.id: call.name for call in event.message.calls}

    def append(self, event: AnyEvent, ts: float = 0.0) -> None:
        envelope = Envelope(self.seq + 1, ts or time.time(), self.log.session, event)
        self.log.append(envelope)
        self.saw(envelope)


class SessionBook:
    """The sessions of one project. A session is locked from the first message that is added to it until `close`."""

    def __init__(self, store: SessionStore, cwd: str) -> None:
        self._store = store
        self._cwd = cwd
        self._current = ""
        self._writing: dict[str, _Writing] = {}

    def create(self, title: str = NEW, *, key: str = "") -> str:
        """A new session, which becomes the current one. Gives its id."""
        log = self._store.create(self._cwd, key=key)
        writing = self._writing[log.session] = _Writing(log)
        writing.append(TitleSet(title or NEW))
        self._current = log.session
        return log.session

    def get(self, session: str) -> SessionSummary | None:
        return next((item for item in self.list() if item.id == session), None)

    def current(self) -> str:
        """The current session; one is made when there is none."""
        return self._current if self._current and self._known(self._current) else self.create()

    def set_current(self, session: str) -> bool:
        if not self._known(session):
            return False
        self._current = session
        return True

    def list(self) -> tuple[SessionSummary, ...]:
        return SessionIndex(self._store.folder).list_summaries()

    def delete(self, session: str) -> bool:
        """False when there is none. Afterwards no session is current when it was this one."""
        if not self._known(session):
            return False
        self._let_go(session)
        delete_session(self._store, session)
        self._current = "" if self._current == session else self._current
        return True

    def for_key(self, key: str) -> str:
        """The session of this address, such as "channel:chat"; it is made when there is none."""
        found = next((row.id for row in SessionIndex(self._store.folder).list_entries() if row.key == key), "")
        return found or self.create(key, key=key)

    def record(self, session: str) -> Record:
        self._must_know(session)
        row = next(item for item in SessionIndex(self._store.folder).list_entries() if item.id == session)
        return Record(row.key, row.id, row.title, self.messages(session), row.summary, row.created, row.mtime_ns / 1e9)

    def add_message(self, session: str, message: StoredMessage, mode: Mode = "edit_mode") -> StoredMessage:
        """Keep a message; gives it with its id and time. Assistants come before the results of their calls."""
        writing = self._open(session)
        kept = msgspec.structs.replace(
            message, id=message.id or f"m{writing.seq + 1}", created=message.created or time.time()
        )
        for event in events_of(kept, mode, writing.turn, writing.names):
            writing.append(event, kept.created)
        return kept

    def messages(self, session: str) -> tuple[StoredMessage, ...]:
        """A copy of the newest of them. It never begins with the results of calls that are no longer among them."""
        self._must_know(session)
        newest = read_messages(read_log(self._store.path_of(session)))[-MOST:]
        while newest and newest[0].role == "tool":
            newest.pop(0)
        return tuple(newest)

    def clear_messages(self, session: str) -> None:
        """The conversation goes back to before its first prompt. What was said stays in the log."""
        writing = self._open(session)
        prompts = [item.id for item in read_messages(read_log(writing.log.path)) if item.role == "user"]
        if prompts:
            writing.append(Rewound(f"clear-{writing.seq + 1}", prompts[0], files=False, chat=True))

    def rename(self, session: str, title: str) -> None:
        self._open(session).append(TitleSet(title))

    def close(self) -> None:
        for session in tuple(self._writing):
            self._let_go(session)

    def _known(self, session: str) -> bool:
        return is_session_id(session) and self._store.path_of(session).exists()

    def _must_know(self, session: str) -> None:
        if not self._known(session):
            raise SessionNotFound(f"There is no session {session}.")

    def _let_go(self, session: str) -> None:
        writing = self._writing.pop(session, None)
        if writing is not None:
            writing.log.close()

    def _open(self, session: str) -> _Writing:
        if session not in self._writing:
            self._must_know(session)
            path = self._store.path_of(session)
            log = SessionLog(path, read_header(path))
            log.hold()
            writing = self._writing[session] = _Writing(log)
            for envelope in read_log(path):
                writing.saw(envelope)
        return self._writing[session]
