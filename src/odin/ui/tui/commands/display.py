"""Commands about the screen itself: colours, the mouse, copying, leaving."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from odin.core.errors import UsageError
from odin.core.screen import ThemeName
from odin.ui.tui.composer.outside import run_outside
from odin.ui.tui.story.block import AnswerBlock
from odin.ui.tui.terminal.mouse import set_mouse

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp

_THEMES: dict[str, ThemeName] = {"auto": "auto", "dark": "dark", "light": "light"}
_PAGER = "less"


class DisplayCommands:
    def __init__(self, app: "OdinApp") -> None:
        self._app = app

    def table(self) -> dict[str, Callable[[str], Awaitable[None]]]:
        return {
            "copy": self._copy,
            "transcript": self._transcript,
            "theme": self._theme,
            "mouse": self._mouse,
            "vim": self._vim,
            "editor": self._editor,
            "exit": self._exit,
        }

    async def _copy(self, rest: str) -> None:
        number = int(rest) if rest.isdecimal() and len(rest) < 7 else 0 if rest else 1
        blocks = self._app.transcript.blocks
        answers = [block.text for block in blocks if isinstance(block, AnswerBlock) and block.text.strip()]
        if not 1 <= number <= len(answers):
            raise UsageError(
                f"There is no answer number {rest} to copy." if rest else "There is no answer to copy yet.",
                "1 is the last one.",
            )
        self._app.copy_to_clipboard(answers[-number])
        self._app.tell("The answer was copied." if number == 1 else f"Answer {number} from the end was copied.")

    async def _transcript(self, rest: str) -> None:
        """The whole conversation in $PAGER."""
        import os
        import shlex
        import tempfile

        from odin.ui.tui.leaving import print_transcript
        from odin.ui.tui.palette import palette

        pager = shlex.split(os.environ.get("PAGER", "")) or [_PAGER]
        with tempfile.TemporaryDirectory(prefix="odin-transcript-") as folder:
            path = Path(folder, "transcript.txt")
            with path.open("w", encoding="utf-8", errors="replace") as file:
                print_transcript(self._app.transcript.blocks, palette(self._app.current_theme), file)
            await run_outside(self._app, [*pager, str(path)])

    async def _theme(self, rest: str) -> None:
        if not rest:
            rest = "light" if self._app.current_theme.dark else "dark"
        name = _THEMES.get(rest.casefold())
        if name is None:
            raise UsageError(f"There is no theme {rest!r}.", "Write /theme dark, /theme light or /theme auto.")
        self._app.set_look(name)

    async def _mouse(self, rest: str) -> None:
        on = _on(rest, not self._app.settings.mouse, "/mouse")
        self._app.settings = replace(self._app.settings, mouse=on)
        set_mouse(self._app, on)
        self._app.tell(
            "Clicks and the wheel are Odin's again." if on else "The mouse is the terminal's now: select as usual."
        )

    async def _vim(self, rest: str) -> None:
        on = _on(rest, not self._app.settings.vim, "/vim")
        self._app.settings = replace(self._app.settings, vim=on)
        stop, write = self._app.keys.shown("stop"), self._app.keys.shown("write")
        how = f"{stop} leaves the prompt for the conversation; {write} comes back."
        self._app.tell(how if on else "Vim-style navigation is off.")

    async def _editor(self, rest: str) -> None:
        await self._app.composer.run_action("edit_outside")

    async def _exit(self, rest: str) -> None:
        self._app.exit(0)


def _on(word: str, other: bool, command: str) -> bool:
    """What was written, or else the other of what holds."""
    if word.casefold() in ("on", "off"):
        return word.casefold() == "on"
    if word:
        raise UsageError(f"{command} does not know {word!r}.", f"Write {command} on or {command} off.")
    return other
