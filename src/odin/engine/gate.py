"""The only way to a tool.

    find → parse → mode → rules → ask → before → (around: run) → after → bound the output → record

Everything that can go wrong on the way becomes an error result that the model reads; nothing here ends the turn.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

import msgspec

from odin.core.event import (
    CachedFile,
    CallStatus,
    ContextSummarized,
    FileCached,
    Mode,
    TodosChanged,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
)
from odin.core.message import ToolCall
from odin.core.registry import Registry
from odin.core.text import mended
from odin.core.tool import Subject, Tool, ToolContext, ToolOutput, failed
from odin.engine.asker import Asker
from odin.engine.guard import RepetitionGuard
from odin.engine.recorder import Recorder
from odin.policy.modes import spec_of
from odin.policy.rules import Policy

MAX_CHARS = 51_200
MAX_LINES = 2_000
_HEAD = 0.4
_WORTH = 0.8
_REMARKS = 10
"""Lines a tool may add to a full page to say what it left out."""

UNSUPPORTED_MEDIA = "[Unsupported tool result type]"

Before = Callable[[Tool[Any], Any, ToolContext], Awaitable[ToolOutput | None]]
"""A step before a call runs. An output stops the call and is its result."""

Around = Callable[[Tool[Any], Any, ToolContext], AbstractAsyncContextManager[None]]
"""What surrounds the running of a call and sees it end, whatever comes of it, also a cancellation."""

After = Callable[[Tool[Any], Any, ToolOutput, ToolContext], Awaitable[ToolOutput]]
"""A step after a call ran. What it returns is the result."""


class Scope(msgspec.Struct, frozen=True):
    """Whose call it is and where it runs."""

    agent: str
    mode: Mode
    cwd: str
    root: str
    guard: RepetitionGuard


class Admitted(msgspec.Struct, frozen=True):
    """A call that may run, with the arguments that will really be used."""

    call: ToolCall
    tool: Tool[Any]
    args: Any


class Refused(msgspec.Struct, frozen=True):
    call: ToolCall
    text: str
    status: CallStatus = "error"
    interrupt: bool = False


class Gate:
    def __init__(
        self,
        *,
        registry: Registry,
        policy: Callable[[], Policy],
        asker: Asker,
        recorder: Recorder,
        seen_files: Callable[[], Iterable[CachedFile]] = tuple,
        before: Sequence[Before] = (),
        around: Around = lambda tool, args, context: nullcontext(),
        after: Sequence[After] = (),
        save: Callable[[str], str] | None = None,
    ) -> None:
        self.registry = registry
        self._policy = policy
        self._asker = asker
        self._recorder = recorder
        self._seen_files = seen_files
        self._before = before
        self._around = around
        self._after = after
        self._save = save

    async def run_all(self, calls: Sequence[ToolCall], scope: Scope) -> bool:
        """Run one reply's calls. Questions come in source order, results are recorded in call order.

        Calls that do not get in each other's way run together. When a command fails, the calls after it that are not
        mere looks are not run: they were planned on its success. True when the person asked wants the turn to stop.
        """
        stop = False
        admitted: list[Admitted | Refused] = []
        for call in calls:
            if stop:
                admitted.append(Refused(call, "Not run: the user stopped this turn.", "cancelled"))
                continue
            verdict = await self._admit(call, scope)
            admitted.append(verdict)
            stop = isinstance(verdict, Refused) and verdict.interrupt
        broken = False
        for batch in _batches(admitted):
            items = [_given_up(item) if broken else item for item in batch]
            failed_command = await self._run_batch(items, scope)
            broken = broken or failed_command
        scope.guard.end_round()
        return stop

    async def _run_batch(self, batch: Sequence[Admitted | Refused], scope: Scope) -> bool:
        """True when a command failed."""
        if len(batch) == 1:
            item, output, took = await self._run(batch[0], scope)
            self._record(item, output, took, scope)
            return _broke(item, output)
        tasks = [asyncio.create_task(self._run(item, scope)) for item in batch]
        broken = False
        try:
            for task in tasks:
                item, output, took = await task
                self._record(item, output, took, scope)
                broken = broken or _broke(item, output)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return broken

    async def _admit(self, call: ToolCall, scope: Scope) -> Admitted | Refused:
        tool = self.registry.get(call.name)
        if tool is None:
            known = ", ".join(item.name for item in self._offered(scope.mode))
            return Refused(call, f"There is no tool {call.name!r}. The tools are: {known}.")
        circling = scope.guard.check(tool.name, call.args)
        if circling:
            return Refused(call, circling)
        parsed = self._parse(tool, call.args)
        if isinstance(parsed, str):
            return Refused(call, parsed)
        barred = self._barred(tool, scope.mode)
        if barred:
            return Refused(call, barred, "denied")
        return await self._judge(call, tool, parsed, scope)

    def _parse(self, tool: Tool[Any], raw: dict[str, Any]) -> Any:
        """The parsed arguments, or a sentence that names the field that is wrong."""
        try:
            return tool.parse(raw)
        except msgspec.ValidationError as error:
            known = ", ".join(tool.spec().schema.get("properties", {}))
            return f"The arguments of {tool.name} do not fit its schema: {error}. Its fields are: {known}."
        except Exception as error:
            return _fault(tool, error)

    def _barred(self, tool: Tool[Any], mode: Mode) -> str:
        if self.registry.is_disabled(tool.name):
            return f"{tool.name} is switched off in this session. Nothing was done."
        if not spec_of(mode).shows(tool.kind):
            return (
                f"{tool.name} is not available in {mode}: it changes files, and in this mode nothing is changed. "
                "Nothing was done. Describe the change instead."
            )
        return ""

    async def _judge(self, call: ToolCall, tool: Tool[Any], args: Any, scope: Scope) -> Admitted | Refused:
        try:
            subject = tool.subject(args)
        except Exception as error:  # what cannot be judged is not run
            return Refused(call, _fault(tool, error))
        verdict = self._policy().judge(tool.name, tool.kind, subject, scope.mode)
        if verdict.action == "allow" or (verdict.action == "ask" and self.registry.is_allowed(tool.name)):
            return Admitted(call, tool, args)
        if verdict.action == "deny":
            return Refused(call, f"Denied: {verdict.reason} {verdict.hint}".rstrip(), "denied")
        if not self._asker.can_ask:
            return Refused(
                call,
                f"{tool.name} requires confirmation: {verdict.reason} Nobody can be asked here, so nothing was done. "
                f"{verdict.hint}".rstrip(),
                "denied",
            )
        return await self._ask(call, tool, subject, args, verdict.reason, scope)

    async def _ask(
        self, call: ToolCall, tool: Tool[Any], subject: Subject, args: Any, reason: str, scope: Scope
    ) -> Admitted | Refused:
        answer = await self._asker.ask(
            call_id=call.id, name=tool.name, args=call.args, reason=reason, subject=subject.text, agent=scope.agent
        )
        if not answer.allow:
            why = f": {answer.reason}" if answer.reason else "."
            return Refused(call, f"The user said no{why} Nothing was done.", "denied", answer.interrupt)
        if answer.args is None:
            return Admitted(call, tool, args)
        parsed = self._parse(tool, answer.args)
        if isinstance(parsed, str):
            return Refused(call, parsed)
        again = self._policy().judge(tool.name, tool.kind, tool.subject(parsed), scope.mode)
        if again.action == "deny":
            return Refused(call, f"Denied after the change: {again.reason} {again.hint}".rstrip(), "denied")
        return Admitted(ToolCall(call.id, call.name, answer.args), tool, parsed)

    async def _run(self, item: Admitted | Refused, scope: Scope) -> tuple[Admitted | Refused, ToolOutput, int]:
        if isinstance(item, Refused):
            return item, failed(item.text), 0
        call, tool, args = item.call, item.tool, item.args
        self._recorder.emit(ToolStarted(call.id, tool.name, call.args, _title(tool, args)), scope.agent)
        started = time.monotonic()
        context = self._context(call, tool, scope, started)
        try:
            output = await self._run_steps(tool, args, context)
        except Exception as error:  # a tool must never end the turn: whatever it raises is its result
            output = failed(_fault(tool, error))
        return item, output, int((time.monotonic() - started) * 1000)

    async def _run_steps(self, tool: Tool[Any], args: Any, context: ToolContext) -> ToolOutput:
        for before in self._before:
            stopped = await before(tool, args, context)
            if stopped is not None:
                return stopped
        async with self._around(tool, args, context):
            output = await tool.run(args, context)
        for after in self._after:
            output = await after(tool, args, output, context)
        return output

    def _context(self, call: ToolCall, tool: Tool[Any], scope: Scope, started: float) -> ToolContext:
        def progress(text: str) -> None:
            elapsed = round(time.monotonic() - started, 3)
            self._recorder.emit(ToolProgressed(call.id, tool.name, text, elapsed), scope.agent)

        return ToolContext(
            cwd=scope.cwd,
            root=scope.root,
            session=self._recorder.state.session,
            agent=scope.agent,
            call_id=call.id,
            mode=scope.mode,
            progress=progress,
        )

    def _record(self, item: Admitted | Refused, output: ToolOutput, took_ms: int, scope: Scope) -> None:
        emit = self._recorder.emit
        name = item.tool.name if isinstance(item, Admitted) else item.call.name
        status: CallStatus = "error" if output.is_error else "success"
        if isinstance(item, Refused):
            status = item.status
        text = UNSUPPORTED_MEDIA if output.media else bounded(output.text, self._save)
        emit(
            ToolEnded(
                call_id=item.call.id,
                name=name,
                status=status,
                text=mended(text),
                note=mended(output.note),
                view=mended(output.view),
                for_user="" if output.silent else mended(output.for_user),
                files=tuple(mended(path) for path in output.files),
                duration_ms=took_ms,
                images=output.images,
                asynchronous=output.asynchronous,
            ),
            scope.agent,
        )
        if output.summary:
            emit(ContextSummarized(mended(output.summary), output.covers), scope.agent)
        if output.todos is not None:
            emit(TodosChanged(output.todos), scope.agent)
        for file in self._seen_files():
            emit(FileCached(msgspec.structs.replace(file, path=mended(file.path))), scope.agent)

    def _offered(self, mode: Mode) -> tuple[Tool[Any], ...]:
        return self.registry.offered(lambda tool: spec_of(mode).shows(tool.kind))


def _batches(items: Sequence[Admitted | Refused]) -> list[list[Admitted | Refused]]:
    """Neighbours that may run together, in order."""
    batches: list[list[Admitted | Refused]] = []
    for item in items:
        if batches and all(_together(earlier, item) for earlier in batches[-1]):
            batches[-1].append(item)
        else:
            batches.append([item])
    return batches


def _together(one: Admitted | Refused, other: Admitted | Refused) -> bool:
    """Looking and talking mix with each other, changes only with changes of other files, commands with nothing."""
    if isinstance(one, Refused) or isinstance(other, Refused):
        return True
    if one.tool.alone or other.tool.alone:
        return False
    if one.tool.kind != "edit" and other.tool.kind != "edit":
        return True
    if one.tool.kind == "edit" and other.tool.kind == "edit":
        touched = {os.path.realpath(path) for path in one.tool.subject(one.args).paths}
        return touched.isdisjoint(os.path.realpath(path) for path in other.tool.subject(other.args).paths)
    return False


def _fault(tool: Tool[Any], error: Exception) -> str:
    return f"{tool.name} failed: {str(error) or type(error).__name__}"


def _title(tool: Tool[Any], args: Any) -> str:
    try:
        return mended(tool.title(args))
    except Exception:
        return ""


def _broke(item: Admitted | Refused, output: ToolOutput) -> bool:
    return output.is_error and isinstance(item, Admitted) and item.tool.kind == "execute"


def _given_up(item: Admitted | Refused) -> Admitted | Refused:
    if isinstance(item, Refused) or item.tool.kind == "read":
        return item
    return Refused(item.call, "Not run: the command before it in the same reply failed.", "cancelled")


def bounded(text: str, save: Callable[[str], str] | None = None) -> str:
    """The last bound on what a result may add to the context: head and tail, and a line that says what is missing."""
    lines = text.count("\n") + 1
    if len(text) <= MAX_CHARS and lines <= MAX_LINES + _REMARKS:
        return text
    head, tail = _head(text), _tail(text)
    kept = ""
    if save is not None:
        try:
            kept = f"; the full text: {save(text)}"
        except OSError as error:
            kept = f"; the full text could not be saved ({error.strerror or error})"
    shown = f"the first {len(head)} and the last {len(tail)} of {len(text)} characters ({lines} lines) are shown{kept}"
    return f"{head}\n\n[... result cut: {shown} ...]\n\n{tail}"


def _head(text: str) -> str:
    """The beginning that is shown, to the end of a line unless that would cost much of it."""
    part = "\n".join(text[: int(MAX_CHARS * _HEAD)].split("\n")[: int(MAX_LINES * _HEAD)])
    end = part.rfind("\n")
    return part[:end] if end > len(part) * _WORTH else part


def _tail(text: str) -> str:
    part = "\n".join(text[-int(MAX_CHARS * (1 - _HEAD)) :].split("\n")[-int(MAX_LINES * (1 - _HEAD)) :])
    start = part.find("\n") + 1
    return part[start:] if 0 < start < len(part) * (1 - _WORTH) else part
