"""What the border of the composer says: the mode of the next prompt, how much is asked, and what is being written."""

from typing import Any, cast

from rich.style import Style
from rich.text import Text
from textual.app import App
from textual.theme import Theme
from textual.widget import Widget

from odin.core.event import Mode
from odin.ui.terminal import escape_hidden
from odin.ui.tui.keys import KeyTable

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
