"""Sandboxed commands: the messages to the model and the user, and the unsandboxed retry."""

import re
from pathlib import Path

import pytest

from odin.core.call_events import PermissionAsked, ToolEnded
from odin.core.event import Warned
from odin.core.op import AnswerPermission
from odin.testing import call, say
from tests.sandbox.sandboxes import skip_without_sandbox

from .conftest import Start, Talk

YES, NO = AnswerPermission("", True), AnswerPermission("", False, "stay inside")


@pytest.fixture(autouse=True)
def require_bubblewrap() -> None:
    skip_without_sandbox("bubblewrap")


def run(command: str) -> object:
    return call("ExecuteCommand", {"command": command})


def get_last_result(talk: Talk) -> ToolEnded:
    return talk.all(ToolEnded)[-1]


async def test_sandbox_blocks_a_write_outside_and_tells_the_model(start: Start, workspace: Path) -> None:
    canary = workspace.parent / "canary"
    talk = await start([run(f"touch {canary}"), say("ok")])
    await talk.say("go")
    assert not canary.exists()
    assert get_last_result(talk).status == "error"
    assert f"(the sandbox kept it from writing {canary})" in get_last_result(talk).text
    assert f"kept it from writing {canary}" in str(talk.server.requests[-1])


async def test_user_can_approve_an_unsandboxed_retry(start: Start, workspace: Path) -> None:
    canary = workspace.parent / "canary"
    talk = await start([run(f"touch {canary}"), say("ok")], yes=True, can_ask=True)
    talk.answers = [YES]
    await talk.say("go")
    assert canary.exists()
    (asked,) = talk.all(PermissionAsked)
    assert asked.unsandboxed
    assert str(canary) in asked.reason
    assert asked.sandbox == "bubblewrap, network off"


async def test_user_can_deny_an_unsandboxed_retry(start: Start, workspace: Path) -> None:
    canary = workspace.parent / "canary"
    talk = await start([run(f"touch {canary}"), say("ok")], yes=True, can_ask=True)
    talk.answers = [NO]
    await talk.say("go")
    assert not canary.exists()
    assert "stay inside" in get_last_result(talk).text


async def test_one_answer_grants_the_paths_named_in_the_request(start: Start, workspace: Path) -> None:
    beside = workspace.parent / "beside"
    beside.mkdir()
    (beside / "kept").write_text("alive")
    command = f"echo new >{beside}/made && echo dead >{beside}/kept"
    talk = await start([run(f"echo new >{beside}/made"), run(command), say("ok")], yes=False, can_ask=True)
    talk.answers = [YES, YES]
    await talk.say("go")
    assert (beside / "made").read_text() == "new\n"
    first, second = talk.all(PermissionAsked)
    assert first.granted_paths == (f"{beside}/made",)
    assert set(second.granted_paths) == {f"{beside}/made", f"{beside}/kept"}
    assert not second.granted_network
    assert [ended.status for ended in talk.all(ToolEnded)] == ["success", "success"]


async def test_paths_not_named_in_the_request_stay_blocked(start: Start, workspace: Path) -> None:
    beside = workspace.parent / "beside"
    beside.mkdir()
    (workspace / "script.py").write_text(f"import sys\nopen(sys.argv[1], 'w')\nopen('{beside}/other', 'w')\n")
    (beside / "other").write_text("alive")
    talk = await start([run(f"python3 script.py {beside}/made"), say("ok")], yes=False, can_ask=True)
    talk.answers = [YES, NO]
    await talk.say("go")
    assert (beside / "made").exists()
    assert (beside / "other").read_text() == "alive"
    assert talk.all(PermissionAsked)[1].reason == f"The sandbox kept it from writing {beside}/other."


@pytest.mark.parametrize("by", ["hook", "rule"])
async def test_only_an_answer_of_the_user_grants_paths(start: Start, workspace: Path, by: str) -> None:
    canary = workspace.parent / "canary"
    rules = (f"Bash(touch {canary})",) if by == "rule" else ()
    talk = await start([run(f"touch {canary}"), say("ok")], yes=False, can_ask=True, allowed_tools=rules)
    talk.answers = [*([AnswerPermission("", True, by="hook")] if by == "hook" else []), NO]
    await talk.say("go")
    assert not canary.exists()
    assert talk.all(PermissionAsked)[-1].unsandboxed


async def test_edited_arguments_grant_no_paths(start: Start, workspace: Path) -> None:
    canary = workspace.parent / "canary"
    talk = await start([run("touch made"), say("ok")], yes=False, can_ask=True)
    talk.answers = [AnswerPermission("", True, args={"command": f"touch {canary}"}), NO]
    await talk.say("go")
    assert not canary.exists()


