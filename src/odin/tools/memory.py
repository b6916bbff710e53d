"""Memory: lets the model keep facts for later sessions."""

import asyncio
from typing import Literal, Protocol

from odin.core.errors import OdinError
from odin.core.tool import Args, Target, Tool, ToolContext, ToolOutput, fail

MemoryScope = Literal["project", "user"]


class MemoryKeeper(Protocol):
    """The memory of a project and its user. Every method returns a sentence for the model, or raises UsageError."""

    def add(self, scope: MemoryScope, text: str, *, daily: bool = False) -> str: ...

    def replace(self, scope: MemoryScope, old: str, new: str) -> str: ...

    def read(self, scope: MemoryScope, day: str = "") -> str: ...


class MemoryArgs(Args, frozen=True):
    action: Literal["add", "note", "replace", "remove", "read"]
    text: str = ""
    old: str = ""
    scope: MemoryScope = "project"


class MemoryTool(Tool[MemoryArgs]):
    """Keep what later sessions need and files do not say: decisions, preferences, pitfalls. No secrets, no progress.

    add: a line to the long-term memory. note: a line to today's note. replace or remove: the exact text `old`.
    read: all of it, or the note of the day `text` (YYYY-MM-DD). Use scope user only for what holds in every project.
    """

    name = "Memory"
    kind = "interactive"
    short = "Keep or read facts for later sessions."
    args = MemoryArgs

    def __init__(self, keeper: MemoryKeeper) -> None:
        self._keeper = keeper

    def get_target(self, args: MemoryArgs) -> Target:
        is_read = args.action == "read"
        return Target(name="read" if is_read else args.scope, persists=not is_read)

    def get_title(self, args: MemoryArgs) -> str:
        return " ".join(f"{args.action} {args.scope}: {args.text or args.old}".split())

    def validate(self, args: MemoryArgs) -> str:
        if args.action in ("add", "note", "replace") and not args.text.strip():
            return f"{args.action} needs a text."
        return f"{args.action} needs the old text." if args.action in ("replace", "remove") and not args.old else ""

    async def run(self, args: MemoryArgs, ctx: ToolContext) -> ToolOutput:
        try:
            text = await asyncio.to_thread(self._work, args)
        except OdinError as error:
            return fail(error.describe())
        return ToolOutput(text=text, note=f"Memory: {self.get_title(args)}", view=args.text or args.old)

    def _work(self, args: MemoryArgs) -> str:
        match args.action:
            case "add" | "note":
                return self._keeper.add(args.scope, args.text, daily=args.action == "note")
            case "replace":
                return self._keeper.replace(args.scope, args.old, args.text)
            case "remove":
                return self._keeper.replace(args.scope, args.old, "")
            case "read":
                return self._keeper.read(args.scope, args.text.strip())
