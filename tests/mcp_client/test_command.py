"""`odin mcp`: servers in the settings, and Odin as a server, driven by the official client."""

import asyncio
import json
import os
import re
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp_types import ElicitResult, ErrorData, InputRequiredResult

from odin.commands.mcp_serve import ANSWER_S, MAX_OPEN_SESSIONS, ServedSessions, make_server
from odin.config import Options
from odin.testing import ScriptedServer, SeenRequest, Turn, call, fault, say
from tests.mcp_client.test_session import PROGRAM, configure, make_server_settings
from tests.waiting import TimeLimit


def test_a_server_is_added_listed_shown_and_removed(run_odin: Any, home: Path):
    added = run_odin("mcp", "add", "-e", "GREETING=hello", "tiny", sys.executable, "-I", "-S", PROGRAM)
    assert (added.returncode, added.stderr) == (0, "")
    config = home / ".config" / "odin" / "odinconfig.json"
    assert json.loads(config.read_text())["mcp"]["tiny"]["env"] == {"GREETING": "hello"}
    listed = run_odin("mcp", "list")
    assert listed.stdout.startswith("✓ tiny  stdio  auto    ok, 12 tools, 1 prompt, 1 resource")
    shown = json.loads(run_odin("mcp", "get", "--no-connect", "--json", "tiny").stdout)
    assert (shown["state"], shown["settings"]["env"]) == ("pending", {"GREETING": "…"})
    assert "  tools: echo, write, fail, " in run_odin("mcp", "get", "tiny").stdout
    assert run_odin("mcp", "remove", "tiny").returncode == 0
    assert run_odin("mcp").stdout.startswith("No MCP servers.")


def test_options_may_follow_the_name_as_in_claude_code(run_odin: Any, workspace: Path):
    options = ("--env", "K=V", "-s", "project")
    for args in (
        ("one", *options, "--", "sh", "-c", "true"),
        ("two", *options, "sh", "-c", "true"),
        ("three", "--", "sh", "--env", "K=V"),
        ("five", *options, "sh", "--", "x"),
        ("four", "-H", "A: b", "-s", "project", "https://example.org/mcp", "-H", "C: d"),
    ):
        assert run_odin("mcp", "add", *(("-s", "project") if args[0] == "three" else ()), *args).returncode == 0, args
    assert json.loads((workspace / ".mcp.json").read_text())["mcpServers"] == {
        "one": {"command": "sh", "args": ["-c", "true"], "env": {"K": "V"}},
        "two": {"command": "sh", "args": ["-c", "true"], "env": {"K": "V"}},
        "three": {"command": "sh", "args": ["--env", "K=V"]},
        "five": {"command": "sh", "args": ["--", "x"], "env": {"K": "V"}},
        "four": {"url": "https://example.org/mcp", "type": "http", "headers": {"A": "b", "C": "d"}},
    }


def test_adding_a_server_says_what_happened_to_it(run_odin: Any, home: Path):
    said = [run_odin("mcp", "add", "one", "no-such-program", word) for word in ("$1", "x$")]
    assert [done.stdout.split(" ")[:2] for done in said] == [["Added", "one"], ["Replaced", "one"]]
    assert "There is no program no-such-program on your PATH" in said[0].stderr
    shown = run_odin("mcp", "get", "--json", "one")
    assert (shown.returncode, json.loads(shown.stdout)["settings"]["args"]) == (1, ["x$"])
    listed = run_odin("mcp")
    assert (listed.returncode, "no-such-program was not found" in listed.stdout) == (1, True)
    said = [run_odin("mcp", "add", "-s", "project", "two", "sh").stdout.split(" ")[0] for _ in range(2)]
    assert said == ["Added", "Replaced"]


