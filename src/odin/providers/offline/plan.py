"""What the plans of the offline planner are made of: calls, their results, and what an earlier step left behind."""

import re
from collections.abc import Generator, Iterable
from typing import Any

from msgspec import Struct, field

from odin.core.message import ToolCall, ToolResult
from odin.core.provider import ToolSpec
from odin.core.tool import get_canonical_name
from odin.providers.offline.results import parse_hits


class PlannedCall(Struct, frozen=True):
    """A tool call the plan wants to make."""

    tool: str
    args: dict[str, Any]


Calls = tuple[PlannedCall, ...]
Results = tuple[ToolResult, ...]
Plan = Generator[Calls, Results, str]
"""A plan yields calls that may run together, receives their results, and returns the answer."""


class RequestMatch(Struct, frozen=True):
    """The fields of a request, with their quoted texts set aside: each as its content and as it was typed."""

    fields: dict[str, str]
    quoted: tuple[tuple[str, str], ...] = ()

    def __getitem__(self, name: str) -> str:
        """Return a field without its quotes; "" if it was omitted."""
        return self._restore(self.fields.get(name, ""), 0)

    def get_typed(self, name: str) -> str:
        """Return a field as it was typed, with its quotes."""
        return self._restore(self.fields.get(name, ""), 1)

    def _restore(self, text: str, form: int) -> str:
        return re.sub("\ue000(\\d+)\ue001", lambda found: self.quoted[int(found[1])][form], text)


class PlanFailed(Exception):
    """The request could not be carried out. The message is the answer; requests after it are not run."""


class PlannerMemory(Struct):
    """What a later request may refer to: the text last searched for, the file last seen, and the place of both.

    `place` is the file or folder of the newest call; "" if it concerned several files. Paths are absolute.
    """

    term: str = ""
    file: str = ""
    place: str = ""

    def note_step(self, calls: Iterable[ToolCall], results: Iterable[ToolResult], context: "PlanContext") -> None:
        """Record the calls of one reply, also of a model that was used before."""
        files: list[str] = []
        for call, result in zip(calls, results, strict=True):
            name = get_canonical_name(call.name)
            if result.is_error:
                continue
            if name == "Grep" and call.args.get("output_mode") == "content":
                self._note_search(call, result, context)
            elif name in ("Read", "EditTool", "MultiEditTool", "WriteFile"):
                files.append(str(call.args.get("file_path", "")))
        if files:
            self.file = self.place = files[0] if len(set(files)) == 1 else ""

    def _note_search(self, call: ToolCall, result: ToolResult, context: "PlanContext") -> None:
        pattern = str(call.args.get("pattern", ""))
        literal = re.sub(r"\\(.)", r"\1", pattern)
        # A regular expression is not a text that can be replaced.
        self.term = literal if escape_literal(literal) == pattern else ""
        self.place = str(call.args.get("path") or context.cwd)
        hits = parse_hits(result.text)
        self.file = self.place if hits and all(hit.path == self.place for hit in hits) else ""


class PlanContext(Struct, frozen=True):
    """What a plan may use: the working directory, the mode, the offered tools, and what came before."""

    cwd: str
    mode: str
    tools: dict[str, ToolSpec]
    memory: PlannerMemory = field(default_factory=PlannerMemory)

    def resolve_path(self, path: str) -> str:
        """Return the path for tools, resolved without file access. The tools themselves expand `~`."""
        if path in ("", "."):
            return self.cwd
        if path == "~" or path.startswith("~/"):
            return path
        full = path if path.startswith("/") else f"{self.cwd.rstrip('/')}/{path}"
        parts: list[str] = []
        for part in full.split("/"):
            if part == ".." and parts and parts[-1] not in ("", "..", "."):
                parts.pop()
            elif part not in ("", ".") or not parts:
                parts.append(part)
        return "/".join(parts) or "/"

    def display_path(self, path: str) -> str:
        """Return the path relative to the working directory."""
        if path == self.cwd:
            return "."
        return path.removeprefix(self.cwd.rstrip("/") + "/")

    def require(self, *names: str) -> None:
        """Raise PlanFailed if one of these tools is not offered."""
        missing = [name for name in dict.fromkeys(names) if name not in self.tools]
        if not missing:
            return
        writing = {"WriteFile", "EditTool", "Delete", "InitTool"}
        if writing.issuperset(missing) and not writing & self.tools.keys():
            mode = f"in {self.mode} mode" if self.mode else "in this mode"
            raise PlanFailed(
                f"Nothing was changed: {mode} no tool that writes files is offered. Ask again in edit mode, "
                "for example with `--mode edit`."
            )
        raise PlanFailed(
            f"That needs {' and '.join(missing)}, which this session does not offer. "
            "Look at the tools your configuration switches off."
        )


def escape_literal(text: str) -> str:
    """Return a pattern that matches exactly this text, for ripgrep and Python."""
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", text)
