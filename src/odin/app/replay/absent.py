"""Calls that are not made again in a replay, because they would reach out of the scratch copy: what came of them in the
recording stands for them."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from odin.core.event import Envelope, PermissionAsked, ToolEnded
from odin.core.tool import Tool, ToolContext, ToolOutput, fail


class SkippedCalls:
    """A step of the gate before a call. `places` are the folders that are part of the replay."""

    def __init__(self, recorded: Iterable[Envelope], folders: Iterable[str], *, commands: bool) -> None:
        self.skipped: dict[str, list[str]] = {}
        self._commands = commands
        self._folders = tuple(os.path.realpath(place) for place in folders)
        self._results: dict[str, ToolEnded] = {}
        self._outside: set[str] = set()
        for item in recorded:
            if isinstance(item.event, ToolEnded):
                self._results[item.event.call_id] = item.event
            elif isinstance(item.event, PermissionAsked) and item.event.unsandboxed:
                self._outside.add(item.event.call_id)

    async def __call__(self, tool: Tool[Any], args: Any, context: ToolContext) -> ToolOutput | None:
        why = self._explain_skip(tool, args, context)
        if not why:
            return None
        self.skipped.setdefault(why, []).append(context.call_id)
        then = self._results.get(context.call_id)
        if then is None:
            return fail(f"Not made in a replay: {why}. The recording has no result of it.")
        return ToolOutput(
            text=then.text,
            is_error=then.status != "success",
            note=then.note,
            view=then.display,
            for_user=then.for_user,
            files=then.files,
            images=then.images,
        )

    def _explain_skip(self, tool: Tool[Any], args: Any, context: ToolContext) -> str:
        if tool.kind == "network":
            return "calls that ask the network"
        if tool.kind == "execute":
            if context.call_id in self._outside:
                return "commands that ran outside the sandbox"
            return "" if self._commands else "commands, because there is no sandbox here"
        if any(not self._is_within(path, context.cwd) for path in tool.subject_of(args).paths):
            return "calls about files outside the project"
        return ""

    def _is_within(self, path: str, cwd: str) -> bool:
        place = Path(os.path.realpath(Path(cwd, path)))
        return any(place.is_relative_to(inside) for inside in self._folders)
