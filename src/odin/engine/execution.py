"""Runs an authorized tool call and records its result.

run:    before steps → around: tool, once more unsandboxed if the user agrees → after steps → tool_result hooks
record: redact → bound → remarks → before_tool_result_append hooks → events

A tool never ends the turn: an exception becomes an error result that the model reads.
"""

import asyncio
import os
import stat
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any, Protocol, cast

import msgspec
from msgspec import Struct

from odin.core.call_events import FileCached, TodosChanged, ToolEnded, ToolProgressed, ToolStarted
from odin.core.errors import OdinError
from odin.core.event import ContextSummarized, ModeChanged
from odin.core.event_values import CallStatus
from odin.core.policy import HookEffect
from odin.core.profile import UNSANDBOXED, ProcessProfile
from odin.core.text import join_some, to_valid_unicode
from odin.core.tool import Tool, ToolContext, ToolOutput, fail, hide_nothing
from odin.engine.authorize import ask_unsandboxed
from odin.engine.call import Call, CallDeps, CallScope, describe_change, describe_tool_error, fire_hook
from odin.policy.modes import get_mode_spec
from odin.policy.paths import open_for_reading
from odin.session.thread import INTERRUPTED


class RawOutput(Struct, frozen=True):
    """The output of a tool before the after steps. `is_stopped`: a before step gave it, and the tool did not run."""

    output: ToolOutput
    is_stopped: bool = False


class CallClock:
    """Measures one run of a tool. Its progress is shown only while `is_shown`, so that late output is dropped.

    `partial` is what the tool had produced when it was cancelled, or None if that is nothing.
    """

    def __init__(self, *, is_shown: bool = True) -> None:
        self.is_shown = is_shown
        self.partial: ToolOutput | None = None
        self._started_at = time.monotonic()
        self._duration_ms: int | None = None

    @property
    def elapsed_s(self) -> float:
        return round(time.monotonic() - self._started_at, 3)

    def stop(self) -> int:
        """Return the duration in milliseconds. Only the first call stops the clock."""
        if self._duration_ms is None:
            self._duration_ms = int((time.monotonic() - self._started_at) * 1000)
        return self._duration_ms


class StartedRun(Protocol):
    """A run of the tool that began before the call was authorized."""

    clock: CallClock

    async def await_output(self) -> RawOutput: ...


async def run(call: Call, scope: CallScope, deps: CallDeps, started: StartedRun | None = None) -> Call:
    """Run an authorized call and return it finished. With `started`, use the output of that run instead.

    If it is cancelled, record what it has produced so far.
    """
    title = to_valid_unicode(deps.redact(_make_title(call)).text)
    deps.recorder.emit(ToolStarted(call.id, call.tool.name, call.request.args, title), scope.agent)
    call = msgspec.structs.replace(call, stage="running")
    clock = CallClock() if started is None else started.clock
    context = build_context(call, scope, deps, clock)
    retry = _UnsandboxedRetry(call, scope, deps, context)
    try:
        output = await _produce_output(call, deps, context, retry, started)
        clock.is_shown = False
        call = msgspec.structs.replace(call, stage="finished", output=output, duration_ms=clock.stop())
        output = await _fire_tool_result(call, output, scope, deps)
    except asyncio.CancelledError:
        if call.stage == "running" and clock.partial is not None:
            call = msgspec.structs.replace(call, output=clock.partial, duration_ms=clock.stop())
        if call.stage == "finished" or clock.partial is not None:
            record_interrupted(call, scope, deps)
        raise
    finally:
        clock.is_shown = False
    return msgspec.structs.replace(call, output=output, stops_turn=retry.stops_turn)


async def _produce_output(
    call: Call, deps: CallDeps, context: ToolContext, retry: "_UnsandboxedRetry", started: StartedRun | None
) -> ToolOutput:
    try:
        if started is None:
            raw = await run_tool(call, deps, context, retry=retry)
        else:
            raw = await started.await_output()
            raw = RawOutput(await retry(raw.output), raw.is_stopped) if raw.output.blocked else raw
        output = raw.output
        for step in () if raw.is_stopped else deps.steps.after:
            output = await step(call.tool, call.args, output, context)
    except Exception as error:  # whatever a tool raises is its result
        return fail(describe_tool_error(call.tool, error))
    return output


async def _keep_output(output: ToolOutput) -> ToolOutput:
    return output


