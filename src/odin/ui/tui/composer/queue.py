"""The queue of prompts waiting while the agent works, and the panel above the composer that shows it."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from rich.style import Style
from rich.text import Text
from textual import events
from textual.widget import Widget

from odin.core.client import Client, QueuedPrompt, SessionInfo
from odin.core.event import Envelope, PromptChanged, PromptDropped, PromptInjected, PromptQueued, TurnEnded, TurnStarted
from odin.core.event_values import Delivery, Mode
from odin.core.op import ChangePrompt, DropPrompt
from odin.core.prompt import copy_prompt
from odin.ui.terminal import escape_hidden
from odin.ui.tui.keys import KeyScope, KeyTable, dispatch_key
from odin.ui.tui.palette import get_theme
from odin.ui.tui.panels.status import MODE_WORDS
from odin.ui.tui.timers import call_after

if TYPE_CHECKING:
    from odin.ui.tui.composer.input_panel import InputPanel


class QueuedPrompts:
    """Queued prompts in delivery order, built from session events.

    A paused prompt does not start by itself. Prompts in `left_over` come from an earlier run and follow the next
    prompt; prompts paused by an interrupt wait until the user sends them. If the session was already working when the
    app attached to it, no prompt is left over. Only the prompts for `agent` are listed.
    """

    def __init__(self, agent: str = "") -> None:
        self.agent = agent
        self._prompts: dict[str, QueuedPrompt] = {}
        self._left_over: set[str] = set()
        self._paused: set[str] = set()
        self._running = False
        self._is_live = False

    def __len__(self) -> int:
        return len(self.prompts)

    @property
    def prompts(self) -> tuple[QueuedPrompt, ...]:
        return tuple(prompt for prompt in self._prompts.values() if prompt.agent == self.agent)

    @property
    def left_over(self) -> tuple[QueuedPrompt, ...]:
        return tuple(prompt for prompt in self._prompts.values() if prompt.id in self._left_over)

    def is_paused(self, prompt: str) -> bool:
        return prompt in self._left_over or prompt in self._paused

    def pause(self, prompts: Iterable[str]) -> None:
        """Set which prompts an interrupt has paused, according to the session."""
        self._paused = set(prompts) & self._prompts.keys()

    def find(self, prompt: str) -> QueuedPrompt | None:
        return self._prompts.get(prompt)

    def apply(self, envelope: Envelope, live: bool) -> bool:
        """Apply a session event. True if the queue changed."""
        event = envelope.event
        if live and self._running and not self._is_live:
            self._left_over.clear()
        self._is_live = self._is_live or live
        if isinstance(event, TurnStarted | TurnEnded) and not envelope.agent:
            self._running = isinstance(event, TurnStarted)
        if isinstance(event, PromptQueued):
            self._prompts[event.id] = copy_prompt(QueuedPrompt, event, timestamp=envelope.ts, agent=envelope.agent)
            if not live and not envelope.agent:
                self._left_over.add(event.id)
        elif isinstance(event, PromptChanged):
            if event.id not in self._prompts:
                return False
            was = self._prompts[event.id]
            self._prompts[event.id] = copy_prompt(QueuedPrompt, event, timestamp=was.timestamp, agent=was.agent)
            if live:
                self._clear_pause(event.id)
        elif isinstance(event, PromptDropped | PromptInjected | TurnStarted):
            self._clear_pause(event.id)
            return self._prompts.pop(event.id, None) is not None
        else:
            return False
        return True

    def _clear_pause(self, prompt: str) -> None:
        self._left_over.discard(prompt)
        self._paused.discard(prompt)


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

    def __init__(self, keys: KeyTable, panel: "InputPanel", *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._panel = panel
        self._keys = keys
        self._cursor = 0
        self._is_changed = False
        self._is_paused_stale = False
        self._client: Client | None = None
        self.queued = QueuedPrompts()

    # --- session events ---

    def show_queue(self, agent: str) -> None:
        """List the prompts for this agent."""
        self.queued.agent = agent
        self._is_changed = True

    def enter_session(self, client: Client, info: SessionInfo) -> None:
        self.queued = QueuedPrompts()
        self._is_changed = True
        self._client = client

    def handle_event(self, envelope: Envelope, live: bool) -> None:
        event = envelope.event
        if live and isinstance(event, TurnEnded) and event.reason != "end_turn":
            self._is_paused_stale = len(self.queued) > 0
        if not self.queued.apply(envelope, live):
            return
        self._is_changed = True
        prompt = getattr(event, "id", "")
        if prompt and prompt == self._panel.composer.editing_id and self.queued.find(prompt) is None:
            self._panel.composer.end_queued_edit()

    def draw_frame(self) -> None:
        if self._is_paused_stale and self._client is not None:
            self._is_paused_stale = False
            self.run_worker(self._refresh_paused(self._client), exit_on_error=False)
        if not self._is_changed:
            return
        self._is_changed = False
        if len(self.queued) and not self.display:
            call_after(self, _SHOW_DELAY_S, self._update_display)
        else:
            self._update_display()

    async def _refresh_paused(self, client: Client) -> None:
        """Ask the session which prompts an interrupt has paused, and report those that were not paused before."""
        queue = (await client.snapshot()).queue
        if client is not self._client:
            return
        paused = {prompt.id for prompt in queue if prompt.paused}
        fresh = tuple(item for item in self.queued.prompts if item.id in paused and not self.queued.is_paused(item.id))
        self.queued.pause(paused)
        self._update_display()
        if fresh:
            await self._panel.handle_paused(fresh)

    def get_newest(self) -> QueuedPrompt | None:
        return self.queued.prompts[-1] if len(self.queued) else None

    def _update_display(self) -> None:
        count = len(self.queued)
        if not count and self.has_focus:
            self._panel.composer.focus()
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
            self._panel.composer.edit_queued(prompt)

    async def action_queue_drop(self) -> None:
        if (prompt := self._prompt) is not None:
            await self._panel.submit_queue.change_queued(DropPrompt(prompt.id, prompt.agent))

    async def action_queue_steer(self) -> None:
        if (prompt := self._prompt) is not None:
            change = ChangePrompt(prompt.id, delivery="steer", agent=prompt.agent)
            await self._panel.submit_queue.change_queued(change, "Sent. The model sees it before its next step.")

    async def action_queue_send(self) -> None:
        if (prompt := self._prompt) is not None:
            change = ChangePrompt(prompt.id, delivery="queue", agent=prompt.agent)
            await self._panel.submit_queue.change_queued(change)

    async def action_queue_mode(self) -> None:
        if (prompt := self._prompt) is not None:
            mode = _MODE_CYCLE[(_MODE_CYCLE.index(prompt.mode) + 1) % len(_MODE_CYCLE)]
            await self._panel.submit_queue.change_queued(ChangePrompt(prompt.id, mode=mode, agent=prompt.agent))

    def action_queue_leave(self) -> None:
        self._panel.composer.focus()
