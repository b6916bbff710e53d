"""Dialogs to find a session, a prompt of the conversation, or a point to rewind to."""

import asyncio
import time
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from rich.text import Text

from odin.core.client import SessionMatch, SessionPreview, SessionSummary, TurnRecord
from odin.core.errors import OdinError, UsageError
from odin.core.format import format_age, format_usd, pluralize
from odin.core.op import Rewind
from odin.ui.clean_text import sanitize
from odin.ui.slash_commands.sessions import (
    describe_hidden,
    format_file_lines,
    format_time,
    list_conversations,
    strip_all_option,
)
from odin.ui.terminal import escape_hidden
from odin.ui.transcript.blocks import AnswerBlock, PromptBlock, TranscriptBlock
from odin.ui.tui.dialogs.form import FormDialog
from odin.ui.tui.dialogs.picker import PickerDialog
from odin.ui.tui.dialogs.widgets import RowContent
from odin.ui.tui.transcript import TranscriptView

MIN_SEARCH_LETTERS = 3
SEARCH_TIMEOUT_S = 30
MAX_MATCHES = 50
MAX_PREVIEWS = 40


class SessionPicker(PickerDialog[SessionSummary]):
    """Sessions, newest first. The filter matches titles and prompts at once and, shortly after, the full text."""

    KEY_SCOPES = ("sessions", "list", "dialog")
    HEADING = "Sessions"
    EMPTY_TEXT = "No matching sessions."
    ENTER_LABEL = "open"
    ACTIONS: ClassVar[dict[str, str]] = {
        "rename_session": "rename",
        "copy_session": "copy",
        "export_session": "export",
        "delete_session": "delete",
    }

    def __init__(self, rest: str = "") -> None:
        """`rest` is what was typed after the command: words to filter by, and `--all`."""
        super().__init__(strip_all_option(rest))
        self._rest = rest
        self._texts: dict[str, str] = {}
        self._matches: dict[str, SessionMatch] = {}
        self._previews: dict[str, SessionPreview] = {}
        self._searching = ""

    @property
    def _current_id(self) -> str:
        return self.odin.info.session if self.odin.info else ""

    async def load(self) -> Sequence[SessionSummary]:
        listed = await self.odin.sessions.list_sessions()
        sessions = [item for item in listed if item.turns or item.id == self._current_id]
        hidden = describe_hidden(sessions, self._rest)
        sessions = list_conversations(sessions, self._rest, self._current_id)
        if hidden:
            self.odin.show_toast(hidden)
        self._texts = {item.id: _make_search_text(item) for item in sessions}
        return sessions

    # --- search ---

    def get_filter_text(self, item: SessionSummary) -> str:
        return self._texts.get(item.id) or _make_search_text(item)

    def filter_items(self, items: Sequence[SessionSummary], words: str) -> Sequence[SessionSummary]:
        """Return matches in titles and prompts, then full-text matches. Starts a full-text search for new words."""
        matching = super().filter_items(items, words)
        if not words.strip():
            return matching
        if words.strip() != self._searching:
            self._matches = {}
            self.run_worker(partial(self._search, words.strip()), group="search", exclusive=True)
        known = {item.id for item in matching}
        return [*matching, *(match.session for name, match in self._matches.items() if name not in known)]

    async def _search(self, words: str) -> None:
        """Search the full text of all sessions; gives up after a time limit."""
        if len(words) < MIN_SEARCH_LETTERS:
            return
        await asyncio.sleep(self.odin.timing.search_s)
        try:
            async with asyncio.timeout(SEARCH_TIMEOUT_S):
                matches = await self.odin.sessions.search(words)
        except (OdinError, TimeoutError):
            return
        if self.filter.value.strip() == words:
            self._searching = words
            self._matches = {match.session.id: match for match in matches[:MAX_MATCHES]}
            self.narrow(self.rows.mark)

    # --- rows and details ---

    def draw(self, item: SessionSummary) -> RowContent:
        colors = self.palette
        title = escape_hidden(" ".join((item.title or item.first or "(no prompts)").split()))
        line = Text().append(title, colors.text)
        match = self._matches.get(item.id)
        if match is not None and match.where not in ("title", "prompt"):
            line.append(f"  {escape_hidden(' '.join(match.snippet.split()))}", colors.dim)
        mark = "current" if item.id == self._current_id else "open elsewhere" if item.locked else ""
        prompts = pluralize(item.turns, "prompt")
        cost = format_usd(item.cost_usd) if item.cost_usd else ""
        model = escape_hidden(item.model.rpartition("/")[2])
        return line, (
            mark,
            format_age(self.odin.clock() - item.modified),
            prompts,
            "copy" if item.forked_from else "",
            "odin -p" if item.headless else "",
            cost,
            model,
        )

    async def describe(self, item: SessionSummary) -> Text:
        preview = self._previews.get(item.id)
        if preview is None:
            await asyncio.sleep(0.03)
            preview = await self.odin.sessions.preview(item.id)
            if len(self._previews) >= MAX_PREVIEWS:
                self._previews.clear()
            self._previews[item.id] = preview
        colors = self.palette
        text = Text()
        text.append(f"{escape_hidden(item.title or item.first or '(no prompts)')}\n", colors.strong)
        text.append(f"{item.id} · {format_time(item.modified)}\n", colors.dim)
        if item.locked and item.id != self._current_id:
            text.append(f"Open elsewhere: {escape_hidden(item.locked)}\n", colors.warn)
        if item.forked_from:
            text.append(f"Copied from {escape_hidden(item.forked_from)}\n", colors.dim)
        match = self._matches.get(item.id)
        if match is not None:
            text.append(f"\nFound ({match.where}): {escape_hidden(' '.join(match.snippet.split()))}\n", colors.accent)
        if preview.earlier:
            text.append("\n…\n", colors.dim)
        for exchange in preview.exchanges:
            text.append(f"\n› {sanitize(exchange.prompt.strip())}\n", colors.user)
            if exchange.answer:
                text.append(f"{sanitize(exchange.answer.strip())}\n", colors.text)
        return text

    # --- actions ---

    async def choose(self, item: SessionSummary) -> None:
        self.dismiss(item.id)

    async def act(self, name: str, item: SessionSummary | None) -> None:
        if item is None:
            return
        title = item.title or item.first
        if name == "rename_session":
            form = FormDialog("Rename session", accept="rename", placeholder="new title", value=title)
            self.ask(form, lambda entered: self._rename(item, entered.text))
        elif name == "delete_session":
            short = escape_hidden(" ".join(title.split()))[:40]
            self.ask(FormDialog(f"Delete “{short}” permanently?"), lambda _: self._delete(item))
        elif name == "export_session":
            written = await self.odin.sessions.export(item.id, "markdown")
            self.odin.show_toast(f"Exported to {escape_hidden(written)}")
        else:
            self.dismiss(f"fork {item.id}")

    async def _rename(self, item: SessionSummary, title: str) -> None:
        await self.odin.sessions.rename(item.id, title)
        await self.reload(self.rows.mark)

    async def _delete(self, item: SessionSummary) -> None:
        await self.odin.sessions.delete(item.id)
        self._matches.pop(item.id, None)
        await self.reload(self.rows.mark)


