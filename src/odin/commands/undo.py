"""`odin undo` and `odin redo`: rewind a session that is not open, or revert that. No model is involved."""

import argparse
import asyncio
import os
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from odin.checkpoints.rewind import CHANGED_BY_OTHERS, CHANGED_IN_BACKGROUND
from odin.checkpoints.session_checkpoints import SessionCheckpoints
from odin.commands.command_line import Parser, make_formatter, write_output
from odin.config import get_current_folder, get_state_dir, load, resolve_folder
from odin.config.paths import find_worktree_origin, make_environment
from odin.core.client import TurnRecord
from odin.core.errors import SessionLocked, SessionNotFound, UsageError
from odin.core.event_values import FileChange, SkippedFile
from odin.core.format import clip
from odin.core.op import Redo, Rewind
from odin.engine.event_bus import EventBus
from odin.engine.recorder import Recorder
from odin.session.log import read_log
from odin.session.state import SessionState
from odin.session.store import SessionStore
from odin.ui.terminal import escape_control

REDO_DIRECTION = "to before the undo"
_MAX_LINES = 50
_PROMPT_CHARS = 60
MAIN_AGENT = "main"


class UndoRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The options of one run. `to` is the ID of a prompt, or its number counted from the last.

    `agent` limits it to the files that one agent changed.
    """

    cwd: str = ""
    session: str = ""
    to: str = "1"
    files: bool = True
    chat: bool = True
    force: bool = False
    dry_run: bool = False
    json: bool = False
    agent: str = ""


class UndoReport(msgspec.Struct, frozen=True):
    """What was done, or with `dry_run` would be done. Paths are absolute."""

    session: str
    way: str
    restored: tuple[str, ...]
    removed: tuple[str, ...]
    kept: tuple[SkippedFile, ...]
    chat: bool
    dry_run: bool = False

    def render_lines(self, cwd: str) -> str:
        def shorten(path: str) -> str:
            return _escape_control_chars(os.path.relpath(path, cwd))

        lines = [f"{'Would go back' if self.dry_run else 'Went back'} {self.way}."]
        would = "would be " if self.dry_run else ""
        lines += _limit_lines([f"{would}restored  {shorten(path)}" for path in self.restored])
        lines += _limit_lines([f"{would}removed   {shorten(path)}" for path in self.removed])
        lines += _limit_lines([f"{would}skipped   {shorten(file.path)} ({file.reason})" for file in self.kept])
        if self.chat:
            lines.append(f"The conversation {'would be' if self.dry_run else 'was'} rewound, too.")
        if (
            self.way != REDO_DIRECTION
            and not self.dry_run
            and any(file.reason in (CHANGED_BY_OTHERS, CHANGED_IN_BACKGROUND) for file in self.kept)
        ):
            lines.append("To restore the skipped files too: `odin redo`, then `odin undo --force`.")
        return "\n".join(lines) + "\n"


def _limit_lines(lines: list[str]) -> list[str]:
    if len(lines) <= _MAX_LINES:
        return lines
    return [*lines[:_MAX_LINES], f"... and {len(lines) - _MAX_LINES} more of {len(lines)} (--json prints all)"]


def _as_json(value: Any) -> str:
    return msgspec.json.encode(value).decode() + "\n"


class _LockedSession:
    """A session whose log is locked, so that no other process writes to it."""

    def __init__(self, request: UndoRequest) -> None:
        config = load(resolve_folder(request.cwd), os.environ, {})
        store = SessionStore(get_state_dir(os.environ), find_worktree_origin(config.root, get_state_dir(os.environ)))
        log = store.open(request.session or _find_latest(store, config.root))
        try:
            log.hold()
        except SessionLocked as error:
            raise SessionLocked(str(error), "Use /rewind there, or close that session.") from error
        self.log = log
        self.state = SessionState.fold(read_log(self.log.path), self.log.session)
        self.prompts = self.state.snapshot().prompts
        self.recorder = Recorder(self.log, self.state, EventBus())
        environment = make_environment(cwd=request.cwd)
        self.rewinder = SessionCheckpoints(config, self.recorder, self.log.path, environment).make_rewinder()

    def find_prompt(self, to: str) -> TurnRecord:
        turns = self.prompts
        if not turns:
            raise UsageError(f"Session {self.log.session} has no prompts to undo.")
        named = [turn for turn in turns if turn.id == to]
        if named:
            return named[-1]
        if not to.isdecimal() or not 1 <= int(to) <= len(turns):
            raise UsageError(
                f"No prompt {to!r} in session {self.log.session}.", "`odin undo --list` lists the prompts."
            )
        return turns[-int(to)]

    def find_agent(self, name: str, turn: str) -> str:
        """Return the agent of this name that has changed files since a prompt. Raise UsageError if there is none."""
        changes = self.state.list_changes_since(turn) or ()
        agents = sorted({agent for change in changes for agent in change.agents})
        agent = "" if name == MAIN_AGENT else name
        if agent not in agents:
            named = ", ".join(agent or MAIN_AGENT for agent in agents) or "none"
            raise UsageError(f"{name} has changed no files since that prompt.", f"Agents that have: {named}.")
        return agent


def _find_latest(store: SessionStore, root: str) -> str:
    try:
        return store.find_latest()
    except SessionNotFound as error:
        hint = f"The current project is {root}; use --cwd for another."
        raise SessionNotFound(str(error), hint) from error


def list_prompts(request: UndoRequest) -> str:
    """Return the prompts that can be undone, last first."""
    session = _LockedSession(request)
    session.recorder.close()
    rows: list[dict[str, str | int]] = []
    lines = ""
    for number, turn in enumerate(reversed(session.prompts), 1):
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(turn.started))
        text = " ".join(turn.body.split()) or "(continued)"
        rows.append({"number": number, "id": turn.id, "when": when, "text": text, "files": turn.files})
        files = f"{turn.files:>4} {'file ' if turn.files == 1 else 'files'}"
        lines += f"{number:>3}  {when}  {files}  {_shorten_prompt(text)}\n"
    return _as_json(rows) if request.json else lines


async def undo(request: UndoRequest) -> tuple[str, int]:
    session = _LockedSession(request)
    try:
        turn = session.find_prompt(request.to)
        agent = session.find_agent(request.agent, turn.id) if request.agent else None
        op = Rewind(turn.id, files=request.files, chat=request.chat, force=request.force, only_agent=agent)
        way = f'to before "{_shorten_prompt(turn.body or "(continued)")}"'
        way += f" in the files of {request.agent}" if request.agent else ""
        if request.dry_run:
            plan = await session.rewinder.plan(op)
            return _render_answer(session, request, way, plan.changes, plan.kept, request.chat)
        event = await session.rewinder.rewind(op)
        return _render_answer(session, request, way, event.changes, event.skipped_files, request.chat)
    finally:
        session.recorder.close()


async def redo(request: UndoRequest) -> tuple[str, int]:
    session = _LockedSession(request)
    op = Redo(force=request.force)
    try:
        undone, plan = await session.rewinder.plan_redo(op)
        if request.dry_run:
            return _render_answer(session, request, REDO_DIRECTION, plan.changes, plan.kept, undone.chat)
        event = await session.rewinder.redo(op)
        return _render_answer(session, request, REDO_DIRECTION, event.changes, event.skipped_files, undone.chat)
    finally:
        session.recorder.close()


def _render_answer(
    session: _LockedSession,
    request: UndoRequest,
    way: str,
    changes: Sequence[FileChange],
    kept: Sequence[SkippedFile],
    chat: bool,
) -> tuple[str, int]:
    """Return the output and the exit code, which is 1 if files were skipped."""
    paths = sorted((change.after.path, change.after.kind == "absent") for change in changes)
    report = UndoReport(
        session=session.log.session,
        way=way,
        restored=tuple(path for path, gone in paths if not gone),
        removed=tuple(path for path, gone in paths if gone),
        kept=tuple(kept),
        chat=chat,
        dry_run=request.dry_run,
    )
    text = _as_json(report) if request.json else report.render_lines(request.cwd or get_current_folder())
    return text, 1 if kept else 0


def _shorten_prompt(text: str) -> str:
    line = _escape_control_chars(" ".join(text.split()))
    return clip(line, _PROMPT_CHARS)


def _escape_control_chars(text: str) -> str:
    """Escape characters in names and prompts that could control a terminal."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _build_parser(name: str, description: str) -> argparse.ArgumentParser:
    parser = Parser(prog=f"odin {name}", description=description, formatter_class=make_formatter)
    add = parser.add_argument
    add("--session", default="", metavar="ID", help="session (default: the latest of this project)")
    add("--force", action="store_true", help="also restore files that others have changed since")
    add("--dry-run", action="store_true", help="only print what would be done")
    parser.add_common_flags()
    return parser


