"""Runs the hooks of a session.

A hook program receives a JSON object on standard input, with the fields of Claude Code's hooks and some of Odin's own;
a callback receives the same object. A failing hook is reported, never raised.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from odin.core.call_events import HookRan
from odin.core.event import AnyEvent, Warned
from odin.core.policy import NO_HOOK_EFFECT, RECORDED_POINTS, HookCall, HookEffect, HookPoint, Redact, redact_nothing
from odin.core.profile import ProgramStart
from odin.core.text import to_valid_unicode
from odin.hooks.declaration import MAIN_AGENT, NOTIFICATIONS, HookSpec, is_concerned, list_names, match_hook
from odin.hooks.outcome import MAX_OUTPUT_BYTES, HookResult, interpret_callback, interpret_program, merge_effects
from odin.sandbox.runner import CONFINED_HINT, CapturedOutput, ProcessRunner, SandboxUnavailable

PlanStart = Callable[[HookSpec], Awaitable[ProgramStart]]
"""Returns how a hook is started, just before it is."""


class HookSession(Struct, frozen=True):
    """The session that hooks run for. `transcript` is the path of its log.

    Hook programs belong to the project at `root` and run there. `folders_of` returns the working directory and the
    root of an agent that works elsewhere, such as in a worktree. `bytecode` is where Python hooks of plugins keep
    theirs, because in the plugin it is not pinned. `is_debugging`: runs without effect are recorded, too.
    """

    id: str
    transcript: str
    cwd: str
    root: str
    permission_mode: Callable[[], str]
    model: Callable[[], str]
    folders_of: Callable[[str], tuple[str, str] | None] = lambda agent: None
    bytecode: str = ""
    is_debugging: bool = False

    def get_folders(self, agent: str) -> tuple[str, str]:
        return self.folders_of(agent) or (self.cwd, self.root)


def build_variables(hook: HookSpec, session: HookSession) -> dict[str, str]:
    """Return the environment variables for a hook, whatever it is called for."""
    return {
        "ODIN_HOOK_EVENT": hook.event,
        "ODIN_SESSION_ID": session.id,
        "ODIN_PROJECT_DIR": session.root,
        "CLAUDE_PROJECT_DIR": session.root,
        **(_build_plugin_variables(hook, session) if hook.plugin else {}),
    }


def _build_plugin_variables(hook: HookSpec, session: HookSession) -> dict[str, str]:
    own = {"CLAUDE_PLUGIN_ROOT": hook.plugin, "ODIN_PLUGIN_ROOT": hook.plugin}
    return {**own, "PYTHONPYCACHEPREFIX": session.bytecode} if session.bytecode else own


def _describe_call(hook: HookSpec, call: HookCall, tool_name: str) -> dict[str, Any]:
    if hook.event == "Notification":
        return {"message": call.text or call.reason, "notification_type": NOTIFICATIONS[call.point]}
    describe = _FIELDS.get(call.point)
    return describe(call, tool_name) if describe else {}


_FILE_TOOLS = ("Edit", "Write")
"""Claude Code's names for what changes files."""


def _describe_tool(call: HookCall, tool_name: str) -> dict[str, Any]:
    given = call.args or {}
    # In Claude Code every call that changes a file has its absolute path, and guards compare it.
    if call.paths and (tool_name in _FILE_TOOLS or ("file_path" in given and len(call.paths) == 1)):
        given = {**given, "file_path": call.paths[0]}
    return {
        "tool_name": tool_name or call.tool,
        "odin_tool": call.tool,
        "tool_input": given,
        "tool_use_id": call.call_id,
        "paths": list(call.paths),
    }


def _describe_result(call: HookCall, tool_name: str) -> dict[str, Any]:
    response = {"content": call.output, "is_error": call.is_error}
    error = {"error": call.output} if call.is_error else {}
    return {**_describe_tool(call, tool_name), "tool_response": response, **error}


def _describe_request(call: HookCall, tool_name: str) -> dict[str, Any]:
    return {**_describe_tool(call, tool_name), "message": call.text or call.reason}


def _describe_batch(call: HookCall, tool_name: str) -> dict[str, Any]:
    return {
        "tools": list(call.tools),
        "tool_names": [list_names(tool, claude=True)[0] for tool in call.tools],
        "paths": list(call.paths),
        "changed_files": list(call.changed),
        "is_error": call.is_error,
    }


def _describe_stop(call: HookCall, tool_name: str) -> dict[str, Any]:
    return {"stop_hook_active": call.stop_hook_active, "last_assistant_message": call.text}