def _make_search_text(item: SessionSummary) -> str:
    return f"{item.id}\n{item.title}\n{item.first}\n{item.original}".casefold()


class ContentsDialog(PickerDialog[PromptBlock]):
    """The prompts of the conversation, oldest first, the last one marked. Returns the key of the prompt to fork at."""

    KEY_SCOPES = ("contents", "list", "dialog")
    HEADING = "Contents"
    EMPTY_TEXT = "No prompts yet."
    STARTS_IN_FILTER = False
    ENTER_LABEL = "jump to it"
    ACTIONS: ClassVar[dict[str, str]] = {"fork_there": "edit in a copy of the session"}

    def __init__(self, blocks: Sequence[TranscriptBlock]) -> None:
        super().__init__()
        self._blocks = blocks

    async def load(self) -> Sequence[PromptBlock]:
        return [block for block in self._blocks if isinstance(block, PromptBlock) and not block.is_mail]

    async def reload(self, mark: int = 0) -> None:
        await super().reload(mark)
        self.rows.move_to(len(self.rows.items) - 1)

    def get_filter_text(self, item: PromptBlock) -> str:
        return item.text.casefold()

    def draw(self, item: PromptBlock) -> RowContent:
        line = Text().append("↳ " if item.is_injected else "", self.palette.dim)
        line.append(escape_hidden(" ".join(item.text.split())) or "(continued)", self.palette.text)
        return line, (time.strftime("%H:%M", time.localtime(item.ts)), item.mode.removesuffix("_mode"))

    async def describe(self, item: PromptBlock) -> Text:
        text = Text().append(f"{sanitize(item.text.strip()) or '(continued)'}\n", self.palette.user)
        # The last answer before the next prompt, shortened.
        answer = ""
        for block in self._blocks[self._blocks.index(item) + 1 :]:
            if isinstance(block, PromptBlock) and not block.is_mail:
                break
            if isinstance(block, AnswerBlock) and block.text.strip():
                answer = block.text.strip()
        answer = answer[:2_000]
        if answer:
            text.append(f"\n{sanitize(answer)}", self.palette.text)
        return text

    async def choose(self, item: PromptBlock) -> None:
        self.odin.query_one(TranscriptView).point_at(item)
        self.dismiss(None)

    async def act(self, name: str, item: PromptBlock | None) -> None:
        if item is None:
            return
        if item.is_injected or item.is_continuation:
            raise UsageError("This prompt did not start a turn.", "Choose the one before it.")
        self.dismiss(item.key)


