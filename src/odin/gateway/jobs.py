"""Jobs of the gateway and their runs, in its store. Each function is one transaction, like the methods of the store.

When a job is due, its next time is stored with what this run puts into the inbox or the outbox: a gateway that is
killed has done both or neither. A command is noted before it starts; of one that was not seen to end, nobody knows.
"""

import re
import sqlite3
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from odin.config.gateway_settings import GatewaySettings
from odin.core.errors import UsageError
from odin.core.format import clip_line, pluralize
from odin.core.schedule import Schedule, count_missed, find_next, format_local
from odin.gateway.channel import InboundMessage, MessageOptions, MessageOrigin, SenderRight
from odin.gateway.store import GatewayStore, NewPart, make_key

LATE_S = 90.0
"""A run that begins later than this was missed: the gateway did not run, or the computer slept."""

FIRST_S = 1.0
"""When a new heartbeat beats first."""

MAX_JOBS = 20
"""Jobs of one chat."""

ACCOUNT = "schedule"
"""The account of the messages of jobs."""

JobAction = Literal["prompt", "message", "command", "heartbeat"]
RunState = Literal["running", "done", "failed", "missed", "skipped", "unsure"]
HEARTBEAT = "heartbeat"
"""The name of the job that is the heartbeat, and of its channel."""

LAST_OWNER_CHAT = "last_owner_chat"
"""The value in the store that names the chat in which the owner has written last, to Odin alone."""

DEFAULT_CHAT = "terminal:main"
_UNSURE = "The gateway ended while it ran."
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


class Job(Struct, frozen=True, omit_defaults=True):
    """What is done for a chat when it is due: `text` is given to the model, sent as it is, or run as a command.

    `missed`: what was missed is left out (`skip`), or done once, later. `right` is that of its maker: a sender of the
    chat, or "" for the owner on this computer. Without `history`, each run has a conversation of its own.
    """

    name: str
    schedule: Schedule
    channel: str
    chat: str
    text: str
    action: JobAction = "prompt"
    missed: Literal["skip", "once"] = "skip"
    right: SenderRight = "owner"
    maker: str = ""
    history: bool = True
    enabled: bool = True

    @property
    def place(self) -> str:
        return f"{self.channel}:{self.chat}"


class JobRun(Struct, frozen=True, array_like=True):
    key: str
    job: str
    channel: str
    chat: str
    due: float
    started: float
    ended: float
    state: RunState
    usd: float
    note: str


class JobStatus(Struct, frozen=True):
    """A job, when it is due, and its last run."""

    job: Job
    due: float | None
    run: JobRun | None


class DueRun(Struct, frozen=True):
    """A run that was taken. `is_run` is False if it is left out; `note` says why, or that it is late."""

    job: Job
    key: str
    due: float
    is_run: bool
    note: str = ""
    is_once: bool = False


def find_place(store: GatewayStore, settings: GatewaySettings, given: str) -> tuple[str, str]:
    """Return the channel and the chat that are meant; "" is the chat that the owner has written in last."""
    place = given or store.get_value(LAST_OWNER_CHAT) or DEFAULT_CHAT
    channel, _, chat = place.partition(":")
    known = ["terminal", *(name for name, item in settings.channels.items() if item.enabled)]
    if not chat or channel not in (*known, *(["webhook"] if settings.webhooks else [])):
        hint = f"Write CHANNEL:CHAT, with one of these channels: {', '.join(known)}."
        raise UsageError(f"There is no chat {place!r}.", hint)
    return channel, chat


def check_name(name: str) -> str:
    if not _NAME.fullmatch(name) or name == HEARTBEAT:
        raise UsageError(f"Invalid name {name!r}.", "Use up to 40 small letters, digits and dashes, such as `backup`.")
    return name


def add_job(store: GatewayStore, job: Job, now: float) -> Job:
    """Store a new job, with a name if it has none. Raise UsageError."""
    with store.transact() as db:
        names = {name for (name,) in db.execute("SELECT name FROM jobs").fetchall()}
        if not job.name:
            job = replace(job, name=next(name for at in range(1, len(names) + 2) if (name := f"job-{at}") not in names))
        if check_name(job.name) in names:
            raise UsageError(f"There is a job {job.name!r} already.", "Choose another name, or remove it first.")
        place = job.channel, job.chat
        if db.execute("SELECT count(*) FROM jobs WHERE channel = ? AND chat = ?", place).fetchone()[0] >= MAX_JOBS:
            raise UsageError(f"{job.place} has {MAX_JOBS} jobs already.", "Remove one first.")
        _write(db, job, now, find_next(job.schedule, now, now))
    return job


def _write(db: sqlite3.Connection, job: Job, last: float, due: float | None) -> None:
    row = job.name, msgspec.json.encode(job), job.channel, job.chat, last, due if job.enabled else None
    db.execute("INSERT OR REPLACE INTO jobs (name, job, channel, chat, last, due) VALUES (?, ?, ?, ?, ?, ?)", row)


