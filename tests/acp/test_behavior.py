"""`odin acp` besides its capabilities: mistakes, several clients, slow and dead editors."""

import asyncio
import json
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from acp.exceptions import RequestError

from odin.config import Options
from odin.config.paths import locate_socket
from odin.core.event import PromptQueued
from odin.core.op import ChangePrompt, DropPrompt, Interrupt, Op, Prompt
from odin.host.manager import SessionManager
from odin.remote.local import connect_local
from odin.remote.sessions import RemoteSessions
from odin.session.lock import read_start_time
from odin.testing import ScriptedServer, SeenRequest, Turn, call, fault, reply, say
from tests.acp.editor import Editor, Message, open_editor, open_server
from tests.acp.scenarios import EDIT, READ, TEXT, open_session
from tests.conftest import RunHere
from tests.mcp_client.test_http import make_server, serve_app
from tests.waiting import TimeLimit, until, within_limit

NEW = '"method": "session/new", "params"'


MISTAKES: list[tuple[str, int, str]] = [
    ("{", -32700, "not valid JSON"),
    ("[]", -32600, "Send each request in a line of its own."),
    ("7", -32600, "no JSON-RPC message"),
    ('{"id": 7, "method": "initialize"}', -32600, 'needs "jsonrpc"'),
    ('{"jsonrpc": "2.0", "id": 7, "method": "session/mew"}', -32601, "Did you mean session/new?"),
    ('{"jsonrpc": "2.0", "id": 7, "method": "session/set_mode"}', -32601, "session/set_config_option"),
    (f'{{"jsonrpc": "2.0", "id": 7, {NEW}: {{}}}}', -32602, "It needs cwd."),
    (f'{{"jsonrpc": "2.0", "id": 7, {NEW}: {{"cwd": "x"}}}}', -32602, "cwd must be an absolute path."),
    (f'{{"jsonrpc": "2.0", "id": 7, {NEW}: {{"cwd": "/no/such"}}}}', -32602, "There is no folder '/no/such'."),
    (
        f'{{"jsonrpc": "2.0", "id": 7, {NEW}: {{"cwd": "/", "additionalDirectories": ["lib"]}}}}',
        -32602,
        "must be absolute",
    ),
    (
        f'{{"jsonrpc": "2.0", "id": 7, {NEW}: {{"cwd": "/usr", "additionalDirectories": ["/x"]}}}}',
        -32602,
        "not found: /x",
    ),
    ('{"jsonrpc": "2.0", "id": 7, "method": "session/list", "params": {"cursor": "x"}}', -32602, "nextCursor"),
    (
        '{"jsonrpc": "2.0", "id": 7, "method": "session/prompt", "params": {"sessionId": "x", "prompt": []}}',
        *(-32002, "session/load opens it."),
    ),
    (
        '{"jsonrpc": "2.0", "id": 7, "method": "session/load", "params": {"sessionId": "../x", "cwd": "/tmp"}}',
        *(-32602, "is not a session id"),
    ),
    ('{"jsonrpc": "2.0", "id": 7, "method": "authenticate", "params": {"methodId": "x"}}', -32602, "Use setup."),
]


async def test_mistakes_are_answered(workspace: Path) -> None:
    async with open_server(None, cwd=str(workspace)) as (reader, writer):
        first = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": 1}}
        writer.write(json.dumps(first).encode() + b"\n")
        assert "result" in json.loads(await reader.readline())
        for line, code, said in MISTAKES:
            writer.write(f"{line}\n".encode())
            answer = json.loads(await within_limit(reader.readline()))
            assert answer["error"]["code"] == code, line
            assert said in answer["error"]["message"], answer
            assert answer["id"] == (7 if '"id": 7' in line else None)


async def test_initialize_comes_first(workspace: Path) -> None:
    async with open_editor(None, cwd=str(workspace)) as editor:
        with pytest.raises(RequestError, match="Send initialize first"):
            await editor.open(workspace)


async def test_without_a_model_the_editor_is_told_how_to_connect_one(workspace: Path) -> None:
    async with open_editor(None, capabilities={"auth": {"terminal": True}}, cwd=str(workspace)) as editor:
        methods = editor.messages[1][1]["result"]["authMethods"]
        assert [one["id"] for one in methods] == ["terminal", "setup"] and methods[0]["args"] == ["--setup"]
        asked: list[tuple[str, Message]] = [
            ("session/new", {"cwd": str(workspace), "mcpServers": []}),
            ("authenticate", {"methodId": "setup"}),
        ]
        for method, params in asked:
            with pytest.raises(RequestError, match="odin auth add PROVIDER") as raised:
                await editor.ask(method, **params)
            assert raised.value.code == -32000
    with ScriptedServer([]) as model:
        async with open_editor(model, capabilities={}, cwd=str(workspace)) as editor:
            assert [one["id"] for one in editor.messages[1][1]["result"]["authMethods"]] == ["setup"]
            assert await editor.ask("authenticate", methodId="setup") == {}


