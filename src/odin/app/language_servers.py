"""The language servers of a session: for each folder that agents work in, and for front ends.

Those of the project are shared by the sessions of a workspace, those of worktrees are the session's own. To disable one
concerns the session alone; to restart one all of them, because there is one process.
Loaded only in a trusted folder for which a server is configured or installed (`workspace.has_language_servers`).
"""

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from odin.app.sandbox import LazySandbox
from odin.config import Config
from odin.config.paths import make_environment
from odin.core.environment import ExecutionEnvironment
from odin.core.errors import UsageError
from odin.core.event import LanguageServersChanged, NoteAdded
from odin.core.event_values import LanguageServerState
from odin.core.format import pluralize
from odin.core.op import LanguageServerAction
from odin.core.path_names import contains
from odin.core.tool import Tool, ToolContext, ToolOutput
from odin.engine.recorder import Recorder
from odin.lsp.detection import ServerSpec, find_for_project, find_servers
from odin.lsp.documents import WatchedChange
from odin.lsp.protocol import ServerFault
from odin.lsp.server import LanguageServer
from odin.lsp.servers import LanguageServers, LateErrors, review_files, warm_up
from odin.sandbox.runner import ProcessRunner

if TYPE_CHECKING:
    from odin.app.agent_workspaces import AgentWorkspace
    from odin.context.file_cache import FileCache

PROBE_TIMEOUT_S = 10.0


class ProbedServer(Struct, frozen=True):
    """How the start of a server went, and its program."""

    state: LanguageServerState
    program: str


MAX_FOLDERS = 4
"""Folders with servers of their own: the project and a few worktrees."""


def find_configured_servers(config: Config, env: Mapping[str, str], root: str) -> tuple[ServerSpec, ...]:
    """Return the servers that a folder with this configuration can use."""
    declared = config.declared.get("lsp_servers", ())
    by_project = {name for item in declared if item.layer == "project" for name in item.value}
    return find_servers(root, env, config.lsp_servers, detect=config.lsp == "auto", by_project=by_project)


def make_language_server(
    spec: ServerSpec, root: str, runner: ProcessRunner, sandbox: LazySandbox, environment: ExecutionEnvironment
) -> LanguageServer:
    return LanguageServer(
        spec,
        root,
        runner,
        env=environment.variables,
        writable=sandbox.writable,
        can_confine=sandbox.can_confine,
        timing=environment.timing,
    )


async def probe_servers(config: Config, env: Mapping[str, str], sandbox: LazySandbox) -> tuple[ProbedServer, ...]:
    """Start the servers of a project, one after the other, and return how that went. They are ended again."""
    specs = find_configured_servers(config, env, config.root)
    fitting = {*config.lsp_servers, *(spec.name for spec in find_for_project(specs, config.root))}
    used = [spec for spec in specs if spec.name in fitting]
    environment = make_environment(env, config.root)
    runner = ProcessRunner(environment, env_passthrough=config.env_passthrough, sandbox=sandbox.get)
    servers = LanguageServers(
        config.root, [make_language_server(spec, config.root, runner, sandbox, environment) for spec in used]
    )
    try:
        for server in servers.all:
            with suppress(ServerFault, TimeoutError):
                async with asyncio.timeout(PROBE_TIMEOUT_S):
                    await server.get_ready()
        states = servers.list_states()
    finally:
        servers.close()
        await runner.close()
    return tuple(ProbedServer(state, spec.programs[0]) for state, spec in zip(states, used, strict=True))


