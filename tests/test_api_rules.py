"""Permission rules, remembered answers and hooks of the Python API."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import odin
from odin.core.call_events import PermissionAsked
from odin.core.errors import UsageError
from odin.testing import ScriptedServer, call, say
from tests.test_api import Configure, configure, get_result

__all__ = ["configure"]


def touch(name: str, id: str = "c1") -> Any:
    return call("ExecuteCommand", {"command": f"touch {name}"}, id=id)


async def test_call_allowed_for_the_session_is_not_asked_again(configure: Configure, workspace: Path) -> None:
    asked: list[PermissionAsked] = []

    def checker(name: str, args: dict[str, Any], ask: PermissionAsked) -> odin.Allow:
        asked.append(ask)
        return odin.Allow(remember="session")

    script = [touch("one"), touch("one", "c2"), touch("two", "c3"), say("Done.")]
    with ScriptedServer(script) as server:
        async with odin.new(None, configure(server), can_use_tool=checker) as session:
            await get_result(session.query("Go."))
            rules = [(line.layer, line.action, line.text) for line in await session.rules()]
    assert [ask.subject for ask in asked] == ["touch one", "touch two"]
    assert [rule for rule in rules if rule[0] == "session"] == [("session", "allow", ask.rules[0]) for ask in asked]


@pytest.mark.parametrize("verdict", [odin.Allow(rule="Bash(touch:*)", remember="session")])
async def test_checker_can_remember_its_own_rule(configure: Configure, workspace: Path, verdict: odin.Allow) -> None:
    asked: list[str] = []

    async def checker(name: str, args: dict[str, Any]) -> odin.Allow:
        asked.append(args["command"])
        return verdict

    with ScriptedServer([touch("one"), touch("two", "c2"), say("Done.")]) as server:
        await get_result(odin.query("Go.", configure(server), can_use_tool=checker))
    assert asked == ["touch one"]
    assert (workspace / "two").exists()


async def test_call_denied_for_the_session_is_not_asked_again(configure: Configure, workspace: Path) -> None:
    asked: list[str] = []

    def checker(name: str, args: dict[str, Any]) -> odin.Deny:
        asked.append(args["command"])
        return odin.Deny("never", remember="session")

    with ScriptedServer([touch("one"), touch("one", "c2"), say("Done.")]) as server:
        await get_result(odin.query("Go.", configure(server), can_use_tool=checker))
        assert "never" in server.requests[1].results["c1"]
        assert "enied" in server.requests[2].results["c2"]
    assert asked == ["touch one"]


async def test_rules_are_listed_added_and_removed(configure: Configure, workspace: Path) -> None:
    with ScriptedServer([touch("one"), say("Made."), touch("two", "c2"), say("Not made.")]) as server:
        async with odin.new(None, configure(server, permission_mode="default")) as session:
            await session.add_rule("Bash(touch one)")
            await session.add_rule("Bash(touch two)", "deny")
            query = session.query("Go.")
            await get_result(query)
            (allowed, denied) = [line for line in await query.rules() if line.layer == "session"]
            assert {(line.action, line.text) for line in (allowed, denied)} == {
                ("allow", "Bash(touch one)"),
                ("deny", "Bash(touch two)"),
            }
            await session.remove_rule(next(line.number for line in (allowed, denied) if line.action == "deny"))
            assert [line.text for line in await session.rules() if line.layer == "session"] == ["Bash(touch one)"]
            await get_result(session.query("Again."))
            assert "requires confirmation" in server.requests[3].results["c2"]
            with pytest.raises(UsageError):
                await session.add_rule("(((")
            with pytest.raises(UsageError):
                await session.remove_rule(99)
    assert (workspace / "one").exists()


async def test_hooks_are_plain_or_async_functions(configure: Configure, workspace: Path) -> None:
    hook_inputs: list[dict[str, Any]] = []

    def before(given: dict[str, Any]) -> dict[str, Any] | None:
        hook_inputs.append(given)
        if given["tool_input"].get("command") == "touch one":
            return {"decision": "block", "reason": "not one"}
        return None

    async def after(given: dict[str, Any]) -> dict[str, Any]:
        hook_inputs.append(given)
        return {"hookSpecificOutput": {"hookEventName": "PostToolUse", "additionalContext": "It went well."}}

    hooks = {"PreToolUse": [odin.Hook(before, matcher="Bash")], "PostToolUse": [after]}
    with ScriptedServer([touch("one"), touch("two", "c2"), say("Done.")]) as server:
        await get_result(odin.query("Go.", configure(server), hooks=hooks))
        assert "not one" in server.requests[1].results["c1"]
        assert "It went well." in server.requests[2].body.decode()
    assert [item["hook_event_name"] for item in hook_inputs] == ["PreToolUse", "PreToolUse", "PostToolUse"]
    assert not (workspace / "one").exists()
    assert (workspace / "two").exists()


async def test_failing_or_hanging_hook_does_not_stop_the_run(configure: Configure, workspace: Path) -> None:
    def broken(given: dict[str, Any]) -> None:
        raise RuntimeError("broken")

    async def hangs(given: dict[str, Any]) -> None:
        await asyncio.sleep(600)

    hooks = {"PreToolUse": [broken, odin.Hook(hangs, timeout=0.1)]}
    with ScriptedServer([touch("one"), say("Done.")]) as server:
        assert (await get_result(odin.query("Go.", configure(server), hooks=hooks))).result == "Done."
    assert (workspace / "one").exists()


async def test_unknown_hook_event_is_refused(configure: Configure) -> None:
    with ScriptedServer([]) as server, pytest.raises(UsageError, match="BeforeLunch"):
        await get_result(odin.query("Go.", configure(server), hooks={"BeforeLunch": [lambda given: None]}))


async def test_checker_that_never_answers_times_out(configure: Configure, workspace: Path) -> None:
    ended: list[str] = []

    async def checker(name: str, args: dict[str, Any]) -> bool:
        try:
            await asyncio.sleep(600)
        finally:
            ended.append(name)
        return True

    (workspace / "odinconfig.json").write_text('{"confirm_timeout_s": 1}')
    with ScriptedServer([touch("one"), say("Nobody there.")]) as server:
        result = await get_result(odin.query("Go.", configure(server), can_use_tool=checker))
        assert "timed out" in server.requests[1].results["c1"]
    assert result.result == "Nobody there."
    assert ended == ["ExecuteCommand"]
    assert not (workspace / "one").exists()
