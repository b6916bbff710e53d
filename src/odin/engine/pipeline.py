"""Runs the tool calls of one reply: authorizes them in order, runs them in batches, records their results in order.

execution.py tells what happens to each call. A call may already run while its reply is still being streamed
(speculation.py). It is authorized like any other, and `run` takes the output it has. After all calls of a reply:
`on_tool_batch_complete` hooks.
"""

import asyncio
from collections.abc import Callable, Sequence

from msgspec import structs

from odin.core import debug
from odin.core.call_events import CallQueued
from odin.core.errors import AgentShutdown
from odin.core.message import ToolCall
from odin.core.policy import HookCall
from odin.engine.call import Call, CallDeps, CallScope
from odin.engine.execution import CallExecutor
from odin.engine.speculation import SpeculationSettings, Speculator

SKIPPED_BY_STEERING = "Skipped due to queued user message."
"""The result of a call that a steering prompt overtook."""

_USER_STOPPED = "the user stopped this turn."


class CallPipeline:
    """The tool calls of one agent. Its `speculator` observes them while they are streamed."""

    def __init__(self, deps: CallDeps, speculation: SpeculationSettings | None = None) -> None:
        self.registry = deps.registry
        self.speculator = Speculator(deps, speculation or SpeculationSettings())
        self._deps = deps
        self._file_history = deps.recorder.state.file_history
        self._batch_mark = self._recorded_mark = self._file_history.mark()

    async def run_all(self, requests: Sequence[ToolCall], scope: CallScope) -> bool:
        """Run the calls of one reply; return True if the user wants the turn to stop.

        Permission is asked in the order of the calls, and results are recorded in that order. Calls that do not
        conflict run in parallel. When a command fails, later calls that are not read-only are not run: they were
        planned on its success. If the session ends meanwhile, raise AgentShutdown after every result is recorded.
        """
        await self.speculator.discard_changed(requests)
        reply = _Reply(CallExecutor(scope, self._deps))
        calls, stop = await self._authorize_all(requests, reply.executor)
        batches = group_calls(calls, reply.executor.is_read_only)
        for call in (call for batch in batches[1:] for call in batch):
            self._announce_queued(call, reply)
        try:
            for batch in batches:
                batch = [await self._refuse_if_obsolete(call, reply) for call in batch]
                await self._run_batch(batch, reply)
        except asyncio.CancelledError:
            # Record what was refused before the turn was cancelled: the user's no stays a no. This waits for nothing.
            for call in calls:
                if call.is_refused and call.id not in reply.recorded:
                    await self._record(call, reply)
            if self._deps.interactions.is_closed:
                raise AgentShutdown from None
            raise
        await self.speculator.rollback("not_run")
        scope.guard.end_round()
        # Fire `tool_batch_complete`, then send the messages of hooks to the model: every call has its result.
        mark, self._batch_mark = self._batch_mark, self._file_history.mark()
        if reply.calls and self._deps.hooks.has_hook_for("on_tool_batch_complete"):
            edits = [call.output for call in reply.calls if call.tool.kind == "edit" and not call.output.is_error]
            edited = [path for output in edits for path in output.files]
            watched = [change.change.before.path for change in self._file_history.list_made_by(scope.agent, mark)]
            batch = HookCall(
                "on_tool_batch_complete",
                scope.agent,
                scope.mode,
                tools=tuple(dict.fromkeys(call.tool.name for call in reply.calls)),
                paths=tuple(dict.fromkeys(path for call in reply.calls for path in call.paths)),
                changed=tuple(dict.fromkeys([*edited, *watched])),
                is_error=any(call.output.is_error for call in reply.calls),
            )
            await self._deps.hooks.fire(batch)
        self._deps.hooks.deliver_notes(scope.agent)
        if self._deps.interactions.is_closed:
            raise AgentShutdown
        return stop or reply.is_stopped

    async def _authorize_all(self, requests: Sequence[ToolCall], executor: CallExecutor) -> tuple[list[Call], bool]:
        """Authorize the calls in order. Once the user stops the turn or steers it, the remaining ones are refused."""
        stop = False
        calls: list[Call] = []
        for request in requests:
            if executor.scope.is_steered():
                call = _skip(request)
            elif stop or self._deps.hooks.halt_reason:
                call = _cancel(request, _USER_STOPPED if stop else "a hook ended this turn.")
            else:
                call = await executor.authorize(await self.speculator.find_evaluated(request, executor))
                if debug.write is not None:
                    fields = {"call_id": call.id, "tool": call.name, "stage": call.stage, "refusal": call.refusal}
                    debug.write("permission", {**fields, "decision": call.decision, "args": call.request.args})
                await self.speculator.settle(call)
                if executor.scope.is_steered():
                    call = _skip(request)
                stop = call.stops_turn
            calls.append(call)
        return calls, stop

    async def _refuse_if_obsolete(self, call: Call, reply: "_Reply") -> Call:
        """Refuse an authorized call that has lost its reason to run since."""
        if call.is_refused:
            pass
        elif self._deps.interactions.is_closed:
            call = _cancel(call.request, str(AgentShutdown()))
        elif reply.is_stopped:
            call = _cancel(call.request, _USER_STOPPED)
        elif reply.executor.scope.is_steered():
            call = _skip(call.request)
        elif reply.has_failed_command and not reply.executor.is_read_only(call):
            call = _cancel(call.request, "the command before it in the same reply failed.")
        if call.is_refused:
            await self.speculator.settle(call)
        return call

    async def _run_batch(self, batch: Sequence[Call], reply: "_Reply") -> None:
        """Run calls in parallel. Refused ones are recorded without a task, so that a closing session records them."""
        if len(batch) == 1 or all(call.is_refused for call in batch):
            for call in batch:
                await self._record(await self._run(call, reply), reply)
            return
        tasks = [asyncio.create_task(self._run(call, reply)) for call in batch]
        waiting = list(tasks)
        try:
            while waiting:
                call = await waiting[0]
                del waiting[0]
                await self._record(call, reply)
        finally:
            for task in tasks:
                task.cancel()
            for ended in await asyncio.gather(*waiting, return_exceptions=True):
                if isinstance(ended, Call):  # it had finished, but a call before it had not
                    reply.recorded.add(ended.id)
                    reply.executor.record_interrupted(ended)

    async def _run(self, call: Call, reply: "_Reply") -> Call:
        if call.is_refused:
            return call
        return await self.speculator.run(call, reply.executor, lambda: self._announce_queued(call, reply))

    async def _record(self, call: Call, reply: "_Reply") -> None:
        """Record the result, with a remark if the call repeats earlier ones. A cancelled call does not count."""
        reply.recorded.add(call.id)
        if call.refusal is None or call.refusal.status != "cancelled":
            scope, output = reply.executor.scope, call.output
            mark, self._recorded_mark = self._recorded_mark, self._file_history.mark()
            edited = not call.is_refused and call.tool.kind == "edit" and not output.is_error
            changed = edited or bool(self._file_history.list_made_by(scope.agent, mark))
            remark = scope.guard.record_result(call.id, output.text, failed=output.is_error, changed=changed)
            if remark:
                call = structs.replace(call, output=structs.replace(output, text=f"{output.text}\n\n[{remark}]"))
        reply.add(await reply.executor.record(call))

    def _announce_queued(self, call: Call, reply: "_Reply") -> None:
        """Publish once that an authorized call waits for its turn."""
        if not call.is_refused and call.id not in reply.queued and not self.speculator.has_started(call.id):
            reply.queued.add(call.id)
            reply.executor.emit(CallQueued(call.id, call.tool.name))


