"""Hooks declared in a configuration file, in Claude Code's format or in Odin's own, and which calls they match.

    "PreToolUse": [{"matcher": "Bash|Edit", "hooks": [{"type": "command", "command": "check.sh", "timeout": 10}]}]
    "on_tool_batch_complete": [{"command": ["make", "lint"], "paths": ["src/**"], "min_changed_files": 1}]

Invalid entries are reported with their location and ignored. A hook runs if its matcher, as in Claude Code, and all of
its filters match the call.
"""

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Annotated, Any, Literal, cast, get_args, get_type_hints

import msgspec
from msgspec import Meta, Struct, field
from msgspec.structs import replace

from odin.core.format import clip_line
from odin.core.policy import RECORDED_POINTS, CallbackHook, HookCall, HookPoint
from odin.core.text import describe_mismatch, suggest_similar
from odin.core.tool import ALIASES, get_canonical_name

DEFAULT_TIMEOUT = 30.0

Append = Literal["", "context", "failure", "toast"]
Join = Literal["before_next_llm", "background"]
_RESULTS: dict[str, Append] = {"notify_only": "toast", "append_on_failure": "failure", "always_append": "context"}
"""The values of `result`, another form of `append`."""

HookPatterns = tuple[Annotated[str, Meta(min_length=1)], ...]


class HookEvent(Struct, frozen=True):
    """A hook event: its hook points and, for tool results, which results it receives.

    `is_claude_name`: the event comes from Claude Code, so hooks receive Claude Code's tool names.
    """

    points: tuple[HookPoint, ...]
    results: Literal["all", "good", "bad"] = "all"
    is_claude_name: bool = True


HOOK_EVENTS: dict[str, HookEvent] = {
    **{point: HookEvent((point,), is_claude_name=not point.startswith("on_")) for point in get_args(HookPoint)},
    "PostToolUse": HookEvent(("PostToolUse",), "good"),
    "PostToolUseFailure": HookEvent(("PostToolUse",), "bad"),
    "Notification": HookEvent(("PermissionRequest", "on_wait_question", "on_idle")),
    "StatusLine": HookEvent(()),
    **{f"on_{name}": HookEvent((point,), is_claude_name=False) for point, name in RECORDED_POINTS.items()},
}


class HookFilters(Struct, frozen=True, kw_only=True):
    """Conditions of a hook. All that are set must match."""

    tools: HookPatterns = ()
    paths: HookPatterns = ()
    agents: HookPatterns = ()
    models: HookPatterns = ()
    min_changed_files: Annotated[int, Meta(ge=0)] = 0
    only_on_error: bool = False


class HookSpec(Struct, frozen=True, kw_only=True):
    """One hook: a program or a callback. `append` says where plain text in its output goes; `failure`: to the model if
    the program fails. With `join` in the background Odin does not wait for it, and it can only add text.

    `id` is its event and number in its file, by which the user can name it.
    """

    event: str
    name: str
    id: str = ""
    command: str | tuple[str, ...] = ""
    callback: CallbackHook | None = None
    timeout: float = DEFAULT_TIMEOUT
    matcher: str = ""
    filters: HookFilters = HookFilters()
    append: Append = ""
    join: Join = "before_next_llm"
    environment: dict[str, str] = field(default_factory=dict[str, str])
    project: bool = False
    """True if a project brings it: its configuration, or a plugin that commands could change."""
    plugin: str = ""
    """The folder of the plugin that it belongs to."""

    @property
    def kind(self) -> HookEvent:
        return HOOK_EVENTS[self.event]

    @property
    def text(self) -> str:
        """The command line for display, with the variables that are set for it."""
        line = self.command if isinstance(self.command, str) else shlex.join(self.command)
        return " ".join((*(f"{name}={value}" for name, value in self.environment.items()), line))


class _HookProgram(Struct, frozen=True, kw_only=True):
    type: Literal["command"] = "command"
    name: str = ""
    command: str | tuple[str, ...] = ""
    shell: str = ""
    environment: dict[str, str] = field(default_factory=dict[str, str])
    timeout: Annotated[float, Meta(gt=0, le=3600)] = DEFAULT_TIMEOUT


class _HookGroup(Struct, frozen=True, kw_only=True):
    """The keys of an entry apart from its filters. With `hooks` it has several programs, without it one."""

    matcher: str = ""
    append: Append = ""
    result: Literal["", "ignore", "notify_only", "append_on_failure", "always_append"] = ""
    join: Join = "before_next_llm"
    hooks: list[Any] | None = None