def run_undo(argv: list[str]) -> int:
    parser = _build_parser("undo", "Undo a prompt: the conversation and its file changes.")
    add = parser.add_argument
    add(
        "--to",
        default="1",
        metavar="N|ID",
        help="go back to before the Nth last prompt, or the prompt with this ID (default: 1)",
    )
    add("--list", action="store_true", help="list the prompts that you can undo")
    add("--files", action="store_true", help="restore only the files")
    add("--chat", action="store_true", help="rewind only the conversation")
    add("--agent", default="", metavar="NAME", help="restore only the files that this agent changed (main, agent-1, …)")
    args = vars(parser.parse_args(argv))
    if args["agent"] and args["chat"]:
        raise UsageError("--agent and --chat cannot be combined.", "The work of one agent is undone in its files.")
    both = args["files"] == args["chat"] and not args["agent"]
    args["files"], args["chat"] = both or args["files"] or bool(args["agent"]), both or args["chat"]
    if args.pop("list"):
        return write_output(escape_control(list_prompts(UndoRequest(**args))))
    text, code = asyncio.run(undo(UndoRequest(**args)))
    return write_output(escape_control(text)) or code


def run_redo(argv: list[str]) -> int:
    args = _build_parser("redo", "Revert the last undo, if no prompt was sent since.").parse_args(argv)
    text, code = asyncio.run(redo(UndoRequest(**vars(args))))
    return write_output(escape_control(text)) or code
