"""Going to another session, to a copy, or back in this one; and what can be done to sessions from here.

Commands about the work that runs or waits, and about what was said.
"""

import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from odin.core.client import Client, SessionInfo
from odin.core.errors import SessionNotFound, UsageError
from odin.core.event import Envelope, Mode, Redone, Rewound
from odin.core.message import Attachment
from odin.core.op import CancelCompaction, Compact, Continue, Redo, RemoveLastMessage, Rewind, SetLoop
from odin.ui.slash_commands.prompts import (
    change_queued_prompt,
    describe_loop_status,
    describe_rewind,
    parse_force,
    parse_rewind,
)
from odin.ui.slash_commands.sessions import parse_export
from odin.ui.terminal import escape_hidden
from odin.ui.tui.composer.draft import PromptDraft
from odin.ui.tui.format import shorten_home

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp


class NavigationCommands:
    """Also told of what happens: what a rewind did to files is said when it is done, whoever asked for it."""

    def __init__(self, app: "OdinApp") -> None:
        self._app = app

    def build_table(self) -> dict[str, Callable[[str], Awaitable[None]]]:
        return {
            "new": self._start_new,
            "resume": self._resume,
            "fork": self._fork,
            "sessions": self._show_sessions,
            "rename": self._rename,
            "delete": self._delete,
            "export": self._export,
        }

    # --- as a watcher ---

    def enter_session(self, client: Client, info: SessionInfo) -> None:
        return None

    def handle_event(self, envelope: Envelope, live: bool) -> None:
        event = envelope.event
        if live and isinstance(event, Rewound | Redone):
            cwd = self._app.info.cwd if self._app.info else "."
            self._app.show_toast(describe_rewind(event, cwd).rstrip(), "warn" if event.skipped_files else "info")

    def draw_frame(self) -> None:
        return None

    # --- other sessions ---

    async def _start_new(self, rest: str) -> None:
        async with self._app.input_panel.submit_queue.pause():
            await self._app.sessions.open_new()
            await self._app.show_session()

    async def _resume(self, rest: str) -> None:
        if rest:
            await self.resume_session(rest)
        else:
            self.choose_session()

    async def resume_session(self, session: str) -> None:
        """Whatever is wrong with it, the session that is open stays."""
        async with self._app.input_panel.submit_queue.pause():
            await self._app.sessions.resume(session)
            await self._app.show_session()
        shot = await self._app.client.snapshot()
        count = "1 prompt" if len(shot.messages) == 1 else f"{len(shot.messages)} prompts"
        self._app.show_toast(f"Resumed {escape_hidden(shot.title or 'a session without a title')}, {count}.")

    def choose_session(self, words: str = "") -> None:
        from odin.ui.tui.dialogs.sessions import SessionPicker

        self._app.push_screen(SessionPicker(words), self._open_choice)

    def _open_choice(self, answer: str | None) -> None:
        if answer:
            verb, _, session = answer.rpartition(" ")
            self._app.run_in_background(self.fork(session=session) if verb else self._open_session(session))

    async def _open_session(self, session: str) -> None:
        if self._app.info is None or session != self._app.info.session:
            await self.resume_session(session)

    async def _fork(self, rest: str) -> None:
        turn = ""
        if rest:
            turns = (await self._app.client.snapshot()).messages
            if not rest.isdecimal() or not 1 <= int(rest) <= len(turns):
                raise UsageError(
                    f"There is no prompt number {rest} to fork at.", "/rewind lists them; 1 is the last one."
                )
            turn = turns[-int(rest)].id
        await self.fork(turn)

    async def fork(self, turn: str = "", session: str = "") -> None:
        """Go on in a copy of the open session or of another; the prompt that was left out comes into the composer.

        When the other one cannot be copied it is the one that is open.
        """
        async with self._app.input_panel.submit_queue.pause():
            here = self._app.client
            try:
                if session and session != (await here.get_info()).session:
                    await self._app.sessions.resume(session)
                _, left = await self._app.sessions.fork(turn)
            finally:
                if self._app.client is not here:
                    await self._app.show_session()
        self.edit_prompt(left)
        self._app.show_toast("This is now a copy. The original stays as it was.")

    def edit_prompt(self, text: str) -> None:
        """A prompt that came back, to be edited."""
        if text:
            self._app.composer.restore_draft(PromptDraft(text))
        self._app.composer.focus()

    async def _show_sessions(self, rest: str) -> None:
        self.choose_session(rest)

    async def _rename(self, rest: str) -> None:
        if not rest:
            raise UsageError("/rename needs a title.", "Write /rename TITLE.")
        await self._app.sessions.rename((await self._app.client.get_info()).session, rest)
        self._app.show_toast(f"This session is now called {escape_hidden(rest)}")

    async def _delete(self, rest: str) -> None:
        """A whole id deletes it; anything else is looked for in the list, where deleting is asked about."""
        if not rest:
            raise UsageError("/delete needs the id of a session.", "/sessions lists them.")
        if not any(item.id == rest for item in await self._app.sessions.list_sessions()):
            self.choose_session(rest)
            return
        await self._app.sessions.delete(rest)
        self._app.show_toast(f"Deleted session {rest}.")

    async def _export(self, rest: str) -> None:
        form, path = parse_export(rest.split())
        info = await self._app.client.get_info()
        there = str(Path(info.cwd, Path(path).expanduser())) if path else ""
        written = await self._app.sessions.export(info.session, form, there)
        self._app.show_toast(f"Written to {escape_hidden(shorten_home(written))}")

    # --- back in this one ---

    def show_contents(self) -> None:
        from odin.ui.tui.dialogs.history import ContentsDialog

        def chosen(turn: str | None) -> None:
            if turn:
                self._app.run_in_background(self.fork(turn))

        self._app.push_screen(ContentsDialog(self._app.transcript.blocks), chosen)

    def choose_rewind(self) -> None:
        from odin.ui.tui.dialogs.history import RewindPicker

        self._app.push_screen(RewindPicker(), self._choose_rewind_scope)

    def _choose_rewind_scope(self, turn: str | None) -> None:
        if turn == "redo":
            self._app.run_in_background(self._redo())
        elif turn:
            from odin.ui.tui.dialogs.history import RewindScopePicker, make_rewind

            def chosen(how: str | None) -> None:
                if how:
                    self._app.run_in_background(self.rewind(make_rewind(turn, how)))

            self._app.push_screen(RewindScopePicker(turn), chosen)

    async def _redo(self) -> None:
        await self._app.client.submit(Redo())

    async def rewind(self, op: Rewind) -> None:
        turns = (await self._app.client.snapshot()).messages
        text = next((turn.body for turn in turns if turn.id == op.turn), None)
        if text is None:
            raise SessionNotFound("This prompt is no longer in the conversation.")
        if await self._app.client.submit(op) and op.chat:
            self.edit_prompt(text)