class CallReviewer:
    """Adds errors to the results of one agent's edits, and starts servers when it reads a file.

    Errors that are known only later are added to its next request (`prepare_request`).
    """

    def __init__(self, session: "SessionLanguageServers", workspace: "AgentWorkspace") -> None:
        self._session = session
        self._workspace = workspace
        self._late = LateErrors()

    async def follow_call(self, tool: Tool[Any], args: Any, output: ToolOutput, context: ToolContext) -> ToolOutput:
        """The step after each call."""
        paths = self._session.select_paths(tool, output, context)
        servers = self._session.find_servers(self._workspace, paths[0]) if paths else None
        if servers is None:
            return output
        if tool.kind == "read":
            warm_up(servers, paths[0])
            return output
        context.keep_partial(output)
        self._late.follow_turn(self._session.get_turn(context.agent))
        errors = await review_files(servers, paths, self._late)
        if not errors.count:
            return output
        note, counted = output.note, pluralize(errors.count, "error")
        note = f"{note[:-1]}, {counted})" if note.endswith(")") else f"{note} ({counted})"
        return replace(output, text=f"{output.text}\n\n{errors.text}", note=note)

    async def prepare_request(self, agent: str) -> None:
        self._session.follow_touched(self._workspace)
        self._late.follow_turn(self._session.get_turn(agent))
        if note := self._late.take_note(self._workspace.root):
            self._session.add_note(note, agent)


