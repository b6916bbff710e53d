"""Which hooks a call is meant for: matchers as in Claude Code, and filters of which every one must fit."""

import os
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import lru_cache

from odin.core.hook import HookCall, HookPoint
from odin.core.registry import ALIASES, canonical_name_of
from odin.policy.hook.declared import HookFilters, HookSpec

MAIN_AGENT = "main"
"""What the filters call the agent that talks with the person."""

CLAUDE_NAMES = {
    "ExecuteCommand": "Bash",
    "Spawn": "Bash",
    "WriteFile": "Write",
    "AppendFile": "Write",
    "Delete": "Write",
    "EditTool": "Edit",
    "MultiEditTool": "MultiEdit",
    "AgentTool": "Task",
    "SpawnStatus": "BashOutput",
    "SpawnStop": "KillShell",
    "Question": "AskUserQuestion",
}
"""What Claude Code calls tools that have another name here.

It has fewer of them: a guard over `Bash` must also see what runs in the background, one over `Write` whatever is lost.
"""

NOTIFICATIONS = {"wait_confirm": "permission_prompt", "wait_question": "elicitation_dialog", "idle": "idle_prompt"}

_TOOL_POINTS = frozenset(
    ("tool_call", "tool_result", "before_tool_result_append", "tool_batch_complete", "wait_confirm")
)


def match_hook(hook: HookSpec, call: HookCall, root: str) -> str | None:
    """The name by which the hook knows what the call is about, "" when that has none; None when it is not meant."""
    if call.point not in hook.kind.points or not _wants_result(hook, call) or not _fits(hook.filters, call, root):
        return None
    if hook.event == "Notification":
        return "" if _matches_name(hook.matcher, NOTIFICATIONS[call.point]) else None
    if call.point in _TOOL_POINTS:
        return _match_tool_name(hook, call)
    if call.point in ("session_start", "session_end", "before_compress", "after_compress"):
        return "" if _matches_name(hook.matcher, call.reason) else None
    return ""


def is_concerned(hook: HookSpec, point: HookPoint, tool: str) -> bool:
    """Whether the hook may be told of calls of this tool. What its filters say depends on the call."""
    return point in hook.kind.points and _find_first_name(hook, (tool,)) is not None


def _wants_result(hook: HookSpec, call: HookCall) -> bool:
    """PostToolUse hears of what went well, PostToolUseFailure of the rest."""
    wanted = hook.kind.results
    return wanted == "all" or call.is_error == (wanted == "bad")


def _match_tool_name(hook: HookSpec, call: HookCall) -> str | None:
    """The first name of the tool that the matcher matches, the names of the hook's own world first."""
    return _find_first_name(hook, call.tools or (call.tool,))


def _find_first_name(hook: HookSpec, tools: Iterable[str]) -> str | None:
    names = (name for tool in tools for name in names_of(tool, claude=hook.kind.is_claude_name))
    return next((name for name in names if _matches_name(hook.matcher, name)), None)


def names_of(tool: str, *, claude: bool = False) -> tuple[str, ...]:
    """Every name a tool goes by."""
    foreign = CLAUDE_NAMES.get(tool, tool)
    first = (foreign, tool) if claude else (tool, foreign)
    return tuple(dict.fromkeys((*first, *ALIASES.get(tool, "").split())))


def _matches_name(matcher: str, name: str) -> bool:
    """Plain names joined by bars are whole names; anything else is a regular expression that finds."""
    if matcher in ("", "*"):
        return True
    if re.fullmatch(r"[\w|]+", matcher):
        return name in matcher.split("|")
    return re.search(matcher, name) is not None


def _fits(filters: HookFilters, call: HookCall, root: str) -> bool:
    return (
        (not filters.tools or any(_is_tool(tool, filters.tools) for tool in call.tools or (call.tool,)))
        and (not filters.paths or any(_is_path(path, filters.paths, root) for path in (*call.paths, *call.changed)))
        and (not filters.agents or any(fnmatchcase(call.agent or MAIN_AGENT, name) for name in filters.agents))
        and (not filters.models or any(_is_model(call.model, name) for name in filters.models))
        and len(call.changed) >= filters.min_changed_files
        and (call.is_error or not filters.only_on_error)
    )


def _is_tool(tool: str, patterns: Iterable[str]) -> bool:
    return bool(tool) and any(canonical_name_of(name) == tool or fnmatchcase(tool, name) for name in patterns)


def _is_model(model: str, pattern: str) -> bool:
    return fnmatchcase(model, pattern) or fnmatchcase(model.partition("/")[2], pattern)


def _is_path(path: str, patterns: Iterable[str], root: str) -> bool:
    """A pattern without a slash is about the name alone, others about the path below the project or the whole one."""
    below = os.path.relpath(path, root) if root else path
    for pattern in patterns:
        shape = _compile_glob(pattern.removeprefix("./"))
        if shape.fullmatch(path if pattern.startswith("/") else below):
            return True
        if "/" not in pattern and shape.fullmatch(os.path.basename(path)):  # noqa: PTH119
            return True
    return False


@lru_cache(maxsize=256)
def _compile_glob(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    shapes = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(shapes.get(part) or re.escape(part) for part in parts), re.DOTALL)
