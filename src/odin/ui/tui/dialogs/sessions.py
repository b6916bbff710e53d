"""The sessions of the project: find one, look into it, go to it, rename, delete, copy or export it."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

from rich.text import Text

from odin.core.client import SessionMatch, SessionPreview, SessionSummary
from odin.core.errors import OdinError
from odin.ui.format import format_age, format_usd
from odin.ui.slash_commands.sessions import format_time
from odin.ui.terminal import escape_hidden
from odin.ui.tui.dialogs.picker import PickerDialog
from odin.ui.tui.dialogs.widgets import DialogAction, RowContent
from odin.ui.tui.paint.sanitize import sanitize

SEARCH_DELAY_S = 0.3
MIN_SEARCH_LETTERS = 3
SEARCH_TIMEOUT_S = 30
MAX_MATCHES = 50
MAX_PREVIEWS = 40


class SessionPicker(PickerDialog[SessionSummary]):
    """Newest first. Words are looked for in titles and prompts at once, and a moment later in everything said."""

    KEY_SCOPES = ("sessions", "list", "dialog")
    HEADING = "Sessions"
    EMPTY_TEXT = "There is no such session here."
    ENTER_LABEL = "open"
    ACTIONS: ClassVar[tuple[DialogAction, ...]] = (
        DialogAction("rename_session", "rename"),
        DialogAction("copy_session", "copy"),
        DialogAction("export_session", "export"),
        DialogAction("delete_session", "delete"),
    )

    def __init__(self, words: str = "") -> None:
        super().__init__(words)
        self._texts: dict[str, str] = {}
        self._matches: dict[str, SessionMatch] = {}
        self._previews: dict[str, SessionPreview] = {}
        self._searching = ""

    @property
    def _current_id(self) -> str:
        return self.odin.info.session if self.odin.info else ""

    async def load(self) -> Sequence[SessionSummary]:
        found = [item for item in await self.odin.sessions.list_sessions() if item.turns or item.id == self._current_id]
        self._texts = {item.id: _search_text_of(item) for item in found}
        return found

    # --- finding ---

    def text_of(self, item: SessionSummary) -> str:
        return self._texts.get(item.id) or _search_text_of(item)

    def filter_items(self, items: Sequence[SessionSummary], words: str) -> Sequence[SessionSummary]:
        """Those that fit by title or prompt, then those in which the words were said elsewhere."""
        fitting = super().filter_items(items, words)
        if not words.strip():
            return fitting
        if words.strip() != self._searching:
            self._matches = {}
            self.run_worker(partial(self._search, words.strip()), group="search", exclusive=True)
        known = {item.id for item in fitting}
        return [*fitting, *(match.session for name, match in self._matches.items() if name not in known)]

    async def _search(self, words: str) -> None:
        """In everything that was said. A search that goes on for too long is given up."""
        if len(words) < MIN_SEARCH_LETTERS:
            return
        await asyncio.sleep(SEARCH_DELAY_S)
        try:
            async with asyncio.timeout(SEARCH_TIMEOUT_S):
                found = await self.odin.sessions.search(words)
        except (OdinError, TimeoutError):
            return
        if self.filter.value.strip() == words:
            self._searching = words
            self._matches = {match.session.id: match for match in found[:MAX_MATCHES]}
            self.narrow(self.rows.mark)

    # --- looking ---

    def draw(self, item: SessionSummary) -> RowContent:
        colours = self.palette
        title = escape_hidden(" ".join((item.title or item.first or "(nothing asked)").split()))
        line = Text().append(title, colours.text)
        match = self._matches.get(item.id)
        if match is not None and match.where not in ("title", "prompt"):
            line.append(f"  {escape_hidden(' '.join(match.snippet.split()))}", colours.dim)
        mark = "this one" if item.id == self._current_id else "open elsewhere" if item.locked else ""
        prompts = f"{item.turns} {'prompt' if item.turns == 1 else 'prompts'}"
        cost = format_usd(item.cost_usd) if item.cost_usd else ""
        model = escape_hidden(item.model.rpartition("/")[2])
        return line, (
            mark,
            format_age(self.odin.clock() - item.modified),
            prompts,
            "copy" if item.forked_from else "",
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
        colours = self.palette
        text = Text()
        text.append(f"{escape_hidden(item.title or item.first or '(nothing asked)')}\n", colours.strong)
        text.append(f"{item.id} · {format_time(item.modified)}\n", colours.dim)
        if item.locked and item.id != self._current_id:
            text.append(f"Open elsewhere: {escape_hidden(item.locked)}\n", colours.warn)
        if item.forked_from:
            text.append(f"Copied from {escape_hidden(item.forked_from)}\n", colours.dim)
        match = self._matches.get(item.id)
        if match is not None:
            text.append(f"\nFound ({match.where}): {escape_hidden(' '.join(match.snippet.split()))}\n", colours.accent)
        if preview.earlier:
            text.append("\n…\n", colours.dim)
        for exchange in preview.exchanges:
            text.append(f"\n› {sanitize(exchange.prompt.strip())}\n", colours.user)
            if exchange.answer:
                text.append(f"{sanitize(exchange.answer.strip())}\n", colours.text)
        return text

    # --- doing ---

    async def choose(self, item: SessionSummary) -> None:
        self.dismiss(item.id)

    async def act(self, name: str, item: SessionSummary | None) -> None:
        if item is None:
            return
        title = item.title or item.first
        if name == "rename_session":
            self.ask_for("give it this title", title, lambda text: self._rename(item, text))
        elif name == "delete_session":
            short = escape_hidden(" ".join(title.split()))[:40]
            self.ask_whether(f"Delete “{short}” for good?", lambda: self._delete(item))
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


def _search_text_of(item: SessionSummary) -> str:
    return f"{item.id}\n{item.title}\n{item.first}\n{item.original}".casefold()