async def run_tool(
    call: Call,
    deps: CallDeps,
    context: ToolContext,
    *,
    retry: Callable[[ToolOutput], Awaitable[ToolOutput]] = _keep_output,
    on_start: Callable[[], None] = lambda: None,
) -> RawOutput:
    """Run the before steps and the tool. `retry` gets an output the sandbox blocked; `on_start` may veto by raising."""
    tool, args = call.tool, call.args
    for step in deps.steps.before:
        stopped = await step(tool, args, context)
        if stopped is not None:
            return RawOutput(stopped, is_stopped=True)
    async with deps.steps.around(tool, args, context):
        on_start()
        output = await tool.run(args, context)
        return RawOutput(await retry(output) if output.blocked else output)


def build_context(call: Call, scope: CallScope, deps: CallDeps, clock: CallClock) -> ToolContext:
    def report_progress(text: str) -> None:
        if clock.is_shown:
            shown = to_valid_unicode(deps.redact(text).text)
            deps.recorder.emit(ToolProgressed(call.id, call.tool.name, shown, clock.elapsed_s), scope.agent)

    def keep_partial(output: ToolOutput) -> None:
        clock.partial = output

    policy = deps.policy()
    limits = policy.write_scope
    writes = get_mode_spec(scope.mode).allows_changes and not limits.read_only
    profile = "read" if not writes else "granted" if call.grants else "project"
    places = limits.list_paths(policy.root) if limits.is_limited else None
    return ToolContext(
        cwd=scope.cwd,
        root=scope.root,
        session=deps.recorder.state.session,
        agent=scope.agent,
        call_id=call.id,
        mode=scope.mode,
        progress=report_progress,
        environment=policy.scope.environment,
        profile=ProcessProfile(profile, call.grants, places),
        is_hidden=_make_hidden_filter(call, scope, deps),
        keep_partial=keep_partial,
        resolved_paths=call.target.resolved,
    )


def _make_hidden_filter(call: Call, scope: CallScope, deps: CallDeps) -> Callable[[str], bool]:
    """Return the filter for paths a search must not show. Other tools name their paths, which the rules checked."""
    if call.tool.kind != "read":
        return hide_nothing
    found = deps.policy().make_result_filter(call.tool.name, "read", call.target, scope.mode)
    return hide_nothing if found.is_idle else found


def _make_title(call: Call) -> str:
    try:
        return call.tool.get_title(call.args)
    except Exception:
        return ""


class _UnsandboxedRetry:
    """Called with an output the sandbox blocked: lets the user run the command once more without the sandbox.

    Only the user can agree, once per call: no rule, hook or permission mode leads out of the sandbox. In a read-only
    mode, or to an agent with a write scope, the retry is not offered, because nothing would confine the command.
    `stops_turn`: the user's answer also ends the turn.
    """

    def __init__(self, call: Call, scope: CallScope, deps: CallDeps, context: ToolContext) -> None:
        self.stops_turn = False
        self._call = call
        self._scope = scope
        self._deps = deps
        self._context = context

    async def __call__(self, output: ToolOutput) -> ToolOutput:
        call, deps, profile = self._call, self._deps, self._context.profile
        if (limits := deps.policy().write_scope).is_limited:
            remark = f"[The sandbox kept it from {output.blocked}. This agent may change: {limits.describe()}.]"
            return msgspec.structs.replace(output, text=f"{output.text}\n\n{remark}")
        if not deps.approvals.can_ask or not profile.writes or deps.policy().permission_mode == "dontAsk":
            return output
        self._context.keep_partial(output)
        answer = await ask_unsandboxed(call, output.blocked, self._scope, deps)
        self.stops_turn = self.stops_turn or answer.interrupt
        if not answer.allow:
            why = f": {answer.reason}" if answer.reason else "."
            who = "No user allowed" if answer.by in ("timeout", "shutdown") else "The user did not allow"
            remark = f"[The sandbox kept it from {output.blocked}. {who} it to run outside the sandbox{why}]"
            return msgspec.structs.replace(output, text=f"{output.text}\n\n{remark}")
        again = await call.tool.run(call.args, msgspec.structs.replace(self._context, profile=UNSANDBOXED))
        remark = f"The sandbox had kept it from {output.blocked}. The user let it run again outside the sandbox."
        note = f"{again.note} (again, outside the sandbox, which had kept it from {output.blocked})".lstrip()
        return msgspec.structs.replace(again, text=f"{again.text}\n\n[{remark}]", note=note)


async def _fire_tool_result(call: Call, output: ToolOutput, scope: CallScope, deps: CallDeps) -> ToolOutput:
    """Fire `tool_result`. A hook can replace the output; a deny is added to it as an objection."""
    effect = await fire_hook("PostToolUse", call, scope, deps, output)
    output = _replace_output(output, effect)
    if effect.decision == "deny" and effect.message:
        output = msgspec.structs.replace(output, text=f"{output.text}\n\n[A hook objects: {effect.message}]")
    return output


