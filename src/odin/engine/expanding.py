"""Custom commands become what they stand for when they are submitted, whichever front end they come from.

What was typed stays beside it, for people to see. Text that begins with a slash and names no command is just text.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from odin.core.client import CustomCommand
from odin.core.event import Warned
from odin.engine.recorder import Recorder

if TYPE_CHECKING:
    from odin.context.library import CommandLibrary, CommandText


class CommandExpander:
    """`library` is made when it is first needed. In a folder that is not `trusted` it is told when the project's
    command took the place of one of the user's own."""

    def __init__(self, library: "Callable[[], CommandLibrary]", recorder: Recorder, *, trusted: bool) -> None:
        self._make_library = library
        self._loaded: CommandLibrary | None = None
        self._recorder = recorder
        self._trusted = trusted

    async def expand(self, text: str, shown: str = "") -> tuple[str, str]:
        """What the model reads, and what people see of it where that is another."""
        if shown:
            return text, "" if shown == text else shown
        if not text.lstrip().startswith("/"):
            return text, ""
        library = self._get_library()
        found = await asyncio.to_thread(library.find, text)
        self._warn(library.take_warnings())
        if found is None:
            return text, ""
        command, arguments = found
        self._warn_if_overridden(command)
        return command.fill(arguments), text.strip()

    async def list_commands(self) -> tuple[CustomCommand, ...]:
        library = self._get_library()
        found = await asyncio.to_thread(library.list_commands)
        self._warn(library.take_warnings())
        return found

    def _get_library(self) -> "CommandLibrary":
        if self._loaded is None:
            self._loaded = self._make_library()
        return self._loaded

    def _warn_if_overridden(self, text: "CommandText") -> None:
        if text.overridden_path and not self._trusted:
            whose = f"/{text.command.name} is the project's ({text.path}), not yours ({text.overridden_path})."
            self._recorder.emit(Warned(whose, "info"))

    def _warn(self, warnings: list[str]) -> None:
        for warning in warnings:
            self._recorder.emit(Warned(warning))
