"""Going back to before a prompt: which one, what of it comes back, and what would be left alone."""

import time
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from rich.text import Text

from odin.core.client import TurnRecord
from odin.core.op import Rewind
from odin.ui.commands.rewind import file_lines
from odin.ui.terminal import visible
from odin.ui.tui.dialogs.hints import Act
from odin.ui.tui.dialogs.picker import Picker
from odin.ui.tui.dialogs.rows import Drawn
from odin.ui.tui.paint.foreign import foreign


class RewindPicker(Picker[tuple[int, TurnRecord]]):
    """The prompts of the conversation, the last one first. Gives the turn's id, or `redo`."""

    PLACES = ("rewind", "list", "dialog")
    HEAD = "Go back to before"
    EMPTY = "There is no prompt to take back yet."
    TYPING = False
    ENTER = "go back"
    ACTS: ClassVar[tuple[Act, ...]] = (Act("redo_rewind", "take the last rewind back"),)

    async def load(self) -> Sequence[tuple[int, TurnRecord]]:
        turns = (await self.odin.client.snapshot()).messages
        return list(enumerate(reversed(turns), 1))

    def text_of(self, item: tuple[int, TurnRecord]) -> str:
        return item[1].body.casefold()

    def draw(self, item: tuple[int, TurnRecord]) -> Drawn:
        number, turn = item
        line = Text().append(f"{number:>3} ", self.colours.dim)
        line.append(visible(" ".join(turn.body.split())) or "(continued)", self.colours.text)
        files = "" if not turn.files else "1 file" if turn.files == 1 else f"{turn.files} files"
        return line, (files, time.strftime("%H:%M", time.localtime(turn.started)))

    async def about(self, item: tuple[int, TurnRecord]) -> Text:
        turn = item[1]
        text = Text().append(f"{foreign(turn.body.strip()) or '(continued)'}\n", self.colours.user)
        if turn.answer_summary:
            text.append(f"\n{foreign(turn.answer_summary)}\n", self.colours.dim)
        plan = await self.odin.client.rewind_plan(Rewind(turn.id))
        cwd = self.odin.info.cwd if self.odin.info else "."
        back, kept = file_lines(plan.changes, (), cwd), file_lines((), plan.kept, cwd)
        text.append("\nFiles that come back:\n" if back else "\nNo file comes back.\n", self.colours.dim)
        text.append("".join(f"{line}\n" for line in back), self.colours.text)
        text.append("".join(f"{line}\n" for line in kept), self.colours.warn)
        return text

    async def choose(self, item: tuple[int, TurnRecord]) -> None:
        self.dismiss(item[1].id)

    async def act(self, name: str, item: tuple[int, TurnRecord] | None) -> None:
        self.dismiss("redo")


class _How(NamedTuple):
    name: str
    label: str
    files: bool
    chat: bool


_HOWS = (
    _How("both", "Files and conversation", True, True),
    _How("chat", "Only the conversation; files stay as they are", False, True),
    _How("files", "Only the files; the conversation stays", True, False),
)


class HowPicker(Picker[_How]):
    """What comes back. Gives `both`, `chat` or `files`, with ` force` after it when everything is wanted."""

    PLACES = ("rewind", "list", "dialog")
    HEAD = "What comes back"
    TYPING = False
    ENTER = "go back"
    ACTS: ClassVar[tuple[Act, ...]] = (Act("force_rewind", "also what somebody else changed"),)
    NARROWS = False
    DEFAULT_CSS = "HowPicker #filter { display: none; }"

    def __init__(self, turn: str) -> None:
        super().__init__()
        self._turn = turn
        self._force = False

    async def load(self) -> Sequence[_How]:
        return _HOWS

    def text_of(self, item: _How) -> str:
        return item.label.casefold()

    def draw(self, item: _How) -> Drawn:
        forced = ("also theirs",) if self._force and item.files else ()
        return Text(item.label, self.colours.text), forced

    async def about(self, item: _How) -> Text:
        colours = self.colours
        plan = await self.odin.client.rewind_plan(
            Rewind(self._turn, files=item.files, chat=item.chat, force=self._force)
        )
        cwd = self.odin.info.cwd if self.odin.info else "."
        text = Text()
        if item.chat:
            text.append("The prompt comes back to be edited.\n", colours.text)
        if item.files and not plan.changes and not plan.kept:
            text.append("No file comes back.\n", colours.dim)
        text.append("\n".join(file_lines(plan.changes, (), cwd)), colours.text)
        if plan.kept:
            text.append("\n")
            text.append("\n".join(file_lines((), plan.kept, cwd)), colours.warn)
            text.append("\n")
            key = self.odin.keys.shown("force_rewind")
            more = "takes these back, too, as far as they were saved; what is there now is kept."
            text.append(f"{key} {more}", colours.dim)
        return text

    async def choose(self, item: _How) -> None:
        self.dismiss(f"{item.name} force" if self._force and item.files else item.name)

    async def act(self, name: str, item: _How | None) -> None:
        self._force = not self._force
        self.rows.refresh()
        self.on_rows_marked()


def wanted(turn: str, how: str) -> Rewind:
    """What the two dialogs were answered with."""
    name, _, force = how.partition(" ")
    found = next(item for item in _HOWS if item.name == name)
    return Rewind(turn, files=found.files, chat=found.chat, force=bool(force))
