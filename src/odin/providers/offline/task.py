"""The tasks and plans of the offline planner, and the sentences it answers with."""

from collections.abc import Generator
from typing import Any

from msgspec import Struct

from odin.core.errors import NeedsModel
from odin.core.format import clip
from odin.core.message import ToolResult
from odin.core.provider import ToolSpec

_REF_MARK = "\ue002"
LAST_FILE = f"{_REF_MARK}file"
"""A path reference: the file last read, changed or found."""
LAST_PLACE = f"{_REF_MARK}place"
"""A path reference: where the last search looked."""
LAST_TERM = f"{_REF_MARK}term"
"""A term reference: the last search term."""


def make_entry_ref(number: int) -> str:
    """Return a path reference to entry `number` of the last list, 1-based, negative from the end."""
    return f"{_REF_MARK}{number}"


def entry_number_of(path: str) -> int | None:
    """Return the number in a reference made by `make_entry_ref`."""
    digits = path.removeprefix(_REF_MARK)
    return int(digits) if digits != path and digits.lstrip("-").isdigit() else None


class PlannerTask(Struct, frozen=True):
    """What is requested. `kind` names the plan; the plan defines the meaning of the other fields.

    `variant` is the variant of the plan. `source_text` is the request it came from. `whole_term` is a search term
    including the words taken as its location, in case there is no such location.
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
    """A tool call the plan wants to make."""

    tool: str
    args: dict[str, Any]


Plan = Generator[tuple[PlannedCall, ...], tuple[ToolResult, ...], str]
"""A plan yields calls that may run together, receives their results, and returns the answer."""


class PlanContext(Struct, frozen=True):
    """What a plan may use: the working directory, the mode, and the offered tools."""

    cwd: str
    mode: str
    tools: dict[str, ToolSpec]

    def has_tools(self, *names: str) -> bool:
        return all(name in self.tools for name in names)

    def resolve_path(self, path: str) -> str:
        """Return the path for tools, resolved without file access. The tools themselves expand `~`."""
        if path in ("", "."):
            return self.cwd
        if path == "~" or path.startswith("~/"):
            return path
        if path.startswith("/"):
            return _normalize_path(path)
        return _normalize_path(f"{self.cwd.rstrip('/')}/{path}")

    def display_path(self, path: str) -> str:
        """Return the path relative to the working directory, for display."""
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
    "run a command or the tests, answer git questions, outline or summarize a file, and describe the project"
)
CONNECT_HINT = (
    "To connect a model, set ANTHROPIC_API_KEY, OPENAI_API_KEY or GEMINI_API_KEY, store a key with `odin auth add`, or "
    'run `odin models` to see local servers and put your choice as "model" in odinconfig.json.'
)
HELLO = (
    f"Hello. No model is connected, so this is Odin's built-in planner: I follow plain requests word by word and "
    f"can {ABILITIES}. "
    f'Try "Search for TODO in src" or "describe this project". {CONNECT_HINT}'
)
UNKNOWN = (
    "I did not understand that. No model is connected, so this is Odin's built-in planner, which follows plain "
    "requests word by word. "
    f"I can {ABILITIES}; for example \"Search for TODO in src\" or \"Replace 'a' with 'b' in notes.txt\"."
)
INVENT = (
    "That needs a model, and none is connected: I am Odin's built-in planner and cannot write code or think "
    "something up. "
    f"I can {ABILITIES}."
)
STOPPED = (
    "I stopped here: this request needed more steps than I allow for one prompt. What was done until now stays. "
    "Ask for the rest in smaller parts."
)


def make_needs_model(request: str, invent: bool, some_done: bool) -> NeedsModel:
    """Return the error for a request that was not understood. If a part of it was done, name the other part."""
    if not some_done:
        return NeedsModel(INVENT if invent else UNKNOWN, CONNECT_HINT)
    quoted = request if len(request) <= 100 else f"{request[:99]}…"
    reason = "needs a model, and none is connected" if invent else "I did not understand"
    rest = f'"{quoted}" {reason}' if invent else f'{reason} "{quoted}"'
    return NeedsModel(f"{rest}, so I left it and whatever came after it.", CONNECT_HINT)


def explain_not_offered(tools: tuple[str, ...], context: PlanContext) -> str:
    """Return why a call cannot be made, and what to do about it."""
    names = " and ".join(tools)
    writing = {"WriteFile", "EditTool", "MultiEditTool", "Delete", "InitTool"}
    if writing.issuperset(tools) and not writing & context.tools.keys():
        mode = f"in {context.mode} mode" if context.mode else "in this mode"
        return (
            f"Nothing was changed: {mode} no tool that writes files is offered. Ask again in edit mode, "
            "for example with `--mode edit`."
        )
    return f"That needs {names}, which this session does not offer. Look at the tools your configuration switches off."


def extract_reason(text: str) -> str:
    """Return the first lines of an error result, bounded."""
    lines = [line.strip() for line in text.strip().splitlines() if line.strip()]
    gist = " ".join(lines[:3]) or "no reason was given"
    return clip(gist, 400)


def format_code_block(text: str, language: str = "") -> str:
    """Return a code block whose fence is longer than any inside it."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"
