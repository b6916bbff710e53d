"""What all sessions of a process share, in one event loop."""

from collections.abc import Awaitable, Callable

from msgspec import Struct, field

from odin.models.model_table import ModelTables
from odin.providers.http import HttpClients
from odin.sandbox.process import Watchdog


class ProcessServices(Struct, frozen=True, eq=False):
    """Nothing in it belongs to one session: each part is keyed by the settings of the session that asks.

    The states of API keys are shared, too: by the file they are kept in (`models/key_states.py`).
    """

    http: HttpClients = field(default_factory=HttpClients)
    model_tables: ModelTables = field(default_factory=ModelTables)
    watchdog: Watchdog = field(default_factory=Watchdog)
    sessions: set[object] = field(default_factory=set[object])

    def join(self) -> Callable[[], Awaitable[None]]:
        """Use this for another session. Return what ends that: with the last session, connections and watchdog end."""
        session = object()
        self.sessions.add(session)

        async def leave() -> None:
            self.sessions.discard(session)
            if not self.sessions:
                self.watchdog.close()
                await self.http.close()

        return leave
