"""One plain request, as the planner understands it, and the shapes its plan is made of.

The sentences people read when there is nothing to show.
"""

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


ABILITIES = (
    "search the code, find, list and read files, replace text in one file or everywhere, create a file or append to "
    "one, "
    "run a command or the tests, answer git questions, outline or summarise a file, and describe the project"
)
CONNECT_HINT = (
    "To connect a model, set ANTHROPIC_API_KEY or OPENAI_API_KEY, or run `odin models` to see local servers and put "
    "your "
    'choice as "model" in odinconfig.json.'
)
HELLO = (
    f"Hello. No model is connected, so this is Odin's built-in planner: I follow plain requests word by word and "
    f"can {ABILITIES}. "
    f'Try "Search for TODO in src" or "describe this project". {CONNECT_HINT}'
)
UNKNOWN = (
    "I did not understand that. No model is connected, so this is Odin's built-in planner, which follows plain "
    "requests word by word. "
    f"I can {ABILITIES}; for example \"Search for TODO in src\" or \"Replace 'a' with 'b' in notes.txt\". "
    f"{CONNECT_HINT}"
)
INVENT = (
    "That needs a model, and none is connected: I am Odin's built-in planner and cannot write code or think "
    "something up. "
    f"I can {ABILITIES}. {CONNECT_HINT}"
)
STOPPED = (
    "I stopped here: this request needed more steps than I allow for one prompt. What was done until now stays. "
    "Ask for the rest in smaller parts."
)


def explain_not_understood(said: str, invent: bool, some_done: bool) -> str:
    """One paragraph. When part of the request was done it names the part that was not."""
    if not some_done:
        return INVENT if invent else UNKNOWN
    quoted = said if len(said) <= 100 else f"{said[:99]}…"
    reason = "needs a model, and none is connected" if invent else "I did not understand"
    rest = f'"{quoted}" {reason}' if invent else f'{reason} "{quoted}"'
    return f"{rest}, so I left it and whatever came after it. {CONNECT_HINT}"


def explain_not_offered(tools: tuple[str, ...], desk: PlanContext) -> str:
    """Why a call cannot be made at all, and what to do about it."""
    names = " and ".join(tools)
    writing = {"WriteFile", "EditTool", "MultiEditTool", "Delete", "InitTool"}
    if writing.issuperset(tools) and not writing & desk.tools.keys():
        mode = f"in {desk.mode} mode" if desk.mode else "in this mode"
        return (
            f"Nothing was changed: {mode} no tool that writes files is offered. Ask again in edit mode, "
            "for example with `--mode edit`."
        )
    return f"That needs {names}, which this session does not offer. Look at the tools your configuration switches off."


def format_count(number: int, noun: str, plural: str = "") -> str:
    """1 file, 2 files."""
    return f"{number} {noun if number == 1 else plural or noun + 's'}"


def extract_reason(text: str) -> str:
    """The gist of an error result: its first lines, bounded."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    gist = " ".join(lines[:3]) or "no reason was given"
    return gist if len(gist) <= 400 else f"{gist[:399]}…"


def format_code_block(text: str, language: str = "") -> str:
    """A code block whose fence is longer than any inside it."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"
