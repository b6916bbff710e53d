"""The prompts of this conversation, to go to one or to go on from before it in a copy.

Going back to before a prompt: which one, what of it comes back, and what would be left alone.
"""

import time
from collections.abc import Sequence
from typing import ClassVar, NamedTuple

from rich.text import Text

from odin.core.client import TurnRecord
from odin.core.errors import UsageError
from odin.core.op import Rewind
from odin.ui.slash_commands.prompts import format_file_lines
from odin.ui.terminal import escape_hidden
from odin.ui.tui.blocks import AnswerBlock, PromptBlock, TranscriptBlock
from odin.ui.tui.dialogs.picker import PickerDialog
from odin.ui.tui.dialogs.widgets import DialogAction, RowContent
from odin.ui.tui.paint.sanitize import sanitize


class ContentsDialog(PickerDialog[PromptBlock]):
    """In the order in which they were asked, the last one marked. Gives the key of the one to fork at."""

    KEY_SCOPES = ("contents", "list", "dialog")
    HEADING = "Contents"
    EMPTY_TEXT = "Nothing was asked here yet."
    STARTS_IN_FILTER = False
    ENTER_LABEL = "go there"
    ACTIONS: ClassVar[tuple[DialogAction, ...]] = (DialogAction("fork_there", "edit it in a copy of this session"),)

    def __init__(self, blocks: Sequence[TranscriptBlock]) -> None:
        super().__init__()
        self._blocks = blocks

    async def load(self) -> Sequence[PromptBlock]:
        return [block for block in self._blocks if isinstance(block, PromptBlock)]

    async def reload(self, mark: int = 0) -> None:
        await super().reload(mark)
        self.rows.move_to(len(self.rows.items) - 1)

    def text_of(self, item: PromptBlock) -> str:
        return item.text.casefold()

    def draw(self, item: PromptBlock) -> RowContent:
        line = Text().append("↳ " if item.is_injected else "", self.palette.dim)
        line.append(escape_hidden(" ".join(item.text.split())) or "(continued)", self.palette.text)
        return line, (time.strftime("%H:%M", time.localtime(item.ts)), item.mode.removesuffix("_mode"))

    async def describe(self, item: PromptBlock) -> Text:
        text = Text().append(f"{sanitize(item.text.strip()) or '(continued)'}\n", self.palette.user)
        answer = self._find_answer(item)
        if answer:
            text.append(f"\n{sanitize(answer)}", self.palette.text)
        return text

    def _find_answer(self, item: PromptBlock) -> str:
        """The last words before the next prompt, as far as there is room for them."""
        at = self._blocks.index(item)
        found = ""
        for block in self._blocks[at + 1 :]:
            if isinstance(block, PromptBlock):
                break
            if isinstance(block, AnswerBlock) and block.text.strip():
                found = block.text.strip()
        return found[:2_000]

    async def choose(self, item: PromptBlock) -> None:
        self.odin.transcript.point_at(item)
        self.dismiss(None)

    async def act(self, name: str, item: PromptBlock | None) -> None:
        if item is None:
            return
        if item.is_injected or item.is_continuation:
            raise UsageError("This was no prompt of its own.", "Choose the one before it.")
        self.dismiss(item.key)