_FIELDS: dict[HookPoint, Callable[[HookCall, str], dict[str, Any]]] = {
    "PreToolUse": _describe_tool,
    "PostToolUse": _describe_result,
    "on_before_tool_result_append": _describe_result,
    "on_tool_batch_complete": _describe_batch,
    "PermissionRequest": _describe_request,
    "on_wait_question": lambda call, tool_name: {"message": call.text, "tool_use_id": call.call_id},
    "UserPromptSubmit": lambda call, tool_name: {"prompt": call.text},
    "SessionStart": lambda call, tool_name: {"source": call.reason},
    "SessionEnd": lambda call, tool_name: {"reason": call.reason},
    "PreCompact": lambda call, tool_name: {"trigger": call.reason, "custom_instructions": call.text},
    "PostCompact": lambda call, tool_name: {"trigger": call.reason, "compact_summary": call.text},
    "Stop": _describe_stop,
    "SubagentStop": lambda call, tool_name: {**_describe_stop(call, tool_name), "agent_id": call.agent},
    "on_after_llm_call": lambda call, tool_name: {"text": call.text, "tools": list(call.tools)},
    "on_agent_error": lambda call, tool_name: {"error": call.text, "error_kind": call.reason},
    "on_idle": lambda call, tool_name: {"reason": call.reason, "text": call.text},
}


async def run_hook(
    hook: HookSpec, call: HookCall, tool_name: str, session: HookSession, runner: ProcessRunner, plan_start: PlanStart
) -> HookResult:
    """Run one hook. Never raises; `tool_name` is the tool's name for this hook."""
    payload = {
        "session_id": session.id,
        "transcript_path": session.transcript,
        "cwd": session.get_folders(call.agent)[0],
        "permission_mode": session.permission_mode(),
        "hook_event_name": hook.event,
        "point": f"on_{RECORDED_POINTS[call.point]}",
        "agent": call.agent or MAIN_AGENT,
        "mode": call.mode,
        "model": call.model,
        **_describe_call(hook, call, tool_name),
    }
    if hook.callback is not None:
        return await _run_callback(hook, call, payload)
    variables = {
        "ODIN_HOOK_POINT": f"on_{RECORDED_POINTS[call.point]}",
        "ODIN_TOOL": tool_name or call.tool,
        **build_variables(hook, session),
    }
    done = await _run_program(hook, payload, variables, runner, plan_start)
    return HookResult(outcome="failed", problem=done) if isinstance(done, str) else interpret_program(hook, call, done)


async def _run_program(
    hook: HookSpec, payload: dict[str, Any], variables: dict[str, str], runner: ProcessRunner, plan_start: PlanStart
) -> CapturedOutput | str:
    """Run the program of a hook. Return how it ended, or why it was not started."""
    start = await plan_start(hook)
    try:
        return await runner.run_with_input(
            hook.command if isinstance(hook.command, str) else list(hook.command),
            cwd=start.cwd,
            timeout=hook.timeout,
            stdin=msgspec.json.encode(payload),
            env={**start.env, **hook.environment, **variables},
            stop_after=MAX_OUTPUT_BYTES,
            profile=start.profile,
        )
    except SandboxUnavailable as error:
        return f"it was not started. {error} {CONFINED_HINT}"
    except OSError as error:
        return f"it cannot be started: {error.strerror or error}."
    except (ValueError, TypeError) as error:
        return f"its input cannot be encoded: {error}."


async def _run_callback(hook: HookSpec, call: HookCall, payload: dict[str, Any]) -> HookResult:
    assert hook.callback is not None
    try:
        async with asyncio.timeout(hook.timeout):
            return interpret_callback(hook, call, await hook.callback.call(payload))
    except TimeoutError:
        return HookResult(outcome="timed_out", problem=f"it did not answer within {hook.timeout:g} s.")
    except Exception as error:  # user code may raise anything
        return HookResult(outcome="failed", problem=f"{type(error).__name__}: {error}")


SEQUENTIAL_POINTS = frozenset(("PreToolUse", "PostToolUse", "on_before_tool_result_append", "PermissionRequest"))
"""Points at which hooks run in sequence, because each sees the changes of the one before."""