async def test_a_failed_turn_is_an_error_with_its_reason(workspace: Path) -> None:
    with ScriptedServer([fault(401), fault(400), say("Fine.")]) as model:
        async with open_editor(model, capabilities={}) as editor:
            session = await open_session(editor, workspace)
            for code in (-32000, -32603):
                with pytest.raises(RequestError) as raised:
                    await editor.prompt(session, "Go.")
                assert raised.value.code == code
            assert editor.text() == ""
            assert await editor.prompt(session, "Go.") == "end_turn"


async def test_what_is_left_out_of_an_untrusted_folder_is_told(workspace: Path) -> None:
    (workspace / "odinconfig.json").write_text('{"hooks": {"PreToolUse": [{"command": "true"}]}}')
    with ScriptedServer([]) as model:
        for notices in (False, True):
            capabilities: Message = {"session": {"notices": {}}} if notices else {}
            async with open_editor(model, capabilities=capabilities) as editor:
                await editor.open(workspace)
                kind = "notice" if notices else "agent_message_chunk"
                found = await editor.wait_until(lambda kind=kind, editor=editor: editor.all(kind))
                assert "odin trust" in str(found)


async def test_prompts_are_queued_and_cancelled_together(workspace: Path) -> None:
    with ScriptedServer([call("ExecuteCommand", {"command": "sleep 600"}, id="x1"), say("Third.")]) as model:
        async with open_editor(model, capabilities={}) as editor:
            session = await open_session(editor, workspace)
            first = asyncio.create_task(editor.prompt(session, "First."))
            await editor.wait_until(lambda: editor.all("tool_call"))
            second = asyncio.create_task(editor.prompt(session, "Second."))
            await asyncio.sleep(0)
            await editor.notify("session/cancel", sessionId=session)
            assert await asyncio.gather(first, second) == ["cancelled", "cancelled"]
            assert await editor.prompt(session, "Third.") == "end_turn"
            assert "Second." not in model.requests[-1].body.decode()


async def test_a_request_can_be_cancelled_by_its_id(workspace: Path) -> None:
    with ScriptedServer([call("ExecuteCommand", {"command": "sleep 600"}, id="x1")]) as model:
        async with open_editor(model, capabilities={}) as editor:
            session = await open_session(editor, workspace)
            running = asyncio.create_task(editor.prompt(session, "Go."))
            await editor.wait_until(lambda: editor.all("tool_call"))
            request = next(one["id"] for _, one in editor.messages if one.get("method") == "session/prompt")
            await editor.notify("$/cancel_request", requestId=request)
            assert await running == "cancelled"


async def test_cancelling_while_a_permission_is_asked(workspace: Path) -> None:
    (workspace / "a.txt").write_text(TEXT)
    with ScriptedServer([READ, EDIT, say("Done.")]) as model:
        async with open_editor(model, capabilities={}) as editor:
            session = await open_session(editor, workspace)
            running = asyncio.create_task(editor.prompt(session, "Write."))
            await within_limit(editor.answering.wait())
            await editor.notify("session/cancel", sessionId=session)
            assert await running == "cancelled"
            await editor.wait_until(lambda: any(one.get("method") == "$/cancel_request" for _, one in editor.messages))
    assert (workspace / "a.txt").read_text() == TEXT


async def test_closing_a_session_answers_its_prompt(workspace: Path) -> None:
    with ScriptedServer([call("ExecuteCommand", {"command": "sleep 600"}, id="x1")]) as model:
        async with open_editor(model, capabilities={}) as editor:
            session = await open_session(editor, workspace)
            running = asyncio.create_task(editor.prompt(session, "Go."))
            await editor.wait_until(lambda: editor.all("tool_call"))
            assert await editor.ask("session/close", sessionId=session) == {}
            assert await running == "cancelled"


async def test_background_work_reports_while_nothing_is_asked(workspace: Path) -> None:
    spawn = call("Spawn", {"command": "until [ -e go ]; do sleep 0.02; done; echo ready"}, id="s1")
    with ScriptedServer([spawn, say("Started."), say("It is over.")]) as model:
        async with open_editor(model, capabilities={}, yes=True) as editor:
            session = await open_session(editor, workspace)
            assert await editor.prompt(session, "Start it.") == "end_turn"
            (workspace / "go").touch()
            process = await editor.wait_until(
                lambda: next((one for one in editor.all("tool_call_update") if "ready" in str(one)), None)
            )
            assert process["status"] == "completed"