def _replace_output(output: ToolOutput, effect: HookEffect) -> ToolOutput:
    """Return the output with a hook's text. The view for the user showed the old text and goes with it."""
    if effect.output is None or effect.output == output.text:
        return output
    return msgspec.structs.replace(output, text=effect.output, view="", for_user="")


class PlaceholderGuard:
    """A before step: refuses edits that would write a redaction placeholder over the secret it stands for.

    A placeholder that the file itself contains is ordinary text and may be written. `find_placeholders` returns the
    placeholders in a text.
    """

    def __init__(self, find_placeholders: Callable[[str], tuple[str, ...]]) -> None:
        self._find_placeholders = find_placeholders

    async def __call__(self, tool: Tool[Any], args: Any, context: ToolContext) -> ToolOutput | None:
        if tool.kind != "edit":
            return None
        placeholders = self._find_placeholders("\n".join(_walk_texts(msgspec.to_builtins(args))))
        if not placeholders:
            return None
        content = b"".join(_read_content(item.path) for item in context.resolved_paths or ())
        foreign = [text for text in placeholders if text.encode() not in content]
        if not foreign:
            return None
        return fail(
            f"Nothing was changed: {', '.join(foreign)} stands for a secret that was taken out of what you were shown, "
            "and would be written in its place. Change only the text around it, in edits that leave the secret alone; "
            "a new secret is put in by the user."
        )


def _walk_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in cast("dict[str, Any]", value).values():
            yield from _walk_texts(item)
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _walk_texts(item)


def _read_content(path: str) -> bytes:
    """Return the content of a regular file, or b""."""
    try:
        with open(open_for_reading(path), "rb") as file:  # noqa: PTH123
            return file.read() if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
    except OSError:
        return b""


# --- record ---

UNSUPPORTED_MEDIA = "[Unsupported tool result type]"
WITHHELD_TEXT = "A hook withheld this result"
UNCHECKED_TEXT = "The output is withheld, because the hooks that check results did not run."
"""Said to the model about the output of an interrupted call."""


async def record(call: Call, scope: CallScope, deps: CallDeps) -> Call:
    """Record the result of a finished or refused call, and what it changed besides: summary, to-dos, known files."""
    try:
        output, secrets = _redact_and_bound(call.output, deps)
        output = msgspec.structs.replace(output, text=_add_remarks(output.text, call, secrets, deps))
        if not call.is_refused:
            # Fire `before_tool_result_append`, the last look at a result before it is recorded. A deny withholds it.
            effect = await fire_hook("on_before_tool_result_append", call, scope, deps, output)
            if effect.decision != "deny":
                replaced = _replace_output(output, effect)
            else:
                text = f"{WITHHELD_TEXT}: {effect.message}" if effect.message else f"{WITHHELD_TEXT}."
                replaced = ToolOutput(text=text, is_error=output.is_error, files=output.files, todos=output.todos)
            if replaced is not output:
                output, more = _redact_and_bound(replaced, deps)
                secrets = tuple(dict.fromkeys((*secrets, *more)))
        event = _make_event(call, output, secrets)
    except asyncio.CancelledError:
        record_interrupted(call, scope, deps)
        raise
    _emit_result(event, call, scope, deps)
    return msgspec.structs.replace(call, stage="recorded")


def record_interrupted(call: Call, scope: CallScope, deps: CallDeps) -> None:
    """Record what a call had produced when its turn was cancelled. No more hooks run.

    The user sees the output. The model reads it unless a hook checks results: that hook has not seen it.
    """
    output, secrets = _redact_and_bound(call.output, deps)
    if not call.is_refused and (
        deps.hooks.has_hook_for("PostToolUse", call.tool.name)
        or deps.hooks.has_hook_for("on_before_tool_result_append")
    ):
        output = msgspec.structs.replace(output, text=UNCHECKED_TEXT, view=output.view or output.text)
    if call.stage == "running":
        text = f"{output.text}\n\n[{INTERRUPTED}]" if output.text else INTERRUPTED
        output = msgspec.structs.replace(output, text=text)
    output = msgspec.structs.replace(output, text=_add_remarks(output.text, call, secrets, deps))
    with suppress(OdinError):  # the end of the turn reports a log that cannot be written
        _emit_result(_make_event(call, output, secrets), call, scope, deps)