def test_a_project_file_has_the_variables_of_the_shared_format(run_odin: Any, workspace: Path):
    args = ["--root", "${UNSET}", "$HOME", "pa$$word", "${HOME:-x}", "${UNSET:-y}"]
    server = {"command": "sh", "args": args, "env": {"A": "${UNSET}"}, "disabled": True}
    (workspace / ".mcp.json").write_text(json.dumps({"mcpServers": {"ours": server}}))
    assert run_odin("trust", "add", "--yes").returncode == 0
    done = run_odin("mcp", "get", "--no-connect", "--json", "ours")
    shown = json.loads(done.stdout)["settings"]
    assert shown["args"] == ["--root", "${UNSET}", "$HOME", "pa$$word", os.environ["HOME"], "y"]
    assert (shown.get("env"), shown["manual"]) == (None, True)
    said = run_odin("mcp", "--no-connect").stderr
    assert "mcp.ours.args[1] stays ${UNSET}: the environment variable UNSET is not set." in said
    assert "mcp.ours.env.A is dropped: the environment variable UNSET is not set." in said


def test_secrets_of_servers_are_not_shown(run_odin: Any, home: Path):
    oauth = {"client_id": "odin", "client_secret": "hush"}
    run_odin("mcp", "add-json", "web", json.dumps({"url": "https://example.org/mcp", "oauth": oauth}))
    for args in ((), ("--json",)):
        shown = run_odin("mcp", "get", "--no-connect", *args, "web").stdout
        assert ('"…"' in shown, "hush" in shown) == (True, False)


def test_servers_are_added_with_scopes_headers_and_json(run_odin: Any, workspace: Path, home: Path):
    for args in (
        ("add", "--scope", "project", "git", "--", "uvx", "mcp-server-git", "-v"),
        (
            "add",
            "-t",
            "http",
            "web",
            "https://example.org/mcp",
            "--header",
            "Authorization: Bearer $TOKEN",
            "-s",
            "project",
        ),
        ("add-json", "-s", "project", "--manual", "other", '{"command": "x", "args": ["$1"]}'),
    ):
        assert run_odin("mcp", *args).returncode == 0, args
    written = json.loads((workspace / ".mcp.json").read_text())["mcpServers"]
    assert written == {
        "git": {"command": "uvx", "args": ["mcp-server-git", "-v"]},
        "web": {"url": "https://example.org/mcp", "type": "http", "headers": {"Authorization": "Bearer ${TOKEN}"}},
        "other": {"command": "x", "args": ["$1"], "manual": True},
    }
    listed = run_odin("mcp", "--no-connect")
    assert "not trusted: mcp" in listed.stderr
    assert listed.stdout.startswith("No MCP servers.")
    assert "odin mcp remove --scope project git" in run_odin("mcp", "remove", "git").stderr
    assert run_odin("mcp", "remove", "--scope", "project", "git").returncode == 0


def test_bad_arguments_are_rejected_with_a_reason(run_odin: Any, workspace: Path, home: Path):
    configure(home, {"my.server": {"command": "x"}})
    for args, problem in (
        (("ad",), "Unknown command 'ad'. Did you mean add?"),
        (("add", "x"), "needs a program or a URL"),
        (("add", "x", "--", "--env", "A=b"), "'--env' is not a program"),
        (("add", "x", "--enw", "A=b", "sh"), "--enw"),
        (("add", "-s", "local", "x", "y"), "Unknown value 'local' for --scope. Use user or project."),
        (("add", "a b", "x"), "'a b' is not a valid name"),
        (("add", "a__b", "x"), "in rules, mcp__a__b could also mean another server"),
        (("add", "-s", "project", "a_", "x"), "in rules, mcp__a_ could also mean another server"),
        (("add", "my_server", "x"), "rules cannot tell them apart, because each is mcp__my_server"),
        (("add", "-e", "X", "x", "y"), "'X' must have the form -e NAME=VALUE"),
        (("add", "-t", "http", "x", "ftp://y"), "its url must begin with http:// or https://"),
        (("add-json", "x", "{"), "not valid JSON"),
        (("add-json", "x", "[]"), "must be a JSON object"),
        (("get", "nothing"), "There is no MCP server 'nothing'"),
        (("login", "nothing"), "There is no MCP server 'nothing'"),
        (("remove", "-s", "project", "x"), "has no MCP server 'x'"),
    ):
        done = run_odin("mcp", *args)
        assert (done.returncode, problem in done.stderr) == (2, True), (args, done.stderr)


