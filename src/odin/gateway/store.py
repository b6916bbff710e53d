"""What the gateway must not lose, in one SQLite file: messages, answers, chats, and who may write.

A message is committed before its channel forgets it, and done in the transaction that stores its answer. What happened
in a session is in its log alone; `Chat.cursor` says up to which event of it the answers are stored here. The command
line reads and changes the same file while the gateway runs. Each method is one transaction and may wait for the disk:
the gateway calls them in the thread of a `StoreThread`.
"""

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from odin.config.files import write_atomically
from odin.core.errors import ConfigError, StateUnwritable, UsageError
from odin.core.format import clip_line
from odin.core.private_folders import make_private_folder
from odin.gateway.channel import AnswerState, Button, InboundMessage, Media, SenderRight
from odin.server.pairing_codes import CODE_TTL_S, MAX_CODES, find_by_digest, format_code, hash_code, make_code

STORE_NAME = "gateway.db"
MAX_WAITING = 100
"""Messages of one chat that wait for their answers."""

MAX_ATTEMPTS = 10
"""How often a message is tried that the gateway did not survive."""

_VERSION = 2
_KEPT_S = 30 * 86_400
"""How long messages and answers are kept. Longer than any platform repeats one."""

_DAY = "%Y-%m-%d"

_SCHEMA = """
CREATE TABLE inbox (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT UNIQUE NOT NULL,
    channel TEXT NOT NULL, account TEXT NOT NULL, message TEXT NOT NULL, chat TEXT NOT NULL,
    body BLOB NOT NULL, kind TEXT NOT NULL, state TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 0,
    received REAL NOT NULL, error TEXT NOT NULL DEFAULT '',
    UNIQUE (channel, account, message));
CREATE INDEX inbox_open ON inbox (channel, chat, seq) WHERE state IN ('received', 'claimed');
CREATE TABLE outbox (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT UNIQUE NOT NULL, channel TEXT NOT NULL, chat TEXT NOT NULL,
    text TEXT NOT NULL, buttons BLOB NOT NULL, answers TEXT NOT NULL, state TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0, due REAL NOT NULL, created REAL NOT NULL, sent REAL NOT NULL DEFAULT 0,
    platform TEXT NOT NULL DEFAULT '', error TEXT NOT NULL DEFAULT '');
CREATE INDEX outbox_open ON outbox (channel, chat, seq) WHERE state IN ('pending', 'sending');
CREATE INDEX outbox_answers ON outbox (answers);
CREATE TABLE chats (
    channel TEXT NOT NULL, chat TEXT NOT NULL, session TEXT NOT NULL, folder TEXT NOT NULL, role TEXT NOT NULL,
    owner TEXT NOT NULL, is_group INTEGER NOT NULL, cursor INTEGER NOT NULL, counted_usd REAL NOT NULL,
    PRIMARY KEY (channel, chat));
CREATE TABLE costs (
    channel TEXT NOT NULL, chat TEXT NOT NULL, day TEXT NOT NULL, usd REAL NOT NULL, PRIMARY KEY (channel, chat, day));
CREATE TABLE senders (
    channel TEXT NOT NULL, sender TEXT NOT NULL, name TEXT NOT NULL, grants TEXT NOT NULL, paired REAL NOT NULL,
    PRIMARY KEY (channel, sender));
CREATE TABLE codes (
    digest TEXT PRIMARY KEY, grants TEXT NOT NULL, channel TEXT NOT NULL, sender TEXT NOT NULL, name TEXT NOT NULL,
    expires REAL NOT NULL);
CREATE TABLE state (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE jobs (
    name TEXT PRIMARY KEY, job BLOB NOT NULL, channel TEXT NOT NULL, chat TEXT NOT NULL, last REAL NOT NULL,
    due REAL, asked REAL NOT NULL DEFAULT 0);
CREATE TABLE runs (
    key TEXT PRIMARY KEY, job TEXT NOT NULL, channel TEXT NOT NULL, chat TEXT NOT NULL, due REAL NOT NULL,
    started REAL NOT NULL, ended REAL NOT NULL DEFAULT 0,
    state TEXT NOT NULL, usd REAL NOT NULL DEFAULT 0, note TEXT NOT NULL DEFAULT '');
CREATE INDEX runs_of_job ON runs (job, started);
"""

