"""`odin undo` and `odin redo`: a session that is open nowhere goes back to before a prompt, without any model.

`odin undo` and `odin redo`.
"""

import argparse
import asyncio
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from odin.checkpoints.rewind import CHANGED_BY_OTHERS, CHANGED_IN_BACKGROUND
from odin.checkpoints.session_checkpoints import SessionCheckpoints
from odin.commands.command_line import Parser, make_formatter, write_output
from odin.config import get_current_folder, get_home_dir, get_state_dir, load
from odin.core.client import TurnRecord
from odin.core.errors import SessionLocked, SessionNotFound, UsageError
from odin.core.event import FileChange, SkippedFile
from odin.core.op import Redo, Rewind
from odin.engine.event_bus import EventBus
from odin.engine.recorder import Recorder
from odin.session.log import SessionLog, read_log
from odin.session.state import SessionState
from odin.session.store import SessionStore

REDO_DIRECTION = "forward again to before the undo"
_MAX_LINES = 50
_PROMPT_CHARS = 60


class UndoRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line asks for. `to` is a prompt's id, or its number counted from the last one."""

    cwd: str = ""
    session: str = ""
    to: str = "1"
    files: bool = True
    chat: bool = True
    force: bool = False
    dry_run: bool = False
    json: bool = False


class UndoRow(msgspec.Struct, frozen=True):
    number: int
    id: str
    when: str
    text: str
    files: int


class UndoReport(msgspec.Struct, frozen=True):
    """What was done, or with `dry_run` what would be. Paths are absolute."""

    session: str
    way: str
    restored: tuple[str, ...]
    removed: tuple[str, ...]
    kept: tuple[SkippedFile, ...]
    chat: bool
    dry_run: bool = False

    def render_answer(self, wish: UndoRequest) -> tuple[str, int]:
        """What to print, and the exit code: 1 when something was left alone."""
        code = 1 if self.kept else 0
        return (_as_json(self) if wish.json else self._render_lines(wish.cwd or get_current_folder())), code

    def _render_lines(self, cwd: str) -> str:
        """For people, with paths as they would type them."""

        def shown(path: str) -> str:
            return _escape_control_chars(os.path.relpath(path, cwd))

        lines = [f"{'Would go' if self.dry_run else 'Went'} {self.way}."]
        would = "would be " if self.dry_run else ""
        lines += _limit_lines([f"{would}restored    {shown(path)}" for path in self.restored])
        lines += _limit_lines([f"{would}removed     {shown(path)}" for path in self.removed])
        lines += _limit_lines([f"{would}left alone  {shown(file.path)} ({file.reason})" for file in self.kept])
        if self.chat:
            lines.append(f"The conversation {'would go' if self.dry_run else 'went'} with it.")
        if (
            self.way != REDO_DIRECTION
            and not self.dry_run
            and any(file.reason in (CHANGED_BY_OTHERS, CHANGED_IN_BACKGROUND) for file in self.kept)
        ):
            lines.append("To take what was left alone back too: `odin redo`, then `odin undo --force`.")
        return "\n".join(lines) + "\n"


def _limit_lines(lines: list[str]) -> list[str]:
    """As many as a person reads."""
    if len(lines) <= _MAX_LINES:
        return lines
    return [*lines[:_MAX_LINES], f"... and {len(lines) - _MAX_LINES} more of {len(lines)} (all of them with --json)"]


def _as_json(value: Any) -> str:
    return msgspec.json.encode(value).decode() + "\n"


class _HeldSession:
    """One session's log, held so that nobody else writes to it meanwhile."""

    def __init__(self, wish: UndoRequest) -> None:
        cwd = os.path.realpath(wish.cwd or get_current_folder())
        if not Path(cwd).is_dir():
            raise UsageError(f"There is no folder {cwd}.", "Name an existing one with --cwd.")
        config = load(cwd, os.environ, {})
        store = SessionStore(get_state_dir(os.environ), config.root)
        self.log = _hold_log(store, wish.session or _find_latest(store, config.root))
        self.state = SessionState.fold(read_log(self.log.path), self.log.session)
        self.recorder = Recorder(self.log, self.state, EventBus())
        self.rewinder = SessionCheckpoints(
            config, self.recorder, self.log.path, str(get_home_dir(os.environ))
        ).make_rewinder()

    def find_prompt(self, to: str) -> TurnRecord:
        turns = self.state.turns
        if not turns:
            raise UsageError(f"Session {self.log.session} has no prompt to take back.")
        named = [turn for turn in turns if turn.id == to]
        if named:
            return named[-1]
        if not to.isdecimal() or not 1 <= int(to) <= len(turns):
            raise UsageError(f"There is no prompt {to!r} in session {self.log.session}.", "See `odin undo --list`.")
        return turns[-int(to)]


def _find_latest(store: SessionStore, root: str) -> str:
    try:
        return store.find_latest()
    except SessionNotFound as error:
        hint = f"Sessions belong to a folder, and this one is {root}; name another with --cwd."
        raise SessionNotFound(str(error), hint) from error


