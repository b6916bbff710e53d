"""Slash commands of the page: what they say and change, in the name and with the right of the client."""

import asyncio
from pathlib import Path
from typing import Any

from odin.core.op import Answer, Prompt
from odin.core.rights import Right
from odin.testing import ScriptedServer, call, say
from tests.server.served import Served, serve


async def run(served: Served, right: str, session: str, line: str, **more: str) -> tuple[int, dict[str, Any]]:
    got = await served.ask(right, "POST", f"/sessions/{session}/command", {"line": line, **more})
    return got.status_code, got.json()


async def test_commands_answer_change_and_switch(workspace: Path) -> None:
    written = call("Write", {"file_path": str(workspace / "new.txt"), "content": "x\n"}, id="c1")
    with ScriptedServer([written, say("Written.")]) as model:
        async with serve(model, workspace) as served:
            session = await served.open()
            await run(served, "approve", session, "/permissions acceptEdits")
            assert (await served.submit("prompt", session, Prompt("p1", "write it"))).json()["done"]
            await served.wait_until(session)
            assert (workspace / "new.txt").exists()
            status, answer = await run(served, "view", session, "/usage")
            assert status == 200 and "claude" in answer["text"] and answer["session"] == ""
            assert (await run(served, "view", session, "/rules"))[0] == 200
            assert (await run(served, "prompt", session, "/rename Shop"))[0] == 200
            assert (await served.ask("view", "GET", f"/sessions/{session}/snapshot")).json()["title"] == "Shop"
            assert (await run(served, "prompt", session, "/switch mode to plan"))[1]["mode"] == "plan_mode"
            planned = (await run(served, "prompt", session, "/plan the shop"))[1]
            assert (planned["mode"], planned["prompt"]["text"]) == ("plan_mode", "the shop")
            assert "no skill 'hello'" in (await run(served, "prompt", session, "/use hello now"))[1]["error"]
            forked = (await run(served, "prompt", session, "/fork 1"))[1]
            assert (forked["draft"], forked["session"] not in ("", session)) == ("write it", True)
            assert (await run(served, "prompt", session, "/undo"))[0] == 200
            assert not (workspace / "new.txt").exists()
            assert (await run(served, "prompt", session, "/redo"))[0] == 200
            assert (workspace / "new.txt").exists()


async def test_yolo_off_restores_the_mode_before_it_also_for_another_client(workspace: Path) -> None:
    with ScriptedServer([]) as model:
        async with serve(model, workspace) as served:
            session, other = await served.open(), served.store.create_token("other", "approve")
            for right in ("approve", other):
                await run(served, "approve", session, "/permissions acceptEdits")
                for _ in range(2):
                    await run(served, "approve", session, "/yolo on")
                assert (await run(served, right, session, "/yolo"))[1]["text"].startswith("/yolo is on.")
                status, answer = await run(served, right, session, "/yolo off")
                assert (status, answer["text"]) == (200, "Permission prompts are on. Permission mode: acceptEdits\n")
                shot = (await served.ask("view", "GET", f"/sessions/{session}/snapshot")).json()
                assert shot["permission_mode"] == "acceptEdits"


async def test_a_command_needs_the_right_of_what_it_does(workspace: Path) -> None:
    with ScriptedServer([]) as model:
        async with serve(model, workspace) as served:
            session = await served.open()
            other = await served.open()
            refused: tuple[tuple[Right, str], ...] = (
                ("view", "/rename x"), ("view", "/undo"), ("view", "/fork"), ("view", "/new"), ("view", "/compact"),
                ("prompt", "/yolo on"), ("prompt", "/rules add Bash"), ("prompt", "/permissions acceptEdits"),
                ("prompt", "/memory add x"), ("prompt", "/budget 5"), ("prompt", "/role planner"),
                ("prompt", f"/delete {other}"), ("prompt", "/mcp disable x"),
            )  # fmt: skip
            for right, line in refused:
                status, answer = await run(served, right, session, line)
                told = answer.get("error", answer)
                assert status in (400, 403) and (status == 403 or "right to" not in str(told)), (right, line, answer)
            rules = (await served.ask("view", "GET", f"/sessions/{session}/rules")).json()
            shot = (await served.ask("view", "GET", f"/sessions/{session}/snapshot")).json()
            assert (rules, shot["permission_mode"], shot["title"], shot["role"]) == ([], "default", "", "builder")


