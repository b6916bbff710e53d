"""Running one hook: a program with the envelope on its standard input, or a callback. It never raises."""

import asyncio
from typing import Any

import msgspec

from odin.core.hook import HookCall
from odin.policy.hook.declared import HookSpec
from odin.policy.hook.envelope import HookSession, build_envelope, build_variables
from odin.policy.hook.outcome import MAX_OUTPUT_BYTES, HookResult, interpret_callback, interpret_program
from odin.policy.process.runner import ProcessRunner


async def run_hook(
    hook: HookSpec, call: HookCall, tool_name: str, session: HookSession, runner: ProcessRunner
) -> HookResult:
    """`named` is the tool as the hook knows it."""
    payload = build_envelope(hook, call, tool_name, session)
    if hook.callback is not None:
        return await _run_callback(hook, call, payload)
    try:
        done = await runner.run_with_input(
            hook.command if isinstance(hook.command, str) else list(hook.command),
            cwd=session.root,
            timeout=hook.timeout,
            stdin=msgspec.json.encode(payload),
            env=build_variables(hook, call, tool_name, session),
            stop_after=MAX_OUTPUT_BYTES,
        )
    except OSError as error:
        return HookResult(outcome="failed", problem=f"it cannot be started: {error.strerror or error}.")
    except (ValueError, TypeError) as error:
        return HookResult(outcome="failed", problem=f"it cannot be told of this: {error}.")
    return interpret_program(hook, call, done)


async def _run_callback(hook: HookSpec, call: HookCall, payload: dict[str, Any]) -> HookResult:
    assert hook.callback is not None
    try:
        async with asyncio.timeout(hook.timeout):
            return interpret_callback(call, await hook.callback.call(payload))
    except TimeoutError:
        return HookResult(outcome="timed_out", problem=f"it did not answer within {hook.timeout:g} s.")
    except Exception as error:  # somebody else's code: whatever it raises is a hook that failed
        return HookResult(outcome="failed", problem=f"{type(error).__name__}: {error}")
