"""The panel above the composer that shows the prompts waiting while the agent works."""

from collections.abc import Sequence
from typing import ClassVar, cast

from rich.style import Style
from rich.text import Text
from textual import events
from textual.widget import Widget

from odin.core.client import Client, QueuedPrompt, SessionInfo
from odin.core.event import Envelope, PromptPaused, TurnEnded, TurnStarted
from odin.core.event_values import Delivery, Mode
from odin.core.format import pluralize
from odin.core.op import ChangePrompt, DropPrompt
from odin.ui.status_parts import MODE_WORDS
from odin.ui.terminal import escape_hidden
from odin.ui.tui.composer.composer import Composer
from odin.ui.tui.composer.draft import join_drafts, make_draft
from odin.ui.tui.composer.submit_queue import QueuedPrompts, SubmitQueue
from odin.ui.tui.keys import KeyScope, KeyTable, dispatch_key
from odin.ui.tui.palette import get_theme
from odin.ui.tui.session_app import SessionApp
from odin.ui.tui.timers import call_after

MAX_ROWS = 5
_SHOW_DELAY_S = 0.08
"""Prompts that leave the queue sooner than this are never shown."""

_DELIVERY_WORDS: dict[Delivery, str] = {"queue": "queued", "merge": "joining", "steer": "steering"}
_MODE_CYCLE: tuple[Mode, ...] = ("ask_mode", "plan_mode", "edit_mode")


