"""What waits while Odin works, above the composer; nothing is shown when nothing waits."""

from rich.style import Style
from rich.text import Text
from textual import events
from textual.message import Message
from textual.widget import Widget

from odin.core.client import Client, QueuedPrompt, SessionInfo
from odin.core.event import Envelope, Mode, PromptJoined, TurnEnded
from odin.core.op import ChangePrompt, DropPrompt
from odin.ui.terminal import visible
from odin.ui.tui.composer.label import WORDS, theme_of
from odin.ui.tui.composer.waiting import Waiting
from odin.ui.tui.keys import KeyTable, pressed

ROWS = 5
_APPEAR_S = 0.08
"""What is taken at once waits for a moment, too; that is not shown."""

_MODES: tuple[Mode, ...] = ("ask_mode", "plan_mode", "edit_mode")


class QueuePanel(Widget, can_focus=True):
    """The prompts that wait, each on a line. With the focus it is a list whose lines can be changed."""

    DEFAULT_CSS = """
    QueuePanel {
        display: none;
        height: auto;
        max-height: 8;
        padding: 0 2;
        background: $background;
    }
    """

    class Changing(Message):
        """Ask this of the session; `done` is what to say when it was done."""

        def __init__(self, op: ChangePrompt | DropPrompt, done: str = "") -> None:
            super().__init__()
            self.op = op
            self.done = done

    class Editing(Message):
        def __init__(self, prompt: QueuedPrompt) -> None:
            super().__init__()
            self.prompt = prompt

    class Left(Message):
        """The person goes back to writing."""

    class Joined(Message):
        """So many prompts that waited joined the conversation when the work was interrupted."""

        def __init__(self, count: int) -> None:
            super().__init__()
            self.count = count

    class Taken(Message):
        """A prompt waits no longer."""

        def __init__(self, prompt: str) -> None:
            super().__init__()
            self.prompt = prompt

    def __init__(self, keys: KeyTable, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._keys = keys
        self._at = 0
        self._changed = False
        self._joined = 0
        self._ask = False
        self._client: Client | None = None
        self.waiting = Waiting()

    # --- what happens ---

    def enter(self, client: Client, info: SessionInfo) -> None:
        self.waiting = Waiting()
        self._changed = True
        self._client = client

    def see(self, envelope: Envelope, live: bool) -> None:
        event = envelope.event
        if live and isinstance(event, TurnEnded) and event.reason != "end_turn" and not envelope.agent:
            self._ask = len(self.waiting) > 0
        known = {prompt.id for prompt in self.waiting.prompts} if isinstance(event, PromptJoined) else set[str]()
        if not self.waiting.see(envelope, live):
            return
        self._changed = True
        if isinstance(event, PromptJoined) and live and not event.turn and event.id in known:
            self._joined += 1
        prompt = getattr(event, "id", "")
        if prompt and self.waiting.find(prompt) is None:
            self.post_message(self.Taken(prompt))

    def frame(self) -> None:
        if self._joined:
            self.post_message(self.Joined(self._joined))
            self._joined = 0
        if self._ask and self._client is not None:
            self._ask = False
            self.run_worker(self._ask_what_rests(self._client), exit_on_error=False)
        if not self._changed:
            return
        self._changed = False
        if len(self.waiting) and not self.display:
            self.set_timer(_APPEAR_S, self._draw)
        else:
            self._draw()

    async def _ask_what_rests(self, client: Client) -> None:
        """After an interrupt some may rest; which ones only the session knows."""
        queue = (await client.snapshot()).queue
        if client is self._client:
            self.waiting.lay_down(prompt.id for prompt in queue if prompt.rests)
            self._draw()

    def newest(self) -> QueuedPrompt | None:
        return self.waiting.prompts[-1] if len(self.waiting) else None

    def _draw(self) -> None:
        count = len(self.waiting)
        if not count and self.has_focus:
            self.post_message(self.Left())
        self._at = max(0, min(self._at, count - 1))
        self.display = count > 0
        self.refresh(layout=True)

    # --- how it looks ---

    def _window(self) -> range:
        count = len(self.waiting)
        first = min(max(self._at - ROWS + 1, 0), max(count - ROWS, 0)) if self.has_focus else 0
        return range(first, min(first + ROWS, count))

    def render(self) -> Text:
        theme, prompts, window = theme_of(self), self.waiting.prompts, self._window()
        dim = Style(dim=True)
        lines = [self._line(at, prompts[at]) for at in window]
        hidden = len(prompts) - len(window)
        note = f"{hidden} more · " if hidden else ""
        last = f"{note}{self._help()}" if self.has_focus else f"{note}{self._keys.shown('queue')} changes what waits"
        lines.append(Text(last, style=dim, no_wrap=True, overflow="ellipsis", end=""))
        for line in lines:
            line.truncate(max(self.size.width, 10), overflow="ellipsis")
        return Text("\n", style=Style(color=theme.foreground), end="").join(lines)

    def _line(self, at: int, prompt: QueuedPrompt) -> Text:
        theme = theme_of(self)
        here = self.has_focus and at == self._at
        line = Text(no_wrap=True, end="").append("› " if here else "  ", Style(color=theme.accent))
        line.append(f"{at + 1} ", Style(dim=not here, bold=here))
        line.append(f"{WORDS[prompt.mode]:<5}", Style(color=theme.secondary))
        if how := "rests" if self.waiting.rests(prompt.id) else "" if prompt.lane == "queue" else prompt.lane:
            line.append(f"{how} ", Style(color=theme.warning))
        text = prompt.body.strip()
        line.append(visible(text.split("\n", 1)[0]) + (" …" if "\n" in text else ""), Style(bold=here))
        return line

    def _help(self) -> str:
        names = ("queue_edit", "queue_drop", "queue_steer", "queue_mode", "queue_send", "queue_leave")
        words = ("edit", "drop", "steer", "mode", "send", "back")
        return "  ".join(f"{self._keys.shown(name)} {word}" for name, word in zip(names, words, strict=True))

    def on_focus(self) -> None:
        self.refresh(layout=True)

    def on_blur(self) -> None:
        self.refresh(layout=True)

    # --- keys and mouse ---

    async def _on_key(self, event: events.Key) -> None:
        await pressed(self, self._keys, event, "queue")

    def on_click(self, event: events.Click) -> None:
        event.stop()
        window = self._window()
        row = event.y - self.gutter.top
        if 0 <= row < len(window):
            self._at = window[row]
            self.focus()
            if event.chain > 1:
                self.action_queue_edit()
        self.refresh()

    @property
    def _prompt(self) -> QueuedPrompt | None:
        prompts = self.waiting.prompts
        return prompts[self._at] if self._at < len(prompts) else None

    def choose_last(self) -> None:
        self._at = max(len(self.waiting) - 1, 0)

    def action_queue_up(self) -> None:
        self._at = max(self._at - 1, 0)
        self.refresh()

    def action_queue_down(self) -> None:
        self._at = max(min(self._at + 1, len(self.waiting) - 1), 0)
        self.refresh()

    def action_queue_edit(self) -> None:
        if (prompt := self._prompt) is not None:
            self.post_message(self.Editing(prompt))

    def action_queue_drop(self) -> None:
        if (prompt := self._prompt) is not None:
            self.post_message(self.Changing(DropPrompt(prompt.id)))

    def action_queue_steer(self) -> None:
        if (prompt := self._prompt) is not None:
            done = "It is told before anything else is begun."
            self.post_message(self.Changing(ChangePrompt(prompt.id, lane="steer"), done))

    def action_queue_send(self) -> None:
        if (prompt := self._prompt) is not None:
            self.post_message(self.Changing(ChangePrompt(prompt.id, lane="queue")))

    def action_queue_mode(self) -> None:
        if (prompt := self._prompt) is not None:
            mode = _MODES[(_MODES.index(prompt.mode) + 1) % len(_MODES)]
            self.post_message(self.Changing(ChangePrompt(prompt.id, mode=mode)))

    def action_queue_leave(self) -> None:
        self.post_message(self.Left())