def test_the_mcp_config_option_adds_servers(run_odin: Any, workspace: Path):
    given = json.dumps({"mcpServers": {"tiny": make_server_settings()}})
    (workspace / "servers.json").write_text(given)
    (workspace / "broken.json").write_text("{")
    for value in (given, "servers.json"):
        with ScriptedServer([call("mcp__tiny__echo", {"text": "hi"}, id="toolu_1"), say("done")]) as model:
            done = run_odin(
                "-p", "go", "--yes", "--strict-mcp-config", "--mcp-config", value, env=model.env("anthropic")
            )
        assert (done.returncode, "echo: hi" in model.requests[-1].body.decode()) == (0, True), done.stderr
    for value, problem in (
        ("missing.json", "there is no file"),
        ("broken.json", "not valid JSON"),
        ("{}", "has no object 'mcpServers'"),
        ('{"mcpServers": {"x": {}}}', "neither a command nor a url"),
    ):
        done = run_odin("-p", "go", "--mcp-config", value)
        assert (done.returncode, problem in done.stderr) == (2, True), (value, done.stderr)


def test_a_server_of_the_project_does_not_replace_the_users(run_odin: Any, workspace: Path, home: Path):
    run_odin("mcp", "add", "git", "mine")
    run_odin("mcp", "add", "-s", "project", "git", "theirs")
    run_odin("mcp", "add", "-s", "project", "other", "theirs", "${NAME:-x}")
    run_odin("trust", "add", "--yes")
    shown = {
        name: json.loads(run_odin("mcp", "get", "--no-connect", "--json", name).stdout) for name in ("git", "other")
    }
    assert [shown[name]["settings"]["command"] for name in shown] == ["mine", "theirs"]
    assert shown["other"]["settings"]["args"] == ["x"]


def test_the_doctor_reports_servers(run_odin: Any, home: Path):
    run_odin("mcp", "add", "tiny", sys.executable, "-I", "-S", PROGRAM)
    run_odin("mcp", "add", "gone", "no-such-program")
    done = run_odin("doctor")
    ok, gone = sorted(line for line in done.stdout.splitlines() if "MCP" in line)
    assert "tiny: ok, 12 tools" in ok
    assert gone.startswith("! MCP")
    assert "gone: failed: no-such-program was not found" in gone


def test_a_server_with_an_ambiguous_name_is_reported_and_can_be_removed(run_odin: Any, home: Path):
    configure(home, {"tiny": make_server_settings(), "tiny__evil": make_server_settings()})
    said = "The MCP server tiny__evil cannot be used: in rules, mcp__tiny__evil could also mean another server"
    listed = run_odin("mcp", "list")
    assert (said in listed.stderr, listed.stdout.splitlines()[0].startswith("✓ tiny ")) == (True, True)
    assert said in run_odin("doctor").stdout
    assert run_odin("mcp", "remove", "tiny__evil").returncode == 0
    assert run_odin("mcp", "list").stderr == ""


# --- odin mcp serve ---


ALLOWED: Any = {"question": ElicitResult(action="accept", content={"decision": "allow"})}


async def decline(context: Any, params: Any) -> ElicitResult:
    return ElicitResult(action="decline")


both_revisions = pytest.mark.parametrize("mode", ["legacy", "auto"])


