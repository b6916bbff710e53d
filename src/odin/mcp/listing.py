"""What a server offers: tools, prompts, resources; and the cache of it.

The cache is keyed by the definition of the server. With it the first request of a session has the tools of a server
that is not connected yet, and the same bytes as the last time. It can be deleted at any time.
"""

import math
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from odin.config.settings import McpServerSettings

MAX_TOOLS = 2_000
MAX_CACHE_BYTES = 5_000_000
_VERSION = 1


class ListedTool(Struct, frozen=True, omit_defaults=True):
    """A tool as the server describes it. `read_only` is what it says about itself; None if it says nothing."""

    name: str
    description: str = ""
    schema: dict[str, Any] = {}
    title: str = ""
    read_only: bool | None = None


class ListedPrompt(Struct, frozen=True, omit_defaults=True):
    """A prompt. `arguments` are their names, required ones first; `required` is how many those are."""

    name: str
    description: str = ""
    arguments: tuple[str, ...] = ()
    required: int = 0


class ListedResource(Struct, frozen=True, omit_defaults=True):
    uri: str
    name: str = ""
    description: str = ""
    media_type: str = ""


class ListedTemplate(Struct, frozen=True, omit_defaults=True):
    """A kind of resources. `uri` has what must be filled in, as in `mem://item/{n}`."""

    uri: str
    name: str = ""
    description: str = ""
    media_type: str = ""


class ServerListing(Struct, frozen=True, omit_defaults=True):
    """Everything a server offers. `has_resources`: it has resources, perhaps more than are listed.

    `is_cut` says that it offers more tools than `MAX_TOOLS`.
    `protocol` is the revision of the protocol that it spoke. `expires_at` is until when the server said that its tools
    stay as they are, as the time of the clock; None if it said nothing, as those without that revision.
    `failed` stands in the cache for a server that has never been connected, although Odin tried; `is_slow`: because it
    did not answer in time, `failures` times in a row, at last at `failed_at`.
    """

    tools: tuple[ListedTool, ...] = ()
    prompts: tuple[ListedPrompt, ...] = ()
    resources: tuple[ListedResource, ...] = ()
    templates: tuple[ListedTemplate, ...] = ()
    has_resources: bool = False
    instructions: str = ""
    server: str = ""
    failed: bool = False
    is_slow: bool = False
    failures: int = 0
    failed_at: float = 0.0
    is_cut: bool = False
    protocol: str = ""
    expires_at: float | None = None
    version: int = _VERSION


class ListingCache:
    """The listings of the servers that were connected before, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, settings: McpServerSettings) -> ServerListing | None:
        try:
            path = self._get_path(settings)
            if path.stat().st_size > MAX_CACHE_BYTES:
                return None
            listing = msgspec.json.decode(path.read_bytes(), type=ServerListing)
        except (OSError, msgspec.MsgspecError, UnicodeError, RecursionError):
            return None
        return listing if listing.version == _VERSION else None

    def write(self, settings: McpServerSettings, listing: ServerListing) -> None:
        """Store a listing. A cache that cannot be written is no problem."""
        path = self._get_path(settings)
        data = msgspec.json.encode(listing)
        if len(data) > MAX_CACHE_BYTES:
            return
        part = path.with_name(f".{path.name}.{os.getpid()}")
        with suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            part.write_bytes(data)
            part.replace(path)

    def _get_path(self, settings: McpServerSettings) -> Path:
        import hashlib

        digest = hashlib.sha256(msgspec.json.encode(settings, order="sorted")).hexdigest()
        return self._folder / f"{digest[:32]}.json"


class _Pages:
    """Collects the pages of a list, up to a limit of items. `ttl_s` is how long the server says that they all hold."""

    def __init__(self) -> None:
        self.is_cut = False
        self.ttl_s = math.inf

    async def collect(self, fetch: Any, field: str) -> list[Any]:
        found: list[Any] = []
        cursor: str | None = None
        for _ in range(100):
            page = await fetch(cursor=cursor, cache_mode="bypass")
            found += getattr(page, field)
            self.ttl_s = min(self.ttl_s, page.ttl_ms / 1000)
            following = page.next_cursor
            if not following or following == cursor or len(found) > MAX_TOOLS:
                break
            cursor = following
        self.is_cut = len(found) > MAX_TOOLS
        return found[:MAX_TOOLS]


def is_modern(protocol: str) -> bool:
    """True for the revisions without a handshake, whose requests all say who sends them."""
    return protocol >= "2026-07-28"


async def fetch_listing(client: Any) -> ServerListing:
    """Ask a connected server what it offers. `client` is an `mcp.Client`."""
    capabilities, pages = client.server_capabilities, _Pages()
    tools = await pages.collect(client.list_tools, "tools") if capabilities.tools is not None else []
    prompts = await _Pages().collect(client.list_prompts, "prompts") if capabilities.prompts is not None else []
    resources, templates = await _fetch_resources(client) if capabilities.resources is not None else ((), ())
    info = client.server_info
    return ServerListing(
        # what can only run as a task cannot be called: the newest revision of the protocol has no tasks any more
        tools=tuple(_make_tool(tool) for tool in tools if not _is_only_task(tool)),
        prompts=tuple(_make_prompt(prompt) for prompt in prompts),
        resources=tuple(resources),
        templates=tuple(templates),
        has_resources=capabilities.resources is not None,
        instructions=client.instructions or "",
        server=f"{info.name} {info.version}".strip() if info is not None else "",
        is_cut=pages.is_cut,
        protocol=client.protocol_version,
        expires_at=time.time() + pages.ttl_s if is_modern(client.protocol_version) and tools else None,
    )


async def _fetch_resources(client: Any) -> tuple[Sequence[ListedResource], Sequence[ListedTemplate]]:
    from mcp import MCPError

    found = await _Pages().collect(client.list_resources, "resources")
    resources = [ListedResource(str(item.uri), *_describe_resource(item)) for item in found]
    try:
        found = await _Pages().collect(client.list_resource_templates, "resource_templates")
    except MCPError:  # a server that has resources need not know templates
        found = []
    return resources, [ListedTemplate(item.uri_template, *_describe_resource(item)) for item in found]


def _describe_resource(item: Any) -> tuple[str, str, str]:
    return item.title or item.name or "", item.description or "", item.mime_type or ""


def _is_only_task(tool: Any) -> bool:
    return tool.execution is not None and tool.execution.task_support == "required"


def _make_tool(tool: Any) -> ListedTool:
    hints = tool.annotations
    read_only = None if hints is None else hints.read_only_hint
    if read_only is None and hints is not None and hints.destructive_hint:
        read_only = False
    title = tool.title or (hints.title if hints is not None else "") or ""
    return ListedTool(tool.name, tool.description or "", dict(tool.input_schema), title, read_only)


def _make_prompt(prompt: Any) -> ListedPrompt:
    arguments = sorted(prompt.arguments or (), key=lambda item: not item.required)
    required = sum(bool(item.required) for item in arguments)
    return ListedPrompt(prompt.name, prompt.description or "", tuple(item.name for item in arguments), required)
