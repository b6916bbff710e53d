"""The tools of MCP servers for the model, the tools that find and call them, and those for resources."""

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta

from odin.core.format import clip, pluralize
from odin.core.provider import ToolSpec
from odin.core.server_tool import ServerTool
from odin.core.text import to_valid_unicode
from odin.core.tool import Args, Target, Tool, ToolContext, ToolOutput, fail
from odin.mcp.calls import ServerUser
from odin.mcp.connection import ServerConnection, ServerUnavailable
from odin.mcp.listing import MAX_TOOLS, ListedTool
from odin.mcp.results import ResultReader
from odin.mcp.schema import MAX_DESCRIPTION_CHARS, SchemaRejected, describe_conditions, repair_schema

SEARCH_TOOL = "ToolSearch"
CALL_TOOL = "McpCall"
_MAX_FOUND = 5
_MAX_FOUND_BYTES = 8_000
_MAX_LISTED = 200
_SELECT = "select:"
_SHORT_CHARS = 160
_INSTRUCTION_CHARS = 500
_MAX_DESCRIBED = 40


class McpArguments(Args, frozen=True):
    """The arguments of a tool of a server, which validates them itself."""

    values: dict[str, Any]


class McpTool(Tool[McpArguments]):
    """A tool of an MCP server. `is_deferred`: its schema is not sent; the model finds it with ToolSearch."""

    args = McpArguments

    def __init__(self, listed: ListedTool, schema: dict[str, Any], server: ServerConnection, user: ServerUser) -> None:
        self.server_tool = ServerTool(server.name, listed.name)
        self.name = self.server_tool.public_name
        self.kind = "edit" if listed.read_only is False else "network"
        self.short = clip(" ".join(listed.description.split()) or listed.title or listed.name, _SHORT_CHARS)
        self.exclusive = listed.read_only is not True
        self.is_deferred = False
        self.tool = listed.name
        self._listed = listed
        self._conditions = describe_conditions(listed.schema)
        self._schema = schema
        self._server = server
        self._user = user

    @property
    def server(self) -> str:
        return self._server.name

    @property
    def description(self) -> str:
        text = self._listed.description.strip() or self._listed.title or self._listed.name
        return to_valid_unicode("\n".join(filter(None, (text[:MAX_DESCRIPTION_CHARS], self._conditions))))

    def is_offered(self) -> bool:
        return not self.is_deferred

    def build_spec(self, brief: bool = False) -> ToolSpec:
        return ToolSpec(self.name, self.short if brief else self.description, self._schema)

    def parse(self, raw: dict[str, Any]) -> McpArguments:
        return McpArguments(raw)

    def get_target(self, args: McpArguments) -> Target:
        return Target(server_tool=self.server_tool)

    def get_title(self, args: McpArguments) -> str:
        shown = ", ".join(f"{name}: {_show(value)}" for name, value in args.values.items())
        return clip(shown, 200)

    async def run(self, args: McpArguments, ctx: ToolContext) -> ToolOutput:
        try:
            result = await self._server.call_tool(self.tool, args.values, ctx, self._user)
        except ServerUnavailable as error:
            return fail(error.describe(), error.kind)
        output = ResultReader(self._user.folder, self.server).read_call(result)
        return msgspec.structs.replace(output, note=f"{self.server}: {self.tool}")


