"""Replaying what users do during a session: steering, queue edits, context, compaction, rules, loop mode and plans."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from odin.core.call_events import PermissionAsked, PlanAsked, ToolStarted
from odin.core.event import Compacted, LoopChanged, LoopPrompted, PromptInjected
from odin.core.op import (
    AddContext,
    AddRoot,
    AddRule,
    AnswerPermission,
    AnswerPlan,
    ChangePrompt,
    Compact,
    Continue,
    DropPrompt,
    Interrupt,
    Prompt,
    RemoveLastMessage,
    RemoveRule,
    RunUserShell,
    SetLoop,
    SetPermissionMode,
)
from odin.replay.recording import save_recording
from odin.testing import call, reply, say
from tests.engine.conftest import Start
from tests.engine.test_questions import wait_for_event
from tests.replay.test_replay import assert_same, close_session, replay


async def test_steering_prompt_is_replayed(start: Start, workspace: Path):
    calls = [
        call("ExecuteCommand", {"command": "sleep 0.5; echo one"}, id="one"),
        call("ExecuteCommand", {"command": "echo two"}, id="two"),
    ]
    talk = await start([reply("Two.", calls), say("As you say."), say("More.")])
    await talk.client.submit(Prompt("p1", "go"))
    await talk.until(ToolStarted)
    await talk.client.submit(Prompt("s1", "the other way", delivery="steer"))
    await talk.until_end("p1")
    assert len(talk.all(PromptInjected)) == 1
    assert_same(await replay(await close_session(talk), workspace))


async def test_edits_of_queued_prompts_are_replayed(start: Start, workspace: Path):
    talk = await start([call("ExecuteCommand", {"command": "sleep 0.5"}), say("First."), say("Second.")])
    await talk.client.submit(Prompt("p1", "go"))
    await talk.until(ToolStarted)
    await talk.client.submit(Prompt("p2", "draft"))
    await talk.client.submit(Prompt("p3", "not this one"))
    await talk.client.submit(ChangePrompt("p2", "the real one", "ask_mode"))
    await talk.client.submit(DropPrompt("p3"))
    await talk.until_end("p2")
    report = await replay(await close_session(talk), workspace)
    assert_same(report)
    assert report.prompts == 2


async def test_queue_policies_of_an_interrupt_are_replayed(start: Start, workspace: Path):
    for queue in ("inject", "keep", "drop"):
        talk = await start([call("ExecuteCommand", {"command": "sleep 60"}), say("Then."), say("More.")])
        await talk.client.submit(Prompt("p1", "go"))
        await talk.until(ToolStarted)
        await talk.client.submit(Prompt("p2", "waits"))
        await talk.client.submit(Interrupt(queue))
        await talk.until_end("p1")
        if queue == "keep":
            await talk.until_end("p2")
        await talk.client.submit(Prompt("p3", "next"))
        await talk.until_end("p3")
        assert_same(await replay(await close_session(talk), workspace))


async def test_context_shell_commands_and_continue_are_replayed(start: Start, workspace: Path):
    talk = await start([say("One."), say("Two."), say("Three.")])
    await talk.client.submit(AddContext("a fact", path="notes.txt"))
    await talk.say("one")
    await talk.client.submit(RunUserShell("r1", "echo from the user"))
    await talk.client.submit(RemoveLastMessage())
    await talk.client.submit(Continue("c1"))
    await talk.until_end("c1")
    await talk.client.submit(SetPermissionMode("dontAsk"))
    await talk.say("two")
    report = await replay(await close_session(talk), workspace)
    assert_same(report)
    assert report.prompts == 3


@pytest.mark.slow
async def test_automatic_compaction_is_replayed(start: Start, workspace: Path):
    (workspace / "big.txt").write_text("a line of some words\n" * 400)

    def script(request: Any) -> Any:
        if len(request.messages) % 2:
            return say("Read. " + "word " * 200)
        return say("Yes. " + "word " * 200)

    talk = await start(script, config={"max_context": 8000})
    for number in range(25):
        await talk.say(f"Number {number}: " + "please look at this " * 20)
    assert talk.all(Compacted)
    assert_same(await replay(await close_session(talk), workspace))


async def test_requested_compaction_is_replayed(start: Start, workspace: Path):
    talk = await start([say(f"Answer {number}. " + "word " * 300) for number in range(8)])
    for number in range(6):
        await talk.say(f"Number {number}")
    await talk.client.submit(Compact())
    await talk.say("And now?")
    session = await close_session(talk)
    assert_same(await replay(session, workspace))


async def test_background_process_and_the_turn_it_starts_are_replayed(start: Start, workspace: Path):
    spawn = call("Spawn", {"command": "sleep 0.3; echo over", "description": "a short one"})
    talk = await start([spawn, say("It runs."), say("It is over.")])
    await talk.say("Begin it")
    await talk.until_end("spawn-1-ended")
    report = await replay(await close_session(talk), workspace)
    assert_same(report)
    assert report.prompts == 1  # the report of the ended process is not one


async def test_removal_of_a_rule_is_replayed(start: Start, workspace: Path):
    """The rule is found by its text: it is the second of three, so another index would be another rule."""
    commands = ("mkdir x", "touch y", "chmod 700 x")
    calls = [call("ExecuteCommand", {"command": command}, id=command.split()[0]) for command in commands]
    talk = await start([*calls, say("Three.")], yes=False, can_ask=True)
    for name in ("mkdir", "touch", "chmod"):
        await talk.client.submit(AddRule(f"Bash({name}:*)"))
    texts = [line.text for line in await talk.client.list_rules()]
    await talk.client.submit(RemoveRule(1 + next(at for at, text in enumerate(texts) if "touch" in text)))
    talk.answers = [AnswerPermission("", True)]
    await talk.say("Do them")
    assert [asked.call_id for asked in talk.all(PermissionAsked)] == ["touch"]
    assert_same(await replay(await close_session(talk), workspace))


async def test_custom_command_and_loop_mode_are_replayed(start: Start, workspace: Path):
    """The recorded prompts are sent, whatever the command of that name means today."""
    folder = workspace / ".odin/commands"
    folder.mkdir(parents=True)
    (folder / "fix.md").write_text("Fix issue $ARGUMENTS.")
    script = [say("Fixed."), say("hm"), call("ExecuteCommand", {"command": "echo tested"}), say("<done>tested</done>")]
    talk = await start(script)
    await talk.say("/fix 12")
    await talk.client.submit(SetLoop(True, "all of it"))
    await talk.until_live(LoopPrompted)
    async for envelope in talk.remaining():
        if isinstance(envelope.event, LoopChanged) and envelope.event.state == "completed":
            break
    session = await close_session(talk)
    (folder / "fix.md").write_text("Something else.")
    report = await replay(session, workspace)
    assert_same(report)
    assert report.prompts == 3


async def test_plan_answers_are_replayed(start: Start, workspace: Path):
    present = {"plan": "1. Write it.", "title": "It"}
    again = {"plan": "1. Write it well.", "plan_path": "plan-001.md"}
    write = call("WriteFile", {"path": "a.txt", "content": "a\n"}, id="w")
    script = [call("Handoff", present, id="h1"), call("Handoff", again, id="h2"), write, say("Done.")]
    talk = await start(script, can_ask=True)
    await talk.client.submit(Prompt("p1", "plan it", "plan_mode"))
    for number, answer in ((1, AnswerPlan("", "revise", "Better.")), (2, AnswerPlan("", "approve"))):
        event = await wait_for_event(talk, PlanAsked, number)
        await talk.client.submit(replace(answer, ask_id=event.ask_id))
    assert (await talk.until_end("p1")).text == "Done."
    assert_same(await replay(await close_session(talk), workspace))


async def test_work_in_other_folders_is_replayed_in_copies(start: Start, workspace: Path, tmp_path: Path):
    lib, docs = workspace.parent / "lib", workspace.parent / "docs"
    for folder in (lib, docs):
        folder.mkdir()
        (folder / "a.txt").write_text("one\n")
    command = {"command": f"echo two >> {lib}/a.txt; cat {docs}/a.txt; echo x > {docs}/b.txt"}
    script = [call("WriteFile", {"file_path": f"{lib}/b.txt", "content": "new\n"}), say("One.")]
    script += [call("ExecuteCommand", command), call("Read", {"file_path": f"{lib}/a.txt"}), say("Two.")]
    talk = await start(script, add_dirs=(str(lib),))
    await talk.say("one")
    await talk.client.submit(AddRoot(f"{docs}:ro"))
    await talk.say("two")
    before = (lib / "a.txt").read_text()
    session = await close_session(talk)
    report = await replay(session, workspace)
    assert_same(report)
    assert not any("Skipped" in note for note in report.notes)
    saved = tmp_path / "recording"
    save_recording(session, str(saved), str(workspace))
    assert_same(await replay(str(saved), workspace))
    assert (lib / "a.txt").read_text() == before == "one\ntwo\n"
