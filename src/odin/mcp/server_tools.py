"""The tools of some servers as one `ToolSource`: their own, those that find them, and those for resources."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from odin.core.format import clip, count_of
from odin.core.tool import Tool
from odin.mcp.connection import ServerConnection
from odin.mcp.tools import (
    SEARCH_TOOL,
    ListResourcesTool,
    McpCallTool,
    McpTool,
    ReadResourceTool,
    ToolSearchTool,
    make_tools,
)

_INSTRUCTION_CHARS = 500
_MAX_DESCRIBED = 40


class ServerTools:
    """`is_stale` says that a server has changed; `refresh` builds the tools again.

    `warn` tells the user something. `has_tool` is False for a tool that an agent must not use.
    """

    def __init__(
        self,
        list_servers: Callable[[], Sequence[ServerConnection]],
        folder: Path,
        max_schema_bytes: int,
        warn: Callable[[str], None],
        has_tool: Callable[[str, str], bool],
    ) -> None:
        self.version = 0
        self.is_stale = True
        self._list_servers = list_servers
        self._folder = folder
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
        found: list[McpTool] = []
        problems: list[str] = []
        for server in servers:
            made, faults = make_tools(server, self._folder, (tool.name for tool in found))
            found += made
            problems += faults
        self._defer(found, {server.name for server in servers if server.settings.always_load})
        self._mcp_tools = tuple(found)
        self._tools = (*self._make_own_tools(servers), *found)
        self._text = self._describe(servers)
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

    def _make_own_tools(self, servers: Sequence[ServerConnection]) -> list[Tool[Any]]:
        own: list[Tool[Any]] = []
        if any(tool.is_deferred for tool in self._mcp_tools):
            own += [ToolSearchTool(self._list_usable), McpCallTool(self._has_tool)]
        if any(server.listing is not None and server.listing.has_resources for server in servers):
            own += [ListResourcesTool(self._list_servers), ReadResourceTool(self._find_server, self._folder)]
        return own

    def _list_usable(self, agent: str) -> list[McpTool]:
        return [tool for tool in self._mcp_tools if self._may_use(agent, tool.name)]

    def _has_tool(self, name: str) -> bool:
        return any(tool.name == name for tool in self._mcp_tools)

    def _find_server(self, name: str) -> ServerConnection | None:
        return next((server for server in self._list_servers() if server.name == name), None)

    def _describe(self, servers: Sequence[ServerConnection]) -> str:
        """Return the servers whose tools must be searched for, and what servers say about themselves."""
        lines: list[str] = []
        for server in servers[:_MAX_DESCRIBED]:
            count = sum(tool.is_deferred for tool in self._mcp_tools if tool.server == server.name)
            about = server.listing.instructions if server.listing is not None else ""
            if count or about:
                found = f" ({count_of(count, 'tool')}; find them with {SEARCH_TOOL})" if count else ""
                about = clip(" ".join(about.split()), _INSTRUCTION_CHARS)
                lines.append(f"- {server.name}{found}{': ' if about else ''}{about}")
        return "\n".join(["# MCP servers", *lines]) if lines else ""