class SessionLanguageServers:
    """All servers of a session. `specs` are those that the project can use; `find_shared` returns one of them.

    `find_workspace` returns the workspace of the folder besides the project that a path lies in, if it is trusted.
    """

    def __init__(
        self,
        config: Config,
        environment: ExecutionEnvironment,
        recorder: Recorder,
        redact: Callable[[str], str],
        find_shared: Callable[[ServerSpec], LanguageServer],
        find_workspace: "Callable[[str], AgentWorkspace | None]" = lambda path: None,
    ) -> None:
        self._config = config
        self._environment = environment
        self._recorder = recorder
        self._redact = redact
        self._find_shared = find_shared
        self._find_workspace = find_workspace
        self.specs = self._find_specs(config.root)
        navigators = [spec for spec in self.specs if spec.navigates]
        self._has_use = next(find_for_project(navigators, config.root), None) is not None
        self._folders: dict[str, LanguageServers] = {}
        changes = recorder.state.file_history.list_since(0)
        self._touched = {item.change.before.path: item.change.after.kind for item in changes}
        """What became of the files that the session changed before it was resumed."""
        self._is_announced = True

    # --- for the agents ---

    def make_call_reviewer(self, workspace: "AgentWorkspace") -> CallReviewer:
        return CallReviewer(self, workspace)

    def get_turn(self, agent: str) -> str:
        return self._recorder.state.open_work.turns.get(agent, "")

    def add_note(self, text: str, agent: str) -> None:
        self._recorder.emit(NoteAdded(self._redact(text)), agent)

    def select_paths(self, tool: Tool[Any], output: ToolOutput, context: ToolContext) -> list[str]:
        """Return the files of a call that a server handles: those it changed, or the one it read before a change."""
        if output.is_error or not (tool.kind == "edit" or tool.name == "Read"):
            return []
        paths = dict.fromkeys(item.path for item in context.resolved_paths or ())
        self._has_use = self._has_use or any(
            spec.navigates and spec.covers(path) for path in paths for spec in self.specs
        )
        if context.mode != "edit_mode":
            return []
        return [path for path in paths if any(spec.covers(path) for spec in self.specs)]

    def follow_touched(self, workspace: "AgentWorkspace") -> None:
        """With the first request of a resumed session, let the servers look at the files that it has changed."""
        touched, self._touched = self._touched, {}
        for path, kind in touched.items():
            is_followed = kind != "absent" and any(spec.covers(path) for spec in self.specs)
            if is_followed and (servers := self.find_servers(workspace, path)) is not None:
                warm_up(servers, path)

    def make_tools(self, workspace: "AgentWorkspace", files: "FileCache") -> tuple[Tool[Any], ...]:
        """Return the tools that ask servers, which are offered once the project has use for a server."""
        if not any(spec.navigates for spec in self.specs):
            return ()
        from odin.lsp.tool import make_tools

        return make_tools(lambda path: self.find_servers(workspace, path), files, lambda: self._has_use)

    def find_servers(self, workspace: "AgentWorkspace", path: str = "") -> LanguageServers | None:
        """Return the servers of a workspace, or of the other folder that a path lies in. More folders than a few have
        none."""
        if path and not contains(workspace.root, path):
            workspace = self._find_workspace(path) or workspace
        known = self._folders.get(workspace.root)
        if known is None:
            self._drop_removed_folders()
        if known is None and len(self._folders) < MAX_FOLDERS:
            known = self._folders[workspace.root] = LanguageServers(
                workspace.root,
                self._make_servers(workspace),
                shown_from=workspace.root if workspace.worktree is not None else self._config.root,
                take_changes=self._make_change_reader(),
                on_change=self._announce,
            )
        return known

    def _make_servers(self, workspace: "AgentWorkspace") -> Iterator[LanguageServer]:
        if workspace.root == self._config.root:
            if any(spec.writes for spec in self.specs):
                self._watching = asyncio.ensure_future(workspace.runner.watch_beside(workspace.root))
            yield from map(self._find_shared, self.specs)
            return
        names = {spec.name for spec in self.specs}
        for spec in self._find_specs(workspace.root):
            if spec.name in names:
                yield make_language_server(spec, workspace.root, workspace.runner, workspace.sandbox, self._environment)

    def _drop_removed_folders(self) -> None:
        """Forget the worktrees that were removed, so that others can have servers."""
        for root in [root for root in self._folders if not os.path.isdir(root)]:  # noqa: PTH112
            self._folders.pop(root).close()

    def _find_specs(self, root: str) -> tuple[ServerSpec, ...]:
        return find_configured_servers(self._config, self._environment.variables, root)

    def _make_change_reader(self) -> Callable[[], Iterator[WatchedChange]]:
        """Return what reads the changes of files that were recorded since it was last called."""
        history = self._recorder.state.file_history
        mark = history.mark()

        def take_changes() -> Iterator[WatchedChange]:
            nonlocal mark
            recorded, mark = history.list_since(mark), history.mark()
            last = {item.change.before.path: item.change for item in recorded}
            for path, change in last.items():
                was_there, is_there = change.before.kind != "absent", change.after.kind != "absent"
                yield WatchedChange(path, 2 if was_there and is_there else 1 if is_there else 3)

        return take_changes

    # --- for front ends ---

    def _announce(self) -> None:
        """Publish the states, once for all changes of a moment."""
        if self._is_announced:
            self._is_announced = False
            asyncio.get_running_loop().call_soon(self._publish)

    def _publish(self) -> None:
        self._is_announced = True
        self._recorder.emit(LanguageServersChanged(self.list_states()))

    def list_states(self) -> tuple[LanguageServerState, ...]:
        """Return the servers of the project; those not started yet are idle."""
        main = self._folders.get(self._config.root)
        if main is not None:
            return main.list_states()
        return tuple(LanguageServerState(spec.name, "idle", file_types=spec.file_types) for spec in self.specs)

    def switch(self, name: str, action: LanguageServerAction, workspace: "AgentWorkspace") -> bool:
        """Restart, disable or enable one server, or all. Return False if nothing changed. Raise UsageError."""
        names = [spec.name for spec in self.specs]
        if name and name not in names:
            raise UsageError(f"There is no language server {name!r} here.", f"One of: {', '.join(names)}.")
        self.find_servers(workspace)
        changed = False
        for folder in self._folders.values():
            for server in folder.all if not name else filter(None, [folder.find(name)]):
                if action == "enable" and folder.is_enabled(server):
                    continue
                changed = True
                if action == "disable":
                    server.leave(self._announce)
                else:
                    server.join(self._announce)
                if action == "restart":
                    server.stop()
        if changed:
            self._announce()
        return changed

    def close(self) -> None:
        for folder in self._folders.values():
            folder.close()
