"""Language servers in a session: errors in edit results, the lsp tools, and the settings that disable servers."""

import asyncio
import functools
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from odin.core.call_events import PermissionAsked, ToolEnded
from odin.core.errors import UsageError
from odin.core.event import LanguageServersChanged, NoteAdded, Warned
from odin.core.op import AnswerPermission, ControlLanguageServer, Interrupt, Rewind
from odin.core.timing import Timing
from odin.lsp import servers as servers_module
from odin.testing import call, say
from odin.ui.slash_commands.extensions import format_language_servers, switch_language_servers
from tests.lsp.conftest import FAKE_SERVER, LONG_WAITS
from tests.waiting import TimeLimit

from .conftest import Start, Talk

PROGRAMS = str(Path(sys.executable).parent)


@pytest.fixture
def start(start: Start) -> Start:
    """Open sessions that wait longer for servers, so that a slow machine does not fail the tests."""
    return functools.partial(start, timing=LONG_WAITS)


def fake_config(*behaviors: str, **more: Any) -> dict[str, Any]:
    server = {"command": sys.executable, "args": ["-I", "-S", FAKE_SERVER, *behaviors], "file_types": [".txt"], **more}
    return {"lsp": "configured", "lsp_servers": {"fake": server}}


def write(path: Path, text: str, name: str = "WriteFile") -> Any:
    return call(name, {"file_path": str(path), "content": text})


def list_results(talk: Talk) -> list[str]:
    return [event.text for event in talk.all(ToolEnded)]


async def test_result_of_every_edit_tool_has_the_errors(start: Start, workspace: Path):
    path = workspace / "a.txt"
    path.write_text("one\n")
    patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-two BAD\n+two BAD BAD\n*** End Patch"
    edit = {"file_path": str(path), "old_string": "one", "new_string": "two BAD"}
    several = {"file_path": str(path), "edits": [{"old_string": "BAD BAD", "new_string": "BAD x BAD BAD"}]}
    script = [
        call("Read", {"file_path": str(path)}),
        call("EditTool", edit),
        call("apply_patch", {"input": patch}),
        call("MultiEditTool", several),
        write(path, "BAD\n", "AppendFile"),
        write(workspace / "b.txt", "BAD\n"),
        call("Delete", {"paths": [str(path)], "reason": "x"}),
        say("done"),
    ]
    talk = await start(script, config=fake_config("pull"), trust=True)
    await talk.say("go")
    errors = [text.partition("after this change:\n")[2].splitlines() for text in list_results(talk)]
    assert [len(lines) for lines in errors] == [0, 1, 2, 3, 4, 1, 0]
    assert talk.all(ToolEnded)[1].note.endswith("a.txt (+1 -1, 1 error)")
    assert errors[1][0].replace("new: ", "") == "a.txt:1:5: bad word [fake B1]"
    assert "b.txt:1:1: bad word [fake B1]" in str(talk.server.requests[6].body)
    assert talk.all(LanguageServersChanged)[-1].servers[0].name == "fake"


async def test_late_errors_reach_the_next_request_of_the_turn_once(start: Start, workspace: Path):
    key = "k3y-9f8e7d6c5b4a"
    ask_a, ask_b = (call("lsp", {"action": "hover", "path": path, "symbol": "BAD"}) for path in ("a.txt", f"{key}.txt"))
    script = [write(workspace / "a.txt", "BAD\n"), say("done")]
    script += [ask_a, write(workspace / f"{key}.txt", "BAD\n"), ask_b, ask_b, say("done")]
    timing = Timing(lsp_cold_s=0.0, lsp_warm_s=0.0)
    talk = await start(script, config=fake_config(), env={"SHOP_TOKEN": key}, trust=True, timing=timing)
    await talk.say("go")
    await talk.say("go on")  # errors in the file of the first turn are not sent
    counts = [str(request.body).count(servers_module.LATE_HEADING) for request in talk.server.requests]
    assert counts in ([0, 0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 1, 1, 1])  # the server may be fast
    assert not any("bad word" in text for text in list_results(talk))
    notes = [event.text for event in talk.all(NoteAdded) if event.text.startswith(servers_module.LATE_HEADING)]
    assert notes == [f"{servers_module.LATE_HEADING}\n[redacted: SHOP_TOKEN].txt:1:1: bad word [fake B1]"]