class QueuePanel(Widget, can_focus=True):
    """Lists the queued prompts, one per line. With the focus, prompts can be edited, dropped or sent.

    Only a key moves the focus here; a double click edits a prompt. Hidden while the queue is empty.
    """

    FOCUS_ON_CLICK = False
    KEY_SCOPE: ClassVar[KeyScope] = "queue"

    DEFAULT_CSS = """
    QueuePanel {
        display: none;
        height: auto;
        max-height: 8;
        padding: 0 2;
        background: $background;
    }
    """

    def __init__(self, keys: KeyTable, composer: Composer, submit_queue: SubmitQueue, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._composer = composer
        self._submit_queue = submit_queue
        self._keys = keys
        self._cursor = 0
        self._is_changed = False
        self._paused_in_turn: set[str] = set()

    @property
    def queued(self) -> QueuedPrompts:
        return self._submit_queue.queued

    # --- session events ---

    def show_queue(self, agent: str) -> None:
        """List the prompts for this agent."""
        self.queued.agent = agent
        self._is_changed = True

    def enter_session(self, client: Client, info: SessionInfo) -> None:
        self._submit_queue.queued = QueuedPrompts()
        self._is_changed = True

    def handle_event(self, envelope: Envelope, live: bool) -> None:
        event = envelope.event
        if envelope.agent == self.queued.agent:
            if isinstance(event, TurnStarted):
                self._paused_in_turn.clear()
            elif isinstance(event, PromptPaused) and event.paused:
                self._paused_in_turn.add(event.id)
            elif isinstance(event, TurnEnded) and live and event.reason != "end_turn":
                paused = [item for item in self.queued.prompts if item.id in self._paused_in_turn]
                if paused:
                    self.run_worker(self._take_back(paused), exit_on_error=False)
        if not self.queued.apply(envelope, live):
            return
        self._is_changed = True
        prompt = getattr(event, "id", "")
        if prompt and prompt == self._composer.editing_id and self.queued.find(prompt) is None:
            self._composer.end_queued_edit()

    def draw_frame(self) -> None:
        if not self._is_changed:
            return
        self._is_changed = False
        if len(self.queued) and not self.display:
            call_after(self, _SHOW_DELAY_S, self._update_display)
        else:
            self._update_display()

    async def _take_back(self, prompts: Sequence[QueuedPrompt]) -> None:
        """After an interrupt, queued prompts go back to an empty composer; otherwise they stay queued, paused."""
        odin = cast(SessionApp, self.app)
        if self._composer.is_in_use or len({prompt.mode for prompt in prompts}) > 1:
            count = len(prompts)
            subject = pluralize(count, "queued prompt is", "queued prompts are")
            key = self._keys.get_label("queue")
            odin.show_toast(f"{subject} paused. {key} edits, sends or drops queued prompts.")
            return
        taken = [prompt for prompt in prompts if await odin.submit(DropPrompt(prompt.id, prompt.agent))]
        if taken:
            odin.mode = taken[0].mode
            self._composer.restore_draft(join_drafts([make_draft(prompt.body, prompt.attachments) for prompt in taken]))

    def _update_display(self) -> None:
        count = len(self.queued)
        if not count and self.has_focus:
            self._composer.focus()
        self._cursor = max(0, min(self._cursor, count - 1))
        self.display = count > 0
        self.refresh(layout=True)

    # --- appearance ---

    def _compute_window(self) -> range:
        count = len(self.queued)
        first = min(max(self._cursor - MAX_ROWS + 1, 0), max(count - MAX_ROWS, 0)) if self.has_focus else 0
        return range(first, min(first + MAX_ROWS, count))

    def render(self) -> Text:
        theme, prompts, window = get_theme(self), self.queued.prompts, self._compute_window()
        dim = Style(dim=True)
        lines = [self._format_row(at, prompts[at]) for at in window]
        hidden = len(prompts) - len(window)
        note = f"{hidden} more · " if hidden else ""
        last = (
            f"{note}{self._format_help()}"
            if self.has_focus
            else f"{note}{self._keys.get_label('queue')} to edit, send or drop"
        )
        lines.append(Text(last, style=dim, no_wrap=True, overflow="ellipsis", end=""))
        for line in lines:
            line.truncate(max(self.size.width, 10), overflow="ellipsis")
        return Text("\n", style=Style(color=theme.foreground), end="").join(lines)

    def _format_row(self, at: int, prompt: QueuedPrompt) -> Text:
        theme = get_theme(self)
        here = self.has_focus and at == self._cursor
        line = Text(no_wrap=True, end="").append("› " if here else "  ", Style(color=theme.accent))
        state = "paused" if self.queued.is_paused(prompt.id) else _DELIVERY_WORDS[prompt.delivery]
        color = theme.secondary if state == "queued" else theme.warning
        line.append(f"{state} {at + 1}", Style(color=color, bold=here))
        line.append(f" · {MODE_WORDS[prompt.mode]}  ", Style(dim=True))
        text = prompt.body.strip()
        line.append(escape_hidden(text.split("\n", 1)[0]) + (" …" if "\n" in text else ""), Style(bold=here))
        return line

    def _format_help(self) -> str:
        names = ("queue_edit", "queue_drop", "queue_steer", "queue_mode", "queue_send", "queue_leave")
        words = ("edit", "drop", "steer", "mode", "send", "back")
        return "  ".join(f"{self._keys.get_label(name)} {word}" for name, word in zip(names, words, strict=True))

    def on_focus(self) -> None:
        self.refresh(layout=True)

    def on_blur(self) -> None:
        self.refresh(layout=True)

    # --- keys and mouse ---

    async def _on_key(self, event: events.Key) -> None:
        await dispatch_key(self, self._keys, event, self.KEY_SCOPE)

    def on_click(self, event: events.Click) -> None:
        event.stop()
        window = self._compute_window()
        row = event.y - self.gutter.top
        if 0 <= row < len(window):
            self._cursor = window[row]
            if event.chain > 1:
                self.action_queue_edit()
        self.refresh()

    @property
    def _prompt(self) -> QueuedPrompt | None:
        prompts = self.queued.prompts
        return prompts[self._cursor] if self._cursor < len(prompts) else None

    def select_last(self) -> None:
        self._cursor = max(len(self.queued) - 1, 0)

    def action_queue_up(self) -> None:
        self._cursor = max(self._cursor - 1, 0)
        self.refresh()

    def action_queue_down(self) -> None:
        self._cursor = max(min(self._cursor + 1, len(self.queued) - 1), 0)
        self.refresh()

    def action_queue_edit(self) -> None:
        if (prompt := self._prompt) is not None:
            self._composer.edit_queued(prompt)

    async def action_queue_drop(self) -> None:
        if (prompt := self._prompt) is not None:
            await self._submit_queue.change_queued(DropPrompt(prompt.id, prompt.agent))

    async def action_queue_steer(self) -> None:
        if (prompt := self._prompt) is not None:
            change = ChangePrompt(prompt.id, delivery="steer", agent=prompt.agent)
            await self._submit_queue.change_queued(change, "Sent. The model sees it before its next step.")

    async def action_queue_send(self) -> None:
        if (prompt := self._prompt) is not None:
            change = ChangePrompt(prompt.id, delivery="queue", agent=prompt.agent)
            await self._submit_queue.change_queued(change)

    async def action_queue_mode(self) -> None:
        if (prompt := self._prompt) is not None:
            mode = _MODE_CYCLE[(_MODE_CYCLE.index(prompt.mode) + 1) % len(_MODE_CYCLE)]
            await self._submit_queue.change_queued(ChangePrompt(prompt.id, mode=mode, agent=prompt.agent))

    def action_queue_leave(self) -> None:
        self._composer.focus()
