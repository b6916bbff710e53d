"""The hooks that a file declares: Claude Code's shape and our own, checked entry by entry.

    "PreToolUse": [{"matcher": "Bash|Edit", "hooks": [{"type": "command", "command": "check.sh", "timeout": 10}]}]
    "on_tool_batch_complete": [{"command": ["make", "lint"], "paths": ["src/**"], "min_changed_files": 1}]

What is wrong is reported with its place and ignored; the rest holds.

Which hooks a call is meant for: matchers as in Claude Code, and filters of which every one must fit.
"""

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Annotated, Any, Literal, cast, get_args

import msgspec
from msgspec import Meta, Struct, field

from odin.core.policy import CallbackHook, HookCall, HookPoint
from odin.core.registry import ALIASES, canonical_name_of

DEFAULT_TIMEOUT = 30.0

HookPatterns = tuple[Annotated[str, Meta(min_length=1)], ...]


class HookEvent(Struct, frozen=True):
    """A name under which hooks are declared: the points it stands for, and which results it hears of.

    `claude` says that the name is Claude Code's, so that tools are called as they are called there.
    """

    points: tuple[HookPoint, ...]
    results: Literal["all", "good", "bad"] = "all"
    is_claude_name: bool = True


HOOK_EVENTS: dict[str, HookEvent] = {
    "PreToolUse": HookEvent(("tool_call",)),
    "PostToolUse": HookEvent(("tool_result",), "good"),
    "PostToolUseFailure": HookEvent(("tool_result",), "bad"),
    "UserPromptSubmit": HookEvent(("prompt_submit",)),
    "SessionStart": HookEvent(("session_start",)),
    "SessionEnd": HookEvent(("session_end",)),
    "Stop": HookEvent(("stop",)),
    "SubagentStop": HookEvent(("subagent_stop",)),
    "PreCompact": HookEvent(("before_compress",)),
    "PostCompact": HookEvent(("after_compress",)),
    "PermissionRequest": HookEvent(("wait_confirm",)),
    "Notification": HookEvent(("wait_confirm", "wait_question", "idle")),
    **{f"on_{point}": HookEvent((point,), is_claude_name=False) for point in get_args(HookPoint)},
}


class HookFilters(Struct, frozen=True, kw_only=True):
    """When a hook is meant at all: every filter that is given must fit."""

    tools: HookPatterns = ()
    paths: HookPatterns = ()
    agents: HookPatterns = ()
    models: HookPatterns = ()
    min_changed_files: Annotated[int, Meta(ge=0)] = 0
    only_on_error: bool = False


class HookSpec(Struct, frozen=True, kw_only=True):
    """One program, or a callback in its place. `append` is where plain text on its output goes."""

    event: str
    name: str
    command: str | tuple[str, ...] = ""
    callback: CallbackHook | None = None
    timeout: float = DEFAULT_TIMEOUT
    matcher: str = ""
    filters: HookFilters = HookFilters()
    append: Literal["", "context", "toast"] = ""
    project: bool = False
    """Whether a project brought it, and not the user."""

    @property
    def kind(self) -> HookEvent:
        return HOOK_EVENTS[self.event]

    @property
    def text(self) -> str:
        """The program as a person reads it."""
        return self.command if isinstance(self.command, str) else shlex.join(self.command)


class _HookProgram(Struct, frozen=True, kw_only=True):
    type: Literal["command"] = "command"
    name: str = ""
    command: str | tuple[str, ...] = ""
    shell: str = ""
    timeout: Annotated[float, Meta(gt=0, le=3600)] = DEFAULT_TIMEOUT


class _HookGroup(Struct, frozen=True, kw_only=True):
    """What an entry says beside its filters. With `hooks` it is a list of programs, without it one."""

    matcher: str = ""
    append: Literal["", "context", "toast"] = ""
    hooks: list[Any] | None = None


class HookDeclarations(Struct, frozen=True):
    hooks: tuple[HookSpec, ...] = ()
    warnings: tuple[str, ...] = field(default_factory=tuple[str, ...])


def parse_hooks(value: Any, source: str) -> HookDeclarations:
    """The hooks of one file, in their order. `source` names the file in what is reported."""
    reader = _HookReader(source)
    hooks = tuple(reader.read(value))
    return HookDeclarations(hooks, tuple(reader.warnings))


