"""The border of the composer: who gets the prompt, in which mode and with which permissions, and what Enter does."""

from rich.style import Style
from rich.text import Text
from textual.theme import Theme

from odin.core.client import SessionInfo
from odin.core.event import Envelope, PermissionModeChanged, RoleChanged, SessionOpened, TurnEnded, TurnStarted
from odin.core.event_values import DEFAULT_ROLE, Mode
from odin.core.format import format_permission_mode
from odin.core.op import BYPASS_PERMISSIONS
from odin.ui.status_parts import MODE_WORDS
from odin.ui.terminal import escape_hidden
from odin.ui.tui.keys import KeyTable
from odin.ui.tui.palette import make_palette


class PromptTarget:
    """Where a prompt goes: the agent (`recipient`, "" for main, painted in `color`), its role and its permissions.

    `names_main`: an ended agent is on the screen, so it has to be said that the prompt goes to main.
    """

    def __init__(self) -> None:
        self.permission_mode = "default"
        self.role = DEFAULT_ROLE
        self.recipient = ""
        self.color = ""
        self.names_main = False
        self._busy_agents: set[str] = set()

    def enter_session(self, info: SessionInfo) -> None:
        self.permission_mode = info.permission_mode
        self.role = info.role
        self._busy_agents.clear()

    def handle_event(self, envelope: Envelope, live: bool) -> None:
        event = envelope.event
        if isinstance(event, TurnStarted):
            self._busy_agents.add(envelope.agent)
        elif isinstance(event, TurnEnded):
            self._busy_agents.discard(envelope.agent)
        elif isinstance(event, SessionOpened):
            self._busy_agents.clear()
        elif live and isinstance(event, PermissionModeChanged) and not envelope.agent:
            self.permission_mode = event.mode
        elif live and isinstance(event, RoleChanged) and not envelope.agent:
            self.role = event.role

    @property
    def is_busy(self) -> bool:
        return self.recipient in self._busy_agents

    def describe_state(self) -> object:
        """Return a value that differs if the border has to be drawn again."""
        return self.permission_mode, self.role, self.recipient, self.color, self.names_main, self.is_busy

    def format_title(self, theme: Theme, mode: Mode) -> Text:
        """Return the agent or role, the mode in its color, and the permission mode; usual ones are left out."""
        color = {"ask_mode": theme.success, "plan_mode": theme.secondary, "edit_mode": theme.accent}[mode]
        bold = Style(bold=True)
        text = Text("", style=bold)
        if self.recipient:
            own = make_palette(theme).get_agent_style(self.recipient, self.color)
            text.append(f"to {escape_hidden(self.recipient)}", own + bold).append(" · ")
        elif self.names_main:
            text.append("to the main agent · ")
        elif self.role != DEFAULT_ROLE:
            text.append(f"{escape_hidden(self.role)} · ")
        text.append(MODE_WORDS[mode], style=Style(color=color, bold=True))
        if self.permission_mode == BYPASS_PERMISSIONS:
            text.append(" · permissions bypassed", Style(color=theme.error, bold=True))
        elif self.permission_mode not in ("", "default"):
            label = escape_hidden(format_permission_mode(self.permission_mode))
            text.append(f" · {label}", Style(color=theme.warning))
        return text

    def describe_enter(self, text: str, keys: KeyTable, *, searching: bool, editing: bool) -> str:
        """Return what Enter does if it does not simply send the prompt, else ""."""
        send, stop = keys.get_label("send"), keys.get_label("stop")
        if searching:
            return f"history search: {send} takes it, {stop} cancels"
        if editing:
            return f"queued prompt: {send} saves, {stop} cancels"
        if text.startswith("!"):
            return "! shell command"
        if text.startswith("#"):
            return "# remembered for later sessions"
        if text.startswith("/"):
            return "/ command of the main agent" if self.recipient else "/ command"
        return f"{send} queues · {keys.get_label('steer')} steers the running turn" if self.is_busy else ""
