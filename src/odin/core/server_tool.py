"""Tools of MCP servers: how models and permission rules name them.

A model knows a tool as `mcp__server__tool`. Such a name is made from a server and a tool and never split again: rules
are matched against both. Servers whose names could be confused in it are not used.
"""

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from msgspec import Struct

PREFIX = "mcp__"
MAX_NAME_CHARS = 64


class ServerTool(Struct, frozen=True):
    """A tool by its own name and that of its server. `tool` is "" for a call that concerns only the server."""

    server: str
    tool: str = ""

    @property
    def public_name(self) -> str:
        """`mcp__server__tool`, valid for every API: other characters are `_`, a long name is shortened."""
        name = f"{PREFIX}{clean_name(self.server)}__{clean_name(self.tool)}"
        if len(name) <= MAX_NAME_CHARS:
            return name
        import hashlib

        digest = hashlib.sha256(f"{self.server}\0{self.tool}".encode("utf-8", "replace")).hexdigest()[:6]
        return f"{name[: MAX_NAME_CHARS - 7]}_{digest}"

    def is_named_by(self, pattern: str, *, loosely: bool = False) -> bool:
        """True if a pattern names this tool: `mcp__server`, `mcp__server__tool` or `mcp_server_tool`, with `*`.

        In the last form, the server ends at the first `_`. Loosely, to deny, everything counts that the pattern could
        mean as the beginning of a joined name.
        """
        if not pattern.startswith("mcp_"):
            return False
        mark = "__" if pattern.startswith(PREFIX) else "_"
        wanted = re.sub(r"[^a-zA-Z0-9_*?-]", "_", pattern)
        server, separator, tool = wanted.removeprefix(f"mcp{mark}").partition(mark)
        own, name = clean_name(self.server), clean_name(self.tool)
        names_tool = fnmatchcase(name, tool) if separator else mark == "__"
        if pattern == self.public_name or (fnmatchcase(own, server) and names_tool):
            return True
        joined = f"mcp{mark}{own}{mark}{name}"
        return loosely and any(fnmatchcase(joined, form) for form in (wanted, f"{wanted.rstrip('_')}__*"))


def clean_name(text: str) -> str:
    """Return a name in the characters that every API accepts."""
    return re.sub(r"[^a-zA-Z0-9_-]", "_", text) or "_"


def find_ambiguous_servers(names: Iterable[str]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield servers that rules could confuse with others, with the reason and what to do about it."""
    same: dict[str, list[str]] = {}
    for name in names:
        clean = clean_name(name)
        if "__" in clean or clean.strip("_") != clean:
            advice = 'Give it a name without "__", and without "_" at its ends.'
            yield (name,), f"in rules, {PREFIX}{clean} could also mean another server or its tool. {advice}"
        else:
            same.setdefault(clean, []).append(name)
    for clean, group in same.items():
        if len(group) > 1:
            yield tuple(group), f"rules cannot tell them apart, because each is {PREFIX}{clean}. Rename all but one."
