"""The MCP servers of one session: their tools, prompts and resources for every agent, and their states for the user.

The sessions of a workspace share the connections. Which servers are enabled, and what the model knows of them, is each
session's own; connecting a server again concerns all of them, because there is one.
What changes takes effect between two requests (`prepare_request`). The first request uses what the servers offered the
last time, and they connect after it was sent; only servers that were never connected before are awaited, for a limited
time, those whose tools have expired, for a shorter one, and in a run without a user those that failed the last time:
nothing else would start them. One that did not answer is not awaited again, and tried ever less often. So equal servers
give equal requests, and no request waits for a server that it does not need.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

from msgspec import Struct
from msgspec.structs import replace

from odin.config.settings import McpServerSettings
from odin.core.call_events import ActivityChanged, RequestStarted
from odin.core.client import CustomCommand
from odin.core.errors import UsageError
from odin.core.event import AnyEvent, NoteAdded, ServersChanged, Warned
from odin.core.event_values import Question, ServerStatus
from odin.core.format import clip
from odin.core.message import Attachment
from odin.core.op import ControlServers
from odin.core.server_tool import PREFIX, find_ambiguous_servers
from odin.core.text import list_choices, suggest_similar, to_valid_unicode
from odin.core.tool import Tool, ToolContext, ToolOutput, fail
from odin.engine.event_bus import EventBus
from odin.engine.prompts import ExpandedPrompt
from odin.mcp.calls import ServerUser
from odin.mcp.connection import ConnectionDeps, ServerConnection, ServerUnavailable
from odin.mcp.elicitation import Elicitation
from odin.mcp.failures import import_package
from odin.mcp.listing import ListedPrompt
from odin.mcp.results import ResultReader
from odin.mcp.tools import ServerTools
from odin.mcp.transport import Exchange

_START_S = 2.0
"""How long after the preparation of the first request the servers start at the latest."""

_EXPIRED_S = 3.0
"""How long a request waits for tools that have expired. Then it uses them as they were."""


class ServerDeps(Struct, frozen=True):
    """What the servers need from the session.

    `ask_user` asks for the call with this id and agent and a server, as `AskUser` does. `sample` asks the small model.
    `is_busy` is True while a turn runs. `redact` removes secrets. `has_tool` is False for a tool that an agent must not
    use. With `is_lazy` known servers start with the first call: a run that answers one prompt may need none of them.
    """

    folder: Path
    bus: EventBus
    emit: Callable[[AnyEvent, str], object]
    redact: Callable[[str], str]
    is_busy: Callable[[], bool]
    ask_user: Callable[[str, tuple[Question, ...], str, str], Awaitable[tuple[tuple[str, ...], ...] | None]]
    sample: Callable[[str, Any], Awaitable[Any]]
    has_tool: Callable[[str, str], bool] = lambda agent, tool: True
    is_lazy: bool = False


class WorkspaceServers(Struct, frozen=True):
    """The connections that the sessions of a workspace share, by name, and what others are made with."""

    deps: ConnectionDeps
    connections: Mapping[str, ServerConnection]


def make_workspace_servers(deps: ConnectionDeps) -> WorkspaceServers:
    """Return the configured servers that sessions can share. The SDK client of one session hosts the others."""
    shared = {name: one for name, one in deps.config.mcp.items() if one.shared and one.transport != "sdk"}
    source = deps.config.sources.get("mcp", "")
    return WorkspaceServers(deps, {name: ServerConnection(name, one, deps, source) for name, one in shared.items()})


class SessionServers:
    """All servers. It is the `ToolSource` of every agent."""

    def __init__(self, deps: ServerDeps, shared: WorkspaceServers, enabled: Sequence[str] = ()) -> None:
        self._deps = deps
        self._exchanges: dict[str, Exchange] = {}
        self._own = replace(shared.deps, find_exchange=self._exchanges.get)
        self._config = shared.deps.config
        self._environment = shared.deps.environment
        self._user = ServerUser(
            folder=deps.folder,
            on_change=self._note_change,
            log=lambda server, text: self._warn(f"{server}: {text}"),
            answer=self._answer,
            sample=deps.sample,
        )
        source = self._config.sources.get("mcp", "")
        self._servers = {
            name: shared.connections.get(name) or ServerConnection(name, settings, self._own, source)
            for name, settings in self._config.mcp.items()
        }
        for name, server in self._servers.items():
            if not server.settings.manual or name in enabled:
                server.join(self._user)
        self._agent_servers: dict[str, ServerConnection] = {}
        self._slow = [
            server for _, server in self._list_enabled() if deps.is_lazy and server.is_slow and server.listing is None
        ]
        self._awaited = [
            server
            for _, server in self._list_enabled()
            if server.is_new or server.is_expired or (deps.is_lazy and server.listing is None and not server.is_slow)
        ]
        self._starting: asyncio.Task[None] | None = None
        self._changing: dict[str, ServerConnection] = {}
        self._reconnecting: list[ServerConnection] = []
        self._noted = {name for name, _ in self._list_enabled()}
        self._hint = f"{'`odin mcp`' if deps.is_lazy else '/mcp'} shows the servers."
        self._told: dict[str, ServerStatus] = {}
        self._failures: dict[str, str] = {}
        self._warned: set[str] = set()
        self._toolsets: WeakSet[ServerTools] = WeakSet()
        self._main = self.make_tools(())

    async def _answer(self, server: str, params: Any, context: ToolContext) -> Any:
        async def ask(call_id: str, questions: tuple[Question, ...]) -> Any:
            return await self._deps.ask_user(call_id, questions, context.agent, server)

        return await Elicitation(ask, lambda text: self._warn(text, context.agent)).answer(server, params, context)

    def _is_enabled(self, server: ServerConnection) -> bool:
        return self._user in server.users

    def _list_enabled(self) -> list[tuple[str, ServerConnection]]:
        return [(name, server) for name, server in self._servers.items() if self._is_enabled(server)]

    def _warn(self, text: str, agent: str = "") -> None:
        self._deps.emit(Warned(to_valid_unicode(self._deps.redact(text))), agent)

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._warn(text)

    # --- states ---

    def list_statuses(self) -> tuple[ServerStatus, ...]:
        found = (server.describe(self._user) for server in (*self._servers.values(), *self._agent_servers.values()))
        return tuple(replace(item, detail=self._deps.redact(item.detail)) for item in found)

    def list_tool_names(self, name: str) -> tuple[str, ...]:
        listing = self._servers[name].listing
        return tuple(tool.name for tool in listing.tools) if listing is not None else ()

    def _note_change(self) -> None:
        """Publish the states if they changed, and warn about a server that has failed."""
        for tools in self._toolsets:
            tools.is_stale = True
        statuses = self.list_statuses()
        for status in statuses:
            if status.state == "ready":
                self._failures.pop(status.name, None)
            elif status.state == "failed" and self._failures.get(status.name) != status.detail:
                # once: another session may try it again and again
                self._failures[status.name] = status.detail
                self._warn(f"The MCP server {status.name} cannot be used: {status.detail.rstrip('.')}. {self._hint}")
        if {status.name: status for status in statuses} != self._told:
            self._told = {status.name: status for status in statuses}
            self._deps.emit(ServersChanged(statuses), "")

    # --- before requests ---

    def begin_prompt(self) -> None:
        """Called before a prompt starts. Servers that were never connected before start now."""
        slow, self._slow = self._slow, []
        for server in slow:
            why = "did not answer the last time, so the first request does not wait for it"
            if not server.is_due:
                why = "did not answer the last time, so it is not started now. `odin mcp` tries it again"
            self._warn_once(f"The MCP server {server.name} {why}.")
        for server in (*self._awaited, *(server for server in slow if server.is_due)):
            server.start()

    async def prepare_request(self, agent: str) -> None:
        """Apply what has changed. Wait for servers whose tools are not known yet, for a limited time."""
        for server in self._reconnecting:
            await self._connect_again(server)
        self._reconnecting.clear()
        if self._awaited:
            waiting, self._awaited = self._awaited, []
            await self.wait_for(waiting, agent)
        await asyncio.gather(*(server.wait_refreshed() for _, server in self._list_enabled()))
        if self._starting is None and not self._deps.is_lazy:
            self._starting = asyncio.create_task(self._start_after_request())
        self._main.refresh()
        for server in self._changing.values():
            await server.close_unused()
        self._changing.clear()
        if not agent:
            # Tell the model of the main agent which servers the user has enabled or disabled since its last request.
            enabled = {name for name, _ in self._list_enabled()}
            changes = (("enabled", enabled - self._noted), ("disabled", self._noted - enabled))
            said = [f"The user {what} the MCP servers {', '.join(sorted(names))}." for what, names in changes if names]
            self._noted = enabled
            if said:
                self._deps.emit(NoteAdded(" ".join(said)), "")

    async def wait_for(self, waiting: Sequence[ServerConnection], agent: str) -> None:
        """Start servers and wait until each is ready or has failed, for a limited time. Say which are neither."""
        limit = self._config.mcp_limits.wait_s
        if all(server.listing is not None for server in waiting):
            limit = min(limit, _EXPIRED_S)
        for server in waiting:
            server.start()
        if not all(server.is_settled for server in waiting):
            self._deps.emit(ActivityChanged("connecting", "MCP servers"), agent)
        if limit and waiting:
            await asyncio.to_thread(import_package)
        with suppress(TimeoutError):
            async with asyncio.timeout(limit):
                await asyncio.gather(*(server.wait_settled() for server in waiting))
        for server in waiting if limit else ():
            if not server.is_settled and server.listing is None:
                server.remember_failure(is_slow=True)
                why = f"did not answer within {limit:g} s, so the model does not have its tools yet"
                self._warn_once(f"The MCP server {server.name} {why}. {self._hint}")

    async def _start_after_request(self) -> None:
        """Start all servers once a request was sent, so that it does not wait for the import of the package."""
        if all(server.is_settled for _, server in self._list_enabled()):
            return
        events = self._deps.bus.subscribe()
        with suppress(TimeoutError):
            async with asyncio.timeout(_START_S):
                async for envelope in events:
                    if isinstance(envelope.event, RequestStarted):
                        break
        events.close()
        for _, server in self._list_enabled():
            server.start()

    # --- as a tool source: what every agent has ---

    @property
    def version(self) -> int:
        return self._main.version

    def list_tools(self) -> Sequence[Tool[Any]]:
        return self._main.list_tools()

    def describe_to_model(self) -> str:
        return self._main.describe_to_model()

    # --- servers of agents ---

    def add_agent_servers(
        self, agent: str, servers: Mapping[str, McpServerSettings], *, of_project: bool
    ) -> "AgentServers":
        """Return the tool source of an agent that brings its own servers.

        They are shared with every agent that brings one of the same name, and a server of the session takes the place
        of one with its name. With `of_project`, the project brings them.
        """
        own: list[ServerConnection] = []
        for name, settings in servers.items():
            known = self._servers.get(name) or self._agent_servers.get(name)
            unclear = find_ambiguous_servers((*self._servers, *self._agent_servers, name)) if known is None else ()
            if why := next((why for names, why in unclear if name in names), ""):
                self._warn_once(f"The MCP server {name} of the agent {agent} cannot be used: {why}")
                continue
            if known is None:
                own_settings, source = replace(settings, manual=False), f"agent {agent}"
                known = ServerConnection(name, own_settings, self._own, source, of_project=of_project)
                known.join(self._user)
                self._agent_servers[name] = known
            elif known.settings != replace(settings, manual=known.settings.manual):
                self._warn_once(f"The agent {agent} uses another MCP server {name} that is configured already.")
            if name in self._agent_servers:
                own.append(known)
        return AgentServers(self, own)

    def make_tools(self, own: Sequence[ServerConnection]) -> ServerTools:
        """Return the tools of the session's servers and of these ones."""
        tools = ServerTools(
            lambda: [*(server for _, server in self._list_enabled()), *own],
            self._user,
            self._config.mcp_limits.max_schema_bytes,
            self._warn_once,
            self._deps.has_tool,
        )
        self._toolsets.add(tools)
        return tools

    def _find_enabled(self, name: str) -> ServerConnection | None:
        return dict(self._list_enabled()).get(name)

    # --- changes by the user ---

    async def control(self, op: ControlServers) -> tuple[str, ...]:
        """Carry out an op, while a turn runs before its next request. Return the servers that were switched."""
        servers = self._choose(op)
        if op.action == "reconnect":
            if self._deps.is_busy():
                self._reconnecting += [server for server in servers if server not in self._reconnecting]
            else:
                for server in servers:
                    await self._connect_again(server)
            return ()
        if self._changing:
            names = ", ".join(sorted(self._changing))
            raise UsageError(f"A change of {names} has not taken effect yet.", "Try again after the next request.")
        enabled = op.action == "enable"
        changed = [server for server in servers if self._is_enabled(server) != enabled]
        for server in changed:
            if self._deps.is_busy():
                self._changing[server.name] = server
            if enabled:
                server.join(self._user)
                self._await_server(server)
            else:
                server.users.discard(self._user)
                self._awaited = [other for other in self._awaited if other is not server]
                if not self._deps.is_busy():
                    await server.close_unused()
        if changed:
            self._note_change()
        return tuple(server.name for server in changed)

    async def _connect_again(self, server: ServerConnection) -> None:
        self._failures.pop(server.name, None)
        await server.close()
        if self._is_enabled(server):
            self._await_server(server)

    def _await_server(self, server: ServerConnection) -> None:
        server.start()
        self._awaited.append(server)

    def _choose(self, op: ControlServers) -> list[ServerConnection]:
        servers = {**self._agent_servers, **self._servers}
        for name in op.names:
            if name not in servers:
                raise UsageError(
                    f"There is no MCP server {name!r}.{suggest_similar(name, servers)}",
                    f"The servers are: {list_choices(tuple(servers))}." if servers else "",
                )
            if op.action == "reconnect" and not self._is_enabled(servers[name]):
                raise UsageError(f"{name} is disabled.", f"Enable it with /mcp enable {name}.")
            if op.action != "reconnect" and not op.force and not servers[name].settings.manual:
                raise UsageError(
                    f"{name} is always on: only manual servers can be enabled and disabled.",
                    'Set "manual": true for it in the configuration.',
                )
        if op.names:
            return [servers[name] for name in op.names]
        if op.action == "reconnect":
            return [server for server in servers.values() if self._is_enabled(server) and server.is_failed]
        return [server for server in self._servers.values() if server.settings.manual]

    def add_exchange(self, name: str, exchange: Exchange) -> None:
        """Connect a server that an SDK client hosts."""
        self._exchanges[name] = exchange

    # --- prompts and resources ---

    def list_commands(self) -> list[CustomCommand]:
        """Return the prompts of the servers as slash commands, `/server:prompt`."""
        return [
            CustomCommand(
                f"{name}:{prompt.name}", clip(" ".join(prompt.description.split()), 200), _format_hint(prompt), "mcp"
            )
            for name, server in self._list_enabled()
            if server.listing is not None
            for prompt in server.listing.prompts
            if " " not in prompt.name
        ]

    async def expand_command(self, word: str, arguments: str) -> ExpandedPrompt | None:
        """Return what `/server:prompt arguments` or `/mcp__server__prompt` stands for; None without such a prompt.

        Raise UsageError if an argument is missing, or the server does not answer.
        """
        for name, server in self._list_enabled():
            for prompt in server.listing.prompts if server.listing is not None else ():
                if word.casefold() in (f"{name}:{prompt.name}".casefold(), f"{PREFIX}{name}__{prompt.name}".casefold()):
                    return await self._fetch_prompt(server, prompt, arguments)
        return None

    async def _fetch_prompt(self, server: ServerConnection, prompt: ListedPrompt, typed: str) -> ExpandedPrompt:
        words = typed.split(maxsplit=max(len(prompt.arguments) - 1, 0)) if prompt.arguments else []
        if len(words) < prompt.required:
            missing = prompt.arguments[len(words)]
            raise UsageError(
                f"The argument {missing!r} is missing.", f"Usage: /{server.name}:{prompt.name} {_format_hint(prompt)}"
            )
        values = dict(zip(prompt.arguments, words, strict=False))
        timing = self._environment.timing
        limit = timing.mcp_prompt_s
        waiting = Warned(f"Waiting for the MCP server {server.name}, for at most {limit:g} s.", "info")
        timer = asyncio.get_running_loop().call_later(timing.mcp_waiting_note_s, self._deps.emit, waiting, "")
        try:
            async with asyncio.timeout(limit):
                result = await server.get_prompt(prompt.name, values, self._make_context(), self._user)
        except ServerUnavailable as error:
            raise UsageError(str(error), error.hint) from error
        except TimeoutError:
            raise UsageError(f"The MCP server {server.name} did not answer within {limit:g} s.") from None
        finally:
            timer.cancel()
        read = ResultReader(self._deps.folder, server.name).read_prompt(result)
        attached = (
            Attachment(
                f"{prompt.name}-{number}.{image.media_type.rpartition('/')[2]}",
                data=Path(image.path).read_bytes(),
                media_type=image.media_type,
            )
            for number, image in enumerate(read.images, 1)
        )
        return ExpandedPrompt(read.text, attachments=tuple(attached))

    def find_resources(self, words: str, limit: int) -> tuple[str, ...]:
        """Return mentions of resources, `server:uri`, that match the letters."""
        letters = words.casefold()
        found = (
            f"{name}:{item.uri}"
            for name, server in self._list_enabled()
            for item in (server.listing.resources if server.listing is not None else ())
            if letters in f"{name}:{item.uri} {item.name}".casefold() and " " not in item.uri
        )
        return tuple(mention for mention, _ in zip(found, range(limit), strict=False))

    def find_mentioned(self, mention: str) -> tuple[str, str] | None:
        """Return the server and the URI that a mention names, or None."""
        name, _, uri = mention.partition(":")
        server = self._find_enabled(name) if uri else None
        if server is None:
            return None
        listed = server.listing.resources if server.listing is not None else ()
        is_known = any(item.uri == uri for item in listed)
        return (name, uri) if is_known or ("://" in uri and uri[-1] not in ".,;:!?)") else None

    async def read_resource(self, name: str, uri: str) -> ToolOutput:
        server = self._find_enabled(name)
        if server is None:
            return fail(f"There is no MCP server {name!r}.")
        try:
            result = await server.read_resource(uri, self._make_context(), self._user)
        except ServerUnavailable as error:
            return fail(error.describe())
        return ResultReader(self._deps.folder, name).read_resource(result)

    def _make_context(self) -> ToolContext:
        """Return the context of a request that no tool call makes."""
        root = self._config.root
        return ToolContext(root, root, "", "", "", "edit_mode", lambda text: None, self._environment)

    async def connect_all(self) -> None:
        """Connect all enabled servers and wait until each is ready or has failed."""
        for _, server in self._list_enabled():
            server.start()
        await asyncio.gather(*(server.wait_settled() for _, server in self._list_enabled()))

    async def close(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait([self._starting])
        servers = (*self._servers.values(), *self._agent_servers.values())
        for server in servers:
            server.users.discard(self._user)
        await asyncio.gather(*(server.close_unused() for server in servers), return_exceptions=True)


class AgentServers:
    """The `ToolSource` of an agent with servers of its own: their tools, and those of the session."""

    def __init__(self, session: SessionServers, own: Sequence[ServerConnection]) -> None:
        self._session = session
        self._own = own
        self._tools = session.make_tools(own)
        self._is_awaited = False

    @property
    def version(self) -> int:
        return self._tools.version

    def list_tools(self) -> Sequence[Tool[Any]]:
        return self._tools.list_tools()

    def describe_to_model(self) -> str:
        return self._tools.describe_to_model()

    async def prepare_request(self, agent: str) -> None:
        """Prepare the session's servers; start the own ones, and wait once for those that were never connected."""
        await self._session.prepare_request(agent)
        if not self._is_awaited:
            self._is_awaited = True
            for server in self._own:
                server.start()
            await self._session.wait_for([server for server in self._own if server.is_new], agent)
        await asyncio.gather(*(server.wait_refreshed() for server in self._own))
        self._tools.refresh()


def _format_hint(prompt: ListedPrompt) -> str:
    names = [name if at < prompt.required else f"[{name}]" for at, name in enumerate(prompt.arguments)]
    return " ".join(names)