class RewindPicker(PickerDialog[tuple[int, TurnRecord]]):
    """The prompts of the conversation, the last one first. Gives the turn's id, or `redo`."""

    KEY_SCOPES = ("rewind", "list", "dialog")
    HEADING = "Go back to before"
    EMPTY_TEXT = "There is no prompt to take back yet."
    STARTS_IN_FILTER = False
    ENTER_LABEL = "go back"
    ACTIONS: ClassVar[tuple[DialogAction, ...]] = (DialogAction("redo_rewind", "take the last rewind back"),)

    async def load(self) -> Sequence[tuple[int, TurnRecord]]:
        turns = (await self.odin.client.snapshot()).messages
        return list(enumerate(reversed(turns), 1))

    def text_of(self, item: tuple[int, TurnRecord]) -> str:
        return item[1].body.casefold()

    def draw(self, item: tuple[int, TurnRecord]) -> RowContent:
        number, turn = item
        line = Text().append(f"{number:>3} ", self.palette.dim)
        line.append(escape_hidden(" ".join(turn.body.split())) or "(continued)", self.palette.text)
        files = "" if not turn.files else "1 file" if turn.files == 1 else f"{turn.files} files"
        return line, (files, time.strftime("%H:%M", time.localtime(turn.started)))

    async def describe(self, item: tuple[int, TurnRecord]) -> Text:
        turn = item[1]
        text = Text().append(f"{sanitize(turn.body.strip()) or '(continued)'}\n", self.palette.user)
        if turn.answer_summary:
            text.append(f"\n{sanitize(turn.answer_summary)}\n", self.palette.dim)
        plan = await self.odin.client.plan_rewind(Rewind(turn.id))
        cwd = self.odin.info.cwd if self.odin.info else "."
        back, kept = format_file_lines(plan.changes, (), cwd), format_file_lines((), plan.kept, cwd)
        text.append("\nFiles that come back:\n" if back else "\nNo file comes back.\n", self.palette.dim)
        text.append("".join(f"{line}\n" for line in back), self.palette.text)
        text.append("".join(f"{line}\n" for line in kept), self.palette.warn)
        return text

    async def choose(self, item: tuple[int, TurnRecord]) -> None:
        self.dismiss(item[1].id)

    async def act(self, name: str, item: tuple[int, TurnRecord] | None) -> None:
        self.dismiss("redo")


class _RewindScope(NamedTuple):
    name: str
    label: str
    files: bool
    chat: bool


_REWIND_SCOPES = (
    _RewindScope("both", "Files and conversation", True, True),
    _RewindScope("chat", "Only the conversation; files stay as they are", False, True),
    _RewindScope("files", "Only the files; the conversation stays", True, False),
)


class RewindScopePicker(PickerDialog[_RewindScope]):
    """What comes back. Gives `both`, `chat` or `files`, with ` force` after it when everything is wanted."""

    KEY_SCOPES = ("rewind", "list", "dialog")
    HEADING = "What comes back"
    STARTS_IN_FILTER = False
    ENTER_LABEL = "go back"
    ACTIONS: ClassVar[tuple[DialogAction, ...]] = (DialogAction("force_rewind", "also what somebody else changed"),)
    CAN_FILTER = False
    DEFAULT_CSS = "RewindScopePicker #filter { display: none; }"

    def __init__(self, turn: str) -> None:
        super().__init__()
        self._turn = turn
        self._force = False

    async def load(self) -> Sequence[_RewindScope]:
        return _REWIND_SCOPES

    def text_of(self, item: _RewindScope) -> str:
        return item.label.casefold()

    def draw(self, item: _RewindScope) -> RowContent:
        forced = ("also theirs",) if self._force and item.files else ()
        return Text(item.label, self.palette.text), forced

    async def describe(self, item: _RewindScope) -> Text:
        colours = self.palette
        plan = await self.odin.client.plan_rewind(
            Rewind(self._turn, files=item.files, chat=item.chat, force=self._force)
        )
        cwd = self.odin.info.cwd if self.odin.info else "."
        text = Text()
        if item.chat:
            text.append("The prompt comes back to be edited.\n", colours.text)
        if item.files and not plan.changes and not plan.kept:
            text.append("No file comes back.\n", colours.dim)
        text.append("\n".join(format_file_lines(plan.changes, (), cwd)), colours.text)
        if plan.kept:
            text.append("\n")
            text.append("\n".join(format_file_lines((), plan.kept, cwd)), colours.warn)
            text.append("\n")
            key = self.odin.keys.label_of("force_rewind")
            more = "takes these back, too, as far as they were saved; what is there now is kept."
            text.append(f"{key} {more}", colours.dim)
        return text

    async def choose(self, item: _RewindScope) -> None:
        self.dismiss(f"{item.name} force" if self._force and item.files else item.name)

    async def act(self, name: str, item: _RewindScope | None) -> None:
        self._force = not self._force
        self.rows.refresh()
        self.on_rows_marked()


def make_rewind(turn: str, how: str) -> Rewind:
    """What the two dialogs were answered with."""
    name, _, force = how.partition(" ")
    found = next(item for item in _REWIND_SCOPES if item.name == name)
    return Rewind(turn, files=found.files, chat=found.chat, force=bool(force))
