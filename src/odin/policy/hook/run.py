"""Running one hook: a program with the envelope on its standard input, or a callback. It never raises."""

import asyncio
from typing import Any

import msgspec

from odin.core.hook import HookCall
from odin.policy.hook.declared import Hook
from odin.policy.hook.envelope import Session, envelope, variables
from odin.policy.hook.outcome import MAX_OUTPUT, Said, answered, heard
from odin.policy.process.runner import ProcessRunner


async def run(hook: Hook, call: HookCall, named: str, session: Session, runner: ProcessRunner) -> Said:
    """`named` is the tool as the hook knows it."""
    told = envelope(hook, call, named, session)
    if hook.callback is not None:
        return await _called(hook, call, told)
    try:
        done = await runner.consult(
            hook.command if isinstance(hook.command, str) else list(hook.command),
            cwd=session.root,
            timeout=hook.timeout,
            stdin=msgspec.json.encode(told),
            env=variables(hook, call, named, session),
            stop_after=MAX_OUTPUT,
        )
    except OSError as error:
        return Said(outcome="failed", problem=f"it cannot be started: {error.strerror or error}.")
    except (ValueError, TypeError) as error:
        return Said(outcome="failed", problem=f"it cannot be told of this: {error}.")
    return heard(hook, call, done)


async def _called(hook: Hook, call: HookCall, told: dict[str, Any]) -> Said:
    assert hook.callback is not None
    try:
        async with asyncio.timeout(hook.timeout):
            return answered(call, await hook.callback.call(told))
    except TimeoutError:
        return Said(outcome="timed_out", problem=f"it did not answer within {hook.timeout:g} s.")
    except Exception as error:  # somebody else's code: whatever it raises is a hook that failed
        return Said(outcome="failed", problem=f"{type(error).__name__}: {error}")