def make_callback_hook(callback: CallbackHook) -> HookSpec:
    """A callback as a hook. Raises ValueError when there is no such event or the matcher is no pattern."""
    if callback.event not in HOOK_EVENTS:
        raise ValueError(_describe_unknown_event(callback.event))
    _check_matcher(callback.matcher)
    return HookSpec(
        event=callback.event,
        name=callback.name,
        callback=callback,
        timeout=callback.timeout,
        matcher=callback.matcher,
    )


class _HookReader:
    """Goes through one file's hooks and remembers what was wrong."""

    def __init__(self, source: str) -> None:
        self.warnings: list[str] = []
        self._source = source

    def _warn(self, text: str) -> None:
        self.warnings.append(f"{self._source}: {text}")

    def read(self, value: Any) -> Iterator[HookSpec]:
        if not isinstance(value, Mapping):
            self._warn("hooks must be an object with events as its keys; it is ignored.")
            return
        for event, entries in cast("Mapping[str, Any]", value).items():
            where = f"hooks.{event}"
            if event not in HOOK_EVENTS:
                self._warn(f"{_describe_unknown_event(event)} It is ignored.")
            elif not isinstance(entries, list):
                self._warn(f"{where} must be a list; it is ignored.")
            else:
                for number, entry in enumerate(cast("list[Any]", entries)):
                    yield from self._read_entry(event, entry, f"{where}[{number}]")

    def _read_entry(self, event: str, raw: Any, where: str) -> Iterator[HookSpec]:
        entry = self._convert_entry(raw, (_HookGroup, HookFilters, _HookProgram), where)
        if entry is None:
            return
        group, filters, program = entry
        try:
            _check_matcher(group.matcher)
        except ValueError as error:
            self._warn(f"{where}: {error} This hook is ignored.")
            return
        if group.hooks is None:
            yield from self._make_hook(event, group, filters, program, where)
            return
        for number, inner in enumerate(group.hooks):
            at = f"{where}.hooks[{number}]"
            fitting = self._convert_entry(inner, (_HookProgram,), at)
            if fitting is not None:
                yield from self._make_hook(event, group, filters, fitting[0], at)

    def _make_hook(
        self, event: str, group: _HookGroup, filters: HookFilters, program: _HookProgram, where: str
    ) -> Iterator[HookSpec]:
        command = program.command or program.shell
        if not command or (isinstance(command, str) and not command.strip()) or "\0" in "".join(command):
            self._warn(f"{where} names no command; this hook is ignored.")
            return
        if isinstance(command, str) and program.shell and program.command:
            self._warn(f"{where} has both command and shell; shell is ignored.")
        text = command if isinstance(command, str) else shlex.join(command)
        yield HookSpec(
            event=event,
            name=program.name or _shorten(text),
            command=command,
            timeout=program.timeout,
            matcher=group.matcher,
            filters=filters,
            append=group.append,
        )

    def _convert_entry(self, raw: Any, shapes: tuple[type[Struct], ...], where: str) -> list[Any] | None:
        """What an object says for each of these shapes. A key that none of them knows is reported and left out."""
        if not isinstance(raw, Mapping):
            self._warn(f"{where} must be an object; this hook is ignored.")
            return None
        given = cast("Mapping[str, Any]", raw)
        known = tuple(name for shape in shapes for name in shape.__struct_fields__)
        for key in given:
            if key not in known:
                self._warn(f'there is no key "{where}.{key}"; it is ignored.{_suggest_key(key, known)}')
        try:
            return [msgspec.convert(given, shape) for shape in shapes]
        except msgspec.ValidationError as error:
            self._warn(f"{where} is ignored: {_describe_error(error)}.")
            return None


def _check_matcher(matcher: str) -> None:
    try:
        re.compile("" if matcher == "*" else matcher)
    except re.error as error:
        raise ValueError(f"the matcher {matcher!r} is no regular expression ({error}).") from None


def _describe_unknown_event(event: str) -> str:
    return f'there is no event "{event}" for hooks.{_suggest_key(event, HOOK_EVENTS)}'


def _suggest_key(key: str, known: "Sequence[str] | Mapping[str, Any]") -> str:
    from difflib import get_close_matches

    folded = {name.casefold().replace("_", ""): name for name in known}
    close = get_close_matches(key.casefold().replace("_", "").replace("-", ""), folded, 1)
    return f' Did you mean "{folded[close[0]]}"?' if close else ""


def _describe_error(error: msgspec.ValidationError) -> str:
    text, _, at = str(error).replace("`", "").partition(" - at $")
    place = at.lstrip(".")
    return f"{place}: {text[:1].lower()}{text[1:]}" if place else f"{text[:1].lower()}{text[1:]}"


def _shorten(text: str, limit: int = 60) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


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