async def test_following_a_process_ends_with_its_command(workspace: Path) -> None:
    spawn = call("Spawn", {"command": "echo here; sleep 60"}, id="s1")
    with ScriptedServer([spawn, say("Started.")]) as model:
        async with open_editor(model, capabilities={}, yes=True) as editor:
            session = await open_session(editor, workspace)
            assert await editor.prompt(session, "Start it.") == "end_turn"
            before = len(asyncio.all_tasks())
            assert await editor.prompt(session, "/ps 1 follow") == "end_turn"
            assert "Nothing can be followed here; this is the output so far." in editor.text()
            assert "spawn-1: running since" in editor.text()
            assert len(asyncio.all_tasks()) <= before


FATES: dict[str, tuple[Callable[[str], Op], str]] = {
    "dropped": (lambda name: DropPrompt(name), "cancelled"),
    "paused": (lambda name: Interrupt("pause"), "cancelled"),
    "unanswered": (lambda name: Interrupt("inject"), "cancelled"),
    "joined": (lambda name: ChangePrompt(name, delivery="merge"), "end_turn"),
}


@pytest.mark.parametrize(("op", "reason"), FATES.values(), ids=FATES)
async def test_a_prompt_is_answered_whatever_another_client_does_with_it(
    workspace: Path, op: Callable[[str], Op], reason: str
) -> None:
    gate = threading.Event()
    with ScriptedServer([call("LS", {"path": str(workspace)}).hold(gate), say("Both.")]) as model:
        async with open_editor(model, capabilities={}, cwd=str(workspace)) as editor:
            session = await open_session(editor, workspace)
            socket = locate_socket(
                Path(os.environ["HOME"], ".local/state/odin"), os.getpid(), read_start_time(os.getpid())
            )
            connection = connect_local(socket, "the editor")
            assert connection is not None
            other = RemoteSessions(connection, session)
            events = other.client.stream_events()
            await other.client.submit(Prompt("first", "Look.", "edit_mode"))
            await asyncio.to_thread(model.wait_for, 1)
            answer = asyncio.create_task(editor.prompt(session, "And this."))
            async with TimeLimit("the prompt to be queued"):
                async for envelope in events:
                    if isinstance(envelope.event, PromptQueued):
                        await other.client.submit(op(envelope.event.id))
                        break
            gate.set()
            async with TimeLimit("the answer of the prompt"):
                assert await answer == reason
            await other.close()


async def test_sessions_are_listed_in_pages(workspace: Path) -> None:
    manager = SessionManager()
    with ScriptedServer(lambda seen: say("Yes.")) as model:
        options = Options(cwd=str(workspace), env={**os.environ, **model.env("anthropic")})
        for number in range(53):
            client = await manager.create(options, f"Session {number}")
            await client.close()
        async with open_editor(model, capabilities={}) as editor:
            pages: list[Sequence[Any]] = []
            answer: dict[str, Any] = {"nextCursor": None}
            while "nextCursor" in answer:
                answer = await editor.ask("session/list", cursor=answer["nextCursor"])
                pages.append(answer["sessions"])
    assert [len(page) for page in pages] == [50, 3]
    assert len({one["sessionId"] for page in pages for one in page}) == 53


async def test_a_slow_editor_holds_nothing_up_and_gets_all(workspace: Path) -> None:
    """While nobody reads, the pipe fills up and Odin waits; then come the whole text and the answer."""
    text = "word " * 40_000
    with ScriptedServer([say(text)]) as model:
        async with open_server(model, cwd=str(workspace)) as (reader, writer):

            def send(number: int, method: str, **params: Any) -> None:
                line = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
                writer.write(json.dumps(line).encode() + b"\n")

            send(1, "initialize", protocolVersion=1)
            await reader.readline()
            send(2, "session/new", cwd=str(workspace), mcpServers=[])
            while "result" not in (line := json.loads(await reader.readline())):
                pass
            session = line["result"]["sessionId"]
            reader._transport.pause_reading()  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue]
            send(3, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "Go."}])
            await until(lambda: model.requests)
            reader._transport.resume_reading()  # pyright: ignore[reportUnknownMemberType, reportAttributeAccessIssue]
            heard = ""
            async with TimeLimit():
                while (line := json.loads(await reader.readline())).get("id") != 3:
                    update = line["params"]["update"]
                    heard += update["content"]["text"] if update["sessionUpdate"] == "agent_message_chunk" else ""
    assert heard == text and line["result"] == {"stopReason": "end_turn"}