class _Reply:
    """The calls of one reply that have run so far.

    `queued`: ids of calls announced as waiting; `recorded`: ids of calls whose result is recorded or on its way.
    """

    def __init__(self, executor: CallExecutor) -> None:
        self.executor = executor
        self.calls: list[Call] = []
        self.has_failed_command = False
        self.is_stopped = False
        self.queued: set[str] = set()
        self.recorded: set[str] = set()

    def add(self, call: Call) -> None:
        if not call.is_refused:
            self.calls.append(call)
            self.has_failed_command = self.has_failed_command or (call.output.is_error and call.tool.kind == "execute")
            self.is_stopped = self.is_stopped or call.stops_turn


def group_calls(calls: Sequence[Call], is_read_only: Callable[[Call], bool]) -> list[list[Call]]:
    """Group neighboring calls that may run in parallel, keeping their order. Those that run last stand at the end."""
    if len(calls) == 1:
        return [list(calls)]
    batches: list[list[Call]] = []
    # A call that is not exclusive may run in parallel with any other; a command must be read-only besides.
    can_overlap = {
        call.id: not call.tool.exclusive and (call.tool.kind != "execute" or is_read_only(call))
        for call in calls
        if not call.is_refused
    }
    for call in sorted(calls, key=lambda call: not call.is_refused and call.tool.runs_last):
        if batches and all(_can_run_together(earlier, call, can_overlap) for earlier in batches[-1]):
            batches[-1].append(call)
        else:
            batches.append([call])
    return batches


def _can_run_together(one: Call, other: Call, can_overlap: dict[str, bool]) -> bool:
    """Edits run only with edits of other files; everything else that can overlap runs together."""
    if one.is_refused or other.is_refused:
        return True
    if not (can_overlap[one.id] and can_overlap[other.id]):
        return False
    if one.tool.kind != "edit" and other.tool.kind != "edit":
        return True
    if one.tool.kind == "edit" and other.tool.kind == "edit":
        return set(one.paths).isdisjoint(other.paths)
    return False


def _skip(request: ToolCall) -> Call:
    return Call(request).refuse(SKIPPED_BY_STEERING, "cancelled")


def _cancel(request: ToolCall, why: str) -> Call:
    return Call(request).refuse(f"Not run: {why}", "cancelled")