class RewindPicker(PickerDialog[tuple[int, TurnRecord]]):
    """The prompts of the conversation, newest first. Returns the id of the turn to rewind, or `redo`."""

    KEY_SCOPES = ("rewind", "list", "dialog")
    HEADING = "Rewind to before"
    EMPTY_TEXT = "Nothing to rewind."
    STARTS_IN_FILTER = False
    ENTER_LABEL = "rewind"
    ACTIONS: ClassVar[dict[str, str]] = {"redo_rewind": "redo the last rewind"}

    async def load(self) -> Sequence[tuple[int, TurnRecord]]:
        turns = (await self.odin.client.snapshot()).prompts
        return list(enumerate(reversed(turns), 1))

    def get_filter_text(self, item: tuple[int, TurnRecord]) -> str:
        return item[1].body.casefold()

    def draw(self, item: tuple[int, TurnRecord]) -> RowContent:
        number, turn = item
        line = Text().append(f"{number:>3} ", self.palette.dim)
        line.append(escape_hidden(" ".join(turn.body.split())) or "(continued)", self.palette.text)
        files = pluralize(turn.files, "file") if turn.files else ""
        return line, (files, time.strftime("%H:%M", time.localtime(turn.started)))

    async def describe(self, item: tuple[int, TurnRecord]) -> Text:
        turn = item[1]
        text = Text().append(f"{sanitize(turn.body.strip()) or '(continued)'}\n", self.palette.user)
        if turn.answer_summary:
            text.append(f"\n{sanitize(turn.answer_summary)}\n", self.palette.dim)
        plan = await self.odin.client.plan_rewind(Rewind(turn.id))
        cwd = self.odin.info.cwd if self.odin.info else "."
        restored, kept = format_file_lines(plan.changes, (), cwd), format_file_lines((), plan.kept, cwd)
        text.append("\nFiles to restore:\n" if restored else "\nNo files to restore.\n", self.palette.dim)
        text.append("".join(f"{line}\n" for line in restored), self.palette.text)
        text.append("".join(f"{line}\n" for line in kept), self.palette.warn)
        return text

    async def choose(self, item: tuple[int, TurnRecord]) -> None:
        self.dismiss(item[1].id)

    async def act(self, name: str, item: tuple[int, TurnRecord] | None) -> None:
        self.dismiss("redo")


_REWIND_SCOPES = {"both": "Files and conversation", "chat": "Conversation only", "files": "Files only"}


class RewindScopePicker(PickerDialog[str]):
    """Choose what to rewind. Returns `both`, `chat` or `files`, followed by ` force` to overwrite foreign changes."""

    KEY_SCOPES = ("rewind", "list", "dialog")
    HEADING = "Rewind"
    STARTS_IN_FILTER = False
    ENTER_LABEL = "rewind"
    ACTIONS: ClassVar[dict[str, str]] = {"force_rewind": "also overwrite changes made outside Odin"}
    CAN_FILTER = False
    DEFAULT_CSS = "RewindScopePicker #filter { display: none; }"

    def __init__(self, turn: str) -> None:
        super().__init__()
        self._turn = turn
        self._force = False

    async def load(self) -> Sequence[str]:
        return tuple(_REWIND_SCOPES)

    def get_filter_text(self, item: str) -> str:
        return _REWIND_SCOPES[item].casefold()

    def draw(self, item: str) -> RowContent:
        forced = ("overwriting foreign changes",) if self._force and item != "chat" else ()
        return Text(_REWIND_SCOPES[item], self.palette.text), forced

    async def describe(self, item: str) -> Text:
        colors, op = self.palette, make_rewind(self._turn, f"{item} force" if self._force else item)
        plan = await self.odin.client.plan_rewind(op)
        cwd = self.odin.info.cwd if self.odin.info else "."
        text = Text()
        if op.chat:
            text.append("The prompt returns to the composer.\n", colors.text)
        if op.files and not plan.changes and not plan.kept:
            text.append("No files to restore.\n", colors.dim)
        text.append("\n".join(format_file_lines(plan.changes, (), cwd)), colors.text)
        if plan.kept:
            text.append("\n")
            text.append("\n".join(format_file_lines((), plan.kept, cwd)), colors.warn)
            text.append("\n")
            key = self.odin.keys.get_label("force_rewind")
            text.append(
                f"{key} restores these, too, where a snapshot exists; their current content is saved first.", colors.dim
            )
        return text

    async def choose(self, item: str) -> None:
        self.dismiss(f"{item} force" if self._force and item != "chat" else item)

    async def act(self, name: str, item: str | None) -> None:
        self._force = not self._force
        self.rows.refresh()
        self.on_rows_marked()


def make_rewind(turn: str, choice: str) -> Rewind:
    """Build the operation from the results of RewindPicker and RewindScopePicker."""
    scope, _, force = choice.partition(" ")
    return Rewind(turn, files=scope != "chat", chat=scope != "files", force=bool(force))
