"""Commands about the work that runs or waits, and about what was said."""

import os
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from odin.core.attachment import Attachment
from odin.core.errors import UsageError
from odin.core.event import Mode
from odin.core.op import CancelCompaction, Compact, Continue, Redo, RemoveLastMessage, SetLoop
from odin.ui.commands.loop import describe_loop_status
from odin.ui.commands.rewind import parse_force, parse_rewind
from odin.ui.commands.waiting import change_queued_prompt

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp
    from odin.ui.tui.commands.moving import NavigationCommands

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