def keep_job(store: GatewayStore, job: Job, now: float) -> None:
    """Store a job of the settings. A new one is due at once; one that was stored before is due when it was."""
    with store.transact() as db:
        known = _find(db, job.name)
        if known is None:
            _write(db, job, now, now + FIRST_S)
        elif known[0] != job:
            _write(db, job, known[1], find_next(job.schedule, known[1], now))


def _find(db: sqlite3.Connection, name: str) -> tuple[Job, float] | None:
    row = db.execute("SELECT job, last FROM jobs WHERE name = ?", (name,)).fetchone()
    return None if row is None else (_decode(row[0]), row[1])


def _decode(body: bytes) -> Job:
    return msgspec.json.decode(body, type=Job)


def _get(db: sqlite3.Connection, name: str, place: str) -> tuple[Job, float]:
    """Return a job that this chat sees. Raise UsageError."""
    found = _find(db, name)
    if found is None or found[0].action == "heartbeat" or (place and found[0].place != place):
        raise UsageError(f"There is no job {name!r}.", "`odin cron list` shows them.")
    return found


def remove_job(store: GatewayStore, name: str, place: str = "") -> None:
    """Remove a job; with a `place` only one of this chat. Raise UsageError."""
    with store.transact() as db:
        _get(db, name, place)
        db.execute("DELETE FROM jobs WHERE name = ?", (name,))


def forget_job(store: GatewayStore, name: str) -> None:
    with store.transact() as db:
        db.execute("DELETE FROM jobs WHERE name = ?", (name,))


def enable_job(store: GatewayStore, name: str, now: float, *, on: bool, place: str = "") -> None:
    with store.transact() as db:
        job, last = _get(db, name, place)
        due = find_next(job.schedule, last if job.schedule.at else now, now)
        _write(db, replace(job, enabled=on), last if job.schedule.at else now, due)


def ask_for_run(store: GatewayStore, name: str, now: float) -> None:
    """Let a job run now, whatever its schedule says. Raise UsageError."""
    with store.transact() as db:
        _get(db, name, "")
        db.execute("UPDATE jobs SET asked = ? WHERE name = ?", (now, name))


def list_jobs(store: GatewayStore, place: str = "") -> list[JobStatus]:
    """Return the jobs, of one chat if it is given, with their last runs."""
    with store.transact() as db:
        rows = db.execute("SELECT job, due FROM jobs ORDER BY due IS NULL, due, name").fetchall()
        jobs = [(_decode(body), due) for body, due in rows]
        return [JobStatus(job, due, _find_last_run(db, job.name)) for job, due in jobs if place in ("", job.place)]


def _find_last_run(db: sqlite3.Connection, name: str) -> JobRun | None:
    row = db.execute("SELECT * FROM runs WHERE job = ? ORDER BY rowid DESC LIMIT 1", (name,)).fetchone()
    return None if row is None else msgspec.convert(row, JobRun, strict=False)


def list_runs(store: GatewayStore, name: str, limit: int = 20) -> list[JobRun]:
    """Return the last runs of a job, the newest first."""
    with store.transact() as db:
        rows = db.execute("SELECT * FROM runs WHERE job = ? ORDER BY rowid DESC LIMIT ?", (name, limit))
        return [msgspec.convert(row, JobRun, strict=False) for row in rows.fetchall()]


def take_due(store: GatewayStore, now: float) -> list[DueRun]:
    """Return the runs that begin now, and those that are left out. Each is returned once."""
    with store.transact() as db:
        rows = db.execute("SELECT job, last, due, asked FROM jobs WHERE due <= ? OR asked > 0", (now,)).fetchall()
        return [_take(store, db, _decode(body), now, last, due, asked) for body, last, due, asked in rows]