_NO_SUMMARY = "No summary is made: there is too little to summarise, one is being made already, or a hook said no."


class TurnCommands:
    def __init__(self, app: "OdinApp", moving: "NavigationCommands") -> None:
        self._app = app
        self._navigation = moving

    def build_table(self) -> dict[str, Callable[[str], Awaitable[None]]]:
        return {
            "queue": self._handle_queue,
            "continue": self._continue,
            "loop": self._handle_loop,
            "compact": self._compact,
            "forget": self._forget_last,
            "rewind": self._rewind,
            "undo": self._undo,
            "redo": self._redo,
        }

    def build_prompt_table(self) -> dict[str, Callable[[str, Sequence[Attachment]], Awaitable[None]]]:
        """Those whose words go to the model."""
        return {
            "ask": lambda rest, attached: self._send_in_mode("ask_mode", rest, attached),
            "plan": lambda rest, attached: self._send_in_mode("plan_mode", rest, attached),
            "edit": lambda rest, attached: self._send_in_mode("edit_mode", rest, attached),
            "steer": self._steer,
        }

    async def _send_in_mode(self, mode: Mode, rest: str, attached: Sequence[Attachment]) -> None:
        self._app.mode = mode
        self._app.is_mode_chosen = True
        if rest or attached:
            await self._app.send_prompt(rest, attached=attached)

    async def _handle_queue(self, rest: str) -> None:
        if rest:
            self._app.show_toast(await change_queued_prompt(self._app.client, rest))
        else:
            await self._app.run_action("queue")

    async def _steer(self, rest: str, attached: Sequence[Attachment]) -> None:
        if not rest and not attached:
            raise UsageError("/steer needs words.", "Write /steer TEXT.")
        await self._app.send_prompt(rest, "steer", attached)

    async def _continue(self, rest: str) -> None:
        await self._app.client.submit(Continue(os.urandom(6).hex()))

    async def _handle_loop(self, rest: str) -> None:
        verb, _, target = rest.partition(" ")
        client = self._app.client
        if verb == "on":
            await client.submit(SetLoop(True, target.strip(), self._app.mode))
        elif verb == "off":
            if not await client.submit(SetLoop(False)):
                self._app.show_toast("Loop mode is off already.")
                return
        elif verb:
            raise UsageError(f"/loop does not know {verb!r}.", "Write /loop on [GOAL], /loop off, or /loop alone.")
        self._app.show_toast(describe_loop_status(await client.get_loop_status()))

    async def _compact(self, rest: str) -> None:
        if rest == "cancel":
            given_up = await self._app.client.submit(CancelCompaction())
            self._app.show_toast("The summary was given up." if given_up else "No summary is being made.")
        elif not await self._app.client.submit(Compact(rest)):
            self._app.show_toast(_NO_SUMMARY, "warn")

    async def _forget_last(self, rest: str) -> None:
        removed = await self._app.client.submit(RemoveLastMessage())
        said = "The last message was taken out of the conversation." if removed else "There is no message to forget."
        self._app.show_toast(said)

    async def _rewind(self, rest: str) -> None:
        if rest:
            await self._rewind_to(rest, "/rewind")
        else:
            self._navigation.choose_rewind()

    async def _undo(self, rest: str) -> None:
        await self._rewind_to(rest, "/undo")

    async def _rewind_to(self, rest: str, command: str) -> None:
        turns = (await self._app.client.snapshot()).messages
        await self._navigation.rewind(parse_rewind(rest.split(), turns, command))

    async def _redo(self, rest: str) -> None:
        await self._app.client.submit(Redo(force=parse_force(rest.split())))
