"""The tools that a session offers, their aliases, and changes of ODIN.md."""

from pathlib import Path

import pytest

from odin.core.call_events import FileCached, ToolEnded
from odin.testing import call, reply, say
from tests.engine.conftest import Start


async def test_the_next_prompt_has_the_instructions_that_inittool_wrote(start: Start, workspace: Path):
    (workspace / "package.json").write_text('{"name": "ratatosk", "scripts": {"test": "true"}}')
    talk = await start([call("init", {}, id="i"), say("Written."), say("Yes.")])
    await talk.say("Describe this project.")
    await talk.say("Do you know it now?")
    systems = [str(request.json["system"]) for request in talk.server.requests]
    assert "ratatosk" not in systems[0]
    assert systems[0] == systems[1], "the running turn keeps what was sent before"
    assert "Instructions of this project (ODIN.md)" in systems[2]
    assert "npm test" in systems[2]
    assert "npm test" in (await talk.client.snapshot()).custom_instructions
    assert [event.file.path for event in talk.all(FileCached)] == [str(workspace / "ODIN.md")]


async def test_odin_md_written_by_the_model_does_not_apply_to_this_session(start: Start, workspace: Path):
    write = call("WriteFile", {"file_path": str(workspace / "ODIN.md"), "content": "Speak like a skald.\n"})
    talk = await start([write, say("Written."), say("Yes.")])
    await talk.say("Write it.")
    await talk.say("And?")
    assert "skald" not in str(talk.server.requests[2].json["system"])


async def test_inittool_is_not_available_in_plan_mode(start: Start, workspace: Path):
    talk = await start([call("InitTool", {}, id="i"), say("I may not.")])
    await talk.say("Describe.", "plan_mode")
    assert "InitTool" not in talk.server.requests[0].tool_names
    assert not (workspace / "ODIN.md").exists()


async def test_deletion_requires_confirmation(start: Start, workspace: Path):
    path = workspace / "old.txt"
    path.write_text("x")
    talk = await start(
        [call("delete_file", {"paths": [str(path)], "reason": "old"}, id="d"), say("Not then.")], yes=False
    )
    await talk.say("Delete it.")
    assert "requires confirmation: Deletes old.txt" in talk.server.requests[1].results["d"]
    assert path.exists()


@pytest.mark.parametrize("rule", ["WriteFile", "Write(*)", "write_file(**)"])
async def test_fully_denied_tool_is_hidden_and_refused(rule: str, start: Start, workspace: Path):
    args = {"file_path": str(workspace / "a"), "content": "x"}
    talk = await start([call("WriteFile", args, id="w"), say("No.")], disallowed_tools=(rule,))
    await talk.say("Write.")
    names = talk.server.requests[0].tool_names
    assert "WriteFile" not in names
    assert "EditTool" in names
    assert "switched off" in talk.server.requests[1].results["w"]
    assert not (workspace / "a").exists()


async def test_partly_denied_tool_is_offered(start: Start):
    talk = await start([say("Hi.")], disallowed_tools=("WriteFile(*.md)", "Bash(rm:*)"))
    await talk.say("Hi.")
    assert {"WriteFile", "ExecuteCommand"} <= set(talk.server.requests[0].tool_names)


async def test_appendfile_works_without_being_offered_and_can_be_enabled(start: Start, workspace: Path):
    args = {"path": str(workspace / "a.txt"), "content": "one\n"}
    talk = await start([call("append_file", args, id="a"), say("Done.")])
    await talk.say("Append.")
    assert "AppendFile" not in talk.server.requests[0].tool_names
    assert (workspace / "a.txt").read_text() == "one\n"
    talk = await start([say("Hi.")], tools=("append_file", "Read"))
    await talk.say("Hi.")
    assert set(talk.server.requests[0].tool_names) == {"AppendFile", "Read"}


async def test_pico_names_and_arguments_work(start: Start, workspace: Path):
    path = str(workspace / "a.txt")
    calls = [
        call("write_file", {"path": path, "content": "one\n"}),
        call("read_file", {"path": path}),
        call("edit_file", {"path": path, "old_text": "one", "new_text": "two"}),
        call("list_dir", {"path": str(workspace)}),
    ]
    talk = await start([*calls, say("Done.")])
    await talk.say("Go.")
    assert [event.status for event in talk.all(ToolEnded)] == ["success"] * 4
    assert Path(path).read_text() == "two\n"


async def test_artifacts_are_stored_with_the_session_in_every_mode(start: Start, workspace: Path, home: Path):
    save = call("save_artifact", {"name": "plan.md", "content": "First, look.\n"}, id="s")
    talk = await start(
        [save, say("Kept."), call("read_artifact", {"name": "plan.md"}, id="r"), say("There.")], yes=False
    )
    await talk.say("Plan.", "plan_mode")
    await talk.say("What was the plan?", "ask_mode")
    assert "First, look." in talk.server.requests[3].results["r"]
    (kept,) = home.rglob("artifacts/plan.md")
    assert kept.parent.parent.name == (await talk.client.get_info()).session
    assert list(workspace.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"allowed_tools": ("Raed",)}, ["'Raed'", "Did you mean Read?"]),
        ({"disallowed_tools": ("Bsh(rm:*)",)}, ["'Bsh'", "Did you mean ExecuteCommand?"]),
        ({"tools": ("Read", "Zzzzzz")}, ["'Zzzzzz'"]),
        ({"allowed_tools": ("Bash(git log:*)", "WebSearch", "mcp__x__y", "*")}, []),
    ],
)
async def test_unknown_tool_names_cause_warnings(
    options: dict[str, tuple[str, ...]], expected: list[str], start: Start
):
    talk = await start([], **options)
    warnings = " ".join((await talk.client.get_info()).warnings)
    assert [part in warnings for part in expected] == [True] * len(expected)
    assert bool(warnings) == bool(expected)


async def test_calls_run_one_after_the_other_if_one_deletes(start: Start, workspace: Path):
    path = workspace / "a.txt"
    path.write_text("old\n")
    calls = [
        call("Delete", {"paths": [str(path)], "reason": "make room"}, id="d"),
        call("WriteFile", {"file_path": str(path), "content": "new\n"}, id="w"),
    ]
    talk = await start([reply("", calls), say("Done.")])
    await talk.say("Replace it.")
    assert path.read_text() == "new\n"
    assert talk.server.requests[1].results["w"].startswith("Created")