ItemQueue = Literal["inbox", "outbox", "unanswered", "unsent"]
"""What waits, and what has failed."""

ITEM_STATES = {
    "received": "waiting",
    "claimed": "running",
    "failed": "not answered",
    "pending": "waiting",
    "sending": "sending",
    "dead": "not sent",
    "unsure": "may have been sent",
}
"""The words for the states of messages and parts that are not done."""

_QUEUES: dict[ItemQueue, tuple[str, str]] = {
    "inbox": ("inbox", "'received', 'claimed'"),
    "outbox": ("outbox", "'pending', 'sending'"),
    "unanswered": ("inbox", "'failed'"),
    "unsent": ("outbox", "'dead', 'unsure'"),
}

MessageKind = Literal["prompt", "control"]
"""A `control` is carried out at once, also while a turn runs: an answer to a request, `/stop`, an edit."""


class Chat(Struct, frozen=True, array_like=True):
    """A chat and its session; "" before the first message. `owner` has bound it to its folder, or is "".

    `cursor` is the last event of the session whose answer is stored, `counted_usd` what of its cost is in the budget.
    """

    channel: str
    chat: str
    session: str = ""
    folder: str = ""
    role: str = ""
    owner: str = ""
    is_group: bool = False
    cursor: int = -1
    counted_usd: float = 0.0

    @property
    def name(self) -> str:
        return f"{self.channel}:{self.chat}"


class InboxMessage(Struct, frozen=True):
    """A message that is to be answered. `key` is the id of its prompt."""

    key: str
    message: InboundMessage
    attempts: int


class DuePart(Struct, frozen=True, array_like=True):
    """The next part of a chat. `due` is when it may be sent. `was_sending`: the gateway ended while it was sent."""

    seq: int
    key: str
    channel: str
    chat: str
    text: str
    buttons: tuple[Button, ...]
    answers: str
    attempts: int
    created: float
    due: float
    was_sending: bool
    file: Media | None


class NewPart(Struct, frozen=True):
    """A part to send. One with a key that is known is not stored again."""

    key: str
    channel: str
    chat: str
    text: str
    answers: str = ""
    buttons: tuple[Button, ...] = ()
    file: Media | None = None


class QueueItem(Struct, frozen=True, array_like=True):
    """A message of the inbox (`in-7`) or a part of the outbox (`out-7`), which is tried when it is `due`."""

    id: str
    channel: str
    chat: str
    state: str
    at: float
    error: str
    text: str
    sender: str
    attempts: int
    due: float


class PairedSender(Struct, frozen=True, array_like=True):
    channel: str
    sender: str
    name: str
    right: SenderRight
    paired: float


class PendingCode(Struct, frozen=True, array_like=True):
    """A code that nobody has used. With a `sender` it was shown in a chat, and is to be entered on the host."""

    digest: str
    right: SenderRight
    channel: str
    sender: str
    name: str
    expires: float


class ChatStatus(Struct, frozen=True, array_like=True):
    """A chat with what waits in it, what it cost today, and when its last message came; 0 if that is long ago."""

    channel: str
    chat: str
    session: str
    folder: str
    owner: str
    waiting: int
    unsent: int
    usd_today: float
    role: str
    last: float


S = TypeVar("S", bound=Struct)


def make_key(channel: str, account: str, message: str) -> str:
    """Return the id of the prompt of a message: always the same, also for a message that was forgotten here."""
    from hashlib import sha256

    return sha256("\0".join((channel, account, message)).encode("utf-8", "surrogatepass")).hexdigest()[:24]