async def test_lsp_tools_are_offered_once_a_file_of_their_type_exists(start: Start, workspace: Path):
    script = [write(workspace / "a.txt", "word\n"), call("Read", {"file_path": "a.txt"}), say("done")]
    talk = await start(script, config=fake_config(), trust=True)
    await talk.say("go")
    assert [{"lsp", "lsp_rename"} <= {*seen.tool_names} for seen in talk.server.requests] == [False, True, True]


@pytest.mark.parametrize(
    ("config", "trust"),
    [(fake_config(), False), ({**fake_config(), "lsp": "off"}, True), (fake_config(enabled=False), True)],
)
async def test_no_server_runs_without_trust_or_if_disabled(
    start: Start, workspace: Path, config: dict[str, Any], trust: bool
):
    talk = await start([write(workspace / "a.txt", "BAD\n"), say("done")], config=config, trust=trust)
    await talk.say("go")
    assert "bad word" not in list_results(talk)[0]
    info = await talk.client.get_info()
    assert (info.language_servers, "lsp" in info.tools) == ((), False)
    assert info.language_servers_off
    with pytest.raises(UsageError):
        await talk.client.submit(ControlLanguageServer("restart"))


async def test_a_project_without_servers_is_told_which_to_install(start: Start, workspace: Path):
    (workspace / "go.mod").write_text("module x\n")
    (workspace / "src").mkdir()
    (workspace / "src" / "a.py").write_text("")
    talk = await start([say("done")], env={"PATH": "/nowhere"}, trust=True)
    shown = format_language_servers(await talk.client.get_info(), 200)
    assert shown == (
        "No language server is configured or installed for this project. To get one for Python: "
        "`uv tool install basedpyright`; for Go: `go install golang.org/x/tools/gopls@latest`.\n"
    )


async def test_a_project_starts_servers_only_when_it_is_trusted(start: Start, workspace: Path):
    (workspace / "odinconfig.json").write_text(json.dumps(fake_config()))
    for trust in (False, True):
        talk = await start([say("done")], trust=trust)
        info = await talk.client.get_info()
        assert [state.name for state in info.language_servers] == (["fake"] if trust else [])
        assert any("ignored because this folder is not trusted: lsp_servers" in text for text in info.warnings) != trust


async def test_a_resumed_session_counts_the_errors_of_files_it_has_changed(start: Start, workspace: Path):
    (workspace / "read.txt").write_text("BAD BAD BAD\n")
    script = [
        call("Read", {"file_path": "read.txt"}),
        write(workspace / "a.txt", "BAD BAD\n"),
        write(workspace / "b.txt", "BAD\n"),
        call("Delete", {"paths": [str(workspace / "b.txt")], "reason": "x"}),
        say("done"),
        say("again"),
    ]
    talk = await start(script, config=fake_config("pull"), trust=True)
    await talk.say("go")
    session = (await talk.client.get_info()).session
    await talk.client.close()
    again = await start(None, server=talk.server, resume=session, config=fake_config("pull"), trust=True)
    assert (await again.client.get_info()).language_servers[0].status == "idle"
    await again.say("go on")
    async with TimeLimit():
        while (await again.client.get_info()).language_servers[0].errors != 2:
            await asyncio.sleep(0.01)


async def test_server_sees_that_an_edit_was_rewound(start: Start, workspace: Path):
    (workspace / "a.txt").write_text("fine\n")
    (workspace / "b.txt").write_text("fine\n")
    script = [
        call("Read", {"file_path": "a.txt"}),
        call("EditTool", {"file_path": "a.txt", "old_string": "fine", "new_string": "BAD"}),
        say("done"),
        write(workspace / "c.txt", "x\n"),
        say("done"),
    ]
    talk = await start(script, config=fake_config("pull"), trust=True)
    await talk.say("go")
    assert (await talk.client.get_info()).language_servers[0].errors == 1
    await talk.client.submit(Rewind((await talk.client.snapshot()).messages[-1].id))
    await talk.say("again")
    async with TimeLimit():
        while (await talk.client.get_info()).language_servers[0].errors:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("backend", ["auto", "landlock", "off"])
