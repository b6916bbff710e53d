"""Commands about the screen itself: colours, the mouse, copying, leaving."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from odin.core.errors import UsageError
from odin.core.screen import ThemeSetting
from odin.ui.tui.composer.outside import run_in_terminal
from odin.ui.tui.story.block import AnswerBlock
from odin.ui.tui.terminal.mouse import set_mouse

if TYPE_CHECKING:
    from odin.ui.tui.app import OdinApp

_THEMES: dict[str, ThemeSetting] = {"auto": "auto", "dark": "dark", "light": "light"}
_PAGER = "less"


class DisplayCommands:
    def __init__(self, app: "OdinApp") -> None:
        self._app = app

    def build_table(self) -> dict[str, Callable[[str], Awaitable[None]]]:
        return {
            "copy": self._copy_answer,
            "transcript": self._show_transcript,
            "theme": self._set_theme,
            "mouse": self._set_mouse,
            "vim": self._set_vim,
            "editor": self._open_editor,
            "exit": self._exit,
        }

    async def _copy_answer(self, rest: str) -> None:
        number = int(rest) if rest.isdecimal() and len(rest) < 7 else 0 if rest else 1
        blocks = self._app.transcript.blocks
        answers = [block.text for block in blocks if isinstance(block, AnswerBlock) and block.text.strip()]
        if not 1 <= number <= len(answers):
            raise UsageError(
                f"There is no answer number {rest} to copy." if rest else "There is no answer to copy yet.",
                "1 is the last one.",
            )
        self._app.copy_to_clipboard(answers[-number])
        self._app.show_toast("The answer was copied." if number == 1 else f"Answer {number} from the end was copied.")

    async def _show_transcript(self, rest: str) -> None:
        """The whole conversation in $PAGER."""
        import os
        import shlex
        import tempfile

        from odin.ui.tui.leaving import print_transcript
        from odin.ui.tui.palette import make_palette

        pager = shlex.split(os.environ.get("PAGER", "")) or [_PAGER]
        with tempfile.TemporaryDirectory(prefix="odin-transcript-") as folder:
            path = Path(folder, "transcript.txt")
            with path.open("w", encoding="utf-8", errors="replace") as file:
                print_transcript(self._app.transcript.blocks, make_palette(self._app.current_theme), file)
            await run_in_terminal(self._app, [*pager, str(path)])

    async def _set_theme(self, rest: str) -> None:
        if not rest:
            rest = "light" if self._app.current_theme.dark else "dark"
        name = _THEMES.get(rest.casefold())
        if name is None:
            raise UsageError(f"There is no theme {rest!r}.", "Write /theme dark, /theme light or /theme auto.")
        self._app.choose_theme(name)

    async def _set_mouse(self, rest: str) -> None:
        on = _parse_on_off(rest, not self._app.settings.mouse, "/mouse")
        self._app.settings = replace(self._app.settings, mouse=on)
        set_mouse(self._app, on)
        self._app.show_toast(
            "Clicks and the wheel are Odin's again." if on else "The mouse is the terminal's now: select as usual."
        )

    async def _set_vim(self, rest: str) -> None:
        on = _parse_on_off(rest, not self._app.settings.vim, "/vim")
        self._app.settings = replace(self._app.settings, vim=on)
        stop, write = self._app.keys.label_of("stop"), self._app.keys.label_of("write")
        how = f"{stop} leaves the prompt for the conversation; {write} comes back."
        self._app.show_toast(how if on else "Vim-style navigation is off.")

    async def _open_editor(self, rest: str) -> None:
        await self._app.composer.run_action("edit_outside")

    async def _exit(self, rest: str) -> None:
        self._app.exit(0)


def _parse_on_off(word: str, other: bool, command: str) -> bool:
    """What was written, or else the other of what holds."""
    if word.casefold() in ("on", "off"):
        return word.casefold() == "on"
    if word:
        raise UsageError(f"{command} does not know {word!r}.", f"Write {command} on or {command} off.")
    return other