class GatewayStore:
    """The file `gateway.db` in a folder, which must exist for a reader. Raise StateUnwritable or ConfigError."""

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time, *, is_reader: bool = False) -> None:
        self._clock = clock
        self._files = folder / "sent_files"
        self._begin = "BEGIN" if is_reader else "BEGIN IMMEDIATE"
        path = (folder if is_reader else make_private_folder(folder)) / STORE_NAME
        try:
            if not is_reader:
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            place = f"{path.absolute().as_uri()}?mode={'ro' if is_reader else 'rw'}"
            self._db = sqlite3.connect(place, uri=True, isolation_level=None, check_same_thread=False, timeout=10)
            if not is_reader:
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = FULL")
            with self.transact() as db:
                version = db.execute("PRAGMA user_version").fetchone()[0]
                if version == 0 and not is_reader:
                    for statement in _SCHEMA.split(";"):
                        db.execute(statement)
                if version < 2 and not is_reader:
                    db.execute("ALTER TABLE outbox ADD COLUMN file TEXT NOT NULL DEFAULT ''")
                    db.execute(f"PRAGMA user_version = {_VERSION}")
                    version = _VERSION
        except (OSError, sqlite3.OperationalError) as error:
            raise StateUnwritable(f"{path} cannot be used: {error}.", "Make it writable.") from error
        except sqlite3.DatabaseError as error:
            raise ConfigError(f"{path} is damaged ({error}).", "Restore it from a backup, or remove it.") from error
        if version != _VERSION:
            raise ConfigError(f"{path} was written by another version of Odin (format {version}).", "Update Odin.")

    def close(self) -> None:
        self._db.close()

    @contextmanager
    def transact(self) -> Generator[sqlite3.Connection]:
        self._db.execute(self._begin)
        try:
            yield self._db
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    # --- messages ---

    def add_message(self, message: InboundMessage, kind: MessageKind) -> tuple[str, str]:
        """Store a message and return its key and `accepted`, `duplicate`, or `full` if too many of its chat wait.

        An edit of a message that still waits replaces its text.
        """
        with self.transact() as db:
            return self.insert_message(db, message, kind)

    def insert_message(self, db: sqlite3.Connection, message: InboundMessage, kind: MessageKind) -> tuple[str, str]:
        """Do what `add_message` does, in a transaction that has begun."""
        source = message.channel, message.account
        key = make_key(*source, message.id)
        where = "channel = ? AND account = ? AND message = ?"
        if db.execute(f"SELECT 1 FROM inbox WHERE {where}", (*source, message.id)).fetchone():
            return key, "duplicate"
        waiting = "SELECT count(*) FROM inbox WHERE channel = ? AND chat = ? AND state = 'received'"
        if kind == "prompt" and db.execute(waiting, (message.channel, message.chat)).fetchone()[0] >= MAX_WAITING:
            return key, "full"
        state = "received"
        if message.edit_of:
            found = db.execute(
                f"SELECT seq, body FROM inbox WHERE {where} AND state = 'received' AND kind = 'prompt'",
                (*source, message.edit_of),
            ).fetchone()
            before = _decode(found[1]) if found is not None else message
            # Whoever it says that it edits: the words of one person are never those of another.
            if found is not None and (before.sender, before.chat) == (message.sender, message.chat):
                edited = replace(before, text=message.text, media=message.media)
                db.execute("UPDATE inbox SET body = ? WHERE seq = ?", (msgspec.json.encode(edited), found[0]))
                state = "done"
        db.execute(
            "INSERT INTO inbox (key, channel, account, message, chat, body, kind, state, received)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(key, *source, message.id, message.chat),
                *(msgspec.json.encode(message), kind, state, self._clock()),
            ),
        )
        db.execute(
            "INSERT OR IGNORE INTO chats VALUES (?, ?, '', '', '', '', ?, -1, 0)",
            (message.channel, message.chat, message.is_group),
        )
        return key, "accepted"

    def has_message(self, key: str) -> bool:
        return self._db.execute("SELECT 1 FROM inbox WHERE key = ?", (key,)).fetchone() is not None

    def claim_next(self, channel: str, chat: str) -> InboxMessage | None:
        """Return the first message of a chat that has no answer, and count the attempt."""
        with self.transact() as db:
            row = db.execute(
                "SELECT key, body, attempts FROM inbox WHERE channel = ? AND chat = ? AND kind = 'prompt'"
                " AND state IN ('received', 'claimed') ORDER BY seq LIMIT 1",
                (channel, chat),
            ).fetchone()
            if row is None:
                return None
            db.execute("UPDATE inbox SET state = 'claimed', attempts = attempts + 1 WHERE key = ?", (row[0],))
        return InboxMessage(row[0], _decode(row[1]), row[2] + 1)

    def change_attempts(self, key: str, by: int) -> None:
        self._db.execute("UPDATE inbox SET state = 'claimed', attempts = attempts + ? WHERE key = ?", (by, key))

    def is_open(self, key: str) -> bool:
        """True for a message that has no answer yet."""
        found = self._db.execute("SELECT state FROM inbox WHERE key = ?", (key,)).fetchone()
        return found is not None and found[0] in ("received", "claimed")

    def read_message(self, key: str) -> InboxMessage | None:
        row = self._db.execute("SELECT key, body, attempts FROM inbox WHERE key = ?", (key,)).fetchone()
        return None if row is None else InboxMessage(row[0], _decode(row[1]), row[2])

    def find_answer(self, channel: str, account: str, key: str) -> AnswerState | None:
        where = (key, channel, account)
        found = self._db.execute(
            "SELECT state, error FROM inbox WHERE key = ? AND channel = ? AND account = ?", where
        ).fetchone()
        if found is None:
            return None
        parts = self._db.execute("SELECT text, file FROM outbox WHERE answers = ? ORDER BY seq", (key,)).fetchall()
        words: dict[str, str] = {"received": "waiting", "claimed": "running"}
        state = words.get(found[0]) or str(found[0])
        files = tuple(file for _, given in parts if (file := _decode_file(given)) is not None)
        return AnswerState(state, "\n\n".join(text for text, given in parts if not given) or found[1], files)

    def finish(
        self,
        chat: Chat,
        parts: Sequence[NewPart] = (),
        *,
        done: Sequence[str] = (),
        error: str = "",
        usd: float = 0.0,
    ) -> None:
        """Store in one step what a turn came to: its messages are done or, with an `error`, failed, and their answer
        waits to be sent. What was read of the session is noted if it is still that of the chat."""
        state = "failed" if error else "done"
        with self.transact() as db:
            for key in done:
                db.execute("UPDATE inbox SET state = ?, error = ? WHERE key = ?", (state, clip_line(error), key))
                db.execute(
                    "UPDATE runs SET state = ?, ended = ?, usd = usd + ?, note = ? WHERE key = ?",
                    (state, self._clock(), usd, clip_line(error), key),
                )
            self.insert_parts(db, parts)
            if usd > 0:
                db.execute(
                    "INSERT INTO costs VALUES (?, ?, ?, ?)"
                    " ON CONFLICT (channel, chat, day) DO UPDATE SET usd = usd + excluded.usd",
                    (chat.channel, chat.chat, self._format_day(), usd),
                )
            self._prune(db)
            db.execute(
                "UPDATE chats SET cursor = ?, counted_usd = ? WHERE channel = ? AND chat = ? AND session = ?",
                (chat.cursor, chat.counted_usd, chat.channel, chat.chat, chat.session),
            )

    def _prune(self, db: sqlite3.Connection) -> None:
        """Remove a few of what is old, more than what comes with a message, so that the file does not grow."""
        limit = self._clock() - _KEPT_S
        for table, state, at, file in (("inbox", "done", "received", "''"), ("outbox", "sent", "created", "file")):
            oldest = f"SELECT min(seq) + 10 FROM {table} WHERE state = '{state}'"
            where = f"state = '{state}' AND {at} < ? AND seq < ({oldest})"
            for (given,) in db.execute(f"DELETE FROM {table} WHERE {where} RETURNING {file}", (limit,)).fetchall():
                if (gone := _decode_file(given)) is not None:
                    Path(gone.path).unlink(missing_ok=True)
        db.execute("DELETE FROM runs WHERE state != 'running' AND started < ?", (limit,))
        db.execute("DELETE FROM costs WHERE day < ?", (time.strftime(_DAY, time.localtime(limit)),))

    def release(self) -> None:
        """Forget the attempts of messages that a gateway which ends in good order leaves behind."""
        self._db.execute("UPDATE inbox SET attempts = attempts - 1 WHERE state = 'claimed'")

    def recover(self) -> list[tuple[str, str]]:
        """Return the chats with messages to answer. What was to be done at once and was not is no longer wanted."""
        with self.transact() as db:
            db.execute("UPDATE inbox SET state = 'done' WHERE kind = 'control' AND state IN ('received', 'claimed')")
        return self.list_waiting()

    def list_waiting(self) -> list[tuple[str, str]]:
        """Return the chats with messages to answer."""
        return self._db.execute(
            "SELECT DISTINCT channel, chat FROM inbox WHERE state IN ('received', 'claimed')"
        ).fetchall()

    def count_changes(self) -> int:
        """Return a number that is another one after another process has changed something."""
        return self._db.execute("PRAGMA data_version").fetchone()[0]

    # --- answers ---

    def insert_parts(self, db: sqlite3.Connection, parts: Sequence[NewPart]) -> None:
        now = self._clock()
        for part in parts:
            db.execute(
                "INSERT OR IGNORE INTO outbox (key, channel, chat, text, buttons, answers, state, due, created, file)"
                " VALUES (?, ?, ?, ?, ?, ?, 'pending', ?, ?, ?)",
                (
                    *(part.key, part.channel, part.chat, part.text, msgspec.json.encode(part.buttons), part.answers),
                    *(now, now, msgspec.json.encode(part.file).decode() if part.file is not None else ""),
                ),
            )

    def add_parts(self, parts: Sequence[NewPart], files: Mapping[str, bytes] | None = None) -> bool:
        """Store parts to send. False, and none is stored, if one of their keys is that of another text.

        `files` are the contents of those with a file, by their keys.
        """
        from hashlib import sha256

        for part in parts:
            known = self._db.execute("SELECT channel, chat, text FROM outbox WHERE key = ?", (part.key,)).fetchone()
            if known not in (None, (part.channel, part.chat, part.text)):
                return False
        stored: list[NewPart] = []
        for part in parts:
            if files and part.file is not None:
                path = make_private_folder(self._files) / sha256(part.key.encode()).hexdigest()[:24]
                write_atomically(path, files[part.key])
                part = replace(part, file=replace(part.file, path=str(path)))
            stored.append(part)
        with self.transact() as db:
            self.insert_parts(db, stored)
        return True

    def list_heads(self) -> list[DuePart]:
        """Return the first part of each chat that is not sent yet, also if it is not due yet."""
        rows = self._db.execute(
            "SELECT seq, key, channel, chat, text, buttons, answers, attempts, created, due, state = 'sending', file"
            " FROM outbox WHERE seq IN (SELECT min(seq) FROM outbox WHERE state IN ('pending', 'sending')"
            " GROUP BY channel, chat) ORDER BY seq"
        ).fetchall()
        return [
            _make(DuePart, (*row[:5], msgspec.json.decode(row[5]), *row[6:-1], _decode_file(row[-1]))) for row in rows
        ]

    def mark_sending(self, seq: int) -> None:
        self._db.execute("UPDATE outbox SET state = 'sending', attempts = attempts + 1 WHERE seq = ?", (seq,))

    def mark_sent(self, seq: int, platform: str) -> None:
        self._db.execute(
            "UPDATE outbox SET state = 'sent', platform = ?, sent = ? WHERE seq = ?", (platform, self._clock(), seq)
        )

    def mark_unsent(self, seq: int, state: Literal["pending", "dead", "unsure"], error: str, due: float = 0.0) -> None:
        self._db.execute(
            "UPDATE outbox SET state = ?, error = ?, due = ? WHERE seq = ?", (state, clip_line(error), due, seq)
        )

    def make_due(self, channel: str, chat: str) -> None:
        self._db.execute(
            "UPDATE outbox SET due = 0 WHERE channel = ? AND chat = ? AND state = 'pending'", (channel, chat)
        )

    def is_sent(self, key: str) -> bool:
        return self._db.execute("SELECT 1 FROM outbox WHERE key = ? AND state = 'sent'", (key,)).fetchone() is not None

    # --- what waits, and what failed ---

    def list_items(self, queue: ItemQueue, limit: int = -1) -> list[QueueItem]:
        """Return the first items of a queue, the oldest first."""
        table, states = _QUEUES[queue]
        columns = "received, body, 0" if table == "inbox" else "created, text, due"
        rows = self._db.execute(
            f"SELECT seq, channel, chat, state, error, attempts, {columns} FROM {table} WHERE state IN ({states})"
            " ORDER BY seq LIMIT ?",
            (limit,),
        ).fetchall()
        items: list[QueueItem] = []
        for seq, channel, chat, state, error, attempts, at, text, due in rows:
            message = _decode(text) if table == "inbox" else None
            said, sender = (message.text, message.sender_name or message.sender) if message else (text, "")
            key = f"{table.removesuffix('box')}-{seq}"
            items.append(QueueItem(key, channel, chat, ITEM_STATES[state], at, error, said, sender, attempts, due))
        return items

    def count_items(self, queue: ItemQueue) -> int:
        table, states = _QUEUES[queue]
        return self._db.execute(f"SELECT count(*) FROM {table} WHERE state IN ({states})").fetchone()[0]

    def list_failed(self) -> list[QueueItem]:
        """Return messages without an answer and parts that were not sent, or may have been, the oldest first."""
        return sorted((*self.list_items("unanswered"), *self.list_items("unsent")), key=lambda item: item.at)

    def retry_failed(self, id: str) -> None:
        """Answer the message, or send the part, once more. Raise UsageError for an unknown id."""
        table, seq = _parse_failed(id)
        state = "state = 'received', attempts = 0" if table == "inbox" else "state = 'pending', attempts = 0, due = 0"
        self._change_failed(f"UPDATE {table} SET {state}, error = ''", table, seq, id)

    def drop_failed(self, id: str) -> None:
        table, seq = _parse_failed(id)
        self._change_failed(f"UPDATE {table} SET state = '{'done' if table == 'inbox' else 'sent'}'", table, seq, id)

    def _change_failed(self, change: str, table: str, seq: int, id: str) -> None:
        states = "('failed')" if table == "inbox" else "('dead', 'unsure')"
        with self.transact() as db:
            if db.execute(f"{change} WHERE seq = ? AND state IN {states}", (seq,)).rowcount == 0:
                raise UsageError(f"There is no failed item {id!r}.", "`odin gateway failed` lists them.")

    # --- chats ---

    def get_chat(self, channel: str, chat: str) -> Chat:
        row = self._db.execute("SELECT * FROM chats WHERE channel = ? AND chat = ?", (channel, chat)).fetchone()
        if row is None:
            return Chat(channel=channel, chat=chat)
        return _make(Chat, row)

    def save_chat(self, chat: Chat) -> None:
        with self.transact() as db:
            db.execute("INSERT OR REPLACE INTO chats VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", msgspec.structs.astuple(chat))

    def list_chats(self) -> list[ChatStatus]:
        rows = self._db.execute(
            "SELECT channel, chat, session, folder, owner,"
            " (SELECT count(*) FROM inbox i WHERE i.channel = c.channel AND i.chat = c.chat AND i.state IN"
            " ('received', 'claimed')),"
            " (SELECT count(*) FROM outbox o WHERE o.channel = c.channel AND o.chat = c.chat AND o.state IN"
            " ('pending', 'sending')),"
            " coalesce((SELECT usd FROM costs k WHERE k.channel = c.channel AND k.chat = c.chat AND k.day = ?), 0),"
            " role, coalesce(received, 0) FROM chats c LEFT JOIN (SELECT channel, chat, max(received) AS received"
            " FROM inbox GROUP BY channel, chat) USING (channel, chat) ORDER BY channel, chat",
            (self._format_day(),),
        ).fetchall()
        return [_make(ChatStatus, row) for row in rows]

    def list_costs(self, limit: int) -> list[tuple[str, float]]:
        """Return the last days that cost something, newest first, with what all chats cost."""
        rows = "SELECT day, sum(usd) FROM costs GROUP BY day ORDER BY day DESC LIMIT ?"
        return self._db.execute(rows, (limit,)).fetchall()

    def get_cost_today(self, channel: str, chat: str) -> float:
        where = (channel, chat, self._format_day())
        row = self._db.execute("SELECT usd FROM costs WHERE channel = ? AND chat = ? AND day = ?", where).fetchone()
        return row[0] if row else 0.0

    def _format_day(self) -> str:
        return time.strftime(_DAY, time.localtime(self._clock()))

    # --- single values ---

    def get_value(self, name: str) -> str:
        """Return a value, such as `last_chat`, the chat that was written to last; "" if it was never set."""
        row = self._db.execute("SELECT value FROM state WHERE name = ?", (name,)).fetchone()
        return row[0] if row else ""

    def list_values(self, prefix: str) -> dict[str, str]:
        """Return the values whose names begin with this, by the rest of the name."""
        rows = self._db.execute("SELECT name, value FROM state WHERE name GLOB ? ORDER BY name", (f"{prefix}*",))
        return {name.removeprefix(prefix): value for name, value in rows.fetchall()}

    def set_value(self, name: str, value: str) -> None:
        self._db.execute("INSERT OR REPLACE INTO state VALUES (?, ?)", (name, value))

    # --- who may write ---

    def get_right(self, channel: str, sender: str) -> SenderRight:
        where = (channel, sender)
        row = self._db.execute("SELECT grants FROM senders WHERE channel = ? AND sender = ?", where).fetchone()
        return row[0] if row else ""

    def list_senders(self) -> list[PairedSender]:
        rows = self._db.execute("SELECT channel, sender, name, grants, paired FROM senders ORDER BY paired").fetchall()
        return [_make(PairedSender, row) for row in rows]

    def remove_sender(self, channel: str, sender: str) -> bool:
        where = (channel, sender)
        return self._db.execute("DELETE FROM senders WHERE channel = ? AND sender = ?", where).rowcount > 0

    def create_code(self, right: SenderRight, channel: str = "", sender: str = "", name: str = "") -> str:
        """Return a new code. One with a sender was asked for in a chat, which gets the same number of codes.

        Raise UsageError if too many wait to be used.
        """
        text = make_code()
        with self.transact() as db:
            db.execute("DELETE FROM codes WHERE expires < ?", (self._clock(),))
            of_chats = "SELECT count(*) FROM codes WHERE (sender != '') = ?"
            if db.execute(of_chats, (bool(sender),)).fetchone()[0] >= MAX_CODES:
                hint = "Use one, or wait until they expire after an hour."
                raise UsageError(f"There are {MAX_CODES} unused pairing codes already.", hint)
            digest, expires = hash_code(text, self._get_salt(db)), self._clock() + CODE_TTL_S
            db.execute("INSERT INTO codes VALUES (?, ?, ?, ?, ?, ?)", (digest, right, channel, sender, name, expires))
        return format_code(text)

    def _get_salt(self, db: sqlite3.Connection) -> str:
        db.execute("INSERT OR IGNORE INTO state VALUES ('salt', ?)", (os.urandom(16).hex(),))
        return db.execute("SELECT value FROM state WHERE name = 'salt'").fetchone()[0]

    def redeem(
        self, code: str, channel: str = "", sender: str = "", name: str = "", *, right: SenderRight = ""
    ) -> PairedSender | None:
        """Use up a code: one made on the host, or without a sender, one that a chat was shown, and give it a `right`.

        Return who may write now, or None if there is no such code.
        """
        with self.transact() as db:
            digest = hash_code(code, self._get_salt(db))
            rows = db.execute("SELECT * FROM codes WHERE expires > ?", (self._clock(),)).fetchall()
            found = find_by_digest((_make(PendingCode, row) for row in rows), digest)
            if (
                found is None
                or bool(found.sender) == bool(sender)
                or found.channel not in ("", channel or found.channel)
            ):
                return None
            given = (channel, sender, name) if sender else (found.channel, found.sender, found.name)
            paired = PairedSender(*given, right or found.right, self._clock())
            db.execute("DELETE FROM codes WHERE digest = ?", (digest,))
            db.execute("INSERT OR REPLACE INTO senders VALUES (?, ?, ?, ?, ?)", msgspec.structs.astuple(paired))
        return paired


