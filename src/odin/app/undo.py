"""`odin undo` and `odin redo`: a session that is open nowhere goes back to before a prompt, without any model."""

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from odin.app.checkpoints import Checkpoints
from odin.bus.hub import Hub
from odin.config import current_folder, home_dir, load, state_dir
from odin.core.client import TurnRecord
from odin.core.errors import SessionLocked, SessionNotFound, UsageError
from odin.core.event import FileChange, KeptFile
from odin.core.op import Redo, Rewind
from odin.engine.files.rewind import FOREIGN, SHARED
from odin.engine.recorder import Recorder
from odin.session.log import SessionLog, read_log
from odin.session.state import State
from odin.session.store import Store

FORWARD = "forward again to before the undo"
_SHOWN = 50
_TEXT = 60


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks for. `to` is a prompt's id, or its number counted from the last one."""

    cwd: str = ""
    session: str = ""
    to: str = "1"
    files: bool = True
    chat: bool = True
    force: bool = False
    dry_run: bool = False
    json: bool = False


class PromptRow(msgspec.Struct, frozen=True):
    number: int
    id: str
    when: str
    text: str
    files: int


class Report(msgspec.Struct, frozen=True):
    """What was done, or with `dry_run` what would be. Paths are absolute."""

    session: str
    way: str
    restored: tuple[str, ...]
    removed: tuple[str, ...]
    kept: tuple[KeptFile, ...]
    chat: bool
    dry_run: bool = False

    def answer(self, wish: Wish) -> tuple[str, int]:
        """What to print, and the exit code: 1 when something was left alone."""
        code = 1 if self.kept else 0
        return (_as_json(self) if wish.json else self._lines(wish.cwd or current_folder())), code

    def _lines(self, cwd: str) -> str:
        """For people, with paths as they would type them."""

        def shown(path: str) -> str:
            return _visible(os.path.relpath(path, cwd))

        lines = [f"{'Would go' if self.dry_run else 'Went'} {self.way}."]
        would = "would be " if self.dry_run else ""
        lines += _some([f"{would}restored    {shown(path)}" for path in self.restored])
        lines += _some([f"{would}removed     {shown(path)}" for path in self.removed])
        lines += _some([f"{would}left alone  {shown(file.path)} ({file.reason})" for file in self.kept])
        if self.chat:
            lines.append(f"The conversation {'would go' if self.dry_run else 'went'} with it.")
        if self.way != FORWARD and not self.dry_run and any(file.reason in (FOREIGN, SHARED) for file in self.kept):
            lines.append("To take what was left alone back too: `odin redo`, then `odin undo --force`.")
        return "\n".join(lines) + "\n"


def _some(lines: list[str]) -> list[str]:
    """As many as a person reads."""
    if len(lines) <= _SHOWN:
        return lines
    return [*lines[:_SHOWN], f"... and {len(lines) - _SHOWN} more of {len(lines)} (all of them with --json)"]


def _as_json(value: Any) -> str:
    return msgspec.json.encode(value).decode() + "\n"


class _Session:
    """One session's log, held so that nobody else writes to it meanwhile."""

    def __init__(self, wish: Wish) -> None:
        cwd = os.path.realpath(wish.cwd or current_folder())
        if not Path(cwd).is_dir():
            raise UsageError(f"There is no folder {cwd}.", "Name an existing one with --cwd.")
        config = load(cwd, os.environ, {})
        store = Store(state_dir(os.environ), config.root)
        self.log = _held(store, wish.session or _latest(store, config.root))
        self.state = State.fold(read_log(self.log.path), self.log.session)
        self.recorder = Recorder(self.log, self.state, Hub())
        self.rewinder = Checkpoints(config, self.recorder, self.log.path, str(home_dir(os.environ))).rewinder()

    def prompt(self, to: str) -> TurnRecord:
        turns = self.state.turns
        if not turns:
            raise UsageError(f"Session {self.log.session} has no prompt to take back.")
        named = [turn for turn in turns if turn.id == to]
        if named:
            return named[-1]
        if not to.isdecimal() or not 1 <= int(to) <= len(turns):
            raise UsageError(f"There is no prompt {to!r} in session {self.log.session}.", "See `odin undo --list`.")
        return turns[-int(to)]


def _latest(store: Store, root: str) -> str:
    try:
        return store.latest()
    except SessionNotFound as error:
        hint = f"Sessions belong to a folder, and this one is {root}; name another with --cwd."
        raise SessionNotFound(str(error), hint) from error


def _held(store: Store, session: str) -> SessionLog:
    log = store.open(session)
    try:
        log.hold()
    except SessionLocked as error:
        raise SessionLocked(str(error), "Use /rewind there, or close it first.") from error
    return log


def list_prompts(wish: Wish) -> str:
    """The prompts that can be taken back, the last one first."""
    session = _Session(wish)
    session.recorder.close()
    rows = [_row(number, turn) for number, turn in enumerate(reversed(session.state.turns), 1)]
    if wish.json:
        return _as_json(rows)
    return "".join(
        f"{row.number:>3}  {row.when}  {row.files:>4} {'file ' if row.files == 1 else 'files'}  {_short(row.text)}\n"
        for row in rows
    )


def _row(number: int, turn: TurnRecord) -> PromptRow:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(turn.started))
    return PromptRow(number, turn.id, when, " ".join(turn.body.split()) or "(continued)", turn.files)


async def undo(wish: Wish) -> tuple[str, int]:
    session = _Session(wish)
    try:
        turn = session.prompt(wish.to)
        op = Rewind(turn.id, files=wish.files, chat=wish.chat, force=wish.force)
        way = f'back to before "{_short(turn.body or "(continued)")}"'
        if wish.dry_run:
            plan = await session.rewinder.plan(op)
            return _report(session, way, plan.changes, plan.kept, wish.chat, dry_run=True).answer(wish)
        event = await session.rewinder.rewind(op)
        return _report(session, way, event.changes, event.kept, wish.chat).answer(wish)
    finally:
        session.recorder.close()


async def redo(wish: Wish) -> tuple[str, int]:
    session = _Session(wish)
    op = Redo(force=wish.force)
    try:
        undone, plan = await session.rewinder.plan_redo(op)
        if wish.dry_run:
            return _report(session, FORWARD, plan.changes, plan.kept, undone.chat, dry_run=True).answer(wish)
        event = await session.rewinder.redo(op)
        return _report(session, FORWARD, event.changes, event.kept, undone.chat).answer(wish)
    finally:
        session.recorder.close()


def _report(
    session: _Session,
    way: str,
    changes: Sequence[FileChange],
    kept: Sequence[KeptFile],
    chat: bool,
    *,
    dry_run: bool = False,
) -> Report:
    paths = sorted((change.after.path, change.after.kind == "absent") for change in changes)
    return Report(
        session=session.log.session,
        way=way,
        restored=tuple(path for path, gone in paths if not gone),
        removed=tuple(path for path, gone in paths if gone),
        kept=tuple(kept),
        chat=chat,
        dry_run=dry_run,
    )


def _short(text: str) -> str:
    line = _visible(" ".join(text.split()))
    return line if len(line) <= _TEXT else line[: _TEXT - 1] + "…"


def _visible(text: str) -> str:
    """Names and prompts may hold what would command a terminal; that is written out."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
