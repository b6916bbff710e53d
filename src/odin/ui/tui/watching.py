"""Who is told what happens in the session: the panels, the notifier, the dialogs."""

from typing import Protocol

from odin.core.client import Client, SessionInfo
from odin.core.event import Envelope


class SessionObserver(Protocol):
    """One that shows something of the session."""

    def enter_session(self, client: Client, info: SessionInfo) -> None:
        """Another session is shown from now on; whatever was known of the one before is over."""
        ...

    def handle_event(self, envelope: Envelope, live: bool) -> None:
        """One event of any agent. `live` is false for what happened before this app looked."""
        ...

    def draw_frame(self) -> None:
        """Draw what has changed; called some thirty times a second while things happen, never when nothing does."""
        ...