def _take(
    store: GatewayStore, db: sqlite3.Connection, job: Job, now: float, last: float, due: float | None, asked: float
) -> DueRun:
    """Take one run in a transaction: what it puts into the inbox or the outbox is stored with its next time."""
    if asked:
        run = DueRun(job, _make_key(job, asked, "asked"), asked, is_run=True)
        db.execute("UPDATE jobs SET asked = 0 WHERE name = ?", (job.name,))
        if due is None and job.schedule.at:
            db.execute("DELETE FROM jobs WHERE name = ?", (job.name,))
    else:
        assert due is not None
        run = DueRun(job, _make_key(job, due), due, is_run=True)
        if now - due > LATE_S:
            run = _describe_late(run, now)
        # An interval is counted from the run, also if that is late; a job that is due once ends with it.
        next_due = find_next(job.schedule, now if job.schedule.every and now - due > LATE_S else due, now)
        if next_due is None:
            db.execute("DELETE FROM jobs WHERE name = ?", (job.name,))
        else:
            db.execute("UPDATE jobs SET last = ?, due = ? WHERE name = ?", (due, next_due, job.name))
    run = replace(run, is_once=bool(job.schedule.at))
    if job.action == "heartbeat":  # of beats that failed, only the last is of interest
        db.execute("UPDATE inbox SET state = 'done' WHERE channel = ? AND state = 'failed'", (job.channel,))
    known = db.execute("SELECT 1 FROM runs WHERE key = ? AND state != 'missed'", (run.key,)).fetchone()
    if known:  # the clock was set back
        return replace(run, is_run=False, note="It has run already.")
    running = "SELECT 1 FROM runs WHERE job = ? AND state = 'running'"
    if run.is_run and db.execute(running, (job.name,)).fetchone():
        run = replace(run, is_run=False, note="The run before it had not ended.")
    state: RunState = "running" if run.is_run else "missed"
    if run.is_run and job.action == "prompt":
        _, outcome = store.insert_message(db, make_message(run), "prompt")
        if outcome != "accepted":
            run, state = replace(run, is_run=False, note="Too many messages of its chat wait."), "failed"
    elif run.is_run and job.action == "message":
        text = f"{job.text}\n\n({run.note})" if run.note else job.text
        store.insert_parts(db, [NewPart(f"{run.key}.0", job.channel, job.chat, text, run.key)])
        state = "done"
    if not run.is_run and job.action != "heartbeat":
        told = f"The schedule {job.name} was left out. {run.note}"
        store.insert_parts(db, [NewPart(f"{run.key}.missed", job.channel, job.chat, told)])
    ended = 0.0 if state == "running" else now
    row = run.key, job.name, job.channel, job.chat, run.due, now, ended, state, 0.0, run.note
    db.execute("INSERT OR REPLACE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
    return run


def _make_key(job: Job, due: float, word: str = "") -> str:
    return make_key(job.channel, ACCOUNT, _make_id(job, due, word))


def _make_id(job: Job, due: float, word: str = "") -> str:
    return f"{job.name}.{due:.3f}{word}"


def _describe_late(run: DueRun, now: float) -> DueRun:
    """Return a late run with a note, left out if the job wants that."""
    missed = count_missed(run.job.schedule, run.due, now, 100)
    more = f" and {pluralize(missed - 1, 'time')} since then" if missed > 1 else ""
    when = format_local(run.due, run.job.schedule.timezone)
    note = f"It was due at {when}{more}, when Odin did not run or the computer slept."
    return replace(run, is_run=run.job.missed == "once", note=note)


def make_message(run: DueRun, text: str = "") -> InboundMessage:
    """Return the message that a run puts into the inbox."""
    job = run.job
    word = "" if run.key == _make_key(job, run.due) else "asked"
    return InboundMessage(
        channel=job.channel,
        id=_make_id(job, run.due, word),
        account=ACCOUNT,
        sender=f"schedule:{job.name}",
        sender_name=job.name,
        chat=job.chat,
        text=text or job.text,
        origin=MessageOrigin("schedule", job.name, job.right, job.maker, run.note),
        options=MessageOptions(history=job.history),
    )


def recompute(store: GatewayStore, now: float) -> None:
    """Let nothing wait for a time that the clock, since it was set back, reaches much later."""
    with store.transact() as db:
        for body, last, due in db.execute("SELECT job, last, due FROM jobs WHERE due IS NOT NULL").fetchall():
            job = _decode(body)
            next_due = find_next(job.schedule, last, now)
            if next_due is not None and due > next_due:
                db.execute("UPDATE jobs SET due = ? WHERE name = ?", (next_due, job.name))
        db.execute("UPDATE outbox SET due = 0 WHERE state = 'pending'")


def recover_runs(store: GatewayStore, now: float) -> list[JobRun]:
    """Return the runs of which nobody knows how they ended, because the gateway was killed, and tell their chats.

    A prompt is not among them: it waits in the inbox, and is answered once.
    """
    with store.transact() as db:
        rows = db.execute(
            "SELECT * FROM runs r WHERE state = 'running' AND NOT EXISTS"
            " (SELECT 1 FROM inbox i WHERE i.key = r.key AND i.state IN ('received', 'claimed'))"
        ).fetchall()
        runs = [msgspec.convert(row, JobRun, strict=False) for row in rows]
        for run in runs:
            db.execute("UPDATE runs SET state = 'unsure', ended = ?, note = ? WHERE key = ?", (now, _UNSURE, run.key))
            text = f"The schedule {run.job} may have run, in part or in full. {_UNSURE}"
            if run.channel != HEARTBEAT:
                store.insert_parts(db, [NewPart(f"{run.key}.unsure", run.channel, run.chat, text)])
    return runs


def end_run(
    store: GatewayStore,
    key: str,
    now: float,
    *,
    note: str = "",
    state: RunState = "done",
    parts: Sequence[NewPart] = (),
) -> None:
    """Store how a run has ended that no model was asked in, and what is sent because of it."""
    with store.transact() as db:
        values: tuple[Any, ...] = (state, now, clip_line(note), key)
        db.execute("UPDATE runs SET state = ?, ended = ?, note = ? WHERE key = ?", values)
        store.insert_parts(db, parts)


def get_run_cost_today(store: GatewayStore, job: str, midnight: float) -> float:
    with store.transact() as db:
        found = "SELECT coalesce(sum(usd), 0) FROM runs WHERE job = ? AND started >= ?"
        return db.execute(found, (job, midnight)).fetchone()[0]
