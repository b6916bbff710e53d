"""The messages the composer posts, and the text on its border."""

from rich.style import Style
from rich.text import Text
from textual.message import Message
from textual.theme import Theme

from odin.core.client import QueuedPrompt
from odin.core.event_values import Delivery, Mode
from odin.ui.format import permission_mode_label_of
from odin.ui.terminal import escape_hidden
from odin.ui.tui.composer.draft import PromptDraft
from odin.ui.tui.keys import KeyTable
from odin.ui.tui.panels.status import ToastLevel

MODE_WORDS: dict[Mode, str] = {"ask_mode": "ask", "plan_mode": "plan", "edit_mode": "edit"}
BYPASS = "bypassPermissions"


class DraftSent(Message, namespace="composer"):
    """The user sent the draft. `delivery` is None for the default delivery."""

    def __init__(self, draft: PromptDraft, delivery: Delivery | None, mode: Mode) -> None:
        super().__init__()
        self.draft = draft
        self.delivery: Delivery | None = delivery
        self.mode: Mode = mode


class QueuedPromptEdited(Message, namespace="composer"):
    """The user saved changes to a queued prompt."""

    def __init__(self, prompt: QueuedPrompt, draft: PromptDraft, mode: Mode) -> None:
        super().__init__()
        self.prompt = prompt
        self.draft = draft
        self.mode: Mode = mode


class ToastRequested(Message, namespace="composer"):
    def __init__(self, text: str, level: ToastLevel = "info") -> None:
        super().__init__()
        self.text = text
        self.level: ToastLevel = level


class ModeChosen(Message, namespace="composer"):
    """Sets the mode for the next prompt."""

    def __init__(self, mode: Mode) -> None:
        super().__init__()
        self.mode: Mode = mode


def format_mode(theme: Theme, mode: Mode, permission: str) -> Text:
    """Return the mode in its color, followed by the permission mode unless it is the default."""
    color = {"ask_mode": theme.success, "plan_mode": theme.secondary, "edit_mode": theme.accent}[mode]
    text = Text(MODE_WORDS[mode], style=Style(color=color, bold=True))
    if permission == BYPASS:
        text.append(" · permissions bypassed", Style(color=theme.error, bold=True))
    elif permission not in ("", "default"):
        text.append(f" · {escape_hidden(permission_mode_label_of(permission))}", Style(color=theme.warning))
    return text


def describe_enter(text: str, keys: KeyTable, *, searching: bool, editing: bool, busy: bool) -> str:
    """Return what Enter does if it does not simply send the prompt, else ""."""
    send, stop = keys.label_of("send"), keys.label_of("stop")
    if searching:
        return f"history search: {send} takes it, {stop} cancels"
    if editing:
        return f"queued prompt: {send} saves, {stop} cancels"
    if text.startswith("!"):
        return "! shell command"
    if text.startswith("/"):
        return "/ command"
    return f"{send} queues · {keys.label_of('steer')} steers the running turn" if busy else ""