async def test_commands_that_need_a_screen_are_refused(workspace: Path) -> None:
    with ScriptedServer([]) as model:
        async with open_editor(model, capabilities={}) as editor:
            session = await open_session(editor, workspace)
            for text, said in (("/vim", "in a terminal"), ("/renam x", "/rename"), ("", "Write what you want done")):
                with pytest.raises(RequestError, match=said):
                    await editor.prompt(session, text)
            offered = {one["name"] for one in editor.all("available_commands_update")[-1]["availableCommands"]}
            assert {"status", "undo", "review"} <= offered and not offered & {"vim", "new", "exit"}
            assert await editor.prompt(session, "/status") == "end_turn"
            assert "anthropic" in editor.text()


async def test_yolo_off_restores_the_mode_before_it(workspace: Path) -> None:
    with ScriptedServer([]) as model:
        async with open_editor(model, capabilities={}) as editor:
            session = await open_session(editor, workspace)
            mode = {"sessionId": session, "configId": "permission_mode"}
            await editor.ask("session/set_config_option", **mode, value="acceptEdits")
            await editor.prompt(session, "/yolo on")
            await editor.prompt(session, "/yolo off")
            assert "Permission prompts are on. Permission mode: acceptEdits" in editor.text()
            await editor.ask("session/set_config_option", **mode, value="bypassPermissions")
            await editor.prompt(session, "/yolo off")
            assert editor.text().count("Permission prompts are on. Permission mode: acceptEdits") == 2


@pytest.mark.parametrize("kind", ["http", "sse"])
async def test_mcp_servers_of_the_editor_are_reached_by_their_address(workspace: Path, kind: str) -> None:
    app = make_server().streamable_http_app() if kind == "http" else make_server().sse_app()
    script = [say("Ready."), call("mcp__The_web__header", {"name": "x-token"}, id="m1"), say("Done.")]
    with serve_app(app) as url, ScriptedServer(script) as model:
        place = f"{url}/mcp" if kind == "http" else f"{url}/sse"
        server = {"type": kind, "name": "The web", "url": place, "headers": [{"name": "x-token", "value": "from-zed"}]}
        async with open_editor(model, capabilities={}, answers=["allow_once"]) as editor:
            session = (await editor.ask("session/new", cwd=str(workspace), mcpServers=[server]))["sessionId"]
            await editor.prompt(session, "Start.")
            await editor.prompt(session, "Call it.")
            assert "from-zed" in str(editor.call("m1")["content"]), editor.call("m1")


async def test_what_a_question_needs_a_form_for_is_told(workspace: Path) -> None:
    asking = call("Question", {"questions": [{"header": "Name", "question": "Which name?", "options": []}]}, id="q1")
    with ScriptedServer([asking, say("I wait.")]) as model:
        async with open_editor(model, capabilities={}) as editor:
            session = await open_session(editor, workspace)
            await editor.prompt(session, "Ask me.")
            assert "Write the answer as your next message" in editor.text() and "Which name?" in editor.text()


async def test_a_reply_that_starts_again_ends_its_calls(workspace: Path) -> None:
    """An editor never shows a call as pending for ever."""
    script = [reply("Look.", [call("LS", {"path": "."}, id="l1")]), say("Done.")]
    with ScriptedServer(script) as model:
        async with open_editor(model, capabilities={}) as editor:
            session = await open_session(editor, workspace)
            await editor.prompt(session, "Go.")
            _assert_all_over(editor)


async def test_a_sub_agent_asks_under_its_name(workspace: Path) -> None:
    """The request names the call as it is shown, and the agent that asks."""

    def answer(seen: SeenRequest) -> Turn:
        if "AgentTool" in seen.tool_names:
            task = {"description": "Write", "prompt": "Write it."}
            return say("Over.") if seen.results else call("AgentTool", task, id="t1")
        args = {"file_path": "b.txt", "content": "new\n"}
        return say("Written.") if seen.results else call("WriteFile", args, id="w1")

    with ScriptedServer(answer) as model:
        async with open_editor(model, capabilities={}, answers=["allow_once"]) as editor:
            session = await open_session(editor, workspace)
            await editor.prompt(session, "Let an agent write.")
            asked = editor.asked[0]["params"]["toolCall"]
            assert asked["toolCallId"] in {one["toolCallId"] for one in editor.all("tool_call")}
            assert asked["toolCallId"] == "w1" and asked["title"].startswith("agent-1: ")
            assert (workspace / "b.txt").read_text() == "new\n"


def test_the_command_line(run_here: RunHere) -> None:
    for args, said in (
        (("--setup",), "--setup needs a terminal."),
        (("--permission-mode", "x"), "'x'"),
        (("extra",), "extra"),
    ):
        code, out, err = run_here("acp", *args)
        assert (code, out) == (2, "") and said in err, err


def _assert_all_over(editor: Editor) -> None:
    ids = {one["toolCallId"] for one in editor.all("tool_call")}
    assert {editor.call(name)["status"] for name in ids} <= {"completed", "failed"}