@pytest.mark.parametrize("mode", ["ask_mode", "plan_mode"])
async def test_ask_and_plan_mode_offer_no_unsandboxed_retry(start: Start, workspace: Path, mode: str) -> None:
    (workspace / "file").write_text("alive")
    talk = await start([run('cat file && python3 -c \'open("made", "w")\''), say("ok")], yes=True, can_ask=True)
    talk.answers = [YES, YES]
    await talk.say("go", mode)  # pyright: ignore[reportArgumentType]
    assert not (workspace / "made").exists()
    assert not any(asked.unsandboxed for asked in talk.all(PermissionAsked))


async def test_spawned_server_is_reachable_by_the_next_command(start: Start, workspace: Path) -> None:
    (workspace / "served").write_text("hello from inside")
    serve = "exec python3 -u -m http.server 0 --bind 127.0.0.1 >port 2>&1"
    fetch = (
        "until grep -q 'port [0-9]' port; do sleep 0.05; done; port=$(grep -o 'port [0-9]*' port | head -1);"
        " exec 3<>/dev/tcp/127.0.0.1/${port#port }; printf 'GET /served HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3"
    )
    talk = await start([call("Spawn", {"command": serve}), run(fetch), say("ok")])
    await talk.say("go")
    assert "hello from inside" in get_last_result(talk).text


async def test_session_info_names_the_sandbox(start: Start) -> None:
    talk = await start([run("true"), say("ok")])
    await talk.say("go")
    assert (await talk.client.get_info()).sandbox == "bubblewrap, network off"
    again = await start([say("ok")])
    assert (await again.client.get_info()).sandbox == "bubblewrap, network off", "the result of the probe is remembered"
    without = await start([say("ok")], config={"sandbox": {"backend": "off"}})
    assert (await without.client.get_info()).sandbox == "no sandbox, as configured"


async def test_command_does_not_run_if_the_configured_sandbox_is_missing(start: Start, workspace: Path) -> None:
    talk = await start(
        [run("touch made"), say("ok")],
        config={"sandbox": {"backend": "bubblewrap"}},
        env={"PATH": "/nowhere"},
    )
    await talk.say("go")
    assert not (workspace / "made").exists()
    assert "bwrap is not installed" in get_last_result(talk).text
    assert any("sandbox bubblewrap" in text for text in (await talk.client.get_info()).warnings)


LANDLOCK = {"sandbox": {"backend": "landlock"}}


async def test_changed_files_that_other_programs_execute_are_reported(start: Start, workspace: Path) -> None:
    """Without a view; in one, such files are kept only if the user says so."""
    talk = await start([run("echo 'echo hi' >.envrc"), say("ok")], config=LANDLOCK)
    await talk.say("go")
    assert (workspace / ".envrc").exists()
    assert re.search(r"created or changed \.envrc, which other programs execute or obey", get_last_result(talk).text)
    assert get_last_result(talk).for_user.startswith("The command created or changed .envrc. Other programs")


@pytest.mark.parametrize("how", ["&", "setsid", "Spawn"])
async def test_executable_files_changed_by_a_background_process_are_reported(
    start: Start, workspace: Path, how: str
) -> None:
    plant = "until [ -e go ]; do sleep 0.01; done; echo x >.envrc; touch planted; sleep 100"
    tool = "Spawn" if how == "Spawn" else "ExecuteCommand"
    commands = {"&": f"({plant}) >/dev/null 2>&1 &", "setsid": f"setsid -f sh -c '{plant}' >/dev/null 2>&1"}
    wait = "touch go; until [ -e planted ]; do sleep 0.01; done"
    talk = await start(
        [call(tool, {"command": commands.get(how, plant)}), run(wait), say("ok"), say("ok")],
        config=LANDLOCK,
    )
    await talk.say("go")
    assert ".envrc" in get_last_result(talk).for_user, "it happened while the second command ran"
    (workspace / "sub").mkdir()
    (workspace / "sub/.envrc").write_text("x")
    await talk.say("again")
    (warned,) = talk.all(Warned)
    assert warned.text.startswith("While a process ran in the background, sub/.envrc was created or changed.")


async def test_keys_and_odins_own_folders_are_hidden_from_commands(start: Start, home: Path) -> None:
    talk = await start(
        [run(f"cat {home}/.config/odin/odinconfig.json; env"), say("ok")], env={"MY_API_KEY": "hush-hush"}
    )
    await talk.say("go")
    assert "base_s" not in get_last_result(talk).text
    assert "hush-hush" not in get_last_result(talk).text


async def test_interactive_command_is_refused_without_asking(start: Start) -> None:
    talk = await start([run("git commit"), run("vim file"), say("ok")], yes=False, can_ask=True)
    await talk.say("go")
    assert talk.all(PermissionAsked) == []
    assert [ended.status for ended in talk.all(ToolEnded)] == ["error", "error"]
    assert "git commit -m MESSAGE" in talk.all(ToolEnded)[0].text