def _make(kind: type[S], row: Sequence[Any]) -> S:
    """Return a row of the database as a struct with the same fields."""
    return msgspec.convert(row, kind, strict=False)


def _decode(body: bytes) -> InboundMessage:
    return msgspec.json.decode(body, type=InboundMessage)


def _decode_file(text: str) -> Media | None:
    return msgspec.json.decode(text, type=Media) if text else None


def _parse_failed(id: str) -> tuple[str, int]:
    kind, _, number = id.partition("-")
    table = {"in": "inbox", "out": "outbox"}.get(kind, "")
    if not table or not number.isdecimal():
        raise UsageError(f"{id!r} is no failed item.", "`odin gateway failed` lists them.")
    return table, int(number)


P = ParamSpec("P")
R = TypeVar("R")


class StoreThread:
    """A store with a thread of its own: the disk keeps nobody waiting. Methods run in the order of the calls."""

    def __init__(self, store: GatewayStore) -> None:
        self._store = store
        self._thread = ThreadPoolExecutor(1, "odin-gateway")

    async def run(self, method: Callable[Concatenate[GatewayStore, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a method of the store: `await db.run(GatewayStore.claim_next, channel, chat)`."""
        return await asyncio.get_running_loop().run_in_executor(
            self._thread, lambda: method(self._store, *args, **kwargs)
        )

    def close(self) -> None:
        self._thread.shutdown()
        self._store.close()