async def test_a_server_works_in_every_sandbox_and_writes_nothing_in_the_project(
    start: Start, workspace: Path, backend: str
):
    config = {**fake_config("pull", f"trace={workspace}/.trace"), "sandbox": {"backend": backend}}
    talk = await start([write(workspace / "a.txt", "BAD\n"), say("done")], config=config, trust=True)
    await talk.say("go")
    confined = not (await talk.client.get_info()).sandbox.startswith("no sandbox")
    assert confined == (backend != "off") or backend == "landlock"
    assert "bad word" in list_results(talk)[0]
    assert (workspace / ".trace").exists() != confined


async def test_a_call_survives_the_restart_of_its_server(start: Start, workspace: Path):
    (workspace / "a.txt").write_text("word\n")
    ask = call("lsp", {"action": "hover", "path": "a.txt", "symbol": "word"})
    talk = await start([ask, say("done")], config=fake_config("hang:initialize"), trust=True)
    prompt = await talk.submit("go")
    while (await talk.client.get_info()).language_servers[0].status != "starting":
        await asyncio.sleep(0.01)
    await talk.client.submit(ControlLanguageServer("restart"))
    assert (await talk.until_end(prompt)).reason == "end_turn"
    assert list_results(talk) == ["The language server cannot answer: fake was stopped."]


async def test_files_that_a_command_changed_are_reported_to_the_server(start: Start, workspace: Path):
    script = [
        write(workspace / "a.txt", "one\n"),
        call("ExecuteCommand", {"command": "echo BAD > a.txt && echo two > b.txt"}),
        write(workspace / "c.txt", "three\n"),
        say("done"),
    ]
    trace = workspace / ".trace"
    talk = await start(script, config=fake_config("pull", f"trace={trace}", writes=True), trust=True)
    await talk.say("go")
    trace_lines = trace.read_text().splitlines()
    (line,) = (line for line in trace_lines if "b.txt" in line)
    assert sorted(line.split()[1:]) == ["1b.txt", "1c.txt", "2a.txt"]
    assert trace_lines.index("textDocument/didChange a.txt") > trace_lines.index(line)


async def test_a_server_that_creates_a_protected_file_is_reported_before_any_command_has_run(
    start: Start, workspace: Path
):
    config = fake_config("pull", f"trace={workspace}/.envrc", writes=True)
    talk = await start([write(workspace / "a.txt", "one\n"), say("done")], config=config, trust=True)
    await talk.say("go")
    assert "While a process ran in the background, " in str(talk.all(Warned)), "the server wrote .envrc"


async def test_an_interrupt_does_not_wait_for_a_server_and_the_edit_is_recorded(start: Start, workspace: Path):
    talk = await start([write(workspace / "a.txt", "BAD\n")], config=fake_config("mute"), trust=True)
    prompt = await talk.submit("go")
    while (await talk.client.get_info()).language_servers[0].status != "ready":
        await asyncio.sleep(0.01)
    await talk.client.submit(Interrupt())
    await talk.until_end(prompt)
    assert list_results(talk)[0].startswith(f"Created {workspace}/a.txt (1 line).")


async def test_lsp_tool_answers_with_file_line_and_column(start: Start, workspace: Path):
    (workspace / "a.txt").write_text("top = word\nß😀 word\n")
    (workspace / "b.txt").write_text("another word\n")
    ask = [
        {"action": "definition", "path": "a.txt", "line": 2, "symbol": "word"},
        {"action": "references", "path": "a.txt", "line": 2, "character": 4},
        {"action": "hover", "path": "a.txt", "symbol": "word"},
        {"action": "symbols", "path": "a.txt"},
        {"action": "symbols", "query": "word"},
        {"action": "implementation", "path": "a.txt", "line": 1},
        {"action": "references", "path": "a.txt", "line": 9},
        {"action": "references", "path": "a.txt", "line": 1, "symbol": "missing"},
        {"action": "hover", "path": "a.md", "line": 1},
        {"action": "hover"},
    ]
    config = fake_config("unloaded", "pull")  # the server knows nothing until a file was opened
    talk = await start([*(call("lsp", args) for args in ask), say("done")], config=config, trust=True)
    await talk.say("go", "ask_mode")
    found = list_results(talk)
    places = ["a.txt:1:7: top = word", "a.txt:2:4: ß😀 word", "b.txt:1:9: another word"]
    assert found[0] == places[0]
    assert found[1].splitlines() == places
    assert found[2] == "about word\n\nmore"
    assert found[3] == "a.txt:1: top (class)\na.txt:1:   inner (method)"
    assert found[4].splitlines() == ["a.txt:1: word (variable)", "a.txt:2: word (variable)"]
    assert found[5:] == [
        "fake does not support implementation.",
        "a.txt has no line 9.",
        "'missing' is not in line 1 of a.txt.",
        "The language server cannot answer: no language server handles a.md.",
        "hover needs path, and line or symbol.",
    ]


