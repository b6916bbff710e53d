"""What the composer tells the part of the screen it stands in. The handlers are called `on_composer_…`.

What the border of the composer says: the mode of the next prompt, how much is asked, and what is being written.
"""

from typing import Any, cast

from rich.style import Style
from rich.text import Text
from textual.app import App
from textual.message import Message
from textual.theme import Theme
from textual.widget import Widget

from odin.core.client import QueuedPrompt
from odin.core.event import Delivery, Mode
from odin.ui.terminal import escape_hidden
from odin.ui.tui.composer.draft import PromptDraft
from odin.ui.tui.keys import KeyTable
from odin.ui.tui.panels.status import ToastLevel


class DraftSent(Message, namespace="composer"):
    """The person sends what is written; `lane` is how it gets in while Odin works, None for the usual way."""

    def __init__(self, draft: PromptDraft, lane: Delivery | None, mode: Mode) -> None:
        super().__init__()
        self.draft = draft
        self.lane: Delivery | None = lane
        self.mode: Mode = mode


class QueuedPromptEdited(Message, namespace="composer"):
    """A prompt that waits is to be this from now on."""

    def __init__(self, prompt: QueuedPrompt, draft: PromptDraft, mode: Mode) -> None:
        super().__init__()
        self.prompt = prompt
        self.draft = draft
        self.mode: Mode = mode


class ToastRequested(Message, namespace="composer"):
    """Something to say to the person."""

    def __init__(self, text: str, level: ToastLevel = "info") -> None:
        super().__init__()
        self.text = text
        self.level: ToastLevel = level


class ModeChosen(Message, namespace="composer"):
    """The mode of the next prompt is this from now on."""

    def __init__(self, mode: Mode) -> None:
        super().__init__()
        self.mode: Mode = mode


MODE_WORDS: dict[Mode, str] = {"ask_mode": "ask", "plan_mode": "plan", "edit_mode": "edit"}
BYPASS = "bypassPermissions"


def make_title(theme: Theme, mode: Mode, permission: str) -> Text:
    """The mode as a word in its colour, and the permission mode where it is not the usual one."""
    colour = {"ask_mode": theme.success, "plan_mode": theme.secondary, "edit_mode": theme.accent}[mode]
    text = Text(MODE_WORDS[mode], style=Style(color=colour, bold=True))
    if permission == BYPASS:
        text.append(" · nothing is asked", Style(color=theme.error, bold=True))
    elif permission not in ("", "default"):
        text.append(f" · {escape_hidden(permission)}", Style(color=theme.warning))
    return text


def make_subtitle(text: str, keys: KeyTable, *, searching: bool, editing: bool) -> str:
    """What Enter will do, where that is not simply to send."""
    send, stop = keys.label_of("send"), keys.label_of("stop")
    if searching:
        return f"finding an earlier prompt: {send} takes it, {stop} leaves"
    if editing:
        return f"a waiting prompt: {send} saves it, {stop} leaves it as it was"
    if text.startswith("!"):
        return "! a command of your own"
    return "/ a command" if text.startswith("/") else ""


def theme_of(widget: Widget) -> Theme:
    return cast("App[Any]", widget.app).current_theme
