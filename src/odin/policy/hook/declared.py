"""The hooks that a file declares: Claude Code's shape and our own, checked entry by entry.

    "PreToolUse": [{"matcher": "Bash|Edit", "hooks": [{"type": "command", "command": "check.sh", "timeout": 10}]}]
    "on_tool_batch_complete": [{"command": ["make", "lint"], "paths": ["src/**"], "min_changed_files": 1}]

What is wrong is reported with its place and ignored; the rest holds.
"""

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, cast, get_args

import msgspec
from msgspec import Meta, Struct, field

from odin.core.hook import CallbackHook, HookPoint

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