async def test_commands_that_are_not_for_pages(workspace: Path) -> None:
    with ScriptedServer([]) as model:
        async with serve(model, workspace) as served:
            session = await served.open()
            for line in ("/editor", "/mouse off", "/export /tmp/x.md", "/setup", "/transcript", "/copy"):
                status, answer = await run(served, "approve", session, line)
                assert status == 400 and "does not work here" in answer["error"], line
            status, answer = await run(served, "approve", session, "/usgae")
            assert status == 400 and "/usage" in answer["error"]
            assert (await run(served, "approve", session, " "))[0] == 400
            got = await served.ask("view", "GET", f"/sessions/{session}/complete?line=/mo&column=3")
            assert got.json()["items"][0]["label"] == "/model" and "/mouse" not in got.text


async def test_a_call_is_edited_as_text_and_allowed(workspace: Path) -> None:
    arguments = {"path": "a.txt", "content": "one\u200b\n"}
    with ScriptedServer([call("WriteFile", arguments, id="c1"), say("Written.")]) as model:
        async with serve(model, workspace) as served:
            session = await served.open()
            await served.submit("prompt", session, Prompt("p1", "write it"))
            [asked] = (await served.wait_until(session, idle=False))["interactions"]

            async def edit(right: Right, **texts: str) -> tuple[int, dict[str, Any]]:
                got = await served.ask(right, "POST", f"/sessions/{session}/edit", {"id": asked["id"], "texts": texts})
                return got.status_code, got.json()

            assert (await edit("prompt"))[0] == 403
            status, found = await edit("approve")
            assert (status, found["summary"]) == (200, "")
            # What could hide in the text is JSON.
            assert found["fields"] == [["path", "path", "a.txt"], ["content", "content", '"one\\u200b\\n"']]
            assert (await edit("approve", content="not JSON"))[1]["error"].startswith("Invalid JSON")
            assert (await edit("approve", nothing="x"))[0] == 400
            status, found = await edit("approve", path="b.txt", content='"two"')
            assert (status, found["summary"]) == (200, "changed path, content")
            shown = found["request"]
            assert [one["key"] for one in shown["answers"][:3]] == ["allow_once", "deny", "stop"] and shown[
                "rules"
            ] == []
            assert any(one["kind"] == "diff" and "+two" in one["text"] for one in shown["details"])
            answer = Answer(asked["id"], "allow_once", args=found["args"], summary=found["summary"])
            await served.submit("approve", session, answer)
            await served.wait_until(session)
            assert (workspace / "b.txt").read_text() == "two" and not (workspace / "a.txt").exists()
            assert (await edit("approve"))[0] == 400


async def test_the_memory(workspace: Path, home: Path) -> None:
    with ScriptedServer([]) as model:
        async with serve(model, workspace) as served:
            session = await served.open()
            for line, told, known in (
                ("/memory add --user likes tea", "Later sessions will know it.\n", True),
                ("/memory remove --user likes tea", "Removed from the memory.\n", False),
            ):
                status, answer = await run(served, "approve", session, line)
                assert (status, answer["text"]) == (200, told)
                assert ("likes tea" in (await run(served, "view", session, "/memory"))[1]["text"]) == known


async def test_nothing_goes_on_after_a_command(workspace: Path) -> None:
    command = call("Bash", {"command": "echo here; sleep 60", "run_in_background": True}, id="c1")
    with ScriptedServer([command, say("Started.")]) as model:
        async with serve(model, workspace) as served:
            session = await served.open()
            await run(served, "approve", session, "/permissions bypassPermissions")
            await served.submit("approve", session, Prompt("p1", "start it"))
            await served.wait_until(session)
            before = len(asyncio.all_tasks())
            for _ in range(3):
                status, answer = await run(served, "view", session, "/ps 1 follow")
                assert (status, "spawn-1: running" in answer["text"]) == (200, True)
            assert len(asyncio.all_tasks()) <= before
            assert (await run(served, "prompt", session, "/ps 1 stop"))[0] == 200


async def test_a_long_line_is_not_repeated(workspace: Path) -> None:
    with ScriptedServer([]) as model:
        async with serve(model, workspace) as served:
            status, answer = await run(served, "view", await served.open(), "/" + "a" * 1_000_000)
            assert status == 400 and len(str(answer)) < 300
