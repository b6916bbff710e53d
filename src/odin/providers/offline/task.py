"""One plain request, as the planner understands it, and the shapes its plan is made of."""

import os
from collections.abc import Generator
from typing import Any

from msgspec import Struct

from odin.core.message import ToolResult
from odin.core.provider import ToolSpec

_REF_MARK = "\ue002"
LAST_FILE = f"{_REF_MARK}file"
"""Stands in for a path: the file that was last read, changed or found."""
LAST_PLACE = f"{_REF_MARK}place"
"""Stands in for a path: where the last search looked."""
LAST_TERM = f"{_REF_MARK}term"
"""Stands in for a search term: what was last searched for."""


def make_entry_ref(number: int) -> str:
    """Stands in for a path: entry `number` of the last list, counted from 1, or from the end when negative."""
    return f"{_REF_MARK}{number}"


def entry_number_of(path: str) -> int | None:
    """The number inside a path made by `nth`."""
    digits = path.removeprefix(_REF_MARK)
    return int(digits) if digits != path and digits.lstrip("-").isdigit() else None


class PlannerTask(Struct, frozen=True):
    """What is wanted. `kind` names the plan; the other fields mean what that plan says they mean.

    `how` is the variant of the plan. `said` are the words it came from. `whole` is a search term together with the
    words that were taken for its place, in case there is no such place.
    """

    kind: str
    term: str = ""
    new: str = ""
    path: str = ""
    globs: tuple[str, ...] = ()
    first: int = 0
    last: int = 0
    variant: str = ""
    command: str = ""
    everywhere: bool = False
    source_text: str = ""
    whole_term: str = ""


class PlannedCall(Struct, frozen=True):
    """A tool call the plan wants made."""

    tool: str
    args: dict[str, Any]


Plan = Generator[tuple[PlannedCall, ...], tuple[ToolResult, ...], str]
"""A plan yields calls that may run together, is sent their results, and returns the answer."""


class PlanContext(Struct, frozen=True):
    """What a plan may know: where it works, in which mode, and which tools it was offered."""

    cwd: str
    mode: str
    tools: dict[str, ToolSpec]

    def has_tools(self, *names: str) -> bool:
        return all(name in self.tools for name in names)

    def resolve_path(self, path: str) -> str:
        """The path as the tools want it. `~` and relative paths are resolved without touching the file system."""
        if path in ("", "."):
            return self.cwd
        path = os.path.expanduser(path)  # noqa: PTH111
        if path.startswith("/"):
            return _normalize_path(path)
        return _normalize_path(f"{self.cwd.rstrip('/')}/{path}")

    def display_path(self, path: str) -> str:
        """The path as people like to read it: relative to the working directory."""
        inside = self.cwd.rstrip("/") + "/"
        if path == self.cwd:
            return "."
        return path[len(inside) :] if path.startswith(inside) else path


def _normalize_path(path: str) -> str:
    parts: list[str] = []
    for part in path.split("/"):
        if part == ".." and parts and parts[-1] not in ("", "..", "~", "."):
            parts.pop()
        elif part not in ("", ".") or not parts:
            parts.append(part)
    return "/".join(parts) or "/"