async def test_rename_edits_all_files_after_one_approval_and_can_be_undone(start: Start, workspace: Path):
    (workspace / "a.txt").write_bytes(b"old = 1\r\n\xc3\x9f old\r\n")
    (workspace / "b.txt").write_text("BAD old older\n")
    rename = call("lsp_rename", {"path": "a.txt", "symbol": "old", "new_name": "fresh"})
    talk = await start([rename, say("done")], config=fake_config(), trust=True, yes=False, can_ask=True)
    talk.answers.append(AnswerPermission("", True))
    await talk.say("go")
    (asked,) = talk.all(PermissionAsked)
    assert (len(asked.asked_paths), "-BAD old older\n+BAD fresh older" in asked.preview) == (2, True)
    assert (workspace / "a.txt").read_bytes() == b"fresh = 1\r\n\xc3\x9f fresh\r\n"
    assert (workspace / "b.txt").read_text() == "BAD fresh older\n"
    assert list_results(talk)[0].startswith("Renamed old to fresh: 3 places in 2 files.\n")
    assert "b.txt:1:1: bad word" in list_results(talk)[0]
    await talk.client.submit(Rewind((await talk.client.snapshot()).messages[-1].id))
    assert (workspace / "b.txt").read_text() == "BAD old older\n"
    assert (workspace / "a.txt").read_bytes().count(b"old") == 2


@pytest.mark.parametrize(
    ("behaviors", "args", "reason"),
    [
        (("outside",), {}, "would change /etc/passwd, which is outside the project"),
        ((), {"symbol": "missing"}, "'missing' is not in a.txt"),
        (("hang:initialize", "exit:initialize"), {}, "it ended (exit code 3)"),
    ],
)
async def test_impossible_rename_is_refused_without_asking(
    start: Start, workspace: Path, behaviors: tuple[str, ...], args: dict[str, str], reason: str
):
    (workspace / "a.txt").write_text("old\n")
    rename = call("lsp_rename", {"path": "a.txt", "symbol": "old", "new_name": "fresh", **args})
    talk = await start([rename, say("done")], config=fake_config(*behaviors), trust=True, yes=False, can_ask=True)
    await talk.say("go")
    assert reason in list_results(talk)[0]
    assert (workspace / "a.txt").read_text() == "old\n"


async def test_servers_can_be_disabled_and_enabled(start: Start, workspace: Path):
    edits = [write(workspace / f"{number}.txt", "BAD\n") for number in range(3)]
    talk = await start([item for edit in edits for item in (edit, say("done"))], config=fake_config(), trust=True)
    said = [f"{word} fake." for word in ("Restarted", "Disabled", "Enabled")]
    for number, action in enumerate(("restart", "disable", "enable")):
        assert await switch_language_servers(talk.client, f"{action} fake") == said[number]
        await talk.say("go")
        assert ("bad word" in list_results(talk)[number]) == (action != "disable")
        shown = format_language_servers(await talk.client.get_info(), 100)
        assert shown.startswith("fake  disabled  .txt" if action == "disable" else "fake  ready     .txt  1 error, ")
    assert await switch_language_servers(talk.client, "enable") == "Nothing to do."
    with pytest.raises(UsageError, match="Unknown argument 'stop'"):
        await switch_language_servers(talk.client, "stop fake")
    with pytest.raises(UsageError, match="no language server 'other'"):
        await talk.client.submit(ControlLanguageServer("restart", "other"))


async def test_ruff_reviews_an_edit(start: Start, workspace: Path):
    path = f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}"
    config = {"lsp_servers": {"basedpyright": {"enabled": False}}}
    talk = await start(
        [write(workspace / "a.py", "print(ä)\n"), say("done")], config=config, env={"PATH": path}, trust=True
    )
    await talk.say("go")
    assert list_results(talk)[0].endswith("a.py:1:7: Undefined name `ä` [Ruff F821]")