def _show(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def add_tools(tools: dict[str, McpTool], server: ServerConnection, user: ServerUser) -> list[str]:
    """Add the tools of a server by their names for models. Return why others are left out."""
    problems: list[str] = []
    wanted = server.settings.allowed_tools
    for listed in server.listing.tools if server.listing is not None else ():
        if wanted and not any(fnmatchcase(listed.name, pattern) for pattern in wanted):
            continue
        try:
            schema = repair_schema(listed.schema)
        except SchemaRejected as error:
            problems.append(_describe_omission(listed, server, str(error)))
            continue
        except Exception:  # what a server invents must cost one tool, never the session
            problems.append(_describe_omission(listed, server, "its input schema cannot be read"))
            continue
        tool = McpTool(listed, schema, server, user)
        if same := tools.get(tool.name):
            whose = f"{clip(same.tool, 80)!r} of {same.server}"
            why = f"models and rules call it {tool.name}, and {whose} has that name already"
            problems.append(_describe_omission(listed, server, why))
        else:
            tools[tool.name] = tool
    if server.listing is not None and server.listing.is_cut:
        problems.append(f"The MCP server {server.name} offers more than {MAX_TOOLS:,} tools; the others are left out.")
    return problems


def _describe_omission(listed: ListedTool, server: ServerConnection, why: str) -> str:
    return f"The tool {clip(listed.name, 80)!r} of the MCP server {server.name} is left out: {why}."


class ToolSearchArgs(Args, frozen=True):
    query: Annotated[str, Meta(description="Words, or select:NAME,NAME for tools that you know.")]


class ToolSearchTool(Tool[ToolSearchArgs]):
    """Find tools of MCP servers, with their arguments. Call what you find with McpCall."""

    name = SEARCH_TOOL
    kind = "interactive"
    short = "Find tools of MCP servers."
    args = ToolSearchArgs

    def __init__(self, list_tools: Callable[[str], Sequence[McpTool]]) -> None:
        self._list_tools = list_tools

    def get_title(self, args: ToolSearchArgs) -> str:
        return args.query

    async def run(self, args: ToolSearchArgs, ctx: ToolContext) -> ToolOutput:
        tools = self._list_tools(ctx.agent)
        found = _select_tools(args.query, tools) or rank_tools(args.query, tools)
        if not found:
            names = ", ".join(sorted({tool.server for tool in tools}))
            return ToolOutput(f"No tool matches {args.query!r}. The servers are: {names}. Try other words.")
        lines: list[str] = []
        size = 0
        for tool in found[:_MAX_FOUND]:
            spec = tool.build_spec()
            line = f"{spec.name}: {spec.description}\n{msgspec.json.encode(spec.schema).decode()}"
            size += len(line)
            if lines and size > _MAX_FOUND_BYTES:
                break
            lines.append(line)
        more = [tool.name for tool in found[len(lines) :]][:20]
        lines += [f"More: {', '.join(more)}"] if more else []
        return ToolOutput("\n\n".join(lines), note=pluralize(len(found), "tool"))


def _select_tools(query: str, tools: Sequence[McpTool]) -> list[McpTool]:
    names = [name.strip() for name in query.removeprefix(_SELECT).split(",")]
    return [tool for tool in tools if tool.name in names or (query.startswith(_SELECT) and tool.tool in names)]


def rank_tools(query: str, tools: Sequence[McpTool]) -> list[McpTool]:
    """Return the tools that have words of the query, best first."""
    words = set(re.findall(r"[a-z0-9]+", query.casefold()))
    scored: list[tuple[int, int, McpTool]] = []
    for at, tool in enumerate(tools):
        name, about = tool.name.casefold(), tool.description.casefold()
        score = sum(5 * (word in name) + (word in about) for word in words)
        if score:
            scored.append((-score, at, tool))
    return [tool for _, _, tool in sorted(scored, key=lambda item: item[:2])]


class McpCallArgs(Args, frozen=True):
    tool: str
    arguments: dict[str, Any] = msgspec.field(default_factory=dict[str, Any])


class McpCallTool(Tool[McpCallArgs]):
    """Call a tool that ToolSearch found."""

    name = CALL_TOOL
    kind = "interactive"
    short = "Call a tool that ToolSearch found."
    args = McpCallArgs

    def __init__(self, has_tool: Callable[[str], bool]) -> None:
        self._has_tool = has_tool

    def redirect(self, raw: dict[str, Any]) -> tuple[str, dict[str, Any]] | None:
        name: Any = raw.get("tool")
        arguments: Any = raw.get("arguments", {})
        if isinstance(arguments, str):
            try:
                arguments = msgspec.json.decode(arguments)
            except msgspec.DecodeError:
                return None
        if not isinstance(name, str) or not isinstance(arguments, dict) or not self._has_tool(name):
            return None
        return name, cast("dict[str, Any]", arguments)

    def build_spec(self, brief: bool = False) -> ToolSpec:
        """Return the schema as written: computing that of a `dict` takes longer than the rest of the start."""
        fields = {"tool": {"type": "string", "description": "mcp__server__tool"}, "arguments": {"type": "object"}}
        schema = {"type": "object", "properties": fields, "required": ["tool"], "additionalProperties": False}
        return ToolSpec(self.name, self.description, schema)

    async def run(self, args: McpCallArgs, ctx: ToolContext) -> ToolOutput:
        return fail(f"There is no tool {args.tool!r} now. Find tools with {SEARCH_TOOL}.")


class ListResourcesArgs(Args, frozen=True):
    server: str = ""


class ListResourcesTool(Tool[ListResourcesArgs]):
    """List the resources of MCP servers. In an address with `{name}`, put a value there to read one."""

    name = "ListMcpResources"
    kind = "interactive"
    short = "List the resources of MCP servers."
    args = ListResourcesArgs

    def __init__(self, list_servers: Callable[[], Sequence[ServerConnection]]) -> None:
        self._list_servers = list_servers

    async def run(self, args: ListResourcesArgs, ctx: ToolContext) -> ToolOutput:
        lines = [
            f"{server.name}: {item.uri} {item.name} {item.description}".rstrip()
            for server in self._list_servers()
            if server.listing is not None and args.server in ("", server.name)
            for item in (*server.listing.templates, *server.listing.resources)
        ]
        more = [f"... {len(lines) - _MAX_LISTED} more"] if len(lines) > _MAX_LISTED else []
        return ToolOutput("\n".join([*lines[:_MAX_LISTED], *more]) or "No resources.")


class ReadResourceArgs(Args, frozen=True):
    server: str
    uri: str


class ReadResourceTool(Tool[ReadResourceArgs]):
    """Read a resource of an MCP server."""

    name = "ReadMcpResource"
    kind = "network"
    short = "Read a resource of an MCP server."
    args = ReadResourceArgs

    def __init__(self, find_server: Callable[[str], ServerConnection | None], user: ServerUser) -> None:
        self._find_server = find_server
        self._user = user

    def get_target(self, args: ReadResourceArgs) -> Target:
        return Target(server_tool=ServerTool(args.server))

    def get_title(self, args: ReadResourceArgs) -> str:
        return f"{args.server}:{args.uri}"

    async def run(self, args: ReadResourceArgs, ctx: ToolContext) -> ToolOutput:
        server = self._find_server(args.server)
        if server is None:
            return fail(f"There is no MCP server {args.server!r}.")
        try:
            result = await server.read_resource(args.uri, ctx, self._user)
        except ServerUnavailable as error:
            return fail(error.describe(), error.kind)
        output = ResultReader(self._user.folder, server.name).read_resource(result)
        return msgspec.structs.replace(output, note=f"{args.server}:{args.uri}")


class ServerTools:
    """`is_stale` says that a server has changed; `refresh` builds the tools again.

    `warn` tells the user something. `has_tool` is False for a tool that an agent must not use.
    """

    def __init__(
        self,
        list_servers: Callable[[], Sequence[ServerConnection]],
        user: ServerUser,
        max_schema_bytes: int,
        warn: Callable[[str], None],
        has_tool: Callable[[str, str], bool],
    ) -> None:
        self.version = 0
        self.is_stale = True
        self._list_servers = list_servers
        self._user = user
        self._max_schema_bytes = max_schema_bytes
        self._warn = warn
        self._may_use = has_tool
        self._tools: tuple[Tool[Any], ...] = ()
        self._mcp_tools: tuple[McpTool, ...] = ()
        self._text = ""
        self._specs = b""
        self.refresh()

    def list_tools(self) -> Sequence[Tool[Any]]:
        return self._tools

    def describe_to_model(self) -> str:
        return self._text

    def refresh(self) -> None:
        """Build the tools of all servers again if one has changed."""
        if not self.is_stale:
            return
        self.is_stale = False
        servers = self._list_servers()
        named: dict[str, McpTool] = {}
        problems = [problem for server in servers for problem in add_tools(named, server, self._user)]
        found = [*named.values()]
        self._defer(found, {server.name for server in servers if server.settings.always_load})
        self._mcp_tools = tuple(found)
        own: list[Tool[Any]] = []
        if any(tool.is_deferred for tool in self._mcp_tools):
            own += [ToolSearchTool(self._list_usable), McpCallTool(self._has_tool)]
        if any(server.listing is not None and server.listing.has_resources for server in servers):
            own += [ListResourcesTool(self._list_servers), ReadResourceTool(self._find_server, self._user)]
        self._tools = (*own, *found)
        # The servers whose tools must be searched for, and what servers say about themselves.
        lines: list[str] = []
        for server in servers[:_MAX_DESCRIBED]:
            count = sum(tool.is_deferred for tool in self._mcp_tools if tool.server == server.name)
            about = server.listing.instructions if server.listing is not None else ""
            if count or about:
                hint = f" ({pluralize(count, 'tool')}; find them with {SEARCH_TOOL})" if count else ""
                about = clip(" ".join(about.split()), _INSTRUCTION_CHARS)
                lines.append(f"- {server.name}{hint}{': ' if about else ''}{about}")
        self._text = "\n".join(["# MCP servers", *lines]) if lines else ""
        specs = msgspec.json.encode([self._text, *(tool.build_spec() for tool in self._tools if tool.is_offered())])
        self.version += 1 if self.version == 0 or specs != self._specs else 0
        self._specs = specs
        for problem in problems:
            self._warn(problem)

    def _defer(self, tools: Sequence[McpTool], loaded: set[str]) -> None:
        """Decide whether the schemas are sent: all of them, or only those of servers that always load."""
        sizes = {tool.name: len(msgspec.json.encode(tool.build_spec())) for tool in tools}
        is_large = sum(sizes.values()) > self._max_schema_bytes
        for tool in tools:
            tool.is_deferred = is_large and tool.server not in loaded

    def _list_usable(self, agent: str) -> list[McpTool]:
        return [tool for tool in self._mcp_tools if self._may_use(agent, tool.name)]

    def _has_tool(self, name: str) -> bool:
        return any(tool.name == name for tool in self._mcp_tools)

    def _find_server(self, name: str) -> ServerConnection | None:
        return next((server for server in self._list_servers() if server.name == name), None)