class SessionHooks:
    """All hooks of one session. `emit` records the outcome of each hook, unless it was silent.

    `find_changed_plugin` names the plugin in this folder if its files have changed since the session started. Then no
    hook of it runs: the model may have written them.
    """

    def __init__(
        self,
        hooks: Sequence[HookSpec],
        session: HookSession,
        runner: ProcessRunner,
        emit: Callable[[AnyEvent, str], object],
        redact: Redact = redact_nothing,
        *,
        plan_start: PlanStart,
        find_changed_plugin: Callable[[str], Sequence[str]] = lambda plugin: (),
    ) -> None:
        self._hooks = tuple(hooks)
        self._plan_start = plan_start
        self._find_changed_plugin = find_changed_plugin
        self._session = session
        self._runner = runner
        self._emit = emit
        self._redact = redact
        self._background: list[tuple[str, asyncio.Task[HookResult]]] = []
        self._points = {point for hook in hooks for point in hook.kind.points}

    def add(self, hook: HookSpec) -> None:
        self._hooks = (*self._hooks, hook)
        self._points.update(hook.kind.points)
        if hook.join == "background":
            self._points.update(("on_before_llm_call", "SessionEnd"))

    def has_hook_for(self, point: HookPoint, tool: str = "") -> bool:
        return point in self._points and (not tool or any(is_concerned(hook, point, tool) for hook in self._hooks))

    async def fire(self, call: HookCall) -> HookEffect:
        call = msgspec.structs.replace(call, model=call.model or self._session.model())
        root = self._session.get_folders(call.agent)[1]
        matching = [(hook, name) for hook in self._hooks if (name := match_hook(hook, call, root)) is not None]
        if call.point == "SessionEnd" and self._background:
            await asyncio.wait([task for _, task in self._background])
        can_add = call.point in ("on_before_llm_call", "SessionEnd")
        ended = [task for agent, task in self._background if can_add and agent == call.agent and task.done()]
        self._background = [item for item in self._background if item[1] not in ended]
        # a project's hook could change what another runs that the user let out of the sandbox
        later = [
            (hook, name)
            for hook, name in matching
            if hook.join == "background" and not hook.project and call.point != "SessionEnd"
        ]
        self._background += [(call.agent, asyncio.create_task(self._run_one(*one, call))) for one in later]
        effect = await self._run_now([one for one in matching if one not in later], call)
        return merge_effects([effect, *(task.result().effect for task in ended)])

    @property
    def has_status_line(self) -> bool:
        return any(hook.event == "StatusLine" for hook in self._hooks)

    async def read_status_line(self, facts: dict[str, Any]) -> str:
        """Return what the strongest program for the status line prints, "" if it fails. `facts` are its input.

        Nothing is recorded: it runs again with every change of the session.
        """
        hook = next(hook for hook in reversed(self._hooks) if hook.event == "StatusLine")
        if hook.plugin and self._find_changed_plugin(hook.plugin):
            return ""
        own = {"session_id": self._session.id, "transcript_path": self._session.transcript, "cwd": self._session.cwd}
        payload = {"hook_event_name": "Status", **own, **facts}
        variables = build_variables(hook, self._session)
        done = await _run_program(hook, payload, variables, self._runner, self._plan_start)
        if isinstance(done, str) or done.timed_out or done.stopped or done.code:
            return ""
        return self._redact(to_valid_unicode(done.data.decode("utf-8", "replace"))).text.strip("\n")

    async def _run_now(self, matching: Sequence[tuple[HookSpec, str]], call: HookCall) -> HookEffect:
        if not matching:
            return NO_HOOK_EFFECT
        if call.point in SEQUENTIAL_POINTS:
            return await self._run_in_sequence(matching, call)
        if any(hook.project for hook, _ in matching):
            results = [await self._run_one(hook, name, call) for hook, name in matching]
        else:
            results = await asyncio.gather(*(self._run_one(hook, name, call) for hook, name in matching))
        return merge_effects([result.effect for result in results])

    async def _run_in_sequence(self, hooks: Sequence[tuple[HookSpec, str]], call: HookCall) -> HookEffect:
        """Run hooks one after the other, up to the first denial."""
        effects: list[HookEffect] = []
        for hook, name in hooks:
            # Claude Code changes one file with a call, so a guard looks at one.
            is_split = name in _FILE_TOOLS and len(call.paths) > 1
            calls = [msgspec.structs.replace(call, paths=(path,)) for path in call.paths] if is_split else [call]
            for one in calls:
                effect = (await self._run_one(hook, name, one)).effect
                effects.append(effect)
                if effect.halt or effect.decision == "deny":
                    return merge_effects(effects)
                call = _apply_changes(call, effect)
        return merge_effects(effects)

    async def _run_one(self, hook: HookSpec, tool_name: str, call: HookCall) -> HookResult:
        if hook.plugin and (changed := self._find_changed_plugin(hook.plugin)):
            why = f"{', '.join(changed)} changed since this session started and is no longer trusted"
            self._emit(Warned(f"The {hook.event} hook {hook.name!r} was not run: {why}."), call.agent)
            return HookResult()
        started = time.monotonic()
        result = await run_hook(hook, call, tool_name, self._session, self._runner, self._plan_start)
        if hook.join == "background":
            texts = HookEffect(context=result.effect.context, notice=result.effect.notice)
            outcome = "context" if texts != NO_HOOK_EFFECT else "silent"
            result = HookResult(texts, result.outcome if result.problem else outcome, result.problem)
        if result.outcome != "silent" or self._session.is_debugging:
            # Redact secrets in the output of a hook: it may repeat parts of a tool result.
            effect = msgspec.structs.replace(
                result.effect,
                message=self._redact(result.effect.message).text,
                context=self._redact(result.effect.context).text,
                notice=self._redact(result.effect.notice).text,
            )
            result = msgspec.structs.replace(result, effect=effect, problem=self._redact(result.problem).text)
            duration = int((time.monotonic() - started) * 1000)
            ran = HookRan(RECORDED_POINTS[call.point], hook.name, result.outcome, result.detail, call.call_id, duration)
            self._emit(ran, call.agent)
        if result.problem:
            self._emit(Warned(f"The {hook.event} hook {hook.name!r} failed: {result.problem}"), call.agent)
        return result


def _apply_changes(call: HookCall, effect: HookEffect) -> HookCall:
    if effect.args is not None:
        call = msgspec.structs.replace(call, args=effect.args)
    if effect.output is not None:
        call = msgspec.structs.replace(call, output=effect.output)
    return call
