"""The language servers that run for one folder."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from odin.core.event_values import LanguageServerState
from odin.core.path_names import contains
from odin.lsp.detection import ServerSpec, find_for_project, list_files
from odin.lsp.documents import WatchedChange
from odin.lsp.protocol import ServerFault
from odin.lsp.server import LanguageServer
from odin.sandbox.runner import ProcessRunner


class LanguageServers:
    """The servers of one folder, started when a file of their kind is read or changed.

    `take_changes` returns the files that changed on the disk since the last call.
    """

    def __init__(
        self,
        root: str,
        specs: Iterable[ServerSpec],
        runner: ProcessRunner,
        *,
        env: Mapping[str, str],
        is_confined: Callable[[], bool],
        take_changes: Callable[[], Iterable[WatchedChange]] = tuple,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self.root = root
        self._take_changes = take_changes
        self.all = tuple(
            LanguageServer(spec, root, runner, env=env, is_confined=is_confined, on_change=on_change) for spec in specs
        )

    def list_for(self, path: str) -> tuple[LanguageServer, ...]:
        """Return the servers for a file of the project, which may have to be started."""
        if not contains(self.root, path):
            return ()
        return tuple(server for server in self.all if server.can_start and server.spec.covers(path))

    def report_changes(self) -> None:
        """Tell the running servers what has changed on the disk."""
        changes = tuple(self._take_changes())
        for server in self.all if changes else ():
            if server.status == "ready":
                server.report_changes(changes)

    async def find_navigator(self, path: str) -> LanguageServer:
        """Return a server that finds definitions in this file. Raise ServerFault if there is none."""
        fitting = [server for server in self.all if server.spec.navigates and server.spec.covers(path)]
        if not contains(self.root, path):
            raise ServerFault(f"{path} is outside the project, so no language server handles it")
        if not fitting:
            raise ServerFault(f"no language server handles {Path(path).name}")
        usable = [server for server in fitting if server.can_start] or fitting[:1]
        faults: list[ServerFault] = []
        for server in sorted(usable, key=lambda server: server.status != "ready"):
            try:
                await server.get_ready()
            except ServerFault as fault:
                faults.append(fault)
            else:
                return server
        raise faults[0]

    def list_navigators(self) -> tuple[LanguageServer, ...]:
        """Return the servers that know the symbols of the project: those that run, and those it has use for."""
        navigators = [server for server in self.all if server.spec.navigates and server.can_start]
        idle = (server.spec for server in navigators if server.status != "ready")
        used = {spec.name for spec in find_for_project(idle, self.root)}
        return tuple(server for server in navigators if server.status == "ready" or server.spec.name in used)

    async def load_project(self, server: LanguageServer) -> None:
        """Start a server and give it a file, without which some do not look at the project. Raise ServerFault."""
        await server.get_ready()
        self.report_changes()
        document = server.find_last_document()
        if document is None:
            path = next((path for path in list_files(self.root) if server.spec.covers(path)), "")
            document = server.follow(path) if path else None
        if document is not None:
            await server.settle(document)

    def list_states(self) -> tuple[LanguageServerState, ...]:
        return tuple(_describe(server) for server in self.all)

    def find(self, name: str) -> LanguageServer | None:
        return next((server for server in self.all if server.spec.name == name), None)

    def stop(self) -> None:
        for server in self.all:
            server.stop()


def _describe(server: LanguageServer) -> LanguageServerState:
    errors, warnings = server.count_problems()
    status = server.status
    if status == "ready":
        status = "starting" if server.is_loading else "slow" if server.unanswered else status
    return LanguageServerState(
        server.spec.name, status, server.detail, server.spec.file_types, errors, warnings, server.start_ms
    )
