"""The MCP servers of one session: their tools, prompts and resources for every agent, and their states for the user.

What changes takes effect between two requests (`prepare_request`). The first request uses what the servers offered the
last time, and they connect after it was sent; only servers that were never connected before are awaited, for a limited
time. So equal servers give equal requests, and no request waits for a server that it does not need.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from odin.config import Config, get_cache_dir
from odin.core.call_events import ActivityChanged, RequestStarted
from odin.core.client import CustomCommand
from odin.core.errors import UsageError
from odin.core.event import AnyEvent, NoteAdded, ServersChanged, Warned
from odin.core.event_values import Question, ServerStatus
from odin.core.format import clip, count_of
from odin.core.op import ControlServers
from odin.core.text import list_choices, suggest_similar, to_valid_unicode
from odin.core.tool import Tool, ToolContext, ToolOutput, fail
from odin.engine.event_bus import EventBus
from odin.mcp.connection import ConnectionDeps, ServerConnection, ServerUnavailable
from odin.mcp.elicitation import Elicitation
from odin.mcp.listing import ListedPrompt, ListingCache
from odin.mcp.results import ResultReader
from odin.mcp.tools import (
    SEARCH_TOOL,
    ListResourcesTool,
    McpCallTool,
    McpTool,
    ReadResourceTool,
    ToolSearchTool,
    make_tools,
)
from odin.mcp.transport import Exchange, ServerProcesses

_START_S = 2.0
"""How long after the preparation of the first request the servers start at the latest."""

PROMPT_S = 20.0
"""How long a slash command waits for the prompt of its server, which may have to be started for it."""

_INSTRUCTION_CHARS = 500
_MAX_DESCRIBED = 40


class ServerDeps(Struct, frozen=True):
    """What the servers need from the session.

    `ask_user` asks for the call with this id and agent, None if no user can be asked. `sample` asks the small model.
    `is_busy` is True while a turn runs. `redact` removes secrets. With `is_lazy` known servers start with the first
    call: a run that answers one prompt may need none of them.
    """

    config: Config
    env: Mapping[str, str]
    folder: Path
    bus: EventBus
    emit: Callable[[AnyEvent, str], object]
    redact: Callable[[str], str]
    is_busy: Callable[[], bool]
    ask_user: Callable[[str, tuple[Question, ...], str], Awaitable[tuple[tuple[str, ...], ...] | None]] | None
    sample: Callable[[str, Any], Awaitable[Any]]
    is_lazy: bool = False


class SessionServers:
    """All servers. It is the `ToolSource` of every agent."""

    def __init__(self, deps: ServerDeps, enabled: Sequence[str] = ()) -> None:
        self.version = 0
        self._deps = deps
        self._exchanges: dict[str, Exchange] = {}
        self._processes = ServerProcesses(deps.env, deps.config.env_passthrough)
        shared = self._make_connection_deps()
        sources = deps.config.sources.get("mcp", "")
        self._servers = {
            name: ServerConnection(name, settings, shared, sources) for name, settings in deps.config.mcp.items()
        }
        for name in enabled:
            if name in self._servers:
                self._servers[name].is_enabled = True
        self._awaited = {name for name, server in self._list_enabled() if server.is_new}
        self._starting: asyncio.Task[None] | None = None
        self._changing: set[str] = set()
        self._reconnecting: list[ServerConnection] = []
        self._noted = {name for name, _ in self._list_enabled()}
        self._told: dict[str, ServerStatus] = {}
        self._warned: set[str] = set()
        self._tools: tuple[Tool[Any], ...] = ()
        self._mcp_tools: tuple[McpTool, ...] = ()
        self._text = ""
        self._is_stale = False
        self._rebuild()

    def _make_connection_deps(self) -> ConnectionDeps:
        deps = self._deps

        async def answer(server: str, params: Any, context: ToolContext | None) -> Any:
            ask, agent = deps.ask_user, "" if context is None else context.agent

            async def ask_for_agent(call_id: str, questions: tuple[Question, ...]) -> Any:
                return None if ask is None else await ask(call_id, questions, agent)

            bound = None if ask is None else ask_for_agent
            return await Elicitation(bound, lambda text: self._warn(text, agent)).answer(server, params, context)

        def make_auth(name: str, settings: Any) -> Any:
            from odin.mcp.oauth import make_stored_auth

            return make_stored_auth(name, settings, deps.env)

        return ConnectionDeps(
            root=deps.config.root,
            limits=deps.config.mcp_limits,
            processes=self._processes,
            cache=ListingCache(get_cache_dir(deps.env) / "mcp"),
            on_change=self._note_change,
            log=lambda server, text: self._warn(f"{server}: {text}"),
            answer=answer,
            sample=deps.sample,
            find_exchange=lambda name: self._exchanges.get(name),
            explain_forbidden=self._explain_forbidden,
            make_auth=make_auth,
        )

    def _explain_forbidden(self, name: str) -> str:
        """Return why a server must not start: files that it runs have changed since the folder was trusted."""
        wanted = self._deps.config.wanted.get("mcp", {})
        changed = self._deps.config.trust.find_changed_programs() if name in wanted else ()
        return f"{', '.join(changed)} changed since you trusted this folder" if changed else ""

    def _list_enabled(self) -> list[tuple[str, ServerConnection]]:
        return [(name, server) for name, server in self._servers.items() if server.is_enabled]

    def _warn(self, text: str, agent: str = "") -> None:
        self._deps.emit(Warned(to_valid_unicode(self._deps.redact(text))), agent)

    # --- states ---

    def list_statuses(self) -> tuple[ServerStatus, ...]:
        found = (server.status for server in self._servers.values())
        return tuple(msgspec.structs.replace(item, detail=self._deps.redact(item.detail)) for item in found)

    def _note_change(self) -> None:
        """Publish the states if they changed, and warn about a server that has failed."""
        self._is_stale = True
        statuses = self.list_statuses()
        for status in statuses:
            before = self._told.get(status.name)
            if status.state == "failed" and (before is None or before.state != "failed"):
                hint = "/mcp shows the servers."
                self._warn(f"The MCP server {status.name} cannot be used: {status.detail.rstrip('.')}. {hint}")
        if {status.name: status for status in statuses} != self._told:
            self._told = {status.name: status for status in statuses}
            self._deps.emit(ServersChanged(statuses), "")

    # --- before requests ---

    def begin_prompt(self) -> None:
        """Called before a prompt starts. Servers that were never connected before start now."""
        for name in self._awaited:
            self._servers[name].start()

    async def prepare_request(self, agent: str) -> None:
        """Apply what has changed. Wait for servers whose tools are not known yet, for a limited time."""
        for server in self._reconnecting:
            await self._connect_again(server)
        self._reconnecting.clear()
        if self._awaited:
            await self._wait_for_new(agent)
        if self._starting is None and not self._deps.is_lazy:
            self._starting = asyncio.create_task(self._start_after_request())
        if self._is_stale:
            self._rebuild()
        for name in self._changing:
            if not self._servers[name].is_enabled:
                await self._servers[name].close()
        self._changing.clear()
        if not agent:
            self._note_switched()

    def _note_switched(self) -> None:
        """Tell the model of the main agent which servers the user has enabled or disabled since its last request."""
        enabled = {name for name, _ in self._list_enabled()}
        changes = (("enabled", enabled - self._noted), ("disabled", self._noted - enabled))
        said = [f"The user {what} the MCP servers {', '.join(sorted(names))}." for what, names in changes if names]
        self._noted = enabled
        if said:
            self._deps.emit(NoteAdded(" ".join(said)), "")

    async def _wait_for_new(self, agent: str) -> None:
        waiting = [self._servers[name] for name in self._awaited]
        self._awaited.clear()
        for server in waiting:
            server.start()
        if not all(server.is_settled for server in waiting):
            self._deps.emit(ActivityChanged("connecting", "MCP servers"), agent)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._deps.config.mcp_limits.wait_s):
                await asyncio.gather(*(server.wait_settled() for server in waiting))

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

    def _rebuild(self) -> None:
        """Build the tools of all servers again."""
        self._is_stale = False
        found: list[McpTool] = []
        problems: list[str] = []
        for _, server in self._list_enabled():
            made, faults = make_tools(server, self._deps.folder, (tool.name for tool in found))
            found += made
            problems += faults
        self._defer(found)
        self._mcp_tools = tuple(found)
        self._tools = (*self._make_own_tools(), *found)
        text = self._describe()
        specs = msgspec.json.encode([text, *(tool.build_spec() for tool in self._tools if tool.is_offered())])
        self._text = text
        self.version += 1 if self.version == 0 or specs != self._specs else 0
        self._specs = specs
        for problem in problems:
            if problem not in self._warned:
                self._warned.add(problem)
                self._warn(problem)

    _specs = b""

    def _defer(self, tools: Sequence[McpTool]) -> None:
        """Decide whether the schemas are sent: all of them, or only those of servers that always load."""
        sizes = {tool.name: len(msgspec.json.encode(tool.build_spec())) for tool in tools}
        is_large = sum(sizes.values()) > self._deps.config.mcp_limits.max_schema_bytes
        for tool in tools:
            tool.is_deferred = is_large and not self._servers[tool.server].settings.always_load

    def _make_own_tools(self) -> list[Tool[Any]]:
        own: list[Tool[Any]] = []
        if any(tool.is_deferred for tool in self._mcp_tools):
            own += [ToolSearchTool(lambda: self._mcp_tools), McpCallTool(self._has_tool)]
        if any(server.listing is not None and server.listing.has_resources for _, server in self._list_enabled()):
            own.append(ListResourcesTool(lambda: [server for _, server in self._list_enabled()]))
            own.append(ReadResourceTool(self._find_enabled, self._deps.folder))
        return own

    def _has_tool(self, name: str) -> bool:
        return any(tool.name == name for tool in self._mcp_tools)

    def _find_enabled(self, name: str) -> ServerConnection | None:
        return dict(self._list_enabled()).get(name)

    # --- as a tool source ---

    def list_tools(self) -> Sequence[Tool[Any]]:
        return self._tools

    def describe_to_model(self) -> str:
        return self._text

    def _describe(self) -> str:
        """Return the servers whose tools must be searched for, and what servers say about themselves."""
        lines: list[str] = []
        for name, server in self._list_enabled()[:_MAX_DESCRIBED]:
            count = sum(tool.is_deferred for tool in self._mcp_tools if tool.server == name)
            about = server.listing.instructions if server.listing is not None else ""
            if count or about:
                found = f" ({count_of(count, 'tool')}; find them with {SEARCH_TOOL})" if count else ""
                lines.append(
                    f"- {name}{found}{': ' if about else ''}{clip(' '.join(about.split()), _INSTRUCTION_CHARS)}"
                )
        return "\n".join(["# MCP servers", *lines]) if lines else ""

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
        changed = [server for server in servers if server.is_enabled != enabled]
        for server in changed:
            server.is_enabled = enabled
            if self._deps.is_busy():
                self._changing.add(server.name)
            if enabled:
                self._await_server(server)
            else:
                self._awaited.discard(server.name)
                if not self._deps.is_busy():
                    await server.close()
        if changed:
            self._note_change()
        return tuple(server.name for server in changed)

    async def _connect_again(self, server: ServerConnection) -> None:
        await server.close()
        if server.is_enabled:
            self._await_server(server)

    def _await_server(self, server: ServerConnection) -> None:
        server.start()
        self._awaited.add(server.name)

    def _choose(self, op: ControlServers) -> list[ServerConnection]:
        for name in op.names:
            if name not in self._servers:
                raise UsageError(
                    f"There is no MCP server {name!r}.{suggest_similar(name, self._servers)}",
                    f"The servers are: {list_choices(tuple(self._servers))}." if self._servers else "",
                )
            if op.action == "reconnect" and not self._servers[name].is_enabled:
                raise UsageError(f"{name} is disabled.", f"Enable it with /mcp enable {name}.")
            if op.action != "reconnect" and not op.force and not self._servers[name].settings.manual:
                raise UsageError(
                    f"{name} is always on: only manual servers can be enabled and disabled.",
                    'Set "manual": true for it in the configuration.',
                )
        if op.names:
            return [self._servers[name] for name in op.names]
        if op.action == "reconnect":
            return [server for _, server in self._list_enabled() if server.is_failed]
        return [server for server in self._servers.values() if server.settings.manual]

    def add_exchange(self, name: str, exchange: Exchange) -> None:
        """Connect a server that an SDK client hosts."""
        self._exchanges[name] = exchange

    # --- prompts and resources ---

    def list_commands(self) -> list[CustomCommand]:
        """Return the prompts of the servers as slash commands, `/server:prompt`."""
        return [
            CustomCommand(
                f"{name}:{prompt.name}", clip(" ".join(prompt.description.split()), 200), _hint_of(prompt), "mcp"
            )
            for name, server in self._list_enabled()
            if server.listing is not None
            for prompt in server.listing.prompts
            if " " not in prompt.name
        ]

    async def expand_command(self, word: str, arguments: str) -> str | None:
        """Return the text of `/server:prompt arguments` or `/mcp__server__prompt`; None if there is no such prompt.

        Raise UsageError if an argument is missing, or the server does not answer.
        """
        for name, server in self._list_enabled():
            for prompt in server.listing.prompts if server.listing is not None else ():
                if word.casefold() in (f"{name}:{prompt.name}".casefold(), f"mcp__{name}__{prompt.name}".casefold()):
                    return await self._fetch_prompt(server, prompt, arguments)
        return None

    async def _fetch_prompt(self, server: ServerConnection, prompt: ListedPrompt, typed: str) -> str:
        words = typed.split(maxsplit=max(len(prompt.arguments) - 1, 0)) if prompt.arguments else []
        if len(words) < prompt.required:
            missing = prompt.arguments[len(words)]
            raise UsageError(
                f"The argument {missing!r} is missing.", f"Usage: /{server.name}:{prompt.name} {_hint_of(prompt)}"
            )
        values = dict(zip(prompt.arguments, words, strict=False))
        try:
            async with asyncio.timeout(PROMPT_S):
                result = await server.get_prompt(prompt.name, values, self._make_context())
        except ServerUnavailable as error:
            raise UsageError(str(error), error.hint) from error
        except TimeoutError:
            raise UsageError(f"The MCP server {server.name} did not answer within {PROMPT_S:g} s.") from None
        return ResultReader(self._deps.folder, server.name).read_prompt(result)

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
            result = await server.read_resource(uri, self._make_context())
        except ServerUnavailable as error:
            return fail(error.describe())
        return ResultReader(self._deps.folder, name).read_resource(result)

    def _make_context(self) -> ToolContext:
        """Return the context of a request that no tool call makes."""
        root = self._deps.config.root
        return ToolContext(root, root, "", "", "", "edit_mode", lambda text: None)

    async def connect_all(self) -> None:
        """Connect all enabled servers and wait until each is ready or has failed."""
        for _, server in self._list_enabled():
            server.start()
        await asyncio.gather(*(server.wait_settled() for _, server in self._list_enabled()))

    async def close(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait([self._starting])
        await asyncio.gather(*(server.close() for server in self._servers.values()), return_exceptions=True)
        await self._processes.close()


def _hint_of(prompt: ListedPrompt) -> str:
    names = [name if at < prompt.required else f"[{name}]" for at, name in enumerate(prompt.arguments)]
    return " ".join(names)
