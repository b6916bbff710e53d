"""Commands of the user's own in a conversation: `!make test`. What they print is shown as it comes."""

import os
from typing import TextIO

from odin.core.client import Client
from odin.core.event import ContextAdded, Event, ToolProgressed
from odin.core.op import RunUserShell
from odin.ui.terminal import escape_control, write_text


class UserShellView:
    """Those that run, with what was shown of each."""

    def __init__(self, err: TextIO) -> None:
        self._err = err
        self._shown: dict[str, str] = {}

    @property
    def is_running(self) -> bool:
        return bool(self._shown)

    async def start(self, client: Client, command: str) -> None:
        op = RunUserShell(os.urandom(6).hex(), command)
        self._shown[op.id] = ""
        try:
            await client.submit(op)
        except BaseException:
            del self._shown[op.id]
            raise

    def wants(self, event: Event) -> bool:
        """Whether there is something to show of one of them."""
        if isinstance(event, ToolProgressed):
            return event.call_id in self._shown
        return isinstance(event, ContextAdded) and event.id in self._shown

    def show(self, event: Event) -> None:
        if isinstance(event, ToolProgressed):
            text = f"{event.text}\n"
            self._shown[event.call_id] += text
        elif isinstance(event, ContextAdded):
            shown = self._shown.pop(event.id)
            whole = f"{event.content}\n"
            text = whole.removeprefix(shown)
        else:
            return
        write_text(self._err, escape_control(text))