class HookDeclarations(Struct, frozen=True):
    hooks: tuple[HookSpec, ...] = ()
    warnings: tuple[str, ...] = field(default_factory=tuple[str, ...])


def parse_hooks(value: Any, source: str, prefix: str = "") -> HookDeclarations:
    """Return the hooks of one file in order. `source` is the file name in warnings, `prefix` begins their ids."""
    reader = _HookReader(source, prefix)
    hooks = tuple(reader.read(value))
    return HookDeclarations(hooks, tuple(reader.warnings))


def make_callback_hook(callback: CallbackHook) -> HookSpec:
    """Return a callback as a hook. Raises ValueError for an unknown event or an invalid matcher."""
    if callback.event not in HOOK_EVENTS or not HOOK_EVENTS[callback.event].points:
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
    """Reads the hooks of one file and collects warnings."""

    def __init__(self, source: str, prefix: str) -> None:
        self.warnings: list[str] = []
        self._source = source
        self._prefix = prefix

    def _warn(self, text: str) -> None:
        self.warnings.append(f"{self._source}: {text}")

    def read(self, value: Any) -> Iterator[HookSpec]:
        if not isinstance(value, Mapping):
            self._warn("hooks must be an object with event names as keys; it is ignored.")
            return
        for event, entries in cast("Mapping[str, Any]", value).items():
            where = f"hooks.{event}"
            if event not in HOOK_EVENTS:
                self._warn(f"{_describe_unknown_event(event)} It is ignored.")
            elif not isinstance(entries, list):
                self._warn(f"{where} must be a list; it is ignored.")
            else:
                items = enumerate(cast("list[Any]", entries))
                found = (hook for at, entry in items for hook in self._read_entry(event, entry, f"{where}[{at}]"))
                yield from (replace(hook, id=f"{self._prefix}{event}-{number}") for number, hook in enumerate(found, 1))

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
            converted = self._convert_entry(inner, (_HookProgram,), at)
            if converted is not None:
                yield from self._make_hook(event, group, filters, converted[0], at)

    def _make_hook(
        self, event: str, group: _HookGroup, filters: HookFilters, program: _HookProgram, where: str
    ) -> Iterator[HookSpec]:
        command = program.command or program.shell
        if not command or (isinstance(command, str) and not command.strip()) or "\0" in "".join(command):
            self._warn(f"{where} has no command; this hook is ignored.")
            return
        if isinstance(command, str) and program.shell and program.command:
            self._warn(f"{where} has both command and shell; shell is ignored.")
        text = command if isinstance(command, str) else shlex.join(command)
        yield HookSpec(
            event=event,
            name=program.name or clip_line(text, 60),
            command=command,
            timeout=program.timeout,
            matcher=group.matcher,
            filters=filters,
            append=group.append or _RESULTS.get(group.result, ""),
            join=group.join,
            environment=program.environment,
        )

    def _convert_entry(self, raw: Any, shapes: tuple[type[Struct], ...], where: str) -> list[Any] | None:
        """Convert an object to each of these structs. Keys unknown to all of them are reported and ignored."""
        if not isinstance(raw, Mapping):
            self._warn(f"{where} must be an object; this hook is ignored.")
            return None
        entry = cast("Mapping[str, Any]", raw)
        known = tuple(name for shape in shapes for name in shape.__struct_fields__)
        for key in entry:
            if key not in known:
                self._warn(f'unknown key "{where}.{key}" is ignored.{_suggest_key(key, known)}')
        try:
            return [msgspec.convert(entry, shape) for shape in shapes]
        except (msgspec.ValidationError, UnicodeError) as error:
            self._warn(_describe_invalid_field(entry, shapes, where) or f"{where} is ignored: {error}.")
            return None


def _check_matcher(matcher: str) -> None:
    try:
        re.compile("" if matcher == "*" else matcher)
    except re.error as error:
        raise ValueError(f"the matcher {matcher!r} is not a regular expression ({error}).") from None


def _describe_unknown_event(event: str) -> str:
    return f'unknown hook event "{event}".{_suggest_key(event, HOOK_EVENTS)}'


def _suggest_key(key: str, known: "Sequence[str] | Mapping[str, Any]") -> str:
    return suggest_similar(key, known, '"{}"')