def _emit_result(event: ToolEnded, call: Call, scope: CallScope, deps: CallDeps) -> None:
    emit, output = deps.recorder.emit, call.output
    emit(event, scope.agent)
    scope.on_result(call, event)
    if output.summary:
        emit(ContextSummarized(_redact_text(output.summary, deps), output.covers), scope.agent)
    if output.todos is not None:
        emit(TodosChanged(output.todos), scope.agent)
    if output.mode not in (None, scope.mode):
        emit(ModeChanged(output.mode), scope.agent)
    scope.follow(msgspec.structs.replace(output, answer=_redact_text(output.answer, deps)))
    for file in deps.take_seen_files():
        emit(FileCached(msgspec.structs.replace(file, path=to_valid_unicode(file.path))), scope.agent)


def _make_event(call: Call, output: ToolOutput, secrets: tuple[str, ...]) -> ToolEnded:
    return ToolEnded(
        call_id=call.id,
        name=call.name,
        status=_get_status(call, output),
        text=to_valid_unicode(output.text),
        note=to_valid_unicode(output.note),
        display=to_valid_unicode(output.view),
        for_user="" if output.silent else to_valid_unicode(output.for_user),
        files=tuple(to_valid_unicode(path) for path in output.files),
        duration_ms=call.duration_ms,
        images=output.images,
        asynchronous=output.asynchronous,
        audit=call.audit,
        redacted=secrets,
        error_kind=output.error_kind if call.refusal is None else call.refusal.error_kind or output.error_kind,
    )


def _get_status(call: Call, output: ToolOutput) -> CallStatus:
    if call.refusal is not None:
        return call.refusal.status
    if call.stage == "running":
        return "cancelled"
    return "error" if output.is_error else "success"


def _redact_and_bound(output: ToolOutput, deps: CallDeps) -> tuple[ToolOutput, tuple[str, ...]]:
    """Return the output without secrets and bounded, and the names of the secrets that were removed."""
    clean = [deps.redact(text) for text in (output.text, output.note, output.view, output.for_user)]
    secrets = tuple(dict.fromkeys(secret for one in clean for secret in one.secrets))
    text, note, view, for_user = (one.text for one in clean)
    text = UNSUPPORTED_MEDIA if output.media else bound_text(text, deps.save)
    return msgspec.structs.replace(output, text=text, note=note, view=view, for_user=for_user), secrets


def _add_remarks(text: str, call: Call, secrets: tuple[str, ...], deps: CallDeps) -> str:
    """Append what the model must know about this result: files left out, changed arguments, removed secrets."""
    if not call.is_refused and call.left_out:
        names = _redact_text(join_some(call.left_out, _MAX_NAMED), deps)
        text = f"{text}\n\n[Not searched, because they may contain secrets: {names}. Name a file to ask for it.]"
    if not call.is_refused and call.audit is not None:
        text = f"{text}\n\n{_redact_text(describe_change(call.audit), deps)}"
    return f"{text}\n\n[redacted: {', '.join(secrets)}]" if secrets else text


def _redact_text(text: str, deps: CallDeps) -> str:
    return to_valid_unicode(deps.redact(text).text)


_MAX_NAMED = 5
MAX_CHARS = 51_200
MAX_LINES = 2_000
_HEAD_SHARE = 0.4
_LINE_BREAK_SHARE = 0.8
_EXTRA_LINES = 10
"""Lines a tool may add to a full page to say what it left out."""


def bound_text(text: str, save: Callable[[str], str] | None = None) -> str:
    """Return a long text as head and tail, with a line that says what is missing. `save` stores the whole text."""
    lines = text.count("\n") + 1
    if len(text) <= MAX_CHARS and lines <= MAX_LINES + _EXTRA_LINES:
        return text
    # The head, cut at a line end unless that would lose much of it.
    part = "\n".join(text[: int(MAX_CHARS * _HEAD_SHARE)].split("\n")[: int(MAX_LINES * _HEAD_SHARE)])
    end = part.rfind("\n")
    head, tail = part[:end] if end > len(part) * _LINE_BREAK_SHARE else part, _cut_tail(text)
    saved = ""
    if save is not None:
        try:
            saved = f"; the full text: {save(text)}"
        except OSError as error:
            saved = f"; the full text could not be saved ({error.strerror or error})"
    shown = f"the first {len(head)} and the last {len(tail)} of {len(text)} characters ({lines} lines) are shown{saved}"
    return f"{head}\n\n[... result cut: {shown} ...]\n\n{tail}"


def _cut_tail(text: str) -> str:
    part = "\n".join(text[-int(MAX_CHARS * (1 - _HEAD_SHARE)) :].split("\n")[-int(MAX_LINES * (1 - _HEAD_SHARE)) :])
    start = part.find("\n") + 1
    return part[start:] if 0 < start < len(part) * (1 - _LINE_BREAK_SHARE) else part