def _hold_log(store: SessionStore, session: str) -> SessionLog:
    log = store.open(session)
    try:
        log.hold()
    except SessionLocked as error:
        raise SessionLocked(str(error), "Use /rewind there, or close it first.") from error
    return log


def list_prompts(wish: UndoRequest) -> str:
    """The prompts that can be taken back, the last one first."""
    session = _HeldSession(wish)
    session.recorder.close()
    rows = [_undo_row_of(number, turn) for number, turn in enumerate(reversed(session.state.turns), 1)]
    if wish.json:
        return _as_json(rows)
    return "".join(
        f"{row.number:>3}  {row.when}  {row.files:>4} {'file ' if row.files == 1 else 'files'}  "
        f"{_shorten_prompt(row.text)}\n"
        for row in rows
    )


def _undo_row_of(number: int, turn: TurnRecord) -> UndoRow:
    when = time.strftime("%Y-%m-%d %H:%M", time.localtime(turn.started))
    return UndoRow(number, turn.id, when, " ".join(turn.body.split()) or "(continued)", turn.files)


async def undo(wish: UndoRequest) -> tuple[str, int]:
    session = _HeldSession(wish)
    try:
        turn = session.find_prompt(wish.to)
        op = Rewind(turn.id, files=wish.files, chat=wish.chat, force=wish.force)
        way = f'back to before "{_shorten_prompt(turn.body or "(continued)")}"'
        if wish.dry_run:
            plan = await session.rewinder.plan(op)
            return _build_report(session, way, plan.changes, plan.kept, wish.chat, dry_run=True).render_answer(wish)
        event = await session.rewinder.rewind(op)
        return _build_report(session, way, event.changes, event.skipped_files, wish.chat).render_answer(wish)
    finally:
        session.recorder.close()


async def redo(wish: UndoRequest) -> tuple[str, int]:
    session = _HeldSession(wish)
    op = Redo(force=wish.force)
    try:
        undone, plan = await session.rewinder.plan_redo(op)
        if wish.dry_run:
            return _build_report(
                session, REDO_DIRECTION, plan.changes, plan.kept, undone.chat, dry_run=True
            ).render_answer(wish)
        event = await session.rewinder.redo(op)
        return _build_report(session, REDO_DIRECTION, event.changes, event.skipped_files, undone.chat).render_answer(
            wish
        )
    finally:
        session.recorder.close()


def _build_report(
    session: _HeldSession,
    way: str,
    changes: Sequence[FileChange],
    kept: Sequence[SkippedFile],
    chat: bool,
    *,
    dry_run: bool = False,
) -> UndoReport:
    paths = sorted((change.after.path, change.after.kind == "absent") for change in changes)
    return UndoReport(
        session=session.log.session,
        way=way,
        restored=tuple(path for path, gone in paths if not gone),
        removed=tuple(path for path, gone in paths if gone),
        kept=tuple(kept),
        chat=chat,
        dry_run=dry_run,
    )


def _shorten_prompt(text: str) -> str:
    line = _escape_control_chars(" ".join(text.split()))
    return line if len(line) <= _PROMPT_CHARS else line[: _PROMPT_CHARS - 1] + "…"


def _escape_control_chars(text: str) -> str:
    """Names and prompts may hold what would command a terminal; that is written out."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _build_parser(name: str, description: str) -> argparse.ArgumentParser:
    parser = Parser(prog=f"odin {name}", description=description, formatter_class=make_formatter)
    add = parser.add_argument
    add("--session", default="", metavar="ID", help="that session instead of the latest one here")
    add("--force", action="store_true", help="also what somebody else changed since")
    add("--dry-run", action="store_true", help="only say what would be done")
    add("--json", action="store_true", help="print JSON")
    add("--cwd", default="", metavar="DIR", help="the project's folder")
    return parser


def run_undo(argv: list[str]) -> int:
    parser = _build_parser("undo", "Go back to before a prompt: its conversation and what it did to files.")
    add = parser.add_argument
    add("--to", default="1", metavar="N|ID", help="before the N-th last prompt, or the one of that id (1)")
    add("--list", action="store_true", help="the prompts that can be taken back")
    add("--files", action="store_true", help="only the files")
    add("--chat", action="store_true", help="only the conversation")
    args = vars(parser.parse_args(argv))
    from odin.ui.terminal import escape_control

    both = args["files"] == args["chat"]
    args["files"], args["chat"] = both or args["files"], both or args["chat"]
    if args.pop("list"):
        return write_output(escape_control(list_prompts(UndoRequest(**args))))
    text, code = asyncio.run(undo(UndoRequest(**args)))
    return write_output(escape_control(text)) or code


def run_redo(argv: list[str]) -> int:
    args = _build_parser("redo", "Take the last undo back, as long as nothing was asked since.").parse_args(argv)
    from odin.ui.terminal import escape_control

    text, code = asyncio.run(redo(UndoRequest(**vars(args))))
    return write_output(escape_control(text)) or code