def _describe_invalid_field(entry: Mapping[str, Any], shapes: tuple[type[Struct], ...], where: str) -> str:
    """Return a warning about the first field whose value does not fit, or ""."""
    hints = {name: kind for shape in shapes for name, kind in get_type_hints(shape, include_extras=True).items()}
    for name, value in entry.items():
        try:
            msgspec.convert(value, hints.get(name, Any))
        except (msgspec.ValidationError, UnicodeError):  # half a surrogate pair
            return f"{where} is ignored: {name} {describe_mismatch(value, hints[name])}"
    return ""


MAIN_AGENT = "main"
"""The name of the main agent in filters."""

CLAUDE_NAMES = {
    "ExecuteCommand": "Bash",
    "Spawn": "Bash",
    "WriteFile": "Write",
    "AppendFile": "Write",
    "Delete": "Write",
    "EditTool": "Edit",
    "MultiEditTool": "MultiEdit",
    "apply_patch": "Edit",
    "AgentTool": "Task",
    "SpawnStatus": "BashOutput",
    "SpawnStop": "KillShell",
    "Question": "AskUserQuestion",
}
"""Claude Code's names for tools that are called differently here.

Claude Code has fewer tools: a hook on `Bash` must also see background commands, one on `Write` also deletions.
"""

NOTIFICATIONS = {
    "PermissionRequest": "permission_prompt",
    "on_wait_question": "elicitation_dialog",
    "on_idle": "idle_prompt",
}

_TOOL_POINTS = frozenset(
    ("PreToolUse", "PostToolUse", "on_before_tool_result_append", "on_tool_batch_complete", "PermissionRequest")
)


def match_hook(hook: HookSpec, call: HookCall, root: str) -> str | None:
    """Return the tool name to pass to a matching hook ("" for a call without a tool), or None without a match."""
    if call.point not in hook.kind.points or not _wants_result(hook, call) or not _fits(hook.filters, call, root):
        return None
    if hook.event == "Notification":
        return "" if _matches_name(hook.matcher, NOTIFICATIONS[call.point]) else None
    if call.point in _TOOL_POINTS:
        return _find_first_name(hook, call.tools or (call.tool,))
    if call.point in ("SessionStart", "SessionEnd", "PreCompact", "PostCompact"):
        return "" if _matches_name(hook.matcher, call.reason) else None
    return ""


def is_concerned(hook: HookSpec, point: HookPoint, tool: str) -> bool:
    """True if the hook may match calls of this tool. Filters are ignored, since they depend on the call."""
    return point in hook.kind.points and _find_first_name(hook, (tool,)) is not None


def _wants_result(hook: HookSpec, call: HookCall) -> bool:
    """PostToolUse receives successful results, PostToolUseFailure failed ones."""
    results = hook.kind.results
    return results == "all" or call.is_error == (results == "bad")


def _find_first_name(hook: HookSpec, tools: Iterable[str]) -> str | None:
    names = (name for tool in tools for name in list_names(tool, claude=hook.kind.is_claude_name))
    return next((name for name in names if _matches_name(hook.matcher, name)), None)


def list_names(tool: str, *, claude: bool = False) -> tuple[str, ...]:
    """Return all names of a tool; with `claude`, Claude Code's name comes first."""
    claude_name = CLAUDE_NAMES.get(tool, tool)
    first = (claude_name, tool) if claude else (tool, claude_name)
    return tuple(dict.fromkeys((*first, *ALIASES.get(tool, "").split())))


def _matches_name(matcher: str, name: str) -> bool:
    """True if a matcher matches. `A|B` and `A, B` are whole names, anything else a regular expression to search for."""
    if matcher in ("", "*"):
        return True
    if re.fullmatch(r"[\w|, -]+", matcher):
        return name in map(str.strip, re.split(r"[|,]", matcher))
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
    return bool(tool) and any(get_canonical_name(name) == tool or fnmatchcase(tool, name) for name in patterns)


def _is_model(model: str, pattern: str) -> bool:
    return fnmatchcase(model, pattern) or fnmatchcase(model.partition("/")[2], pattern)


def _is_path(path: str, patterns: Iterable[str], root: str) -> bool:
    """Match path patterns: without a slash against the name, with one against the path from the project or `/`."""
    relative = os.path.relpath(path, root) if root else path
    for pattern in patterns:
        glob = _compile_glob(pattern.removeprefix("./"))
        if glob.fullmatch(path if pattern.startswith("/") else relative):
            return True
        if "/" not in pattern and glob.fullmatch(os.path.basename(path)):  # noqa: PTH119
            return True
    return False


@lru_cache(maxsize=256)
def _compile_glob(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    shapes = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(shapes.get(part) or re.escape(part) for part in parts), re.DOTALL)