@pytest.fixture
def make_pool(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(
        server: ScriptedServer, max_open: int = MAX_OPEN_SESSIONS, answer_s: float = ANSWER_S, **options: Any
    ) -> ServedSessions:
        for name, value in server.env("anthropic").items():
            monkeypatch.setenv(name, value)
        return ServedSessions(Options(cwd=str(workspace), headless=True, **options), max_open, answer_s)

    return make


@both_revisions
async def test_a_client_asks_edits_and_answers_approval_requests(make_pool: Any, workspace: Path, mode: str):
    write = call("WriteFile", {"file_path": str(workspace / "a.txt"), "content": "x"}, id="toolu_1")
    asked: list[str] = []
    steps: list[str] = []

    async def elicit(context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(
            action="accept", content={"decision": "allow" if len(asked) > 1 else "deny", "comment": "no"}
        )

    async def follow(progress: float, total: float | None, message: str | None) -> None:
        steps.append(message or "")

    with ScriptedServer([say("An answer."), write, say("Refused."), write, say("Done.")]) as model:
        pool = make_pool(model)
        async with Client(make_server(pool), mode=mode, elicitation_callback=elicit) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert set(tools) == {"ask", "plan", "edit", "sessions", "transcript"}
            first = (await client.call_tool("ask", {"prompt": "What is this?"})).structured_content
            assert (first["answer"], first["reason"]) == ("An answer.", "end_turn")
            again = {"prompt": "Write a.txt.", "session": first["session"]}
            assert (await client.call_tool("edit", again)).structured_content["answer"] == "Refused."
            assert "Odin wants to run: Create file a.txt" in asked[0]
            assert not (workspace / "a.txt").exists()
            done = await client.call_tool("edit", again, progress_callback=follow)
            assert done.structured_content["session"] == first["session"]
            assert (workspace / "a.txt").read_text() == "x"
            assert steps[0].startswith("WriteFile")
            listed = (await client.call_tool("sessions", {})).structured_content["result"]
            assert [item["session"] for item in listed] == [first["session"]]
            shown = await client.call_tool("transcript", {"session": first["session"]})
            assert "An answer." in str(shown.content)
            for tool, args in (("transcript", {}), ("ask", {"prompt": "Go on."})):
                wrong = await client.call_tool(tool, {**args, "session": "nope"})
                assert (wrong.is_error, "There is no session nope." in str(wrong.content)) == (True, True), (
                    wrong.content
                )
            empty = await client.call_tool("ask", {"prompt": ""})
            assert "The prompt is empty" in str(empty.content)
        await pool.close()


@pytest.mark.parametrize(("name", "is_priced"), [("claude-sonnet-4-5", True), ("house-model", False)])
async def test_the_cost_of_a_model_without_a_known_price_is_null(
    run_odin: Any, make_pool: Any, name: str, is_priced: bool
):
    with ScriptedServer([say("An answer.")]) as model:
        pool = make_pool(model, model=f"anthropic/{name}")
        async with Client(make_server(pool), mode="legacy") as client:
            told = (await client.call_tool("ask", {"prompt": "What is this?"})).structured_content["cost_usd"]
        await pool.close()
    assert (told is not None and told > 0) == is_priced
    assert json.loads(run_odin("sessions", "--all", "--json").stdout)[0]["cost_usd"] == told


@pytest.mark.parametrize(("lines", "missing"), [(100, "3,"), (150, "5,"), (5_000, "at least 8,")])
async def test_a_permission_request_says_how_much_of_the_preview_is_missing(
    make_pool: Any, workspace: Path, lines: int, missing: str
):
    content = f"{'x' * 48}\n" * lines
    write = call("WriteFile", {"file_path": str(workspace / "a.txt"), "content": content}, id="toolu_1")
    asked: list[str] = []

    async def elicit(context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={"decision": "deny"})

    with ScriptedServer([write, say("Refused.")]) as model:
        pool = make_pool(model)
        async with Client(make_server(pool), mode="legacy", elicitation_callback=elicit) as client:
            await client.call_tool("edit", {"prompt": "Write a.txt."})
        await pool.close()
    assert re.search(rf"\n\.\.\. cut: {missing}\d\d\d more characters are not shown$", asked[0]), asked[0][-200:]


@both_revisions
async def test_without_elicitation_nothing_is_approved(make_pool: Any, workspace: Path, mode: str):
    write = call("WriteFile", {"file_path": str(workspace / "a.txt"), "content": "x"}, id="toolu_1")
    with ScriptedServer([write, say("Refused.")]) as model:
        pool = make_pool(model)
        async with Client(make_server(pool), mode=mode) as client:
            result = (await client.call_tool("edit", {"prompt": "Write a.txt."})).structured_content
        await pool.close()
    assert [call["tool"] for call in result["denied"]] == ["WriteFile"]
    assert "No user can be asked here" in result["denied"][0]["reason"]
    assert "No user can be asked here" in model.requests[-1].body.decode()
    assert not (workspace / "a.txt").exists()


@pytest.mark.parametrize("tool", ["ask", "plan"])
async def test_ask_and_plan_change_nothing_through_an_earlier_task(make_pool: Any, workspace: Path, tool: str):
    write = call("WriteFile", {"file_path": "a.txt", "content": "x"}, id="write")
    task = [call("Complete", {"summary": "nothing yet"}), write, call("Complete", {"summary": "done"})]
    tried = threading.Event()

    def play(seen: SeenRequest) -> Turn:
        if "write" in seen.results:
            tried.set()
        if "Delegate" not in seen.tool_names:
            return task.pop(0)
        newest = json.dumps(seen.messages[-1])
        if "Begin." in newest:
            return call("Delegate", {"description": "write a.txt"})
        return call("Notify", {"task_id": "adhoc-1", "message": "now"}) if "Now?" in newest else say("ok")

    with ScriptedServer(play) as model:
        pool = make_pool(model, yes=True)
        async with Client(make_server(pool), mode="legacy") as client:
            first = (await client.call_tool("edit", {"prompt": "Begin."})).structured_content
            await asyncio.to_thread(model.wait_for, 3)
            await client.call_tool(tool, {"prompt": "Now?", "session": first["session"]})
            assert await asyncio.to_thread(tried.wait, 20)
        await pool.close()
    assert not (workspace / "a.txt").exists()


@pytest.mark.parametrize("fault", ["error", "cancel"])
async def test_a_failed_or_cancelled_call_leaves_no_running_turn(make_pool: Any, workspace: Path, fault: str):
    write = call("WriteFile", {"file_path": str(workspace / "a.txt"), "content": "x"}, id="toolu_1")
    asked = asyncio.Event()

    async def elicit(context: Any, params: Any) -> Any:
        asked.set()
        if fault == "error":
            return ErrorData(code=-32603, message="The screen is off.")
        return await asyncio.get_running_loop().create_future()

    with ScriptedServer([say("A new session."), write, say("Refused."), say("Still here.")]) as model:
        pool = make_pool(model)
        async with Client(make_server(pool), mode="legacy", elicitation_callback=elicit) as client:
            first = (await client.call_tool("ask", {"prompt": "Hello."})).structured_content
            again = {"prompt": "Write a.txt.", "session": first["session"][:-1]}
            writing = asyncio.create_task(client.call_tool("edit", again))
            await asked.wait()
            if fault == "cancel":
                writing.cancel()
            done: Any = (await asyncio.gather(writing, return_exceptions=True))[0]
            async with TimeLimit():
                last = await client.call_tool("ask", {**again, "prompt": "Are you there?"})
            assert last.structured_content["answer"] == ("Refused." if fault == "cancel" else "Still here.")
        await pool.close()
    assert not (workspace / "a.txt").exists()
    if fault == "error":
        assert done.structured_content["answer"] == "Refused."
        assert "Denied: The client could not be asked: The screen is off. Nothing was done." in (
            model.requests[2].body.decode()
        )


async def test_a_question_that_is_not_answered_ends_the_turn(make_pool: Any, workspace: Path):
    """A client of 2026-07-28 gets a question as the end of its call, and need not come back."""
    write = call("WriteFile", {"file_path": str(workspace / "a.txt"), "content": "x"}, id="toolu_1")
    with ScriptedServer([write, say("Still here.")]) as model:
        pool = make_pool(model, answer_s=0.01)
        async with Client(make_server(pool), elicitation_callback=decline) as client:
            again = ("edit", {"prompt": "Write a.txt."})
            asked = await client.session.call_tool(*again, allow_input_required=True)
            assert isinstance(asked, InputRequiredResult)
            assert "Odin wants to run: Create file a.txt" in str(asked.input_requests)
            session = (await client.call_tool("sessions", {})).structured_content["result"][0]["session"]
            async with TimeLimit():
                done = await client.call_tool("ask", {"prompt": "Are you there?", "session": session})
            assert done.structured_content["answer"] == "Still here."
            late = await client.session.call_tool(*again, input_responses=ALLOWED, request_state=asked.request_state)
            assert (late.is_error, "not open any more" in str(late.content)) == (True, True)
        await pool.close()
    assert not (workspace / "a.txt").exists()


@pytest.mark.parametrize("is_answered", [True, False])
async def test_a_repeated_call_goes_on_with_its_turn(make_pool: Any, workspace: Path, is_answered: bool):
    write = call("WriteFile", {"file_path": str(workspace / "a.txt"), "content": "x"}, id="toolu_1")
    with ScriptedServer([write, say("Done.")]) as model:
        pool = make_pool(model)
        async with Client(make_server(pool), elicitation_callback=decline) as client:
            again = ("edit", {"prompt": "Write a.txt."})
            asked: Any = await client.session.call_tool(*again, allow_input_required=True)
            done = await client.session.call_tool(
                *again, input_responses=ALLOWED if is_answered else None, request_state=asked.request_state
            )
        await pool.close()
    assert done.structured_content["answer"] == "Done."
    assert (workspace / "a.txt").exists() == is_answered
    if not is_answered:
        (denied,) = done.structured_content["denied"]
        assert denied["reason"] == "Denied: The client sent no answer. Nothing was done.", "and not by the user"


async def test_only_what_there_is_is_announced(make_pool: Any):
    with ScriptedServer([]) as model:
        pool = make_pool(model)
        for mode in ("legacy", "auto"):
            async with Client(make_server(pool), mode=mode) as client:
                announced = client.server_capabilities.model_dump(exclude_none=True, exclude_defaults=True)
                assert announced == {"tools": {"list_changed": False}}
                with pytest.raises(MCPError, match="Unknown tool: nope"):
                    await client.call_tool("nope", {})
                wrong = await client.call_tool("ask", {})
                assert (wrong.is_error, "Object missing required field `prompt`" in str(wrong.content)) == (True, True)
        await pool.close()


async def test_sessions_that_no_call_uses_are_closed(make_pool: Any, workspace: Path):
    with ScriptedServer([say("One."), say("Two."), say("Three.")]) as model:
        pool = make_pool(model, max_open=1)
        async with Client(make_server(pool), mode="legacy") as client:
            first = (await client.call_tool("ask", {"prompt": "1"})).structured_content
            await client.call_tool("ask", {"prompt": "2"})
            third = await client.call_tool("ask", {"prompt": "3", "session": first["session"]})
            assert third.structured_content["session"] == first["session"]
        await pool.close()
    assert [len(seen.json["messages"]) for seen in model.requests] == [1, 1, 3]


async def test_an_error_of_the_model_reaches_the_client(make_pool: Any, capfd: pytest.CaptureFixture[str]):
    with ScriptedServer([fault(401, message="invalid x-api-key")]) as model:
        pool = make_pool(model)
        async with Client(make_server(pool), mode="legacy") as client:
            result = await client.call_tool("ask", {"prompt": "What is this?"})
        await pool.close()
    assert (result.is_error, "invalid x-api-key" in str(result.content)) == (True, True), result.content
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.slow
@both_revisions
async def test_odin_is_served_on_standard_input_and_output(workspace: Path, mode: str):
    from mcp import StdioServerParameters

    with ScriptedServer([say("An answer.")]) as model:
        env = {**os.environ, **model.env("anthropic")}
        server = StdioServerParameters(
            command=sys.executable, args=["-m", "odin", "mcp", "serve"], env=env, cwd=workspace
        )
        async with Client(server, mode=mode) as client:
            result = await client.call_tool("ask", {"prompt": "What is this?"})
    assert result.structured_content["answer"] == "An answer."
